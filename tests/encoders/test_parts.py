"""Encoders and losses as parts of a detector: scikit-learn copies and sets their parameters, `check` validates."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

from addml.encoders import MLP, Conv, Recurrent
from addml.learning.losses import CenterCloseness, InstanceCloseness

PARTS = (MLP, Conv, Recurrent, InstanceCloseness, CenterCloseness)


class Holder(BaseEstimator):
    """An estimator with one part."""

    def __init__(self, part=None):
        self.part = part


@pytest.mark.parametrize("part", PARTS)
def test_scikit_learn_clones_and_sets_a_part(part):
    holder = Holder(part())
    copied = clone(holder)
    assert copied.part == holder.part
    assert copied.part is not holder.part
    name = "metric_dim" if hasattr(holder.part, "metric_dim") else "margin"
    copied.set_params(**{f"part__{name}": 7})
    assert getattr(copied.part, name) == 7 != getattr(holder.part, name)
    assert copied.get_params()[f"part__{name}"] == 7
    with pytest.raises(ValueError, match="has no parameter 'colour'"):
        copied.part.set_params(colour=1)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (MLP(hidden=(0,)), r"hidden=\(0,\) must be a tuple of layer widths"),
        (MLP(hidden=64), "hidden=64 must be a tuple"),
        (Conv(metric_dim=0), "metric_dim=0 must be a whole number of at least 1"),
        (MLP(metric_dim=2**17), "metric_dim=131072 is too large"),
        (MLP(activation="swish"), "activation='swish' is not known"),
        (Recurrent(pooling="max"), "pooling='max' is not known"),
        (Recurrent(activation="relu"), "recurrent layers use tanh"),
        (InstanceCloseness(distance="manhattan"), "distance='manhattan' is not known"),
        (InstanceCloseness(hard_ratio=0), r"hard_ratio=0 must be a number in \(0, 1\]"),
        (CenterCloseness(margin=np.inf), r"margin=inf must be a number in \(0, inf\)"),
        (InstanceCloseness(anomaly_pairs="yes"), "anomaly_pairs='yes' must be True or False"),
        (InstanceCloseness(miner="hard"), "miner='hard' must be None or a pair miner"),
    ],
)
def test_a_wrong_parameter_is_refused_when_checked(part, message):
    with pytest.raises(ValueError, match=message):
        part.check()


@pytest.mark.parametrize("part", PARTS)
def test_the_defaults_are_valid(part):
    part().check()


def test_parts_build_what_training_works_with():
    rngs = [np.random.default_rng(e) for e in range(2)]
    assert MLP().build((5,), rngs).to_plain()["widths"] == [5, 64, 32]
    assert MLP(hidden=()).build((2, 3), rngs).to_plain()["widths"] == [6, 32]
    assert Conv().build((1, 8, 8), rngs).to_plain()["channels"] == [16, 32]
    assert Recurrent().build((9, 2), rngs).to_plain()["hidden"] == [64]
    assert InstanceCloseness(margin=2.0).used_margin == 2
    assert CenterCloseness(distance="cosine").used_margin == 1
