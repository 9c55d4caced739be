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
from addml.pipeline import options as definitions
from addml.pipeline.options import DECISIONS, Options, flag, is_list, is_switch, options_of, read_toml
from addml.text import did_you_mean

WRITES_MODEL = ("detect", "fit")
OVERRIDES = {  # an option on the command line, and the options of a --config file that it overrides
    **{name: tuple(other for other in DECISIONS if other != name) for name in DECISIONS},
    "no_report": ("report", "format"),
    "report": ("no_report",),
    "format": ("no_report",),
    "all_rows": ("sample",),
    "sample": ("all_rows",),
}
TYPE_NAMES = {bool: "true or false", list: "a string or a list of strings", str: "a string or a number"}


def argument(metavar: str, help: str, show_default: bool = False) -> Any:
    return typer.Argument(help=help, metavar=metavar, show_default=show_default)


def option(name: str, metavar: str, help: str, **settings: Any) -> Any:
    return typer.Option(name, help=help, metavar=metavar, **settings)


Jobs = Annotated[int, option("--jobs", "N", "Number of single-threaded processes.", min=1)]
Device = Annotated[str, option("--device", "NAME", "Device: auto, cpu, cuda, cuda:1 or mps.")]


def with_options(command_name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command its options, `--config` and `--help-all` as a signature that typer reads."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints, fields = get_type_hints(command, include_extras=True), options_of(command_name)
        arguments = {name for name in hints if any(isinstance(part, ArgumentInfo) for part in get_args(hints[name]))}

        @functools.wraps(command)
        def wrapper(context: typer.Context, config: str | None = None, help_all: bool = False, **values: Any) -> None:
            _override_config(context, values)
            for name, value in values.items():
                if value == "" or (isinstance(value, list) and "" in value):  # an unset variable in a script
                    title = name.upper() if name in arguments else flag(name)
                    raise AddmlError(f"{title} is empty; set a value or remove it.", USAGE, option=name)
            parsed = {field.name: definitions.parse(field.name, values.pop(field.name)) for field in fields}
            try:
                command(**values, options=Options(file=values.get("file", ""), **parsed))
            except KeyboardInterrupt:
                print("Interrupted; no partial files were left behind.", file=sys.stderr)
                raise

        parameters = inspect.signature(command).parameters
        entries = [(name, hints[name], parameters[name].default) for name in parameters if name != "options"]
        entries += [(field.name, *_typer_option(field)) for field in fields]
        entries.append(("config", CONFIG, None))
        if not all(field.metadata["basic"] for field in fields):
            entries.append(("help_all", HELP_ALL, False))
        entries.append(("context", typer.Context, inspect.Parameter.empty))
        kind = inspect.Parameter.KEYWORD_ONLY
        signature = [inspect.Parameter(name, kind, annotation=hint, default=value) for name, hint, value in entries]
        wrapper.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {}
        return wrapper

    return decorate


def _typer_option(field: Field[Any]) -> tuple[Any, Any]:
    """The annotation and the default of a typer option; its help ends with the default."""
    metadata, switch, repeatable = field.metadata, is_switch(field.name), is_list(field.name)
    has_off = switch and field.name != "no_report"  # --report is the opposite of --no-report
    text, _, default = metadata["help"].replace("addml[", r"addml\[").partition(" [default: ")  # rich markup
    has_default = field.default is not None and not switch and not repeatable
    default = default.removesuffix("]") or (str(field.default) if has_default else "")
    option = typer.Option(
        flag(field.name) + (f"/--no-{flag(field.name)[2:]}" if has_off else ""),
        *metadata["flags"],
        help=f"{text} (default: {default})." if default else f"{text}.",
        metavar="" if switch else definitions.metavar(field),
        show_default=False,
        rich_help_panel=metadata["panel"],
        hidden=not metadata["basic"],
    )
    if repeatable:
        return Annotated[list[str] | None, option], None
    if switch:
        return Annotated[definitions.types()[field.name], option], field.default
    return Annotated[str | None, option], None if field.default is None else str(field.default)


def _override_config(context: typer.Context, values: dict[str, Any]) -> None:
    """Reset the options of a `--config` file that an option on the command line overrides."""
    defaults = {parameter.name: parameter.default for parameter in context.command.params}
    sources = {name: getattr(context.get_parameter_source(name), "name", None) for name in values}
    for name, others in OVERRIDES.items():
        if sources.get(name) == "COMMANDLINE" and values[name] is not False:  # a switch turned off overrides nothing
            for other in others:
                if sources.get(other) == "DEFAULT_MAP":
                    values[other] = defaults[other]


def _use_config(context: typer.Context, value: str | None) -> str | None:
    if value is not None and not context.resilient_parsing:
        known_types = {str(parameter.name): _toml_type(parameter) for parameter in context.command.params}
        context.default_map = read_config(value, known_types, context.info_name or "")
    return value


def _toml_type(parameter: Any) -> type:
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


def read_config(path: str, known_types: dict[str, type], command: str) -> dict[str, Any]:
    """The options in a TOML file, checked against the names and types that the command accepts."""
    try:
        document = read_toml(path, errors="surrogateescape")
    except AddmlError as error:
        raise typer.BadParameter(str(error)) from error
    run = document.pop("run", None)  # a table of run records, not an option
    words = str(run.get("command", "")).split() if isinstance(run, dict) else []
    writer = words[1] if len(words) > 1 else None
    options = {name.replace("-", "_"): value for name, value in document.items()}
    if "model" in options and command in WRITES_MODEL and writer not in (None, *WRITES_MODEL):
        raise typer.BadParameter(
            f"{path}: was written by addml {writer}, which reads the model {options['model']!r}; addml {command} "
            f"would overwrite it. Use addml {writer}, or remove 'model' from the file."
        )
    allowed = {name: kind for name, kind in known_types.items() if name not in ("config", "help_all")}
    for name, value in options.items():
        if name not in allowed:
            raise typer.BadParameter(f"{path}: addml {command} has no option {name!r}.{did_you_mean(name, allowed)}")
        if not _has_type(value, allowed[name]):
            text = json.dumps(value, ensure_ascii=False, default=str)
            raise typer.BadParameter(f"{path}: {name} = {text}: must be {TYPE_NAMES[allowed[name]]}.")
        if allowed[name] is list and not isinstance(value, list):
            options[name] = [value]
    return options


def _has_type(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is list and isinstance(value, list):
        return all(_has_type(item, str) for item in value)
    return isinstance(value, str | int | float)
