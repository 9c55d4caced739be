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
from addml.pipeline.labels import KnownRows
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


def scoring_device(options: Options, model: Model) -> tuple[str, int]:
    """The device to score on and the number of threads; a table is scored on the CPU unless a device is named."""
    device = "cpu" if options.device == "auto" and model.kind == TABLE else resolve_device(options.device)
    return device, max_threads(options.jobs) if device == "cpu" else 1


def score_all(
    model: Model,
    options: Options,
    batches: Iterable[pa.RecordBatch],
    carried: Sequence[str],
    known: KnownRows,
    advance: Advance,
    folder: str | None = None,
) -> tuple[Scored, DriftCounter]:
    """Score every batch on threads and count drift; `known` rows are not listed, `folder` takes rows beyond memory."""
    device, threads = scoring_device(options, model)
    drift, scored = drift_of(model), Scored(max(LISTED, options.top, options.flag or 0), folder)
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


def score_batch(model: Model, options: Options, device: str, carried: list[str], known: KnownRows, item: Batch) -> Part:
    """Score a batch and explain its flagged and top rows."""
    (start, batch), drift, top = item, drift_of(model), max(options.top, options.flag or 0)
    features = features_of(model, batch, start, drift)
    scores, codes = scores_of(model, batch, features, device), known.codes(batch, model.columns)
    unknown = np.where(codes < 0, scores, -np.inf)
    explained = highest(unknown, max(int((unknown > model.threshold).sum()), top))
    explained = explained[codes[explained] < 0]
    why = reasons_for(model, batch.take(explained), features[explained], options.reasons)
    first = explained[: max(LISTED, top)]
    rows = zip(first.tolist(), batch.take(first).to_pylist(), why, strict=False)
    listed = [Candidate(start + row, float(scores[row]), values, reasons) for row, values, reasons in rows]
    piece = piece_of(scores, batch.select(carried), explained, reason_texts(why), codes)
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
        distinct, inverse = np.unique(codes, return_inverse=True)
        within = [groups.profiles(model.profiles, code) for code in distinct.tolist()], inverse
    context = (_baseline(model), columns_of(model), model.profiles, *_raw_values(model, batch))
    return reasons(model, features, *context, within=within, groups=codes, most=most)


def _baseline(model: Model) -> np.ndarray:
    """The row of typical values if it is an ordinary row, else the model's baseline."""
    if views_of(model) is not None or model.columns is None:  # views need no baseline
        return model.baseline
    typical = np.asarray(model.features.transform(model.columns.typical[None])[0])
    is_ordinary = model.scores(typical[None], "cpu", 1)[0] <= np.median(model.training.values)
    return typical if is_ordinary else model.baseline


def _raw_values(model: Model, batch: pa.RecordBatch) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """The values of the columns used, read as in training, and the text cells in numeric columns (else null)."""
    assert model.columns is not None
    values, texts = {}, {}
    columns = [np.concatenate(blocks) for blocks in zip(*model.columns.read(batch), strict=True)]
    for name, column in zip(model.used, columns, strict=True):
        kind = model.columns.kinds[name]
        values[name] = _readable(column, kind, batch[name])
        if kind == "number" and column.dtype.kind == "f" and np.isinf(column).any():
            texts[name] = pc.if_else(pa.array(np.isinf(column)), as_text(batch[name]), None)
    return values, texts


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
    """Yield each task with its rows as it finishes; a failed task has none. Processes end together with this one."""
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
    """Limit linear algebra to one thread in processes that start within this context."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
