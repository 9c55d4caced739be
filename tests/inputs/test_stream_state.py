"""A stream goes on where it was saved, with the same bits, and one of an entity scores as the batch does."""

import json

import numpy as np
import pandas as pd
import pytest

from addml import ADDML, Window

RANDOM = np.random.default_rng(0)
X = np.sin(np.arange(300)[:, None] / 5 + np.arange(2)) + 0.1 * RANDOM.standard_normal((300, 2))
QUICK = {"window": Window(8, causal=True), "epochs": 2, "members": 2, "random_state": 0}


@pytest.mark.parametrize("encoder", ["auto", "recurrent"])
def test_a_saved_stream_goes_on_with_the_same_bits(tmp_path, encoder):
    detector = ADDML(encoder=encoder, **QUICK).fit(X)
    whole, first = detector.stream(), detector.stream()
    expected = [whole.score(step) for step in X[:60]]
    found = [first.score(step) for step in X[:25]]
    first.score([np.nan, 1.0])
    first.save(tmp_path / "state")
    again = detector.stream().restore(tmp_path / "state")
    steps = [[np.nan, 2.0], *X[26:60]]
    assert found == expected[:25]
    assert [again.score(step) for step in steps] == [first.score(step) for step in steps]
    assert json.loads((tmp_path / "state" / "model.json").read_text())["stream"]["entity"] is None


def test_a_stream_of_another_model_is_refused(tmp_path):
    one, other = ADDML(**QUICK).fit(X), ADDML(**QUICK | {"random_state": 1}).fit(X)
    stream = one.stream()
    stream.score(X[0])
    stream.save(tmp_path / "state")
    with pytest.raises(ValueError, match="is not a stream of this model and entity"):
        other.stream().restore(tmp_path / "state")
    one.save(tmp_path / "model")
    with pytest.raises(ValueError, match="is not a stream"):
        one.stream().restore(tmp_path / "model")


def test_one_stream_an_entity(tmp_path):
    series = {"a": X, "b": 50 * X[::-1] + 300}
    detector = ADDML(by="host", **QUICK).fit(series)
    with pytest.warns(UserWarning, match="missing value"):
        batch = detector.anomaly_score({"b": np.vstack([[np.nan, 7.0], series["b"][:40]])})
    stream = detector.stream(entity="b")
    assert [stream.score(step) for step in [[np.nan, 7.0], *series["b"][:40]]] == batch.tolist()
    with pytest.raises(ValueError, match="name the entity"):
        detector.stream()
    with pytest.raises(ValueError, match="without by: leave entity out"):
        ADDML(**QUICK).fit(X).stream(entity="b")


def test_streams_of_many_entities_score_as_the_batch_does(tmp_path):
    series = {name: (k + 1) * X[k : k + 60] + 10 * k for k, name in enumerate("abc")}
    detector = ADDML(by="host", **QUICK).fit({**series, "a": X})
    expected = {name: detector.anomaly_score({name: values}) for name, values in series.items()}
    streams = detector.streams(list(series))
    together = np.stack([values[:30] for values in series.values()], axis=1)  # (steps, entities, channels)
    found = np.array([streams.score(steps) for steps in together])
    for column, name in enumerate(series):
        assert found[:, column].tolist() == expected[name][:30].tolist()
    streams.save(tmp_path / "state")
    again = detector.streams(list(series)).restore(tmp_path / "state")
    for k in range(30, 40):
        assert again.score([series["c"][k], series["a"][k]], rows=[2, 0]).tolist() == [
            expected["c"][k], expected["a"][k],
        ]  # fmt: skip
    with pytest.raises(ValueError, match=r"give one of \(3, 2\), entities by channels"):
        streams.score(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="is not a stream"):
        detector.streams(["a"]).restore(tmp_path / "state")
    for rows in ([0, 0], [-1, 2], [1, 3]):  # -1 and 2 are the same stream
        with pytest.raises(ValueError, match="must be different positions from 0 to 2"):
            streams.score(np.zeros((2, 2)), rows=rows)
    for entities in ("abc", ["a", "a"]):
        with pytest.raises(ValueError, match="must be a list of different names"):
            detector.streams(entities)


def test_streams_of_many_entities_go_by_the_names_of_channels():
    frames = {name: pd.DataFrame(X * scale, columns=["load", "heat"]) for name, scale in (("a", 1), ("b", 9))}
    detector = ADDML(by="host", **QUICK).fit(frames)
    expected = [detector.anomaly_score({name: frame[:20]})[-1] for name, frame in frames.items()]
    for kind in (lambda steps: steps[["heat", "load"]], lambda steps: steps.to_dict("records")):
        streams = detector.streams(["a", "b"])
        for k in range(20):
            found = streams.score(kind(pd.concat([frames["a"][k : k + 1], frames["b"][k : k + 1]])))
        assert found.tolist() == expected
    with pytest.raises(ValueError, match=r"the step has the channels \['load'\]"):
        streams.score([{"load": 1.0}, {"load": 1.0}])
    with pytest.raises(ValueError, match=r"steps=.* does not hold one number for each channel"):
        streams.score([["a", 1], [2, 3]])
