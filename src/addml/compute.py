"""Devices and threads."""

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

OPERATIONS_WORTH_A_THREAD = 1e9  # in one call; with fewer, a second thread costs more time than it saves
AHEAD = 2  # queued items per worker, so that reading continues while workers hold the GIL

Item = TypeVar("Item")
Result = TypeVar("Result")


def resolve_device(device: str) -> str:
    """Check a device name; "auto" chooses CUDA, then MPS, then the CPU."""
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
    """The device for "auto". Importing torch takes over a second, so check for hardware first."""
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    has_cuda = os.path.exists("/dev/nvidiactl") or ctypes.util.find_library("cuda") is not None or os.name == "nt"
    has_mps = platform.system() == "Darwin" and platform.machine() == "arm64"
    if has_cuda and _available("cuda"):
        return "cuda"
    return "mps" if has_mps and _available("mps") else "cpu"


def _available(device: str) -> bool:
    import torch

    if device == "mps":
        return torch.backends.mps.is_available()
    index = int(device.split(":")[1]) if ":" in device else 0
    return torch.cuda.is_available() and index < torch.cuda.device_count()


def on_device(values: np.ndarray, device: str) -> Any:
    """A C-contiguous NumPy array on the CPU, a torch tensor on other devices."""
    values = np.ascontiguousarray(values)
    if device == "cpu":
        return values
    import torch

    return torch.from_numpy(values).to(device)


def max_threads(n_jobs: int | None) -> int:
    """The number of threads for `n_jobs` by scikit-learn's convention: -1 means all cores.

    None means all cores too, unless OMP_NUM_THREADS sets a lower number.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise ValueError(f"n_jobs={n_jobs!r} must be None or -1 (all cores), or a whole number other than 0")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        return min(cores, int(limit)) if limit.isdecimal() and int(limit) else cores
    return max(1, n_jobs if n_jobs > 0 else cores + 1 + n_jobs)


def reuse_memory_of_steps() -> None:
    """Make glibc keep the memory of freed arrays for the next step.

    By default glibc returns freed arrays over 128 kB to the system, and the page faults of new ones take longer than
    small matrix products. Freeing one block of up to 32 MB raises that threshold to the size of the block.
    """
    np.empty(31 * 2**20, np.uint8)


class BlasThreads:
    """A context manager that limits the threads of matrix products.

    Some BLAS libraries, such as the OpenBLAS in NumPy's wheels, have one setting per process: the smallest limit among
    all Python threads applies, and the last one to leave restores the original setting. Others have one setting per
    Python thread, which is changed for the calling thread only.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[int] = []
        self._original: list[tuple[Any, int]] = []  # per-process libraries and their settings outside of any block

    @contextmanager
    def __call__(self, count: int) -> Iterator[None]:
        per_thread = [(library, library.num_threads) for library in _blas_libraries(shared=False)]
        self._change(self._limits.append, count)
        for library, _ in per_thread:
            library.set_num_threads(count)
        try:
            yield
        finally:
            for library, original in per_thread:
                library.set_num_threads(original)
            self._change(self._limits.remove, count)

    @property
    def allowed(self) -> int:
        """The current limit; 1 outside of any block."""
        return min(self._limits, default=1)

    def _change(self, add_or_remove: Callable[[int], None], count: int) -> None:
        with self._lock:
            if not self._limits:
                self._original = [(library, library.num_threads) for library in _blas_libraries(shared=True)]
            before = min(self._limits, default=0)
            add_or_remove(count)
            for library, original in self._original:
                now = min(self._limits, default=original)
                if now != (before or original):  # setting the limit takes longer than a small product
                    release = getattr(library, "clear_controlling_thread", lambda force: None)
                    release(force=True)  # otherwise threadpoolctl 3.8 obeys only the first Python thread
                    library.set_num_threads(now)
                    release(force=True)


@lru_cache(maxsize=2)
def _blas_libraries(shared: bool) -> list[Any]:
    """The loaded BLAS libraries with one setting per process (`shared`) or per thread."""
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in libraries if (getattr(library, "threading_layer", "") == "pthreads") == shared]


blas_threads = BlasThreads()


def in_threads(work: Callable[[int], None], parts: int, threads: int) -> None:
    """Call work(0) ... work(parts - 1) on Python threads, each with single-threaded matrix products."""
    with blas_threads(1):
        limited = blas_threads(1)(work)  # a second time, for libraries with one setting per thread
        deque(on_threads(limited, range(parts), min(threads, parts)), maxlen=0)


def on_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Map `work` over the items on threads and yield the results in order, reading a few items ahead."""
    if threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from in_order((pool.submit(work, item) for item in items), AHEAD * threads)


def in_order(futures: Iterable[Future[Result]], ahead: int) -> Iterator[Result]:
    """The results in order. `futures` submits work lazily: at most `ahead` items beyond the one awaited."""
    waiting: deque[Future[Result]] = deque()
    try:
        for future in futures:
            waiting.append(future)
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # after an error, cancel what has not started
        for future in waiting:
            future.cancel()
