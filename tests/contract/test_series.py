"""The detector on series: scores of steps, streams, files, and the contract of tables where it makes sense."""

import re

import numpy as np
import pandas as pd
import pytest

import addml
from addml import ADDML

STEPS, CHANNELS, WINDOW = 400, 3, 12


def waves(steps=STEPS, seed=0, channels=CHANNELS):
    random = np.random.default_rng(seed)
    phases = np.arange(channels)
    values = np.sin(np.arange(steps)[:, None] / 7 + phases) + 0.1 * random.standard_normal((steps, channels))
    return values.astype(np.float32)


def detector(**changes):
    settings = {"encoder": "recurrent", "window": WINDOW, "epochs": 3, "members": 2, "hidden": (16,), "metric_dim": 8}
    return ADDML(**{**settings, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def fitted():
    return detector().fit(waves())


def test_every_step_has_a_score_and_a_broken_one_stands_out(fitted):
    test = waves(seed=1)
    test[200:210, 1] += 4
    scores = fitted.anomaly_score(test)
    assert scores.shape == (STEPS,)
    assert np.isfinite(scores).all()
    assert 195 <= scores.argmax() <= 215
    assert fitted.predict(test)[205] == -1
    assert fitted.predict_proba(test).shape == (STEPS, 2)
    contributions = fitted.explain(test, rows=np.array([205]))
    assert contributions.shape == (1, CHANNELS)
    assert contributions[0].argmax() == 1
    assert fitted.n_features_in_ == CHANNELS
    assert len(fitted.anomaly_scores_) == STEPS


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell": "gru"},
        {"cell": "tcn", "hidden": None},
        {"cell": "tcn", "hidden": (8,), "pooling": "last"},
        {"pooling": "last"},
        {"members": 1, "hidden": (), "scorer": "center"},
        {"hidden": (16, 10), "members": 5},
        {"scorer": "center"},
        {"scorer": "knn"},
        {"scaling": "robust"},
        {"distance": "cosine"},
        {"window": 40},
        {"encoder": "mlp"},
    ],
    ids=str,
)
def test_a_stream_gives_the_bits_of_the_causal_scores(changes):
    model = detector(causal=True, **changes).fit(waves())
    test = waves(300, seed=2)
    test[50, 1] = test[51, 1] = test[0, 2] = np.nan
    test[100:110] *= 30
    with pytest.warns(UserWarning, match="3 missing value"):
        expected = model.anomaly_score(test)
    stream = model.stream()
    np.testing.assert_array_equal([stream.score(step) for step in test], expected)
    replayed = model.stream()  # training steps: rows that are references themselves
    np.testing.assert_array_equal([replayed.score(step) for step in waves()], model.anomaly_scores_)


def test_causal_scores_do_not_know_the_future_and_others_do():
    long, model = waves(300, seed=3), detector(causal=True).fit(waves())
    np.testing.assert_array_equal(model.anomaly_score(long[:200]), model.anomaly_score(long)[:200])
    changed = long.copy()
    changed[150:] += 5
    np.testing.assert_array_equal(model.anomaly_score(changed)[:150], model.anomaly_score(long)[:150])
    both = detector(scorer="center").fit(waves())
    assert (both.anomaly_score(changed)[140:150] != both.anomaly_score(long)[140:150]).any()


def test_series_of_a_list_are_scored_each_by_itself(fitted):
    parts = [waves(100, 4), waves(37, 5), waves(5, 6)]
    together = fitted.anomaly_score(parts)
    np.testing.assert_array_equal(together, np.concatenate([fitted.anomaly_score(part) for part in parts]))
    many = detector().fit(parts)
    assert len(many.anomaly_scores_) == 142


def test_one_channel_and_frames_by_name(fitted):
    one = detector().fit(waves()[:, 0])
    np.testing.assert_array_equal(one.anomaly_score(waves()[:, 0]), one.anomaly_score(waves()[:, :1]))
    table = pd.DataFrame(waves().astype(float), columns=["a", "b", "c"])
    table.insert(0, "when", pd.date_range("2026-01-01", periods=STEPS, freq="min", tz="Asia/Tokyo"))
    named = detector().fit(table)
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(named.anomaly_score(table[["c", "when", "a", "b"]]), named.anomaly_scores_)
    np.testing.assert_allclose(named.anomaly_scores_, fitted.anomaly_scores_, rtol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"cell": "gru", "causal": True}, {"cell": "tcn", "hidden": (8,)}], ids=str)
def test_save_and_load(tmp_path, changes):
    model = detector(**changes).fit(waves())
    model.save(tmp_path / "model")
    again, test = addml.load(tmp_path / "model"), waves(seed=7)
    np.testing.assert_array_equal(again.anomaly_score(test), model.anomaly_score(test))
    np.testing.assert_array_equal(again.confidence(test), model.confidence(test))
    if changes.get("causal"):
        np.testing.assert_array_equal([again.stream().score(test[0])], model.anomaly_score(test)[:1])


def test_labels_members_early_stopping_and_refit_work_as_for_tables():
    labels = np.full(STEPS, -1)
    labels[100:103], labels[200:300] = 1, 0
    X = waves()
    X[100:103] += 3
    model = detector(epochs=60, patience=1, members=3, learning_rate=0.05).fit(X, labels=labels)
    assert len(model.history_) < 60
    assert len(model.history_[0]["members"]) == 3
    assert model.anomaly_scores_[101] > np.quantile(model.anomaly_scores_, 0.97)
    assert model.rows_kept().shape[2] == STEPS
    before = model.anomaly_scores_
    assert not np.array_equal(model.refit(waves(seed=9)).anomaly_scores_, before)
    first, second = detector().fit(waves()), detector().fit(waves())
    np.testing.assert_array_equal(first.anomaly_scores_, second.anomaly_scores_)


def test_too_little_to_learn_from():
    model, X = detector().fit(waves()), waves()
    with pytest.raises(ValueError, match=r"0 end at a step that is normal or unknown, and at least 2"):
        model.refit(X[:3])
    labels = np.ones(STEPS, int)
    labels[:2] = 0  # steps without a whole window
    with pytest.raises(ValueError, match=r"normal or unknown, .* needed; give a longer series"):
        detector().fit(X, labels=labels)
    with pytest.raises(ValueError, match=f"refit prepares rows as before, not by window={model.window + 1}:"):
        model.set_params(window=model.window + 1).refit(X)


@pytest.mark.parametrize("steps", [2, 3, 9, 17, 400])
def test_the_window_that_an_error_proposes_is_one_to_learn_from(steps):
    with pytest.raises(ValueError, match="give a window of at most") as refused:
        detector(window=steps).fit(waves(steps))
    most = int(re.search(r"at most (\d+), or", str(refused.value))[1])
    assert detector(window=most, epochs=1).fit(waves(steps)).history_[0]["rows_kept"] >= 2


def test_the_stride_is_how_far_windows_to_learn_from_lie_apart():
    every, few = detector(stride=1).fit(waves()), detector(stride=40).fit(waves())
    assert every.rows_kept().any(axis=(0, 1)).sum() > 200
    kept = np.flatnonzero(few.rows_kept().any(axis=(0, 1)))
    assert set((kept - (WINDOW - 1)) % 40) == {0}


@pytest.mark.parametrize(
    ("settings", "X", "message"),
    [
        ({"window": None}, waves(), r"encoder='recurrent' needs window=\.\.\."),
        ({"window": 500}, waves(), r"window=500 makes 0 whole windows of.*longest series has 400 step"),
        ({"window": 399}, waves(), r"window=399, stride=99: .* 1 ends .* at least 2 are needed; give a longer"),
        ({"stride": 500}, waves(), "window=12, stride=500: .* a smaller window or stride"),
        ({"window": 0}, waves(), "window=0 must be a whole number of at least 1"),
        ({"stride": 0}, waves(), "stride=0 must be"),
        ({"cell": "lstm"}, waves(), "cell='lstm' is not known"),
        ({"pooling": "max"}, waves(), "pooling='max' is not known"),
        ({"causal": "yes"}, waves(), "causal='yes' must be True or False"),
        ({"activation": "relu"}, waves(), "activation='relu' does not act on cell='tanh'"),
        ({"cell": "tcn", "hidden": (8,) * 5}, waves(), "5 convolutions see 63 steps, more than window=12"),
        ({}, np.zeros((2, 3, 4)), "X has shape"),
        ({}, waves()[:1], r"has 1 step in a row at most; give a longer series"),
        ({}, [waves()[:9], waves()[:7]], r"has 9 steps in a row at most; give a window of at most 7, or a longer"),
        ({"encoder": "mlp", "window": None, "stride": 2}, waves(), "stride=2 is about series; give window"),
        ({"encoder": "mlp", "window": None, "causal": True}, waves(), "causal=True is about series"),
        ({"encoder": "mlp", "cell": "gru"}, waves(), "cell='gru' is about encoder='recurrent'"),
    ],
)
def test_what_cannot_be_is_said(settings, X, message):
    with pytest.raises(ValueError, match=message):
        detector(**settings).fit(X)


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_the_largest_numbers_are_scored_as_they_come_without_a_warning(scaling, recwarn):
    model = detector(causal=True, epochs=1, scaling=scaling).fit(waves() * 1e-3)
    steps = np.full((3, waves().shape[1]), 1e308) * [[1], [-1], [1]]
    stream = model.stream()
    scores = [stream.score(step) for step in steps]
    np.testing.assert_array_equal(scores, model.anomaly_score(steps))
    assert not recwarn.list


def test_a_stream_of_channels_near_the_largest_numbers():
    """Differences from their mean are beyond float64, deviations are not."""
    series = waves() * [1, 1e307, 1] + [0, 9e307, 0]
    fitted = detector(causal=True, epochs=1, scaling="standard").fit(series)
    steps = series[:6].copy()
    steps[3, 1] = -1.7e308
    stream = fitted.stream()
    np.testing.assert_array_equal([stream.score(step) for step in steps], fitted.anomaly_score(steps))


def test_scoring_refuses_other_channels_and_streams_say_what_they_need(fitted):
    with pytest.raises(ValueError, match=r"X has 2 channels, the detector was fitted to 3"):
        fitted.anomaly_score(waves()[:, :2])
    with pytest.raises(ValueError, match="fit with causal=True"):
        fitted.stream()
    with pytest.raises(ValueError, match=r"stream\(\) is for series"):
        ADDML(epochs=1, members=1).fit(waves()).stream()
    stream = detector(causal=True, epochs=1).fit(waves()).stream()
    with pytest.raises(ValueError, match=r"the step has 2 channels"):
        stream.score([1.0, 2.0])
    with pytest.raises(ValueError, match="infinity"):
        stream.score([1.0, 2.0, np.inf])
    with pytest.raises(ValueError, match=r"^step=\['a', 'b', 'c'\] does not hold one number for each channel"):
        stream.score(["a", "b", "c"])
    with pytest.raises(TypeError, match=r"^step=\{'x': 1\} does not hold one number for each channel"):
        stream.score({"x": 1})
    assert stream.is_anomaly([90.0, 0.0, 0.0]) is True


@pytest.mark.filterwarnings("ignore:.*missing value")
@pytest.mark.parametrize("changes", [{}, {"scaling": "robust", "one_sided": {0: "high"}}])
def test_values_missing_at_the_start_are_filled_as_in_training(changes):
    X = waves().cumsum(axis=0)
    X[:5, 0], X[50:150, 0] = np.nan, np.nan  # the second gap takes values, and so moves the median of what is filled
    one = detector(epochs=1, causal=True, **changes).fit(X)
    assert np.nanmedian(X[:, 0]) == pytest.approx(one.model_.step_features.median[0])
    np.testing.assert_array_equal(one.anomaly_score(X), one.anomaly_scores_)
    stream = one.stream()
    np.testing.assert_array_equal([stream.score(step) for step in X], one.anomaly_scores_)


@pytest.mark.filterwarnings("ignore:.*missing value")
def test_channels_without_a_value_are_named():
    table = pd.DataFrame({"a": waves()[:, 0], "silent": np.nan})
    with pytest.warns(UserWarning, match="channels without a single value tell nothing: 'silent'"):
        detector(epochs=1).fit(table)


def test_channels_of_many_series_go_by_their_names():
    one = pd.DataFrame(waves() + np.array([0, 50, 100]), columns=["a", "b", "c"])
    together = detector().fit([one, one])
    np.testing.assert_array_equal(detector().fit([one, one[["c", "a", "b"]]]).anomaly_scores_, together.anomaly_scores_)
    np.testing.assert_array_equal(together.anomaly_score([one[["b", "a", "c"]]]), together.anomaly_score(one))
    with pytest.raises(ValueError, match=r"X has the channels \['a', 'b', 'd'\] where others have \['a', 'b', 'c'\]"):
        detector().fit([one, one.rename(columns={"c": "d"})])


def test_gaps_cut_a_series_into_parts_too_short_for_a_window():
    times = pd.date_range("2026-01-01", periods=900, freq="min")[np.arange(900) % 90 < 11]
    X = pd.DataFrame(waves()[: len(times)], index=times)
    with pytest.warns(UserWarning, match="longer than the window"), pytest.raises(ValueError, match="at most 8, or"):
        detector().fit(X)
