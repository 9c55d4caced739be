"""Which device does the work, and with how many threads."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

# Under this many operations in one call a second thread costs more (waking, waiting on a shared core) than it gains.
OPERATIONS_WORTH_A_THREAD = 1e9
AHEAD = 2  # items for each worker that wait for it: files are read on while others hold the interpreter's lock

Item = TypeVar("Item")
Result = TypeVar("Result")


def resolve_device(device: str) -> str:
    """The device that `device` names; "auto" takes CUDA, then MPS, then the CPU."""
    if device == "auto":
        return _best_device()
    if not isinstance(device, str) or not re.fullmatch(r"cpu|mps|cuda(:\d+)?", device):
        raise ValueError(f"device={device!r} is not a device; use 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'")
    if device != "cpu" and importlib.util.find_spec("torch") is None:
        raise ImportError(f"device={device!r} needs torch: pip install 'addml[gpu]', or use device='cpu'")
    if device != "cpu" and not _available(device):
        raise ValueError(f"device={device!r} is not available here; use device='auto' or device='cpu'")
    return device


@lru_cache(maxsize=1)
def _best_device() -> str:
    """The device that "auto" means; torch is imported, which takes over a second, only where there may be one."""
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    has_cuda = os.path.exists("/dev/nvidiactl") or ctypes.util.find_library("cuda") is not None or os.name == "nt"
    has_mps = platform.system() == "Darwin" and platform.machine() == "arm64"
    looks_present = {"cuda": has_cuda, "mps": has_mps}
    return next((name for name, looks in looks_present.items() if looks and _available(name)), "cpu")


def _available(device: str) -> bool:
    import torch

    if device == "mps":
        return torch.backends.mps.is_available()
    index = int(device.split(":")[1]) if ":" in device else 0
    return torch.cuda.is_available() and index < torch.cuda.device_count()


def on_device(values: np.ndarray, device: str) -> Any:
    """The array on the CPU, a torch tensor elsewhere; each row in one piece, as rows are taken one by one."""
    values = np.ascontiguousarray(values)
    if device == "cpu":
        return values
    import torch

    return torch.from_numpy(values).to(device)


def max_threads(n_jobs: int | None) -> int:
    """How many threads may be used: all cores for -1, else as said (scikit-learn's convention).

    For None all cores too, or as many as OMP_NUM_THREADS allows, which is how a machine's other work is spared.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise ValueError(f"n_jobs={n_jobs!r} must be None or -1 (all cores), or a whole number other than 0")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        return min(cores, int(said)) if said.isdecimal() and int(said) else cores
    return max(1, n_jobs if n_jobs > 0 else cores + 1 + n_jobs)


def reuse_memory_of_steps() -> None:
    """Let the arrays of one step lie where those of the step before lay, without a change to the settings of glibc.

    glibc hands the memory of a freed array of more than 128 kB back to the system, and a new one costs more in page
    faults than small products take. Once a block of up to 32 MB has been freed it keeps blocks of that size instead.
    """
    np.empty(31 * 2**20, np.uint8)


class BlasThreads:
    """On how many threads matrix products run.

    Where a library has one setting for the whole process, as the OpenBLAS of NumPy's wheels, Python threads agree on
    it: the fewest that any of them asked for hold until it leaves, and what was found at first when the last one does.
    Where each Python thread has a setting of its own, it is set for the one that asks.
    """

    def __init__(self) -> None:
        self._lock, self._asked = threading.Lock(), list[int]()
        self._before: list[tuple[Any, int]] = []  # each shared library with its setting

    @contextmanager
    def __call__(self, count: int) -> Iterator[None]:
        """At most so many threads inside."""
        own = [(library, library.num_threads) for library in _blas_libraries(shared=False)]
        self._change(self._asked.append, count)
        for library, _ in own:
            library.set_num_threads(count)
        try:
            yield
        finally:
            for library, before in own:
                library.set_num_threads(before)
            self._change(self._asked.remove, count)

    @property
    def allowed(self) -> int:
        """How many threads products may use where this is asked: one, unless somebody asked for more."""
        return min(self._asked, default=1)

    def _change(self, how: Callable[[int], None], count: int) -> None:
        with self._lock:
            if not self._asked:
                self._before = [(library, library.num_threads) for library in _blas_libraries(shared=True)]
            fewest = min(self._asked, default=0)
            how(count)
            for library, before in self._before:
                now = min(self._asked, default=before)
                if now != (fewest or before):  # setting it takes longer than a small product
                    release = getattr(library, "clear_controlling_thread", lambda force: None)
                    release(force=True)  # threadpoolctl 3.8 otherwise listens to the first Python thread alone
                    library.set_num_threads(now)
                    release(force=True)


@lru_cache(maxsize=2)
def _blas_libraries(shared: bool) -> list[Any]:
    """The libraries of matrix products with one setting for the process, or one for each thread."""
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in libraries if (getattr(library, "threading_layer", "") == "pthreads") == shared]


blas_threads = BlasThreads()


def in_threads(work: Callable[[int], None], parts: int, threads: int) -> None:
    """Call work(0) ... work(parts - 1), each with single-threaded products, on so many Python threads."""
    with blas_threads(1):
        if threads == 1 or parts == 1:
            for part in range(parts):
                work(part)
            return
        with ThreadPoolExecutor(threads) as pool:  # each thread asks too, in case it has a setting of its own
            try:
                for done in [pool.submit(blas_threads(1)(work), part) for part in range(parts)]:
                    done.result()
            except BaseException:  # an interrupt too: what has not begun is left undone
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def on_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """The results in the order of the items, a few of which are worked on at the same time."""
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from in_order((pool.submit(work, item) for item in items), AHEAD * threads)


def in_order(begun: Iterable[Future[Result]], ahead: int) -> Iterator[Result]:
    """The results of what is begun, so much of it ahead of the result that is waited for."""
    waiting: deque[Future[Result]] = deque()
    try:
        for one in begun:
            waiting.append(one)
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # after a failure or an interrupt the others need not begin
        for one in waiting:
            one.cancel()
