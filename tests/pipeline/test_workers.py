"""Batches scored on threads: as on one, to the last bit. Tasks in processes: nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from addml import model_file
from addml.pipeline import run as detecting
from addml.pipeline import table_source
from addml.pipeline.batches import run_tasks  # noqa: F401  for the process of a test
from addml.pipeline.options import Options
from addml.progress import Progress


class Waits:
    """A task that says which process runs it and does not finish."""

    def run(self, machine):
        os.write(1, b"%d\n" % os.getpid())  # in one piece, whatever the other process writes
        time.sleep(600)


@pytest.mark.slow
def test_processes_end_with_a_parent_that_is_killed():
    code = "import test_workers as t; [*t.run_tasks([t.Waits(), t.Waits()], None, 2)]"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=_with_tests())
    assert parent.stdout is not None
    children = [int(parent.stdout.readline()) for _ in range(2)]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.read()  # until the last process that could write to it has ended
    parent.stdout.close()
    for child in children:
        with pytest.raises(ProcessLookupError):
            _alive(child)


def _with_tests():
    """The environment of a process that finds this file."""
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _alive(process):
    """An error once the process is gone, or is nothing more than an entry that nobody has read."""
    for _ in range(100):
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        if state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            raise ProcessLookupError
        time.sleep(0.05)


@pytest.fixture
def table(tmp_path):
    """A file of 900 rows with categories, gaps and dates; a value that is strange, and a gap where none was."""
    random = np.random.default_rng(0)
    columns = {
        "name": pa.array([f"row {place}" for place in range(900)]),
        "amount": pa.array(np.round(random.gamma(2, 10, 900), 2)),
        "rate": pa.array(random.standard_normal(900), mask=random.random(900) < 0.05),
        "country": pa.array(random.choice(["de", "fr", "it"], 900)),
        "day": pa.array((1_700_000_000 + random.integers(0, 10**7, 900)).astype("datetime64[s]")),
    }
    pa.csv.write_csv(pa.table(columns), tmp_path / "table.csv")
    columns["amount"] = pa.concat_arrays([pa.array([1e6, None]), columns["amount"][2:]])
    pa.csv.write_csv(pa.table(columns), tmp_path / "later.csv")
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:missing values in columns:UserWarning", "ignore:.*far outside:UserWarning")
def test_scored_tables_do_not_depend_on_the_number_of_threads(table, monkeypatch):
    monkeypatch.setattr(table_source, "BATCH_ROWS", 200)
    options = Options(str(table / "table.csv"), epochs=2, members=2)
    trained = detecting.fit(options, Progress())
    model_file.save(trained.model, table / "model")
    later = replace(options, file=str(table / "later.csv"), model=str(table / "model"))
    for run, given in ((detecting.detect, options), (detecting.score, later)):
        one, other = (run(replace(given, jobs=jobs), Progress()) for jobs in (1, 2))
        assert pa.concat_tables(one.scored).equals(pa.concat_tables(other.scored))
        assert one.findings.ranked == other.findings.ranked
        assert one.findings.drift == other.findings.drift
        assert len(one.findings.ranked) > 5
        np.testing.assert_array_equal(one.findings.scores, other.findings.scores)
