"""Tasks to rows: in this process or in several, each finished one stored at once, failures told at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import active_children, get_context, parent_process
from threading import Thread

from addml.compute import resolve_device
from addml.experiments.fitting import Machine
from addml.experiments.plans import Task
from addml.experiments.runs import Row

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Ended:
    """A task that is over: its seconds, or why it failed."""

    task: Task
    seconds: float
    failure: str | None = None


def results(tasks: Sequence[Task], machine: Machine, jobs: int) -> Iterator[tuple[Ended, list[Row]]]:
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
    rows_in, columns = task.size()
    same = {**task.row(), "rows": rows_in, "columns": columns, "device": machine.device, "when": now()}
    return Ended(task, time.perf_counter() - began), [{**same, **row} for row in rows]


def machine_for(device: str, jobs: int) -> Machine:
    """The device by its own name, and one thread for each of several processes."""
    return Machine(resolve_device(device), 1 if jobs > 1 else None)


def now() -> str:
    """The time to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _in_processes(tasks: Sequence[Task], machine: Machine, jobs: int) -> Iterator[tuple[Ended, list[Row]]]:
    """The tasks in `jobs` processes of one thread each, which end at once where this one is stopped."""
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


def end_with_parent() -> None:
    """Let this process end where the one that began it was killed: it would wait for tasks for ever."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes begun inside multiply matrices on one thread each."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
