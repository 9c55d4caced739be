"""Settings become options: a command names the groups that it takes and gets them filled."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from addml.cli import config
from addml.cli.config import give_way
from addml.detection import settings as known
from addml.detection.settings import Settings

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
        callback=config.apply,
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
