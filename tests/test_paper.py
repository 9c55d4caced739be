"""The paper's figures on Letter, and many fits in one call, on the real table."""

import numpy as np
import pytest
from scipy.io import loadmat
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

import addml
from addml.encoders import MLPNetwork
from addml.inputs import MemoryRows
from addml.learning.learner import MetricLearner
from addml.learning.losses import InstanceCloseness
from addml.learning.state import Member, TrainingState
from addml.learning.training import Schedule, train
from addml.preprocessing.scaling import Features


@pytest.fixture
def letter(data_folder):
    table = loadmat(data_folder / "odds" / "letter.mat")
    return table["X"].astype(float), table["y"].ravel().astype(int)


@pytest.mark.slow
def test_letter_is_within_1_5_points_of_the_paper(letter):
    X, y = letter
    seen, unseen, one_class = [], [], []
    for seed in range(3):
        for fold, (learn, test) in enumerate(StratifiedKFold(3, shuffle=True, random_state=seed).split(X, y)):
            detector = addml.ADDML.paper(random_state=3 * seed + fold).fit(X[learn])
            seen.append(roc_auc_score(y[learn], detector.anomaly_scores_))
            unseen.append(roc_auc_score(y[test], detector.anomaly_score(X[test])))
            normal = learn[y[learn] == 0]
            detector = addml.ADDML.paper(normal_ratio=1, random_state=3 * seed + fold).fit(X[normal])
            one_class.append(roc_auc_score(y[test], detector.anomaly_score(X[test])))
    assert 100 * np.mean(seen) > 81.49 - 1.5
    assert 100 * np.mean(unseen) > 81.17 - 1.5
    assert 100 * np.mean(one_class) > 81.50 - 1.5


@pytest.mark.slow
def test_the_eighteen_fits_of_a_table_in_one_call_score_like_fits_alone(letter):
    # 9 polluted and 9 one-class fits, each on its own rows with its own scaling, as a table of results needs them
    X, y = letter
    parts, ratios = [], []
    for seed in range(3):
        for learn, _ in StratifiedKFold(3, shuffle=True, random_state=seed).split(X, y):
            parts += [learn, learn[y[learn] == 0]]
            ratios += [2 / 3, 1.0]
    blocks = [Features.fit(X[part], [""] * 32).transform(X[part]) for part in parts]
    starts = np.cumsum([0] + [len(part) for part in parts])
    rows = MemoryRows(np.concatenate(blocks))

    def fit(chosen):
        randoms = [np.random.default_rng(e) for e in chosen]
        encoder = MLPNetwork.initial((32, 64, 64), ("tanh", "tanh"), randoms)
        members = []
        for e, random in zip(chosen, randoms, strict=True):
            order = starts[e] + random.permutation(len(parts[e]))
            members.append(Member(np.sort(order[107:]), np.sort(order[:107]), random, ratios[e]))
        encoder = encoder.with_weights(encoder.weights.astype(np.float32))
        state = TrainingState.begin(encoder.weights, 50)
        train(MetricLearner(encoder, InstanceCloseness()), rows, members, Schedule(patience=50), state)
        return encoder.with_weights(state.best)

    def auc(encoder, e, place):
        z = encoder.embed(blocks[e][None])[place]
        return 100 * roc_auc_score(y[parts[e]], ((z - z.mean(0)) ** 2).sum(1))

    together = fit(range(18))
    differences = [
        auc(together, e, e) - auc(fit([e]), e, 0) for e in range(0, 18, 2)
    ]  # the polluted ones have both classes
    assert np.abs(differences).max() < 0.2
