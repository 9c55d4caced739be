"""Streams that adapt: a new level becomes normal, a fault does not, and a saved stream goes on with the same bits."""

import numpy as np
import pytest

from addml import ADDML, Window

WINDOW, RECENT = 8, 200


def wave(steps: int, seed: int) -> np.ndarray:
    noise = 0.1 * np.random.default_rng(seed).standard_normal((steps, 2))
    return np.sin(np.arange(steps)[:, None] / 5 + np.arange(2)) + noise


def fitted(**more) -> ADDML:
    settings = {"window": Window(WINDOW, causal=True), "epochs": 3, "members": 2, "random_state": 0}
    return ADDML(**settings | {"contamination": 0.01} | more)


@pytest.fixture(scope="module")
def detector() -> ADDML:
    return fitted().fit(wave(1200, 0))


def flags(stream, steps: np.ndarray) -> np.ndarray:
    return np.array([stream.is_anomaly(step) for step in steps])


def test_a_new_level_becomes_normal_once_it_fills_more_than_half_of_the_recent_steps(detector):
    steps = wave(600, 1)
    steps[300:] += [3, 0]
    plain, adapting = flags(detector.stream(), steps), flags(detector.stream(adapt=RECENT), steps)
    assert plain[300:].mean() > 0.95
    assert adapting[300 : 300 + RECENT // 2].mean() > 0.95
    assert adapting[300 + 3 * RECENT // 4 + 1 :].mean() < 0.05  # renewed every quarter of the recent steps
    assert adapting[:300].mean() < 0.05


def test_faults_behind_a_new_level_are_still_found(detector):
    steps = wave(1000, 9)
    steps[300:] += [30, 0]
    steps[800:820] += [0.8, -0.8]
    stream = detector.stream(adapt=RECENT)
    found = flags(stream, steps)
    assert found[800:820].mean() > 0.8
    assert found[600:800].mean() < 0.1
    back = flags(stream, wave(600, 10))  # the old level again
    assert back[:50].all()
    assert back[300:].mean() < 0.1


def test_a_fault_that_comes_again_is_flagged_again(detector):
    steps = wave(700, 2)
    faults = range(100, 700, 100)
    for start in faults:
        steps[start : start + 20, 0] += 3
    found = flags(detector.stream(adapt=RECENT), steps)
    assert all(found[start : start + 20].mean() > 0.9 for start in faults)


def test_before_the_first_renewal_scores_are_those_of_a_plain_stream_and_the_detector_stays_as_it_is(detector):
    steps = wave(400, 3) + np.array([2, 0])
    before = detector.anomaly_score(steps)
    stream = detector.stream(adapt=RECENT)
    scores = np.array([stream.score(step) for step in steps])
    assert scores[:RECENT].tolist() == before[:RECENT].tolist()
    assert scores[-1] < before[-1]
    assert detector.anomaly_score(steps).tolist() == before.tolist()


@pytest.mark.parametrize("saved_after", [150, 377])
def test_a_saved_stream_that_adapts_goes_on_with_the_same_bits(detector, tmp_path, saved_after):
    steps = wave(520, 4)
    steps[250:] += [3, 0]
    whole = detector.stream(adapt=RECENT)
    expected = [whole.score(step) for step in steps]
    first = detector.stream(adapt=RECENT)
    for step in steps[:saved_after]:
        first.score(step)
    first.save(tmp_path / "state")
    again = detector.stream(adapt=RECENT).restore(tmp_path / "state")
    assert [again.score(step) for step in steps[saved_after:]] == expected[saved_after:]
    with pytest.raises(ValueError, match="is not a stream of this model and entity"):
        detector.stream(adapt=RECENT + 1).restore(tmp_path / "state")
    with pytest.raises(ValueError, match="is not a stream of this model and entity"):
        detector.stream().restore(tmp_path / "state")


def test_the_stream_of_an_entity_adapts():
    detector = fitted(by="host").fit({"a": wave(800, 5), "b": 50 * wave(800, 6) + 300})
    steps = 50 * wave(550, 7) + 300
    steps[250:] += [150, 0]
    found = flags(detector.stream("b", adapt=RECENT), steps)
    assert found[250:340].mean() > 0.95
    assert found[450:].mean() < 0.05


def test_what_cannot_adapt_is_refused(detector):
    with pytest.raises(ValueError, match=f"adapt=20 must be a whole number of at least {4 * WINDOW}"):
        detector.stream(adapt=20)
    with pytest.raises(ValueError, match="with the scorer 'center' cannot adapt; fit with encoder='auto' and"):
        fitted(scorer="center").fit(wave(300, 8)).stream(adapt=RECENT)
