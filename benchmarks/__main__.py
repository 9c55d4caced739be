"""`make benchmark`: print the ratios and write them to docs/performance.md."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from benchmarks import fitting, scoring
from benchmarks.documents import DOCS, machine, parse_parts, write_part
from benchmarks.timing import markdown

DOCUMENT = DOCS / "performance.md"


def scores() -> str:
    """The table of scoring speeds."""
    rows = [[name, f"{value:.2f}"] for name, value in scoring.million().items()]
    rows += [["extra memory for a million rows, MB", f"{scoring.extra_memory():.0f}"]]
    rows += [["one row through anomaly_score, microseconds", f"{scoring.one_row():.0f}"]]
    return markdown(["1,000,000 x 32, million rows a second", "measured"], rows)


def member_ratio() -> str:
    """The table of training one member and ten."""
    one, ten, ratio = fitting.members()
    rows = [["one member", f"{one:.3f} s"], ["ten members", f"{ten:.3f} s"], ["ratio", f"{ratio:.2f}"]]
    return markdown(["Letter, batches of 64, one thread", "measured"], rows)


def _later(module: str, name: str) -> Callable[[], str]:
    """A part whose module is imported when it is measured: it may need packages that this machine does not have."""
    return lambda: str(getattr(importlib.import_module(f"benchmarks.{module}"), name)())


PARTS = {
    "fits": fitting.fits,
    "members": member_ratio,
    "many": _later("many", "many"),
    "presets": _later("presets", "presets"),
    "scores": scores,
    "onnx": _later("exported", "exported"),
    "files": _later("files", "files"),
}
ON_REQUEST = {  # need a CUDA device or ten minutes, or do not measure speed
    "dialects": _later("dialects", "dialects_table"),
    "gpu": _later("gpu", "gpu"),
    "precision": _later("precision", "precision"),
    "serving": _later("serving", "serving"),
}
DETAILED = ("dialects", "gpu", "onnx", "serving")  # have pages of their own under docs/results
FURTHER = ("members", "scores", "files")  # in docs/results/performance.md
PRINTED = ("many", "precision")  # in no document


def main() -> None:
    """Measure every part, or those named; `decisions` and `reasons` write to their own documents."""
    if sys.argv[1:2] in (["decisions"], ["reasons"]):
        importlib.import_module(f"benchmarks.{sys.argv[1]}").main(sys.argv[2:])
        return
    description = f"{__doc__} Default: all but {' and '.join(ON_REQUEST)}. decisions --help lists its own parts."
    chosen = parse_parts("benchmarks", description, PARTS | ON_REQUEST, sys.argv[1:]) or list(PARTS)
    if set(chosen) - set(ON_REQUEST):
        write_part(DOCUMENT, "machine", machine())
    for name in chosen:
        part = (PARTS | ON_REQUEST)[name]()
        if name in PRINTED:
            print(part, flush=True)
        else:
            page = "performance" if name in FURTHER else name
            document = DOCS / "results" / f"{page}.md" if name in DETAILED + FURTHER else DOCUMENT
            write_part(document, name, part)
            print(f"written to {document.name}")


if __name__ == "__main__":
    main()
