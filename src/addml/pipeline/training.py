"""Models trained as the options say, with an estimate of time and memory before a long run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from addml.checkpoint import Storage
from addml.config import Config
from addml.encoders.pretrained import SIDE, STRIDES
from addml.errors import AddmlError, DroppedColumnsWarning, TextCellsWarning
from addml.fit import fit
from addml.inputs.disk import CELL_BYTES, Source
from addml.pipeline.options import CONTAMINATION, MEMORY, Options
from addml.preprocessing.profile import TextCells
from addml.progress import Progress, epochs_to, stages_to
from addml.scoring.patches import CANDIDATES
from addml.text import counted, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from addml.io.image_folder import Heads
    from addml.model import Model

LONG = 10  # seconds; longer trainings are announced
SIDES = ("high", "low")
ROW_SECONDS = 1.8e-6  # of one row through one step of one member of 64 units, on one core
FEATURE_SECONDS = 5e-9  # and of each feature
PIXEL_SECONDS = 4e-7  # of one pixel through one step of one member, on one core
BLOCK = 256  # images that are trained on together
PLACE_SECONDS, CANDIDATE_SECONDS = 2.5e-5, 4e-4  # of a place of a photograph, and of a candidate for a reference
CANDIDATE_BYTES, RUNTIME = 2500, 320_000_000  # of a candidate while references are chosen; of libraries and network
NETWORK = 1536  # bytes of a member's weights, gradients and moments for each pixel


def train(
    X: pa.Table | Source,
    options: Options,
    progress: Progress,
    labels: np.ndarray | None = None,
    by: Sequence[str] = (),
    fitted_by: Callable[..., Model] | None = None,
) -> tuple[Model, TextCells]:
    """The model of a table, and the text in its number columns, which with --strict raises a TextCellsWarning."""
    with ExitStack() as stack:
        if isinstance(X, Source):
            names, memory = X.names, options.memory or MEMORY
            why = f"more than {memory} of memory hold: read from disk" if options.engine is None else "on a cluster"
            progress.note(f"{X.name}: {len(X):,} rows, {why}")
            stack.enter_context(stages_to(progress))
        else:
            names = X.column_names
            _announce(X, options, progress)
            stage = progress.stage("Training", options.epochs, X.num_rows * options.members)
            stack.enter_context(epochs_to(stack.enter_context(stage)))
        texts = stack.enter_context(_caught_texts(options))
        sides = one_sided(options.one_sided, names)
        model = (fitted_by or fit_model)(options, X, labels, one_sided=sides, by=by or None)
    return model, texts


def _announce(table: pa.Table, options: Options, progress: Progress) -> None:
    seconds, size = estimate(table.num_rows, table.num_columns, options)
    if seconds > LONG:
        shape = f"{table.num_rows:,} rows x {counted(table.num_columns, 'column')}"
        progress.note(
            f"training on {shape}: up to about {duration(seconds)}, "
            f"about {size / 1e9:.1f} GB of memory (--sample and --members make it less)"
        )


def fit_model(options: Options, X: Any, labels: np.ndarray | None = None, **settings: Any) -> Model:
    """The model of X that the options ask for, with these settings and `ADDML()`'s defaults for all others."""
    config = Config.resolve(settings_of(options) | settings)
    return decided(fit(config, X, labels, storage=storage_of(options)), options)


def storage_of(options: Options) -> Storage:
    return Storage(options.checkpoint, options.scratch, options.memory or MEMORY)


def settings_of(options: Options) -> dict[str, Any]:
    return {
        "members": options.members,
        "contamination": CONTAMINATION if options.contamination is None else options.contamination,
        "epochs": options.epochs,
        "scorer": options.scorer,
        "random_state": options.seed,
        "device": options.device,
        "n_jobs": options.jobs,
        **({"normal_ratio": 1.0} if options.clean else {}),
    }


@contextmanager
def _caught_texts(options: Options) -> Iterator[TextCells]:
    """The text found in number columns, without the warnings that findings repeat."""
    texts = TextCells()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", DroppedColumnsWarning)
        warnings.simplefilter("error" if options.strict else "always", TextCellsWarning)
        yield texts
    for one in caught:
        if isinstance(one.message, TextCellsWarning):
            texts.join(one.message.cells, 0)
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def decided(model: Model, options: Options, *, saved: bool = False) -> Model:
    """The model with the threshold that the options ask for, else its own."""
    share, rate = (options.contamination if saved else None), options.alarm_rate
    if saved and rate is None:  # rows above that alarm rate are all that can be flagged in a batch
        rate = options.max_false_alarms
    try:
        if options.tau is not None or rate is not None:
            return model.decided(tau=options.tau, alarm_rate=rate)
        if options.threshold is not None or share is not None:
            return model.decided(options.threshold, share)
    except ValueError as error:
        raise AddmlError(f"--{error}.".replace("_", "-")) from None
    return model


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
    """Seconds of training at most, and bytes of memory."""
    each = ROW_SECONDS + FEATURE_SECONDS * columns
    return rows * options.epochs * options.members * each, rows * columns * CELL_BYTES


def estimate_images(rows: int, heads: Heads, options: Options) -> tuple[float, int]:
    """Seconds of training on so many of the images at most, and bytes of memory, those of all images among them.

    What two convolutions saw and gave, 9 and 60 bytes for each pixel of each channel and image, waits for the way back.
    """
    shape, members = heads.shape, options.members
    pixels, kept = shape.height * shape.width, min(rows, BLOCK) * (9 * shape.channels + 60)
    held = images_held(heads, 2)  # all of them, and those to train on
    size = pixels * (members * (kept + NETWORK) + 4 * shape.channels * BLOCK) + held
    return PIXEL_SECONDS * pixels * rows * options.epochs * members, size


def estimate_photos(rows: int, heads: Heads) -> tuple[float, int]:
    """The same for the frozen network: features, the choice of references, and the distances of all places to them."""
    zoom = max(1.0, SIDE**2 / (heads.shape.height * heads.shape.width))  # smaller images are enlarged
    places = rows * heads.shape.height * heads.shape.width * zoom / STRIDES[0] ** 2
    chosen = min(places, CANDIDATES)
    size = RUNTIME + images_held(heads, 2) + chosen * CANDIDATE_BYTES
    return places * PLACE_SECONDS + chosen * CANDIDATE_SECONDS, round(size)


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
