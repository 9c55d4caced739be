"""The views of windows against plain NumPy, window by window."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA

from addml import ADDML, Autoencoder, Window
from addml.scoring.windows import LAYERS, WINDOW_VIEWS, ShapeMetric, WindowViews, crops

STEPS, CHANNELS, WINDOW = 300, 2, 8


def waves(steps=STEPS, seed=0, channels=CHANNELS):
    random = np.random.default_rng(seed)
    return np.sin(np.arange(steps)[:, None] / 5 + np.arange(channels)) + 0.1 * random.standard_normal((steps, channels))


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "causal"])
def model(request):
    encoder, window = Autoencoder((12,), 4), Window(WINDOW, causal=request.param)
    return ADDML(encoder=encoder, window=window, epochs=2, members=2, random_state=0).fit(waves()).model_


def flat_windows(model, X):
    """The whole windows of X as features, and the steps that they end at."""
    steps = model.step_features.transform(X)
    ends = np.arange(WINDOW - 1, len(X))
    return np.stack([steps[end - WINDOW + 1 : end + 1].ravel() for end in ends]).astype(float), ends


def nearest_mean(distances, k):
    return np.sort(distances, axis=1)[:, :k].mean(axis=1)


def expected_views(model, X, learned):
    """The views (4, n) of the windows that end at each step; NaN where none is whole."""
    x, ends = flat_windows(model, X)
    rows = model.scorer_arrays["rows"].astype(float)
    own, own_ends = flat_windows(model, waves())
    at = [own_ends[abs(own - row).sum(axis=1).argmin()] for row in rows]
    overlap = abs(ends[:, None] - at) < WINDOW if learned else np.zeros((len(ends), len(rows)), bool)
    # Mahalanobis distances with the covariance plus its mean eigenvalue, by SciPy; components by scikit-learn.
    learned_from = own[~model.held_out.all(axis=0)[own_ends]]  # by some member
    covariance = np.cov(learned_from.T, bias=True)
    precision = np.linalg.inv(covariance / (np.trace(covariance) / len(covariance)) + np.eye(len(covariance)))
    pca = PCA(0.99, svd_solver="full").fit(learned_from)
    missed = model.encoder.forward(x[None])[0] - x
    apart = [
        cdist(x, rows, "mahalanobis", VI=precision),
        abs(x[:, None, -CHANNELS:] - rows[:, -CHANNELS:]).sum(axis=2),
    ]
    near = [nearest_mean(np.where(overlap, np.inf, one), k) for one, k in zip(apart, (3, 5), strict=True)]
    residual = np.sqrt((missed**2).mean(axis=2)).mean(axis=0)
    linear = np.linalg.norm(x - pca.inverse_transform(pca.transform(x)), axis=1)
    views = np.full((4, len(X)), np.nan)
    views[:, WINDOW - 1 :] = [near[0], residual, linear, near[1]]
    return views


@pytest.mark.parametrize("learned", [True, False])
def test_views_are_those_of_plain_numpy(model, learned):
    X = waves() if learned else waves(120, seed=1)
    views = expected_views(model, X, learned)
    found = model.member_scores(model.vectorizer.read(X), "cpu", 1, learned=learned)
    if not model.row_shape.causal:  # the mean of the windows over a step
        later = np.stack([np.append(views[:3, ahead:], np.full((3, ahead), np.nan), axis=1) for ahead in range(WINDOW)])
        views[:3] = np.nanmean(later, axis=0)
    known = slice(WINDOW - 1, None)
    np.testing.assert_allclose(found[0, known], views[0, known], rtol=0.03)  # components of the last percent are alike
    np.testing.assert_allclose(found[1:3, known], views[1:3, known], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found[3, known], views[3, known], atol=0.01)  # in whole steps of 16 bits


def test_the_scale_of_a_lone_value_is_that_of_rare_ones():
    one = ADDML(window=Window(WINDOW), epochs=1, members=1, random_state=0).fit(waves(channels=1)).model_
    scores = one.member_scores(one.vectorizer.read(waves(channels=1)), "cpu", 1, learned=True)
    median = np.median(scores, axis=1)
    high = [np.quantile(own, share) for own, share in zip(scores, (0.9, 0.9, 0.999), strict=True)]
    np.testing.assert_allclose(one.scale.unit[:, 0], high - median, rtol=1e-6)


def test_scores_of_several_channels_are_smooth_where_the_future_is_known(model):
    X = waves(120, seed=1)
    rows = model.vectorizer.read(X)
    rough = np.asarray(model.combine(model.member_scores(rows, "cpu", 1), model.incomplete(rows)))
    expected = rough
    if not model.row_shape.causal:
        expected = [rough[max(0, step - 2) : step + 3].mean() for step in range(len(X))]
    np.testing.assert_allclose(model.scores(rows, "cpu", 1), expected)
    one = ADDML(window=Window(WINDOW), epochs=1, members=1, random_state=0).fit(waves(channels=1)).model_
    assert one.smoothing == 1


def test_parameters_are_checked():
    WindowViews().check()
    assert WindowViews().settings()["views"] == list(WINDOW_VIEWS)
    for settings, message in (
        ({"views": ("space",)}, "leave views out"),
        ({"references": 2}, "references=2"),
        ({"step_quantile": 1.5}, "step_quantile=1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            WindowViews(**settings).check()


def mapped_by_torch(metric, windows):
    """Windows in the space of a shape metric, by torch's own convolutions."""
    x = torch.as_tensor(np.sign(windows) * 5 * np.log1p(abs(windows) / 5))[:, None]
    for layer, (kernel, channels) in zip(metric[:2], LAYERS, strict=True):
        weight = torch.as_tensor(layer[:-1]).reshape(kernel, -1, channels).permute(2, 1, 0)
        bias = torch.as_tensor(layer[-1])
        x = torch.nn.functional.conv1d(x, weight, bias, stride=2, padding=kernel // 2).relu()
    return (x.mean(-1) @ torch.as_tensor(metric.shrink)).numpy()


def in_float64(metric):
    return ShapeMetric(*(part.astype(float) for part in metric))


@pytest.mark.parametrize("steps", [1, 4, 31, 100])
def test_the_shape_metric_is_that_of_torch(steps):
    random = np.random.default_rng(0)
    windows = 3 * random.normal(size=(200, steps))
    metric = in_float64(ShapeMetric.fit(windows, random))
    np.testing.assert_allclose(metric.mapped(windows)[0], mapped_by_torch(metric, windows), atol=1e-9)
    on_torch = ShapeMetric(*map(torch.as_tensor, metric))
    np.testing.assert_allclose(on_torch.mapped(torch.as_tensor(windows))[0], metric.mapped(windows)[0], atol=1e-9)


def test_the_shape_metric_shrinks_what_shifts_change():
    """With T the map and W the covariance of shifts, T' (W + mean eigenvalue) T is the identity."""
    windows = np.cumsum(np.random.default_rng(0).normal(size=(2000, 60)), axis=1)
    windows -= windows.mean(axis=1, keepdims=True)
    metric = in_float64(ShapeMetric.fit(windows, np.random.default_rng(1)))
    plain = metric._replace(shrink=np.eye(64))
    draws = np.random.default_rng(1)
    for kernel, channels in LAYERS:
        inputs = kernel if channels == 32 else kernel * 32
        draws.uniform(-1, 1, (inputs, channels))  # the convolutions were drawn first
    first, second = (plain.mapped(part)[0] for part in crops(windows, draws))
    within = (first - second).T @ (first - second) / len(windows)
    within += np.eye(64) * np.trace(within) / 64
    np.testing.assert_allclose(metric.shrink.T @ within @ metric.shrink, np.eye(64), atol=1e-3)


def test_crops_are_parts_of_a_window_at_different_positions():
    windows = np.arange(50) * 100.0 + np.arange(20)[:, None] * 1e6
    first, second = crops(windows, np.random.default_rng(0))
    assert first.shape == second.shape == (20, 45)
    for crop in (first, second):
        assert (np.diff(crop) == 100).all()
        assert (crop[:, 0] // 1e6 == np.arange(20)).all()
    assert (first[:, 0] != second[:, 0]).all()


@pytest.mark.parametrize("causal", [True, False])
def test_neighbours_of_a_single_channel_are_the_nearest_in_the_metric_of_shapes(causal):
    window = Window(WINDOW, causal=causal)
    one = ADDML(window=window, epochs=1, members=1, random_state=0).fit(waves(channels=1)).model_
    X = waves(100, seed=1, channels=1)
    found = one.member_scores(one.vectorizer.read(X), "cpu", 1)[0, WINDOW - 1 :]
    metric = in_float64(ShapeMetric(*(one.scorer_arrays[name] for name in ShapeMetric._fields)))
    references = one.scorer_arrays["rows"].astype(float)
    z, near = (mapped_by_torch(metric, part) for part in (flat_windows(one, X)[0], references))
    expected = nearest_mean(cdist(z, near), 3)
    if not causal:  # the mean of the windows over a step
        expected = [expected[step : step + WINDOW].mean() for step in range(len(expected))]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_a_shape_that_comes_late_is_no_anomaly_but_another_shape_is():
    """A pulse every 40 steps, up to 8 steps late; once it is twice as long."""
    random = np.random.default_rng(0)
    X = 0.02 * random.standard_normal((4000, 1))
    for start in range(20, 3960, 40):
        late = start + int(random.integers(9))
        X[late : late + 6] += 1
    long = slice(3020, 3034)
    X[long] = 1
    detector = ADDML(window=40, random_state=0).fit(X[:2800])
    shapes = detector.model_.member_scores(detector.model_.vectorizer.read(X), "cpu", 1)[0]
    assert shapes[2800:].argmax() + 2800 in range(3020 - 40, 3034 + 40)
    others = np.delete(shapes, np.s_[2980:3074])
    assert shapes[long].max() > 2 * np.quantile(others, 0.999)


def test_the_shape_metric_of_equal_windows_is_finite():
    windows = np.zeros((50, 20), np.float32)
    metric = ShapeMetric.fit(windows, np.random.default_rng(0))
    assert np.isfinite(metric.mapped(windows)[0]).all()
    assert np.isfinite(metric.mapped(np.full((2, 20), 1e6, np.float32))[0]).all()


@pytest.mark.parametrize("channels", [1, 2])
def test_an_accelerator_gives_the_same_scores(channels):
    model = ADDML(window=Window(WINDOW), epochs=1, members=2, random_state=0).fit(waves(channels=channels)).model_
    rows = model.vectorizer.read(waves(100, seed=1, channels=channels))
    np.testing.assert_allclose(model.scores(rows, "cpu:0", 1), model.scores(rows, "cpu", 1), rtol=1e-3, atol=1e-3)
