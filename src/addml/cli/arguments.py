"""Settings from a TOML file, checked by name: `--config`."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from addml.pipeline import options as known
from addml.pipeline.options import MEMORY, Settings
from addml.text import did_you_mean

RUN = "run"  # the table in which a run's record tells of itself; no settings
WRITERS = ("detect", "fit")  # commands to which `model` is what they write
FORMER = {"memory": MEMORY}  # what earlier records tell though nobody asked for it: it is what holds anyway
ALTERNATIVES = {  # an option, and what of a file it stands in place of
    "tau": ("threshold", "contamination"),
    "threshold": ("tau", "contamination"),
    "contamination": ("tau", "threshold"),
    "no_report": ("report", "format"),
    "report": ("no_report",),
    "format": ("no_report",),
    "all_rows": ("sample",),
    "sample": ("all_rows",),
}
WORDS = {bool: "true or false", list: "a text, or a list of texts", str: "one text or number"}


def apply(context: typer.Context, value: str | None) -> str | None:
    """Let the settings of the file be the defaults of the command, as the option is read."""
    if value is not None and not context.resilient_parsing:
        known = {parameter.name or "": _kind(parameter) for parameter in context.command.params}
        context.default_map = settings_of(value, known, context.info_name or "")
    return value


def give_way(context: typer.Context, values: dict[str, Any]) -> None:
    """Put what the file says back to its default where the command line says something that stands in its place."""
    defaults = {parameter.name: parameter.default for parameter in context.command.params}
    sources = {name: getattr(context.get_parameter_source(name), "name", None) for name in values}
    for option, others in ALTERNATIVES.items():
        if sources.get(option) != "COMMANDLINE" or values[option] is False:  # a switch that is off stands for nothing
            continue
        for other in others:
            of_tail = option == "contamination" and values[other] == "tail"  # which has a share of its own
            if sources.get(other) == "DEFAULT_MAP" and not of_tail:
                values[other] = defaults[other]


def _kind(parameter: Any) -> type:
    """What a setting takes: bool for a switch, list for several names, str for one text or number."""
    if getattr(parameter, "is_flag", False):
        return bool
    return list if getattr(parameter, "multiple", False) else str


def settings_of(path: str, known: dict[str, type], command: str) -> dict[str, Any]:
    """The settings of a TOML file by the names that the command knows, with what each of them takes."""
    try:
        document = tomllib.loads(Path(os.path.expanduser(path)).read_text("utf-8-sig", "surrogateescape"))
    except OSError as error:
        raise typer.BadParameter(f"{path}: cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: is not a TOML file: {error}.") from error
    other = _command_of(document.pop(RUN, None))
    found = {name.replace("-", "_"): value for name, value in document.items()}
    if other is not None:
        found = {name: value for name, value in found.items() if FORMER.get(name) != value}
    if "model" in found and command in WRITERS and other not in (None, *WRITERS):
        raise typer.BadParameter(
            f"{path}: is the record of an addml {other}, which reads the model {found['model']!r}; addml {command} "
            f"would write over it. Use addml {other}, or take 'model' out of the file."
        )
    known = {name: kind for name, kind in known.items() if name != "config"}
    for name, value in found.items():
        if name not in known:
            raise typer.BadParameter(f"{path}: {name!r} is no setting of addml {command}.{did_you_mean(name, known)}")
        if not _fits(value, known[name]):
            said = json.dumps(value, ensure_ascii=False, default=str)
            raise typer.BadParameter(f"{path}: {name} = {said}: {name!r} takes {WORDS[known[name]]}.")
    return {
        name: [value] if known[name] is list and not isinstance(value, list) else value for name, value in found.items()
    }


def _command_of(run: Any) -> str | None:
    """The command that a record is of."""
    words = str(run.get("command", "")).split() if isinstance(run, dict) else []
    return words[1] if len(words) > 1 else None


def _fits(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is list and isinstance(value, list):
        return all(_fits(one, str) for one in value)
    return isinstance(value, str | int | float)


# Settings become options: a command names the groups that it takes and gets them filled.


LIST = tuple[str, ...]
GROUPS = {name: kind for name, kind in get_type_hints(Settings).items() if hasattr(known, kind.__name__)}
CONFIG = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="Take settings from this TOML file, such as the NAME.run.toml of an earlier run; "
        "options on the command line count more.",
        metavar="FILE",
        is_eager=True,
        callback=apply,
        rich_help_panel="Settings",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", help="Processes that work at once, on one thread each.", min=1, metavar="N")
]
Device = Annotated[
    str, typer.Option("--device", help="Where ADDML trains: auto, cpu, cuda, cuda:1 or mps.", metavar="NAME")
]


def with_settings(*groups: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command with these groups of settings spread out as options, and `--config`, for typer to read."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def spread(context: typer.Context, config: str | None = None, **values: Any) -> None:
            give_way(context, values)
            _refuse_empty(command, values)
            filled = {name: _filled(GROUPS[name], values) for name in groups}
            try:
                command(**values, settings=Settings(file=values.get("file", ""), groups=groups, **filled))
            except KeyboardInterrupt:
                print("Interrupted. No unfinished file was left.", file=sys.stderr)
                raise

        spread.__signature__ = inspect.Signature([*_parameters(command, groups)])  # type: ignore[attr-defined]
        spread.__annotations__ = {}
        return spread

    return decorate


def _refuse_empty(command: Callable[..., None], values: dict[str, Any]) -> None:
    """An empty text names nothing; it is what an unset variable of a script leaves."""
    hints = get_type_hints(command, include_extras=True)
    for name, value in values.items():
        if value == "" or (isinstance(value, list) and "" in value):
            is_argument = any(isinstance(part, ArgumentInfo) for part in get_args(hints.get(name)))
            shown = name.upper() if is_argument else f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{shown} is empty; give a value, or leave it out.")


def _parameters(command: Callable[..., None], groups: tuple[str, ...]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if name != "settings":
            yield _parameter(name, hints[name], parameter.default)
    for group in groups:
        kind = GROUPS[group]
        panel, types = (kind.__doc__ or "").rstrip("."), get_type_hints(kind)
        for one in fields(kind):
            yield _parameter(one.name, *_option(one, types[one.name], panel))
    yield _parameter("config", CONFIG, None)
    yield _parameter("context", typer.Context, inspect.Parameter.empty)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _option(one: Field[Any], kind: Any, panel: str) -> tuple[Any, Any]:
    """The annotation and the default by which typer makes an option of a field."""
    about, name = one.metadata, "--" + one.name.replace("_", "-")
    limits, is_switch = {"min": about["least"], "max": about["most"]}, kind in (bool, bool | None)
    option = typer.Option(
        name + (_opposite(name) if is_switch else ""),
        *about["short"],
        help=about["words"][0].upper() + about["words"][1:] + ".",
        metavar="" if is_switch else about["shown"],
        show_default=not is_switch,  # off
        rich_help_panel=panel,
        callback=_one_of(about["choices"]) if about["choices"] else None,
        **{key: limit for key, limit in limits.items() if limit is not None},
    )
    return Annotated[list[str] | None if kind == LIST else kind, option], None if kind == LIST else one.default


def _opposite(name: str) -> str:
    """How a switch that a file has on is turned off: /--no-quiet for --quiet, /--cache for --no-cache."""
    if name == "--no-report":  # --report FILE and --format do it
        return ""
    return f"/--{name[5:]}" if name.startswith("--no-") else f"/--no-{name[2:]}"


def _one_of(choices: tuple[str, ...]) -> Callable[[str | None], str | None]:
    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, choices))}.")
        return value

    return check


def _filled(group: Any, values: dict[str, Any]) -> Any:
    """The group with its part of the values, which are taken out."""
    types = get_type_hints(group)
    own = {one.name: values.pop(one.name) for one in fields(group)}
    return group(**{name: tuple(value or ()) if types[name] == LIST else value for name, value in own.items()})
