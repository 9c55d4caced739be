"""The strangest and the most typical images as small pictures, with what makes them strange laid over them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from addml.compute import resolve_device
from addml.errors import UserError
from addml.explain import Reason
from addml.findings import Picture
from addml.inputs.census import draw_places
from addml.inputs.image import other_scale
from addml.io.image_folder import Heads, Pictures, look_at
from addml.pipeline import assembling
from addml.pipeline.batches import LISTED, MAPPED, Explained, Part, Scored, ScoredRows, highest, sample_of
from addml.pipeline.fitted import Fitted
from addml.pipeline.options import Settings, Streaming
from addml.pipeline.sources import free_memory
from addml.pipeline.training import LONG, decided, estimate_images, images_held, in_words, new_detector
from addml.progress import Advance, Progress, epochs_to
from addml.text import counted

if TYPE_CHECKING:
    from addml.findings import Findings
    from addml.pipeline.run import Outcome

STRANGEST, TYPICAL = 24, 12  # at the most: a report stays small
SIDE = 96  # pixels, at the most
GLOW = np.array([222.0, 45.0, 38.0])  # the colour of what is strange
STRONGEST = 0.85  # of that colour over the picture


def thumbnails(
    pictures: Pictures, scores: np.ndarray, strangest: np.ndarray, typical: np.ndarray, heat: np.ndarray | None
) -> tuple[Picture, ...]:
    """Pictures of the strangest images with their maps (k, height, width), then of the most typical ones."""
    low, gain = _exposure(pictures.images)

    def picture(place: int, own: np.ndarray | None, kind: str) -> Picture:
        seen = _rgb((pictures.images[place].astype(np.float64) - low) * gain)
        glowing = None if own is None else _png(_glowing(seen, own))
        return Picture(pictures.names[place], place + 1, float(scores[place]), kind, _png(seen), glowing)

    first = [
        picture(int(place), None if heat is None else heat[at], "strange")
        for at, place in enumerate(strangest[:STRANGEST])
    ]
    shown = {int(place) for place in strangest[:STRANGEST]}
    rest = [picture(int(place), None, "typical") for place in typical[:TYPICAL] if int(place) not in shown]
    return (*first, *rest)


def _exposure(images: np.ndarray) -> tuple[float, float]:
    """What is black, and how far a step goes towards white at 255: bytes are as they are.

    Deeper images seldom use all of their range (a camera's 12 bits of 16, numbers from 0 to 1): they go from the
    darkest pixel of all of them to the brightest.
    """
    if images.dtype == np.uint8:
        return 0.0, 1.0
    low = float(images.min())
    return low, 255 / (float(images.max()) - low or 1.0)


def _rgb(image: np.ndarray) -> np.ndarray:
    """An image (channels, height, width) as (height, width, 3) from 0 to 255; of other channels the first counts."""
    layers = image if len(image) == 3 else np.repeat(image[:1], 3, axis=0)
    return np.moveaxis(layers, 0, -1)


def _glowing(seen: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """The picture in grey, the places that make it strange in red."""
    strength = heat.clip(0)[..., None] / max(float(heat.max()), np.finfo(float).tiny) * STRONGEST
    grey = np.repeat(seen.mean(axis=-1, keepdims=True), 3, axis=-1)
    return np.asarray((1 - strength) * grey + strength * GLOW)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    image = Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))
    if max(image.size) > SIDE:
        image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


# Where in an image its score comes from, in words.


NAMES = ("upper left", "top", "upper right", "left", "middle", "right", "lower left", "bottom", "lower right")
LEAST = 0.05  # of what makes an image strange; less is not worth a word


def reasons_of(heat: np.ndarray, most: int) -> list[tuple[Reason, ...]]:
    """The thirds of each image that make it strange, the strangest first, from maps (n, height, width)."""
    _, height, width = heat.shape
    third = 3 * (3 * np.arange(height) // height)[:, None] + 3 * np.arange(width) // width
    regions = np.stack([heat[:, third == place].sum(axis=1) for place in range(len(NAMES))], axis=1).clip(0)
    shares = regions / np.maximum(regions.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    order = np.argsort(-shares, axis=1, kind="stable")[:, :most]
    return [
        tuple(_reason(int(place), share[place]) for place in places if share[place] >= LEAST)
        for share, places in zip(shares, order, strict=True)
    ]


def _reason(place: int, share: float) -> Reason:
    name = NAMES[place]
    return Reason((name,), float(share), name, name)


# The commands on a folder of images: the same findings, with thumbnails and maps of where a score comes from.


FILE = "file"  # the column that names an image
SCORING_COPIES = 2  # of the images, as read and as one array
NUMBERS_AT_ONCE = 2**25  # of the images that are scored between two steps of the bar
MAPPED_NUMBERS = 2**26  # of the images in the map of the metric space, which are fewer where they are large
FOR_OTHERS = (  # groups of settings
    *("selection", "naming", "labelling", "learning", "timing", "windowing", "reading", "strictness"),
)


@dataclass(frozen=True)
class TrainedPictures:
    """A detector fitted to images, and what it was trained on."""

    fitted: Fitted
    pictures: Pictures
    places: np.ndarray  # of the training images among all
    source: str

    @property
    def rows(self) -> int:
        """How many images were read."""
        return len(self.pictures.names)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of them."""
        sampled = f"trained on {len(self.places):,} of {self.rows:,} images, drawn at random (--all-rows takes all)"
        return (*self.pictures.notes, sampled) if len(self.places) < self.rows else self.pictures.notes

    def findings(self) -> Findings:
        """What training itself found: the images are not ranked."""
        found = assembling.without_rows(self.fitted, self.source, self.notes)
        return replace(found, rows=self.rows, trained_rows=len(self.places), noun="image")


def fit(settings: Settings, progress: Progress) -> TrainedPictures:
    """Train on the images of a folder, or on a sample of them."""
    _refuse(settings)
    training = settings.training
    pictures = _read(settings, _looked_at(settings, progress), progress)
    places = draw_places(len(pictures.names), None if training.all_rows else training.sample, training.seed)
    detector = new_detector(training, settings.deciding, settings.computing, encoder="conv")
    rows = len(places) * training.members
    with progress.stage("Training", training.epochs, rows) as advance, epochs_to(advance):
        try:
            detector.fit(pictures.images[places], checkpoint=settings.streaming.checkpoint)
        except ValueError as error:
            raise UserError(f"{settings.file}: {error}.") from error
    return TrainedPictures(Fitted.of(decided(detector, settings.deciding)), pictures, places, settings.file)


def detect(settings: Settings, progress: Progress, mapped: bool = True) -> Outcome:
    """Train on a folder and rank its own images."""
    trained = fit(settings, progress)
    outcome = _ranked(trained.fitted, trained.pictures, settings, progress, mapped, trained.notes)
    dropped = assembling.dropped(trained.fitted, trained.places, outcome.findings.ranked)
    findings = replace(outcome.findings, dropped=dropped, trained_rows=len(trained.places))
    return replace(outcome, findings=findings)


def score(settings: Settings, progress: Progress, mapped: bool = True) -> Outcome:
    """Rank the images of a folder by a model that was trained before, in the size that it knows."""
    _refuse(settings)
    fitted = Fitted.load(str(settings.using.model), settings.computing, settings.deciding)
    form = fitted.model.form
    if form is None or form.kind != "images":
        raise UserError(f"{settings.using.model}: was fitted to a table, {settings.file} is a folder of images.")
    if settings.picturing.size is not None:
        raise UserError(
            f"--size {settings.picturing.size}: the model knows its own size, {form.shape[1:]}; leave it out."
        )
    heads = look_at(settings.file, size=(form.shape[1], form.shape[2]), channels=form.shape[0])
    work = f"scoring {_counted(len(heads.known), heads)}"
    _affordable(settings.file, work, images_held(heads, SCORING_COPIES), "score a part of them at a time")
    pictures = _read(settings, heads, progress)
    strange = other_scale(pictures.images, fitted.model.features.mean, fitted.model.features.scale)
    if strange is not None:
        warnings.warn(f"{settings.file}: {strange}", stacklevel=2)
    return _ranked(fitted, pictures, settings, progress, mapped, pictures.notes)


def _refuse(settings: Settings) -> None:
    """Settings that are about tables or series alone must not be given with images."""
    unknown = Settings()
    for group in FOR_OTHERS:
        for name, value in vars(getattr(settings, group)).items():
            if value != getattr(getattr(unknown, group), name):
                raise UserError(f"--{name.replace('_', '-')} is not about images; {settings.file} is a folder of them.")
    if replace(settings.streaming, checkpoint=None) != Streaming():
        raise UserError(
            f"--memory, --cache-dir and --no-cache are not about images; {settings.file} is a folder of them."
        )
    if settings.training.one_sided:
        raise UserError(f"--one-sided is not about images; {settings.file} is a folder of them.")


def _looked_at(settings: Settings, progress: Progress) -> Heads:
    """The folder before its pixels are read: what memory cannot hold is refused, what takes long is said."""
    heads, training = look_at(settings.file, size=_size(settings.picturing.size)), settings.training
    rows = len(heads.known) if training.all_rows else min(len(heads.known), training.sample)
    seconds, size = estimate_images(rows, heads, training)
    work = f"training on {_counted(rows, heads)}"
    if resolve_device(settings.computing.device) == "cpu":
        _affordable(settings.file, work, size, "give a smaller --size, or fewer --members")
    if seconds > LONG:
        progress.note(
            f"{work}: up to about {in_words(seconds)}, about {size / 1e9:.1f} GB of memory "
            "(--size, --sample and --members make it less)"
        )
    return heads


def _counted(rows: int, heads: Heads) -> str:
    return f"{counted(rows, 'image')} of {heads.shape.height} x {heads.shape.width} pixels"


def _affordable(file: str, work: str, size: int, remedy: str) -> None:
    """What memory cannot hold is refused."""
    free = free_memory()
    if size > free:
        raise UserError(
            f"{file}: {work} takes about {size / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free; {remedy}."
        )


def _read(settings: Settings, heads: Heads, progress: Progress) -> Pictures:
    with progress.stage(f"Reading {settings.file}", None):
        return heads.read(settings.picturing.skip_broken)


def _size(given: str | None) -> int | tuple[int, int] | None:
    """32 for 32, (48, 64) for 48x64."""
    if given is None:
        return None
    sides = given.lower().split("x")
    if not 1 <= len(sides) <= 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise UserError(f"--size {given}: give a number of pixels, 32, or height and width, 48x64.")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _ranked(
    fitted: Fitted, pictures: Pictures, settings: Settings, progress: Progress, mapped: bool, notes: Sequence[str]
) -> Outcome:
    from addml.inputs.rows import LazyRows
    from addml.pipeline.run import Outcome

    def score(images: np.ndarray) -> np.ndarray:
        return fitted.model.scores(LazyRows(images, fitted.model.prepare), fitted.device, fitted.threads)

    with progress.stage("Scoring", len(pictures.names)) as advance:
        scores = _in_parts(score, pictures.images, NUMBERS_AT_ONCE // fitted.model.encoder.inputs, advance)
    flagged = int((scores > fitted.threshold).sum())
    shown = highest(scores, max(min(flagged, LISTED), settings.explaining.top))
    heat = None
    if settings.explaining.reasons:
        with progress.stage("Finding out where", len(shown)) as advance:
            at_once = fitted.model.block("cpu") * fitted.threads
            heat = _in_parts(fitted.heat, pictures.images[shown], at_once, advance)
    scored = _scored(fitted, pictures, scores, shown, heat, settings, mapped)
    findings = assembling.findings(fitted, scored, [FILE], settings.explaining, settings.file, notes)
    typical = highest(-scores, settings.explaining.top)
    picked = thumbnails(pictures, scores, shown, typical, heat)
    rows = ScoredRows(scored, scores, fitted, [FILE], settings.explaining.top)
    return Outcome(replace(findings, pictures=picked, noun="image"), rows, fitted)


def _in_parts(work: Callable[[np.ndarray], np.ndarray], images: np.ndarray, size: int, advance: Advance) -> np.ndarray:
    """What work gives for the images, so many at a time."""
    size, found = max(1, size), []
    for start in range(0, max(1, len(images)), size):
        found.append(work(images[start : start + size]))
        advance(len(found[-1]))
    return np.concatenate(found)


def _scored(
    fitted: Fitted,
    pictures: Pictures,
    scores: np.ndarray,
    shown: np.ndarray,
    heat: np.ndarray | None,
    settings: Settings,
    mapped: bool,
) -> Scored:
    """The scores as a table's rows have them: the file's name is the only column."""
    import pyarrow as pa

    names, prepare = pa.record_batch({FILE: pa.array(pictures.names)}), fitted.model.prepare
    reasons = [()] * len(shown) if heat is None else reasons_of(heat, settings.explaining.reasons)
    words = pa.array(["; ".join(one.words for one in own) for own in reasons], pa.string())
    explained = Explained(shown, scores[shown], names.take(pa.array(shown)), prepare(pictures.images[shown]), reasons)
    most = min(MAPPED, MAPPED_NUMBERS // fitted.model.encoder.inputs) if mapped else 0
    scored = Scored(max(LISTED, settings.explaining.top), most)
    drawn = sample_of(np.arange(len(scores)), 0, scored.most_mapped)  # places, which are features afterwards
    sample = replace(drawn, features=prepare(pictures.images[drawn.places]))
    decided = fitted.probability(scores), fitted.confidence(scores)
    scored.add(Part(scores, *decided, names, explained, shown, words, sample))
    return scored
