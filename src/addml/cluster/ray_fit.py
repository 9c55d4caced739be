"""Fits on a Ray cluster: one on all rows by many workers (Ray Train), or many fits as tasks."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from addml import __version__, model_file
from addml.checkpoint import Storage
from addml.cluster.ray_cluster import completed, connected
from addml.cluster.scorer import check_version
from addml.config import Config, settings_from_json, settings_to_json
from addml.errors import AddmlError
from addml.fit import Fit, fit
from addml.inputs.disk import Source, is_on_disk, open_source
from addml.learning.group import TorchGroup
from addml.model import Model
from addml.pipeline.options import Options
from addml.pipeline.ranking import Result
from addml.pipeline.run import decided, settings_of, storage_of
from addml.pipeline.table_source import TableSource
from addml.progress import Progress

EVERY = 50  # steps between two averages of the weights: see docs/cluster.md
FAILURES = 3  # times that workers may be lost before the fit is given up; it goes on from its checkpoint


def fit_rows(
    settings: dict[str, Any],
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    storage: Storage | None = None,
    address: str | None = None,
    workers: int | None = None,
    every: int = EVERY,
) -> Model:
    """Learn from all rows of Parquet files, each worker from its shard, and save the model in the folder `output`.

    `path`, `output` and the checkpoint must be the same folders on all machines. Weights are averaged `every` so many
    steps, gradients in every step where it is 0. After a kill the same call goes on from the last epoch.
    """
    storage, plain, left_out = storage or Storage(), *settings_to_json(settings)
    if left_out:
        raise AddmlError(f"{', '.join(left_out)}: objects of your own cannot be sent to a cluster; use parts of addml.")
    Config.resolve(settings)
    open_source(path, columns)  # what is wrong with them is said before the cluster starts
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
        run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=FAILURES)),
    )
    try:
        trainer.fit()
    except Exception as error:  # Ray's own classes, of which each version has others
        causes = getattr(error, "worker_failures", None) or {0: error}
        raise AddmlError(f"the fit on {workers} workers failed: {next(iter(causes.values()))}") from error


def _work(job: dict[str, Any]) -> None:
    """What every worker does, after Ray Train has joined them in a group."""
    check_version(job["version"])
    group = TorchGroup(job["every"])
    storage = Storage(job["checkpoint"], job["scratch"], job["memory"])
    config = Config.resolve(settings_from_json(json.loads(job["settings"])))
    model = fit(config, open_source(job["path"], job["columns"]), storage=storage, group=group)
    if group.rank == 0:
        model_file.save(model, job["output"])


def fit_as_told(options: Options, output: str, progress: Progress) -> Result:
    """Train on all rows of a table as `addml fit` does, on a cluster."""

    def on_cluster(options: Options, X: Source, labels: None, **settings: Any) -> Model:
        known: dict[str, Any] = {
            "address": options.address,
            "workers": options.workers,
            "every": 0 if options.sync else EVERY,
        }
        settings, storage = settings_of(options) | settings, storage_of(options)
        model = fit_rows(settings, options.file, output, columns=X.columns, storage=storage, **known)
        return decided(model, options)

    source = TableSource(options)
    source.fit = on_cluster
    model = source.train(progress)
    return Result(source.training_findings(model), (), model)


# Many fits --------------------------------------------------------------------------------------------------


def fit_many(fits: Sequence[Fit], *, address: str | None = None, workers: int | None = None) -> list[Model]:
    """Independent fits as tasks of a cluster, as many as you like; what `addml.fit.fit_many` gives of each alone."""
    jobs = [(number, *_described(one), __version__) for number, one in enumerate(fits)]
    found: dict[int, Model] = {}
    with connected(address, workers) as (ray, _):
        for number, files, failure in completed(ray, _fit_one, jobs):
            if failure:
                raise AddmlError(f"fit {number} failed: {failure}")
            found[number] = _unpacked(files)
    return [found[number] for number in range(len(fits))]


def _described(one: Fit) -> tuple[str, Any, Any, Any]:
    if one.start is not None:
        raise AddmlError("a refit goes on from a model in this process; fit anew on a cluster.")
    X = os.path.abspath(os.path.expanduser(one.X)) if isinstance(one.X, str | os.PathLike) else one.X
    if is_on_disk(X) and not isinstance(X, str):
        raise AddmlError(f"{type(X).__name__} cannot be sent to a cluster; give the path of the Parquet files.")
    return json.dumps(one.config.settings), X, one.labels, one.names


def _fit_one(
    number: int, settings: str, X: Any, labels: Any, names: Any, version: str
) -> tuple[int, dict[str, bytes], str]:
    """The files of the model of one fit, or why it failed."""
    check_version(version)
    try:
        model = fit(Config.resolve(settings_from_json(json.loads(settings))), X, labels, names=names)
    except (ValueError, TypeError, OSError) as error:
        return number, {}, f"{type(error).__name__}: {error}"
    with tempfile.TemporaryDirectory() as folder:
        model_file.save(model, folder)
        return number, {file.name: file.read_bytes() for file in Path(folder).iterdir()}, ""


def _unpacked(files: dict[str, bytes]) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / Path(name).name).write_bytes(content)
        return model_file.load(folder)
