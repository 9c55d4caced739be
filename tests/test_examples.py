"""The examples run, and say what the guide says."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert len(lines) > 5
    if path.stem == "from_score_to_decision":  # labels help to find more
        before, after = (int(line.split()[1]) for line in lines[-2:])
        assert after > before
