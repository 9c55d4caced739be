"""p-values: conformal ones by hand and on drawn data, false discovery rates against scipy, the tail by its own law."""

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from addml import ADDML
from addml.decisions.decision import (
    Tail,
    TrainingScores,
    adjusted,
    alarm_threshold,
    discovery_threshold,
    p_value_table,
    p_values,
    probability_curve,
)


def test_conformal_p_values_by_hand():
    calibration = np.array([1.0, 2.0, 2.0, 5.0])
    found = p_values(np.array([0.0, 1.0, 2.0, 3.0, 5.0, 6.0]), calibration)
    assert found.tolist() == [1.0, 1.0, 0.8, 0.4, 0.4, 0.2]


def test_within_a_file_a_row_counts_itself():
    training = TrainingScores(np.array([9.0, 5.0, 5.0, 1.0]), np.ones(4, bool))
    assert training.rarity(training.values)[0].tolist() == [0.25, 0.75, 0.75, 1.0]


def test_adjusted_p_values_are_scipys():
    random = np.random.default_rng(0)
    calibration, scores = np.sort(random.normal(size=300).round(1)), random.normal(0.5, 1.5, size=80).round(1)
    expected = false_discovery_control(p_values(scores, calibration), method="bh")
    np.testing.assert_allclose(adjusted(scores, calibration), expected)


@pytest.mark.parametrize("rate", [0.004, 0.01, 0.05, 0.3])
def test_thresholds_flag_what_p_values_say(rate):
    random = np.random.default_rng(1)
    calibration, scores = np.sort(random.normal(size=499).round(1)), random.normal(1, 2, size=200).round(1)
    np.testing.assert_array_equal(
        scores > alarm_threshold(calibration, rate), p_values(scores, calibration) <= rate + 1e-12
    )
    tau = discovery_threshold(scores, calibration, rate)
    np.testing.assert_array_equal(scores > tau, adjusted(scores, calibration) <= rate)


def test_too_few_calibration_rows_flag_nothing():
    assert alarm_threshold(np.arange(9.0), 0.05) == np.inf
    assert discovery_threshold(np.array([1.0, 50.0]), np.arange(9.0), 0.01) >= 50


@pytest.mark.parametrize("rows", [5, 4096, 20_000])
def test_a_table_of_p_values_is_exact_or_rounds_up(rows):
    random = np.random.default_rng(2)
    calibration = np.sort(random.normal(size=rows))
    scores = np.concatenate([random.normal(size=500), calibration[-50:], [-9.0, 9.0]])
    knots, values = p_value_table(calibration)
    found, expected = values[np.searchsorted(knots, scores)], p_values(scores, calibration)
    high = scores >= calibration[-min(rows, 4096)]
    np.testing.assert_array_equal(found[high], expected[high])
    assert ((found >= expected) & (found - expected < 2e-3)).all()


def test_the_tail_of_exponential_scores_is_their_own():
    scores = -2.5 * np.log((np.arange(20_000) + 0.5) / 20_000)
    tail = Tail.fit(np.sort(scores), compressed=False)
    at = np.array([5.0, 10.0, 30.0])
    np.testing.assert_allclose(tail.p_values(at), np.exp(-at / 2.5), rtol=2e-3)
    assert tail.score(np.exp(-4)) == pytest.approx(10, rel=1e-3)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_score_is_found_from_its_p_value(compressed):
    tail = Tail.fit(np.sort(np.random.default_rng(0).gamma(2.0, size=500)), compressed)
    for p in (0.3, 1e-3, 1e-9):
        assert tail.p_values(np.array([tail.score(p)]))[0] == pytest.approx(p)


@pytest.mark.parametrize("kind", ["normal", "equal", "ties", "one high"])
def test_probabilities_rise_from_0_and_far_beyond_all_rows_to_1(kind):
    scores = {
        "normal": np.random.default_rng(0).normal(size=400),
        "equal": np.zeros(30),
        "ties": np.repeat([0.0, 1.0, 2.0], [80, 15, 5]),
        "one high": np.append(np.zeros(99), 4.0),
    }[kind]
    knots, values = probability_curve(np.sort(scores), compressed=True)
    assert (np.diff(knots) > 0).all()
    assert (np.diff(values) >= 0).all()
    assert np.interp([np.median(scores), 1e3], knots, values).tolist() == pytest.approx([0, 1], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("scorer", ["views", "center"])
def test_p_values_of_new_rows_are_uniform_on_drawn_data(scorer):
    rates, realised = np.array([0.5, 0.1, 0.02]), []
    for seed in range(12):
        random = np.random.default_rng(seed)
        mixing = random.normal(size=(3, 8))
        X = random.normal(size=(2400, 3)) @ mixing + 0.5 * random.standard_t(4, size=(2400, 8))
        detector = ADDML(scorer=scorer, random_state=seed, n_jobs=1).fit(X[:400])
        realised.append((detector.p_values(X[400:])[:, None] <= rates).mean(axis=0))
    mean, error = np.mean(realised, axis=0), np.std(realised, axis=0) / np.sqrt(12)
    assert (mean <= rates + 2 * error).all()
    assert mean[0] > 0.4
