"""Answers of a reviewer, and derived features that must not outweigh measured ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

from addml import ADDML


def test_a_row_answered_normal_is_not_flagged_again():
    X = load_wine().data
    first = ADDML(random_state=0, device="cpu").fit(X)
    for row in (*np.argsort(-first.anomaly_scores_)[:2], 3, 14):  # the last two were
        labels = np.where(np.arange(len(X)) == row, 0, -1)
        labelled = ADDML(random_state=0, device="cpu").fit(X, labels=labels)
        assert first.is_anomaly(X[[row]])[0]
        assert not labelled.is_anomaly(X[[row]])[0]


def test_the_baseline_is_normal_by_its_model():
    for scorer in ("views", "center", "knn"):
        detector = ADDML(random_state=0, device="cpu", scorer=scorer).fit(load_wine().data)
        own = detector.model_.scores(detector.baseline_[None], "cpu", 1)[0]
        assert own <= np.median(detector.anomaly_scores_)


def test_a_rare_weekday_does_not_outweigh_a_measured_value():
    random, n = np.random.default_rng(0), 1000
    day = np.where(random.random(n) < 0.02, random.integers(5, 7, n), 4)  # 2 % on weekends, all others on Fridays
    dates = pd.Timestamp("2020-01-06") + pd.to_timedelta(7 * random.integers(0, 200, n) + day, "D")
    table = pd.DataFrame({"date": dates, **{name: random.normal(size=n) for name in "abcd"}})
    table.loc[np.flatnonzero(day == 4)[:3], "a"] = 8.0
    scores = ADDML(random_state=0, device="cpu").fit(table).anomaly_scores_
    assert scores[table["a"] == 8].min() > np.median(scores[day > 4])
