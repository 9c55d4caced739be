"""Rows through a model batch by batch, on threads or in processes, and tasks of a comparison in processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.queues import Queue
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.arrow import as_text
from addml.compute import AHEAD, Result, blas_threads, in_order, max_threads, on_threads, resolve_device
from addml.errors import AddmlError, rows_before
from addml.explain import Reasons, columns_of, reason_texts, reasons
from addml.explain.contributions import views_of
from addml.inputs import MemoryRows
from addml.inputs.table import TableVectorizer
from addml.model import Model
from addml.pipeline.labels import Known
from addml.pipeline.options import Options
from addml.pipeline.ranking import LISTED, Candidate, Part, Pieces, Scored, highest, piece_of
from addml.pipeline.sources import check_text
from addml.preprocessing.profile import DriftCounter, moments
from addml.progress import Advance

BATCH_ROWS = 32768
THREADS = 4  # at most that share the interpreter's lock
WORTH_PROCESSES = 250_000  # rows, in which processes win what their start takes
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Batch = tuple[int, pa.RecordBatch]  # how many rows came before, and some rows


# All rows ---------------------------------------------------------------------------------------------------


def scoring_place(options: Options, model: Model) -> tuple[str, int]:
    """The device that scores, and how many batches at once: a table, unless a device is named, where it is read."""
    device = "cpu" if options.device == "auto" and model.form is None else resolve_device(options.device)
    return device, max_threads(options.jobs) if device == "cpu" else 1


def score_all(
    model: Model,
    options: Options,
    batches: Iterable[pa.RecordBatch],
    carried: Sequence[str],
    known: Known,
    advance: Advance,
    rows: int | None,
    folder: str | None = None,
) -> tuple[Scored, DriftCounter]:
    """Score every batch, several at a time, holding a few; and count how they differ from training.

    `rows` is about how many there are, where that is known; `folder` is for what memory should not hold; rows that are
    `known` are not listed.
    """
    (device, threads), top, drift = scoring_place(options, model), max(options.top, options.flag or 0), drift_of(model)
    scored = Scored(max(LISTED, top), Pieces(folder))
    work = partial(score_batch, model, device, list(carried), known, top, options.reasons, scored.most_listed)
    items = with_starts(batches)
    parts = on_threads(work, items, min(threads, THREADS))
    if threads > 1 and model.scorer.max_threads <= THREADS and (rows or 0) >= WORTH_PROCESSES:  # threads would wait
        with suppress(OSError):  # a system without room for processes
            parts = in_processes(work, items, threads)
    with blas_threads(1):
        for part in parts:
            scored.add(part)
            if part.counts is not None:
                drift.add(part.counts)
            check_text(options, drift.texts)
            advance(part.piece.num_rows)
    return scored, drift


def with_starts(batches: Iterable[pa.RecordBatch]) -> Iterator[Batch]:
    """The batches, each with how many rows came before it."""
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def score_batch(
    model: Model,
    device: str,
    carried: list[str],
    known: Known,
    top: int,
    most_reasons: int,
    most_listed: int,
    item: Batch,
) -> Part:
    """Score a batch that so many rows came before, and explain the rows that stand out."""
    start, batch = item
    drift = drift_of(model)
    features = features_of(model, batch, start, drift)
    scores, codes = scores_of(model, batch, features, device), known.codes(batch, model.columns)
    shown = np.where(codes < 0, scores, -np.inf)
    chosen = highest(shown, max(int((shown > model.threshold).sum()), top))
    chosen = chosen[codes[chosen] < 0]
    found = reasons_for(model, batch.take(chosen), features[chosen], most_reasons)
    first = chosen[:most_listed]
    values = batch.take(first).to_pylist()
    listed = [
        Candidate(start + int(place), float(scores[place]), values[at], found[at]) for at, place in enumerate(first)
    ]
    piece = piece_of(scores, batch.select(carried), chosen, reason_texts(found), codes)
    return Part(piece, listed, drift.counts)


# Rows of a batch --------------------------------------------------------------------------------------------


def drift_of(model: Model) -> DriftCounter:
    """A count of what is scored, against training."""
    assert model.columns is not None
    return DriftCounter(model.columns)


def features_of(model: Model, batch: pa.RecordBatch, start: int, drift: DriftCounter | None = None) -> np.ndarray:
    """The rows of a batch as the encoder takes them (n, d'); `start` rows came before them."""
    vectorizer: TableVectorizer = model.vectorizer  # type: ignore[assignment]
    with rows_before(start):
        return vectorizer.prepare(batch, drift)


def scores_of(model: Model, batch: pa.RecordBatch, features: np.ndarray, device: str) -> np.ndarray:
    """The scores of a batch, which has these features, within the groups of its rows."""
    return model.scores(MemoryRows(features, model.vectorizer.groups_of(batch)), device, 1)


def reasons_for(model: Model, batch: pa.RecordBatch, features: np.ndarray, most: int) -> Reasons:
    """Why each row of a batch, which has these features, is unusual; at most so many reasons."""
    if not most or not batch.num_rows:
        return [()] * batch.num_rows
    groups, codes, within = model.vectorizer.groups, model.vectorizer.groups_of(batch), None
    if groups is not None and codes is not None:
        found, which = np.unique(codes, return_inverse=True)
        within = [groups.profiles(model.profiles, code) for code in found.tolist()], which
    known = (_baseline(model), columns_of(model), model.profiles, *_raw_values(model, batch))
    return reasons(model, features, *known, within=within, groups=codes, most=most)


def _baseline(model: Model) -> np.ndarray:
    """The usual value in every column; where no row is like that, the row that `explain` counts from."""
    if views_of(model) is not None or model.columns is None:  # which count from nothing
        return model.baseline
    usual = np.asarray(model.features.transform(model.columns.typical[None])[0])
    is_ordinary = model.scores(usual[None], "cpu", 1)[0] <= np.median(model.training.values)
    return usual if is_ordinary else model.baseline


def _raw_values(model: Model, batch: pa.RecordBatch) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """The values of the columns used, read as in training, and the texts in columns of numbers, null elsewhere."""
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


# Batches in processes, where threads would wait in line ----------------------------------------------------------

_work: Callable[[Batch], Any]  # of a process, which does one thing alone


def in_processes(work: Callable[[Batch], Result], batches: Iterable[Batch], processes: int) -> Iterator[Result]:
    """The results in the order of the batches, from processes each of which is sent the work once, and then batches.

    Raises OSError where the system has no locks for several processes.
    """
    context = get_context("spawn")
    sent = context.Queue()  # a process that ends while it starts leaves what it should have been given in here
    sent.cancel_join_thread()
    pool = ProcessPoolExecutor(processes, context, _begin, (sent,))
    for _ in range(processes):
        sent.put(work)
    return _from_processes(pool, batches, processes)


def _from_processes(pool: ProcessPoolExecutor, batches: Iterable[Batch], processes: int) -> Iterator[Any]:
    with pool:
        try:
            sent = (pool.submit(_do, start, _packed(batch)) for start, batch in batches)
            yield from in_order(sent, AHEAD * processes)
        except BrokenProcessPool:
            raise AddmlError(
                f"one of {processes} processes was ended from outside, as happens where memory runs out; "
                "give --jobs 1 for one process, which takes the least memory."
            ) from None


def _begin(sent: Queue[Callable[[Batch], Any]]) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that waits for this one
    end_with_parent()
    _work = sent.get()
    pa.set_cpu_count(1)


def end_with_parent() -> None:
    """End this process when its parent is killed: it would wait for work for ever."""

    def wait() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _do(start: int, packed: pa.Buffer) -> Any:
    with blas_threads(1):
        return _work((start, pa.ipc.open_stream(packed).read_next_batch()))


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch in Arrow's own format: a slice of a table takes no more of it along."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


# Tasks of a comparison -------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """A task that has ended: its seconds, or why it failed."""

    task: Any  # has a title and run(machine), which gives rows of results
    seconds: float
    failure: str | None = None


def run_tasks(tasks: Sequence[Any], machine: Any, jobs: int) -> Iterator[tuple[Ended, list[dict[str, Any]]]]:
    """Each task as it ends, with its rows; a task that fails has none, and the others go on.

    Several jobs are processes of one thread each, which end as soon as this one is stopped.
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
