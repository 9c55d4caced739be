"""Training in several processes: equal to one process that goes through the same parts in turn, and after kills."""

import threading

import numpy as np
import pytest

from addml import model_file
from addml.arrays import copy
from addml.checkpoint import Storage
from addml.config import Config
from addml.encoders import MLP
from addml.fit import fit
from addml.inputs import MemoryRows
from addml.learning.group import Group
from addml.learning.learner import MetricLearner
from addml.learning.losses import Batch, InstanceCloseness
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train
from tests.cluster.conftest import SETTINGS


class Turns(Group):
    """Threads of one process, of which one at a time is not waiting for the others."""

    def __init__(self, size, every=0):
        self.every, self.size = every, size
        self.ranks, self.given = threading.local(), [None] * size
        self.barrier, self.turn = threading.Barrier(size), threading.Lock()

    @property
    def rank(self):
        return self.ranks.value

    def gather(self, content):
        self.given[self.rank] = content
        self.turn.release()
        self.barrier.wait(60)
        found = list(self.given)
        self.barrier.wait(60)
        self.turn.acquire()
        return found

    def sum(self, values):
        values = np.array(values)
        parts = [np.frombuffer(part, values.dtype).reshape(values.shape) for part in self.gather(values.tobytes())]
        return np.sum(parts, axis=0, dtype=values.dtype)

    def run(self, work):
        """work(rank) for every rank, each after another between two exchanges."""
        results, errors = [None] * self.size, []

        def one(rank):
            self.ranks.value = rank
            with self.turn:
                try:
                    results[rank] = work(rank)
                except BaseException as error:
                    errors.append(error)
                    self.barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results


def parts_of(X, size, ratio=2 / 3):
    """Every process's rows and its member, of which a fifth of the rows is V."""
    for rank, own in enumerate(np.array_split(X, size)):
        ids = np.random.default_rng(100 + rank).permutation(len(own))
        held_out = len(own) // 5
        random = np.random.default_rng(rank)
        yield MemoryRows(own), Member(np.sort(ids[held_out:]), np.sort(ids[:held_out]), random, ratio)


def gradient_by_hand(encoder, parts, schedule, epochs):
    """The paper's loop over the parts in turn, written out: one step for the mean gradient of their batches."""
    learner, weights = MetricLearner(encoder, InstanceCloseness()), encoder.weights
    first, second, steps, validations = np.zeros(weights.shape), np.zeros(weights.shape), 0, []
    size = -(-schedule.batch_size // len(parts))
    for _ in range(epochs):
        learner.set_weights(weights)
        embedded = [encoder.embed(rows.take(member.train[None]))[0].astype(float) for rows, member in parts]
        center = np.concatenate(embedded).mean(axis=0)
        scores = [((z - center) ** 2).sum(axis=1) for z in embedded]
        count = int(np.ceil(2 / 3 * sum(map(len, scores)) - 1e-9))
        cutoff = np.sort(np.concatenate(scores))[count - 1] * (1 + 1e-6)
        pairs = zip(scores, parts, strict=True)
        kept = [member.random.permutation(member.train[own <= cutoff]) for own, (_, member) in pairs]
        for start in range(0, max(map(len, kept)), size):
            gradients = []
            for (rows, _), ids in zip(parts, kept, strict=True):
                own = ids[None, start : start + size]
                if own.shape[1] > 1:
                    batch = Batch(own, own.shape[1], [own.shape[1]], [0])
                    gradient = learner.loss_and_grad(rows.take(own), center[None].astype("f4"), batch)[1]
                    gradients.append(gradient.astype(float))  # a copy: the next one lies in the same place
            if not gradients:
                continue
            gradient = np.mean(gradients, axis=0) + schedule.weight_decay * weights * learner.encoder.is_matrix()
            steps += 1
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            moved = first / (1 - 0.9**steps) / (np.sqrt(second / (1 - 0.999**steps)) + 1e-8)
            weights -= (schedule.learning_rate * moved).astype("f4")
        V = np.concatenate([encoder.embed(rows.take(member.validation[None]))[0] for rows, member in parts]).astype(
            float
        )
        n = len(V)
        validations.append(2 * ((V - V.mean(axis=0)) ** 2).sum() / (n - 1))
    return weights, validations


@pytest.mark.parametrize("size", [1, 2, 4])
def test_steps_of_a_group_are_those_of_the_parts_in_turn(size):
    X = np.random.default_rng(1).normal(size=(601, 5)).astype("f4")
    schedule = Schedule(epochs=2, batch_size=64, patience=9)
    encoder = MLP(hidden=(8,), metric_dim=4).build((5,), [np.random.default_rng(0)])
    start = encoder.weights.astype("f4")
    expected, validations = gradient_by_hand(encoder.with_weights(copy(start)), list(parts_of(X, size)), schedule, 2)
    group, parts = Turns(size), list(parts_of(X, size))

    def work(rank):
        rows, member = parts[rank]
        own = encoder.with_weights(copy(start))
        learner = MetricLearner(own, InstanceCloseness(), group)
        state = TrainingState.begin(own.weights, 9)
        return train(learner, rows, [member], schedule, state, group=group)

    states = group.run(work)
    for state in states:
        np.testing.assert_array_equal(state.weights, states[0].weights)
        np.testing.assert_allclose(state.weights, expected, atol=1e-6)
        np.testing.assert_allclose([entry["validation_loss"] for entry in state.history], validations, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_cut_off_of_a_group_is_exact(size):
    random = np.random.default_rng(2)
    values = np.concatenate([random.normal(size=(2, 997)), np.full((2, 3), np.inf), np.zeros((2, 50))], axis=1)
    values = random.permutation(values.astype("f4"), axis=1)
    parts, group = np.array_split(values, size, axis=1), Turns(size)
    for ks in ([1, 1050], [500, 20], [1047, 333]):
        expected = [np.sort(row)[k - 1] for row, k in zip(values, ks, strict=True)]
        for found in group.run(lambda rank, ks=ks: group.smallest(parts[rank], ks)):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.cluster
@pytest.mark.parametrize("size", [1, 2, 4])
def test_gloo_processes_fit_the_model_of_one_process(rows, together, tmp_path, size):
    memory = "1MiB" if size == 1 else "2GiB"  # one process alone would otherwise hold the table in memory
    codes, errors = together(rows, size, output=str(tmp_path / "model"), memory=memory)
    assert codes == [0] * size, errors
    found, group = model_file.load(tmp_path / "model"), Turns(size)
    storage = Storage(memory=memory)
    expected = group.run(lambda rank: fit(Config.resolve(SETTINGS), rows, storage=storage, group=group))[0]
    assert_same(found, expected)
    assert (found.training.values > found.threshold).mean() == pytest.approx(0.1, abs=1e-3)
    if size == 1:
        alone = fit(Config.resolve(SETTINGS), rows, storage=storage)
        np.testing.assert_array_equal(found.encoder.weights, alone.encoder.weights)


def assert_same(found, expected):
    np.testing.assert_allclose(found.encoder.weights, expected.encoder.weights, atol=1e-6)
    np.testing.assert_allclose(found.training.values, expected.training.values, atol=1e-5)
    np.testing.assert_allclose(found.threshold, expected.threshold, atol=1e-5)
    np.testing.assert_array_equal(found.held_out, expected.held_out)


@pytest.mark.cluster
def test_a_group_goes_on_after_kills(rows, together, tmp_path):
    again, kept, group = tmp_path / "again", str(tmp_path / "kept"), Turns(2)
    whole = group.run(lambda rank: fit(Config.resolve(SETTINGS), rows, group=group))[0]
    killed, _ = together(rows, 2, output=str(again), checkpoint=kept, kill=[1, 1, "after"])  # a worker
    assert killed[1] == -9
    assert killed[0] != 0
    killed, _ = together(rows, 2, output=str(again), checkpoint=kept, kill=[0, 2, "before"])  # the one that writes
    assert killed[0] == -9
    assert not again.exists()
    codes, errors = together(rows, 2, output=str(again), checkpoint=kept)
    assert codes == [0, 0], errors
    assert_same(model_file.load(again), whole)


@pytest.mark.cluster
def test_another_number_of_workers_is_refused(rows, together, tmp_path):
    kept = str(tmp_path / "kept")
    together(rows, 2, checkpoint=kept, kill=[1, 1, "after"], memory="1MiB")
    codes, errors = together(rows, 1, checkpoint=kept, memory="1MiB")
    assert codes == [1]
    assert "workers=2, now it is None; set it back" in errors[0]


@pytest.mark.cluster
def test_averaged_weights_find_the_anomalies(rows, together, tmp_path):
    codes, errors = together(rows, 2, output=str(tmp_path / "model"), every=5)
    assert codes == [0, 0], errors
    model = model_file.load(tmp_path / "model")
    planted = np.concatenate([np.arange(start, start + 20) for start in range(0, 6000, 1500)])
    assert np.isin(planted, np.argsort(-model.training.values)[:80]).mean() > 0.95
