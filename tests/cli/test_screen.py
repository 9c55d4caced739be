"""What is printed, into streams of every kind."""

import json
import os
import re
import subprocess

import numpy as np
import pytest

from tests.cli.running import QUICK, command, files_in, spawn_addml, write_small


def in_shell(folder, redirection, *arguments):
    """The command with its streams redirected by a shell."""
    words = ["sh", "-c", f'"$@" {redirection}', "sh", *command(*arguments)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), pytest.param(("--json",), marks=pytest.mark.slow)])
def test_closed_streams_are_no_failure(small_csv, tmp_path, options):
    done = in_shell(tmp_path, "<&- >&- 2>&-", "detect", "small.csv", *QUICK, *options)
    assert done.returncode == 0
    assert {"small.scored.csv", "small.report.html", "small.run.toml"} <= files_in(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--json",), marks=pytest.mark.slow),
        pytest.param(("--output", "/dev/stdout", "--quiet"), marks=pytest.mark.slow),
    ],
)
def test_a_pipe_whose_reader_has_had_enough_is_nothing_to_complain_of(small_csv, tmp_path, options):
    done = in_shell(tmp_path, "| true", "detect", "small.csv", *QUICK, "--no-report", *options)
    assert done.stderr == ""


def test_a_closed_standard_input_is_empty(tmp_path):
    done = in_shell(tmp_path, "<&-", "detect", "-")
    assert done.returncode == 4
    assert done.stderr == "Error: standard input: is empty (0 bytes).\n"


def test_letters_that_the_output_does_not_know(tmp_path):
    write_small(tmp_path / "größe.csv", header="näme,height,weight,colour,when")
    spawn_addml(tmp_path, "fit", "größe.csv", *QUICK, PYTHONIOENCODING="ascii").succeeded("model: gr\\xf6\\xdfe.model")


@pytest.mark.slow
def test_letters_that_the_output_does_not_know_in_json(tmp_path):
    write_small(tmp_path / "größe.csv", header="näme,height,weight,colour,when")
    done = spawn_addml(tmp_path, "detect", "größe.csv", *QUICK, "--json", PYTHONIOENCODING="ascii").succeeded()
    found = json.loads(done.out)
    assert found["source"] == "größe.csv"
    assert found["top"][0]["ids"] == {"näme": "person-00042"}


def test_a_file_whose_name_is_no_text(addml, tmp_path):
    name, record = os.fsdecode(b"caf\xe9.csv"), os.fsdecode(b"caf\xe9.run.toml")
    write_small(tmp_path / "small.csv").rename(tmp_path / name)
    for words in (("detect", name, *QUICK, "--no-report"), ("detect", "--config", record)):
        addml(*words).succeeded()
    assert os.fsdecode(b"caf\xe9.scored.csv") in files_in(tmp_path)


def test_a_terminal_is_told_nothing_by_the_table(addml, small_csv):
    small_csv.write_text(
        small_csv.read_text().replace("person-00042", "\x1b]0;owned\x07\x1b[2J").replace("name", "\x1b[1m")
    )
    done = addml("detect", "small.csv", *QUICK).succeeded("owned")
    assert "\x1b" not in done.out
    assert "\x07" not in done.out
    done = addml("detect", "small.csv", "--label", "nme").failed("has no column 'nme'")
    assert "\x1b" not in done.err


def test_one_is_no_plural(addml, tmp_path):
    values = np.random.default_rng(0).normal(size=60)
    values[7] = 30
    (tmp_path / "t.csv").write_text("x,odd\n" + "".join(f"{x:.4f},{int(x == 30)}\n" for x in values))
    said = addml("detect", "t.csv", "--label", "odd", "--epochs", 1, "--contamination", 0.016, "--report", "r.md")
    said = said.succeeded(
        "60 rows, 1 column used",
        "1 epoch,",
        "1 of 60 rows flagged (*): the 1.6% highest-scoring training rows (score above",
        "(1 anomaly in 60 rows)",
    )
    addml("fit", "t.csv", "--label", "odd", "--epochs", 1, "--contamination", 0.016).succeeded()
    told = addml("info", "t.model").succeeded("1 epoch,", "1 number column: x", "flags 1 of the 60 rows")
    for text in (said.out, told.out, (tmp_path / "r.md").read_text()):
        assert re.findall(r"(?<![\d.,=])1 \w+s\b", text) == []


def test_a_long_path_stays_on_one_line(addml, small_csv, tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    addml("detect", "small.csv", *QUICK, "--report", folder / "r.html").succeeded(f"report: {folder / 'r.html'}\n")
