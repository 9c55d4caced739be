"""A Ray cluster: the user's own, or one on this machine that listens on loopback alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from addml import __version__
from addml.cluster.scorer import check_version
from addml.compute import max_threads
from addml.errors import AddmlError
from addml.pipeline.batches import ONE_THREAD, Ended, run_task

QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray's only switch for an address of 127.0.0.1


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[tuple[Any, int]]:
    """Ray, connected to the cluster at an address, else to one started here, and how many workers it is to have."""
    for name, value in (QUIET if address else QUIET | LOOPBACK).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ImportError("engine 'ray' needs Ray: pip install 'addml[ray]'") from None
    if ray.is_initialized():  # by the caller, who also ends it
        yield ray, workers or _cores(ray)
        return
    one_thread = {"env_vars": dict.fromkeys(ONE_THREAD, "1")}
    known: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "runtime_env": one_thread}
    if address is None:  # one more for what coordinates the workers
        known |= {"num_cpus": (workers or max_threads(None)) + 1, "include_dashboard": False}
    try:
        ray.init(address=address or "local", **known)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise AddmlError(f"--address {address}: no Ray cluster answers there ({error}).", option="address") from None
    try:
        yield ray, workers or _cores(ray)
    finally:
        ray.shutdown()


def _cores(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)) - 1)


# Tasks ------------------------------------------------------------------------------------------------------


def run_on_ray(
    tasks: Sequence[Any], machine: Any, jobs: int, *, address: str | None = None
) -> Iterator[tuple[Ended, list[dict[str, Any]]]]:
    """Each task of a comparison as it ends, with its rows, as `run_tasks` gives them, from a cluster."""
    with connected(address, jobs if jobs > 1 else None) as (ray, _):
        yield from completed(ray, _run_task, [(task, machine, __version__) for task in tasks])


def _run_task(task: Any, machine: Any, version: str) -> Any:
    check_version(version)
    return run_task(task, machine)


def completed(ray: Any, work: Any, arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """The results of work on a core each, as they come; as many wait in the cluster as keep its cores busy."""
    remote, ahead = ray.remote(num_cpus=1, max_retries=3)(work), 4 * int(ray.cluster_resources().get("CPU", 1))
    coming, begun = iter(arguments), list[Any]()
    while True:
        begun += [remote.remote(*one) for one, _ in zip(coming, range(ahead - len(begun)), strict=False)]
        if not begun:
            return
        (done,), begun = ray.wait(begun)
        yield ray.get(done)
