"""VUS against its definition, threshold by threshold and step by step."""

import itertools
import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from addml.detection.ranges import ranges_of, volumes


def by_definition(labels, scores, widest):
    """The volumes with every loop written out: widths, thresholds, steps and ranges."""
    labels, scores, n = [int(label) for label in labels], [float(score) for score in scores], len(labels)
    areas = []
    for width in range(widest + 1):
        soft = [float(label) for label in labels]
        for step in range(n):
            for first, last in runs(labels):
                away = first - step if step < first else step - last
                if 0 < away <= width // 2:
                    soft[step] += math.sqrt(1 - away / width)
        soft = [min(value, 1.0) for value in soft]
        positives = (sum(labels) + sum(soft)) / 2
        curve = [(0.0, 0.0, 1.0)]
        for threshold in sorted(set(scores), reverse=True):
            flagged = [score >= threshold for score in scores]
            hits = sum(value for value, flag in zip(soft, flagged, strict=True) if flag)
            touched = [any(flagged[first : last + 1]) for first, last in runs(soft)]
            recall = min(hits / positives, 1) * sum(touched) / len(touched)
            curve.append((recall, (sum(flagged) - hits) / (n - positives), hits / sum(flagged)))
        pr = sum((b[0] - a[0]) * b[2] for a, b in itertools.pairwise(curve))
        curve.append((1.0, 1.0, 0.0))
        roc = sum((b[1] - a[1]) * (a[0] + b[0]) / 2 for a, b in itertools.pairwise(curve))
        areas.append((roc, pr))
    return [sum(column) / len(areas) for column in zip(*areas, strict=True)]


def runs(values):
    """The first and last places of runs of values above 0."""
    found, start = [], None
    for place, value in enumerate([*values, 0]):
        if value and start is None:
            start = place
        if not value and start is not None:
            found.append((start, place - 1))
            start = None
    return found


@pytest.mark.parametrize("seed", range(6))
def test_volumes_are_those_of_the_definition(seed):
    random = np.random.default_rng(seed)
    labels = np.zeros(120, np.uint8)
    for start in random.choice(110, 4, replace=False):  # ranges may meet, in the margin or at once, or touch an end
        labels[start : start + random.integers(1, 12)] = 1
    labels[0] = seed % 2
    scores = np.round(random.standard_normal(120) + labels, 1 if seed % 3 else 6)  # with and without ties
    np.testing.assert_allclose(volumes(labels, scores, 13), by_definition(labels, scores, 13), rtol=1e-12)


def test_without_a_margin_and_with_one_range_only_the_steps_count():
    """One range that the first flagged step touches: what is left are the plain areas."""
    labels = np.r_[np.zeros(50), np.ones(20), np.zeros(50)]
    scores = np.random.default_rng(0).standard_normal(120) + 2 * labels
    scores[60] = 99
    roc, pr = volumes(labels, scores, 0)
    assert roc == pytest.approx(roc_auc_score(labels, scores))
    assert pr == pytest.approx(average_precision_score(labels, scores))


def test_a_score_late_by_a_few_steps_loses_less_than_one_that_is_elsewhere():
    labels = np.zeros(400)
    labels[100:120] = labels[300:310] = 1
    late, elsewhere = np.roll(labels, 5), np.roll(labels, 60)
    assert volumes(labels, labels).pr > volumes(labels, late).pr > volumes(labels, elsewhere).pr


def test_labels_of_one_kind_are_refused():
    with pytest.raises(ValueError, match="steps of both kinds"):
        volumes(np.zeros(5), np.arange(5.0))


def test_ranges():
    assert ranges_of(np.array([1, 1, 0, 1, 0, 0, 1])).tolist() == [[0, 1], [3, 3], [6, 6]]
