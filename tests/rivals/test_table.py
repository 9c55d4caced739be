"""The rivals by name."""

import pytest

from addml.pipeline import rivals
from addml.pipeline.rivals import RIVALS, make


def test_the_papers_rivals_need_no_extra():
    titles = {found.title: name for name, found in RIVALS.items() if found.title}
    assert titles == {"IF": "IsolationForest", "PCC": "PCC", "OC-SVM": "OCSVM", "HBOS": "HBOS"}
    assert not any(RIVALS[name].needs for name in titles.values())


def test_the_settings_are_the_papers():
    assert RIVALS["IsolationForest"].settings == {"n_estimators": 100, "max_samples": 256}
    assert RIVALS["OCSVM"].settings == {"nu": 0.5, "gamma": "scale"}
    assert RIVALS["HBOS"].settings["bins"] == 5
    assert RIVALS["ECOD"].settings == {}


def test_an_unknown_setting_is_named(X):
    with pytest.raises(TypeError, match="colour"):
        make("KNN", colour="red").fit(X)


def test_an_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="'Magic' is not known") as told:
        make("Magic")
    assert all(repr(name) in str(told.value) for name in RIVALS)


def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setattr(rivals, "find_spec", lambda name: None if name == "pyod" else object())
    assert not RIVALS["ECOD"].available
    assert RIVALS["KNN"].available
    with pytest.raises(ImportError, match=r"pip install 'addml\[pyod\]'"):
        make("ECOD")
