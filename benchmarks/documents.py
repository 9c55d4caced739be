"""Measured parts of documents: choosing them on the command line and writing them between their markers."""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parents[1] / "docs"


def write_part(document: Path, name: str, content: str) -> None:
    """Print the content and write it between the two markers of that name."""
    print(content, flush=True)
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    text = document.read_text()
    if not pattern.search(text):
        raise SystemExit(f"{document} has no part named {name}")
    document.write_text(pattern.sub(lambda _: f"{start}\n{content.strip()}\n{end}", text))


def parse_parts(program: str, description: str | None, parts: Iterable[str], arguments: list[str]) -> list[str]:
    """The parts named on the command line; an unknown one is an error before anything is measured."""
    names = list(parts)
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"one of {', '.join(names)}")
    chosen: list[str] = parser.parse_args(arguments).parts
    for name in chosen:
        if name not in names:
            parser.error(f"{name!r} is not a part; choose one of {', '.join(names)}")
    return chosen


def machine() -> str:
    """The processor and the versions that matter for speed."""
    names = [line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    cpu = names[0] if names else platform.processor()
    import sklearn
    import torch

    versions = f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}"
    return f"Measured on {len(names) or '?'} cores ({cpu}); {versions}, scikit-learn {sklearn.__version__}."


def _cpu_lines() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []
