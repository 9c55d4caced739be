"""Command-line options: typer parameters, help and `--config`, all built from the fields of `Options`."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import Field
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from addml.errors import USAGE, AddmlError
from addml.pipeline import options as known_options
from addml.pipeline.options import DECISIONS, Options, flag, is_list, is_switch, options_of, read_toml
from addml.text import did_you_mean

WRITES_MODEL = ("detect", "fit")
REPLACES = {  # an option on the command line, and the options of a --config file that it overrides
    **{name: tuple(other for other in DECISIONS if other != name) for name in DECISIONS},
    "no_report": ("report", "format"),
    "report": ("no_report",),
    "format": ("no_report",),
    "all_rows": ("sample",),
    "sample": ("all_rows",),
}
TYPE_WORDS = {bool: "true or false", list: "a string or a list of strings", str: "a string or a number"}


def argument(metavar: str, help: str, show_default: bool = False) -> Any:
    return typer.Argument(help=help, metavar=metavar, show_default=show_default)


def option(name: str, metavar: str, help: str, **more: Any) -> Any:
    return typer.Option(name, help=help, metavar=metavar, **more)


Jobs = Annotated[int, option("--jobs", "N", "Number of single-threaded processes.", min=1)]
Device = Annotated[str, option("--device", "NAME", "Device: auto, cpu, cuda, cuda:1 or mps.")]


def with_options(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command its options, `--config` and `--help-all` as a signature that typer reads."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints, fields = get_type_hints(command, include_extras=True), options_of(name)
        arguments = {key for key in hints if any(isinstance(part, ArgumentInfo) for part in get_args(hints[key]))}

        @functools.wraps(command)
        def wrapper(context: typer.Context, config: str | None = None, help_all: bool = False, **values: Any) -> None:
            _override_config(context, values)
            for key, value in values.items():
                if value == "" or (isinstance(value, list) and "" in value):  # an unset variable in a script
                    shown = key.upper() if key in arguments else flag(key)
                    raise AddmlError(f"{shown} is empty; set a value or remove it.", USAGE, option=key)
            parsed = {one.name: known_options.parse(one.name, values.pop(one.name)) for one in fields}
            try:
                command(**values, options=Options(file=values.get("file", ""), **parsed))
            except KeyboardInterrupt:
                print("Interrupted; no partial files were left behind.", file=sys.stderr)
                raise

        own = inspect.signature(command).parameters.items()
        parameters = [(key, hints[key], one.default) for key, one in own if key != "options"]
        parameters += [(one.name, *_typer_option(one)) for one in fields]
        parameters.append(("config", CONFIG, None))
        if not all(one.metadata["basic"] for one in fields):
            parameters.append(("help_all", HELP_ALL, False))
        parameters.append(("context", typer.Context, inspect.Parameter.empty))
        kind = inspect.Parameter.KEYWORD_ONLY
        found = [inspect.Parameter(key, kind, annotation=hint, default=default) for key, hint, default in parameters]
        wrapper.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {}
        return wrapper

    return decorate


def _typer_option(one: Field[Any]) -> tuple[Any, Any]:
    """The annotation and the default of a typer option; its help ends with the default."""
    about, switch, several = one.metadata, is_switch(one.name), is_list(one.name)
    off = "" if not switch or one.name == "no_report" else f"/--no-{flag(one.name)[2:]}"  # --report undoes --no-report
    words, _, default = about["help"].replace("addml[", r"addml\[").partition(" [default: ")  # rich markup
    has_default = one.default is not None and not switch and not several
    default = default.removesuffix("]") or (str(one.default) if has_default else "")
    typed = typer.Option(
        flag(one.name) + off,
        *about["flags"],
        help=f"{words} (default: {default})." if default else f"{words}.",
        metavar="" if switch else known_options.metavar(one),
        show_default=False,
        rich_help_panel=about["panel"],
        hidden=not about["basic"],
    )
    if several:
        return Annotated[list[str] | None, typed], None
    if switch:
        return Annotated[known_options.types()[one.name], typed], one.default
    return Annotated[str | None, typed], None if one.default is None else str(one.default)


def _override_config(context: typer.Context, values: dict[str, Any]) -> None:
    """Reset the options of a `--config` file that an option on the command line overrides."""
    defaults = {parameter.name: parameter.default for parameter in context.command.params}
    sources = {name: getattr(context.get_parameter_source(name), "name", None) for name in values}
    for name, others in REPLACES.items():
        if sources.get(name) == "COMMANDLINE" and values[name] is not False:  # a switch turned off overrides nothing
            for other in others:
                if sources.get(other) == "DEFAULT_MAP":
                    values[other] = defaults[other]


def _use_config(context: typer.Context, value: str | None) -> str | None:
    if value is not None and not context.resilient_parsing:
        known = {str(one.name): _type_in_file(one) for one in context.command.params}
        context.default_map = read_config(value, known, context.info_name or "")
    return value


def _type_in_file(parameter: Any) -> type:
    if getattr(parameter, "is_flag", False):
        return bool
    return list if getattr(parameter, "multiple", False) else str


def _show_all(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        context.get_help()  # prints it
        raise typer.Exit


CONFIG_HELP = "TOML file with options, such as NAME.run.toml from an earlier run; the command line overrides it."
CONFIG = Annotated[str | None, option("--config", "FILE", CONFIG_HELP, is_eager=True, callback=_use_config)]
HELP_ALL = Annotated[bool, option("--help-all", "", "Show all options and exit.", is_eager=True, callback=_show_all)]


def read_config(path: str, known: dict[str, type], command: str) -> dict[str, Any]:
    """The options in a TOML file, checked against the names and types that the command accepts."""
    try:
        document = read_toml(path, errors="surrogateescape")
    except AddmlError as error:
        raise typer.BadParameter(str(error)) from error
    run = document.pop("run", None)  # a table of run records, not an option
    words = str(run.get("command", "")).split() if isinstance(run, dict) else []
    writer = words[1] if len(words) > 1 else None
    found = {name.replace("-", "_"): value for name, value in document.items()}
    if "model" in found and command in WRITES_MODEL and writer not in (None, *WRITES_MODEL):
        raise typer.BadParameter(
            f"{path}: was written by addml {writer}, which reads the model {found['model']!r}; addml {command} "
            f"would overwrite it. Use addml {writer}, or remove 'model' from the file."
        )
    known = {name: kind for name, kind in known.items() if name not in ("config", "help_all")}
    for name, value in found.items():
        if name not in known:
            raise typer.BadParameter(f"{path}: addml {command} has no option {name!r}.{did_you_mean(name, known)}")
        if not _fits(value, known[name]):
            shown = json.dumps(value, ensure_ascii=False, default=str)
            raise typer.BadParameter(f"{path}: {name} = {shown}: must be {TYPE_WORDS[known[name]]}.")
        if known[name] is list and not isinstance(value, list):
            found[name] = [value]
    return found


def _fits(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is list and isinstance(value, list):
        return all(_fits(one, str) for one in value)
    return isinstance(value, str | int | float)
