"""Embeddings from another network are a table: fit them like any other.

    python examples/embeddings_from_elsewhere.py

Any model that turns an image, a text or a sound into a vector will do, for example one of torchvision's:

    network = torchvision.models.resnet18(weights="DEFAULT")
    network.fc = torch.nn.Identity()
    vectors = network.eval()(images).detach().numpy()          # (n, 512)

To avoid a download, this example trains a small network to tell the digits 0 to 4 apart. That network has never seen
the digits used here: many 7s, with a few 5s, 6s, 8s and 9s among them as anomalies.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from addml import ADDML

NORMAL, STRANGE = 7, (5, 6, 8, 9)


def embedded(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The images in the last hidden layer of a network that was trained on other digits."""
    training = labels < 5
    network = MLPClassifier((64, 32), max_iter=300, random_state=0).fit(images[training], labels[training])
    vectors = images
    for matrix, bias in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        vectors = np.maximum(vectors @ matrix + bias, 0)
    return vectors


def main() -> None:
    """Embed the images, detect the anomalies, and compare with detection on raw pixels."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    random = np.random.default_rng(0)
    normal = np.flatnonzero(labels == NORMAL)
    strange = random.choice(np.flatnonzero(np.isin(labels, STRANGE)), 15, replace=False)
    rows = np.sort(np.concatenate([normal, strange]))
    is_strange = labels[rows] != NORMAL

    vectors = embedded(images, labels)
    print(f"{len(rows)} images of a {NORMAL}, {is_strange.sum()} images of other digits")
    for name, table in {"pixels": images[rows], "embeddings": vectors[rows]}.items():
        detector = ADDML(random_state=0, device="cpu").fit(table)
        n_found = is_strange[np.argsort(-detector.anomaly_scores_)[:15]].sum()
        auc = roc_auc_score(is_strange, detector.anomaly_scores_)
        print(f"  {name:10} {table.shape[1]:3} columns: ROC-AUC {auc:.3f}, {n_found:2} among the 15 strangest")

    print("The strangest by their embeddings:")
    for index in np.argsort(-detector.anomaly_scores_)[:5]:
        print(f"  image {rows[index]:4}: score {detector.anomaly_scores_[index]:6.2f}, a {labels[rows[index]]}")


if __name__ == "__main__":
    main()
