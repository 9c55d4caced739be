"""Scoring in batches, on threads, and the tasks of `addml compare` in processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import as_text
from addml.compute import blas_threads, max_threads, on_threads, resolve_device
from addml.errors import rows_before
from addml.explain import Reasons, columns_of, reason_texts, reasons
from addml.explain.contributions import views_of
from addml.inputs import MemoryRows
from addml.inputs.table import TableVectorizer
from addml.model import Model
from addml.pipeline.labels import Known
from addml.pipeline.options import Options
from addml.pipeline.ranking import LISTED, Candidate, Part, Scored, highest, piece_of
from addml.pipeline.sources import check_text
from addml.preprocessing.profile import DriftCounter, moments
from addml.progress import Advance
from addml.text import TABLE

BATCH_ROWS = 32768
THREADS = 4  # more would wait for the interpreter lock
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Batch = tuple[int, pa.RecordBatch]  # index of the first row, rows


def scoring_place(options: Options, model: Model) -> tuple[str, int]:
    """The device to score on and the number of threads; a table is scored on the CPU unless a device is named."""
    device = "cpu" if options.device == "auto" and model.kind == TABLE else resolve_device(options.device)
    return device, max_threads(options.jobs) if device == "cpu" else 1


def score_all(
    model: Model,
    options: Options,
    batches: Iterable[pa.RecordBatch],
    carried: Sequence[str],
    known: Known,
    advance: Advance,
    folder: str | None = None,
) -> tuple[Scored, DriftCounter]:
    """Score every batch on threads and count drift; `known` rows are not listed.

    `folder`: for scored rows that do not fit into memory.
    """
    (device, threads), drift = scoring_place(options, model), drift_of(model)
    scored = Scored(max(LISTED, _top(options)), folder)
    work = partial(score_batch, model, options, device, list(carried), known)
    with blas_threads(1):
        for part in on_threads(work, with_starts(batches), min(threads, THREADS)):
            scored.add(part)
            if part.drift is not None:
                drift.add(part.drift)
            check_text(options, drift.texts)
            advance(part.piece.num_rows)
    return scored, drift


def with_starts(batches: Iterable[pa.RecordBatch]) -> Iterator[Batch]:
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _top(options: Options) -> int:
    return max(options.top, options.flag or 0)


def score_batch(model: Model, options: Options, device: str, carried: list[str], known: Known, item: Batch) -> Part:
    """Score a batch and explain its flagged and top rows."""
    (start, batch), top, drift = item, _top(options), drift_of(model)
    features = features_of(model, batch, start, drift)
    scores, codes = scores_of(model, batch, features, device), known.codes(batch, model.columns)
    shown = np.where(codes < 0, scores, -np.inf)
    chosen = highest(shown, max(int((shown > model.threshold).sum()), top))
    chosen = chosen[codes[chosen] < 0]
    found = reasons_for(model, batch.take(chosen), features[chosen], options.reasons)
    first = chosen[: max(LISTED, top)]
    values = batch.take(first).to_pylist()
    listed = [
        Candidate(start + int(place), float(scores[place]), values[at], found[at]) for at, place in enumerate(first)
    ]
    piece = piece_of(scores, batch.select(carried), chosen, reason_texts(found), codes)
    return Part(piece, listed, drift)


def drift_of(model: Model) -> DriftCounter:
    assert model.columns is not None
    return DriftCounter(model.columns)


def features_of(model: Model, batch: pa.RecordBatch, start: int, drift: DriftCounter | None = None) -> np.ndarray:
    """The encoder's features of a batch, (n, d'); `start` is the index of its first row, for errors."""
    vectorizer: TableVectorizer = model.vectorizer  # type: ignore[assignment]
    with rows_before(start):
        return vectorizer.prepare(batch, drift)


def scores_of(model: Model, batch: pa.RecordBatch, features: np.ndarray, device: str) -> np.ndarray:
    return model.scores(MemoryRows(features, model.vectorizer.groups_of(batch)), device, 1)


def reasons_for(model: Model, batch: pa.RecordBatch, features: np.ndarray, most: int) -> Reasons:
    """At most `most` reasons for each row of a batch with these features."""
    if not most or not batch.num_rows:
        return [()] * batch.num_rows
    groups, codes, within = model.vectorizer.groups, model.vectorizer.groups_of(batch), None
    if groups is not None and codes is not None:
        found, which = np.unique(codes, return_inverse=True)
        within = [groups.profiles(model.profiles, code) for code in found.tolist()], which
    known = (_baseline(model), columns_of(model), model.profiles, *_raw_values(model, batch))
    return reasons(model, features, *known, within=within, groups=codes, most=most)


def _baseline(model: Model) -> np.ndarray:
    """The row of typical values if it is an ordinary row, else the model's baseline."""
    if views_of(model) is not None or model.columns is None:  # views need no baseline
        return model.baseline
    usual = np.asarray(model.features.transform(model.columns.typical[None])[0])
    is_ordinary = model.scores(usual[None], "cpu", 1)[0] <= np.median(model.training.values)
    return usual if is_ordinary else model.baseline


def _raw_values(model: Model, batch: pa.RecordBatch) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """The values of the columns used, read as in training, and the text cells in numeric columns (else null)."""
    assert model.columns is not None
    parts = [np.concatenate(blocks) for blocks in zip(*model.columns.read(batch), strict=True)]
    kinds, found = model.columns.kinds, dict(zip(model.used, parts, strict=True))
    values = {name: _readable(part, kinds[name], batch[name]) for name, part in found.items()}
    texts = {name: np.isinf(part) for name, part in found.items() if kinds[name] == "number" and part.dtype.kind == "f"}
    return values, {
        name: pc.if_else(pa.array(own), as_text(batch[name]), None) for name, own in texts.items() if own.any()
    }


def _readable(values: np.ndarray, kind: str, column: pa.Array) -> Any:
    if kind == "number":
        return np.where(np.isinf(values), np.nan, values)
    if kind == "date":
        return moments(values)
    if kind == "category":
        return as_text(column)
    return pa.array(["false", "true"]).take(pa.array(np.nan_to_num(values).astype(np.int8), mask=values != values))


class Ended(NamedTuple):
    task: Any  # with a title and run(machine) -> rows of results
    seconds: float
    failure: str | None = None


def run_tasks(tasks: Sequence[Any], machine: Any, jobs: int) -> Iterator[tuple[Ended, list[dict[str, Any]]]]:
    """Yield each task with its rows as it finishes; a failed task has no rows and does not stop the others.

    Several jobs are single-threaded processes, which end as soon as this one is stopped.
    """
    if jobs == 1 or len(tasks) == 1:
        yield from (run_task(task, machine) for task in tasks)
        return
    with one_thread(), ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent) as pool:
        futures = [pool.submit(run_task, task, machine) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            if not all(future.done() for future in futures):
                pool.shutdown(wait=False, cancel_futures=True)
                for process in active_children():
                    process.terminate()


def run_task(task: Any, machine: Any) -> tuple[Ended, list[dict[str, Any]]]:
    began = time.perf_counter()
    try:
        rows = task.run(machine)
    except (ValueError, ImportError, MemoryError, RuntimeError, ArithmeticError) as error:
        if os.environ.get("ADDML_DEBUG"):
            raise
        return Ended(task, time.perf_counter() - began, f"{type(error).__name__}: {error}"), []
    return Ended(task, time.perf_counter() - began), rows


def end_with_parent() -> None:
    """Exit when the parent is killed, instead of waiting for work forever."""

    def wait() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread in processes started inside."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
