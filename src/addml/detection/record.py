"""The record of a run, beside its output: settings and versions, in TOML that `--config` reads back."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from addml import __version__

PACKAGES = ("addml", "numpy", "pyarrow", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True)
class Run:
    """What was asked: the command, its arguments as given, and every setting with its value."""

    command: str
    arguments: Sequence[str]
    settings: Mapping[str, Any]
    started: datetime

    @classmethod
    def begin(cls, command: str, arguments: Sequence[str], settings: Mapping[str, Any]) -> Run:
        """A run that starts now."""
        return cls(command, arguments, settings, datetime.now(UTC))


def versions(*more: str) -> dict[str, str]:
    """The versions that a result may depend on, and those of further packages."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def record(run: Run, outcome: Mapping[str, Any]) -> str:
    """The run as TOML: its settings first, then what it was and what came out, which `--config` passes over."""
    name = f"addml {run.command} --config THIS_FILE"
    lines = [f"# Settings of a run of addml {__version__}. Repeat it with: {name}", *_lines(run.settings)]
    about = {
        "command": _shell(["addml", *run.arguments]),
        "folder": os.getcwd(),
        "started": run.started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - run.started).total_seconds(), 3),
    }
    lines += ["", "[run]", *_lines(about)]
    for title, table in {
        "input": _input(str(run.settings.get("file", ""))),
        "outcome": outcome,
        "versions": versions(),
    }.items():
        lines += ["", f"[run.{title}]", *_lines(table)] if table else []
    return "\n".join(lines) + "\n"


def _input(file: str) -> dict[str, Any]:
    """What tells whether the file is still the same one."""
    path = Path(os.path.expanduser(file))
    if not file or not path.is_file():
        return {}
    about = path.stat()
    changed = datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
    return {"path": str(path.resolve()), "bytes": about.st_size, "changed": changed}


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items() if value is not None]


def _key(name: str) -> str:
    plain = name.replace("_", "-")
    return plain if plain.replace("-", "").isalnum() and plain.isascii() else _value(name)


def _value(value: Any) -> str:
    """A value in TOML, whose strings, numbers, truths and lists are written as in JSON."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _shell(words: Sequence[str]) -> str:
    import shlex

    return shlex.join(words)
