"""Detectors made and trained as the options say, with an estimate of time and memory before a long run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from addml.errors import AddmlError
from addml.inputs.disk import CELL_BYTES
from addml.pipeline.options import CONTAMINATION, MEMORY, Options
from addml.progress import Progress, epochs_to, stages_to
from addml.text import counted, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from addml.detector import ADDML
    from addml.inputs.disk import Source
    from addml.io.image_folder import Heads

LONG = 10  # seconds; longer trainings are announced
SIDES = ("high", "low")
ROW_SECONDS = 1.8e-6  # of one row through one step of one member of 64 units, on one core
FEATURE_SECONDS = 5e-9  # and of each feature
PIXEL_SECONDS = 4e-7  # of one pixel through one step of one member, on one core
BLOCK = 256  # images that are trained on together
NETWORK = 1536  # bytes of a member's weights, gradients and moments for each pixel


def train(table: pa.Table, options: Options, progress: Progress, labels: np.ndarray | None = None) -> ADDML:
    """A detector fitted to the rows of a table; with --strict, text in a number column raises a TextCellsWarning."""
    detector = new_detector(options, one_sided=one_sided(options.one_sided, table.column_names))
    seconds, size = estimate(table.num_rows, table.num_columns, options)
    if seconds > LONG:
        shape = f"{table.num_rows:,} rows x {counted(table.num_columns, 'column')}"
        progress.note(
            f"training on {shape}: up to about {duration(seconds)}, "
            f"about {size / 1e9:.1f} GB of memory (--sample and --members make it less)"
        )
    stage = progress.stage("Training", options.epochs, table.num_rows * options.members)
    with stage as advance, epochs_to(advance), _filtered_warnings(options):
        detector.fit(table, labels=labels, checkpoint=options.checkpoint)
    return decided(detector, options)


def train_on_disk(source: Source, options: Options, progress: Progress) -> ADDML:
    """A detector fitted to rows on disk; with --strict as `train`."""
    memory = options.memory or MEMORY
    detector = new_detector(options, one_sided=one_sided(options.one_sided, source.names), memory=memory)
    progress.note(f"{source.name}: {len(source):,} rows, more than {memory} of memory hold: read from disk")
    with stages_to(progress), _filtered_warnings(options):
        detector.fit(source, checkpoint=options.checkpoint, scratch=options.scratch)
    return decided(detector, options)


@contextmanager
def _filtered_warnings(options: Options) -> Iterator[None]:
    """Without the warnings that findings repeat."""
    from addml.detector import DroppedColumnsWarning, TextCellsWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedColumnsWarning)
        if options.strict:
            warnings.simplefilter("error", TextCellsWarning)
        yield


def decided(detector: ADDML, options: Options) -> ADDML:
    """The fitted detector with the threshold that the options ask for."""
    if options.tau is not None:
        return detector.set_threshold(tau=options.tau)
    if options.threshold is not None:
        return detector.set_threshold(method=options.threshold, contamination=options.contamination)
    return detector


def new_detector(options: Options, **changes: Any) -> ADDML:
    """The detector that the options describe, with `ADDML()`'s defaults for all else."""
    from addml.detector import ADDML

    ratio: dict[str, Any] = {"normal_ratio": 1.0} if options.clean else {}
    return ADDML(
        members=options.members,
        contamination=CONTAMINATION if options.contamination is None else options.contamination,
        epochs=options.epochs,
        scorer=options.scorer,
        random_state=options.seed,
        device=options.device,
        n_jobs=options.jobs,
        **ratio | changes,
    )


def one_sided(given: Sequence[str], names: Sequence[str]) -> dict[str, str] | None:
    """{"amount": "high"} for amount:high, None for nothing."""
    sides: dict[str, str] = {}
    for text in given:
        name, _, side = text.rpartition(":")
        if side not in SIDES or not name:
            raise AddmlError(f"--one-sided {text}: say which side is anomalous, as in amount:high or amount:low.")
        if name not in names:
            raise AddmlError(f"--one-sided {text}: {name!r} is no column to train on.{did_you_mean(name, names)}")
        if sides.setdefault(name, side) != side:
            raise AddmlError(f"--one-sided {text}: {name!r} is one-sided to {sides[name]} already; leave both out.")
    return sides or None


def estimate(rows: int, columns: int, options: Options) -> tuple[float, int]:
    """Seconds of training at the most, and bytes of memory."""
    each = ROW_SECONDS + FEATURE_SECONDS * columns
    return rows * options.epochs * options.members * each, rows * columns * CELL_BYTES


def estimate_images(rows: int, heads: Heads, options: Options) -> tuple[float, int]:
    """Seconds of training on so many of the images at the most, and bytes of memory, those of all images among them.

    What two convolutions saw and gave, 9 and 60 bytes for each pixel of each channel and image, waits for the way back.
    """
    shape, members = heads.shape, options.members
    pixels, kept = shape.height * shape.width, min(rows, BLOCK) * (9 * shape.channels + 60)
    held = images_held(heads, 3)  # as read, as one array, and those to train on
    size = pixels * (members * (kept + NETWORK) + 4 * shape.channels * BLOCK) + held
    return PIXEL_SECONDS * pixels * rows * options.epochs * members, size


def images_held(heads: Heads, copies: int) -> int:
    """Bytes of so many copies of the images of a folder."""
    shape = heads.shape
    return copies * (4 if heads.deep else 1) * shape.channels * shape.height * shape.width * len(heads.known)


def duration(seconds: float) -> str:
    """About how long: 40 s, 3 min, 2 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
