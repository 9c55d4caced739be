"""Files larger than --memory: trained on from disk, with a checkpoint, and scored in pieces."""

import csv
import json
import re
import signal
import subprocess
import time
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml import ADDML
from addml.inputs.disk import open_source
from addml.progress import Progress, stages_to
from tests.cli.running import command, files_in, run_addml

ROWS = 14_000
STREAMED = ("--all-rows", "--memory", "1MiB", "--members", "1", "--epochs", "3", "--scorer", "center")


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    height = random.normal(170, 8, ROWS)
    weight = height - 100 + random.normal(0, 4, ROWS)
    height[41] = 260
    names = [f"person-{row:05}" for row in range(ROWS)]
    return pa.table({"name": names, "height": height, "weight": weight, "place": random.choice(["a", "b"], ROWS)})


@pytest.fixture
def folder(table, tmp_path):
    (tmp_path / "table").mkdir()
    for number in range(3):
        parquet.write_table(table.slice(number * 5000, 5000), tmp_path / "table" / f"{number}.parquet")
    return tmp_path


def weights(model):
    """The hash of a model's arrays."""
    return json.loads((model / "model.json").read_text())["weights"]


def test_fit_and_score(folder):
    done = run_addml(folder, "fit", "table", *STREAMED)
    done.succeeded(
        "14,000 rows, 3 columns used", "name", "identifier", "folder: 3 Parquet files", "trained on 14,000 rows"
    )
    assert "14,000 rows, more than fit into 1MiB: trained on from disk" in done.err
    assert files_in(folder) == {"table", "table.model", "table.run.toml"}
    run_addml(folder, "score", "table", "--model", "table.model").succeeded("person-00041")
    run_addml(folder, "detect", "table", *STREAMED, "--no-report", "--output", "detected.csv").succeeded("person-00041")
    own, new = (list(csv.DictReader((folder / name).open())) for name in ("detected.csv", "table.scored.csv"))
    assert all([a[name] == b[name] for name in ("name", "score", "reasons")] for a, b in zip(own, new, strict=True))
    rows = (folder / "detected.csv").read_text().splitlines()
    assert len(rows) == ROWS + 1
    (first,) = (row for row in rows if re.match(r'"person-\d+",\d+,[^,]+,1,true', row))
    assert first.startswith('"person-00041",42,')


def halted(ours, folder):
    """A process that stands still after its first epoch; a slow look may come after its last one, hence the tries."""
    kept = folder / "killed.checkpoint" / "model.json"
    for _ in range(5):
        process = subprocess.Popen(ours, cwd=folder)
        while not kept.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        if process.poll() is None and kept.exists():
            return process
        process.send_signal(signal.SIGCONT)
        process.wait()
    return pytest.fail("no process was caught between two epochs")


@pytest.mark.slow
def test_a_killed_command_goes_on_and_no_other_beside_it(folder):
    long = [*STREAMED, "--epochs", "40"]
    run_addml(folder, "fit", "table", *long, "--model", "whole").succeeded()
    process = halted(command("fit", "table", *long, "--model", "killed", "--quiet"), folder)
    beside = run_addml(folder, "fit", "table", *long, "--model", "killed")
    beside.failed("killed.checkpoint: another run is using it", str(process.pid))
    process.send_signal(signal.SIGKILL)
    process.wait()
    run_addml(folder, "fit", "table", *STREAMED, "--model", "killed").failed(
        "killed.checkpoint: was made with epochs=40, now it is 3; set it back, or remove the folder to start again"
    )
    run_addml(folder, "fit", "table", *long, "--model", "killed").succeeded()
    assert weights(folder / "killed") == weights(folder / "whole")
    assert files_in(folder) == {"table", "whole", "whole.run.toml", "killed", "killed.run.toml"}


def test_labels_to_learn_from_need_memory(folder, table):
    marked = table.append_column("checked", pa.array(["yes", None] * (ROWS // 2)))
    parquet.write_table(marked, folder / "marked.parquet")
    done = run_addml(folder, "fit", "marked.parquet", *STREAMED, "--train-labels", "checked")
    done.failed("--train-labels checked: a table larger than --memory 1MiB cannot be trained with labels")


def test_a_size_that_is_none(folder):
    run_addml(folder, "fit", "table", "--all-rows", "--memory", "much").failed("--memory='much' must be a memory size")


@pytest.mark.parametrize(
    "words",
    [
        ("table", "--memory", "1GiB"),
        ("table", "--memory", "2GiB"),
        ("table", "--scratch", "."),
        ("small.csv", "--all-rows", "--scratch", "."),
    ],
)
def test_options_that_would_do_nothing_are_refused(folder, words):
    (folder / "small.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    option = next(word for word in words[::-1] if word.startswith("--"))
    run_addml(folder, "fit", *words).failed(f"{option} applies to training on Parquet files with --all-rows")


@pytest.mark.parametrize("words", [("fit", "table", *STREAMED), ("detect", "small.csv")])
def test_a_cache_folder_that_is_none(folder, words):
    (folder / "small.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    run_addml(folder, *words, "--scratch", "none").failed("'none' is not a folder")


def test_a_home_folder_is_found_by_all_options(folder, tmp_path_factory):
    other, quick = tmp_path_factory.mktemp("other"), ("--members", "1", "--epochs", "1")
    (folder / "small.csv").write_text("a,b\n1,2\n3,4\n5,7\n9,8\n" * 5)
    written = {"--output": "x.csv", "--report": "x.html", "--model": "m"}
    options = [word for name, path in written.items() for word in (name, f"~/{path}")]
    again = ("--config", "~/x.run.toml", "--scratch", "~", "--checkpoint", "~/checkpoint")
    run_addml(other, "detect", "~/small.csv", *quick, *options, HOME=str(folder)).succeeded()
    run_addml(other, "detect", *again, HOME=str(folder)).succeeded()
    run_addml(other, "demo", "~/demo", *quick, HOME=str(folder)).succeeded()
    assert files_in(other) == set()
    assert files_in(folder) == {"table", "small.csv", "x.run.toml", "demo", *written.values()}


def test_every_stage_says_how_far_it_is(folder, monkeypatch):
    monkeypatch.setattr("addml.disk_fit.REPORTED", 1)
    monkeypatch.setattr("addml.disk_fit.LEAST_SAMPLE_BYTES", 0)

    class Bars(Progress):
        def __init__(self):
            self.done = {}

        def stage(self, words, total, rows_each=1):
            self.done[words] = [0.0, total]

            def advance(steps):
                self.done[words][0] += steps

            return nullcontext(advance)

    bars = Bars()
    with stages_to(bars):
        source = open_source(folder / "table", ["height", "weight"])
        ADDML.paper(epochs=2, random_state=0).fit(source, memory="1MiB")
    begun = ["Looking", "Standardising", "Preparing", "Training", "Centring", "Scoring"]
    assert [words.split()[0] for words in bars.done] == begun
    assert all(words.endswith("14,000 rows") for words in bars.done)
    assert bars.done["Preparing 14,000 rows"] == [ROWS, ROWS]
    trained, total = bars.done["Training on 14,000 rows"]
    assert total == 2 * ROWS
    assert 0.9 * total < trained < 1.2 * total
