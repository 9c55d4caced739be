"""The examples run, and say what the guide says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) > 5


def test_labels_help_to_find_more(tmp_path):
    path = EXAMPLES / "from_score_to_decision.py"
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=True)
    before, after = (int(line.split()[1]) for line in done.stdout.splitlines()[-2:])
    assert after > before
