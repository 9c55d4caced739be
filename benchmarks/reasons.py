"""`python -m benchmarks.reasons --tables 40`: how much of a score the printed reasons carry, and whose view counted.

Fits the default to all rows of the tables of at most 20 columns under ADDML_DATA, and explains the rows that it flags.
Then one value of ordinary rows is moved as far beyond the ends of its column as these are apart: is it named first?
"""

from __future__ import annotations

import argparse
import logging
import os
import warnings
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from addml import ADDML
from addml.explain import Reasons
from addml.explain.contributions import explained, views_of
from addml.pipeline.fitted import Fitted
from benchmarks.timing import markdown

FOLDERS = ("many", "adbench-dev", "tables")
MOST_COLUMNS, MOST_ROWS = 20, 20_000
REASONS = 3  # as the commands print
PLANTED = 20  # rows of a table
WIDTHS = ((1, 5), (6, 10), (11, 15), (16, 20))  # columns


class Judged(NamedTuple):
    """Of one table: its columns, shares carried in flagged rows, views that won, and whether planted ones led."""

    columns: int
    carried: np.ndarray
    views: Counter[str]
    first: np.ndarray


def tables(most: int | None) -> list[Path]:
    """The files of small tables, in an order that their names give, at most so many."""
    folder = Path(os.environ["ADDML_DATA"])
    files = sorted((file for name in FOLDERS for file in folder.glob(f"{name}/*.npz")), key=_drawn)
    return [file for file in files if _is_small(np.load(file, allow_pickle=False)["X"].shape)][:most]


def _drawn(file: Path) -> int:
    return zlib.crc32(file.stem.encode())


def _is_small(shape: tuple[int, ...]) -> bool:
    return shape[0] <= MOST_ROWS and shape[1] <= MOST_COLUMNS


def judged(X: np.ndarray) -> Judged:
    """What reasons say of the rows of a table."""
    detector = ADDML(random_state=0, device="cpu").fit(_table(X))
    fitted = Fitted.of(detector, _table(X))
    flagged = X[detector.anomaly_scores_ > detector.threshold_]
    carried = np.array([sum(reason.share for reason in of_row) for of_row in _reasons(fitted, flagged)])
    rows, columns = _planted(X, fitted, np.random.default_rng(0))
    named = [of_row[0].columns for of_row in _reasons(fitted, rows)]
    first = np.array([f"c{column}" in names for column, names in zip(columns, named, strict=True)])
    return Judged(X.shape[1], carried.clip(0, 1), _views(detector, flagged), first)


def _table(X: np.ndarray) -> pa.Table:
    return pa.table({f"c{place}": column for place, column in enumerate(X.T)})


def _reasons(fitted: Fitted, X: np.ndarray) -> Reasons:
    batch = _table(X).combine_chunks().to_batches()[0]
    return fitted.reasons(batch, fitted.features(batch, 0, None), REASONS)


def _views(detector: ADDML, X: np.ndarray) -> Counter[str]:
    """The views that found rows strangest."""
    model, views = detector.model_, views_of(detector.model_)
    assert views is not None
    rows = model.prepare(_table(X))
    return Counter(views.views[view] for view in explained(model, rows, range(rows.shape[1])).view)


def _planted(X: np.ndarray, fitted: Fitted, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the lower half with one value far out, and the columns of these values."""
    scores, used = fitted.training.values, [int(name[1:]) for name in fitted.used]
    rows = X[random.choice(np.flatnonzero(scores <= np.median(scores)), PLANTED)].copy()
    columns = random.choice(used, PLANTED)
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    ends, out = np.stack([low, high]), np.stack([low - high, high - low])
    side = random.integers(0, 2, PLANTED)
    rows[np.arange(PLANTED), columns] = (ends + out)[side, columns]
    return rows, columns


def _line(name: str, found: list[Judged]) -> list[str]:
    carried, first = (np.concatenate([getattr(one, part) for one in found]) for part in ("carried", "first"))
    views: Counter[str] = sum((one.views for one in found), Counter())
    won = ", ".join(f"{view} {count / max(1, views.total()):.0%}" for view, count in views.most_common())
    return [name, str(len(found)), str(len(carried)), f"{np.median(carried):.2f}", won, f"{first.mean():.1%}"]


def main() -> None:
    """Print one line by number of columns, and one for all tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reasons", description=__doc__)
    parser.add_argument("--tables", type=int, help="how many, all if not said")
    files = tables(parser.parse_args().tables)
    by_width: dict[tuple[int, int], list[Judged]] = defaultdict(list)
    logging.getLogger("addml").setLevel(logging.ERROR)
    for file in files:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = judged(np.load(file, allow_pickle=False)["X"].astype(np.float64))
        by_width[next(width for width in WIDTHS if one.columns <= width[1])].append(one)
    lines = [_line(f"{low} to {high}", by_width[low, high]) for low, high in WIDTHS if by_width[low, high]]
    lines.append(_line("all", [one for found in by_width.values() for one in found]))
    header = ["columns", "tables", "flagged rows", "median share carried", "winning view", "planted value named first"]
    print(markdown(header, lines))


if __name__ == "__main__":
    main()
