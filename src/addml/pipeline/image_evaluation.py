"""Folders in MVTec's layout: how well scores find the defective images, and maps the marked pixels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from addml.errors import AddmlError
from addml.io.image_folder import MASKS, Pictures, read_mask
from addml.pipeline.labels import evaluate
from addml.scoring.patches import resized
from addml.text import counted

GOOD = "good"
LEVELS = 2**16  # of map values, at most, between which pixels are not told apart
MASK_ENDINGS = (".png", "_mask.png", ".bmp", ".tif", ".tiff")
FALSE_ALARMS = 0.3  # share of normal pixels up to which PRO is averaged, as MVTec does


@dataclass(frozen=True)
class Layout:
    """`train/good`, `test/good`, `test/KIND` for every kind of defect, and `ground_truth/KIND` with masks."""

    root: Path

    @classmethod
    def of(cls, folder: str, *, trains: bool) -> Layout:
        """The layout of a folder, which must have it."""
        one = cls(Path(os.path.expanduser(folder)))
        needed = [one.root / "test" / GOOD, *([one.root / "train"] if trains else [])]
        missing = [str(path.relative_to(one.root)) for path in needed if not path.is_dir()]
        if missing:
            raise AddmlError(
                f"{folder}: has no folder {' and '.join(missing)}; images are evaluated in MVTec's layout: train/good, "
                "test/good, test/KIND for each kind of defect, and masks in ground_truth/KIND.",
                file=folder,
            )
        return one

    def mask_file(self, name: str) -> Path | None:
        """The mask of a defective test image, if there is one."""
        stem = self.root / MASKS / os.path.splitext(name)[0]
        paths = (stem.with_name(f"{stem.name}{ending}") for ending in MASK_ENDINGS)
        return next((path for path in paths if path.is_file()), None)

    def evaluate(
        self, pictures: Pictures, scores: np.ndarray, threshold: float, places: np.ndarray | None
    ) -> dict[str, Any]:
        """The figures of all images and of each kind of defect; of pixels, where there are maps and masks."""
        kinds = np.array([kind_of(name) for name in pictures.names])
        if "" in kinds:
            path = self.root / "test" / pictures.names[int((kinds == "").argmax())]
            raise AddmlError(f"{path}: is in no folder that says its kind; move it into {GOOD} or another.")
        bad = (kinds != GOOD).astype(int)
        found = evaluate(scores, bad, threshold, "folders of test")
        figures = {} if places is None else pixel_figures(self._pixels(pictures, places), levels_of(places))
        own = [self._kind(kind, kinds, scores, threshold, figures) for kind in sorted({*kinds} - {GOOD})]
        return found | figures.get("", {}) | {"kinds": own}

    def _kind(
        self, kind: str, kinds: np.ndarray, scores: np.ndarray, threshold: float, figures: dict[str, dict[str, float]]
    ) -> dict[str, Any]:
        from sklearn.metrics import roc_auc_score

        own, among = kinds == kind, (kinds == kind) | (kinds == GOOD)
        area = float(roc_auc_score(own[among], scores[among]))
        flagged = int((scores[own] > threshold).sum())
        counts = {"kind": kind, "images": int(own.sum()), "flagged": flagged, "roc_auc": area}
        return counts | figures.get(kind, {})

    def _pixels(self, pictures: Pictures, places: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Kind, map and mask of each image at its own resolution."""
        for name, size, own in zip(pictures.names, pictures.sizes, places, strict=True):
            kind, file = kind_of(name), self.mask_file(name)
            if kind == GOOD or file is not None:
                yield kind, resized(own, size), np.zeros(size, bool) if file is None else read_mask(file, size)

    def notes(self, names: Sequence[str], *, has_maps: bool) -> tuple[str, ...]:
        if not has_maps:
            return ("no figures of pixels: they need a model with --encoder pretrained",)
        missing = sum(kind_of(name) != GOOD and self.mask_file(name) is None for name in names)
        return (f"not among the figures of pixels: {counted(missing, 'image')} without a mask",) if missing else ()


def kind_of(name: str) -> str:
    """The kind of defect of a test image: its folder."""
    return Path(name).parts[0] if len(Path(name).parts) > 1 else ""


def levels_of(places: np.ndarray) -> np.ndarray:
    """Values between which pixels are not told apart: those of the places that maps are interpolated from."""
    values = np.unique(places)
    return values[np.unique(np.linspace(0, len(values) - 1, LEVELS).astype(np.int64))]


def pixel_figures(
    pixels: Iterator[tuple[str, np.ndarray, np.ndarray]], levels: np.ndarray
) -> dict[str, dict[str, float]]:
    """Pixel ROC-AUC and PRO of each kind of defect, and under "" of all, from kinds, maps and masks of images.

    PRO is the share of a marked region that lies above a threshold, averaged over regions and over thresholds up to
    30 % of false alarms: a ROC curve in which the pixels of every region have the same weight together.
    """
    from scipy.ndimage import label

    counts: dict[str, np.ndarray] = {}  # (3, levels): normal pixels, marked ones, shares of regions
    for kind, found, mask in pixels:
        own = counts.setdefault(kind, np.zeros((3, len(levels) + 1)))
        places = np.searchsorted(levels, found.ravel())
        regions = label(mask, np.ones((3, 3)))[0].ravel()
        shares = np.where(regions > 0, 1 / np.bincount(regions)[regions], 0)
        for row, weights in zip(own, (regions == 0, regions > 0, shares), strict=True):
            row += np.bincount(places, weights, len(levels) + 1)
    good = counts.pop(GOOD, np.zeros((3, len(levels) + 1)))
    sums = {kind: own + good for kind, own in counts.items() if own[1].any()}
    return {kind: _areas(own) for kind, own in {"": sum(counts.values()) + good, **sums}.items() if own[1].any()}


def _areas(counts: np.ndarray) -> dict[str, float]:
    """Pixel ROC-AUC and PRO from counts (3, levels) in ascending order."""
    curves = np.concatenate([np.zeros((3, 1)), np.cumsum(counts[:, ::-1], axis=1)], axis=1)
    alarms, hits, overlap = curves / curves[:, -1:]
    within = np.append(alarms[alarms < FALSE_ALARMS], FALSE_ALARMS)
    upper = np.append(overlap[alarms < FALSE_ALARMS], np.interp(FALSE_ALARMS, alarms, overlap))
    return {
        "pixel_roc_auc": float(np.trapezoid(hits, alarms)),
        "pro": float(np.trapezoid(upper, within) / FALSE_ALARMS),
    }
