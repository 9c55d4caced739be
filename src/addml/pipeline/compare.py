"""The paper's comparison on a labelled table of the user's; and tasks of any kind, run in one process or several."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Protocol

import numpy as np

from addml.compute import resolve_device
from addml.errors import UserError
from addml.inputs.census import draw
from addml.pipeline import labels, protocol
from addml.pipeline.options import Options
from addml.pipeline.protocol import DEFAULT, SEEN, SETTINGS, UNSEEN, Case, LabelledTable, Machine, Row
from addml.pipeline.sources import choose, open_input
from addml.text import counted

METHODS = (DEFAULT, "IsolationForest", "PCC", "OCSVM", "HBOS", "KNN", "LOF")
BATCH_ROWS = 65_536
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


# Tasks -------------------------------------------------------------------------------------------------------


class Task(Protocol):
    """A unit of work that gives rows of results."""

    @property
    def title(self) -> str: ...
    def run(self, machine: Machine) -> list[Row]: ...


@dataclass(frozen=True)
class Ended:
    """A task that has ended: its seconds, or why it failed."""

    task: Task
    seconds: float
    failure: str | None = None


def machine_for(device: str, jobs: int) -> Machine:
    """The device, and one thread for each of several processes."""
    return Machine(resolve_device(device), 1 if jobs > 1 else None)


def run_tasks(tasks: Sequence[Task], machine: Machine, jobs: int) -> Iterator[tuple[Ended, list[Row]]]:
    """Each task as it ends, with its rows; a task that fails has none, and the others go on."""
    if jobs > 1 and len(tasks) > 1:
        return _in_processes(tasks, machine, jobs)
    return (run_task(task, machine) for task in tasks)


def run_task(task: Task, machine: Machine) -> tuple[Ended, list[Row]]:
    """The rows of one task, or the reason why there are none."""
    began = time.perf_counter()
    try:
        rows = task.run(machine)
    except (ValueError, ImportError, MemoryError, RuntimeError, ArithmeticError) as error:
        if os.environ.get("ADDML_DEBUG"):
            raise
        return Ended(task, time.perf_counter() - began, f"{type(error).__name__}: {error}"), []
    return Ended(task, time.perf_counter() - began), rows


def _in_processes(tasks: Sequence[Task], machine: Machine, jobs: int) -> Iterator[tuple[Ended, list[Row]]]:
    """The tasks in `jobs` processes of one thread each, which end as soon as this one is stopped."""
    with one_thread(), ProcessPoolExecutor(jobs, get_context("spawn"), _end_with_parent) as pool:
        futures = [pool.submit(run_task, task, machine) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            if not all(future.done() for future in futures):
                pool.shutdown(wait=False, cancel_futures=True)
                for process in active_children():
                    process.terminate()


def _end_with_parent() -> None:
    """End this process when its parent is killed: it would wait for tasks for ever."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes started inside multiply matrices on one thread each."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


# The user's table --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelled:
    """A user's table, notes on it, and the columns dropped from it."""

    data: LabelledTable
    notes: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]  # (column, why)


def read(options: Options, most: int, seed: int = 0) -> Labelled:
    """The table of a file with its label apart; rows without a label are dropped and counted."""
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
        notes.append(f"dropped, without a label: {counted(len(marks) - len(known), 'row')}")
    labelled = LabelledTable(data.source, table.select(list(chosen.features)).take(known), marks[known])
    protocol.check(labelled.y, f"{data.source}, label {label!r}{drawn}")
    return Labelled(labelled, tuple(notes), (*chosen.left_out, *_dropped(labelled, places[known])))


def _dropped(data: LabelledTable, places: np.ndarray) -> list[tuple[str, str]]:
    """The columns that no method can learn from, and why; an error names the row of the file."""
    from addml.inputs.table import CellError, Columns

    try:
        return Columns.fit(data.table).left_out
    except CellError as error:
        error.row = int(places[error.row - 1]) + 1
        raise UserError(f"{data.name}: {error}") from error


@dataclass(frozen=True)
class MethodTask:
    """One method on the user's table."""

    method: str
    data: LabelledTable

    @property
    def title(self) -> str:
        """The method."""
        return self.method

    def run(self, machine: Machine) -> list[Row]:
        """The results of the protocol, and the method's stability; dropped columns were reported before."""
        from addml.detector import DroppedColumnsWarning

        case = Case(self.method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedColumnsWarning)
            same = {"method": self.method, "stability": protocol.stability(case, self.data, machine)}
            return [{**same, **row} for row in protocol.run_case(case, self.data, machine)]


def compare(
    data: LabelledTable,
    methods: Iterable[str],
    machine: Machine,
    jobs: int,
    on_end: Callable[[Ended], None] = lambda ended: None,
) -> list[Row]:
    """The runs of every method that does not fail."""
    found = []
    for ended, rows in run_tasks([MethodTask(method, data) for method in methods], machine, jobs):
        on_end(ended)
        found += rows
    return found


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
    score_seconds: float | None  # none for training rows, which the fit itself scored
    stability: float  # how alike seeds rank held-out rows: the same in all settings


def summary(rows: Sequence[Row], by: str = UNSEEN) -> list[Result]:
    """Means of each method and setting; the best in the setting `by` first, equals by name."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = {(one, setting): _result(one, setting, rows) for one in methods for setting in SETTINGS}
    order = sorted(methods, key=lambda one: (-found[one, by].auc, one))
    return [found[one, setting] for one in order for setting in SETTINGS]


def _result(method: str, setting: str, rows: Sequence[Row]) -> Result:
    own = [row for row in rows if (row["method"], row["setting"]) == (method, setting)]
    auc, ap = (np.array([row[name] for row in own]) for name in ("auc", "ap"))
    return Result(
        method=method,
        setting=setting,
        auc=float(auc.mean()),
        auc_spread=float(auc.std(ddof=1)),
        ap=float(ap.mean()),
        ap_spread=float(ap.std(ddof=1)),
        fit_seconds=float(np.mean([row["fit_seconds"] for row in own])),
        score_seconds=None if setting == SEEN else float(np.mean([row["score_seconds"] for row in own])),
        stability=own[0]["stability"],
    )
