"""The metric space of a set before and after training, in the two directions in which it varies most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from addml.experiments.protocol import Numbers

NEXT_TO_NOTHING = 1e-30  # a learning rate that leaves the network as it was drawn
SEED = 0


@dataclass(frozen=True)
class Space:
    """Rows of the metric space in two dimensions, with the centre at zero, before and after training."""

    before: np.ndarray  # (n, 2)
    after: np.ndarray
    y: np.ndarray
    auc: tuple[float, float]  # of the distance to the centre in all dimensions


def metric_space(data: Numbers, device: str = "cpu") -> Space:
    """The embeddings of all rows by the untrained network, and by the one that training makes of it."""
    from addml.detector import ADDML
    from addml.experiments.protocol import measure

    untrained = ADDML.paper(epochs=1, learning_rate=NEXT_TO_NOTHING, random_state=SEED, device=device).fit(data.X)
    trained = ADDML.paper(random_state=SEED, device=device).fit(data.X)
    before, after = (projected(one.embed(data.X), one.center_[0]) for one in (untrained, trained))
    aucs = [measure(data.y, one.anomaly_scores_)["auc"] for one in (untrained, trained)]
    return Space(before, after, data.y, (aucs[0], aucs[1]))


def projected(embeddings: np.ndarray, center: np.ndarray) -> np.ndarray:
    """The two leading principal directions of embeddings (n, w) around the centre, each signed to be reproducible."""
    moved = embeddings.astype(float) - center
    directions = np.linalg.svd(moved, full_matrices=False)[2][:2]
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    return np.asarray(moved @ (directions * signs[:, None]).T)
