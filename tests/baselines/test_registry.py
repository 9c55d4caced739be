"""The rivals by name."""

import subprocess
import sys

import pytest

from addml.baselines import BASELINES, make, registry


def test_the_papers_five_are_there_and_need_no_extra():
    columns = {found.column: name for name, found in BASELINES.items() if found.column}
    assert columns == {
        "DAE": "DeepAutoencoder",
        "IF": "IsolationForest",
        "PCC": "PCC",
        "OC-SVM": "OCSVM",
        "HBOS": "HBOS",
    }
    assert all(BASELINES[name].extra is None for name in columns.values())
    assert {found.explains for found in BASELINES.values()} == {None, "DAE", "PCC"}


def test_the_settings_are_the_papers():
    forest, machine, network = make("IsolationForest"), make("OCSVM"), make("DeepAutoencoder")
    assert (forest.trees, forest.samples) == (100, 256)
    assert (machine.nu, machine.gamma, make("HBOS").bins) == (0.5, "scale", 5)
    assert (network.latent_dim, network.learning_rate, network.weight_decay) == (64, 1e-3, 1e-5)
    assert (network.epochs, network.validation_ratio, network.patience, network.normal_ratio) == (50, 0.1, 5, 1)
    assert make("DistilledAutoencoder").normal_ratio == 2 / 3


@pytest.mark.parametrize("name", [name for name, found in BASELINES.items() if found.extra is None])
def test_make_passes_on_what_is_asked(name):
    rival = make(name, random_state=3, contamination=0.2)
    assert rival.contamination == 0.2
    assert ("random_state" in rival.get_params()) == BASELINES[name].seeded
    assert rival.get_params().get("random_state", 3) == 3


def test_changes_win_over_the_settings():
    assert make("DistilledAutoencoder", normal_ratio=0.9).normal_ratio == 0.9
    with pytest.raises(TypeError, match="colour"):
        make("KNN", colour="red")


def test_an_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="'Magic' is not known") as told:
        make("Magic")
    assert all(repr(name) in str(told.value) for name in BASELINES)


def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "pyod" else object())
    assert not BASELINES["ECOD"].available
    assert BASELINES["KNN"].available
    with pytest.raises(ImportError, match=r"pip install 'addml\[pyod\]'"):
        make("ECOD")


def test_names_alone_import_nothing_heavy():
    program = (
        "import sys; from addml.baselines import BASELINES; print(*{'sklearn', 'torch', 'pyod'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
