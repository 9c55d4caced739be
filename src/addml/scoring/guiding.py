"""What labels are worth, learned from the training rows: which are believed, and how much they count."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

import numpy as np

from addml.geometry import Distance
from addml.scoring.even import evenly
from addml.scoring.guided import Guided, Learned, Near, blended, likeness
from addml.scoring.scale import MemberScale, ViewScale

LEAST = 0.01  # of the middle distance to normal rows: nearer is as near as can be
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of likeness against the score, both in deviations
FEW = 3  # labels; fewer cannot tell which weight is best
DOUBTABLE = 8  # labels from which on one may be doubted: of fewer, each is worth more than the doubt
DOUBTING_ROWS = 2048  # training rows, at even steps, that a doubted label is compared with
RELUCTANCE = 0.02  # of AUC, for a weight that is twice or half of 1, over the root of the number of labels
logger = logging.getLogger("addml")


def believed(guided: Guided, arrays: dict[str, np.ndarray], rows: np.ndarray, distance: Distance) -> dict[str, Any]:
    """The arrays without the labelled anomalies that are doubted, compared with prepared training rows (n, d).

    Where that were most of them none is: labels and columns then have too little to do with each other.
    """
    labelled = arrays["counter_anomalies"]
    if len(labelled) < DOUBTABLE:
        return arrays
    rows = rows[evenly(np.arange(len(rows)), DOUBTING_ROWS)]
    ready = guided.ready(calibrated(guided, arrays, rows, distance), distance)
    kept = plausible(_evidence(guided, labelled, ready), _evidence(guided, rows, ready))
    if 2 * kept.sum() < len(kept) or kept.all():
        return arrays
    logger.info(
        "%d of %d labelled anomalies lie as normal rows do: not taken as counter-references", (~kept).sum(), len(kept)
    )
    return arrays | {"counter_anomalies": labelled[kept]}


def plausible(labelled: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which labelled rows (2, m) are in the upper half of rows (2, n) by one evidence or the other."""
    return np.asarray((labelled >= np.median(rows, axis=1)[:, None]).any(axis=0))


def _evidence(guided: Guided, rows: np.ndarray, ready: dict[str, Any]) -> np.ndarray:
    """How far rows lie from normal ones, as a logarithm, and their likeness (2, b); no row vouches for itself."""
    near, learned = _nearest(guided, rows, ready), ready["counter"]["learned"]
    return np.stack([np.log(near.normal + learned.least), likeness(near, learned)])


def calibrated(guided: Guided, arrays: dict[str, np.ndarray], rows: np.ndarray, distance: Distance) -> dict[str, Any]:
    """The arrays with the middle and the deviation of the likeness of prepared training rows (n, d)."""
    ready = guided.ready(arrays, distance)
    near, trust = _nearest(guided, rows, ready), ready["counter"]["learned"].trust
    least = max(LEAST * float(np.median(near.normal)), float(np.finfo(np.float32).tiny))
    far = np.log(near.normal + least)
    ratio = (far - np.log(near.anomalous + least))[np.isfinite(near.anomalous)]
    learned = Learned(least, *_middle_and_deviation(ratio), trust, *_middle_and_deviation(far))
    return arrays | {"counter_likeness": np.array(learned, np.float32)}


def _middle_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Their median and their deviation, 0 and 1 where they tell none."""
    deviation = float(values.std()) if len(values) else 0.0
    return float(np.median(values)) if len(values) else 0.0, deviation if deviation > 1e-6 else 1.0


def pushed(
    guided: Guided,
    arrays: dict[str, np.ndarray],
    rows: np.ndarray,
    base: np.ndarray,
    anomalous: np.ndarray,
    scale: MemberScale | ViewScale,
    distance: Distance,
) -> dict[str, Any]:
    """The arrays with the weight of likeness: the one that ranks labelled anomalies highest, each without itself.

    `base` are the scores of prepared training rows (n, d) without it, `anomalous` says which are labelled so.
    """
    ready = guided.ready(arrays, distance)
    learned = ready["counter"]["learned"]
    like = np.asarray(blended(likeness(_nearest(guided, rows, ready), learned), learned))
    if isinstance(scale, MemberScale) and len(scale.floor) == 1:  # a single member's score is taken as it is
        base = np.log(np.maximum(base, scale.floor[0, 0]))
    spread = float(base.std()) or 1.0
    weight = best_weight((base - np.median(base)) / spread, like, anomalous)
    learned = learned._replace(spread=learned.spread * weight)  # what is forgiven is so whatever likeness weighs
    return arrays | {
        "counter_push": np.array([weight * spread], np.float32),
        "counter_scale": np.stack([getattr(scale, field.name)[:, 0] for field in fields(scale)]).astype(np.float32),
        "counter_likeness": np.array(learned, np.float32),
    }


def best_weight(base: np.ndarray, like: np.ndarray, anomalous: np.ndarray) -> float:
    """The weight of likeness in WEIGHTS with which labelled anomalies rank highest, if they are enough to tell."""
    labels = int(anomalous.sum())
    if labels < FEW or labels == len(base):
        return 1.0
    reluctance = RELUCTANCE / np.sqrt(labels)
    gains = [_auc(base + weight * like, anomalous) - reluctance * abs(np.log2(weight)) for weight in WEIGHTS]
    return WEIGHTS[int(np.argmax(gains))]


def _auc(scores: np.ndarray, anomalous: np.ndarray) -> float:
    from scipy.stats import rankdata

    count = int(anomalous.sum())
    return float((rankdata(scores)[anomalous].sum() - count * (count + 1) / 2) / (count * (len(scores) - count)))


def _nearest(guided: Guided, rows: np.ndarray, ready: dict[str, Any], size: int = 1024) -> Near:
    """How near prepared rows (n, d) lie to others, in float64."""
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    near = [guided.nearest(guided.place(part, ready), ready) for part in parts]
    return Near(*(np.concatenate(distances).astype(np.float64) for distances in zip(*near, strict=True)))
