"""Distillation and mini-batches: which rows take part, and that none is lost."""

from dataclasses import replace

import numpy as np
import pytest

from addml.learning.learner import distill, packed
from addml.learning.state import Member
from addml.learning.training import minibatches

LIKE = np.zeros(1)


def member(n, ratio=2 / 3, **more):
    return Member(np.arange(n), np.arange(2), np.random.default_rng(0), ratio, **more)


def test_rows_at_or_under_the_cutoff_are_kept_with_ties():
    scores = np.array([[5.0, 1, 3, 3, 2, 9]])
    cutoff, (kept,) = distill(scores, [member(6, 0.5)])  # K = 3: the third smallest is 3, tied with another
    assert cutoff.tolist() == [3]
    assert np.flatnonzero(kept).tolist() == [1, 2, 3, 4]


def test_all_rows_are_kept_at_ratio_one():
    _, (kept,) = distill(np.random.default_rng(0).random((1, 7)), [member(7, 1.0)])
    assert kept.all()  # none dropped at the end, as a slice to n - 1 would


def test_two_rows_at_least():
    _, (kept,) = distill(np.array([[3.0, 1, 2]]), [member(3, 0.01)])
    assert np.flatnonzero(kept).tolist() == [1, 2]


def test_members_of_unequal_size_have_their_own_cutoffs():
    scores = np.array([[1.0, 2, 3, 4], [4.0, 3, np.inf, np.inf]])
    cutoff, kept = distill(scores, [member(4, 0.5), member(2, 1.0)])
    assert cutoff.tolist() == [2, 4]
    assert [keep.tolist() for keep in kept] == [[True, True, False, False], [True, True]]


def test_rows_labelled_normal_are_never_dropped():
    sure = np.array([False, False, False, True])
    _, (kept,) = distill(np.array([[1.0, 2, 3, 9]]), [member(4, 0.5, labelled_normal=sure)])
    assert kept.tolist() == [True, True, False, True]


def test_packed_bits_name_rows_of_the_whole_table():
    whole = Member(np.array([1, 4, 9]), np.array([0]), np.random.default_rng(0))
    bits = packed([np.array([True, False, True])], [whole], 10)
    assert np.flatnonzero(np.unpackbits(bits[0], count=10)).tolist() == [1, 9]


@pytest.mark.parametrize("size", [4, 5, 10, 11, 100])
def test_every_kept_row_is_in_one_batch_of_its_member(size):
    members = [member(11), Member(np.arange(20, 27), np.arange(2), np.random.default_rng(1))]
    kept = [np.ones(11, bool), np.array([1, 1, 0, 1, 1, 1, 1], bool)]
    seen = [[], []]
    for batch in minibatches(members, kept, size, LIKE):
        assert batch.ids.shape[1] == batch.normal == max(batch.normal_counts)
        for e in range(2):
            seen[e] += batch.ids[e, : batch.normal_counts[e]].tolist()
    assert sorted(seen[0]) == list(range(11))
    assert sorted(seen[1]) == [20, 21, 23, 24, 25, 26]
    assert seen[0] != list(range(11))  # shuffled


def test_every_batch_is_joined_by_labelled_anomalies():
    few, many = np.array([100, 101]), np.arange(200, 240)
    members = [member(16, anomalies=few), member(16, anomalies=many)]
    batches = list(minibatches(members, [np.ones(16, bool)] * 2, 8, LIKE))
    assert len(batches) == 2
    for batch in batches:
        assert batch.anomaly_counts == [2, 2]  # a quarter of eight at the most
        assert batch.ids[0, 8:].tolist() == [100, 101]
        assert set(batch.ids[1, 8:].tolist()) <= set(many.tolist())
    assert batches[0].ids[1, 8:].tolist() != batches[1].ids[1, 8:].tolist()


def test_rows_within_the_tolerance_are_kept_whatever_the_ratio():
    scores = np.array([[1.0, 1.0, 1.2, 2.9, 3.1, 9.0]])  # the third smallest is 1.2: up to 2.5 times that are kept
    cutoff, (kept,) = distill(scores, [replace(member(6, 0.5), tolerance=2.5)])
    assert cutoff == [3.0]
    assert kept.tolist() == [True] * 4 + [False] * 2
    cutoff, (kept,) = distill(scores, [replace(member(6, 5 / 6), tolerance=2.5)])  # never fewer than the ratio says
    assert kept.tolist() == [True] * 5 + [False]
