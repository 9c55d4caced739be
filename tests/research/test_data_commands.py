"""`python -m research list` and `python -m research data`."""

import json
import signal
import subprocess
import threading
from functools import partial

import pytest
from typer.main import get_command

from research import datasets
from research.__main__ import app, main
from tests.cli.running import run_addml
from tests.research.serving import closed_port, npz, serving, small_table
from tests.research.toy import command, environment

WINE = datasets.address_of(datasets.named("wine")).removeprefix("https://raw.githubusercontent.com")
GLASS = datasets.address_of(datasets.named("glass")).removeprefix("https://raw.githubusercontent.com")


@pytest.fixture
def research(tmp_path):
    """Run `python -m research` with an empty cache and no local files, unless told otherwise."""
    unset = {"ADDML_DATA": "", "ADDML_MIRROR": "", "NO_PROXY": "127.0.0.1"}
    return partial(run_addml, tmp_path, main=main, ADDML_CACHE=str(tmp_path / "cache"), **unset)


@pytest.fixture
def server():
    X, y = small_table()
    with serving({WINE: npz(X, y), GLASS: b"something else"}) as running:
        yield running


@pytest.mark.parametrize("name", ["run", "list", "data"])
def test_every_option_and_argument_is_documented(name):
    one = get_command(app).commands[name]
    assert str(one.help).endswith(".")
    for parameter in one.params:
        assert str(parameter.help).endswith("."), f"python -m research {name}: {parameter.name} is not documented"


def test_the_list_tells_what_is_known_and_what_is_missing(research):
    done = research("list").succeeded("set", "licence", "state", "Isolet (reduced)", "0 of 52 are on this machine")
    (letter,) = [line.split() for line in done.out.splitlines() if line.startswith("letter")]
    assert letter == ["letter", "Letter", "paper", "1,600", "32", "6.25", "CC", "BY", "4.0", "missing"]
    (aloi,) = [line.split() for line in done.out.splitlines() if line.startswith("aloi")]
    assert aloi[-6:] == ["?", "?", "?", "not", "stated", "missing"]


def test_the_list_as_json(research, tmp_path):
    document = json.loads(research("list", "--json").succeeded().out)
    assert [one["name"] for one in document["sets"]] == datasets.names()
    assert {one["state"] for one in document["sets"]} == {"missing"}
    assert document["cache"] == str(tmp_path / "cache")


def test_a_pulled_set_is_listed_as_cached(research, server):
    research("data", "wine", "--mirror", server.address).succeeded("wine: 50 rows, 4 columns, 10.00% anomalies")
    states = {one["name"]: one["state"] for one in json.loads(research("list", "--json").out)["sets"]}
    assert states.pop("wine") == "cached"
    assert set(states.values()) == {"missing"}


def test_a_pull_as_json_and_a_quiet_one(research, server):
    done = research("data", "wine", "--mirror", server.address, "--json").succeeded()
    assert json.loads(done.out) == {"sets": {"wine": "cached"}}
    assert research("data", "wine", "--mirror", server.address, "-q").succeeded().out == ""


def test_a_wrong_file_fails_and_the_others_are_pulled(research, server):
    known = datasets.named("glass").sha256
    done = research("data", "glass", "wine", "--mirror", server.address).failed("Error: glass: ", known)
    assert "wine: 50 rows" in done.out


def test_no_network_and_no_name_of_a_set(research):
    address = closed_port()
    research("data", ADDML_MIRROR=address).failed(f"Error: gisette: {address}/", "HTTPS_PROXY", "ADDML_DATA")


def test_an_unknown_set_is_wrong_usage(research):
    research("data", "leter").failed("'leter' is not a known data set", "'letter'", code=2)
    research("data", "letter", "--all").failed("names or --all", code=2)


def test_an_interrupted_pull_leaves_nothing(research, server, tmp_path, monkeypatch):
    asked, go = threading.Event(), threading.Event()
    monkeypatch.setattr("tests.research.serving.answer", lambda request, server: (asked.set(), go.wait(20)))
    variables = {
        "ADDML_CACHE": str(tmp_path),
        "ADDML_DATA": "",
        "ADDML_MIRROR": server.address,
        "NO_PROXY": "127.0.0.1",
    }
    running = subprocess.Popen(
        command("data", "wine"),
        env=environment(**variables),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whatever ran the tests may ignore it
    )
    assert asked.wait(20)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    go.set()
    assert running.returncode == 130
    assert "Traceback" not in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_papers_sets_from_a_local_folder(research, data_folder):
    done = research("list", ADDML_DATA=str(data_folder)).succeeded("25 of 52 are on this machine")
    assert sum(line.endswith("local") for line in map(str.rstrip, done.out.splitlines())) == 25
    research("data", "letter", "glass", ADDML_DATA=str(data_folder)).succeeded("letter: local, ")
