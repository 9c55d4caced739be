"""`python -m research NAME...` as a shell runs it."""

import json
import os
import signal
import subprocess

import pytest

from research.__main__ import main
from tests.cli.running import files_in, run_addml
from tests.research.toy import command, environment

QUICKEST = ("--methods", "HBOS,KNN")


@pytest.fixture
def here(data_folder):
    """The variables under which the data sets are found."""
    return {"ADDML_DATA": str(data_folder)}


def test_table_of_one_set(research, tmp_path, here):
    done = research("table2", "--sets", "glass", *QUICKEST, "--output", "out", **here)
    done.succeeded("Glass", "Average", "Averages and ranks are over 1 set.", "page: out.md")
    assert "table2: Glass, HBOS" in done.err
    assert {"table2.parquet", "table2.md", "table2.tex", "table2.csv"} <= files_in(tmp_path / "out")
    page = (tmp_path / "out.md").read_text()
    assert "python -m research table2 --sets glass" in page
    assert "| Glass | seen |" in page
    assert "| Gisette (missing) | seen |" in page


def test_results_of_the_folder_that_one_is_in(research, tmp_path, here):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "table2-notes.md").write_text("mine")
    (tmp_path / "runs" / "table2-wilcoxon.md").write_text("of an earlier run")
    done = run_addml(tmp_path / "runs", "table2", "--sets", "glass", *QUICKEST, "--output", ".", main=main, **here)
    done.succeeded("page: ")
    assert "(runs/table2.md)" in (tmp_path / "runs.md").read_text()
    assert (tmp_path / "runs" / "table2-notes.md").read_text() == "mine"  # not of the experiment's making
    assert "table2-wilcoxon.md" not in files_in(tmp_path / "runs")  # for which there are too few sets


def test_what_is_stored_is_not_run_again(research, here):
    run = ("table2", "--sets", "glass", *QUICKEST, "--json")
    first, second, third = (
        json.loads(research(*run, *more, **here).succeeded().out) for more in ((), (), ("--again",))
    )
    assert [one["experiments"][0]["tasks"] for one in (first, second, third)] == [2, 0, 2]
    assert second["experiments"][0]["rows"] == 54
    assert first["experiments"][0]["tables"] == third["experiments"][0]["tables"] | {
        "table2-seconds": first["experiments"][0]["tables"]["table2-seconds"]
    }


@pytest.mark.slow
def test_two_processes_give_what_one_gives(research, here):
    run = ("table2", "--sets", "glass", *QUICKEST, "--json")
    tables = [
        json.loads(research(*run, "--jobs", jobs, "--output", f"out{jobs}", **here).succeeded().out) for jobs in (1, 2)
    ]
    one, two = (found["experiments"][0]["tables"]["table2"] for found in tables)
    assert one == two


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "how"), [(1, signal.SIGKILL), (2, signal.SIGTERM)])
def test_a_killed_run_goes_on_where_it_was(research, tmp_path, here, jobs, how):
    run = ("table2", "--sets", "glass,vowels", "--methods", "HBOS,KNN,IsolationForest", "--jobs", jobs)
    with subprocess.Popen(
        command(*run), cwd=tmp_path, env=environment(**here), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        process.stderr.readline()
        process.send_signal(how)
    (told,) = json.loads(research(*run, "--json", **here).succeeded().out)["experiments"]
    assert 0 < told["tasks"] < 6  # the first task at least was kept
    assert told["rows"] == 6 * 27
    assert "table2.parts" not in files_in(tmp_path / "addml-results")


@pytest.mark.slow
def test_no_process_outlives_a_killed_run(tmp_path, here):
    run = ("table2", "--sets", "glass", "--methods", "HBOS,KNN,IsolationForest", "--jobs", 2)
    with subprocess.Popen(
        command(*run), cwd=tmp_path, env=environment(**here), stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        process.stderr.readline()
        process.kill()
        try:
            process.communicate(timeout=60)  # which ends when nobody can write to the pipe any more
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("processes of a killed run are still there")


def test_missing_sets_are_said_and_never_filled_in(research, tmp_path):
    nowhere = {"ADDML_DATA": str(tmp_path), "ADDML_CACHE": str(tmp_path)}
    done = research("table1", **nowhere)
    assert done.code == 0
    assert "Missing on this machine: Letter; python -m research data gets them." in done.err
    assert "0 tasks run now, 0 rows stored" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table3"], "'table3' is not an experiment"),
        (["table2", "--sets", "leter"], "'leter' is not a known data set"),
        (["table2", "--methods", "knnn"], "'knnn' is not a known method"),
        (["table2", "--methods", ","], "--methods is empty"),
        (
            ["table2", "table1", "--methods", "KNN,ECOD"],
            "--methods: 'ECOD' is not in table2, table1; choose from ADDML.paper,",
        ),
        (["figure-space", "--sets", "letter"], "--sets: 'letter' is not in figure-space; choose from vowels."),
        (["figure-space", "--methods", "KNN"], "--methods: 'KNN' is not in figure-space; choose from ADDML.paper."),
        (["table2", "--output", "file"], "file: cannot be a folder of results: is a file (--output)."),
        (["table2", "--output", "file/below"], "file/below: cannot be a folder of results: Not a directory"),
        (["table2", "--sets", ","], "--sets is empty"),
    ],
)
def test_what_is_named_wrongly_is_wrong_usage(research, tmp_path, arguments, words):
    (tmp_path / "file").touch()
    done = research(*arguments, COLUMNS="300")
    assert done.code == 2
    assert words in done.err


def test_an_unknown_device_is_said_before_the_work(research):
    research("table1", "--device", "quantum").failed("device='quantum' is not a device")


def test_quiet_prints_nothing(research, here):
    done = research("table2", "--sets", "glass", *QUICKEST, "--quiet", **here).succeeded()
    assert done.out == ""
    assert done.err == ""
