"""The rivals of `explain` that the benchmarks measure see the score that users get, and its gradient."""

import numpy as np
import pytest

from addml import ADDML
from benchmarks.attributions import gradient_times_input, score_in_torch

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("rows", [300, 1500])  # all of them references, and some
@pytest.mark.parametrize("scorer", ["views", "center"])
def test_gradients_are_of_the_score(rows, scorer):
    random = np.random.default_rng(0)
    X, new = random.normal(size=(rows, 4)), random.normal(size=(20, 4)) * 3
    detector = ADDML(random_state=0, device="cpu", epochs=2, scorer=scorer).fit(X)
    x, score = detector.model_.vectorizer.prepare(new), score_in_torch(detector)
    found = score(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, detector.anomaly_score(new), rtol=1e-3, atol=1e-3)
    step = 1e-2 * random.normal(size=x.shape).astype(np.float32)  # along the gradient the score rises as it says
    slope = gradient_times_input(detector, new) / (x - detector.baseline_)
    higher, lower = (score(torch.from_numpy(x + sign * step)).numpy() for sign in (1, -1))
    rises = (higher - lower) / 2
    assert np.corrcoef((slope * step).sum(1), rises)[0, 1] > 0.95
