"""Fits that share a training call give what fits alone give."""

import numpy as np
import pytest

from addml import ADDML, InstanceCloseness
from addml.pipeline.rivals import Machine
from research.datasets import LabelledArray
from research.experiment import Case, run_case, trains_together
from research.together import fit_together
from tests.research.toy import blob


def tables():
    return [blob("toy", rows, 4, seed).X for seed, rows in enumerate((70, 55, 90))]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loss": "center"},
        {"loss__hard_ratio": 0.1},
        {"members": 3},
        {"members": 2, "scorer": "knn"},
        {"scorer": "dissimilarity", "loss__distance": "euclidean"},
    ],
)
def test_as_though_fitted_alone(changes):
    detectors = [
        ADDML.paper().set_params(**changes, epochs=4, normal_ratio=ratio, random_state=seed, device="cpu", n_jobs=1)
        for seed, ratio in enumerate((2 / 3, 1.0, 0.5))
    ]
    new = blob("new", 30, 4, 9).X
    for fitted, detector, X in zip(fit_together(detectors, tables()), detectors, tables(), strict=True):
        detector.fit(X)
        assert fitted.anomaly_scores_ == pytest.approx(detector.anomaly_scores_, rel=1e-3, abs=1e-6)
        assert fitted.anomaly_score(new) == pytest.approx(detector.anomaly_score(new), rel=1e-3, abs=1e-6)


def test_the_package_s_default_too():
    detectors = [ADDML(random_state=seed, device="cpu", n_jobs=1) for seed in range(3)]
    for fitted, detector, X in zip(fit_together(detectors, tables()), detectors, tables(), strict=True):
        assert fitted.anomaly_scores_ == pytest.approx(detector.fit(X).anomaly_scores_, rel=1e-3, abs=1e-3)


def test_on_tensors_as_on_an_accelerator(monkeypatch):
    torch = pytest.importorskip("torch")
    detectors = [ADDML.paper(epochs=3, random_state=seed, device="cpu") for seed in range(3)]
    on_cpu = fit_together(detectors, tables())
    for module in ("addml.fit", "addml.inputs"):
        monkeypatch.setattr(f"{module}.on_device", lambda values, device: torch.from_numpy(values.copy()))
    for ours, theirs in zip(fit_together(detectors, tables()), on_cpu, strict=True):
        assert ours.anomaly_scores_ == pytest.approx(theirs.anomaly_scores_, rel=1e-3, abs=1e-5)


def test_the_detectors_themselves_stay_as_they_were():
    detector = ADDML.paper(epochs=1, device="cpu")
    fit_together([detector], tables()[:1])
    assert not hasattr(detector, "threshold_")


def test_settings_that_must_agree_are_named():
    with pytest.raises(
        ValueError,
        match=r"loss=InstanceCloseness\(hard_ratio=1.0\) and loss=.*0.5\) cannot train together",
    ):
        fit_together([ADDML.paper(loss=InstanceCloseness(hard_ratio=ratio)) for ratio in (0.5, 1.0)], tables()[:2])


def test_gaps_in_different_columns_are_refused():
    with_gap = tables()[0].copy()
    with_gap[0, 0] = np.nan
    with pytest.raises(ValueError, match="gaps in different columns"):
        fit_together([ADDML.paper(), ADDML.paper()], [with_gap, tables()[1]])


def test_a_whole_case_says_that_its_fits_were_together():
    rows = run_case(Case("ADDML.paper", settings={"epochs": 2}), blob("toy"), Machine("cpu", 1))
    assert {row["together"] for row in rows} == {18}
    assert {row["together"] for row in run_case(Case("HBOS"), blob("toy"), Machine())} == {1}


def test_missing_values_are_fitted_one_by_one():
    case, X, y = Case("ADDML.paper"), np.zeros((4, 2)), np.zeros(4, int)
    assert trains_together(case, LabelledArray("toy", X, y))
    assert not trains_together(case, LabelledArray("toy", X + np.nan, y))
    assert not trains_together(Case("KNN"), LabelledArray("toy", X, y))
