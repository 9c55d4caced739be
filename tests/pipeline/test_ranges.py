"""VUS against the published implementations, and against its definition, threshold by threshold and step by step."""

import itertools
import math
import random

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from addml.pipeline.evaluation import ranges_of, volumes


def with_ranges(steps, *ranges):
    """Labels with ones from the first to the last step of each range."""
    labels = np.zeros(steps, int)
    for first, last in ranges:
        labels[first : last + 1] = 1
    return labels


def noise(steps, seed):
    """Numbers between 0 and 1, the same with every version of Python and numpy."""
    source = random.Random(seed)
    return np.array([source.random() for _ in range(steps)])


def series():
    """Labels, scores and the greatest width of every series that the published implementations were asked about."""
    spikes = with_ranges(2000, (300, 300), (900, 900), (1500, 1500))
    three = with_ranges(600, (100, 139), (300, 300), (450, 464))
    edges = with_ranges(400, (0, 7), (200, 204), (390, 399))
    close = with_ranges(350, (40, 44), (49, 49), (54, 60), (67, 70), (91, 99), (110, 110), (120, 140))
    dense = with_ranges(300, *[(first, first) for first in (20, 22, 24, 27, 31, 60, 64, 70, 150)])
    short = with_ranges(60, (10, 14), (30, 30))
    return {
        "spikes, labels as scores": (spikes, spikes, 100),
        "labels as scores": (three, three, 40),
        "inverted labels": (three, 1 - three, 40),
        "constant scores": (three, np.full(600, 0.3), 30),
        "random scores": (three, noise(600, 1), 50),
        "late scores": (three, np.roll(three, 6) + noise(600, 2), 31),
        "ranges at the edges": (edges, edges + 1.5 * noise(400, 3), 24),
        "first and last step": (with_ranges(400, (0, 0), (399, 399)), noise(400, 4), 10),
        "margins that touch": (close, close + 2 * noise(350, 5), 26),
        "margins of many ranges": (dense, dense + 2 * noise(300, 6), 20),
        "ties": (close, np.round(close + 2 * noise(350, 7), 1), 21),
        "integer scores": (edges, (close_to(edges) + 4 * noise(400, 8)).astype(int), 16),
        "negative scores": (three, -1 / (three + 2 * noise(600, 9)), 12),
        "few steps": (short, short + 1.3 * noise(60, 10), 15),
        "wider than the series": (short, short + 1.3 * noise(60, 11), 150),
        "width of 0": (close, close + 2 * noise(350, 12), 0),
        "width of 1": (close, close + 2 * noise(350, 12), 1),
        "many ranges of many lengths": (many_ranges(), many_ranges() + 1.5 * noise(1500, 13), 60),
    }


def close_to(labels):
    """2 on a range, 1 within two steps of it."""
    return labels + np.convolve(labels, np.ones(5), "same").clip(0, 1)


def many_ranges():
    """Forty ranges of 1 to 9 steps, some of which meet."""
    source = random.Random(0)
    firsts = [int(1490 * source.random()) for _ in range(40)]
    return with_ranges(1500, *[(first, first + int(9 * source.random())) for first in firsts])


# VUS-ROC and VUS-PR by TSB-AD 1.5; those of vus 0.0.6 are the same to the last digit
# (vus.utils.metrics.metricor().RangeAUC_volume_opt(labels, scores, widest, 250)[-2:]). Made with
#   pip install --no-deps --target reference TSB-AD==1.5 vus==0.0.6
# and, with reference/ and this folder in PYTHONPATH,
#   python -c "from test_ranges import series; from TSB_AD.evaluation.basic_metrics import generate_curve as curve
#   for name, one in series().items(): print(name, *map(float, curve(*one, version='opt', thre=250)[-2:]))"
PUBLISHED = {
    "spikes, labels as scores": (1.0, 1.0),
    "labels as scores": (1.0, 1.0),
    "inverted labels": (0.3125176365075243, 0.1301095659017231),
    "constant scores": (0.5178207330324037, 0.15489376321193588),
    "random scores": (0.6561017744421389, 0.1842343857747303),
    "late scores": (0.958468509555375, 0.8333641736083504),
    "ranges at the edges": (0.9709281915495999, 0.8301579672127659),
    "first and last step": (0.482197000954374, 0.011435532805644029),
    "margins that touch": (0.8949232162772234, 0.6771261438434057),
    "margins of many ranges": (0.938700135294687, 0.6123390258708077),
    "ties": (0.880899901224394, 0.6201950832152376),
    "integer scores": (0.8703272092706165, 0.571801443374388),
    "negative scores": (0.8950475343635683, 0.6838871313185713),
    "few steps": (0.9851754141379099, 0.9368195638189669),
    "wider than the series": (0.9960686872375398, 0.9806443535255558),
    "width of 0": (0.8643615972879218, 0.64476575249945),
    "width of 1": (0.8643615972879218, 0.64476575249945),
    "many ranges of many lengths": (0.9815691003515729, 0.9224368591583693),
}


@pytest.mark.parametrize("name", series())
def test_volumes_are_those_of_the_published_implementations(name):
    np.testing.assert_allclose(volumes(*series()[name]), PUBLISHED[name], rtol=0, atol=1e-9)


def by_definition(labels, scores, widest):
    """The volumes with every loop written out: widths, thresholds, steps and ranges."""
    labels, scores, n = [int(label) for label in labels], [float(score) for score in scores], len(labels)
    ranked = sorted(scores, reverse=True)
    thresholds = sorted({ranked[int(place)] for place in np.linspace(0, n - 1, 250)}, reverse=True)
    areas = []
    for width in range(widest + 1):
        soft = [float(label) for label in labels]
        for step in range(n):
            for first, last in runs(labels):
                away = first - step if step < first else step - last
                if 0 < away <= width // 2:
                    soft[step] += math.sqrt(1 - away / width)
        soft = [min(value, 1.0) for value in soft]
        curve = [(0.0, 0.0, 1.0)]
        for threshold in thresholds:
            flagged = [score >= threshold for score in scores]
            hits = sum(value for value, flag in zip(soft, flagged, strict=True) if flag)
            in_margins = hits - sum(label for label, flag in zip(labels, flagged, strict=True) if flag)
            positives = (sum(labels) + sum(labels) + in_margins) / 2
            touched = [any(flagged[first : last + 1]) for first, last in widened(labels, width // 2)]
            recall = min(hits / positives, 1) * sum(touched) / len(touched)
            curve.append((recall, (sum(flagged) - hits) / (n - positives), hits / sum(flagged)))
        pr = sum((b[0] - a[0]) * b[2] for a, b in itertools.pairwise(curve))
        curve.append((1.0, 1.0, 0.0))
        roc = sum((b[1] - a[1]) * (a[0] + b[0]) / 2 for a, b in itertools.pairwise(curve))
        areas.append((roc, pr))
    return [sum(column) / len(areas) for column in zip(*areas, strict=True)]


def widened(labels, margin):
    """The first and last places of ranges with their margins; ranges that share a place are one."""
    found = []
    for first, last in runs(labels):
        start, end = max(first - margin, 0), min(last + margin, len(labels) - 1)
        if found and start <= found[-1][1]:
            start = found.pop()[0]
        found.append((start, end))
    return found


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
    generator, steps = np.random.default_rng(seed), 120 if seed % 2 else 300  # fewer and more than the thresholds
    labels = np.zeros(steps, np.uint8)
    for start in generator.choice(steps - 10, 4, replace=False):  # ranges may meet, at once or in the margin
        labels[start : start + generator.integers(1, 12)] = 1
    labels[0] = seed % 2
    scores = np.round(generator.standard_normal(steps) + labels, 1 if seed % 3 else 6)  # with and without ties
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
    assert volumes(labels, labels)[1] > volumes(labels, late)[1] > volumes(labels, elsewhere)[1]


def test_labels_of_one_kind_are_refused():
    with pytest.raises(ValueError, match="both normal and anomalous steps"):
        volumes(np.zeros(5), np.arange(5.0))


def test_ranges():
    assert ranges_of(np.array([1, 1, 0, 1, 0, 0, 1])).tolist() == [[0, 1], [3, 3], [6, 6]]
