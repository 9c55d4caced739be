"""Settings from a TOML file, checked by name: `--config`."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import typer

from addml.detection.settings import MEMORY
from addml.wording import did_you_mean

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
