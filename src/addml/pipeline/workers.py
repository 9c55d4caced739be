"""Work in several processes: batches of rows to score, and tasks of a comparison."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from typing import TYPE_CHECKING, Any, Protocol

from addml.compute import AHEAD, Item, Result, blas_threads, in_order
from addml.errors import AddmlError

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    import pyarrow as pa

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's names of these settings, from malloc.h
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
KEPT, LARGEST = 1 << 28, 1 << 25  # bytes: of free memory that are kept, of an array that is cut from it


def keep_freed_memory() -> None:
    """Let arrays of a few megabytes, which every batch needs again, lie where those of the last batch lay.

    By default glibc gives them back to the system, which clears every page before it lends it again: a tenth of the
    time that scoring takes. Arrow's own allocator does so too, and is passed over. Other C libraries are left as they
    are.
    """
    if platform.libc_ver()[0] == "glibc":
        import pyarrow as pa

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, KEPT)
        pa.set_memory_pool(pa.system_memory_pool())


# Batches worked on in processes, the results in order, where threads would wait in line.


Batch = tuple[int, "pa.RecordBatch"]  # how many rows came before, and some rows

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
            sent = (pool.submit(_do, start, _packed(batch)) for start, batch in _read_ahead(batches))
            yield from in_order(sent, AHEAD * processes)
        except BrokenProcessPool:
            raise AddmlError(
                f"one of {processes} processes was ended from outside, as happens where memory runs out; "
                "give --jobs 1 for one process, which takes the least memory."
            ) from None


def _read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The items, the next of which is read while one is in use: with many processes, reading sets the pace."""
    coming = iter(items)
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(list, islice(coming, 1))
        while item := following.result():
            following = reader.submit(list, islice(coming, 1))
            yield item[0]


# In a process ---------------------------------------------------------------------------------------------------


def _begin(sent: Queue[Callable[[Batch], Any]]) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that waits for this one
    end_with_parent()
    _work = sent.get()
    import pyarrow as pa

    pa.set_cpu_count(1)
    keep_freed_memory()


def end_with_parent() -> None:
    """End this process when its parent is killed: it would wait for work for ever."""

    def wait() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _do(start: int, packed: pa.Buffer) -> Any:
    import pyarrow as pa

    with blas_threads(1):
        return _work((start, pa.ipc.open_stream(packed).read_next_batch()))


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch in Arrow's own format: a slice of a table takes no more of it along."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


# Tasks of any kind -------------------------------------------------------------------------------------------


class Task(Protocol):
    @property
    def title(self) -> str: ...
    def run(self, machine: Any) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Ended:
    """A task that has ended: its seconds, or why it failed."""

    task: Task
    seconds: float
    failure: str | None = None


def run_tasks(tasks: Sequence[Task], machine: Any, jobs: int) -> Iterator[tuple[Ended, list[dict[str, Any]]]]:
    """Each task as it ends, with its rows; a task that fails has none, and the others go on."""
    if jobs > 1 and len(tasks) > 1:
        return _tasks_in_processes(tasks, machine, jobs)
    return (run_task(task, machine) for task in tasks)


def run_task(task: Task, machine: Any) -> tuple[Ended, list[dict[str, Any]]]:
    began = time.perf_counter()
    try:
        rows = task.run(machine)
    except (ValueError, ImportError, MemoryError, RuntimeError, ArithmeticError) as error:
        if os.environ.get("ADDML_DEBUG"):
            raise
        return Ended(task, time.perf_counter() - began, f"{type(error).__name__}: {error}"), []
    return Ended(task, time.perf_counter() - began), rows


def _tasks_in_processes(tasks: Sequence[Task], machine: Any, jobs: int) -> Iterator[tuple[Ended, list[dict[str, Any]]]]:
    """The tasks in `jobs` processes of one thread each, which end as soon as this one is stopped."""
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
