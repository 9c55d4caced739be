"""What the C library does with memory that was given back."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

from addml.compute import AHEAD, Item, Result, blas_threads, in_order
from addml.errors import AddmlError

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    import pyarrow as pa

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's names of these settings, from malloc.h
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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = sent.get()
    import pyarrow as pa

    pa.set_cpu_count(1)
    keep_freed_memory()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(start: int, packed: pa.Buffer) -> Any:
    with blas_threads(1):
        return _work((start, _unpacked(packed)))


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch in Arrow's own format: a slice of a table takes no more of it along."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _unpacked(packed: pa.Buffer) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.ipc.open_stream(packed).read_next_batch()
