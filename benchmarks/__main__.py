"""`make benchmark`: print the ratios and write them to docs/performance.md."""

from __future__ import annotations

import argparse
import cProfile
import importlib
import platform
import pstats
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

import addml
from benchmarks import fitting, scoring
from benchmarks.tables import table
from benchmarks.timing import markdown

DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"


def replaced(text: str, name: str, content: str) -> str:
    """The document with the part between two marks replaced by what was measured."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{DOCUMENT} has no part named {name}")
    return pattern.sub(lambda _: f"{start}\n{content.strip()}\n{end}", text)


def asked(program: str, about: str | None, known: Iterable[str], arguments: list[str]) -> list[str]:
    """The parts named on the command line; an unknown one ends the program before anything is measured."""
    names = list(known)
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"one of {', '.join(names)}")
    given: list[str] = parser.parse_args(arguments).parts
    for name in given:
        if name not in names:
            parser.error(f"{name!r} is no part; one of {', '.join(names)}")
    return given


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


def scores() -> str:
    """The table of scoring speeds."""
    rows = [[name, f"{value:.2f}"] for name, value in scoring.million().items()]
    rows += [["extra memory for a million rows, MB", f"{scoring.extra_memory():.0f}"]]
    rows += [["one row through anomaly_score, microseconds", f"{scoring.one_row():.0f}"]]
    return markdown(["1,000,000 x 32, million rows a second", "measured"], rows)


def member_ratio() -> str:
    """One member and ten."""
    one, ten, ratio = fitting.members()
    rows = [["one member", f"{one:.3f} s"], ["ten members", f"{ten:.3f} s"], ["ratio", f"{ratio:.2f}"]]
    return markdown(["Letter, batches of 64, one thread", "measured"], rows)


def profile() -> str:
    """Where the time of a fit goes: each function's own share, the largest first."""
    X, _ = table("letter")
    profiler = cProfile.Profile()
    detector = addml.ADDML.paper(patience=50, random_state=0, device="cpu")
    profiler.runcall(detector.fit, X)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in stats.values())
    largest = sorted(stats.items(), key=lambda item: -item[1][2])[:12]
    rows = [[_place(where), f"{calls}", f"{100 * own / total:.0f} %"] for where, (calls, _, own, _, _) in largest]
    return markdown(["function (its own time)", "calls", "share"], rows)


def _place(where: tuple[str, int, str]) -> str:
    file, _, name = where
    return f"`{name}`" if file == "~" else f"`{Path(file).parent.name}/{Path(file).name}: {name}`"


def _later(module: str, name: str) -> Callable[[], str]:
    """A part whose module is imported when it is measured: not every machine has what it needs."""
    return lambda: str(getattr(importlib.import_module(f"benchmarks.{module}"), name)())


PARTS = {
    "fits": fitting.fits,
    "members": member_ratio,
    "many": _later("many", "many"),
    "presets": _later("presets", "presets"),
    "scores": scores,
    "files": _later("files", "files"),
    "profile": profile,
}
ON_REQUEST = {"gpu": _later("gpu", "gpu"), "precision": _later("precision", "precision")}  # need a CUDA device


def main() -> None:
    """Measure every part, or those named; `decisions` has a document and parts of its own."""
    if sys.argv[1:2] == ["decisions"]:
        importlib.import_module("benchmarks.decisions").main(sys.argv[2:])
        return
    about = f"{__doc__} Without any part: all but {' and '.join(ON_REQUEST)}. decisions --help tells of its own."
    chosen = asked("benchmarks", about, PARTS | ON_REQUEST, sys.argv[1:]) or list(PARTS)
    text = DOCUMENT.read_text()
    if set(chosen) - set(ON_REQUEST):
        text = replaced(text, "machine", machine())
    for name in chosen:
        content = (PARTS | ON_REQUEST)[name]()
        print(content, flush=True)
        text = replaced(text, name, content)
    DOCUMENT.write_text(text)
    print(f"written to {DOCUMENT.name}")


if __name__ == "__main__":
    main()
