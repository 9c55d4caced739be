"""Closeness losses against their definitions written out, and against autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from addml.arrays import to_numpy
from addml.learning.losses import (
    CLOSENESS,
    LOSSES,
    Batch,
    CenterCloseness,
    InstanceCloseness,
    center_closeness,
    instance_closeness,
)
from tests.grids import pairwise

KINDS = [np.asarray, torch.as_tensor]
DISTANCES = ["sqeuclidean", "euclidean", "cosine"]


def distance(a, b, name):
    if name == "cosine":
        return 1 - torch.nn.functional.cosine_similarity(a, b, dim=0)
    squared = ((a - b) ** 2).sum()
    return squared if name == "sqeuclidean" else squared.sqrt()


def written_out(z, center, normal, anomalies, objective):
    """One member's contrastive loss by loops: hard closeness terms and every hinge term, divided by their number."""
    n, d = z[:normal], z[len(z) - anomalies :]
    if objective.name == "instance":
        close = [distance(n[i], n[j], objective.distance) for i in range(len(n)) for j in range(i)]
        far = [distance(x, y, objective.distance) for x in n for y in d]
        alike = [distance(d[i], d[j], objective.distance) for i in range(len(d)) for j in range(i)]
    else:
        close = [distance(x, center, objective.distance) for x in n]
        far, alike = [distance(y, center, objective.distance) for y in d], []
    k = max(1, int(np.ceil(objective.hard_ratio * len(close) - 1e-9)))
    cutoff = sorted((float(c.detach()) for c in close), reverse=True)[k - 1] if close else np.inf
    terms = [c for c in close if float(c.detach()) >= cutoff]
    terms += [torch.clamp(objective.margin - f, min=0) for f in far]
    terms += alike if getattr(objective, "anomaly_pairs", False) else []
    return sum(terms) / len(terms)


LOSSES_AND_LABELS = [
    ("instance", "none"),
    ("instance", "some"),
    ("instance", "pairs"),
    ("center", "none"),
    ("center", "some"),
]


@pytest.mark.parametrize(
    ("kind", "loss_and_labels", "name", "hard_ratio"),
    pairwise(KINDS, LOSSES_AND_LABELS, DISTANCES, [1.0, 1 / 3, 0.001]),
)
def test_value_and_gradient_are_the_definition_s(kind, loss_and_labels, name, hard_ratio):
    loss, labels = loss_and_labels
    random = np.random.default_rng(5)
    # two members in one padded batch: 7 and 5 normal rows, 3 and 2 anomalies (or none)
    normal, anomalies = [7, 5], [3, 2] if labels != "none" else [0, 0]
    z = random.standard_normal((2, 7 + max(anomalies), 4)) * 0.6
    center = random.standard_normal((2, 4)) * 0.2
    objective = CLOSENESS[loss](name, hard_ratio, 1.3, *([labels == "pairs"] if loss == "instance" else []))
    batch = Batch(None, 7, normal, anomalies)
    ours = LOSSES[loss](kind(z.copy()), kind(center), batch, objective)
    for e in range(2):
        leaf = torch.tensor(z[e], requires_grad=True)
        real = torch.cat([leaf[: normal[e]], leaf[7 : 7 + anomalies[e]]])
        value = written_out(real, torch.tensor(center[e]), normal[e], anomalies[e], objective)
        value.backward()
        assert float(ours.value[e]) == pytest.approx(float(value.detach()), rel=1e-9)
        np.testing.assert_allclose(to_numpy(ours.grad)[e], leaf.grad.numpy(), atol=1e-9)


@settings(max_examples=25)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_lemma_with_its_factor(n, w, seed):
    # mean over pairs = 2n/(n-1) * mean squared distance to the mean, and so the gradients (mu not constant)
    z = np.random.default_rng(seed).standard_normal((1, n, w))
    batch = Batch(None, n, [n], [0])
    pairs = instance_closeness(z.copy(), None, batch, InstanceCloseness(hard_ratio=1.0))
    leaf = torch.tensor(z[0], requires_grad=True)
    to_center = ((leaf - leaf.mean(0)) ** 2).sum(1).mean()
    to_center.backward()
    factor = 2 * n / (n - 1)
    assert pairs.value[0] == pytest.approx(factor * float(to_center.detach()), rel=1e-9)
    np.testing.assert_allclose(pairs.grad[0], factor * leaf.grad.numpy(), atol=1e-9)


def test_ties_at_the_cutoff_are_kept():
    # distances to the origin 1, 2, 2, 2: the hardest quarter is one distance, its ties make three
    z = np.array([[[1.0, 0], [2, 0], [0, 2], [-2, 0]]])
    loss = center_closeness(z, np.zeros((1, 2)), Batch(None, 4, [4], [0]), CenterCloseness("euclidean", 0.25))
    assert loss.cutoff.tolist() == [2.0]
    assert loss.value.tolist() == [2.0]
    assert np.count_nonzero(np.abs(loss.grad).sum(-1)) == 3


def test_a_batch_of_one_row_has_no_pair():
    z = np.random.default_rng(0).standard_normal((2, 3, 2))
    loss = instance_closeness(z, None, Batch(None, 3, [3, 1], [0, 0]), InstanceCloseness())
    assert loss.value[1] == 0
    assert not loss.grad[1].any()


# Miners of pytorch-metric-learning ------------------------------------------------------------------------------------


def hardest_third(embeddings, labels):
    """What HDCMiner(filter_percentage=1/3) returns for one class: both orders of the farthest third of the pairs."""
    far = torch.cdist(embeddings, embeddings)
    row, column = torch.tril_indices(len(far), len(far), -1)
    order = torch.argsort(far[row, column], descending=True)[: len(row) // 3]
    anchors, positives = torch.cat([row[order], column[order]]), torch.cat([column[order], row[order]])
    empty = torch.empty(0, dtype=torch.long)
    return anchors, positives, empty, empty


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_miner_takes_the_place_of_hard_mining(kind):
    z = np.random.default_rng(6).standard_normal((2, 7, 4))  # 21 pairs, a third is 7
    batch = Batch(None, 7, [7, 7], [0, 0])
    ours = instance_closeness(kind(z.copy()), None, batch, InstanceCloseness(hard_ratio=1 / 3))
    mined = instance_closeness(kind(z.copy()), None, batch, InstanceCloseness(miner=hardest_third))
    np.testing.assert_allclose(to_numpy(mined.value), to_numpy(ours.value))
    np.testing.assert_allclose(to_numpy(mined.grad), to_numpy(ours.grad))
    np.testing.assert_allclose(to_numpy(mined.cutoff), to_numpy(ours.cutoff))


def test_a_miner_sees_labels_and_its_negatives_are_pushed():
    seen = []

    def everything(embeddings, labels):
        seen.append(labels.tolist())
        same = labels[:, None] == labels[None]
        anchors, positives = torch.nonzero(same.fill_diagonal_(False), as_tuple=True)
        others, negatives = torch.nonzero(labels[:, None] != labels[None], as_tuple=True)
        return anchors, positives, others, negatives

    z = np.random.default_rng(6).standard_normal((1, 6, 4)) * 0.5
    batch = Batch(None, 4, [4], [2])
    mined = instance_closeness(z.copy(), None, batch, InstanceCloseness(miner=everything))
    ours = instance_closeness(z.copy(), None, batch, InstanceCloseness(hard_ratio=1.0, anomaly_pairs=True))
    assert seen == [[0, 0, 0, 0, 1, 1]]
    np.testing.assert_allclose(mined.value, ours.value)
    np.testing.assert_allclose(mined.grad, ours.grad)


def test_a_triplet_miner_is_refused():
    z = np.random.default_rng(6).standard_normal((1, 4, 2))
    triplets = InstanceCloseness(miner=lambda embeddings, labels: (torch.arange(1),) * 3)
    with pytest.raises(ValueError, match="returned 3 index tensors"):
        instance_closeness(z, None, Batch(None, 4, [4], [0]), triplets)
