"""`python -m benchmarks reasons`: do the printed reasons name what is wrong, and what share of a score do they cover?

The parts: four correlated columns of ordinary rows moved together, in six of `tables/`; one value of ordinary rows
moved far out, in small tables of all collections; the share of the score that the reasons of flagged rows cover; gross
errors planted in tables on which `auto` decides; and the reasons of the flagged rows of `real/`.
"""

from __future__ import annotations

import argparse
import logging
import os
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from addml import ADDML
from addml.explain import Reasons
from addml.findings import Usual
from addml.model import Model
from addml.pipeline import run
from addml.pipeline.batches import features_of, reasons_for
from addml.pipeline.options import Options
from addml.progress import Progress
from benchmarks.documents import DOCS, write_part
from benchmarks.timing import markdown

FOLDERS = ("many", "adbench-dev", "tables")
MOST_COLUMNS, MOST_ROWS = 20, 20_000
REASONS = 3  # as the commands print
SINGLE = 20  # rows of a table with one value moved
GROUPED, GROUPED_TABLES, TOGETHER = 40, 6, 4  # rows of a table, tables, columns moved together
CORRELATED, DEVIATIONS = 0.7, 5.0
GROSS = 10  # errors in a table, at most one in a hundred rows
WIDTHS = ((1, 5), (6, 10), (11, 15), (16, 20))  # columns


class Judged(NamedTuple):
    """Results of one table: columns, shares covered in flagged rows, and whether moved values are named first."""

    columns: int
    carried: np.ndarray
    first: np.ndarray


def files(folders: Sequence[str] = FOLDERS) -> list[Path]:
    """The files of the folders, ordered by a hash of their names."""
    folder = Path(os.environ["ADDML_DATA"])
    found = [file for name in folders for file in folder.glob(f"{name}/*.npz")]
    return sorted(found, key=lambda file: zlib.crc32(file.stem.encode()))


def rows_of(file: Path) -> np.ndarray:
    """The rows of a table, at most MOST_ROWS."""
    X: np.ndarray = np.load(file, allow_pickle=False)["X"].astype(np.float64)
    return X[np.sort(np.random.default_rng(0).permutation(len(X))[:MOST_ROWS])]


def small(most: int | None) -> list[np.ndarray]:
    """Tables of few rows and columns."""
    shapes = ((file, np.load(file, allow_pickle=False)["X"].shape) for file in files())
    return [rows_of(file) for file, (n, d) in shapes if n <= MOST_ROWS and d <= MOST_COLUMNS][:most]


def _fitted(X: np.ndarray, **settings: object) -> ADDML:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ADDML(random_state=0, device="cpu", **settings).fit(_table(X))


def _table(X: np.ndarray) -> pa.Table:
    return pa.table({f"c{index}": column for index, column in enumerate(X.T)})


def _reasons(model: Model, X: np.ndarray) -> Reasons:
    batch = _table(X).combine_chunks().to_batches()[0]
    return reasons_for(model, batch, features_of(model, batch, 0), REASONS)


def _named_first(model: Model, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Whether the first reason of each row names one of its given columns (n, k)."""
    found = [of_row[0].columns for of_row in _reasons(model, rows)]
    return np.array([any(f"c{one}" in names for one in own) for own, names in zip(columns, found, strict=True)])


def _ordinary(X: np.ndarray, model: Model, count: int, random: np.random.Generator) -> np.ndarray:
    """Copies of rows from the lower half of the scores."""
    scores = model.training.values
    return X[random.choice(np.flatnonzero(scores <= np.median(scores)), count)].copy()


# One value --------------------------------------------------------------------------------------------------


def judged(X: np.ndarray) -> Judged:
    """The results of one table."""
    detector, random = _fitted(X), np.random.default_rng(0)
    model, flagged = detector.model_, X[detector.anomaly_scores_ > detector.threshold_]
    carried = np.array([sum(reason.share for reason in of_row) for of_row in _reasons(model, flagged)])
    rows, columns = _ordinary(X, model, SINGLE, random), random.choice([int(name[1:]) for name in model.used], SINGLE)
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    moved = np.stack([low, high]) + np.stack([low - high, high - low])
    rows[np.arange(SINGLE), columns] = moved[random.integers(0, 2, SINGLE), columns]
    return Judged(X.shape[1], carried.clip(0, 1), _named_first(model, rows, columns[:, None]))


def single(most: int | None) -> str:
    """One line by number of columns, and one for all tables."""
    by_width: dict[tuple[int, int], list[Judged]] = defaultdict(list)
    for X in small(most):
        by_width[next(width for width in WIDTHS if X.shape[1] <= width[1])].append(judged(X))
    lines = [_line(f"{low} to {high}", by_width[low, high]) for low, high in WIDTHS if by_width[low, high]]
    lines.append(_line("all", [one for found in by_width.values() for one in found]))
    head = ["columns", "tables", "flagged rows", "median share of the score carried", "one moved value named first"]
    return markdown(head, lines)


def _line(name: str, found: list[Judged]) -> list[str]:
    carried, first = (np.concatenate([getattr(one, part) for one in found]) for part in ("carried", "first"))
    return [name, str(len(found)), str(len(carried)), f"{np.median(carried):.2f}", f"{first.mean():.1%}"]


# Four columns together --------------------------------------------------------------------------------------


def together(X: np.ndarray, random: np.random.Generator) -> np.ndarray | None:
    """Four random columns that all correlate with each other; None if there are none."""
    known = np.flatnonzero(_deviations(X) > 0)
    near = abs(_correlation(X[:, known])) > CORRELATED
    np.fill_diagonal(near, False)
    for first in random.permutation(len(known)):
        chosen, left = [int(first)], near[first].copy()
        while left.any() and len(chosen) < TOGETHER:
            chosen.append(int(random.choice(np.flatnonzero(left))))
            left &= near[chosen[-1]]
        if len(chosen) == TOGETHER:
            return known[chosen]
    return None


def _correlation(X: np.ndarray) -> np.ndarray:
    """The lower of the correlations of values and ranks, so that a single outlier does not make one."""
    ranks = X.argsort(axis=0, kind="stable").argsort(axis=0)
    both = [np.nan_to_num(np.corrcoef(np.nan_to_num(one).T)) for one in (X, ranks)]
    return np.where(abs(both[0]) < abs(both[1]), *both)


def _deviations(X: np.ndarray) -> np.ndarray:
    """Robust deviations of the columns, by their quartiles."""
    low, high = np.nanquantile(X, [0.25, 0.75], axis=0)
    return np.asarray((high - low) / 1.349)


def moved_together(X: np.ndarray, model: Model, count: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Ordinary rows with four correlated columns moved together in their usual directions, and these columns."""
    rows, columns = _ordinary(X, model, count, random), np.empty((count, TOGETHER), np.int64)
    deviations, correlation = _deviations(X), _correlation(X)
    for index in range(count):
        own = together(X, random)
        assert own is not None
        signs = np.where(correlation[own[0], own] < 0, -1, 1) * random.choice([-1, 1])
        rows[index, own] += DEVIATIONS * signs * deviations[own]
        columns[index] = own
    return rows, columns


def grouped() -> str:
    """How often the first reason names one of the columns that were moved together."""
    lines, every = [], []
    for file in files(("tables",)):
        X = rows_of(file)
        if len(lines) == GROUPED_TABLES or together(X, np.random.default_rng(0)) is None:
            continue
        model = _fitted(X).model_
        rows, columns = moved_together(X, model, GROUPED, np.random.default_rng(0))
        every.append(_named_first(model, rows, columns))
        lines.append([file.stem, str(X.shape[1]), str(GROUPED), f"{every[-1].mean():.1%}"])
    lines.append(["all", "", str(sum(map(len, every))), f"{np.concatenate(every).mean():.1%}"])
    return markdown(["table", "columns", "planted rows", "one of the four named first"], lines)


# Gross errors in a file that is both -------------------------------------------------------------------------


def gross(most: int | None) -> str:
    """How many planted gross errors `auto` flags, and how many other rows."""
    found = np.array([_gross(X) for X in small(most)])
    planted, flagged, others, rows = found.sum(axis=0)
    head = ["tables", "planted", "flagged by `auto`", "other rows", "of these flagged by `auto`", "tables over a tenth"]
    over = (found[:, 2] > 0.1 * found[:, 3]).sum()
    numbers = [len(found), int(planted), f"{flagged / planted:.1%}", f"{int(rows):,}", f"{others / rows:.2%}", over]
    return markdown(head, [list(map(str, numbers))])


def _gross(X: np.ndarray) -> list[float]:
    """Counts of planted rows, planted rows that `auto` flags, other rows that it flags, and other rows."""
    random, count = np.random.default_rng(0), min(GROSS, max(1, len(X) // 100))
    X, deviations = X.copy(), _deviations(X)
    columns, rows = np.flatnonzero(deviations > 0), random.permutation(len(X))[:count]
    if not len(columns):
        return [0, 0, 0, len(X)]
    chosen = random.choice(columns, count)
    X[rows, chosen] += random.choice([-1, 1], count) * random.uniform(30, 100, count) * deviations[chosen]
    flagged = _fitted(X, contamination="auto").predict(_table(X)) == -1
    planted = np.isin(np.arange(len(X)), rows)
    return [count, (flagged & planted).sum(), (flagged & ~planted).sum(), (~planted).sum()]


# Real tables ------------------------------------------------------------------------------------------------


def real() -> str:
    """How many flagged rows have a number far outside its column's usual range, and how often that column is named."""
    lines = []
    for file in sorted((Path(os.environ["ADDML_DATA"]) / "real").iterdir()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = run.detect(Options(file=str(file), contamination=0.1, reasons=REASONS), Progress())
        usual = {one.column: one for one in result.findings.usual if one.low is not None and one.low < (one.high or 0)}
        forms = {one.column: one.row_shape for one in result.model.profiles}
        flagged = [one for one in result.findings.ranked if one.is_anomaly]
        far = [
            [name for name in usual if not forms[name] and _is_far(one.values[name], usual[name])] for one in flagged
        ]
        named = [{part for reason in one.reasons for part in reason.column.split(", ")} for one in flagged]
        some = [bool(set(own) & names) for own, names in zip(far, named, strict=True) if own]
        carried = float(np.median([sum(reason.share for reason in one.reasons) for one in flagged]))
        lines.append(
            [file.name, str(len(flagged)), str(len(some)), f"{np.mean(some):.0%}" if some else "", f"{carried:.2f}"]
        )
    head = [
        "file",
        "listed flagged rows",
        "with a number far out",
        "of these named",
        "median share of the score carried",
    ]
    return markdown(head, lines)


def _is_far(value: object, usual: Usual) -> bool:
    """Whether a value lies more than six half ranges from the middle."""
    assert usual.low is not None
    assert usual.high is not None
    half = (usual.high - usual.low) / 2
    return isinstance(value, int | float) and abs(value - (usual.high + usual.low) / 2) > 6 * half


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables and write them to docs/results/reasons.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks reasons", description=__doc__)
    parser.add_argument("--tables", type=int, default=40, help="small tables for single values (default: 40)")
    parser.add_argument(
        "--only", choices=("single", "grouped", "gross", "real"), help="print one part and write nothing"
    )
    options = parser.parse_args(words)
    logging.getLogger("addml").setLevel(logging.ERROR)
    parts: dict[str, Callable[[], str]] = {
        "grouped": grouped,
        "single": lambda: single(options.tables),
        "gross": lambda: gross(options.tables),
        "real": real,
    }
    for name, part in parts.items():
        if options.only in (None, name):
            found = part()
            print(found, flush=True)
            if options.only is None:
                write_part(DOCS / "results" / "reasons.md", f"reasons-{name}", found)


if __name__ == "__main__":
    main()
