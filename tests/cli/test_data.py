"""`addml data list` and `addml data pull`."""

import json
import os
import signal
import subprocess
import threading
from functools import partial

import pytest
from typer.main import get_command

from addml.cli.commands import app
from addml.data import registry
from tests.cli.running import command, run_addml
from tests.io.serving import closed_port, npz, serving, small_table

WINE = registry.address_of(registry.named("wine")).removeprefix("https://raw.githubusercontent.com")
GLASS = registry.address_of(registry.named("glass")).removeprefix("https://raw.githubusercontent.com")


@pytest.fixture
def addml(tmp_path):
    """Run `addml` with an empty cache and no local files, unless told otherwise."""
    unset = {"ADDML_DATA": "", "ADDML_MIRROR": "", "NO_PROXY": "127.0.0.1"}
    return partial(run_addml, tmp_path, ADDML_CACHE=str(tmp_path / "cache"), **unset)


@pytest.fixture
def server():
    X, y = small_table()
    with serving({WINE: npz(X, y), GLASS: b"something else"}) as running:
        yield running


@pytest.mark.parametrize("name", ["list", "pull"])
def test_every_option_and_argument_is_documented(name):
    one = get_command(app).commands["data"].commands[name]
    assert str(one.help).endswith(".")
    for parameter in one.params:
        assert str(parameter.help).endswith("."), f"addml data {name}: {parameter.name} is not documented"


def test_the_list_tells_what_is_known_and_what_is_missing(addml):
    done = addml("data", "list").succeeded("set", "licence", "state", "Isolet (reduced)", "0 of 52 are on this machine")
    (letter,) = [line.split() for line in done.out.splitlines() if line.startswith("letter")]
    assert letter == ["letter", "Letter", "paper", "1,600", "32", "6.25", "CC", "BY", "4.0", "missing"]
    (aloi,) = [line.split() for line in done.out.splitlines() if line.startswith("aloi")]
    assert aloi[-6:] == ["?", "?", "?", "not", "stated", "missing"]


def test_the_list_as_json(addml, tmp_path):
    document = json.loads(addml("data", "list", "--json").succeeded().out)
    assert [one["name"] for one in document["sets"]] == registry.names()
    assert {one["state"] for one in document["sets"]} == {"missing"}
    assert document["cache"] == str(tmp_path / "cache")


def test_a_pulled_set_is_listed_as_cached(addml, server):
    addml("data", "pull", "wine", "--mirror", server.address).succeeded("wine: 50 rows, 4 columns, 10.00% anomalies")
    states = {one["name"]: one["state"] for one in json.loads(addml("data", "list", "--json").out)["sets"]}
    assert states.pop("wine") == "cached"
    assert set(states.values()) == {"missing"}


def test_a_pull_as_json_and_a_quiet_one(addml, server):
    done = addml("data", "pull", "wine", "--mirror", server.address, "--json").succeeded()
    assert json.loads(done.out) == {"sets": {"wine": "cached"}}
    assert addml("data", "pull", "wine", "--mirror", server.address, "-q").succeeded().out == ""


def test_a_wrong_file_fails_and_the_others_are_pulled(addml, server):
    known = registry.named("glass").sha256
    done = addml("data", "pull", "glass", "wine", "--mirror", server.address).failed("Error: glass: ", known)
    assert "wine: 50 rows" in done.out


def test_no_network_and_no_name_of_a_set(addml):
    address = closed_port()
    addml("data", "pull", ADDML_MIRROR=address).failed(f"Error: gisette: {address}/", "HTTPS_PROXY", "ADDML_DATA")


def test_an_unknown_set_is_wrong_usage(addml):
    addml("data", "pull", "leter").failed("'leter' is no data set", "'letter'", code=2)
    addml("data", "pull", "letter", "--all").failed("names or --all", code=2)


def test_an_interrupted_pull_says_that_it_goes_on(addml, server, tmp_path, monkeypatch):
    asked, go = threading.Event(), threading.Event()
    monkeypatch.setattr("tests.io.serving.answer", lambda request, server: (asked.set(), go.wait(20)))
    variables = {
        "ADDML_CACHE": str(tmp_path),
        "ADDML_DATA": "",
        "ADDML_MIRROR": server.address,
        "NO_PROXY": "127.0.0.1",
    }
    running = subprocess.Popen(
        command("data", "pull", "wine"),
        env={**os.environ, **variables},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whatever ran the tests may ignore it
    )
    assert asked.wait(20)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    go.set()
    assert (running.returncode, err) == (
        130,
        "Interrupted. What was downloaded is kept: the same command goes on from there.\n",
    )


def test_the_papers_sets_from_a_local_folder(addml, data_folder):
    done = addml("data", "list", ADDML_DATA=str(data_folder)).succeeded("25 of 52 are on this machine")
    assert sum(line.endswith("local") for line in map(str.rstrip, done.out.splitlines())) == 25
    addml("data", "pull", "letter", "glass", ADDML_DATA=str(data_folder)).succeeded("letter: local, ")
