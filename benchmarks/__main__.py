"""`make benchmark`: print the ratios and write them to docs/performance.md."""

from __future__ import annotations

import cProfile
import importlib
import pstats
import sys
from collections.abc import Callable
from pathlib import Path

import addml
from benchmarks import fitting, scoring
from benchmarks.documents import DOCS, asked, machine, write_part
from benchmarks.tables import table
from benchmarks.timing import markdown

DOCUMENT = DOCS / "performance.md"


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
    "onnx": _later("exported", "exported"),
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
    if set(chosen) - set(ON_REQUEST):
        write_part(DOCUMENT, "machine", machine())
    for name in chosen:
        write_part(DOCUMENT, name, (PARTS | ON_REQUEST)[name]())
    print(f"written to {DOCUMENT.name}")


if __name__ == "__main__":
    main()
