"""Evaluation against labels: rows, images and pixels in MVTec's layout, and ranges of a series."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from addml.errors import AddmlError
from addml.io.image_folder import MASKS, Pictures, read_mask
from addml.pipeline.labels import UNKNOWN
from addml.scoring.patches import resized
from addml.text import counted

CURVE_POINTS = 500
FIRST_ROWS = (10, 50, 100, 500, 1000)  # k of precision at k
GOOD = "good"
LEVELS = 2**16  # bins of map values, at most
MASK_ENDINGS = (".png", "_mask.png", ".bmp", ".tif", ".tiff")
FALSE_ALARMS = 0.3  # false-positive rate up to which PRO is averaged, as in MVTec
WIDEST = 100  # steps: the default of TSB-AD's get_metrics; its leaderboard uses the period of the first channel
THRESHOLDS = 250  # as in TSB-AD

Pixels = Iterator[tuple[str, np.ndarray, np.ndarray]]  # kind, map and mask of each image


def evaluate(
    scores: np.ndarray, labels: np.ndarray, threshold: float, name: str, *, steps: bool = False
) -> dict[str, Any]:
    """ROC-AUC, average precision, precision at k, precision, recall and F1 of flagged rows, and curves; VUS for steps.

    Rows without a label are ignored; margins around labelled ranges count labelled steps only.
    """
    from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

    is_labelled = labels != UNKNOWN
    y, scores = labels[is_labelled], scores[is_labelled]
    anomalies = int(y.sum())
    if anomalies in (0, len(y)):
        problem = f"{'no normal row' if anomalies else 'no anomaly'} among {counted(len(y), 'row')}"
        raise AddmlError(f"the label column {name!r} marks {problem}; evaluation needs both.")
    hits = np.cumsum(y[np.argsort(-scores, kind="stable")])  # among the k highest scores
    flagged, true = int((scores > threshold).sum()), int((y[scores > threshold] == 1).sum())
    fpr, tpr, _ = roc_curve(y, scores)
    precision, recall, _ = precision_recall_curve(y, scores)
    vus_roc, vus_pr = volumes(y, scores) if steps else (None, None)
    return {
        "label": name,
        "rows": len(y),
        "anomalies": anomalies,
        "unlabelled": int((~is_labelled).sum()),
        "roc_auc": float(roc_auc_score(y, scores)),
        "average_precision": float(average_precision_score(y, scores)),
        **({"vus_pr": vus_pr, "vus_roc": vus_roc} if steps else {}),
        "precision_at": {k: float(hits[k - 1] / k) for k in sorted({*FIRST_ROWS, anomalies}) if k <= len(y)},
        "precision": true / max(flagged, 1),
        "recall": true / anomalies,
        "f1": 2 * true / (flagged + anomalies),
        "curves": {"roc": _curve(fpr=fpr, tpr=tpr), "pr": _curve(recall=recall, precision=precision)},
    }


def _curve(**axes: np.ndarray) -> dict[str, list[float]]:
    """Thin a curve to CURVE_POINTS points, evenly spaced along its length, so that a steep start keeps its shape."""
    points = np.stack(list(axes.values()))
    if points.shape[1] > CURVE_POINTS:
        length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(points)).sum(axis=0))])
        indices = np.searchsorted(length, np.linspace(0, length[-1], CURVE_POINTS)).clip(0, len(length) - 1)
        points = points[:, np.unique(indices)]
    return dict(zip(axes, points.round(6).tolist(), strict=True))


@dataclass(frozen=True)
class Layout:
    """`train/good`, `test/good`, `test/KIND` for every kind of defect, and `ground_truth/KIND` with masks."""

    root: Path

    @classmethod
    def of(cls, folder: str, *, trains: bool) -> Layout:
        """Check that a folder has this layout."""
        root = Path(os.path.expanduser(folder))
        needed = [f"test/{GOOD}", *(["train"] if trains else [])]
        missing = [name for name in needed if not (root / name).is_dir()]
        if missing:
            raise AddmlError(
                f"{folder}: has no folder {' and '.join(missing)}; evaluation needs MVTec's layout: train/good, "
                "test/good, test/KIND for each kind of defect, and masks in ground_truth/KIND.",
                file=folder,
            )
        return cls(root)

    def mask_file(self, name: str) -> Path | None:
        stem = self.root / MASKS / os.path.splitext(name)[0]
        paths = (stem.with_name(f"{stem.name}{ending}") for ending in MASK_ENDINGS)
        return next((path for path in paths if path.is_file()), None)

    def evaluate(
        self, pictures: Pictures, scores: np.ndarray, threshold: float, maps: np.ndarray | None
    ) -> tuple[dict[str, Any], str]:
        """The measures over all images and per kind of defect, also of pixels if there are maps, and a note."""
        from sklearn.metrics import roc_auc_score

        kinds = np.array([Path(name).parts[0] if len(Path(name).parts) > 1 else "" for name in pictures.names])
        if "" in kinds:
            path = self.root / "test" / pictures.names[int((kinds == "").argmax())]
            raise AddmlError(f"{path}: must be in a folder that names its kind, such as {GOOD}.")
        result = evaluate(scores, (kinds != GOOD).astype(int), threshold, "folders of test")
        figures: dict[str, dict[str, float]] = {}
        note = "no pixel measures: they need a model fitted with --encoder pretrained"
        if maps is not None:
            figures = pixel_figures(self._pixels(pictures, kinds, maps), levels_of(maps))
            missing = sum(self.mask_file(name) is None for name in np.array(pictures.names)[kinds != GOOD])
            note = f"ignored in pixel measures: {counted(missing, 'image')} without a mask" if missing else ""
        result |= figures.get("", {}) | {"kinds": []}
        for kind in sorted({*kinds} - {GOOD}):
            is_kind = kinds == kind
            compared = is_kind | (kinds == GOOD)
            area = float(roc_auc_score(is_kind[compared], scores[compared]))
            flagged = int((scores[is_kind] > threshold).sum())
            counts = {"kind": str(kind), "images": int(is_kind.sum()), "flagged": flagged, "roc_auc": area}
            result["kinds"].append(counts | figures.get(kind, {}))
        return result, note

    def _pixels(self, pictures: Pictures, kinds: np.ndarray, maps: np.ndarray) -> Pixels:
        """Every image that can be evaluated, at its own resolution."""
        for name, kind, size, values in zip(pictures.names, kinds, pictures.sizes, maps, strict=True):
            file = self.mask_file(name)
            if kind == GOOD or file is not None:
                yield kind, resized(values, size), np.zeros(size, bool) if file is None else read_mask(file, size)


def levels_of(maps: np.ndarray) -> np.ndarray:
    """Bin edges for pixel values: the values of the maps before interpolation."""
    values = np.unique(maps)
    return values[np.unique(np.linspace(0, len(values) - 1, LEVELS).astype(np.int64))]


def pixel_figures(pixels: Pixels, levels: np.ndarray) -> dict[str, dict[str, float]]:
    """Pixel ROC-AUC and PRO per kind of defect, and over all under "".

    PRO is the share of a marked region above a threshold, averaged over regions and over thresholds up to 30 % false
    positives: a ROC curve in which every region has the same total weight.
    """
    from scipy.ndimage import label

    counts: dict[str, np.ndarray] = {}  # (3, levels): normal pixels, marked pixels, pixel weights within regions
    for kind, values, mask in pixels:
        rows = counts.setdefault(kind, np.zeros((3, len(levels) + 1)))
        bins = np.searchsorted(levels, values.ravel())
        regions = label(mask, np.ones((3, 3)))[0].ravel()
        shares = np.where(regions > 0, 1 / np.bincount(regions)[regions], 0)
        for row, weights in zip(rows, (regions == 0, regions > 0, shares), strict=True):
            row += np.bincount(bins, weights, len(levels) + 1)
    good = counts.pop(GOOD, np.zeros((3, len(levels) + 1)))
    sums = {"": sum(counts.values()) + good, **{kind: rows + good for kind, rows in counts.items()}}
    return {kind: _pixel_areas(rows) for kind, rows in sums.items() if rows[1].any()}


def _pixel_areas(counts: np.ndarray) -> dict[str, float]:
    """Pixel ROC-AUC and PRO from counts (3, levels) in ascending order."""
    curves = np.concatenate([np.zeros((3, 1)), np.cumsum(counts[:, ::-1], axis=1)], axis=1)
    alarms, hits, overlap = curves / curves[:, -1:]
    within = np.append(alarms[alarms < FALSE_ALARMS], FALSE_ALARMS)
    upper = np.append(overlap[alarms < FALSE_ALARMS], np.interp(FALSE_ALARMS, alarms, overlap))
    return {
        "pixel_roc_auc": float(np.trapezoid(hits, alarms)),
        "pro": float(np.trapezoid(upper, within) / FALSE_ALARMS),
    }


def volumes(labels: np.ndarray, scores: np.ndarray, widest: int = WIDEST) -> tuple[float, float]:
    """VUS-ROC and VUS-PR: the mean areas under the ROC and precision-recall curves for widths of 0 to `widest` steps.

    The edges of an anomaly are never exact, so each labelled range gets a margin of half a width on either side, in
    which the label falls from 1 to about 0.7. Flagged steps in a margin count as hits by their soft label; unflagged
    ones do not count as misses. Recall is multiplied by the share of ranges, with margins, that have a flagged step.
    There is no point adjustment: one flagged step does not mark its whole range as found.

    The measures are those of Paparrizos et al., "Volume Under the Surface" (VLDB 2022), with the values of TSB-AD (Liu
    and Paparrizos, NeurIPS 2024): 250 thresholds at evenly spaced ranks of the scores, trapezoids below the ROC curve
    and steps below the precision-recall curve. The TSB-AD leaderboard sets `widest` to the period of the series.
    """
    is_anomaly, scores = np.asarray(labels) != 0, np.asarray(scores)
    if is_anomaly.all() or not is_anomaly.any():
        raise ValueError("VUS needs both normal and anomalous steps; the labels have only one kind")
    ranges = ranges_of(is_anomaly)
    thresholds = np.unique(np.sort(scores)[::-1][np.linspace(0, len(scores) - 1, THRESHOLDS).astype(int)])
    count = len(thresholds)
    levels = count - np.searchsorted(thresholds, scores, side="right")  # index of the first threshold to flag a step
    near, distances = _surroundings(is_anomaly, ranges, widest // 2)
    flagged, hits = _up_to(levels, count), _up_to(levels[is_anomaly], count)
    areas = []
    for width in range(widest + 1):
        margin = _up_to(levels[near], count, _soft_labels(distances, width))
        areas.append(_areas(flagged, hits, margin, _touched(levels, count, ranges, width // 2)))
    roc, pr = np.mean(areas, axis=0).tolist()
    return roc, pr


def ranges_of(labels: np.ndarray) -> np.ndarray:
    """First and last step of every run of ones, (ranges, 2)."""
    edges = np.diff(np.concatenate([[0], np.asarray(labels, np.int8) != 0, [0]]).astype(np.int8))
    return np.column_stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1])


def _up_to(levels: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The number of steps that each threshold flags, or the sum of their weights, (thresholds,)."""
    return np.cumsum(np.bincount(levels, weights, count))


def _surroundings(is_anomaly: np.ndarray, ranges: np.ndarray, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """The steps in the widest margins, and their distances to the two nearest ranges, (2, steps)."""
    steps = np.flatnonzero(~is_anomaly)
    firsts, lasts = np.append(ranges[:, 0], [np.inf] * 2), np.append([-np.inf] * 2, ranges[:, 1])
    i = np.searchsorted(ranges[:, 0], steps)  # number of ranges before the step
    distances = np.sort([steps - lasts[i], steps - lasts[i + 1], firsts[i] - steps, firsts[i + 1] - steps], axis=0)[:2]
    near = distances[0] <= margin
    return steps[near], distances[:, near]


def _soft_labels(distances: np.ndarray, width: int) -> np.ndarray:
    """sqrt(1 - distance / width) within half a width of a range; 1 where two margins overlap."""
    nearest, second = distances
    fading = np.sqrt(np.maximum(1 - nearest / max(width, 1), 0))
    return np.where(second <= width // 2, 1.0, np.where(nearest <= width // 2, fading, 0.0))


def _touched(levels: np.ndarray, count: int, ranges: np.ndarray, margin: int) -> np.ndarray:
    """The share of ranges with a flagged step in them or their margins; overlapping ranges count as one."""
    is_separate = ranges[1:, 0] - ranges[:-1, 1] > 2 * margin
    firsts, lasts = ranges[np.append(True, is_separate), 0] - margin, ranges[np.append(is_separate, True), 1] + margin
    bounds = np.column_stack([firsts, lasts + 1]).clip(0, len(levels)).ravel()
    earliest = np.minimum.reduceat(np.append(levels, count), bounds)[::2]
    return np.asarray(_up_to(earliest, count) / len(earliest))


def _areas(flagged: np.ndarray, hits: np.ndarray, margin: np.ndarray, touched: np.ndarray) -> tuple[float, float]:
    """The areas under both curves for one width, from what each threshold flags: steps, labels, soft labels, ranges."""
    soft_hits = hits + margin
    positives = hits[-1] + margin / 2  # the mean of the labels without and with the flagged margins
    recall = np.minimum(soft_hits / positives, 1) * touched
    fpr = (flagged - soft_hits) / (flagged[-1] - positives)
    roc = np.trapezoid(np.concatenate([[0], recall, [1]]), np.concatenate([[0], fpr, [1]]))
    return float(roc), float(np.dot(np.diff(recall, prepend=0), soft_hits / flagged))
