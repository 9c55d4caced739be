"""A network of one's own as the encoder: any torch module that turns a row into a vector.

    python examples/own_encoder.py

Needs torch (pip install 'addml[gpu]'). The images are scikit-learn's handwritten digits, 8 x 8 pixels: many zeros with
some other digits among them, about which nobody tells the detector.
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
    """Two convolutions with a skip around the second one: more than `encoder="conv"` can be told."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8 * 4 * 4, 16)

    def forward(self, images: Tensor) -> Tensor:
        """Images (b, 1, 8, 8) -> places in the metric space (b, 16)."""
        found = self.first(images).tanh()
        found = found + self.second(found).tanh()
        return self.last(found.flatten(1)).tanh()


def zeros_and_others() -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 1, 8, 8), and which of them are no zeros."""
    images, labels = load_digits(return_X_y=True)
    others = np.random.default_rng(0).choice(np.flatnonzero(labels != 0), 12, replace=False)
    rows = np.sort(np.concatenate([np.flatnonzero(labels == 0), others]))
    return images[rows].reshape(-1, 1, 8, 8), labels[rows] != 0


def main() -> None:
    """Fit, compare with the encoders of the package, save and load."""
    images, strange = zeros_and_others()
    print(f"{len(images)} images, {strange.sum()} of them no zeros")
    detectors = {
        "mlp": ADDML(encoder="mlp", random_state=0, device="cpu"),
        "conv": ADDML(random_state=0, device="cpu"),  # which "auto" takes for images
        "my own": ADDML(encoder=Digits, learning_rate=1e-4, random_state=0, device="cpu"),  # called once a member
    }
    for name, detector in detectors.items():
        area = roc_auc_score(strange, detector.fit(images).anomaly_scores_)
        print(f"  encoder {name:7} {detector.encoder_.weights.size:6,} weights: ROC-AUC {area:.3f}")

    detector = detectors["my own"]
    strangest = int(detector.anomaly_scores_.argmax())
    print(f"Where image {strangest} is strange, in tenths of the most:")
    heat = detector.explain(images[strangest : strangest + 1])[0]
    for line in (10 * heat.clip(0) / heat.max()).round().astype(int):
        print("  " + " ".join(f"{value or '.':>2}" for value in line))

    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # says that the module itself is not saved
            detector.save(folder)
        again = addml.load(folder, encoder=Digits, device="cpu")  # a file holds no code
        print("Saved, loaded, the same scores:", np.array_equal(again.anomaly_score(images), detector.anomaly_scores_))


if __name__ == "__main__":
    main()
