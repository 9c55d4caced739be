"""Tables of seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from addml.experiments import sets, timing
from addml.experiments.methods import title
from addml.experiments.plans import Plan
from addml.experiments.protocol import SEEN
from addml.experiments.runs import Row, label_of
from addml.experiments.tables import Cell, Grid

FITS = 18


def of_methods(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Seconds of all fits of each set by each method, as the comparison took them."""
    labels = plan.labels
    names = [name for name in plan.sets if any(row["set"] == name for row in rows)]
    lines = [(Cell(sets.title(name)), *(_seconds(_fits(rows, name, one)) for one in labels)) for name in names]
    totals = [_seconds([second for name in names for second in _fits(rows, name, one)]) for one in labels]
    note = f"Seconds for the {FITS} fits of a set, by one process; those of ADDML train together in one call."
    return Grid(
        f"{plan.title}: seconds",
        ("Set", *map(title, labels)),
        (*lines, (Cell("All"), *totals)),
        (note,),
        frozenset({len(lines)}),
    )


def _fits(rows: Iterable[Row], name: str, label: str) -> list[float]:
    """The seconds of each fit; a polluted one has two rows."""
    return [
        row["fit_seconds"] for row in rows if row["set"] == name and label_of(row) == label and row["setting"] != SEEN
    ]


def _seconds(found: Sequence[float]) -> Cell:
    return Cell(value=float(np.sum(found)), digits=1) if found else Cell("–")


def grids(plan: Plan, rows: Sequence[Row]) -> dict[str, Grid]:
    """Fitting and scoring against rows and columns, and what distillation and mining save."""
    found = {}
    for what in (timing.BY_ROWS, timing.BY_COLUMNS):
        for words, seconds in (("fit", "fit_seconds"), ("score", "score_seconds")):
            found[f"{words}-{what}"] = _against(plan, rows, what, words, seconds)
    return {**found, timing.SAVED: _saved(plan, rows)}


def _against(plan: Plan, rows: Sequence[Row], what: str, words: str, seconds: str) -> Grid:
    own = [row for row in rows if row["variant"] == what]
    sizes = sorted({row[what] for row in own})
    methods = [case.method for case in plan.cases]
    lines = []
    for method in methods:
        values = [[row[seconds] for row in own if row["method"] == method and row[what] == size] for size in sizes]
        lines.append((Cell(method), *(_milliseconds(one) for one in values)))
    task = "fit" if words == "fit" else f"score {timing.SCORED:,} rows"
    heads = ("Method", *(f"{size:,} {what}" for size in sizes))
    return Grid(f"Milliseconds to {task}, against {what}", heads, tuple(lines))


def _milliseconds(found: Sequence[float]) -> Cell:
    return Cell(value=1000 * min(found), digits=1) if found else Cell("–")


def _saved(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Seconds of a fit of 50 epochs with each component on or off, and the share of the time without them."""
    lines = []
    for what in timing.SAVINGS:
        cells = []
        for name in plan.sets:
            own, whole = (_fastest(rows, name, one) for one in (what, "neither"))
            cells += [Cell("–")] * 2 if own is None or whole is None else [Cell(value=own), Cell(value=own / whole)]
        lines.append((Cell(what), *cells))
    heads = [f"{sets.title(name)}, {what}" for name in plan.sets for what in ("s", "of neither")]
    return Grid("Seconds of 50 epochs with distillation and mining on or off", ("Components", *heads), tuple(lines))


def _fastest(rows: Iterable[Row], name: str, what: str) -> float | None:
    found = [row["fit_seconds"] for row in rows if row["set"] == name and row["variant"] == f"{timing.SAVED}: {what}"]
    return min(found) if found else None
