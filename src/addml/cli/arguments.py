"""Options on the command line: typer parameters, help and `--config`, all made from the fields of `Options`."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from addml.errors import USAGE, AddmlError
from addml.pipeline.options import (
    DECISIONS,
    Options,
    flag,
    is_list,
    is_switch,
    metavar,
    options_of,
    parse,
    types,
)
from addml.text import did_you_mean

RUN = "run"  # the table of a run's record that is no option
WRITES_MODEL = ("detect", "fit")
REPLACES = {  # an option of the command line, and the options of a file that it replaces
    **{name: tuple(other for other in DECISIONS if other != name) for name in DECISIONS},
    "no_report": ("report", "format"),
    "report": ("no_report",),
    "format": ("no_report",),
    "all_rows": ("sample",),
    "sample": ("all_rows",),
}
TYPE_WORDS = {bool: "true or false", list: "a text or a list of texts", str: "one text or number"}

Jobs = Annotated[int, typer.Option("--jobs", help="Number of processes, one thread each.", min=1, metavar="N")]
Device = Annotated[str, typer.Option("--device", help="Where ADDML trains: auto, cpu, cuda, ...", metavar="NAME")]


def with_options(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command with its options, `--config` and `--help-all` as parameters for typer to read."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def spread(context: typer.Context, config: str | None = None, help_all: bool = False, **values: Any) -> None:
            _replace_from_file(context, values)
            _check_not_empty(command, values)
            own = {one.name: parse(one.name, values.pop(one.name)) for one in options_of(name)}
            try:
                command(**values, options=Options(file=values.get("file", ""), **own))
            except KeyboardInterrupt:
                print("Interrupted. No unfinished file was left.", file=sys.stderr)
                raise

        spread.__signature__ = inspect.Signature([*_parameters(command, name)])  # type: ignore[attr-defined]
        spread.__annotations__ = {}
        return spread

    return decorate


def _parameters(command: Callable[..., None], name: str) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(command, include_extras=True)
    for own, parameter in inspect.signature(command).parameters.items():
        if own != "options":
            yield _parameter(own, hints[own], parameter.default)
    for one in options_of(name):
        yield _parameter(one.name, *_typer_option(one))
    yield _parameter("config", CONFIG, None)
    if not all(one.metadata["basic"] for one in options_of(name)):
        yield _parameter("help_all", HELP_ALL, False)
    yield _parameter("context", typer.Context, inspect.Parameter.empty)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _typer_option(one: Field[Any]) -> tuple[Any, Any]:
    """The annotation and the default from which typer makes an option."""
    about, switch = one.metadata, is_switch(one.name)
    off = "" if not switch or one.name == "no_report" else f"/--no-{flag(one.name)[2:]}"  # --report undoes --no-report
    option = typer.Option(
        flag(one.name) + off,
        *about["flags"],
        help=_help(one),
        metavar="" if switch else metavar(one),
        show_default=False,
        rich_help_panel=about["panel"],
        hidden=not about["basic"],
    )
    if is_list(one.name):
        return Annotated[list[str] | None, option], None
    if switch:
        return Annotated[types()[one.name], option], one.default
    return Annotated[str | None, option], None if one.default is None else str(one.default)


def _help(one: Field[Any]) -> str:
    """The help text with the default at its end: (default: 0.1)."""
    words, _, default = one.metadata["help"].partition(" [default: ")
    has_default = one.default is not None and not is_switch(one.name) and not is_list(one.name)
    default = default.removesuffix("]") or (str(one.default) if has_default else "")
    return f"{words} (default: {default})." if default else f"{words}."


def _check_not_empty(command: Callable[..., None], values: dict[str, Any]) -> None:
    """An empty text means nothing; an unset variable of a script leaves one."""
    hints = get_type_hints(command, include_extras=True)
    for name, value in values.items():
        if value == "" or (isinstance(value, list) and "" in value):
            is_argument = any(isinstance(part, ArgumentInfo) for part in get_args(hints.get(name)))
            shown = name.upper() if is_argument else flag(name)
            raise AddmlError(f"{shown} is empty; give a value, or leave it out.", USAGE, option=name)


# --config and --help-all ------------------------------------------------------------------------------------


def _use_config(context: typer.Context, value: str | None) -> str | None:
    if value is not None and not context.resilient_parsing:
        known = {parameter.name or "": _type(parameter) for parameter in context.command.params}
        context.default_map = read_config(value, known, context.info_name or "")
    return value


def _show_all(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        context.get_help()  # which prints it
        raise typer.Exit


CONFIG = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="TOML file with options, such as the NAME.run.toml of an earlier run; the command line wins.",
        metavar="FILE",
        is_eager=True,
        callback=_use_config,
    ),
]
HELP_ALL = Annotated[
    bool, typer.Option("--help-all", help="Show all options and exit.", is_eager=True, callback=_show_all, metavar="")
]


def _type(parameter: Any) -> type:
    """What an option takes: bool for a switch, list for several texts, str for one text or number."""
    if getattr(parameter, "is_flag", False):
        return bool
    return list if getattr(parameter, "multiple", False) else str


def read_config(path: str, known: dict[str, type], command: str) -> dict[str, Any]:
    """The options in a TOML file, checked against those that the command knows."""
    try:
        document = tomllib.loads(Path(os.path.expanduser(path)).read_text("utf-8-sig", "surrogateescape"))
    except OSError as error:
        raise typer.BadParameter(f"{path}: cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: is not a TOML file: {error}.") from error
    run = document.pop(RUN, None)
    words = str(run.get("command", "")).split() if isinstance(run, dict) else []
    other = words[1] if len(words) > 1 else None  # the command that wrote the record
    found = {name.replace("-", "_"): value for name, value in document.items()}
    if "model" in found and command in WRITES_MODEL and other not in (None, *WRITES_MODEL):
        raise typer.BadParameter(
            f"{path}: is the record of an addml {other}, which reads the model {found['model']!r}; addml {command} "
            f"would overwrite it. Use addml {other}, or remove 'model' from the file."
        )
    known = {name: kind for name, kind in known.items() if name not in ("config", "help_all")}
    for name, value in found.items():
        if name not in known:
            raise typer.BadParameter(f"{path}: {name!r} is no option of addml {command}.{did_you_mean(name, known)}")
        if not _fits(value, known[name]):
            shown = json.dumps(value, ensure_ascii=False, default=str)
            raise typer.BadParameter(f"{path}: {name} = {shown}: {name!r} takes {TYPE_WORDS[known[name]]}.")
    as_list = {name for name, value in found.items() if known[name] is list and not isinstance(value, list)}
    return {name: [value] if name in as_list else value for name, value in found.items()}


def _fits(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is list and isinstance(value, list):
        return all(_fits(one, str) for one in value)
    return isinstance(value, str | int | float)


def _replace_from_file(context: typer.Context, values: dict[str, Any]) -> None:
    """Reset the options of a file that an option of the command line replaces."""
    defaults = {parameter.name: parameter.default for parameter in context.command.params}
    sources = {name: getattr(context.get_parameter_source(name), "name", None) for name in values}
    for name, others in REPLACES.items():
        if sources.get(name) != "COMMANDLINE" or values[name] is False:  # a switch that is off replaces nothing
            continue
        for other in others:
            if sources.get(other) == "DEFAULT_MAP":
                values[other] = defaults[other]
