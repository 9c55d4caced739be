"""A table on disk that memory need not hold: the stages of a fit as passes over its rows."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from addml import parameters
from addml.arrays import Array, even_steps, mapped
from addml.checkpoint import Storage
from addml.compute import on_device
from addml.config import Config
from addml.decisions.decision import Decision, TrainingScores
from addml.distances import count_of
from addml.errors import rows_before, warn_of_texts
from addml.inputs import LazyRows, MemoryRows, Rows, Vectorizer, sides_of
from addml.inputs.census import SAMPLED, Census, Moments
from addml.inputs.disk import CELL_BYTES, DiskRows, Portions, Shard, Source, cached, is_part, open_source
from addml.inputs.table import Standardised, TableVectorizer, warn_of_dropped
from addml.io.write import open_writer
from addml.learning.group import ALONE, Group
from addml.learning.learner import MetricLearner, padded
from addml.learning.state import Member, held_out
from addml.model import Model
from addml.preprocessing.profile import DriftCounter
from addml.preprocessing.scaling import Features
from addml.scoring.base import ViewScale

logger = logging.getLogger("addml")

SHARE = 4  # of the memory: so many parts, one of them for a sample, one for a portion
LEAST_SAMPLE = 1000  # rows
LEAST_SAMPLE_BYTES = 32 << 20  # however little the memory: a few rows tell no quartiles
DRAWN_TOGETHER = 2**18  # rows of which each member holds out its share
SCORED_AT_ONCE = 2**16  # rows
REMEMBERED = 1_000_000  # training scores at most; of more those at even steps through all in order


@dataclass(frozen=True)
class OnDisk:
    """The rows of a source, prepared on disk, and a sample of them in memory; of a group the sample is one of all."""

    config: Config
    vectorizer: TableVectorizer
    source: Any  # a Source, or the Shard of a process
    census: Census
    sample: LazyRows
    rows: DiskRows
    randoms: list[np.random.Generator]
    folder: Path
    device: str
    group: Group = ALONE

    def member(self, random: np.random.Generator) -> Member:
        """One member's rows, on disk: of every part of the rows V is drawn at random, the rest is M."""
        config, rows = self.config, len(self.source)
        if self.group.rank:  # what the first process draws is as if it were alone
            random = np.random.Generator(random.bit_generator.jumped(self.group.rank))  # type: ignore[attr-defined]
        parts = [range(start, min(rows, start + DRAWN_TOGETHER)) for start in range(0, rows, DRAWN_TOGETHER)]
        held_out = sum(count_of(config.validation_ratio, len(part), least=2) for part in parts)
        train, validation = (mapped(self.folder, (size,), np.int64) for size in (rows - held_out, held_out))
        in_train = in_validation = 0
        for part in parts:
            for_train, for_validation = config.split(np.arange(part.start, part.stop), random)
            train[in_train : in_train + len(for_train)] = for_train
            validation[in_validation : in_validation + len(for_validation)] = for_validation
            in_train, in_validation = in_train + len(for_train), in_validation + len(for_validation)
        return Member(train, validation, random, config.normal_ratio)

    def announce_training(self, epoch: int) -> None:
        """Log that training begins, or resumes behind some epochs."""
        _announce("Training on", len(self.source), self.config.epochs - epoch, _passes(self.config))

    def sampled(
        self, learner: MetricLearner, members: Sequence[Member], weights: Array
    ) -> tuple[MemoryRows, list[Member], Array]:
        """The sample, the members' rows in it, and the centres of all rows."""
        self.source.check_unchanged()
        _announce("Centring", len(self.source), self.config.members)
        learner.set_weights(weights)
        ids = padded([member.train for member in members], weights)
        center = learner.center(self.rows, ids, [len(member.train) for member in members])
        sample = MemoryRows(on_device(self.sample.slice(0, len(self.sample)), self.device))
        return sample, [self._sampled(member) for member in members], center

    def _sampled(self, member: Member) -> Member:
        """The member with the rows of M that are in the sample, by their places there."""
        places = self.census.places - getattr(self.source, "start", 0)
        found = np.searchsorted(member.validation, places).clip(0, len(member.validation) - 1)
        held_out = self.group.sum((member.validation[found] == places).astype(np.int64)) > 0
        return replace(member, train=np.flatnonzero(~held_out), validation=np.flatnonzero(held_out))

    def scored(self, model: Model, members: Sequence[Member], device: str, threads: int) -> Model:
        """The model with the scores of all rows: of very many, those at even steps through all in order."""
        _announce("Scoring", len(self.source))
        scores, ordered = (mapped(self.folder, (len(self.rows),), np.float64) for _ in range(2))
        done = 0
        for part in self.rows.blocks(SCORED_AT_ONCE):
            scores[done : done + len(part)] = model.scores(part, device, threads)
            done += len(part)
        ordered[...] = scores
        ordered.sort()
        (total,) = self.group.counts([len(scores)])
        few, share = total <= REMEMBERED, REMEMBERED * len(scores) // total
        own = np.array(scores) if few else ordered[even_steps(len(scores), share)]
        remembered = np.concatenate([np.frombuffer(part) for part in self.group.gather(own.tobytes())])
        marks = np.zeros((len(members), len(remembered)), bool)
        if few:
            parts = self.group.gather(held_out(members, len(scores)).T.tobytes())
            marks = np.frombuffer(b"".join(parts), bool).reshape(total, len(members)).T
        training = TrainingScores.of(remembered, marks, by_views=isinstance(model.scale, ViewScale))
        return replace(
            model,
            training=training,
            decision=_decided(self.config.contamination, training, ordered, self.group),
            kept=model.kept if few else np.empty(0, np.uint8),
            held_out=marks,
            examples=replace(model.examples, rows=self.census.places[model.examples.rows]),
        )


def prepare(
    config: Config, whole: Source, start: Vectorizer | None, device: str, storage: Storage, group: Group = ALONE
) -> OnDisk:
    """Look through the rows of a source, decide what its columns are, and prepare all rows.

    A process of a group goes through a shard of them.
    """
    memory = parameters.size("memory", storage.memory)
    source = whole if group.size == 1 else Shard.of(whole, group.rank, group.size)
    _announce("Looking through", len(source))
    most = -(-_sample_rows(whole, memory) * len(source) // len(whole))
    census = Census.take(_watched(source), most, group.rank).joined(group)
    vectorizer, sample = _vectorizer(config, source, census, start, group)
    standardised, randoms = Standardised(vectorizer.columns, vectorizer.features), config.randoms()
    width = vectorizer.features.width
    own_seed = int(randoms[0].bit_generator.seed_seq.generate_state(1)[0])  # without a draw  # type: ignore[attr-defined]
    most_rows = memory // SHARE // (4 * width + 24 * config.members)  # numbers, and three ids for every member
    portions = Portions.of(len(source), most_rows, own_seed)
    _announce("Preparing", len(source))
    values = cached(source, standardised.transform, width, storage.folder)
    rows = DiskRows(source, portions, device, values)
    return OnDisk(config, vectorizer, source, census, sample, rows, randoms, storage.folder, device, group)


def _vectorizer(
    config: Config, source: Source | Shard, census: Census, start: Vectorizer | None, group: Group
) -> tuple[TableVectorizer, LazyRows]:
    """How columns become features: by the sample, and where that is not the table, by all rows."""
    if start is not None:
        if not isinstance(start, TableVectorizer):
            raise TypeError("the detector was fitted to an array; a table on disk has named columns: use fit")
        return start, start.read(census.sample)
    columns = census.columns()
    warn_of_dropped(columns)
    sides = sides_of(config.one_sided, columns.own_names)
    columns = columns.facing(sides)
    drift = DriftCounter(columns)
    features = Features.fit(columns.transform(census.sample, drift), sides, robust=config.robust)
    if not census.is_whole:
        _announce("Standardising", len(source))
        moments, before, drift = Moments(features), Standardised(columns, features), DriftCounter(columns)
        for batch in _watched(source):
            moments.add(before.transform(batch, drift))
        moments.add_up(group)
        features = moments.refined()
    warn_of_texts(drift.texts)
    names = tuple(census.sample.column_names)
    one = TableVectorizer(features=columns.rescaled(features), columns_in=len(names), names=names, columns=columns)
    return one, LazyRows(census.sample, one.prepare)


def _decided(contamination: Any, training: TrainingScores, ordered: np.ndarray, group: Group) -> Decision:
    method, share = parameters.threshold_method(None, contamination)
    if method != "quantile" or share is None:
        return training.decide(method, share)
    return Decision(exact_quantile(ordered, 1 - share, group), method, share)


def exact_quantile(ordered: np.ndarray, share: float, group: Group = ALONE) -> float:
    """`numpy.quantile` of the ascending numbers of all processes of a group, without a copy of them."""
    (total,) = group.counts([len(ordered)])
    place = share * (total - 1)
    low = int(place)
    a, b = (_at(ordered, one, group) for one in (low, min(low + 1, total - 1)))
    t = place - low
    return b - (b - a) * (1 - t) if t >= 0.5 else a + (b - a) * t


def _at(ordered: np.ndarray, place: int, group: Group) -> float:
    """The number at a place of all numbers of a group in order: bisection over the floats, by counts."""
    if group.size == 1:
        return float(ordered[place])
    low, high = _key(-np.inf), _key(np.inf)
    while low < high:
        middle = (low + high) // 2
        at_most = int(np.searchsorted(ordered, _number(middle), side="right"))
        low, high = (low, middle) if group.counts([at_most])[0] > place else (middle + 1, high)
    return _number(low)


def _key(number: float) -> int:
    """A whole number for a float, in the same order."""
    bits = int(np.float64(number).view(np.int64))
    return bits if bits >= 0 else -(bits & 2**63 - 1)


def _number(key: int) -> float:
    return float(np.copysign(np.int64(abs(key)).view(np.float64), key))


def _sample_rows(source: Source, memory: int) -> int:
    room = max(LEAST_SAMPLE_BYTES, memory // SHARE)
    return min(SAMPLED, max(LEAST_SAMPLE, room // (CELL_BYTES * len(source.names))))


def _watched(source: Source | Shard) -> Iterator[Any]:
    for batch in source.batches():
        yield batch
        logger.debug("%(rows)d rows", {"rows": batch.num_rows})


def _announce(what: str, rows: int, times: int = 1, passes: float = 1) -> None:
    """Log a stage that takes so many rows, that often, in so many passes each time."""
    logger.info("%(stage)s", {"stage": f"{what} {rows:,} rows", "total": rows * times, "passes": passes})


def _passes(config: Config) -> float:
    """How often an epoch takes a row: M for the centre and for the distances, P for the steps, V for its loss.

    A look for a collapse at the end takes M as an epoch does.
    """
    train = 1 - config.validation_ratio
    once = 2 * train + config.normal_ratio * train + 2 * config.validation_ratio
    return config.members * (once + 2 * train / config.epochs)


# A table on disk, scored part by part -----------------------------------------------------------------------


def scored(
    model: Model, X: Any, read: Callable[[pa.Table], Rows], device: str, threads: int
) -> Iterator[tuple[int, np.ndarray]]:
    """The scores of a table on disk, part by part, each with the number of rows before it."""
    start = 0
    for batch in open_source(X, None if model.columns is None else model.columns.used).batches():
        with rows_before(start):
            scores = model.scores(read(pa.Table.from_batches([batch])), device, threads)
        yield start, scores
        start += len(scores)


def write_scores(
    path: str | os.PathLike[str], X: Any, parts: Iterator[tuple[int, np.ndarray]], threshold: float
) -> None:
    """Write row, score and decision of every row of a table on disk, which is not overwritten."""
    if is_part(path, X if isinstance(X, (str, os.PathLike)) else open_source(X)):
        raise ValueError(f"{path} is the table itself or a part of it, which is not overwritten; write elsewhere")
    schema = pa.schema([("row", pa.int64()), ("score", pa.float64()), ("is_anomaly", pa.bool_())])
    with open_writer(path, schema) as writer:
        for start, scores in parts:
            rows = np.arange(start + 1, start + len(scores) + 1)
            writer.write(pa.table([rows, scores, scores > threshold], schema=schema))
