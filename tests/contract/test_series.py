"""The detector on series: scores of steps, streams, files, and the contract of tables where it makes sense."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

import addml
from addml import ADDML, Autoencoder, Recurrent, Window
from addml.decisions.events import peaks, tail_threshold

STEPS, CHANNELS, WINDOW = 400, 3, 12
RECURRENT = {"encoder": Recurrent((16,), 8)}


def waves(steps=STEPS, seed=0, channels=CHANNELS):
    random = np.random.default_rng(seed)
    phases = np.arange(channels)
    values = np.sin(np.arange(steps)[:, None] / 7 + phases) + 0.1 * random.standard_normal((steps, channels))
    return values.astype(np.float32)


def detector(**changes):
    settings = {
        "encoder": Autoencoder((16,), 8),
        "window": WINDOW,
        "epochs": 3,
        "members": 2,
    }
    return ADDML(**settings, random_state=0).set_params(**changes)


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
        RECURRENT,
        {"encoder": Recurrent((16,), 8, pooling="last")},
        {"members": 1, "encoder": Recurrent((), 8), "scorer": "center"},
        {"encoder": Recurrent((16, 10), 8), "members": 5},
        {"encoder__hidden": (16, 10), "members": 5},
        {"scorer": "center"},
        {"scorer": "knn"},
        {"scaling": "robust"},
        {"loss__distance": "cosine"},
        {"window": 40},
        {"encoder": "mlp"},
    ],
    ids=str,
)
def test_a_stream_gives_the_bits_of_the_causal_scores(changes):
    model = detector(window__causal=True, epochs=1, **changes).fit(waves())
    test = waves(100, seed=2)
    test[50, 1] = test[51, 1] = test[0, 2] = np.nan
    test[60:70] *= 30
    with pytest.warns(UserWarning, match="3 missing value"):
        expected = model.anomaly_score(test)
    stream = model.stream()
    np.testing.assert_array_equal([stream.score(step) for step in test], expected)
    replayed = model.stream()  # training steps: rows that are references themselves
    np.testing.assert_array_equal([replayed.score(step) for step in waves()[:60]], model.anomaly_score(waves()[:60]))


@pytest.mark.parametrize("changes", [{}, RECURRENT, {"encoder": "mlp"}], ids=str)
def test_a_copy_of_a_stream_goes_on_as_the_stream_does(changes):
    model, test = detector(window__causal=True, epochs=1, **changes).fit(waves()), waves(40, seed=2)
    stream, expected = model.stream(), model.anomaly_score(test)
    for step in test[:20]:
        stream.score(step)
    for other in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream)), stream):  # each has its own past
        np.testing.assert_array_equal([other.score(step) for step in test[20:]], expected[20:])


def test_causal_scores_do_not_know_the_future_and_others_do():
    long, model = waves(300, seed=3), detector(window__causal=True).fit(waves())
    np.testing.assert_array_equal(model.anomaly_score(long[:200]), model.anomaly_score(long)[:200])
    changed = long.copy()
    changed[150:] += 5
    np.testing.assert_array_equal(model.anomaly_score(changed)[:150], model.anomaly_score(long)[:150])
    both = detector(scorer="center").fit(waves())
    assert (both.anomaly_score(changed)[140:150] != both.anomaly_score(long)[140:150]).any()


def views_of_steps(model, X):
    """The views (V, n) of causal scores, step by step: that of embeddings is 0 until there is a whole window."""
    raw, scale = model.member_scores(model.vectorizer.read(X), "cpu", 1), model.scale
    views = (raw - scale.median) / scale.unit
    views[model.scorer.embedded(len(model.encoder.weights)), : WINDOW - 1] = 0
    return views


def test_embeddings_say_nothing_of_a_step_until_its_window_is_whole():
    test = np.random.default_rng(3).standard_normal((STEPS, CHANNELS))  # a flat window is the most anomalous one
    fitted = detector(window__causal=True).fit(test)
    test[3, 1] += 9  # only the plain channels show it
    strangest = views_of_steps(fitted.model_, test).max(axis=0)
    expected = np.sign(strangest) * np.log1p(abs(strangest))
    np.testing.assert_allclose(fitted.anomaly_score(test), expected, rtol=1e-9, atol=1e-9)
    assert fitted.anomaly_score(test).argmax() == 3
    np.testing.assert_array_equal(
        fitted.anomaly_score(test[:5]), fitted.anomaly_score(test)[:5]
    )  # shorter than a window


def test_windows_that_are_not_whole_do_not_tell_what_is_usual():
    model = detector(window__causal=True).fit(waves()).model_
    scores = model.member_scores(model.vectorizer.read(waves()), "cpu", 1, learned=True)[:, WINDOW - 1 :]
    median = np.median(scores, axis=1)
    np.testing.assert_allclose(model.scale.median[:, 0], median, rtol=1e-6)
    np.testing.assert_allclose(model.scale.unit[:, 0], np.quantile(scores, 0.9, axis=1) - median, rtol=1e-6)


@pytest.mark.parametrize("members", [1, 2])
def test_a_step_of_which_nothing_is_known_yet_has_the_usual_score(members):
    fitted = detector(window__causal=True, scorer="center", members=members).fit(waves())
    complete = fitted.anomaly_scores_[WINDOW - 1 :]
    usual = np.exp(np.log(complete).mean()) if members == 1 else 0
    np.testing.assert_allclose(fitted.anomaly_scores_[: WINDOW - 1], usual, atol=1e-12)
    assert complete.min() < usual < complete.max()
    np.testing.assert_allclose(fitted.anomaly_score(waves(4, seed=2) + 50), usual, atol=1e-12)


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_first_steps_of_noise_are_as_ordinary_as_the_others(seed):
    X = np.random.default_rng(seed).standard_normal((3000, 2))
    scores = ADDML(window=Window(16, causal=True), random_state=0, device="cpu").fit(X).anomaly_scores_
    far = abs(X[:15]).max(axis=1) > 2  # far values of a channel are anomalous from the first step on
    assert scores[:15][~far].max() < np.quantile(scores, 0.9)
    assert (scores[:15] > np.quantile(scores, 0.99)).sum() <= far.sum()


@pytest.mark.filterwarnings("ignore:.*longer than the window")
def test_after_a_long_gap_a_series_begins_anew():
    times = pd.date_range("2026-01-01", periods=200, freq="min")
    times = times[:100].append(times[100:] + pd.Timedelta("2h"))
    fitted, test = detector(window__causal=True, epochs=1).fit(waves()), waves(200, seed=2)
    scores = fitted.anomaly_score(pd.DataFrame(test, index=times))
    separate = [fitted.anomaly_score(test[:100]), fitted.anomaly_score(test[100:])]
    np.testing.assert_array_equal(scores, np.concatenate(separate))
    stream = fitted.stream()
    np.testing.assert_array_equal([stream.score(step) for step in test[100:]], scores[100:])


@pytest.mark.parametrize("scorer", ["views", "center"])
def test_streams_follow_labels_and_a_refit(scorer):
    labels, X = np.full(STEPS, -1), waves()
    labels[[2, 100, 101, 102]] = 1
    X[labels == 1] += 3
    fitted = detector(window__causal=True, scorer=scorer).fit(X, labels=labels)
    for model in (fitted, fitted.refit(waves(seed=9))):
        stream, test = model.stream(), waves(40, seed=2)
        np.testing.assert_array_equal([stream.score(step) for step in test], model.anomaly_score(test))


@pytest.mark.parametrize("scorer", ["views", "center"])
def test_contributions_of_causal_scores_add_up(scorer):
    """To the score of the views; with other scorers, to the score minus that of the baseline."""
    test = np.random.default_rng(3).standard_normal((STEPS, CHANNELS))
    fitted = detector(window__causal=True, scorer=scorer).fit(test)
    test[3, 1] += 9
    contributions, scores = fitted.explain(test), fitted.anomaly_score(test)
    rest = scores - contributions.sum(axis=1)
    usual = 0 if scorer == "views" else fitted.model_.scores(fitted.baseline_[None], "cpu", 1)[0]
    np.testing.assert_allclose(rest[WINDOW - 1 :], usual, atol=1e-6)
    np.testing.assert_allclose(rest[: WINDOW - 1], rest[0], atol=1e-6)
    if scorer == "center":
        assert not contributions[: WINDOW - 1].any()
    else:
        assert contributions[3].argmax() == 1
    np.testing.assert_array_equal(fitted.explain(test, rows=[30, 3]), contributions[[30, 3]])


def test_series_of_a_list_are_scored_each_by_itself(fitted):
    parts = [waves(100, 4), waves(37, 5), waves(5, 6)]
    together = fitted.anomaly_score(parts)
    np.testing.assert_array_equal(together, np.concatenate([fitted.anomaly_score(part) for part in parts]))
    many = detector().fit(parts)
    assert len(many.anomaly_scores_) == 142


def test_one_channel_and_frames_by_name(fitted):
    univariate = detector().fit(waves()[:, 0])
    np.testing.assert_array_equal(univariate.anomaly_score(waves()[:, 0]), univariate.anomaly_score(waves()[:, :1]))
    table = pd.DataFrame(waves().astype(float), columns=["a", "b", "c"])
    table.insert(0, "when", pd.date_range("2026-01-01", periods=STEPS, freq="min", tz="Asia/Tokyo"))
    named = detector().fit(table)
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(named.anomaly_score(table[["c", "when", "a", "b"]]), named.anomaly_scores_)
    np.testing.assert_allclose(named.anomaly_scores_, fitted.anomaly_scores_, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{}, {"window__causal": True}, {**RECURRENT, "window__causal": True}, {"members": 1}],
    ids=str,
)
def test_save_and_load(tmp_path, changes):
    model = detector(**changes).fit(waves())
    model.save(tmp_path / "model")
    again, test = addml.load(tmp_path / "model"), waves(seed=7)
    np.testing.assert_array_equal(again.anomaly_score(test), model.anomaly_score(test))
    np.testing.assert_array_equal(again.p_values(test), model.p_values(test))
    if changes.get("window__causal"):
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
    with pytest.raises(ValueError, match=r"at least 2 complete windows must end at a normal .* step, not 0;"):
        model.refit(X[:3])
    labels = np.ones(STEPS, int)
    labels[:2] = 0  # steps without a whole window
    with pytest.raises(ValueError, match=r"unlabelled step, not .; give a longer series"):
        detector().fit(X, labels=labels)
    with pytest.raises(ValueError, match=rf"cannot prepare rows with window=Window\(length={model.window + 1}\):"):
        model.set_params(window=model.window + 1).refit(X)


@pytest.mark.parametrize("steps", [2, 3, 9, 17, 400])
def test_the_window_that_an_error_proposes_is_one_to_learn_from(steps):
    with pytest.raises(ValueError, match="use a window of at most") as refused:
        detector(window=steps).fit(waves(steps))
    most = int(re.search(r"at most (\d+), or", str(refused.value))[1])
    assert detector(window=most, epochs=1).fit(waves(steps)).history_[0]["rows_kept"] >= 2


def test_the_stride_is_how_far_windows_to_learn_from_lie_apart():
    every, few = detector(window__stride=1).fit(waves()), detector(window__stride=40).fit(waves())
    assert every.rows_kept().any(axis=(0, 1)).sum() > 200
    kept = np.flatnonzero(few.rows_kept().any(axis=(0, 1)))
    assert set((kept - (WINDOW - 1)) % 40) == {0}


@pytest.mark.parametrize(
    ("settings", "X", "message"),
    [
        ({"window": None}, waves(), r"encoder=Autoencoder\(.*\) is for series; set window="),
        ({"window": 500}, waves(), r"window=500 leaves 0 complete windows, as no series has more than 400 steps"),
        (
            {**RECURRENT, "window": 399},
            waves(),
            r"length=399\): at least 2 complete windows .* not 1; give a longer",
        ),
        (
            {"window__stride": 500},
            waves(),
            r"Window\(length=12, stride=500\): .* a smaller window or stride",
        ),
        ({"window": 0}, waves(), "length=0 must be a whole number of at least 1"),
        ({"window__stride": 0}, waves(), "stride=0 must be"),
        ({"encoder": Recurrent(pooling="max")}, waves(), "pooling='max' is not known"),
        ({"window__causal": "yes"}, waves(), "causal='yes' must be True or False"),
        ({"encoder": Recurrent(activation="relu")}, waves(), "activation='relu': recurrent layers use tanh"),
        ({"window": "day"}, waves(), "window='day' must be a number of steps, such as 16"),
        ({}, np.zeros((2, 3, 4)), "X has shape"),
        ({}, waves()[:1], r"no series has more than 1 step without a long gap; use a longer series"),
        (
            {},
            [waves()[:9], waves()[:7]],
            r"more than 9 steps without a long gap; use a window of at most 7, or a longer",
        ),
    ],
)
def test_what_cannot_be_is_said(settings, X, message):
    with pytest.raises(ValueError, match=message):
        detector(**settings).fit(X)


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_the_largest_numbers_are_scored_as_they_come_without_a_warning(scaling, recwarn):
    model = detector(window__causal=True, epochs=1, scaling=scaling).fit(waves() * 1e-3)
    steps = np.full((3, waves().shape[1]), 1e308) * [[1], [-1], [1]]
    stream = model.stream()
    scores = [stream.score(step) for step in steps]
    np.testing.assert_array_equal(scores, model.anomaly_score(steps))
    assert not recwarn.list


def test_a_stream_of_channels_near_the_largest_numbers():
    """Differences from their mean are beyond float64, deviations are not."""
    series = waves() * [1, 1e307, 1] + [0, 9e307, 0]
    fitted = detector(window__causal=True, epochs=1, scaling="standard").fit(series)
    steps = series[:6].copy()
    steps[3, 1] = -1.7e308
    stream = fitted.stream()
    np.testing.assert_array_equal([stream.score(step) for step in steps], fitted.anomaly_score(steps))


def test_scoring_refuses_other_channels_and_streams_say_what_they_need(fitted):
    with pytest.raises(ValueError, match="X has 2 channels, but the detector was fitted to 3"):
        fitted.anomaly_score(waves()[:, :2])
    with pytest.raises(ValueError, match=r"stream\(\) cannot see future steps"):
        fitted.stream()
    with pytest.raises(ValueError, match=r"stream\(\) is for series"):
        ADDML(epochs=1, members=1).fit(waves()).stream()
    stream = detector(window__causal=True, epochs=1).fit(waves()).stream()
    with pytest.raises(ValueError, match="the step has 2 channels, but the detector"):
        stream.score([1.0, 2.0])
    with pytest.raises(ValueError, match="infinity"):
        stream.score([1.0, 2.0, np.inf])
    with pytest.raises(ValueError, match=r"^step=\['a', 'b', 'c'\] does not hold one number for each channel"):
        stream.score(["a", "b", "c"])
    with pytest.raises(TypeError, match=r"^step=\{'x': 1\} does not hold one number for each channel"):
        stream.score({"x": 1})
    with pytest.raises(OverflowError, match=r"^step=\[10+, 0, 0\] does not hold one number for each channel"):
        stream.score([10**400, 0, 0])
    assert stream.is_anomaly([90.0, 0.0, 0.0]) is True


def test_steps_with_names_go_by_them():
    """As frames do, in `anomaly_score`."""
    frame = pd.DataFrame(waves(), columns=["a", "b", "c"])
    fitted, test = detector(window__causal=True, epochs=1).fit(frame), frame[["c", "a", "b"]][:20]
    expected = fitted.anomaly_score(frame[:20])
    for steps in (
        [step for _, step in test.iterrows()],
        test.to_dict("records"),
        [test[row : row + 1] for row in range(20)],
        [pl.from_pandas(test)[row] for row in range(20)],
        frame[:20].to_numpy(),
        [pd.Series(step) for step in frame[:20].to_numpy()],  # numbers are no names
    ):
        stream = fitted.stream()
        np.testing.assert_array_equal([stream.score(step) for step in steps], expected)
    for other in ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, pd.Series({"a": 1, "b": 2, "x": 3})):
        with pytest.raises(ValueError, match=r"the step has the channels \['a', 'b'.*the detector \['a', 'b', 'c'\]"):
            fitted.stream().score(other)


@pytest.mark.filterwarnings("ignore:.*missing value")
@pytest.mark.parametrize("changes", [{}, {"scaling": "robust", "one_sided": {0: "high"}}])
def test_values_missing_at_the_start_are_filled_as_in_training(changes):
    X = waves().cumsum(axis=0)
    X[:5, 0], X[50:150, 0] = np.nan, np.nan  # the second gap moves the median of the filled values
    fitted = detector(epochs=1, **changes).fit(X)
    assert np.nanmedian(X[:, 0]) == pytest.approx(fitted.model_.step_features.median[0])
    np.testing.assert_array_equal(fitted.anomaly_score(X), fitted.anomaly_scores_)
    causal = detector(epochs=1, window__causal=True, **changes).fit(X)
    stream = causal.stream()
    np.testing.assert_array_equal([stream.score(step) for step in X], causal.anomaly_score(X))


@pytest.mark.filterwarnings("ignore:.*missing value")
def test_channels_without_a_value_are_named():
    table = pd.DataFrame({"a": waves()[:, 0], "silent": np.nan})
    with pytest.warns(UserWarning, match="channels without any value are ignored: 'silent'"):
        detector(epochs=1).fit(table)


def test_channels_of_many_series_go_by_their_names():
    frame = pd.DataFrame(waves() + np.array([0, 50, 100]), columns=["a", "b", "c"])
    together = detector().fit([frame, frame])
    np.testing.assert_array_equal(
        detector().fit([frame, frame[["c", "a", "b"]]]).anomaly_scores_, together.anomaly_scores_
    )
    np.testing.assert_array_equal(together.anomaly_score([frame[["b", "a", "c"]]]), together.anomaly_score(frame))
    with pytest.raises(ValueError, match=r"X has the channels \['a', 'b', 'd'\], other series have \['a', 'b', 'c'\]"):
        detector().fit([frame, frame.rename(columns={"c": "d"})])


def test_gaps_cut_a_series_into_parts_too_short_for_a_window():
    times = pd.date_range("2026-01-01", periods=900, freq="min")[np.arange(900) % 90 < 11]
    X = pd.DataFrame(waves()[: len(times)], index=times)
    with pytest.warns(UserWarning, match="longer than the window"), pytest.raises(ValueError, match="at most 8, or"):
        detector().fit(X)


# The window that suits a series ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "length", "reason"),
    [
        (np.sin(np.arange(600) * 2 * np.pi / 24), 24, "the period of the series, from its autocorrelation"),
        (waves(), 10, "the default for 3 channels"),
        ([waves(50), waves(300, 1)], 10, "the default for 3 channels"),
    ],
)
def test_the_window_is_chosen_and_why(X, length, reason):
    fitted = ADDML(window="auto", epochs=1, members=1, random_state=0).fit(X)
    assert fitted.model_.row_shape.shape[0] == length
    assert fitted.sampling_.window == reason
    given = ADDML(window=length, epochs=1, members=1, random_state=0).fit(X)
    np.testing.assert_array_equal(given.anomaly_scores_, fitted.anomaly_scores_)
    assert given.sampling_.window == ""
    assert not np.array_equal(fitted.refit(X).anomaly_scores_, given.anomaly_scores_)  # its window stays


# What the views of windows see ----------------------------------------------------------------------------------


def daily(days=40, seed=0):
    hours = np.arange(24 * days)
    return np.sin(hours * 2 * np.pi / 24) + 0.05 * np.random.default_rng(seed).standard_normal(len(hours))


def test_a_shape_that_never_was_and_a_lone_value_stand_out():
    """A flat night has ordinary values, a spike an ordinary neighbourhood."""
    X = daily()
    X[500:524] = 0.3
    X[800] += 6
    scores = ADDML(window="auto", random_state=0).fit(X).anomaly_scores_
    assert scores.argmax() == 800
    others = np.r_[24:470, 560:770, 830:936]
    assert scores[505:520].min() > scores[others].max()


def test_one_channel_far_out_does_not_hide_the_others():
    X, test = waves(1000), waves(400, seed=1)
    test[50:60, 0] = 1e4
    test[200:210, 1] += 3
    scores = detector().fit(X).anomaly_score(test)
    ordinary = np.r_[0:30, 90:180, 240:400]
    assert scores[203:207].min() > scores[ordinary].max()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("channel", [0, 2])
def test_the_broken_channel_is_named_and_contributions_add_up(causal, channel):
    model, test = detector(window__causal=causal).fit(waves(1000)), waves(seed=1)
    test[200:206, channel] += 2
    contributions, scores = model.explain(test), model.anomaly_score(test)
    np.testing.assert_allclose(contributions.sum(axis=1), scores, atol=1e-9)
    assert (contributions[201:206].argmax(axis=1) == channel).all()
    np.testing.assert_allclose(model.explain(test, rows=[203, 7]), contributions[[203, 7]], rtol=1e-6)


# Events -------------------------------------------------------------------------------------------------------------


def faulty(steps=3000, seed=0, faults=(900, 2100)):
    X = np.sin(np.arange(steps) / 8)[:, None] + 0.05 * np.random.default_rng(seed).standard_normal((steps, 1))
    for start in faults:
        X[start : start + 40] = X[start]
    return X


def test_a_series_is_decided_by_its_events_and_a_table_by_a_share():
    detector = ADDML(window=50, members=2, epochs=4, random_state=0).fit(faulty())
    assert detector.decision_.method == "event_rate"
    assert detector.is_anomaly(faulty(seed=1, faults=())).mean() < 0.01
    by_hand = tail_threshold(peaks(detector.anomaly_scores_, 50, [0]))
    assert detector.threshold_ == by_hand
    assert detector.set_threshold(contamination=0.02).decision_.method == "quantile"
    assert detector.set_threshold(method="events").threshold_ == by_hand
    assert ADDML(epochs=1).fit(np.random.default_rng(0).normal(size=(200, 3))).decision_.share == 0.1
    with pytest.raises(ValueError, match="method='events' is for series"):
        ADDML(epochs=1).fit(np.random.default_rng(0).normal(size=(200, 3))).set_threshold(method="events")
    with pytest.raises(ValueError, match="contamination='events' is for series"):
        ADDML(contamination="events").fit(np.ones((9, 2)))


def test_events_are_the_planted_faults_and_a_count_limits_them():
    X, new = (faulty(6000, seed, (900, 4100)) for seed in (0, 1))
    detector = ADDML(window=50, members=2, epochs=4, random_state=0).fit(X)
    for events in (detector.events(), detector.events(new)):
        assert sorted(event.peak // 1000 for event in events) == [0, 4]
        assert all(event.start <= event.peak < event.stop for event in events)
    assert len(detector.events(count=1)) == 1
    assert len(detector.events(count=5)) >= 4
    two = detector.events([faulty(1000, seed=1, faults=(300,)), faulty(1000, seed=2, faults=(300,))])
    assert sorted(event.peak // 1000 for event in two) == [0, 1]
    with pytest.raises(ValueError, match="is for series"):
        ADDML(epochs=1).fit(np.random.default_rng(0).normal(size=(200, 3))).events()
