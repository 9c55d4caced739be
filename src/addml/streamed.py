"""A fit to a table on disk that memory need not hold: the stages of a fit, each a pass over the rows.

What grows with the rows lies in files (see scratch.py). Medians, quartiles, references and the scale of the members
come from a sample; means, deviations, counts, centres, cut-offs and scores from all rows. Where the sample and a
portion hold the whole table the model is that of a fit in memory, bit by bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from addml import fitting, parameters
from addml.arrays import Array, even_steps, to_numpy
from addml.checkpoint import Storage, kept_safe
from addml.compute import blas_threads, max_threads, on_device
from addml.distances import count_of
from addml.explain.contributions import on_features
from addml.inputs.census import SAMPLED, Census, Moments
from addml.inputs.disk import CELL_BYTES, DiskRows, MappedRows, Portions, Source, SourceRows, cached
from addml.inputs.rows import MemoryRows
from addml.inputs.table import Columns, DriftCounter, Standardised
from addml.learning.distillation import padded
from addml.learning.learner import MetricLearner
from addml.learning.state import Member, TrainingState
from addml.learning.training import train
from addml.model import MetricModel
from addml.preprocessing.scaling import Features
from addml.reading import Reads
from addml.recipe import Recipe
from addml.scoring.base import MetricSpace
from addml.scratch import mapped

logger = logging.getLogger("addml")

SHARE = 4  # of the memory: so many parts, one of them for a sample, one for a portion
LEAST_SAMPLE = 1000  # rows
LEAST_SAMPLE_BYTES = 32 << 20  # however little the memory: a few rows tell no quartiles
DRAWN_TOGETHER = 2**18  # rows of which each member holds out its share
SCORED_AT_ONCE = 2**16  # rows
REMEMBERED = 1_000_000  # training scores, at the most; of more those at even steps through all in order


@dataclass(frozen=True)
class Streamed:
    """What came of a fit: the model, its training, and the scores of all rows or of some, in order."""

    model: MetricModel
    state: TrainingState
    space: MetricSpace  # of the sample
    places: np.ndarray  # of the sample among all rows
    sample_scores: np.ndarray
    scores: np.ndarray  # of every row in its place, or, of very many, at even steps through all in order
    ordered: np.ndarray  # all scores, ascending
    held_out: np.ndarray  # (members, len(scores)); nothing where not every row has its place


def fit(
    one: Reads,
    source: Source,
    start: MetricModel | None,
    device: str,
    storage: Storage,
    settings: dict[str, Any],
) -> Streamed:
    """Learn from the rows of a source, going through them again and again."""
    folder, memory = storage.folder, parameters.size("memory", one.memory)
    parameters.flag("cache", storage.cache)
    with kept_safe(storage.checkpoint, settings, lambda: source.about) as kept:  # refused at once, not after hours
        _say("Looking through", len(source))
        census = Census.take(_watched(source), _sample_rows(source, memory), 0)
        table = one._read(census.sample, fitting=start is None)
        columns, features = _prepared(one, source, census, start)
        standardised, randoms, shape = Standardised(columns, features), one._randoms(), (features.width,)
        portions = Portions.of(len(source), _portion_rows(memory, features.width, one.members), _seed(randoms[0]))
        rows = _rows(source, standardised, portions, device, storage)
        encoder = one._present(start, shape, device) if start else one._new_encoder(shape, randoms, device)
        members = [_member(one, len(source), random, folder) for random in randoms]
        learner = MetricLearner(encoder, one._objective())
        state = TrainingState.begin(encoder.weights, one.patience)
        state = kept.restored(state, members, device)
        _say("Training on", len(source), one.epochs - state.epoch, _passes(one))
        train(learner, rows, members, one._schedule(encoder), state, lambda state: kept.save(state, members))
        source.check_unchanged()
        fitting.warn_of_collapse(state)
        _say("Centring", len(source), one.members)
        space = _space(learner, rows, members, state.best, census, standardised, features, randoms[0], device)
        best, scorer = encoder.with_weights(to_numpy(state.best)), one._scorer()
        model = MetricModel(features, best, one.distance, scorer, scorer.fit(space), columns=columns)  # type: ignore[arg-type]
        model, sample_scores = fitting.fitted_model(model, table, space, device, max_threads(one.n_jobs))
        _say("Scoring", len(source))
        scores = _scores(model, rows, folder, device, max_threads(one.n_jobs))
    few = len(scores) <= REMEMBERED
    ordered = _ordered(scores, folder)
    state.kept = state.kept if few else []
    remembered = np.array(scores) if few else ordered[even_steps(len(scores), REMEMBERED)]
    held_out = fitting.held_out(members, len(scores)) if few else np.zeros((len(members), REMEMBERED), bool)
    return Streamed(model, state, space, census.places, sample_scores, remembered, ordered, held_out)


def _ordered(scores: np.ndarray, folder: Path) -> np.ndarray:
    """The scores, ascending, on disk."""
    ordered = mapped(folder, scores.shape, scores.dtype)
    ordered[...] = scores
    ordered.sort()
    return ordered


def exact_quantile(ordered: np.ndarray, share: float) -> float:
    """`numpy.quantile` of ascending numbers, without a copy of them."""
    place = share * (len(ordered) - 1)
    low = int(place)
    a, b, t = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)]), place - low
    return b - (b - a) * (1 - t) if t >= 0.5 else a + (b - a) * t


def _prepared(one: Reads, source: Source, census: Census, start: MetricModel | None) -> tuple[Columns, Features]:
    """How columns become features: by the sample, and where that is not the table, by all rows."""
    if start is not None:
        if start.columns is None:
            raise TypeError("the detector was fitted to an array; a table on disk has named columns: use fit")
        return start.columns, start.features
    columns = census.columns()
    fitting.say_what_is_lost(columns)
    sides = parameters.sides(one.one_sided, columns.own_names)
    columns = columns.facing(sides)
    drift = DriftCounter(columns)
    features = Features.fit(columns.transform(census.sample, drift), sides, robust=one._robust)
    if not census.is_whole:
        _say("Standardising", len(source))
        moments, before, drift = Moments(features), Standardised(columns, features), DriftCounter(columns)
        for batch in _watched(source):
            moments.add(before.transform(batch, drift))
        features = moments.refined()
    one._texts = drift.texts
    fitting.warn_of_texts(drift.texts)
    return columns, columns.rescaled(features)


def _rows(source: Source, standardised: Standardised, portions: Portions, device: str, storage: Storage) -> DiskRows:
    if not storage.cache:
        return SourceRows(source, portions, device, standardised.transform)
    _say("Preparing", len(source))
    values = cached(source, standardised.transform, standardised.width, storage.folder)
    return MappedRows(source, portions, device, values)


def _member(one: Recipe, rows: int, random: np.random.Generator, folder: Path) -> Member:
    """One member's rows, on disk: of every part of the rows V is drawn at random, the rest is M."""
    parts = [range(start, min(rows, start + DRAWN_TOGETHER)) for start in range(0, rows, DRAWN_TOGETHER)]
    held_out = sum(count_of(one.validation_ratio, len(part), least=2) for part in parts)
    train, validation = (mapped(folder, (size,), np.int64) for size in (rows - held_out, held_out))
    in_train = in_validation = 0
    for part in parts:
        for_train, for_validation = one._parted(np.arange(part.start, part.stop), random)
        train[in_train : in_train + len(for_train)] = for_train
        validation[in_validation : in_validation + len(for_validation)] = for_validation
        in_train, in_validation = in_train + len(for_train), in_validation + len(for_validation)
    return Member(train, validation, random, one.normal_ratio)


def _space(
    learner: MetricLearner,
    rows: DiskRows,
    members: list[Member],
    weights: Array,
    census: Census,
    standardised: Standardised,
    features: Features,
    random: np.random.Generator,
    device: str,
) -> MetricSpace:
    """The metric space of the sample, around the centres of all rows."""
    with blas_threads(1):
        learner.set_weights(weights)
        ids = padded([member.train for member in members], weights)
        center = learner.center(rows, ids, [len(member.train) for member in members])
        sample = MemoryRows(on_device(standardised.transform(census.sample), device))
        own = [_sampled(member, census.places) for member in members]
        return fitting.metric_space(learner, sample, own, weights, None, features, None, random, center)


def _sampled(member: Member, places: np.ndarray) -> Member:
    """The member with the rows of M that are in the sample, by their places there."""
    found = np.searchsorted(member.validation, places).clip(0, len(member.validation) - 1)
    held_out = member.validation[found] == places
    return replace(member, train=np.flatnonzero(~held_out), validation=np.flatnonzero(held_out))


def _scores(model: MetricModel, rows: DiskRows, folder: Path, device: str, threads: int) -> np.ndarray:
    """The score of every row, on disk."""
    behind, scores, done = on_features(model), mapped(folder, (len(rows),), np.float64), 0
    for part in rows.blocks(SCORED_AT_ONCE):
        scores[done : done + len(part)] = behind.scores(part, device, threads)
        done += len(part)
    return scores


def _sample_rows(source: Source, memory: int) -> int:
    room = max(LEAST_SAMPLE_BYTES, memory // SHARE)
    return min(SAMPLED, max(LEAST_SAMPLE, room // (CELL_BYTES * len(source.names))))


def _portion_rows(memory: int, width: int, members: int) -> int:
    """Rows that are shuffled together: their numbers, and three lists of ids for every member."""
    return memory // SHARE // (4 * width + 24 * members)


def _seed(random: np.random.Generator) -> int:
    """A number that belongs to a generator, without a draw from it."""
    return int(random.bit_generator.seed_seq.generate_state(1)[0])


def _watched(source: Source) -> Iterator[Any]:
    for batch in source.batches():
        yield batch
        logger.debug("%(rows)d rows", {"rows": batch.num_rows})


def _say(what: str, rows: int, times: int = 1, passes: float = 1) -> None:
    """Log what begins: it goes through so many rows, that often, after so many passes each time."""
    logger.info("%(stage)s", {"stage": f"{what} {rows:,} rows", "total": rows * times, "passes": passes})


def _passes(one: Recipe) -> float:
    """How often an epoch takes a row: M for the centre and for the distances, P for the steps, V for its loss.

    A look for a collapse at the end takes M as an epoch does.
    """
    train = 1 - one.validation_ratio
    once = 2 * train + one.normal_ratio * train + 2 * one.validation_ratio
    return one.members * (once + 2 * train / one.epochs)
