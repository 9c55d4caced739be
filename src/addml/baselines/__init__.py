"""The paper's rivals and later ones, each used exactly as ADDML is: `make("KNN").fit(X).anomaly_score(X_new)`.

Nothing heavy is imported before the first `make`.
"""

from addml.baselines.registry import BASELINES, Baseline, make

__all__ = ["BASELINES", "Baseline", "make"]
