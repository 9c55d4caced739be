"""Fits on a Ray cluster, the user's own or a local one: one fit by many workers, many fits, or comparison tasks."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from addml import __version__, model_file
from addml.checkpoint import Storage
from addml.cluster import check_version
from addml.compute import max_threads
from addml.config import Config, settings_from_json, settings_to_json
from addml.errors import AddmlError
from addml.fit import Fit, fit
from addml.inputs.disk import Source, is_on_disk, open_source
from addml.learning.group import TorchGroup
from addml.model import Model
from addml.pipeline.batches import ONE_THREAD, Ended, run_task
from addml.pipeline.options import Options
from addml.pipeline.ranking import Result
from addml.pipeline.run import settings_of, storage_of, with_threshold
from addml.pipeline.table_source import TableSource
from addml.progress import Progress

QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # the only setting that makes Ray listen on 127.0.0.1
STEPS_PER_AVERAGE = 50  # training steps between two averages of the weights: see docs/cluster.md
MAX_FAILURES = 3  # losses of a worker, after each of which the fit resumes from its checkpoint


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[tuple[Any, int]]:
    """Connect Ray to the cluster at `address`, or start a local one. Yields Ray and the number of workers."""
    for name, value in (QUIET if address else QUIET | LOOPBACK).items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ImportError("engine 'ray' needs Ray: pip install 'addml[ray]'") from None
    starts_ray = not ray.is_initialized()  # otherwise the caller shuts it down
    if starts_ray:
        one_thread = {"env_vars": dict.fromkeys(ONE_THREAD, "1")}
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "runtime_env": one_thread}
        if address is None:  # one more CPU for the coordinator
            settings |= {"num_cpus": (workers or max_threads(None)) + 1, "include_dashboard": False}
        try:
            ray.init(address=address or "local", **settings)
        except (ConnectionError, ValueError, RuntimeError) as error:
            message = f"--address {address}: no Ray cluster answers there ({error}); start one, or correct the address."
            raise AddmlError(message, option="address") from None
    try:
        yield ray, workers or max(1, int(ray.cluster_resources().get("CPU", 1)) - 1)
    finally:
        if starts_ray:
            ray.shutdown()


def fit_rows(
    settings: dict[str, Any],
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    storage: Storage | None = None,
    address: str | None = None,
    workers: int | None = None,
    every: int = STEPS_PER_AVERAGE,
) -> Model:
    """Train on all rows of Parquet files, each worker on its shard, and save the model in the folder `output`.

    `path`, `output` and the checkpoint must be shared by all machines. Weights are averaged after `every` steps; with
    0, gradients are averaged in every step. After a kill, the same call resumes from the last epoch.
    """
    storage = storage or Storage()
    plain, custom = settings_to_json(settings)
    if custom:
        raise AddmlError(f"{', '.join(custom)}: custom objects cannot be sent to a cluster; use parts of addml.")
    Config.resolve(settings)  # fail before the cluster starts
    open_source(path, columns)
    target = os.path.abspath(os.path.expanduser(output))
    job = {
        "version": __version__,
        "settings": json.dumps(plain),
        "path": os.path.abspath(os.path.expanduser(path)),
        "columns": None if columns is None else list(columns),
        "output": target,
        "checkpoint": os.path.abspath(os.path.expanduser(storage.checkpoint or f"{target}.checkpoint")),
        "scratch": None if storage.scratch is None else os.fspath(storage.scratch),
        "memory": storage.memory,
        "every": every,
    }
    with connected(address, workers) as (_, count), tempfile.TemporaryDirectory(dir=Path(target).parent) as folder:
        _train(job, count, folder)
    return model_file.load(target)


def _train(job: dict[str, Any], workers: int, folder: str) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        _work,
        train_loop_config=job,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=MAX_FAILURES)),
    )
    try:
        trainer.fit()
    except Exception as error:  # the classes differ between versions of Ray
        causes = getattr(error, "worker_failures", None) or {0: error}
        raise AddmlError(f"the fit on {workers} workers failed: {next(iter(causes.values()))}") from error


def _work(job: dict[str, Any]) -> None:
    check_version(job["version"])
    group = TorchGroup(job["every"])
    storage = Storage(job["checkpoint"], job["scratch"], job["memory"])
    config = Config.resolve(settings_from_json(json.loads(job["settings"])))
    model = fit(config, open_source(job["path"], job["columns"]), storage=storage, group=group)
    if group.rank == 0:
        model_file.save(model, job["output"])


def fit_table(options: Options, output: str, progress: Progress) -> Result:
    """`addml fit --all-rows` on a cluster."""

    def on_cluster(options: Options, X: Source, labels: None, **settings: Any) -> Model:
        model = fit_rows(
            settings_of(options) | settings,
            options.file,
            output,
            columns=X.columns,
            storage=storage_of(options),
            address=options.address,
            workers=options.workers,
            every=0 if options.sync else STEPS_PER_AVERAGE,
        )
        return with_threshold(model, options)

    source = TableSource(options)
    source.fit = on_cluster
    model = source.train(progress)
    return Result(source.training_findings(model), (), model)


def fit_many(fits: Sequence[Fit], *, address: str | None = None, workers: int | None = None) -> list[Model]:
    """Run independent fits as tasks of a cluster, each with the result of `addml.fit.fit`."""
    jobs, models = list[tuple[Any, ...]](), dict[int, Model]()
    for number, task in enumerate(fits):
        if task.start is not None:
            raise AddmlError("a refit needs its model in this process; on a cluster, fit from scratch.")
        X = os.path.abspath(os.path.expanduser(task.X)) if isinstance(task.X, str | os.PathLike) else task.X
        if is_on_disk(X) and not isinstance(X, str):
            raise AddmlError(f"{type(X).__name__} cannot be sent to a cluster; give the path of the Parquet files.")
        jobs.append((number, json.dumps(task.config.settings), X, task.labels, task.names))
    with connected(address, workers) as (ray, _):
        for number, model, failure in completed(ray, _fit_one, jobs):
            if model is None:
                raise AddmlError(f"fit {number} failed: {failure}")
            models[number] = model
    return [models[number] for number in range(len(fits))]


def _fit_one(number: int, settings: str, X: Any, labels: Any, names: Any) -> tuple[int, Model | None, str]:
    try:
        config = Config.resolve(settings_from_json(json.loads(settings)))
        return number, fit(config, X, labels, names=names), ""
    except (ValueError, TypeError, OSError) as error:
        return number, None, f"{type(error).__name__}: {error}"


def run_on_ray(
    tasks: Sequence[Any], machine: Any, jobs: int, *, address: str | None = None
) -> Iterator[tuple[Ended, list[dict[str, Any]]]]:
    """`pipeline.batches.run_tasks` on a cluster: each task of a comparison with its rows, as it finishes."""
    with connected(address, jobs if jobs > 1 else None) as (ray, _):
        yield from completed(ray, run_task, [(task, machine) for task in tasks])


def completed(ray: Any, work: Any, arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Call `work` on one core each and yield the results as they finish; the queue holds four calls per core."""
    remote = ray.remote(num_cpus=1, max_retries=3)(_checked)
    max_queued = 4 * int(ray.cluster_resources().get("CPU", 1))
    pending, queued = iter(arguments), list[Any]()
    while True:
        queued += [remote.remote(__version__, work, *call) for call in islice(pending, max_queued - len(queued))]
        if not queued:
            return
        (done,), queued = ray.wait(queued)
        yield ray.get(done)


def _checked(version: str, work: Any, *arguments: Any) -> Any:
    check_version(version)
    return work(*arguments)
