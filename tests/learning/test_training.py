"""The training loop against the plain reference, and members together against members alone."""

import itertools

import numpy as np
import pytest
import torch

from addml.learning import training
from benchmarks.reference import fit_reference, flat_weights, plain_encoder
from tests.grids import pairwise
from tests.learning.conftest import WIDTHS


def reference(
    rows, seed, *, loss="instance", normal_ratio=2 / 3, hard_ratio=1 / 3, epochs=3, batch_size=32, patience=50
):
    """The same member by the plain reference: last weights, best weights, validation losses."""
    random = np.random.default_rng(seed)
    flat = _glorot(random)
    order = random.permutation(len(rows))
    M, V = (torch.from_numpy(rows.values[np.sort(part)]) for part in (order[20:], order[:20]))
    last, best, losses = fit_reference(
        plain_encoder(list(WIDTHS), flat),
        M,
        V,
        random,
        loss=loss,
        normal_ratio=normal_ratio,
        hard_ratio=hard_ratio,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
    )
    return flat_weights(last), flat_weights(best), losses


def _glorot(random):
    parts = []
    for a, b in itertools.pairwise(WIDTHS):
        bound = np.sqrt(6 / (a + b))
        parts += [random.uniform(-bound, bound, a * b), np.zeros(b)]
    return np.concatenate(parts)


@pytest.mark.parametrize(
    ("loss", "normal_ratio", "hard_ratio"), pairwise(["instance", "center"], [1.0, 2 / 3, 0.3], [1.0, 1 / 3, 0.01])
)
def test_three_epochs_end_in_the_weights_of_the_reference(rows, fit, loss, normal_ratio, hard_ratio):
    last, best, losses = reference(rows, 3, loss=loss, normal_ratio=normal_ratio, hard_ratio=hard_ratio)
    _, _, state = fit([3], loss=loss, ratios=[normal_ratio], hard_ratio=hard_ratio)
    np.testing.assert_allclose(state.weights[0], last, rtol=0, atol=1e-6)
    np.testing.assert_allclose(state.best[0], best, rtol=0, atol=1e-6)
    np.testing.assert_allclose([entry["validation_loss"] for entry in state.history], losses, rtol=1e-9)


def test_a_last_batch_of_one_row_makes_no_step(rows, fit):
    # 180 training rows, normal_ratio 1 and batches of 179: the second batch has one row and no pair
    last, _, _ = reference(rows, 3, normal_ratio=1.0, batch_size=179)
    _, _, state = fit([3], ratios=[1.0], batch_size=179)
    np.testing.assert_allclose(state.weights[0], last, rtol=0, atol=1e-6)
    assert state.steps.tolist() == [3]


@pytest.mark.parametrize("loss", ["instance", "center"])
def test_members_together_are_members_alone(fit, loss):
    # unequal row counts, unequal ratios, unequal last batches (1 row among them), one member that keeps all
    seeds, ratios, sizes = [3, 4, 5, 6], [2 / 3, 1.0, 0.5, 1.0], [200, 149, 117, 200]
    _, _, together = fit(seeds, ratios=ratios, sizes=sizes, loss=loss, distance="sqeuclidean")
    for e in range(4):
        _, _, alone = fit(seeds[e : e + 1], ratios=ratios[e : e + 1], sizes=sizes[e : e + 1], loss=loss)
        np.testing.assert_allclose(together.weights[e], alone.weights[0], rtol=0, atol=1e-6)
        np.testing.assert_allclose(together.best_loss[e], alone.best_loss[0], rtol=1e-9)
        assert together.steps[e] == alone.steps[0]


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_members_together_are_members_alone_with_other_distances(fit, distance):
    _, _, together = fit([3, 4], ratios=[2 / 3, 1.0], sizes=[200, 149], distance=distance)
    for e, (seed, ratio, size) in enumerate([(3, 2 / 3, 200), (4, 1.0, 149)]):
        _, _, alone = fit([seed], ratios=[ratio], sizes=[size], distance=distance)
        np.testing.assert_allclose(together.weights[e], alone.weights[0], rtol=0, atol=1e-6)


def test_a_member_that_stops_is_frozen_while_others_go_on(fit):
    _, _, together = fit([3, 4, 5], epochs=60, patience=2, batch_size=16)
    for e, seed in enumerate([3, 4, 5]):
        _, _, alone = fit([seed], epochs=60, patience=2, batch_size=16)
        assert together.best_epoch[e] == alone.best_epoch[0]
        np.testing.assert_allclose(together.best[e], alone.best[0], rtol=0, atol=1e-6)


def test_early_stopping_and_best_copy_are_the_reference_s(rows, fit):
    _, best, losses = reference(rows, 5, epochs=80, patience=2, batch_size=16)
    _, _, state = fit([5], epochs=80, patience=2, batch_size=16)
    assert len(state.history) == len(losses)
    assert state.best_epoch[0] == np.argmin(losses) + 1
    np.testing.assert_allclose(state.best[0], best, rtol=0, atol=1e-6)


def test_history_tells_what_happened(rows, fit):
    _, members, state = fit([3, 4], epochs=2)
    assert [entry["epoch"] for entry in state.history] == [1, 2]
    entry = state.history[0]
    assert set(entry) == {
        "epoch", "train_loss", "validation_loss", "normal_cutoff", "hard_cutoff", "rows_kept", "seconds", "members",
    }  # fmt: skip
    assert entry["rows_kept"] == 120  # two thirds of 180
    assert [part["member"] for part in entry["members"]] == [0, 1]
    assert entry["train_loss"] == pytest.approx(np.mean([part["train_loss"] for part in entry["members"]]))
    kept = np.unpackbits(state.kept[0], axis=1, count=len(rows)).astype(bool)
    assert kept.sum(1).tolist() == [120, 120]
    for e, member in enumerate(members):
        assert not kept[e, member.validation].any()


def test_kept_bits_are_the_rows_nearest_to_the_untrained_centre(rows, fit):
    before, members, state = fit([3], epochs=1)
    z = before.embed(rows.values[None, members[0].train])[0]
    distances = ((z - z.mean(0)) ** 2).sum(1)
    nearest = np.sort(members[0].train[np.argsort(distances)[:120]])
    kept = np.unpackbits(state.kept[0], axis=1, count=len(rows))[0]
    assert np.flatnonzero(kept).tolist() == nearest.tolist()


def test_rows_are_not_remembered_above_the_limit(fit, monkeypatch):
    monkeypatch.setattr(training, "MOST_ROWS_REMEMBERED", 199)
    _, _, state = fit([3], epochs=1)
    assert state.kept == []


def test_collapse_by_shrinking_is_found_and_the_epoch_before_it_kept(rows, fit, monkeypatch):
    before = fit([3], epochs=5)[2]
    spreads = []
    for epochs in range(1, 6):  # the spread after each epoch, from shorter runs of the same training
        before, members, state = fit([3], epochs=epochs)
        z = before.with_weights(state.weights).embed(rows.values[None, members[0].train])[0]
        spreads.append(((z - z.mean(0)) ** 2).sum(1).mean())
    z = before.embed(rows.values[None, members[0].train])[0]
    untrained = ((z - z.mean(0)) ** 2).sum(1).mean()
    assert spreads == sorted(spreads, reverse=True)
    monkeypatch.setattr(training, "COLLAPSED", (spreads[2] + spreads[3]) / 2 / untrained)
    healthy = fit([3], epochs=3)[2].weights
    state = fit([3], epochs=5)[2]
    assert state.collapsed.tolist() == [4]
    assert state.best_epoch.tolist() == [3]
    np.testing.assert_array_equal(state.best, healthy)


def test_every_member_is_held_against_its_own_untrained_spread(fit):
    # members are trained in the order of their steps, the last of these first
    _, _, together = fit([3, 4, 5], epochs=1, ratios=[0.3, 2 / 3, 1.0], sizes=[100, 150, 200])
    alone = [fit([3], epochs=1, ratios=[0.3], sizes=[100]), fit([4], epochs=1, sizes=[150]), fit([5], epochs=1)]
    spreads = [state.untrained_spread[0] for _, _, state in alone]
    np.testing.assert_allclose(together.untrained_spread, spreads)


def test_diverged_weights_count_as_collapse(fit, monkeypatch):
    adam = training.adam

    def exploding(state, gradient, rate, moving):
        adam(state, gradient, rate, moving)
        if state.epoch == 1:
            state.weights[:] = np.nan

    monkeypatch.setattr(training, "adam", exploding)
    _, _, state = fit([3], epochs=4)
    assert state.collapsed.tolist() == [2]
    assert np.isfinite(state.best).all()


def test_one_repeated_row_is_no_collapse(rows, fit):
    rows.values[:] = rows.values[0]
    _, _, state = fit([3], epochs=3)
    assert state.collapsed.tolist() == [0]
    assert np.isfinite(state.best).all()
