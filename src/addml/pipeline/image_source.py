"""Folders of images: trained on and scored, with thumbnails and maps of where each score comes from."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from addml.compute import resolve_device
from addml.errors import AddmlError
from addml.explain import Reason
from addml.findings import Picture
from addml.inputs.census import draw_places
from addml.inputs.image import other_scale
from addml.inputs.rows import LazyRows
from addml.io.image_folder import Heads, Pictures, look_at
from addml.pipeline.batches import LISTED, MAPPED, Explained, Part, Scored, ScoredRows, highest, sample_of
from addml.pipeline.fitted import Fitted
from addml.pipeline.options import IMAGE, Options
from addml.pipeline.ranking import Result, left_out_epochs, ranked_findings, training_findings
from addml.pipeline.sources import free_memory
from addml.pipeline.training import LONG, decided, duration, estimate_images, images_held, new_detector
from addml.progress import Advance, Progress, epochs_to
from addml.text import counted

if TYPE_CHECKING:
    from addml.findings import Findings

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


# Reasons ----------------------------------------------------------------------------------------------------

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


# A folder of images -----------------------------------------------------------------------------------------

FILE = "file"  # the column that names an image
SCORING_COPIES = 2  # of the images, as read and as one array
NUMBERS_AT_ONCE = 2**25  # of the images that are scored between two steps of the progress bar
MAPPED_NUMBERS = 2**26  # of the images in the map of the metric space, which are fewer where they are large


class ImageSource:
    """A folder of images; once it was trained on, `rank` scores its own images, else new ones by a saved model."""

    kind = IMAGE

    def __init__(self, options: Options) -> None:
        """Nothing is read yet."""
        self.options = options
        self.pictures: Pictures | None = None  # until they are read
        self.places = np.zeros(0, np.int64)  # of the training images among all

    def train(self, progress: Progress) -> Fitted:
        """A model of all images or of a sample of them."""
        options = self.options
        heads = look_at(options.file, size=_size(options.size))
        self._check_work(heads, progress)
        self.pictures = pictures = self._read(heads, progress)
        self.places = draw_places(len(pictures.names), None if options.all_rows else options.sample, options.seed)
        detector = new_detector(options, encoder="conv")
        rows = len(self.places) * options.members
        with progress.stage("Training", options.epochs, rows) as advance, epochs_to(advance):
            try:
                detector.fit(pictures.images[self.places], checkpoint=options.checkpoint)
            except ValueError as error:
                raise AddmlError(f"{options.file}: {error}.", file=options.file) from error
        return Fitted.of(decided(detector, options))

    def training_findings(self, fitted: Fitted) -> Findings:
        """What training found; the images are not ranked."""
        assert self.pictures is not None
        known = {"rows": len(self.pictures.names), "trained_rows": len(self.places), "noun": "image"}
        return training_findings(fitted, self.options.file, self.notes, **known)

    @property
    def notes(self) -> tuple[str, ...]:
        """What reading and sampling found."""
        assert self.pictures is not None
        rows, drawn = len(self.pictures.names), len(self.places)
        sampled = f"trained on {drawn:,} of {rows:,} images, drawn at random (--all-rows takes all)"
        return (*self.pictures.notes, sampled) if 0 < drawn < rows else self.pictures.notes

    def rank(self, fitted: Fitted, progress: Progress, mapped: bool = True) -> Result:
        """Score and rank the images; `mapped` for the map of the metric space, which only a report shows."""
        is_own = self.pictures is not None
        pictures = self.pictures = self.pictures or self._read_for(fitted, progress)
        scores = self._scores(fitted, pictures, progress)
        flagged, top = int((scores > fitted.threshold).sum()), self.options.top
        shown = highest(scores, max(min(flagged, LISTED), top))
        heat = self._heat(fitted, pictures.images[shown], progress) if self.options.reasons else None
        scored = self._scored(fitted, pictures, scores, shown, heat, mapped)
        findings = ranked_findings(fitted, scored, [FILE], top, self.options.file, self.notes)
        picked = thumbnails(pictures, scores, shown, highest(-scores, top), heat)
        findings = replace(findings, pictures=picked, noun="image")
        if is_own:
            dropped = left_out_epochs(fitted, self.places, findings.ranked)
            findings = replace(findings, dropped=dropped, trained_rows=len(self.places))
        return Result(findings, ScoredRows(scored, scores, fitted, [FILE], top), fitted)

    def _read_for(self, fitted: Fitted, progress: Progress) -> Pictures:
        """The images in the size that the model knows."""
        options, form = self.options, fitted.model.form
        if form is None or form.kind != "images":
            raise AddmlError(f"{options.model}: was fitted to a table, {options.file} is a folder of images.")
        if options.size is not None:
            raise AddmlError(f"--size {options.size}: the model knows its own size, {form.shape[1:]}; leave it out.")
        heads = look_at(options.file, size=(form.shape[1], form.shape[2]), channels=form.shape[0])
        work = f"scoring {_counted(len(heads.known), heads)}"
        _check_memory(options.file, work, images_held(heads, SCORING_COPIES), "score a part of them at a time")
        pictures = self._read(heads, progress)
        strange = other_scale(pictures.images, fitted.model.features.mean, fitted.model.features.scale)
        if strange is not None:
            warnings.warn(f"{options.file}: {strange}", stacklevel=2)
        return pictures

    def _check_work(self, heads: Heads, progress: Progress) -> None:
        """Refuse what memory cannot hold, and announce what takes long, before the pixels are read."""
        options = self.options
        rows = len(heads.known) if options.all_rows else min(len(heads.known), options.sample)
        seconds, size = estimate_images(rows, heads, options)
        work = f"training on {_counted(rows, heads)}"
        if resolve_device(options.device) == "cpu":
            _check_memory(options.file, work, size, "give a smaller --size, or fewer --members")
        if seconds > LONG:
            progress.note(
                f"{work}: up to about {duration(seconds)}, about {size / 1e9:.1f} GB of memory "
                "(--size, --sample and --members make it less)"
            )

    def _read(self, heads: Heads, progress: Progress) -> Pictures:
        with progress.stage(f"Reading {self.options.file}", None):
            return heads.read(self.options.skip_unreadable)

    def _scores(self, fitted: Fitted, pictures: Pictures, progress: Progress) -> np.ndarray:
        def score(images: np.ndarray) -> np.ndarray:
            return fitted.model.scores(LazyRows(images, fitted.model.prepare), fitted.device, fitted.threads)

        with progress.stage("Scoring", len(pictures.names)) as advance:
            return _in_parts(score, pictures.images, NUMBERS_AT_ONCE // fitted.model.encoder.inputs, advance)

    def _heat(self, fitted: Fitted, images: np.ndarray, progress: Progress) -> np.ndarray:
        with progress.stage("Explaining", len(images)) as advance:
            return _in_parts(fitted.heat, images, fitted.model.block("cpu") * fitted.threads, advance)

    def _scored(
        self,
        fitted: Fitted,
        pictures: Pictures,
        scores: np.ndarray,
        shown: np.ndarray,
        heat: np.ndarray | None,
        mapped: bool,
    ) -> Scored:
        """The scores as those of a table's rows; the file's name is the only column."""
        import pyarrow as pa

        names, prepare = pa.record_batch({FILE: pa.array(pictures.names)}), fitted.model.prepare
        reasons = [()] * len(shown) if heat is None else reasons_of(heat, self.options.reasons)
        words = pa.array(["; ".join(one.words for one in own) for own in reasons], pa.string())
        features = prepare(pictures.images[shown])
        explained = Explained(shown, scores[shown], names.take(pa.array(shown)), features, reasons)
        most = min(MAPPED, MAPPED_NUMBERS // fitted.model.encoder.inputs) if mapped else 0
        scored = Scored(max(LISTED, self.options.top), most)
        drawn = sample_of(np.arange(len(scores)), 0, scored.most_mapped)  # places, which are features afterwards
        sample = replace(drawn, features=prepare(pictures.images[drawn.places]))
        decided = fitted.probability(scores), fitted.confidence(scores)
        scored.add(Part(scores, *decided, names, explained, shown, words, sample))
        return scored


def _counted(rows: int, heads: Heads) -> str:
    return f"{counted(rows, 'image')} of {heads.shape.height} x {heads.shape.width} pixels"


def _check_memory(file: str, work: str, size: int, remedy: str) -> None:
    free = free_memory()
    if size > free:
        raise AddmlError(
            f"{file}: {work} takes about {size / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free; {remedy}.",
            file=file,
        )


def _size(given: str | None) -> int | tuple[int, int] | None:
    """32 for 32, (48, 64) for 48x64."""
    if given is None:
        return None
    sides = given.lower().split("x")
    if not 1 <= len(sides) <= 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise AddmlError(f"--size {given}: give a number of pixels, 32, or height and width, 48x64.", option="size")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _in_parts(work: Callable[[np.ndarray], np.ndarray], images: np.ndarray, size: int, advance: Advance) -> np.ndarray:
    """The results of `work` for all images, so many at a time."""
    size, found = max(1, size), []
    for start in range(0, max(1, len(images)), size):
        found.append(work(images[start : start + size]))
        advance(len(found[-1]))
    return np.concatenate(found)
