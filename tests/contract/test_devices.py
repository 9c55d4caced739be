"""The same detector on an accelerator: where there is one."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import addml
from addml.distances import DISTANCES, pair_distances


@pytest.fixture(scope="module")
def cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return "cuda"


@pytest.fixture(scope="module", name="X")
def table():
    random = np.random.default_rng(0)
    X = random.standard_normal((3000, 12)) @ random.standard_normal((12, 12))
    X[:100] *= 4
    return X


@pytest.mark.parametrize(
    "settings", [{}, {"members": 1}, {"scorer": "knn"}, {"loss__distance": "euclidean", "loss": "center"}]
)
def test_a_model_trained_on_one_device_scores_alike_on_the_other(cuda, X, tmp_path, settings):
    for trained, loaded in (("cpu", cuda), (cuda, "cpu")):
        detector = addml.ADDML().set_params(epochs=5, random_state=0, device=trained, **settings).fit(X)
        detector.save(tmp_path / trained)
        other = addml.load(tmp_path / trained, device=loaded)
        ours, theirs = detector.anomaly_score(X), other.anomaly_score(X)
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-3)  # deviations; columns have steps on the CPU


def test_training_on_either_device_ranks_alike(cuda, X):
    scores = [addml.ADDML(epochs=5, random_state=0, device=device).fit(X).anomaly_scores_ for device in ("cpu", cuda)]
    assert spearmanr(*scores).statistic > 0.999


def test_a_score_on_the_device_does_not_depend_on_the_rows_beside_it(cuda, X):
    detector = addml.ADDML(epochs=2, random_state=0, device=cuda).fit(X)
    whole = detector.anomaly_score(X)
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(detector.anomaly_score(X[order]), whole[order])
    np.testing.assert_array_equal(detector.anomaly_score(X[:1]), whole[:1])


def test_the_same_seed_gives_the_same_scores_on_the_device(cuda, X):
    first, second = (addml.ADDML(epochs=3, random_state=0, device=cuda).fit(X).anomaly_scores_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("size", [2, 7, 64, 100, 128, 257, 1000])
def test_pair_distances_on_the_device_are_symmetric_to_the_last_bit(cuda, size):
    import torch

    z = torch.randn(3, size, 64, device=cuda, generator=torch.Generator(cuda).manual_seed(size))
    for distance in DISTANCES:
        pairs, _ = pair_distances(z, distance)
        assert torch.equal(pairs, pairs.mT)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_tensor_is_read_as_an_array(device, X):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    tensor = torch.as_tensor(X, device=device)
    one, other = (addml.ADDML(epochs=2, random_state=0, device=device).fit(rows) for rows in (tensor, X))
    np.testing.assert_array_equal(one.anomaly_scores_, other.anomaly_scores_)
    scores = one.anomaly_score(tensor)
    assert isinstance(scores, np.ndarray)
    np.testing.assert_array_equal(scores, one.anomaly_score(X))
    np.testing.assert_array_equal(one.predict(tensor), one.predict(X))


def test_images_on_the_device(cuda):
    import torch

    images = np.random.default_rng(0).integers(0, 256, (300, 1, 6, 6)).astype(np.uint8)
    images[3] = 255
    detector = addml.ADDML(epochs=3, random_state=0, device=cuda).fit(images)
    scores = detector.anomaly_score(torch.as_tensor(images, device=cuda))
    assert scores.argmax() == 3
    np.testing.assert_array_equal(scores, detector.anomaly_score(images))


@pytest.mark.parametrize("kind", ["table", "images", "series", "recurrent"])
def test_recorded_steps_are_the_steps_made_one_by_one(cuda, X, monkeypatch, kind):
    from addml.learning import training
    from addml.learning.learner import MetricLearner, ReconstructionLearner

    settings = {"series": {"window": 8}, "recurrent": {"window": 8, "encoder": "recurrent"}}.get(kind, {})
    rows = np.random.default_rng(1).integers(0, 255, (600, 12, 12), np.uint8) if kind == "images" else X
    recorded, record = [], training._RecordedStep.__init__
    monkeypatch.setattr(training._RecordedStep, "__init__", lambda *given: recorded.append(1) or record(*given))

    def fitted():
        return addml.ADDML(epochs=3, random_state=0, device=cuda, batch_size=32, **settings).fit(rows)

    ours, made = fitted(), len(recorded)
    for learner in (MetricLearner, ReconstructionLearner):
        monkeypatch.setattr(learner, "recordable", False)
    one_by_one = fitted()
    assert 0 < made == len(recorded)
    np.testing.assert_allclose(ours.anomaly_scores_, one_by_one.anomaly_scores_, rtol=2e-3, atol=2e-3)
    assert ours.history_[-1]["train_loss"] == pytest.approx(one_by_one.history_[-1]["train_loss"], rel=1e-3)
