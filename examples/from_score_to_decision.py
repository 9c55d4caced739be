"""From a ranked list to a decision, on a small medical table.

    python examples/from_score_to_decision.py

Measurements of 377 tumours, 20 of them malignant (scikit-learn's breast-cancer table). The detector does not see the
diagnosis; at the end, it stands in for a reviewer who looks at the rows.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

from addml import ADDML

REVIEWED = 10  # rows that the reviewer looks at


def measurements() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """All benign rows and the first 20 malignant ones, which of them are malignant, and the names of the columns."""
    bundle = load_breast_cancer()
    benign = bundle.target == 1
    rows = np.sort(np.concatenate([np.flatnonzero(benign), np.flatnonzero(~benign)[:20]]))
    return bundle.data[rows], ~benign[rows], list(bundle.feature_names)


def main() -> None:
    """Rank, choose a threshold, show probabilities and reasons, review some rows, and train with their labels."""
    X, malignant, names = measurements()
    detector = ADDML(random_state=0, device="cpu").fit(X)

    print("How many? The same scores under several thresholds:")
    for settings in ({"method": "auto"}, {"alarm_rate": 0.01}, {"contamination": 0.1}):
        flagged = detector.set_threshold(**settings).is_anomaly(X)
        print(f"  {detector.decision_.words}: {flagged.sum()}, {malignant[flagged].sum()} of them malignant")
    detector.set_threshold(contamination=0.05)

    scores, probabilities = detector.anomaly_scores_, detector.predict_proba(X)[:, 1]
    contributions, neighbours = detector.explain(X), detector.nearest_normal(X, k=1)
    print("\nHow sure, and why?")
    for row in np.argsort(-scores)[:5]:
        first, second = np.argsort(-contributions[row])[:2]
        normal = X[neighbours.rows[row, 0], first]
        print(
            f"  row {row:3}: score {scores[row]:.2f}, probability {probabilities[row]:.2f}; "
            f"{names[first]} {X[row, first]:.3g} (a similar normal row has {normal:.3g}), {names[second]}"
        )

    reviewed = np.argsort(-scores)[:REVIEWED]
    labels = np.full(len(X), -1)
    labels[reviewed] = malignant[reviewed]
    retrained = ADDML(random_state=0, device="cpu", contamination="auto").fit(X, labels=labels)
    rest = np.setdiff1d(np.arange(len(X)), reviewed)
    print(f"\nAfter a review of the first {REVIEWED} rows, malignant rows among the next {REVIEWED}:")
    for title, model in (("before", detector), ("after", retrained)):
        following = rest[np.argsort(-model.anomaly_scores_[rest])[:REVIEWED]]
        print(f"  {title:6} {malignant[following].sum()} of the remaining {malignant[rest].sum()}")


if __name__ == "__main__":
    main()
