"""Settings from a TOML file, checked by name: `--config`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

RUN = "run"  # the table in which a run's record tells of itself; no settings


def apply(context: typer.Context, value: str | None) -> str | None:
    """Let the settings of the file be the defaults of the command, as the option is read."""
    if value is not None and not context.resilient_parsing:
        known = {parameter.name or "": getattr(parameter, "multiple", False) for parameter in context.command.params}
        context.default_map = settings_of(value, known, context.info_name or "")
    return value


def settings_of(path: str, known: dict[str, bool], command: str) -> dict[str, Any]:
    """The settings of a TOML file by the names that the command knows, which tell whether they take a list."""
    try:
        document = tomllib.loads(Path(os.path.expanduser(path)).read_text("utf-8-sig", "surrogateescape"))
    except OSError as error:
        raise typer.BadParameter(f"{path}: cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: is not a TOML file: {error}.") from error
    document.pop(RUN, None)
    found = {name.replace("-", "_"): value for name, value in document.items()}
    known = {name: several for name, several in known.items() if name != "config"}
    for name in found:
        if name not in known:
            raise typer.BadParameter(f"{path}: {name!r} is no setting of addml {command}.{_hint(name, known)}")
    return {name: [value] if known[name] and isinstance(value, str) else value for name, value in found.items()}


def _hint(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
