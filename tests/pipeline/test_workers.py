"""Batches worked on in processes: as on threads, to the last bit, and nothing is left behind."""

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
from addml.errors import AddmlError
from addml.pipeline import batches, table_source
from addml.pipeline import run as detecting
from addml.pipeline.batches import in_processes
from addml.pipeline.options import Options
from addml.preprocessing.numbers import CellError
from addml.progress import Progress


def places(rows):
    """So many batches, each of which holds its place."""
    return ((start, pa.record_batch({"place": [start]})) for start in range(rows))


def doubled(item):
    start, batch = item
    return start, 2 * batch["place"][0].as_py()


def doubled_with(ballast, item):
    return doubled(item)


def fails(item):
    raise CellError("amount", item[0] + 1, "is no number")


def dies(item):
    os._exit(9)


def waits(item):
    os.write(1, b"%d\n" % os.getpid())  # in one piece, whatever the other process writes
    time.sleep(600)


def test_results_come_in_order():
    assert list(in_processes(doubled, places(20), 2)) == [(start, 2 * start) for start in range(20)]


def test_an_error_arrives_as_it_was_raised():
    with pytest.raises(CellError) as caught:
        list(in_processes(fails, places(3), 2))
    assert (caught.value.column, caught.value.row, caught.value.problem) == ("amount", 1, "is no number")


@pytest.mark.slow
def test_a_process_that_is_ended_is_said():
    with pytest.raises(AddmlError, match=r"one of 2 processes was killed.*--jobs 1"):
        list(in_processes(dies, places(3), 2))


@pytest.mark.slow
def test_processes_that_end_while_they_start_are_said(tmp_path):
    script = tmp_path / "unguarded.py"  # which every process runs again, and may not
    script.write_text(
        "from functools import partial\n"
        "import numpy as np, test_workers as t\n"
        "work = partial(t.doubled_with, np.zeros(10**6))  # more than a pipe holds\n"
        "print([*t.in_processes(work, t.places(3), 2)])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=_with_tests(), timeout=100)
    assert done.returncode == 1
    assert "one of 2 processes was killed" in done.stderr  # Python's resource tracker may speak after it


@pytest.mark.slow
def test_processes_end_with_a_parent_that_is_killed():
    code = "import test_workers as t; [*t.in_processes(t.waits, t.places(2), 2)]"
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


def test_threads_do_as_well_where_there_are_no_processes(table, monkeypatch):
    def no_locks(*given):
        raise OSError("[Errno 38] Function not implemented")

    monkeypatch.setattr(batches, "WORTH_PROCESSES", 1)
    monkeypatch.setattr(batches, "ProcessPoolExecutor", no_locks)
    options = Options(str(table / "table.csv"), epochs=1, members=1, jobs=2)
    assert len(detecting.detect(options, Progress()).findings.scores) == 900


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
def test_scored_tables_are_those_of_threads(table, monkeypatch):
    monkeypatch.setattr(table_source, "BATCH_ROWS", 200)
    options = Options(str(table / "table.csv"), epochs=2, members=2)
    trained = detecting.fit(options, Progress())
    model_file.save(trained.model, table / "model")
    later = replace(options, file=str(table / "later.csv"), model=str(table / "model"))
    begun = []
    monkeypatch.setattr(batches, "in_processes", lambda *given: begun.append(1) or in_processes(*given))
    for run, given in ((detecting.detect, options), (detecting.score, later)):
        found = []
        for jobs, worth in ((1, 10**9), (2, 1)):
            monkeypatch.setattr(batches, "WORTH_PROCESSES", worth)
            found.append(run(replace(given, jobs=jobs), Progress()))
        one, other = found
        assert pa.concat_tables(one.scored).equals(pa.concat_tables(other.scored))
        assert one.findings.ranked == other.findings.ranked
        assert one.findings.drift == other.findings.drift
        assert len(one.findings.ranked) > 5
        np.testing.assert_array_equal(one.findings.scores, other.findings.scores)
    assert len(begun) == 2
