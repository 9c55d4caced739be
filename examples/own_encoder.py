"""Your own network as the encoder: any torch module that turns a row into a vector.

    python examples/own_encoder.py

Needs torch (pip install 'addml[gpu]'). The images are scikit-learn's handwritten digits, 8 x 8 pixels: zeros, with a
few other digits among them as unlabelled anomalies.
"""

from __future__ import annotations

import tempfile
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import addml
from addml import ADDML


class Digits(nn.Module):
    """Two convolutions with a skip connection around the second, which `encoder="conv"` does not offer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8 * 4 * 4, 16)

    def forward(self, images: Tensor) -> Tensor:
        """Images (b, 1, 8, 8) -> embeddings (b, 16)."""
        hidden = self.first(images).tanh()
        hidden = hidden + self.second(hidden).tanh()
        return self.last(hidden.flatten(1)).tanh()


def zeros_and_others() -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 1, 8, 8), and which of them are not zeros."""
    images, labels = load_digits(return_X_y=True)
    others = np.random.default_rng(0).choice(np.flatnonzero(labels != 0), 12, replace=False)
    rows = np.sort(np.concatenate([np.flatnonzero(labels == 0), others]))
    return images[rows].reshape(-1, 1, 8, 8), labels[rows] != 0


def main() -> None:
    """Fit, compare with the built-in encoders, save and load."""
    images, is_anomaly = zeros_and_others()
    print(f"{len(images)} images, {is_anomaly.sum()} of them other digits")
    detectors = {
        "mlp": ADDML(encoder="mlp", random_state=0, device="cpu"),
        "conv": ADDML(random_state=0, device="cpu"),  # encoder="auto" is "conv" for images
        "my own": ADDML(encoder=Digits, learning_rate=1e-4, random_state=0, device="cpu"),  # called once per member
    }
    for name, detector in detectors.items():
        auc = roc_auc_score(is_anomaly, detector.fit(images).anomaly_scores_)
        print(f"  encoder {name:7} {detector.encoder_.weights.size:6,} weights: ROC-AUC {auc:.3f}")

    detector = detectors["my own"]
    strangest = int(detector.anomaly_scores_.argmax())
    print(f"Contributions to the score of image {strangest}, in tenths of the largest:")
    heat = detector.explain(images[strangest : strangest + 1])[0]
    for line in (10 * heat.clip(0) / heat.max()).round().astype(int):
        print("  " + " ".join(f"{value or '.':>2}" for value in line))

    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warns that the module itself is not saved
            detector.save(folder)
        again = addml.load(folder, encoder=Digits, device="cpu")  # a model file holds no code
        print("Same scores after loading:", np.array_equal(again.anomaly_score(images), detector.anomaly_scores_))


if __name__ == "__main__":
    main()
