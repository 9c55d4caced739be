"""Windows that share steps with references, by brute force; and what that does to the scores of a series."""

import numpy as np
import pytest

from addml import ADDML, Window
from addml.inputs.series import Windows
from addml.scoring.references import Overlaps, reference_keys
from addml.scoring.scorer import score_rows


def flat(windows):
    return windows[:].reshape(len(windows), -1).astype(np.float32)


def shared(windows, references):
    """Pairs of windows and references that hold the same step of the same series."""
    steps = [set(range(start, start + windows.window)) for start in windows.first]
    return {
        (row, j) for row, own in enumerate(steps) for j, reference in enumerate(references) if own & steps[reference]
    }


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("size", [1, 7, 40])
def test_overlaps_by_brute_force(missing, size):
    """Of two series, in which steps may be missing, in parts of any size."""
    random = np.random.default_rng(0)
    series = [random.standard_normal((length, 2)) for length in (40, 25)]
    given = [random.random(len(one)) < (0.7 if missing else 2) for one in series]
    windows = Windows.of(series, 6, given)
    references = np.array([3, 4, 20, 30, len(windows) - 2])
    rows = flat(windows)
    keys = reference_keys(rows[references])
    overlaps = Overlaps.of([rows[:10], rows[10:]], keys, windows.first, 6)
    found = set()
    for start in range(0, len(windows), size):
        own, which = overlaps.part(slice(start, min(start + size, len(windows))), rows)
        found |= {(start + int(row), int(j)) for row, j in zip(own, which, strict=True)}
    filled_up = shared(windows, references)  # before a series begins its first value stands, in steps of its own
    assert found == filled_up


def test_nothing_overlaps_with_another_series():
    random = np.random.default_rng(0)
    learned, other = (Windows.of([random.standard_normal((30, 1))], 4) for _ in range(2))
    keys = reference_keys(flat(learned)[::4])
    overlaps = Overlaps.of([flat(other)], keys, other.first, 4)
    assert len(overlaps.part(slice(0, 30), flat(other))[0]) == 0


@pytest.mark.parametrize(("steps", "window"), [(300, 16), (600, 50)])
def test_new_steps_of_a_short_series_do_not_stand_out(steps, window):
    """A tenth is asked for. While overlaps were neighbours, half of the one and all of the other were flagged."""
    random = np.random.default_rng(0)
    learned, new = random.standard_normal((steps, 2)), random.standard_normal((1000, 2))
    detector = ADDML(encoder="recurrent", window=window, contamination=0.1, random_state=0, device="cpu").fit(learned)
    assert detector.is_anomaly(new).mean() < 0.25
    np.testing.assert_array_equal(detector.anomaly_score(learned), detector.anomaly_scores_)
    assert detector.is_anomaly(learned).mean() == pytest.approx(0.1, abs=0.01)


def test_where_the_past_alone_counts_the_threshold_is_that_of_new_steps():
    """What was learned from is measured as new steps are, which overlap with nothing."""
    random = np.random.default_rng(0)
    learned, new = random.standard_normal((600, 2)), random.standard_normal((1000, 2))
    detector = ADDML(window=Window(50, causal=True), contamination=0.1, random_state=0, device="cpu").fit(learned)
    assert 0.03 < detector.is_anomaly(new).mean() < 0.25  # an autoencoder misses a little more of new windows
    assert (detector.anomaly_scores_ >= detector.anomaly_score(learned) - 1e-9).mean() > 0.99


def test_what_was_learned_from_is_known_with_more_behind_it():
    """The scores of steps whose windows all lie in what was learned from do not change when more steps follow."""
    random = np.random.default_rng(1)
    whole = random.standard_normal((400, 2))
    detector = ADDML(encoder="recurrent", window=10, random_state=0, device="cpu", epochs=2).fit(whole[:300])
    np.testing.assert_allclose(detector.anomaly_score(whole)[:280], detector.anomaly_scores_[:280], rtol=1e-6)


def test_on_tensors_as_on_an_accelerator():
    torch = pytest.importorskip("torch")
    X = np.random.default_rng(0).standard_normal((200, 2))
    model = ADDML(encoder="recurrent", window=10, random_state=0, device="cpu", epochs=2).fit(X).model_
    windows = Windows.of([X], 10)
    overlaps = model.overlaps(model.vectorizer.read(X), learned=True)
    x = flat(windows.prepared(model.step_features.transform))[None, None]
    z, rows = model.encoder.embed(x), slice(0, 200)
    expected = score_rows(model.scorer, x, z, model.scorer_ready("cpu"), model.distance, rows, overlaps)
    arrays = {name: torch.from_numpy(array.copy()) for name, array in model.scorer_arrays.items()}
    ready = model.scorer.ready(arrays, model.distance)
    there = score_rows(model.scorer, *map(torch.from_numpy, (x, z.copy())), ready, model.distance, rows, overlaps)
    np.testing.assert_allclose(there.numpy(), expected, atol=1e-5)
