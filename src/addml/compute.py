"""Which device does the work, and with how many threads. Level 0."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np

# Under this many operations in one call a second thread costs more (waking, waiting on a shared core) than it gains.
OPERATIONS_WORTH_A_THREAD = 1e9


def resolve_device(device: str) -> str:
    """The device that `device` names; "auto" takes CUDA, then MPS, then the CPU."""
    if device == "auto":
        return _best_device()
    kind = device.split(":")[0] if isinstance(device, str) else None
    if kind not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device={device!r} is not a device; use 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'")
    if kind != "cpu" and not _available(device):
        raise ValueError(f"device={device!r} is not available here; use device='auto' or device='cpu'")
    return device


@lru_cache(maxsize=1)
def _best_device() -> str:
    return next((name for name in ("cuda", "mps") if _looks_present(name) and _available(name)), "cpu")


def _looks_present(kind: str) -> bool:
    """Whether it is worth importing torch to ask: that takes more than a second, which CPU users should not pay."""
    if importlib.util.find_spec("torch") is None:
        return False
    if kind == "mps":
        return platform.system() == "Darwin" and platform.machine() == "arm64"
    return os.path.exists("/dev/nvidiactl") or ctypes.util.find_library("cuda") is not None or os.name == "nt"


def _available(device: str) -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    if device == "mps":
        return torch.backends.mps.is_available()
    index = int(device.split(":")[1]) if ":" in device else 0
    return torch.cuda.is_available() and index < torch.cuda.device_count()


def on_device(values: np.ndarray, device: str) -> Any:
    """The array itself on the CPU, a torch tensor elsewhere."""
    if device == "cpu":
        return values
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).to(device)


def most_threads(n_jobs: int | None) -> int:
    """How many threads may be used: all cores for None or -1, else as said (scikit-learn's convention)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return cores
    return max(1, n_jobs if n_jobs > 0 else cores + 1 + n_jobs)


def threads_for(operations: float, most: int) -> int:
    """The number of threads for a call of so many operations."""
    return max(1, min(most, int(operations / OPERATIONS_WORTH_A_THREAD)))


@lru_cache(maxsize=1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def blas_threads(count: int) -> AbstractContextManager[Any]:
    """Matrix products run on so many threads inside, and as before afterwards."""
    return _blas().limit(limits=count)  # type: ignore[no-any-return]


def in_threads(work: Callable[[int], None], parts: int, threads: int) -> None:
    """Call work(0) ... work(parts - 1), each with single-threaded products, on so many Python threads."""
    with blas_threads(1):
        if threads == 1 or parts == 1:
            for part in range(parts):
                work(part)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work, part) for part in range(parts)]:
                done.result()
