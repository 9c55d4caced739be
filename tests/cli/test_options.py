"""Options are the detector's defaults, belong to commands and kinds of row, and survive being written and read."""

import math
import sys
import tomllib
from dataclasses import fields
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from addml.cli import commands
from addml.cli.arguments import read_config
from addml.cli.commands import app, run
from addml.cli.outputs import record
from addml.detector import ADDML
from addml.errors import AddmlError
from addml.pipeline import options
from addml.pipeline.options import KINDS, Options, check, check_applies, options_of, parse
from addml.pipeline.run import fit_model
from addml.pipeline.sources import choose, resolve


def written(command, given, arguments=()):
    """The record of a run that starts now."""
    sys.argv = ["addml", command, *arguments]
    return record(command, given, datetime.now(UTC), {"rows": 1})


@pytest.fixture(autouse=True)
def own_arguments(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["addml"])


def test_what_is_not_said_is_as_in_the_detector():
    X = np.random.default_rng(0).normal(size=(60, 3))
    found = fit_model(Options(), X)
    assert found.settings == ADDML(random_state=0).fit(X).model_.settings
    assert found.decision.share == options.CONTAMINATION


def test_every_option_names_known_commands_and_kinds():
    known = {"detect", "fit", "score", "evaluate", "diff", "demo", "compare"}
    for one in fields(Options):
        if one.metadata:
            assert {*one.metadata["commands"]} <= known
            assert {*one.metadata["kinds"]} <= {*KINDS}
            assert one.metadata["kinds"]
    assert [one.name for one in options_of("info")] == ["quiet", "json"]


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"window": 8}, "table", "--window does not apply to a table, only to a series (--time); remove it."),
        ({"size": "8"}, "table", "--size does not apply to a table, only to a folder of images; remove it."),
        (
            {"sample": 8},
            "series",
            "--sample does not apply to a series (--time), only to a table or a folder of images",
        ),
        ({"strict": True}, "image", "--strict does not apply to a folder of images, only to a table"),
    ],
)
def test_an_option_of_another_kind_of_row_is_wrong_usage(given, kind, words):
    with pytest.raises(AddmlError) as refused:
        check_applies(Options(**given), kind)
    assert str(refused.value).startswith(words)
    assert (refused.value.code, refused.value.option) == ("usage", next(iter(given)))


def test_options_apply_to_their_kinds():
    check_applies(Options(columns=("a",), sample=5, strict=True, memory="1GiB"), "table")
    check_applies(Options(size="8", sample=5, checkpoint="c"), "image")
    check_applies(Options(time="t", window=8, columns=("a",), one_sided=("a:high",)), "series")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("epochs", "0", "--epochs 0: must be at least 1."),
        ("epochs", "1.5", "--epochs 1.5: must be an integer."),
        ("contamination", "7", "--contamination 7: must be between 0 and 0.5."),
        ("contamination", "nan", "--contamination nan: must be between 0 and 0.5."),
        ("clean", "perhaps", "--clean perhaps: must be true or false."),
    ],
)
def test_a_value_that_an_option_does_not_take(name, value, words):
    with pytest.raises(AddmlError) as refused:
        parse(name, value)
    assert (str(refused.value), refused.value.option) == (words, name)


def test_texts_become_values():
    texts = {"epochs": "3", "contamination": "0.2", "clean": "true", "ignore": ["a", "b"], "header": "false", "id": "x"}
    assert {name: parse(name, text) for name, text in texts.items()} == {
        "epochs": 3, "contamination": 0.2, "clean": True, "ignore": ("a", "b"), "header": False, "id": ("x",)
    }  # fmt: skip


def test_a_threshold_is_a_score_or_a_method():
    assert Options(threshold="2.5").tau == 2.5
    assert Options(threshold="auto").tau is None


@pytest.mark.parametrize(
    "text", ["a", 'quote " and \\ back', "tab\tand\nline", "ümlaut 😀", "\x7f", "'single'", "-Infinity"]
)
def test_every_text_survives_the_record(text, tmp_path):
    given = {"file": text, "columns": [text, "b"], "contamination": 0.25, "sample": 3}
    path = tmp_path / "x.run.toml"
    path.write_text(written("detect", given, [text]), "utf-8")
    known = {"file": str, "columns": list, "contamination": str, "sample": str}
    assert read_config(str(path), known, "detect") == given
    assert tomllib.loads(path.read_text("utf-8"))["run"]["versions"]["numpy"]


@pytest.mark.parametrize("command", ["detect", "fit"])
def test_a_model_that_a_run_read_is_not_what_another_writes(tmp_path, command):
    path, known = tmp_path / "x.run.toml", {"file": str, "model": str}
    for other in ("score", "fit"):
        path.write_text(written(other, {"file": "x.csv", "model": "m"}, ["x.csv", "--model", "m"]), "utf-8")
        if other == "fit":
            assert read_config(str(path), known, command)["model"] == "m"
        else:
            with pytest.raises(typer.BadParameter, match=f"reads the model 'm'; addml {command} would overwrite it"):
                read_config(str(path), known, command)
        assert read_config(str(path), known, "score")["model"] == "m"


@pytest.mark.parametrize(
    ("file", "said", "taken"),
    [
        ("contamination = 0.1", ["--threshold", "2"], {"threshold": "2", "contamination": None}),
        ("contamination = 0.1", ["--threshold", "auto"], {"threshold": "auto", "contamination": None}),
        ("threshold = 3", ["--contamination", "0.2"], {"threshold": None, "contamination": 0.2}),
        ("threshold = 3", [], {"threshold": "3", "contamination": None}),
        ("threshold = 2.5", [], {"threshold": "2.5", "contamination": None}),
        ('threshold = "auto"', ["--contamination", "0.2"], {"threshold": None, "contamination": 0.2}),
        ('report = "a.html"', ["--no-report"], {"report": None, "no_report": True}),
        ("no-report = true", ["--report", "a.html"], {"report": "a.html", "no_report": False}),
        ("all-rows = true", ["--sample", "50"], {"all_rows": False, "sample": 50}),
        ("sample = 50", ["--all-rows"], {"all_rows": True, "sample": options.TRAINING_ROWS}),
        ("sample = 50", ["--no-all-rows"], {"all_rows": False, "sample": 50}),
        ("all-rows = true\nquiet = true", ["--no-all-rows"], {"all_rows": False, "quiet": True}),
        ("quiet = true\njson = true\nredact = true", ["--no-quiet", "--no-json"], {"quiet": False, "json": False}),
        (
            "clean = true\nskip-unreadable = true",
            ["--no-clean", "--no-skip-unreadable"],
            {"clean": False, "skip_unreadable": False},
        ),
        ("no-report = true", ["--format", "md"], {"format": "md", "no_report": False}),
        ("sample = 50\ncontamination = 0.2", ["--seed", "1"], {"sample": 50, "contamination": 0.2, "seed": 1}),
    ],
)
def test_the_command_line_stands_in_place_of_what_a_file_says(tmp_path, monkeypatch, file, said, taken):
    path, seen = tmp_path / "x.toml", []
    path.write_text(file)
    monkeypatch.setattr(commands, "_detect", lambda given: seen.append(check(given, "detect").of("detect")))
    assert CliRunner().invoke(app, ["detect", "x.csv", "--config", str(path), *said]).exit_code == 0
    assert {name: seen[0][name] for name in taken} == taken


def test_every_switch_of_a_file_can_be_turned_off():
    switches = {one.name for one in fields(Options) if one.default is False}
    commands = typer.main.get_command(app).commands
    made = {one.name: one.secondary_opts for command in ("score", "detect", "fit") for one in commands[command].params}
    assert {name for name in switches if not made[name]} == {"no_report"}  # which --report FILE does


@pytest.mark.parametrize("word", ["$SECRET", "~", "*"])
def test_words_are_taken_as_they_are_on_windows_too(word, tmp_path, monkeypatch):
    """Where typer expands them as a shell does, also those that addml serve hands on from its clients."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "told")
    monkeypatch.setattr("typer.core.os", SimpleNamespace(name="nt", environ={}))
    monkeypatch.setattr("addml.cli.commands._handle_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["addml", "info", word])
    asked = []
    monkeypatch.setattr("addml.pipeline.run.info", asked.append)
    monkeypatch.setattr(commands.screen, "show_model", lambda screen, about: None)
    with pytest.raises(SystemExit):
        run()
    assert asked == [word]


def test_all_rows_and_a_sample_of_them_cannot_both_be_had():
    with pytest.raises(AddmlError, match="--all-rows and --sample 50 contradict each other"):
        check(Options(sample=50, all_rows=True), "detect")
    assert check(Options(all_rows=True), "detect").all_rows  # as a record has it


@pytest.mark.parametrize(
    ("line", "takes"),
    [
        ("report = false", "report = false: must be a string or a number"),
        ('report = ["a.html", "b.html"]', 'report = ["a.html", "b.html"]: '),
        ("seed = true", "seed = true: "),
        ("seed = 2026-01-02", 'seed = "2026-01-02": '),
        ("[seed]\nx = 1", 'seed = {"x": 1}: '),
        ('clean = "yes"', 'clean = "yes": must be true or false'),
        ("clean = 1", "clean = 1: "),
        ("ignore = true", "ignore = true: must be a string or a list of strings"),
        ('ignore = ["a", ["b"]]', 'ignore = ["a", ["b"]]: '),
    ],
)
def test_a_setting_of_another_kind_is_refused(line, takes, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(line)
    with pytest.raises(typer.BadParameter) as refused:
        read_config(str(path), {"report": str, "seed": str, "clean": bool, "ignore": list}, "detect")
    assert f"{path}: {takes}" in str(refused.value)


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1e300, -0.5])
def test_every_number_survives_the_record(number):
    assert tomllib.loads(written("detect", {"contamination": number}))["contamination"] == number


def test_names_with_commas_are_names_first():
    names = ["a", "b", "a,b", "c d"]
    assert resolve(["a,b", "c d"], names, "--id", "x") == ["a,b", "c d"]
    assert resolve(["a, c d", "b"], names, "--id", "x") == ["a", "c d", "b"]


def test_every_column_has_one_use():
    chosen = choose(["id", "x", "y", "z"], Options(ignore=("z",), id=("id",), label="y"), "t.csv")
    assert chosen.features == ("x",)
    assert chosen.ids == ("id",)
    assert dict(chosen.left_out) == {
        "id": "identifies a row (--id)",
        "y": "the label, for evaluation only",
        "z": "--ignore",
    }
    with pytest.raises(ValueError, match="holds labels; remove it from --columns"):
        choose(["x", "y"], Options(columns=("x", "y"), label="y"), "t.csv")
    with pytest.raises(ValueError, match="no column is left"):
        choose(["x"], Options(ignore=("x",)), "t.csv")
