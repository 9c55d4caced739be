"""Folders of images: training, scoring, thumbnails and anomaly maps."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from addml.encoders.pretrained import Pretrained, is_installed
from addml.errors import AddmlError
from addml.explain import Reason, contributions_of, reason_texts
from addml.findings import Findings, Picture
from addml.inputs import LazyRows
from addml.inputs.array import PHOTO_SIDE
from addml.inputs.disk import draw_indices
from addml.io.image_folder import LARGEST, Heads, Pictures, read_heads
from addml.model import Model
from addml.pipeline import ranking
from addml.pipeline.batches import scoring_device
from addml.pipeline.options import Options, decisions_given
from addml.pipeline.run import fit_model
from addml.pipeline.sources import free_memory
from addml.progress import Progress, advance_per_epoch
from addml.scoring.patches import resized
from addml.text import IMAGE, counted, figure

FILE = "file"  # the only column
ALARM_RATE = 0.01  # of new normal images; the default with --clean
NUMBERS_AT_ONCE = 2**25  # pixel values scored per step of the progress bar
COLOURED = 0.95  # quantile above which the pixels of a photograph are coloured

Work = Callable[[LazyRows, str, int], np.ndarray]  # rows, device, threads


class ImageSource:
    """A folder of images to train on and then rank, or to rank with a saved model."""

    kind = IMAGE

    def __init__(self, options: Options) -> None:
        self.options = options
        self.encoder_note = ""
        self.pictures: Pictures
        self.sampled = np.zeros(0, np.int64)  # indices of the training images; none before training
        self.maps: np.ndarray | None = None  # of all images, once computed

    def train(self, progress: Progress) -> Model:
        options, size = self.options, _size(self.options.size)
        heads = read_heads(options.file, size=size)
        encoder = self._encoder(heads)
        is_photo = encoder == Pretrained.name
        self._check_maps(is_photo)
        if is_photo:
            heads = read_heads(options.file, size=size, largest=PHOTO_SIDE)
        self.pictures = pictures = self._read(heads, progress, "use a smaller --size", copies=2)
        self.sampled = draw_indices(len(pictures.names), None if options.all_rows else options.sample, options.seed)
        images = pictures.images if len(self.sampled) == len(pictures.names) else pictures.images[self.sampled]
        with (
            progress.stage("Training", options.epochs, len(images) * options.members) as advance,
            advance_per_epoch(advance),
        ):
            try:
                model = fit_model(options, images, encoder=encoder)
            except ValueError as error:
                raise AddmlError(f"{options.file}: {error}.", file=options.file) from error
        if not options.clean or decisions_given(options):
            return model
        return model.decided(alarm_rate=max(ALARM_RATE, 1 / (1 + len(model.training.calibration))))

    def _encoder(self, heads: Heads) -> str:
        if self.options.encoder is not None:
            return self.options.encoder
        if max(max(head.size) for head in heads.known) <= LARGEST:
            return "conv"
        if is_installed():
            self.encoder_note = "encoder: pretrained, as images are larger than 64 pixels (--encoder)"
            return Pretrained.name
        self.encoder_note = "encoder: conv; pip install 'addml[pretrained]' finds much more in photographs"
        return "conv"

    def _check_maps(self, has_patches: bool) -> None:
        if self.options.maps is not None and not has_patches:
            raise AddmlError("--maps needs a model fitted with --encoder pretrained.", option="maps")

    def _read(self, heads: Heads, progress: Progress, remedy: str, copies: int = 1) -> Pictures:
        file, rows, shape, free = self.options.file, len(heads.known), heads.shape, free_memory()
        size = copies * (4 if heads.deep else 1) * rows * math.prod(shape)
        if size > free:
            images = f"{counted(rows, 'image')} of {shape[1]} x {shape[2]} pixels"
            needed = f"about {figure(size / 1e9, 2)} GB of memory, but only {figure(free / 1e9, 2)} GB are free"
            raise AddmlError(f"{file}: {images} need {needed}; {remedy}.", file=file)
        with progress.stage(f"Reading {file}", None):
            return heads.read(self.options.skip_unreadable)

    def training_findings(self, model: Model) -> Findings:
        counts = {"rows": len(self.pictures.names), "trained_rows": len(self.sampled)}
        return ranking.training_findings(model, self.options.file, self.notes, noun="image", **counts)

    @property
    def notes(self) -> tuple[str, ...]:
        rows, sampled = len(self.pictures.names), len(self.sampled)
        drawn = f"trained on {sampled:,} of {rows:,} images, drawn at random (--all-rows uses all)"
        return (*self.pictures.notes, *filter(None, [self.encoder_note, drawn if 0 < sampled < rows else ""]))

    def rank(self, model: Model, progress: Progress) -> ranking.Result:
        is_trained, top = len(self.sampled) > 0, self.options.top
        self.pictures = pictures = self.pictures if is_trained else self._read_for(model, progress)
        scores = self._in_parts("Scoring", model.scores, model, pictures.images, progress)
        model = ranking.with_batch_threshold(model, scores, self.options)
        listed = ranking.highest(scores, max(min(int((scores > model.threshold).sum()), ranking.LISTED), top))
        maps = self.maps_of(model, progress) if self.options.maps is not None else None
        listed_maps = self._maps_of_listed(model, listed, progress) if self.options.reasons else None
        scored = self._scored(scores, listed, listed_maps)
        findings = ranking.ranked_findings(
            model, scored.listed, scores, [FILE], top, self.options.file, self.notes, are_new=not is_trained
        )
        thumbs = thumbnails(pictures, scores, listed, ranking.highest(-scores, top), listed_maps)
        # There are no groups, because images that share a region need not be similar.
        findings = replace(findings, pictures=thumbs, noun="image", trained_rows=len(self.sampled), groups=())
        files = () if maps is None else map_files(pictures, maps, model.threshold)
        tables = ranking.scored_tables(scored, scores, model, [FILE], top, are_new=not is_trained)
        return ranking.Result(findings, tables, model, files)

    def maps_of(self, model: Model, progress: Progress) -> np.ndarray:
        """The anomaly maps of all images, (n, height, width), computed once."""
        if self.maps is None:
            images = self.pictures.images
            self.maps = self._in_parts("Maps", lambda rows, _, n: model.maps(rows, n), model, images, progress)
        return self.maps

    def _read_for(self, model: Model, progress: Progress) -> Pictures:
        options, shape = self.options, model.row_shape.shape
        self._check_maps(model.scorer.on_patches)
        if options.size is not None:
            raise AddmlError(f"--size {options.size}: the model sets the size, {shape[1:]}; remove --size.")
        heads = read_heads(options.file, size=(shape[1], shape[2]), channels=shape[0])
        pictures = self._read(heads, progress, "score a part of them at a time")
        warning = model.vectorizer.scale_warning(pictures.images)  # type: ignore[attr-defined]
        if warning is not None:
            warnings.warn(f"{options.file}: {warning}", stacklevel=2)
        return pictures

    def _maps_of_listed(self, model: Model, listed: np.ndarray, progress: Progress) -> np.ndarray:
        images = self.pictures.images[listed]

        def work(rows: LazyRows, device: str, threads: int) -> np.ndarray:
            return contributions_of(model, rows, np.arange(len(rows)), device, threads)

        if self.maps is not None:
            maps = np.stack([resized(map, images.shape[2:]) for map in self.maps[listed]])
        else:
            maps = self._in_parts("Explaining", work, model, images, progress)
        if not model.scorer.on_patches:
            return maps
        return np.asarray((maps - np.quantile(maps, COLOURED, axis=(1, 2), keepdims=True)).clip(0))

    def _in_parts(self, stage: str, work: Work, model: Model, images: np.ndarray, progress: Progress) -> np.ndarray:
        device, threads = scoring_device(self.options, model)
        block = 8 if model.scorer.on_patches else model.block("cpu")
        size = max(1, NUMBERS_AT_ONCE // model.encoder.inputs if stage == "Scoring" else block * threads)
        results = []
        with progress.stage(stage, len(images)) as advance:
            for start in range(0, max(1, len(images)), size):
                rows = LazyRows(images[start : start + size], model.vectorizer.prepare)
                results.append(work(rows, device, threads))
                advance(len(rows))
        return np.concatenate(results)

    def _scored(self, scores: np.ndarray, listed: np.ndarray, maps: np.ndarray | None) -> ranking.Scored:
        """The scored images as rows of a table whose only column is the file name."""
        all_names = self.pictures.names
        reasons = [()] * len(listed) if maps is None else reasons_of(maps, self.options.reasons)
        candidates = [
            ranking.Candidate(row, float(scores[row]), {FILE: all_names[row]}, row_reasons)
            for row, row_reasons in zip(listed.tolist(), reasons, strict=True)
        ]
        scored = ranking.Scored(max(ranking.LISTED, self.options.top))
        files = pa.record_batch({FILE: pa.array(all_names)})
        scored.add(ranking.Part(ranking.piece_of(scores, files, listed, reason_texts(reasons)), candidates))
        return scored


def _size(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    sides = text.lower().split("x")
    if not 1 <= len(sides) <= 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise AddmlError(f"--size {text}: must be N or HxW pixels, such as 32 or 48x64.", option="size")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


STRANGEST, TYPICAL = 24, 12  # thumbnails at most, to keep reports small
THUMBNAIL = 240  # pixels along the longer side, at most
RED = np.array([222.0, 45.0, 38.0])  # RGB of anomalous pixels
OPACITY = 0.85  # of that colour at the maximum of a map
AT_THRESHOLD = 128  # grey level of a map at the threshold
REGIONS = ("upper left", "top", "upper right", "left", "middle", "right", "lower left", "bottom", "lower right")
LEAST_SHARE = 0.3  # of the map, for a region to be named


def thumbnails(
    pictures: Pictures, scores: np.ndarray, strangest: np.ndarray, typical: np.ndarray, maps: np.ndarray | None
) -> tuple[Picture, ...]:
    """Thumbnails of the strangest images with their maps (k, height, width), then of the most typical ones.

    8-bit images are shown as they are. Deeper ones rarely use their full range (12 of 16 bits, floats from 0 to 1), so
    they are stretched from the darkest pixel of all images to the brightest.
    """
    images, low, gain = pictures.images, 0.0, 1.0
    if images.dtype != np.uint8:
        low = float(images.min())
        gain = 255 / (float(images.max()) - low or 1.0)

    def picture(row: int, map: np.ndarray | None, kind: str) -> Picture:
        image = (images[row].astype(np.float64) - low) * gain
        pixels = np.moveaxis(image if len(image) == 3 else np.repeat(image[:1], 3, axis=0), 0, -1)
        size = pictures.sizes[row] if pictures.sizes else pixels.shape[:2]
        overlay = None if map is None else _thumbnail(_with_overlay(pixels, map), size)
        name, folder = pictures.names[row], pictures.folder
        file = None if folder is None else os.path.abspath(folder / name)
        return Picture(name, float(scores[row]), kind, _thumbnail(pixels, size), overlay, file)

    rows = strangest[:STRANGEST].tolist()
    first = [picture(row, None if maps is None else maps[i], "strange") for i, row in enumerate(rows)]
    rest = [picture(row, None, "typical") for row in typical[:TYPICAL].tolist() if row not in rows]
    return (*first, *rest)


def _with_overlay(pixels: np.ndarray, map: np.ndarray) -> np.ndarray:
    """The image in grey with its anomalous pixels in red."""
    opacity = map.clip(0)[..., None] / max(float(map.max()), np.finfo(float).tiny) * OPACITY
    grey = np.repeat(pixels.mean(axis=-1, keepdims=True), 3, axis=-1)
    return np.asarray((1 - opacity) * grey + opacity * RED)


def _thumbnail(pixels: np.ndarray, size: tuple[int, ...]) -> bytes:
    """A PNG of a small image, else a JPEG with the aspect ratio of the file's `size` (height, width)."""
    if max(pixels.shape) <= LARGEST:
        return _encoded(pixels)
    scale = min(1.0, THUMBNAIL / max(size))
    return _encoded(pixels, (max(1, round(size[0] * scale)), max(1, round(size[1] * scale))))


def _encoded(pixels: np.ndarray, size: tuple[int, int] | None = None) -> bytes:
    from PIL import Image

    file, image = io.BytesIO(), Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))
    if size is None:
        image.save(file, "PNG", optimize=True)
    else:
        image.resize(size[::-1]).save(file, "JPEG", quality=85)
    return file.getvalue()


def map_files(pictures: Pictures, maps: np.ndarray, threshold: float) -> Iterator[tuple[str, bytes]]:
    """Each image's map (the threshold is 128) and mask (white above the threshold) at the image's resolution."""
    stems = [os.path.splitext(name)[0] for name in pictures.names]
    count, unit = Counter(stems), threshold if 0 < threshold < np.inf else 1.0
    for name, stem, size, map in zip(pictures.names, stems, pictures.sizes, maps, strict=True):
        values, target = resized(map, size), stem if count[stem] == 1 else name
        yield f"{target}.map.png", _encoded(AT_THRESHOLD * values / unit)
        yield f"{target}.mask.png", _encoded(255.0 * (values > threshold))


def reasons_of(maps: np.ndarray, most: int) -> list[tuple[Reason, ...]]:
    """The ninths of each image that contribute most to its map; maps are (n, height, width)."""
    _, height, width = maps.shape
    region_of = 3 * (3 * np.arange(height) // height)[:, None] + 3 * np.arange(width) // width
    sums = np.stack([maps[:, region_of == k].sum(axis=1) for k in range(len(REGIONS))], axis=1).clip(0)
    shares = sums / np.maximum(sums.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    order = np.argsort(-shares, axis=1, kind="stable")[:, :most]
    return [
        tuple(Reason((REGIONS[k],), float(share[k]), REGIONS[k], REGIONS[k]) for k in ks if share[k] >= LEAST_SHARE)
        for share, ks in zip(shares, order, strict=True)
    ]
