"""A small real table to try things on: scikit-learn's breast-cancer measurements, few of them malignant."""

from __future__ import annotations

from pathlib import Path

import numpy as np

MALIGNANT_ROWS = 20
NAME = "breast-cancer.csv"


def write_example(folder: Path) -> Path:
    """Write the table: all 357 benign rows and the first 20 malignant ones, in the order of the original."""
    import pyarrow as pa
    from sklearn.datasets import load_breast_cancer

    from addml.io.write import naming, write_table

    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    bundle = load_breast_cancer()
    benign = bundle.target == 1
    kept = np.sort(np.concatenate([np.flatnonzero(benign), np.flatnonzero(~benign)[:MALIGNANT_ROWS]]))
    columns = {name: bundle.data[kept, column] for column, name in enumerate(map(str, bundle.feature_names))}
    named = {"patient": [f"patient {row + 1}" for row in kept]}
    diagnosis = {"diagnosis": np.where(benign[kept], "benign", "malignant")}
    write_table(pa.table({**named, **columns, **diagnosis}), folder / NAME)
    return folder / NAME
