"""Settings are the detector's defaults, and survive being written and read."""

import math
import sys
import tomllib
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from addml.cli import commands
from addml.cli.app import app, run
from addml.cli.arguments import settings_of
from addml.cli.checks import checked
from addml.detector import ADDML
from addml.pipeline import options
from addml.pipeline.options import Naming, Run, Selection, Settings, Training
from addml.pipeline.sources import choose, resolve
from addml.pipeline.training import estimate, in_words, new_detector


def test_what_is_not_said_is_as_in_the_detector():
    one, plain = Settings(), ADDML().get_params()
    made = new_detector(one.training, one.deciding, one.computing).get_params()
    assert made == plain | {"random_state": 0}
    assert plain["contamination"] == options.CONTAMINATION


@pytest.mark.parametrize(
    "text", ["a", 'quote " and \\ back', "tab\tand\nline", "ümlaut 😀", "\x7f", "'single'", "-Infinity"]
)
def test_every_text_survives_the_record(text, tmp_path):
    run = Run.begin("detect", ["detect", text], {"file": text, "columns": (text, "b"), "tau": 1.5, "sample": 3})
    path = tmp_path / "x.run.toml"
    path.write_text(options.record(run, {"rows": 1}), "utf-8")
    known = {"file": str, "columns": list, "tau": str, "sample": str}
    assert settings_of(str(path), known, "detect") == {"file": text, "columns": [text, "b"], "tau": 1.5, "sample": 3}
    assert tomllib.loads(path.read_text("utf-8"))["run"]["versions"]["numpy"]


@pytest.mark.parametrize("command", ["detect", "fit"])
def test_a_model_that_a_run_read_is_not_what_another_writes(tmp_path, command):
    path, known = tmp_path / "x.run.toml", {"file": str, "model": str}
    for other in ("score", "fit"):
        run = Run.begin(other, [other, "x.csv", "--model", "m"], {"file": "x.csv", "model": "m"})
        path.write_text(options.record(run, {}), "utf-8")
        if other == "fit":
            assert settings_of(str(path), known, command)["model"] == "m"
        else:
            with pytest.raises(typer.BadParameter, match=f"reads the model 'm'; addml {command} would write over it"):
                settings_of(str(path), known, command)
        assert settings_of(str(path), known, "score")["model"] == "m"


def test_a_record_of_before_repeats_its_run(tmp_path):
    path = tmp_path / "x.run.toml"
    run = Run.begin("detect", ["detect", "x.csv"], {"file": "x.csv", "memory": "2GiB"})
    path.write_text(options.record(run, {}), "utf-8")  # as it was written when nobody had said --memory
    assert settings_of(str(path), {"file": str, "memory": str}, "detect") == {"file": "x.csv"}
    path.write_text('memory = "2GiB"')  # which somebody wrote by hand
    assert settings_of(str(path), {"memory": str}, "detect") == {"memory": "2GiB"}


@pytest.mark.parametrize(
    ("file", "said", "taken"),
    [
        ("contamination = 0.1", ["--tau", "2"], {"tau": 2.0, "contamination": None}),
        ("contamination = 0.1", ["--threshold", "tail"], {"threshold": "tail", "contamination": None}),
        ("tau = 3", ["--contamination", "0.2"], {"tau": None, "contamination": 0.2}),
        ('threshold = "auto"', ["--contamination", "0.2"], {"threshold": None, "contamination": 0.2}),
        ('threshold = "tail"', ["--contamination", "0.2"], {"threshold": "tail", "contamination": 0.2}),
        ('report = "a.html"', ["--no-report"], {"report": None, "no_report": True}),
        ("no-report = true", ["--report", "a.html"], {"report": "a.html", "no_report": False}),
        ("all-rows = true", ["--sample", "50"], {"all_rows": False, "sample": 50}),
        ("sample = 50", ["--all-rows"], {"all_rows": True, "sample": options.TRAINING_ROWS}),
        ("sample = 50", ["--no-all-rows"], {"all_rows": False, "sample": 50}),
        ("all-rows = true\nquiet = true", ["--no-all-rows"], {"all_rows": False, "quiet": True}),
        ("quiet = true\njson = true\nredact = true", ["--no-quiet", "--no-json"], {"quiet": False, "json": False}),
        (
            "clean = true\nskip-broken = true",
            ["--no-clean", "--no-skip-broken"],
            {"clean": False, "skip_broken": False},
        ),
        ("no-cache = true", ["--cache"], {"no_cache": False}),
        ("no-cache = true", ["--cache", "--no-cache"], {"no_cache": True}),
        ("no-report = true", ["--format", "md"], {"format": "md", "no_report": False}),
        ("sample = 50\ncontamination = 0.2", ["--seed", "1"], {"sample": 50, "contamination": 0.2, "seed": 1}),
    ],
)
def test_the_command_line_stands_in_place_of_what_a_file_says(tmp_path, monkeypatch, file, said, taken):
    path, seen = tmp_path / "x.toml", []
    path.write_text(file)
    monkeypatch.setattr(commands, "detect", lambda given: seen.append(checked(given).plain()))
    assert CliRunner().invoke(app, ["detect", "x.csv", "--config", str(path), *said]).exit_code == 0
    assert {name: seen[0][name] for name in taken} == taken


def test_every_switch_of_a_file_can_be_turned_off():
    own = [one for group in get_type_hints(Settings).values() if is_dataclass(group) for one in fields(group)]
    switches = {one.name for one in own if one.default is False}
    made = {one.name: one.secondary_opts for one in typer.main.get_command(app).commands["detect"].params}
    assert {name for name in switches if not made[name]} == {"no_report"}  # which --report FILE does


@pytest.mark.parametrize("word", ["$SECRET", "~", "*"])
def test_words_are_taken_as_they_are_on_windows_too(word, tmp_path, monkeypatch):
    """Where typer expands them as a shell does, also those that addml serve hands on from its clients."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "told")
    monkeypatch.setattr("typer.core.os", SimpleNamespace(name="nt", environ={}))
    monkeypatch.setattr("addml.cli.app._heed_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["addml", "info", word])
    asked = []
    monkeypatch.setattr(commands, "info", lambda model, settings: asked.append(model))
    with pytest.raises(SystemExit):
        run()
    assert asked == [word]


def test_all_rows_and_a_sample_of_them_cannot_both_be_had():
    with pytest.raises(typer.BadParameter, match="--all-rows leaves nothing for --sample 50 to do"):
        checked(Settings(training=Training(sample=50, all_rows=True)))
    assert checked(Settings(training=Training(all_rows=True))).training.all_rows  # as a record has it


@pytest.mark.parametrize(
    ("line", "takes"),
    [
        ("report = false", "report = false: 'report' takes one text or number"),
        ('report = ["a.html", "b.html"]', 'report = ["a.html", "b.html"]: '),
        ("seed = true", "seed = true: "),
        ("seed = 2026-01-02", 'seed = "2026-01-02": '),
        ("[seed]\nx = 1", 'seed = {"x": 1}: '),
        ('clean = "yes"', "clean = \"yes\": 'clean' takes true or false"),
        ("clean = 1", "clean = 1: "),
        ("ignore = true", "ignore = true: 'ignore' takes a text, or a list of texts"),
        ('ignore = ["a", ["b"]]', 'ignore = ["a", ["b"]]: '),
    ],
)
def test_a_setting_of_another_kind_is_refused(line, takes, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(line)
    with pytest.raises(typer.BadParameter) as refused:
        settings_of(str(path), {"report": str, "seed": str, "clean": bool, "ignore": list}, "detect")
    assert f"{path}: {takes}" in str(refused.value)


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1e300, -0.5])
def test_every_number_survives_the_record(number):
    text = options.record(Run.begin("detect", [], {"tau": number}), {"rows": 1})
    assert tomllib.loads(text)["tau"] == number


def test_names_with_commas_are_names_first():
    names = ["a", "b", "a,b", "c d"]
    assert resolve(["a,b", "c d"], names, "--id", "x") == ["a,b", "c d"]
    assert resolve(["a, c d", "b"], names, "--id", "x") == ["a", "c d", "b"]


def test_every_column_has_one_use():
    chosen = choose(["id", "x", "y", "z"], Selection(ignore=("z",)), Naming(("id",)), "y", "t.csv")
    assert chosen.features == ("x",)
    assert chosen.ids == ("id",)
    assert dict(chosen.left_out) == {
        "id": "names a row (--id)",
        "y": "the label, for evaluation only",
        "z": "--ignore",
    }
    with pytest.raises(ValueError, match="is the label"):
        choose(["x", "y"], Selection(columns=("x", "y")), Naming(), "y", "t.csv")
    with pytest.raises(ValueError, match="no column is left"):
        choose(["x"], Selection(ignore=("x",)), Naming(), None, "t.csv")


def test_the_estimate_grows_with_the_work():
    training = Settings().training
    assert estimate(200_000, 40, training)[0] > 4 * estimate(40_000, 40, training)[0]
    assert [in_words(seconds) for seconds in (40, 200, 9000)] == ["40 s", "3 min", "2 h"]
