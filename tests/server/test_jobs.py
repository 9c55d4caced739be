"""Files that are handed in: what comes back is what the commands say, and nothing is left of what was stopped."""

import asyncio
import csv
import errno
import html
import io
import json
import os
import re
import socket
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml.client import ServerError
from addml.errors import AddmlError
from addml.io.write import naming_file
from addml.server import DISK_FULL, Limits, jobs
from addml.server import job as job_process
from addml.server.app import _error
from addml.server.jobs import _label, _values, remote_options
from addml.server.models import Models, ServedModel, score_rows
from tests.cli.running import QUICK, run_addml, write_small
from tests.server.conftest import serving

FEW = {"members": 2, "epochs": 6}


def get(server, path):
    return server.ask("GET", path, authorization=f"Bearer {server.token}")


@pytest.fixture(scope="module")
def job(server):
    return server.client.detect(server.folder / "small.csv", **FEW, contamination=0.02, top=7)


def test_a_file_is_learned_from_and_ranked_as_by_the_command(server, job, tmp_path):
    write_small(tmp_path / "small.csv")
    options = (*QUICK, "--contamination", 0.02, "--top", 7, "--json")
    expected = json.loads(run_addml(tmp_path, "detect", "small.csv", *options).succeeded().out)
    summary = job["summary"]
    assert job["state"] == "done"
    assert summary["source"] == "small.csv"
    assert summary["top"] == expected["top"]
    assert [summary[name] for name in ("rows", "anomalies", "threshold")] == [300, 6, expected["threshold"]]
    assert len(summary["top"]) == 7
    assert summary["top"][0]["row"] == 42
    _, headers, text = get(server, job["files"]["scored"])
    assert headers["content-disposition"] == "attachment"
    assert text == (tmp_path / "small.scored.csv").read_text()
    assert len(list(csv.reader(io.StringIO(text)))) == 301


def test_its_report_may_do_nothing_here(server, job):
    _, headers, page = get(server, job["files"]["report"])
    assert "300 rows" in page
    assert headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in headers["content-security-policy"]


@pytest.mark.slow
def test_what_was_learned_is_a_model(server, job):
    assert re.fullmatch(r"small-\d+", job["made"])  # there is a small already
    results = server.client.score(job["made"], [{"height": 170, "weight": 70, "colour": "red", "when": "2025-03-03"}])
    assert not results[0]["is_anomaly"]
    again = server.client.detect(server.folder / "small.csv", model=job["made"], top=7)
    # A day may be written with its midnight; p-values of rows that were trained on are ranks among themselves.
    apart = dict.fromkeys(("values", "p_value", "probability"))
    assert [one | apart for one in again["summary"]["top"]] == [one | apart for one in job["summary"]["top"]]
    report = get(server, again["files"]["report"])[2]
    assert f"<td>{job['made']}.model</td>" in report  # not where it lies


def test_results_become_files(server, job, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    server.client.download(job, "scored", "~/mine.csv")
    server.client.download(job, "report", tmp_path / "mine.html")
    assert (tmp_path / "mine.csv").read_text() == get(server, job["files"]["scored"])[2]
    assert (tmp_path / "mine.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ServerError, match="no job"):
        server.client.download({"id": "x"}, "scored", tmp_path / "none.csv")
    with pytest.raises(ValueError, match="'report', 'scored', 'model'"):
        server.client.download(job, "weights", tmp_path / "none.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"mine.csv", "mine.html"}


@pytest.mark.slow
def test_what_was_learned_can_be_taken_home(server, job, tmp_path):
    server.client.download(job, "model", tmp_path / "mine.zip")
    with zipfile.ZipFile(tmp_path / "mine.zip") as archive:
        archive.extractall(tmp_path)
    table = server.folder / "small.csv"
    done = run_addml(tmp_path, "score", table, "--model", "small.model", "--json", "--top", 7).succeeded()
    assert [row["score"] for row in json.loads(done.out)["top"]] == [row["score"] for row in job["summary"]["top"]]
    scored = server.client.detect(server.folder / "small.csv", model="small")
    assert "model" not in scored["files"]
    with pytest.raises(ServerError, match=r"small.csv was scored with small; only jobs that train have a model file"):
        server.client.download(scored, "model", tmp_path / "none.zip")


@pytest.mark.slow
def test_a_file_once_more_with_what_is_known_of_its_rows(server, job, tmp_path):
    """Options that are not named stay; one that is empty is gone."""
    taught = server.client.again(job, known_anomalies=[3], known_normal=[10, 11], contamination="")
    assert taught["id"] != job["id"]
    assert dict(taught["options"]) == {"members": "2", "epochs": "6", "top": "7"} | {
        "known_anomalies": "3", "known_normal": "10,11"
    }  # fmt: skip
    known = ("--known-anomalies", 3, "--known-normal", "10,11")
    table = server.folder / "small.csv"
    done = run_addml(tmp_path, "detect", table, *QUICK, *known, "--top", 7, "--json", "--no-report").succeeded()
    assert taught["summary"]["top"] == json.loads(done.out)["top"]
    assert "learned from answers: 1 anomaly and 2 normal rows labelled" in taught["summary"]["notes"]
    assert server.client.again(taught, known_anomalies="", known_normal="")["summary"]["anomalies"] == 30
    with pytest.raises(ServerError, match="there is no row 301"):
        server.client.again(job, known_normal=[301])
    with pytest.raises(ServerError, match=r"there is no option 'known_good'\. Did you mean"):
        server.client.again(job, known_good=[1])
    with pytest.raises(ServerError, match="there is no job 'x'"):
        server.client.again({"id": "x"})


@pytest.mark.slow
def test_a_series(server, tmp_path):
    values = np.random.default_rng(0).standard_normal(600)
    values[400:410] += 9
    (tmp_path / "machine.csv").write_text("t,v\n" + "".join(f"{t},{v}\n" for t, v in enumerate(values)))
    found = server.client.detect(tmp_path / "machine.csv", time="t", **FEW, contamination=0.02)
    assert 398 <= float(found["summary"]["events"][0]["peak"]) <= 411
    assert server.client.model(found["made"])["noun"] == "step"
    with pytest.raises(ServerError, match="scores steps; upload files"):
        server.client.score(found["made"], [{"v": 1}])
    again = server.client.detect(tmp_path / "machine.csv", model=found["made"], time="t")
    assert again["summary"]["events"] == found["summary"]["events"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"contaminaton": 0.1}, "no option 'contaminaton'. Did you mean 'contamination'?"),
        ({"config": "x.toml"}, "no option 'config'"),
        ({"output": "/tmp/x.csv"}, "no option 'output'"),
        ({"query": "select 1"}, "no option 'query'. Options of this job: columns, "),
        ({"clean": "perhaps"}, "--clean perhaps: must be true or false"),
        pytest.param({"contamination": 7}, "--contamination", marks=pytest.mark.slow),
        pytest.param({"ignore": "nothing"}, "nothing", marks=pytest.mark.slow),
        ({"ignore": "@/etc/passwd"}, "small.csv: has no column '@/etc/passwd' (--ignore)"),
        pytest.param({"label": "~"}, "small.csv: has no column '~' (--label)", marks=pytest.mark.slow),
        ({"label": "colour"}, "colour"),
        ({"model": "small", "epochs": 3}, "no option 'epochs'"),
        ({"model": "big"}, "no model 'big'"),
    ],
)
def test_what_is_wrong_with_options_is_said(server, options, words):
    with pytest.raises(ServerError) as found:
        server.client.detect(server.folder / "small.csv", **options)
    assert words in str(found.value)
    assert "Traceback" not in str(found.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"), [(b"", "empty"), (b"\0\1\2" * 99, "odd.csv"), (b"a,b\n1,2\n", "odd.csv")]
)
def test_what_is_wrong_with_a_file_is_said(server, tmp_path, content, words):
    (tmp_path / "odd.csv").write_bytes(content)
    with pytest.raises(ServerError) as found:
        server.client.detect(tmp_path / "odd.csv")
    assert words in str(found.value)
    assert "/tmp" not in str(found.value)


@pytest.mark.slow
def test_a_job_that_is_removed_is_stopped_and_the_next_has_its_turn(server, tmp_path):
    write_small(tmp_path / "long.csv", rows=20_000)
    head, body = {"authorization": f"Bearer {server.token}"}, (tmp_path / "long.csv").read_bytes()
    _, headers, long = server.ask("POST", "/api/v1/jobs?name=long.csv&members=50&epochs=50", body, **head)
    _, _, waiting = server.ask("POST", "/api/v1/jobs?name=other.csv&members=2&epochs=2", body, **head)
    assert headers["location"] == f"/api/v1/jobs/{long['id']}"
    while get(server, f"/api/v1/jobs/{long['id']}")[2]["state"] == "waiting":
        time.sleep(0.05)
    assert get(server, f"/api/v1/jobs/{waiting['id']}")[2]["state"] == "waiting"
    assert get(server, f"/api/v1/jobs/{long['id']}/report")[0] == 409
    server.client.remove(long)
    assert get(server, f"/api/v1/jobs/{long['id']}")[0] == 404
    while get(server, f"/api/v1/jobs/{waiting['id']}")[2]["state"] in ("waiting", "running"):
        time.sleep(0.1)
    done = get(server, f"/api/v1/jobs/{waiting['id']}")[2]
    assert done["state"] == "done"
    assert any(one["name"] == done["made"] for one in server.client.models())
    server.client.remove(done)
    assert not any(one["name"] == done["made"] for one in server.client.models())


@pytest.mark.slow
def test_a_file_over_the_limit_is_refused(server, tmp_path):
    with serving(server.folder, "--limit", "upload=1MiB") as one:
        for rows in (300_000, 5_000_000):
            (tmp_path / "large.csv").write_bytes(b"a,b\n" + b"1,2\n" * rows)
            with pytest.raises(ServerError, match=r"more than 1 MB; raise the server's --limit upload") as found:
                one.client.detect(tmp_path / "large.csv")
            assert found.value.status == 413
        assert one.ask("GET", "/api/v1/jobs", authorization=f"Bearer {one.token}")[2] == {
            "jobs": [],
            "total": 0,
            "next": None,
        }


def test_a_client_that_goes_away_is_no_failure(server):
    host, _, port = server.url.removeprefix("http://").partition(":")
    before = get(server, "/api/v1/jobs")[2]["jobs"]
    head = f"POST /api/v1/jobs?name=a.csv HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
    with socket.create_connection((host, int(port))) as gone:
        gone.sendall(f"{head}Content-Length: 1000\r\n\r\na,b\n".encode())
    assert [one["id"] for one in get(server, "/api/v1/jobs")[2]["jobs"]] == [one["id"] for one in before]


class Quick:
    """A process that is done at once."""

    def __init__(self, command, cwd, **others):
        (cwd / job_process.MODEL).mkdir()
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO(b'{"progress": "Training"}\n{"result": {}}\n')

    def terminate(self):
        """There is nothing to end."""

    def wait(self, seconds=None):
        """Nor to wait for."""


def test_a_job_that_is_removed_while_its_model_is_loaded_leaves_none(monkeypatch):
    monkeypatch.setattr(jobs.subprocess, "Popen", Quick)
    names = set()

    class Offered:
        device = "cpu"

        def add(self, name, folder):
            work.remove(job.id)
            names.add(name)
            return SimpleNamespace(name=name)

        def pop(self, name, default):
            names.discard(name)

    work = jobs.Jobs(Offered(), Limits())
    job = work.new("a.csv", None, [("train-labels", "known")])
    assert job.request["options"] == {"train_labels": "known", "device": "cpu", "file": str(job.folder / "input.csv")}
    assert job.options == [("train_labels", "known")]  # by its name of today
    work.start(job)
    work._thread.shutdown()
    assert job.state == "stopped"
    assert names == set()
    assert list(work) == []
    work.close()


def test_models_of_images_take_pictures_and_archives_of_them(tmp_path):
    faces = ServedModel("faces", tmp_path, {"noun": "image"}, None)
    work = jobs.Jobs(type("Served", (dict,), {"device": "cpu"})(faces=faces), Limits())
    one, many = work.new("a.png", "faces", []), work.new("faces.ZIP", "faces", [])
    assert one.upload == one.folder / "input.png"  # a name of the client is a label, never a path
    assert many.upload == many.folder / "input.zip"
    work.close()
    with pytest.raises(AddmlError, match="faces scores images; upload files: POST /api/v1/jobs"):
        score_rows(faces, b"")


def test_an_archive_of_pictures_is_scored_unless_it_unpacks_to_too_much(tmp_path):
    pytest.importorskip("PIL")
    from PIL import Image

    random = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "input.zip", "w") as archive:
        for number in range(6):
            file = io.BytesIO()
            Image.fromarray(random.integers(0, 255, (8, 8), np.uint8)).save(file, "PNG")
            archive.writestr(f"{number}.png", file.getvalue())
    job_process.check_unpacked(tmp_path / "input.zip", 10_000)
    with pytest.raises(AddmlError, match="unpacks to more than"):
        job_process.check_unpacked(tmp_path / "input.zip", 100)


@pytest.fixture
def work(tmp_path):
    (tmp_path / "shop").mkdir()
    one = jobs.Jobs(Models("cpu"), Limits())
    one.models["~shop"] = ServedModel("~shop", tmp_path / "shop", {"noun": "row"}, None)
    yield one
    one.close()


NAMES = ["~", "~root", "~root.csv", "*.parquet", "$HOME", "sqlite:x.db", "scored.csv", "~shop.model", "@x", "typer.py"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", [None, "~shop"])
def test_a_name_is_what_people_are_told_and_never_a_path(work, name, model):
    job = work.new(name, model, [])
    assert job.short()["file"] == name
    assert job.upload.parent == job.folder
    assert re.fullmatch(r"input(\.csv|\.parquet)?", job.upload.name)
    own = {"model": str(work.models[model].folder)} if model else {}
    assert job.request["options"] == {"device": "cpu", "file": str(job.upload), **own}
    assert job.request["command"] == ("score" if model else "detect")


def test_commands_do_not_know_the_token(work, monkeypatch):
    environments = []

    def begin(command, env, **others):
        environments.append(env)
        raise OSError("enough is seen")

    monkeypatch.setattr(jobs.subprocess, "Popen", begin)
    monkeypatch.setenv("ADDML_TOKEN", "s" * 20)
    work.start(work.new("a.csv", None, []))
    work._thread.shutdown()
    (environment,) = environments
    assert environment["PATH"] == os.environ["PATH"]
    assert "s" * 20 not in environment.values()


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("a.CSV", ".csv"), ("a.csv.gz", ".csv.gz"), ("a.b.json", ".json"), ("a.gz", ".gz"), ("a.xlsx", ".xlsx"),
        ("a.txt", ""), ("a.py", ""), ("csv", ""), ("a.csv~", ""), ("a.py.zst", ".zst"), ("a.model", ""),
    ],
)  # fmt: skip
def test_only_endings_that_tell_a_format_are_kept(work, name, ending):
    assert work.new(name, None, []).upload.name == f"input{ending}"


def test_nothing_that_lies_on_the_server_is_read(tmp_path):
    """Nor run: a module in the folder of a job would be found before those of Python."""
    (home := tmp_path / "home").mkdir()
    parquet.write_table(pa.table({"secret": np.arange(50.0), "other": np.arange(50.0)}), home / "secret.parquet")
    write_small(tmp_path / "~")
    with serving(tmp_path, HOME=str(home)) as one:
        done = one.client.detect(tmp_path / "~", **FEW)
        assert (done["file"], done["made"], done["summary"]["source"]) == ("~", "~", "~")
        assert (done["summary"]["rows"], "secret" in str(done)) == (300, False)
        code = f"open({str(tmp_path / 'ran')!r}, 'w').close()"
        (tmp_path / "typer.py").write_text(f"{code}\n{code}\n")
        with pytest.raises(ServerError, match=r"typer\.py"):
            one.client.detect(tmp_path / "typer.py")
        assert not (tmp_path / "ran").exists()


def test_people_read_the_name_that_they_gave(server, tmp_path):
    table = write_small(tmp_path / "<b>'my' \"table\" — 1.csv")
    done = server.client.detect(table, **FEW)
    assert done["summary"]["source"] == table.name
    assert done["made"] == table.stem
    report = get(server, done["files"]["report"])[2]
    assert f"<title>30 of 300 rows flagged – {html.escape(table.name)}</title>" in report
    assert done["id"] not in report
    assert table.name not in report
    again = server.client.detect(table, model=done["made"])
    report = get(server, again["files"]["report"])[2]
    assert f"<td>{html.escape(table.stem)}.model</td>" in report
    assert again["id"] not in report + str(again["summary"])
    with pytest.raises(ServerError) as found:
        server.client.detect(table, model=done["made"], id="nothing")
    assert str(found.value).startswith(f"{table.name}: has no column 'nothing'")


def test_failures_of_the_server_are_told_in_its_terminal(caplog):
    request = SimpleNamespace(method="GET", scope={"path": "/api/v1/jobs"})
    answer = asyncio.run(_error(request, KeyError("/home/somebody")))
    assert answer.status_code == 500
    assert b"/home" not in answer.body
    assert [(one.name, one.getMessage()) for one in caplog.records] == [("addml", "GET /api/v1/jobs")]
    assert caplog.records[0].exc_info


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b/small.csv", r"c:\small.csv"])
def test_names_lose_their_folders(name):
    assert _label(name) in ("passwd", "small.csv")


@pytest.mark.parametrize("name", ["", "  ", "..", ".hidden", "-q", "a\nb.csv", "x" * 300, "a/"])
def test_names_that_mean_something_else_are_refused(name):
    with pytest.raises(ValueError, match="name="):
        _label(name)


def test_values_stay_values():
    given = [("delimiter", "--output=x"), ("clean", "true"), ("header", "false"), ("ignore", "a,b")]
    assert _values(given, "detect") == {
        "delimiter": "--output=x",
        "clean": "true",
        "header": "false",
        "ignore": ["a,b"],
    }


def test_a_job_takes_these_options_and_no_others():
    """None is a path, a pattern, an address or a query, or reads another file."""
    score = [
        "id",
        "time",
        "threshold",
        "contamination",
        "top",
        "reasons",
        "redact",
        "sheet",
        "delimiter",
        "header",
        "skip_rows",
        "encoding",
        "decimal",
        "strict",
        "keep",
        "bands",
        "events",
        "min_steps",
    ]
    train = [
        "columns",
        "ignore",
        "label",
        "anomaly_value",
        "train_labels",
        "known_anomalies",
        "known_normal",
        "window",
        "causal",
    ]
    train += ["by", "encoder", "epochs", "members", "sample", "all_rows", "clean", "one_sided", "scorer", "seed"]
    assert {*remote_options("score")} == {*score, "flag", "per_day", "alarm_rate", "max_false_alarms", "known_normal"}
    assert {*remote_options("detect")} == {*score, *train, "flag", "per_day"}


@pytest.mark.parametrize("command", ["score", "detect"])
@pytest.mark.parametrize(
    "name",
    [
        *("query", "config", "output", "report", "no-report", "format", "figures", "model", "file", "size"),
        *(
            "device",
            "jobs",
            "memory",
            "scratch",
            "skip-unreadable",
            "checkpoint",
            "fail-above",
            "quiet",
            "json",
            "name",
        ),
    ],
)
def test_options_that_are_not_about_the_table_are_refused(work, command, name):
    words = f"there is no option '{name.replace('-', '_')}'.* Options of this job: .*id, .*time, "
    with pytest.raises(ValueError, match=words):
        work.new("a.csv", "~shop" if command == "score" else None, [(name, "x")])


def test_a_file_of_known_rows_is_refused(work):
    with pytest.raises(ValueError, match="give row numbers or ids, not a file"):
        work.new("a.csv", None, [("known_normal", "/etc/known.TOML")])


def test_options_that_may_be_given_again_are_all_kept():
    assert _values([("ignore", "a"), ("ignore", "b")], "detect") == {"ignore": ["a", "b"]}
    with pytest.raises(ValueError, match="contamination is given twice"):
        _values([("contamination", "0.1"), ("contamination", "0.2")], "detect")


def answered(monkeypatch, request):
    """The lines of a job's process."""
    out = io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO(request))
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr(job_process.signal, "signal", lambda *given: None)
    monkeypatch.setattr(job_process, "_exit_with_server", lambda: None)
    job_process.main()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_errors_cross_as_data_under_the_names_that_people_know(monkeypatch, tmp_path):
    path = tmp_path / "input.csv"
    path.write_text("a,b\n1,2\n3,5\n")
    request = {
        "command": "detect",
        "options": {"file": str(path), "ignore": ["c"]},
        "labels": {str(path): "my.csv"},
        "unpacked": 10**9,
    }
    *progress, last = answered(monkeypatch, json.dumps(request))
    assert progress == [{"progress": "Reading my.csv"}]
    error = AddmlError.from_json(last["error"])
    assert str(error).startswith("my.csv: has no column 'c' (--ignore).")
    assert (error.code, error.file, error.option) == ("input", "my.csv", "--ignore")


def test_a_traceback_is_for_the_terminal(monkeypatch, capsys):
    def broken(request, lines):
        raise KeyError("/home/somebody")

    monkeypatch.setattr(job_process, "run_job", broken)
    (line,) = answered(monkeypatch, json.dumps({"labels": {}}))
    assert line["error"]["message"] == "the job failed (KeyError); see the server's terminal for details"
    assert "/home/somebody" in capsys.readouterr().err


def test_a_full_disk_is_named_whatever_was_being_written(monkeypatch):
    def full(request, lines):
        with naming_file(Path("scored.csv")):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(job_process, "run_job", full)
    (line,) = answered(monkeypatch, json.dumps({"labels": {}}))
    assert (line["error"]["code"], line["error"]["message"]) == ("disk_full", DISK_FULL)


def test_a_process_that_was_killed_is_a_failure(work, monkeypatch):
    def killed(command, **others):
        stdout = io.BytesIO(b'{"progress": "Training"}\n')
        return SimpleNamespace(stdin=io.BytesIO(), stdout=stdout, wait=lambda seconds=None: -9)

    monkeypatch.setattr(jobs.subprocess, "Popen", killed)
    job = work.new("a.csv", None, [])
    work.start(job)
    work._thread.shutdown()
    assert (job.state, job.error["message"]) == ("failed", "the job was killed from outside during: Training")
