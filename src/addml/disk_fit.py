"""A fit to a table on disk that may not fit into memory: every stage is a pass over the rows."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from addml import parameters
from addml.arrays import Array, even_steps, mapped, to_numpy
from addml.checkpoint import Storage
from addml.compute import on_device
from addml.config import Config
from addml.decisions.decision import TrainingScores
from addml.distances import count_of
from addml.errors import rows_before, warn_of_texts
from addml.inputs import LazyRows, MemoryRows, Rows, Vectorizer
from addml.inputs.disk import CELL_BYTES, Census, Source, is_part, open_source
from addml.inputs.table import Standardised, TableVectorizer, fit_features, warn_of_dropped
from addml.io.write import open_writer
from addml.learning.group import ALONE, Group
from addml.learning.learner import MetricLearner, padded
from addml.learning.state import Member, held_out
from addml.model import Model
from addml.preprocessing.profile import DriftCounter
from addml.preprocessing.scaling import Features
from addml.scoring.scorer import ViewScale

logger = logging.getLogger("addml")

SAMPLED = 200_000  # rows, the same as for the quantiles of a column in memory
SHARE = 4  # the sample gets a quarter of the memory, a portion another
LEAST_SAMPLE = 1000  # rows
LEAST_SAMPLE_BYTES = 32 << 20  # even if memory is smaller, because quartiles need enough rows
BLOCKS = 16  # of a portion
LEAST_BLOCK = 256  # rows
DRAWN_TOGETHER = 2**18  # rows from which a member's validation rows are drawn at once
REPORTED = 2**18  # rows between two progress records
SCORED_AT_ONCE = 2**16  # rows
REMEMBERED = 1_000_000  # training scores; of more rows, evenly spaced quantiles


@dataclass(frozen=True)
class OnDisk:
    """The rows of a source, prepared on disk, and a sample in memory; a process group shares one sample of all rows."""

    config: Config
    vectorizer: TableVectorizer
    source: Source  # the shard of this process
    census: Census
    sample: LazyRows
    rows: DiskRows
    randoms: list[np.random.Generator]
    folder: Path
    device: str
    group: Group

    def member(self, random: np.random.Generator) -> Member:
        """One member's training and validation rows, in files; validation rows are drawn from each part of the rows."""
        rows = len(self.source)
        if self.group.rank:  # the first process draws as if it were alone
            random = np.random.Generator(random.bit_generator.jumped(self.group.rank))  # type: ignore[attr-defined]
        parts = [np.arange(start, min(rows, start + DRAWN_TOGETHER)) for start in range(0, rows, DRAWN_TOGETHER)]
        held_out = sum(count_of(self.config.validation_ratio, len(part), least=2) for part in parts)
        train, validation = (mapped(self.folder, (size,), np.int64) for size in (rows - held_out, held_out))
        in_train = in_validation = 0
        for part in parts:
            for_train, for_validation = self.config.split(part, random)
            train[in_train : in_train + len(for_train)] = for_train
            validation[in_validation : in_validation + len(for_validation)] = for_validation
            in_train += len(for_train)
            in_validation += len(for_validation)
        return Member(train, validation, random, self.config.normal_ratio)

    def announce_training(self, epoch: int) -> None:
        """Log that training begins, or resumes after `epoch` epochs."""
        _announce("Training on", len(self.source), self.config.epochs - epoch, _passes(self.config))

    def sampled(
        self, learner: MetricLearner, members: Sequence[Member], weights: Array
    ) -> tuple[MemoryRows, list[Member], Array]:
        """The sample, the members with their rows in it, and the centres of all rows."""
        self.source.check_unchanged()
        _announce("Centring", len(self.source), self.config.members)
        learner.set_weights(weights)
        ids = padded([member.train for member in members], weights)
        center = learner.center(self.rows, ids, [len(member.train) for member in members])
        sample = MemoryRows(on_device(self.sample.slice(0, len(self.sample)), self.device))
        row_ids = self.census.places - self.source.start
        in_sample = []
        for member in members:
            index = np.searchsorted(member.validation, row_ids).clip(0, len(member.validation) - 1)
            held_out = self.group.sum((member.validation[index] == row_ids).astype(np.int64)) > 0
            in_sample.append(replace(member, train=np.flatnonzero(~held_out), validation=np.flatnonzero(held_out)))
        return sample, in_sample, center

    def scored(self, model: Model, members: Sequence[Member], device: str, threads: int) -> Model:
        """The model with the training scores of all rows, or with REMEMBERED quantiles of them."""
        _announce("Scoring", len(self.source))
        rows = len(self.rows)
        scores = mapped(self.folder, (rows,), np.float64)
        for start in range(0, rows, SCORED_AT_ONCE):
            part = self.rows.slice(start, SCORED_AT_ONCE)
            scores[start : start + len(part)] = model.scores(part, device, threads)
        (total,) = self.group.counts([rows])
        has_all = total <= REMEMBERED
        if not has_all:
            scores.sort()
            scores = scores[even_steps(rows, REMEMBERED * rows // total)]
        flags = held_out(members, rows) if has_all else np.zeros((len(members), len(scores)), bool)
        scores = np.frombuffer(b"".join(self.group.gather(scores.tobytes())))
        flags = np.frombuffer(b"".join(self.group.gather(flags.T.tobytes())), bool).reshape(-1, len(members)).T
        training = TrainingScores.of(scores, flags, by_views=isinstance(model.scale, ViewScale))
        return replace(
            model,
            training=training,
            decision=training.decide(*parameters.threshold_method(None, self.config.flagged)),
            kept=model.kept if has_all else np.empty(0, np.uint8),
            held_out=flags,
            examples=replace(model.examples, rows=self.census.places[model.examples.rows]),
        )


def prepare(
    config: Config, whole: Source, start: Vectorizer | None, device: str, storage: Storage, group: Group = ALONE
) -> OnDisk:
    """Take a census of a source, fit the vectorizer, and prepare all rows in a temporary file.

    Each process of a group reads one shard.
    """
    memory = parameters.size("memory", storage.memory)
    source = whole if group.size == 1 else whole.shard(group.rank, group.size)
    _announce("Looking through", len(source))
    sample_bytes = max(LEAST_SAMPLE_BYTES, memory // SHARE)
    sampled = min(SAMPLED, max(LEAST_SAMPLE, sample_bytes // (CELL_BYTES * len(whole.names))))
    census = Census.take(_logged(source), -(-sampled * len(source) // len(whole)), group.rank).joined(group)
    vectorizer, sample = _vectorizer(config, source, census, start, group)
    width, randoms = vectorizer.features.width, config.randoms()
    seed = int(randoms[0].bit_generator.seed_seq.generate_state(1)[0])  # draws nothing  # type: ignore[attr-defined]
    _announce("Preparing", len(source))
    values, done = mapped(storage.folder, (len(source), width), np.float32), 0
    for batch in _logged(source):
        values[done : done + batch.num_rows] = vectorizer.prepare(batch)
        done += batch.num_rows
    portion = memory // SHARE // (4 * width + 24 * config.members)  # float32 features, three ids for each member
    rows = DiskRows(source, values, device, portion, seed)
    return OnDisk(config, vectorizer, source, census, sample, rows, randoms, storage.folder, device, group)


def _vectorizer(
    config: Config, source: Source, census: Census, start: Vectorizer | None, group: Group
) -> tuple[TableVectorizer, LazyRows]:
    """The vectorizer `start`, or one fitted to the sample and refined by all rows."""
    if start is not None:
        if not isinstance(start, TableVectorizer):
            raise TypeError("the detector was fitted to an array; a table on disk has named columns: use fit")
        return start, start.read(census.sample)
    columns = census.columns()
    warn_of_dropped(columns)
    columns, features, _, drift = fit_features(columns, census.sample, config)
    if not census.is_whole:
        _announce("Standardising", len(source))
        by_sample, drift = Standardised(columns, features), DriftCounter(columns)
        features = refined(features, (by_sample.transform(batch, drift) for batch in _logged(source)), group)
    warn_of_texts(drift.texts)
    vectorizer = TableVectorizer.of(columns, features, census.sample)
    return vectorizer, LazyRows(census.sample, vectorizer.prepare)


def refined(features: Features, parts: Iterable[np.ndarray], group: Group = ALONE) -> Features:
    """The features of a sample with the means and deviations of all rows; medians and quartiles do not change.

    The parts (n, width) are rows standardised by the sample, which keeps the rounding of their sums small.
    """
    rows, total, squares, missing = 0, np.zeros(features.width), np.zeros(features.width), np.zeros(len(features.gaps))
    for part in parts:
        exact = part.astype(np.float64)
        rows += len(part)
        total += exact.sum(axis=0)
        squares += np.einsum("ij,ij->j", exact, exact)
        missing += (part[:, len(features.median) :] > 0).sum(axis=0)  # the flag of a gap is positive
    (rows,) = group.counts([rows])
    total, squares, missing = map(group.sum, (total, squares, missing))
    mean = total / rows
    return features.refined(mean, np.sqrt(np.maximum(squares / rows - mean**2, 0)), missing / rows)


def _logged(source: Source) -> Iterator[pa.RecordBatch]:
    for batch in source.batches():
        yield batch
        logger.debug("%(rows)d rows", {"rows": batch.num_rows})


def _announce(stage: str, rows: int, times: int = 1, passes: float = 1) -> None:
    """Log a stage that reads `rows` rows `times` times, each in `passes` passes."""
    logger.info("%(stage)s", {"stage": f"{stage} {rows:,} rows", "total": rows * times, "passes": passes})


def _passes(config: Config) -> float:
    """The passes over the rows in an epoch: M for the centre and the distances, P for the steps, V for the loss.

    The check for a collapse after the last epoch takes another two passes over M.
    """
    train = 1 - config.validation_ratio
    per_member = 2 * train + config.normal_ratio * train + 2 * config.validation_ratio
    return config.members * (per_member + 2 * train / config.epochs)


class DiskRows(Rows):
    """Prepared rows in a memory-mapped float32 file; their source must not change during the fit."""

    def __init__(self, source: Source, values: np.ndarray, device: str, most: int, seed: int) -> None:
        """At most `most` rows are shuffled together, in an order that depends on the seed."""
        self.source, self.values, self.device, self.most, self.seed = source, values, device, most, seed
        self._served = 0

    def portions(self, epoch: int) -> Iterator[list[tuple[int, int]]]:
        self.source.check_unchanged()
        return portions(len(self), self.most, self.seed, epoch)

    def take(self, ids: Array) -> Array:
        """The rows with these ids, of shape (*ids.shape, d), on the device of the network."""
        self._report(math.prod(ids.shape))
        return on_device(np.asarray(self.values).take(to_numpy(ids), axis=0), self.device)

    def slice(self, start: int, size: int) -> np.ndarray:
        part = np.asarray(self.values[start : start + size])
        self._report(len(part))
        return part

    def _report(self, rows: int) -> None:
        self._served += rows
        if self._served >= REPORTED:
            logger.debug("%(rows)d rows", {"rows": self._served})
            self._served = 0


def portions(rows: int, most: int, seed: int, epoch: int) -> Iterator[list[tuple[int, int]]]:
    """The ranges of rows, ascending, that an epoch shuffles together: random blocks of the table.

    A portion has at most `most` rows, or BLOCKS blocks of LEAST_BLOCK rows if that is more.
    """
    block = rows if rows <= most else max(LEAST_BLOCK, most // BLOCKS)
    order = np.random.default_rng([seed, epoch]).permutation(-(-rows // block))
    for start in range(0, len(order), BLOCKS):
        begins = np.sort(order[start : start + BLOCKS]) * block
        yield [(int(begin), min(rows, int(begin) + block)) for begin in begins]


Scored = Iterator[tuple[int, np.ndarray]]  # number of rows before a batch, and the scores of the batch


def scored(model: Model, X: Any, read: Callable[[pa.Table], Rows], device: str, threads: int) -> Scored:
    """The scores of a table on disk, batch by batch, each with the number of rows before it."""
    start = 0
    for batch in open_source(X, None if model.columns is None else model.columns.used).batches():
        with rows_before(start):
            scores = model.scores(read(pa.Table.from_batches([batch])), device, threads)
        yield start, scores
        start += len(scores)


def write_scores(path: str | os.PathLike[str], X: Any, parts: Scored, threshold: float) -> None:
    """Write the number, score and decision of each row of a table on disk; refuses to overwrite the table."""
    if is_part(path, X if isinstance(X, (str, os.PathLike)) else open_source(X)):
        raise ValueError(f"{path} is the table itself or a part of it, and would be overwritten; give another path")
    schema = pa.schema([("row", pa.int64()), ("score", pa.float64()), ("is_anomaly", pa.bool_())])
    with open_writer(path, schema) as writer:
        for start, scores in parts:
            rows = np.arange(start + 1, start + len(scores) + 1)
            writer.write(pa.table([rows, scores, scores > threshold], schema=schema))
