"""The examples run, and say what the guide says."""

import runpy
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr()
    assert said.err == ""
    assert len(said.out.splitlines()) > 5
    if path.stem == "from_score_to_decision":  # labels help to find more
        before, after = (int(line.split()[1]) for line in said.out.splitlines()[-2:])
        assert after > before
