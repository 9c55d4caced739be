"""The paper's comparison on anybody's labelled file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from addml.errors import UserError
from addml.experiments import protocol, runs
from addml.experiments.fitting import Case, Machine, run_case, stability
from addml.experiments.methods import DEFAULT
from addml.experiments.plans import Task
from addml.experiments.protocol import ONE_CLASS, SEEN, SETTINGS, UNSEEN, Table
from addml.experiments.running import Ended, results
from addml.experiments.tables import Cell, Grid, with_best
from addml.inputs.census import draw
from addml.pipeline import labels
from addml.pipeline.options import Options
from addml.pipeline.sources import choose, open_input
from addml.text import counted

METHODS = (DEFAULT, "DeepAutoencoder", "IsolationForest", "PCC", "OCSVM", "HBOS", "KNN", "LOF")
BATCH_ROWS = 65_536
SECONDS = ("fit_seconds", "score_seconds")


@dataclass(frozen=True)
class Labelled:
    """A user's table, and what is to be said about it."""

    data: Table
    notes: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]  # (column, why)


@dataclass(frozen=True)
class OwnTask(Task):
    """One method on the user's table."""

    data: Table | None = None

    def size(self) -> tuple[int, int]:
        """Rows and columns of the table."""
        assert self.data is not None
        return self.data.shape

    def run(self, machine: Machine) -> list[runs.Row]:
        """The results of the protocol, and how alike seeds rank; columns that fits leave out are no news each time."""
        from addml.detector import LostWarning

        assert self.data is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostWarning)
            alike = stability(self.case, self.data, machine)
            return [{**row, "stability": alike} for row in run_case(self.case, self.data, machine)]

    def words(self) -> str:
        """The method."""
        return self.case.method


@dataclass(frozen=True)
class Result:
    """A method's means over nine runs in one setting."""

    method: str
    setting: str
    auc: float
    auc_spread: float
    ap: float
    ap_spread: float
    fit_seconds: float
    score_seconds: float | None  # none for rows that the fit itself scored
    stability: float  # how alike seeds rank rows that none learned from: the same in all settings


def read(options: Options, most: int, seed: int = 0) -> Labelled:
    """The table of a file with its label apart; rows without a label are left out and counted."""
    label = str(options.label)
    data = open_input(options)
    chosen = choose(data.names, options, data.source)
    table, places, rows = draw(data.batches([*chosen.features, label], BATCH_ROWS), most, seed)
    marks = labels.read_label(table[label], options.anomaly_value, label)
    known = np.flatnonzero(marks != labels.UNKNOWN)
    notes, drawn = list(data.notes), ""
    if len(places) < rows:
        drawn = f" of {len(places):,} of {rows:,} rows (--sample takes more)"
        notes.append(f"compared on {len(places):,} of {rows:,} rows, drawn at random (--sample takes more)")
    if len(known) < len(marks):
        notes.append(f"without a label, and left out: {counted(len(marks) - len(known), 'row')}")
    labelled = Table(data.source, table.select(list(chosen.features)).take(known), marks[known])
    protocol.check(labelled.y, f"{data.source}, label {label!r}{drawn}")
    left_out = (*chosen.left_out, *_left_out(labelled, places[known]))
    return Labelled(labelled, tuple(notes), left_out)


def _left_out(data: Table, places: np.ndarray) -> list[tuple[str, str]]:
    """The columns that no method learns from, and why; a value that none can take is told by its row of the file."""
    from addml.inputs.table import CellError, Columns

    try:
        return Columns.fit(data.table).left_out
    except CellError as error:
        error.row = int(places[error.row - 1]) + 1
        raise UserError(f"{data.name}: {error}") from error


def tasks(data: Table, methods: Iterable[str]) -> list[OwnTask]:
    """Every method on the table."""
    return [OwnTask("compare", data.name, Case(method), data=data) for method in methods]


def compare(
    tasks: Sequence[OwnTask], machine: Machine, jobs: int, on_end: Callable[[Ended], None] = lambda ended: None
) -> list[runs.Row]:
    """The runs of every method that does not fail."""
    found = []
    for ended, rows in results(tasks, machine, jobs):
        on_end(ended)
        found += rows
    return found


def summary(rows: Sequence[runs.Row], by: str = UNSEEN) -> list[Result]:
    """Means of each method and setting; the best in the setting `by` first."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = {(one, setting): _result(one, setting, rows) for one in methods for setting in SETTINGS}
    order = sorted(methods, key=lambda one: (-found[one, by].auc, one))  # of equals, by name
    return [found[one, setting] for one in order for setting in SETTINGS]


def _result(method: str, setting: str, rows: Sequence[runs.Row]) -> Result:
    own = [row for row in rows if (row["method"], row["setting"]) == (method, setting)]
    auc, ap = (np.array([row[name] for row in own]) for name in ("auc", "ap"))
    fit, score = (np.mean([row[name] for row in own if row[name] is not None] or [np.nan]) for name in SECONDS)
    spreads = auc.std(ddof=1), ap.std(ddof=1)
    mean_score = None if setting == SEEN else float(score)
    seconds = float(fit), mean_score
    return Result(method, setting, auc.mean(), spreads[0], ap.mean(), spreads[1], *seconds, own[0]["stability"])


def grid(found: Sequence[Result], source: str, by: str = UNSEEN) -> Grid:
    """The ranked table: figures in percent, how alike seeds rank, seconds of one fit and of scoring a third of all."""
    by_place = {(one.method, one.setting): one for one in found}
    methods = list(dict.fromkeys(one.method for one in found))
    aucs = [with_best([_percent(by_place[one, setting]) for one in methods]) for setting in SETTINGS]
    aps = with_best([Cell(value=100 * by_place[one, by].ap, digits=1) for one in methods])
    lines = []
    for place, method in enumerate(methods):
        own = by_place[method, ONE_CLASS if by == ONE_CLASS else UNSEEN]
        seconds = [Cell(value=own.fit_seconds, digits=3), Cell(value=own.score_seconds, digits=4)]
        figures = *(column[place] for column in aucs), aps[place], Cell(value=own.stability, digits=3)
        lines.append((Cell(str(place + 1)), Cell(method), *figures, *seconds))
    measures = *(f"AUC {setting}" for setting in SETTINGS), f"AP {by}", "Stability"
    heads = ("Rank", "Method", *measures, "Fit, s", "Score, s")
    return Grid(f"{source}: by AUC {by}", heads, tuple(lines), spreads=True)


def _percent(one: Result) -> Cell:
    return Cell(value=100 * one.auc, spread=100 * one.auc_spread, digits=1)
