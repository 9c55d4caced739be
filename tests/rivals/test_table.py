"""The rivals by name."""

import sys

import pytest

from addml.pipeline.rivals import RIVALS, make
from research.experiment import METHODS, Case
from research.plans import effective_settings, method_title


def test_the_papers_rivals_have_its_titles():
    names = ("IsolationForest", "PCC", "OCSVM", "HBOS", "DeepAutoencoder")
    assert [method_title(name) for name in names] == ["IF", "PCC", "OC-SVM", "HBOS", "DAE"]


def test_the_settings_are_the_papers():
    assert effective_settings(Case("IsolationForest")) == {"n_estimators": 100, "max_samples": 256}
    assert effective_settings(Case("OCSVM")) == {"nu": 0.5, "gamma": "scale"}
    assert effective_settings(Case("HBOS"))["bins"] == 5
    assert effective_settings(Case("ECOD")) == {}
    assert set(RIVALS) < set(METHODS)


def test_an_unknown_setting_is_named(X):
    with pytest.raises(TypeError, match="colour"):
        make("KNN", colour="red").fit(X)


def test_an_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="'Magic' is not known") as told:
        make("Magic")
    assert all(repr(name) in str(told.value) for name in RIVALS)


def test_a_missing_extra_says_what_to_install(monkeypatch, X):
    monkeypatch.setitem(sys.modules, "pyod.models.ecod", None)
    with pytest.raises(ImportError, match=r"ECOD needs PyOD: pip install 'addml\[pyod\]'"):
        make("ECOD").fit(X)
