"""The only fit: rows -> features -> members -> training -> metric space -> scorer -> model.

Rows that do not fit into memory take the same path, with arrays in files (see arrays.py). Medians, quartiles,
references and the scale of the members then come from a sample; means, deviations, counts, centres, cut-offs and scores
from all rows. If the sample and a portion hold the whole table, the model is the same as that of a fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from addml import disk_fit, parameters
from addml.arrays import Array, evenly_spaced, evenly_spaced_with_ends, index_like, namespace, to_numpy
from addml.checkpoint import Checkpoint, Storage, fingerprint, open_checkpoint
from addml.compute import blas_threads, max_threads, on_device, resolve_device
from addml.config import Config
from addml.decisions.decision import TrainingScores
from addml.encoders import AutoencoderNetwork
from addml.errors import DroppedColumnsWarning, warn
from addml.explain.attribution import baseline_of, distilled_by_most
from addml.inputs import ROWS_AT_ONCE, MemoryRows, Rows, Vectorizer, in_row_order, vectorizer_for
from addml.inputs.array import VALUES
from addml.inputs.disk import LEAST_STREAMED, Source, is_on_disk, open_source
from addml.inputs.series_vectorizer import WindowRows
from addml.io.image_folder import is_image_folder
from addml.learning.group import ALONE, Group
from addml.learning.learner import MetricLearner, ReconstructionLearner, distill, padded
from addml.learning.losses import CenterCloseness
from addml.learning.state import Member, TrainingState, held_out
from addml.learning.training import train
from addml.model import Examples, Model
from addml.scoring.guidance import Guided, calibrated, drop_doubtful_labels, with_label_weight
from addml.scoring.scorer import MetricSpace, ViewScale
from addml.scoring.views import Views
from addml.text import TABLE, counted

GROUP_REFERENCES = 16384  # of all groups together, in addition to those of the whole table
GUIDING_ROWS = 20_000  # evenly spaced training rows that calibrate the weight of labelled anomalies
MARGIN_ROWS = 1024  # per member, to measure the mean distance of rows before training
EXAMPLES, EXAMPLE_NUMBERS = 1000, 2**22  # evenly spaced kept rows for `nearest_normal`, and the most numbers in them
KEPT_FOR_MEDIANS = 20_000  # evenly spaced kept rows, for the baseline
MAY_DIFFER = ("normal_ratio", "random_state", "contamination")  # settings of fits that train together


@dataclass(frozen=True)
class Fit:
    """The data and the settings of one fit."""

    config: Config
    X: Any
    labels: Any = None
    start: Model | None = None  # the model to continue from, for a refit
    names: tuple[str, ...] | None = None  # of the columns of an array


@dataclass
class Job:
    """A fit in progress: its rows as features, and the members that train on them."""

    config: Config
    vectorizer: Vectorizer
    rows: Rows  # to be scored; a sample if the table is on disk
    training: Rows
    labels: np.ndarray | None  # 0 normal, 1 anomaly, -1 unknown
    randoms: list[np.random.Generator]
    disk: disk_fit.OnDisk | None = None  # if the rows do not fit into memory
    members: list[Member] = field(default_factory=list)


def fit(
    config: Config,
    X: Any,
    labels: Any = None,
    *,
    start: Model | None = None,
    storage: Storage | None = None,
    names: tuple[str, ...] | None = None,
    group: Group = ALONE,
) -> Model:
    """Fit a model to X. Every process of a group calls this; each reads its own shard of a table on disk."""
    return fit_many([Fit(config, X, labels, start, names)], storage, group)[0]


def fit_many(fits: Sequence[Fit], storage: Storage | None = None, group: Group = ALONE) -> list[Model]:
    """Train several fits together, along the member axis; their rows and the settings in MAY_DIFFER may differ.

    Each model is the same as that of a separate fit, up to the rounding of products of another shape.
    """
    config, storage = _shared_config(fits), storage or Storage()
    device = resolve_device(config.device)
    settings = {**config.to_plain(), "memory": storage.memory, **group.settings()}
    with open_checkpoint(storage.checkpoint, settings, group) as checkpoint:
        jobs = [_prepare(request, device, storage, checkpoint, group) for request in fits]
        encoder = _initial_encoder(fits, jobs, device)  # draws the weights, before the split is drawn
        for job in jobs:
            job.members = _members(job)
        rows, members = _concatenated(jobs)
        learner_kind = ReconstructionLearner if isinstance(encoder, AutoencoderNetwork) else MetricLearner
        learner = learner_kind(encoder, config.loss, group)
        if any(job.labels is not None for job in jobs) and config.loss.margin is None:
            learner.loss = _with_margin(learner, rows, members)
        schedule = config.schedule(encoder, jobs[0].vectorizer.kind, max(len(member.train) for member in members))
        state = checkpoint.restored(TrainingState.begin(encoder.weights, config.patience), members, device)
        if jobs[0].disk is not None:
            jobs[0].disk.announce_training(state.epoch)
        if not config.frozen:
            train(learner, rows, members, schedule, state, lambda state: checkpoint.save(state, members), group)
        for e in np.flatnonzero(state.collapsed):
            warn(
                f"member {e} collapsed in epoch {state.collapsed[e]}: its embeddings became equal or infinite. The "
                f"network of epoch {state.best_epoch[e]} is used. Fewer epochs or a lower learning_rate avoid this."
            )
        stops = np.cumsum([len(job.members) for job in jobs])
        best = [state.best[stop - len(job.members) : stop] for job, stop in zip(jobs, stops, strict=True)]
        return [_finish(job, learner, state, weights, device) for job, weights in zip(jobs, best, strict=True)]


def _shared_config(fits: Sequence[Fit]) -> Config:
    shared = fits[0].config
    for request in fits[1:]:
        for name, value in vars(request.config).items():
            if name not in (*MAY_DIFFER, "settings") and value != getattr(shared, name):
                both = f"{name}={value!r} and {name}={getattr(shared, name)!r}"
                raise ValueError(f"{both} cannot train together; only {MAY_DIFFER} may differ")
    return shared


def _prepare(request: Fit, device: str, storage: Storage, checkpoint: Checkpoint, group: Group) -> Job:
    config, X = request.config, request.X
    if _is_table_on_disk(request):
        source = open_source(X)
        for note in source.partial:
            warn(note, DroppedColumnsWarning)
        large = source.size > parameters.size("memory", storage.memory) and len(source) >= LEAST_STREAMED
        if large or group.size > 1:
            return _prepare_disk(request, source, device, storage, checkpoint, group)
        X = pa.Table.from_batches(list(source.batches()))
    if group.size > 1:
        raise ValueError(f"X is of type {type(X).__name__}, but workers share a table on disk; give a Parquet path")
    if request.start is None:
        vectorizer, rows = vectorizer_for(X, config).fit(X, config, request.names)
    else:
        vectorizer, rows = request.start.vectorizer, request.start.vectorizer.read(X)
    if len(rows) < 2:
        raise ValueError(f"X has {counted(len(rows), 'row')}, which is too few to learn from: give at least two")
    if config.frozen and request.labels is not None:
        raise ValueError("encoder='pretrained' cannot learn from labels; leave them out, or use encoder='conv'")
    steps = in_row_order(np.arange(len(rows)), rows)
    labels = parameters.read_labels(request.labels, len(steps))
    if labels is not None:  # several rows of the same time make one step
        row_labels, labels = labels, np.full(len(rows), -1)
        np.maximum.at(labels, steps, row_labels)
    training = rows.for_training(device)
    checkpoint.claim(lambda: fingerprint(training.values, labels))
    return Job(config, vectorizer, rows, training, labels, config.randoms())


def _is_table_on_disk(request: Fit) -> bool:
    """Whether X is a table on disk, which is read in parts; a series or a folder of images is not."""
    X, config = request.X, request.config
    if not is_on_disk(X):
        return False
    if request.start is not None:
        return request.start.kind == TABLE
    is_path = not isinstance(X, Source) and not hasattr(X, "get_fragments")
    return config.window is None and not (is_path and (config.takes_images or is_image_folder(X)))


def _prepare_disk(
    request: Fit, source: Source, device: str, storage: Storage, checkpoint: Checkpoint, group: Group
) -> Job:
    config = request.config
    if request.labels is not None:
        raise ValueError(f"labels need rows in memory; give memory > {source.size}, or a table")
    if config.by:
        raise ValueError(f"by={list(config.by)!r} needs rows in memory; give memory > {source.size}, or a table")
    checkpoint.claim(lambda: source.about)  # before hours of preparation
    start = None if request.start is None else request.start.vectorizer
    disk = disk_fit.prepare(config, source, start, device, storage, group)
    return Job(config, disk.vectorizer, disk.sample, disk.rows, None, disk.randoms, disk)


def _initial_encoder(fits: Sequence[Fit], jobs: Sequence[Job], device: str) -> Any:
    """The networks before training: new ones, or those of the model to refit."""
    config, vectorizer, start = jobs[0].config, jobs[0].vectorizer, fits[0].start
    if len({job.vectorizer.shape for job in jobs}) > 1:
        raise ValueError("tables with gaps in different columns cannot train together; fit them one by one")
    if start is None:
        encoder = config.networks(vectorizer, [random for job in jobs for random in job.randoms])
    else:
        config.check_encoder(start.encoder, vectorizer)
        encoder = start.encoder
    return encoder.with_weights(on_device(encoder.weights.astype(np.float32), device))


def _members(job: Job) -> list[Member]:
    if job.disk is not None:
        return [job.disk.member(random) for random in job.randoms]
    usable = job.rows.usable(job.config.steps_between(job.vectorizer.row_shape, len(job.rows)))
    return [job.config.member(usable, job.labels, random) for random in job.randoms]


def _concatenated(jobs: Sequence[Job]) -> tuple[Rows, list[Member]]:
    """The rows of all jobs, concatenated, and their members with row ids to match."""
    if len(jobs) == 1:
        return jobs[0].training, jobs[0].members
    values = [job.training.values for job in jobs]
    starts = np.cumsum([0, *map(len, values)])
    members = [
        replace(member, train=member.train + start, validation=member.validation + start)
        for job, start in zip(jobs, starts, strict=False)
        for member in job.members
    ]
    return MemoryRows(namespace(values[0]).concatenate(values)), members


def _with_margin(learner: MetricLearner, rows: Rows, members: list[Member]) -> CenterCloseness:
    """The loss with a margin at the scale of the data: about the mean distance of two rows before training."""
    ids = padded([evenly_spaced_with_ends(member.train, MARGIN_ROWS) for member in members], learner.encoder.weights)
    _, scores = learner.row_scores(rows, ids, [ids.shape[1]] * len(members))
    margin = 2 * float(to_numpy(scores).mean())
    return replace(learner.loss, margin=margin) if margin > 0 else learner.loss


def _finish(job: Job, learner: MetricLearner, state: TrainingState, best: Array, device: str) -> Model:
    config, threads, members = job.config, max_threads(job.config.n_jobs), job.members
    with blas_threads(1):
        space = metric_space(job, learner, best)
    scorer = config.scorer_for(job.vectorizer.row_shape)
    scorer = Guided(scorer) if len(space.anomalies) or len(space.normals) else scorer
    encoder = learner.encoder.with_weights(to_numpy(best))
    model = Model(job.vectorizer, encoder, config.loss.distance, scorer, scorer.fit(space))
    model, scores = _calibrated(model, job.rows, space, device, threads)
    with blas_threads(1):
        baseline, examples = _baseline_and_examples(model, space, scores, config.normal_ratio)
    model, scores = _within_groups(model, job.rows, scores, space, device, threads)
    model = replace(
        model,
        center=space.center,
        history=state.history,
        kept=np.array(state.kept, np.uint8),
        baseline=baseline,
        examples=examples,
        sampling=job.rows.sampling,
        settings=config.settings,
    )
    if job.disk is not None:
        model, rows = job.disk.scored(model, members, device, threads), None
    else:
        is_held_out, rows = held_out(members, len(scores)), job.rows
        training = TrainingScores.of(scores, is_held_out, job.labels, by_views=isinstance(model.scale, ViewScale))
        model = replace(model, training=training, held_out=is_held_out).decided(contamination=config.flagged)
    return replace(model, profiles=job.vectorizer.profiles(rows, model.training.values <= model.threshold))


def metric_space(job: Job, learner: MetricLearner, weights: Array) -> MetricSpace:
    """The metric space of the best networks: centres over M, distances to them, and the rows of M that are kept.

    For a table on disk, the rows are the sample, and the centres are those of all rows.
    """
    rows, members, center = job.training, job.members, None
    if job.disk is not None:
        rows, members, center = job.disk.sampled(learner, members, weights)
        job.randoms[0].bit_generator.state = learner.group.first(job.randoms[0].bit_generator.state)
    learner.set_weights(weights)
    ids = padded([member.train for member in members], weights)
    center, scores = learner.row_scores(rows, ids, [len(member.train) for member in members], center)
    row_shape = job.vectorizer.row_shape
    weight = np.ones(job.vectorizer.features.width, np.float32) if row_shape is None else row_shape.counts()
    labels = np.full(len(rows), -1) if job.labels is None else job.labels
    not_anomalous = np.flatnonzero(labels != 1)
    patches = getattr(learner.encoder, "patches", None)

    def prepared(ids: np.ndarray) -> np.ndarray:
        return to_numpy(rows.take(index_like(ids, weights)))

    return MetricSpace(
        center=to_numpy(center),
        scores=to_numpy(scores),
        train=[member.train for member in members],
        kept=[member.train[keep] for member, keep in zip(members, distill(scores, members)[1], strict=True)],
        not_anomalous=not_anomalous,
        column_weight=weight,
        norms=_norms(prepared, not_anomalous, weight) if patches is None else np.zeros(len(not_anomalous)),
        prepared=prepared,
        embed=lambda ids: learner.embed(rows, padded(ids, weights)),
        distance=learner.loss.distance,
        random=job.randoms[0],
        anomalies=np.flatnonzero(labels == 1),
        normals=np.flatnonzero(labels == 0),
        patches=None if patches is None else lambda ids: patches(prepared(ids)),
        levels=getattr(learner.encoder, "levels", ()),
    )


def _norms(prepared: Callable[[np.ndarray], np.ndarray], ids: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The sum of the absolute features of each row, weighted; rows are prepared in blocks."""
    size = max(256, min(ROWS_AT_ONCE, VALUES // len(weight)))
    with np.errstate(invalid="ignore"):  # OpenBLAS reads past the ends of the arrays here
        return np.concatenate([abs(prepared(ids[start : start + size])) @ weight for start in range(0, len(ids), size)])


def _calibrated(model: Model, rows: Rows, space: MetricSpace, device: str, threads: int) -> tuple[Model, np.ndarray]:
    """The model with the scale of its members, calibrated by labels if there are any, and the training scores."""
    scorer, distance, incomplete = model.scorer, space.distance, model.incomplete(rows)
    if not isinstance(scorer, Guided):
        scores = model.member_scores(rows, device, threads, learned=True)
        model = model.with_scale(scores, incomplete)
        return model, model.combined(scores, rows)
    ids = np.unique(np.concatenate([space.anomalies, evenly_spaced_with_ends(np.arange(len(rows)), GUIDING_ROWS)]))
    features, is_anomaly = space.prepared(ids), np.isin(ids, space.anomalies)
    arrays = drop_doubtful_labels(scorer, model.scorer_arrays, features, distance)
    model = replace(model, scorer_arrays=calibrated(scorer, arrays, features, distance))
    scores = model.member_scores(rows, device, threads, learned=True)
    model = model.with_scale(scores, incomplete)
    base = model.combined(scores, rows)[ids]
    arrays = with_label_weight(scorer, model.scorer_arrays, features, base, is_anomaly, model.scale, distance)
    model = replace(model, scorer_arrays=arrays)
    return model, model.scores(rows, device, threads, learned=True)


def _within_groups(
    model: Model, rows: Rows, scores: np.ndarray, space: MetricSpace, device: str, threads: int
) -> tuple[Model, np.ndarray]:
    """The model with references and a divisor for each group, if rows have groups, and the training scores by them."""
    groups, codes = model.vectorizer.groups, rows.groups
    if groups is None or codes is None:
        return model, scores
    chosen = groups.groups_with_references()
    if len(chosen) and isinstance(model.scorer, Views) and not isinstance(rows, WindowRows):  # windows share references
        references = int(np.clip(GROUP_REFERENCES // len(chosen), 64, model.scorer.references))
        scorer, features = replace(model.scorer, references=references), rows.take(np.arange(len(rows)))
        models = []  # one per group, with references from this group only
        for code in chosen:
            in_group = codes == code
            usable = in_group[space.not_anomalous]
            arrays = scorer.fit(space._replace(not_anomalous=space.not_anomalous[usable], norms=space.norms[usable]))
            alone = replace(model, scorer_arrays=arrays)
            models.append(alone.with_scale(alone.member_scores(features[in_group], device, threads)))
        groups = groups.with_references(chosen, [one.scorer_arrays for one in models], [one.scale for one in models])
        model = replace(model, vectorizer=model.vectorizer.with_groups(groups))
        scores = model.within_groups(scores, rows, device, threads)  # divisors are still 1
    groups = groups.with_scores(scores, codes, compressed=isinstance(model.scale, ViewScale))
    model = replace(model, vectorizer=model.vectorizer.with_groups(groups))
    return model, model.divided(scores, codes)


def _baseline_and_examples(
    model: Model, space: MetricSpace, scores: np.ndarray, normal_ratio: float
) -> tuple[np.ndarray, Examples]:
    """The baseline row, and examples of normal rows if the scorer keeps training rows too."""
    kept = distilled_by_most(space.kept, space.train, len(scores))
    low = kept[scores[kept] <= np.quantile(scores, float(normal_ratio))]  # the scorer finds what distillation missed
    normal = low if len(low) else kept
    ids = evenly_spaced(normal, max(2, min(KEPT_FOR_MEDIANS, VALUES // model.encoder.inputs)))
    baseline = baseline_of(model, space.prepared(ids), scores[ids], float(np.median(scores)))
    most = min(EXAMPLES, max(1, EXAMPLE_NUMBERS // model.features.width))
    ids = evenly_spaced(normal, most) if {"references", "rows"} & model.scorer_arrays.keys() else normal[:0]
    return baseline, Examples(ids, space.prepared(ids))
