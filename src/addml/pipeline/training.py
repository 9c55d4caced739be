"""Training on the rows of a table, with an estimate of time and memory before a long run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from addml.errors import UserError
from addml.inputs.disk import CELL_BYTES
from addml.pipeline.options import CONTAMINATION, Computing, Deciding, Streaming, Training
from addml.progress import Progress, epochs_to, stages_to
from addml.text import counted, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from addml.detector import ADDML
    from addml.inputs.disk import Source
    from addml.io.image_folder import Heads

LONG = 10  # seconds; what takes longer is said before
SIDES = ("high", "low")
ROW_SECONDS = 1.8e-6  # of one row through one step of one member of 64 units, on one core
FEATURE_SECONDS = 5e-9  # and of each feature
PIXEL_SECONDS = 4e-7  # of one pixel through one step of one member, on one core
BLOCK = 256  # images that are trained on together
NETWORK = 1536  # bytes of a member's weights, gradients and moments for each pixel


def train(
    table: pa.Table,
    training: Training,
    deciding: Deciding,
    computing: Computing,
    progress: Progress,
    labels: np.ndarray | None = None,
    checkpoint: str | None = None,
    *,
    strict: bool = False,
) -> ADDML:
    """A detector fitted to the rows of a table, and to what people know of them.

    Where `strict`, a text in a column of numbers ends in a TextCellsWarning.
    """
    detector = new_detector(training, deciding, computing, one_sided=one_sided(training.one_sided, table.column_names))
    seconds, size = estimate(table.num_rows, table.num_columns, training)
    if seconds > LONG:
        shape = f"{table.num_rows:,} rows x {counted(table.num_columns, 'column')}"
        progress.note(
            f"training on {shape}: up to about {in_words(seconds)}, "
            f"about {size / 1e9:.1f} GB of memory (--sample and --members make it less)"
        )
    stage = progress.stage("Training", training.epochs, table.num_rows * training.members)
    with stage as advance, epochs_to(advance), _losses(strict):
        detector.fit(table, labels=labels, checkpoint=checkpoint)
    return decided(detector, deciding)


@contextmanager
def _losses(strict: bool) -> Iterator[None]:
    """Nothing is warned of that is said with what was read, or at the end."""
    from addml.detector import DroppedColumnsWarning, TextCellsWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedColumnsWarning)
        if strict:
            warnings.simplefilter("error", TextCellsWarning)
        yield


def train_streamed(
    source: Source,
    training: Training,
    deciding: Deciding,
    computing: Computing,
    streaming: Streaming,
    progress: Progress,
    *,
    strict: bool = False,
) -> ADDML:
    """A detector fitted to rows on disk that memory need not hold; `strict` is as for `train`."""
    detector = new_detector(training, deciding, computing, one_sided=one_sided(training.one_sided, source.names))
    detector.set_params(memory=streaming.most)
    progress.note(f"{source.name}: {len(source):,} rows, more than {streaming.most} of memory hold: read from disk")
    with stages_to(progress), _losses(strict):
        detector.fit(source, checkpoint=streaming.checkpoint, scratch=streaming.cache_dir, cache=not streaming.no_cache)
    return decided(detector, deciding)


def decided(detector: ADDML, deciding: Deciding) -> ADDML:
    """The fitted detector with the threshold that the settings ask for."""
    if deciding.threshold is not None:
        return detector.set_threshold(method=deciding.threshold, contamination=deciding.contamination)
    return detector if deciding.tau is None else detector.set_threshold(tau=deciding.tau)


def new_detector(training: Training, deciding: Deciding, computing: Computing, **changes: Any) -> ADDML:
    """The detector that the settings describe; what they and the changes do not say is as in `ADDML()`."""
    from addml.detector import ADDML

    settings: dict[str, Any] = {"normal_ratio": 1.0} if training.clean else {}
    return ADDML(
        members=training.members,
        contamination=CONTAMINATION if deciding.contamination is None else deciding.contamination,
        epochs=training.epochs,
        scorer=training.scorer,
        random_state=training.seed,
        device=computing.device,
        n_jobs=computing.jobs,
        **settings | changes,
    )


def one_sided(given: Sequence[str], names: Sequence[str]) -> dict[str, str] | None:
    """{"amount": "high"} for amount:high, None for nothing."""
    sides: dict[str, str] = {}
    for text in given:
        name, _, side = text.rpartition(":")
        if side not in SIDES or not name:
            raise UserError(f"--one-sided {text}: say which side is anomalous, as in amount:high or amount:low.")
        if name not in names:
            raise UserError(f"--one-sided {text}: {name!r} is no column to train on.{did_you_mean(name, names)}")
        if sides.setdefault(name, side) != side:
            raise UserError(f"--one-sided {text}: {name!r} is one-sided to {sides[name]} already; leave both out.")
    return sides or None


def estimate(rows: int, columns: int, training: Training) -> tuple[float, int]:
    """Seconds of training at the most, and bytes of memory."""
    each = ROW_SECONDS + FEATURE_SECONDS * columns
    return rows * training.epochs * training.members * each, rows * columns * CELL_BYTES


def estimate_images(rows: int, heads: Heads, training: Training) -> tuple[float, int]:
    """Seconds of training on so many of the images at the most, and bytes of memory, those of all images among them.

    What two convolutions saw and gave, 9 and 60 bytes for each pixel of each channel and image, waits for the way back.
    """
    shape, members = heads.shape, training.members
    pixels, kept = shape.height * shape.width, min(rows, BLOCK) * (9 * shape.channels + 60)
    held = images_held(heads, 3)  # as read, as one array, and those to train on
    size = pixels * (members * (kept + NETWORK) + 4 * shape.channels * BLOCK) + held
    return PIXEL_SECONDS * pixels * rows * training.epochs * members, size


def images_held(heads: Heads, copies: int) -> int:
    """Bytes of so many copies of the images of a folder."""
    shape = heads.shape
    return copies * (4 if heads.deep else 1) * shape.channels * shape.height * shape.width * len(heads.known)


def in_words(seconds: float) -> str:
    """About how long: 40 s, 3 min, 2 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
