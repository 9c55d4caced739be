"""`addml detect --time`: periods, not rows; and what is refused."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from addml.decisions.events import Event, events
from addml.pipeline.evaluation import volumes
from tests.cli.running import run_addml


def write(path, steps=600, times=None, broken=slice(300, 312), more=""):
    random = np.random.default_rng(0)
    values = np.sin(np.arange(steps)[:, None] / 7 + np.arange(2)) + 0.05 * random.standard_normal((steps, 2))
    values[broken, 1] += 6
    times = (
        np.datetime64("2026-03-01T00:00:00") + np.arange(steps) * np.timedelta64(60, "s") if times is None else times
    )
    lines = [f"when,load,heat{more and ',' + more}"]
    lines += [f"{time}Z,{a:.4f},{b:.4f}{more and ',idle'}" for time, (a, b) in zip(times, values, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments):
    return run_addml(Path.cwd(), *arguments)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "machine.csv", more="state")


OPTIONS = ("--time", "when", "--epochs", "3", "--members", "2", "--contamination", "0.02")


def test_flagged_steps_in_a_row_are_one_event():
    scores = np.array([0, 5, 7, 6, 0, 0, 9, 0, 5.0])
    assert events(scores, 4) == [Event(6, 7, 6), Event(1, 4, 2), Event(8, 9, 8)]
    assert events(scores, 9) == []
    assert events(scores, 4, begins=[0, 2, 5, 8]) == [Event(6, 7, 6), Event(2, 4, 2), Event(1, 2, 1), Event(8, 9, 8)]


def test_a_long_gap_ends_an_event(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = np.datetime64("2026-03-01T00:00:00")
    times = start + (np.arange(600) + 500 * (np.arange(600) >= 306)) * np.timedelta64(60, "s")
    found = run("detect", write(tmp_path / "m.csv", times=times), *OPTIONS, "--json")
    ends = [(one["start"], one["end"]) for one in json.loads(found.out)["events"]]
    assert any(end == "2026-03-01 05:05:00" for _, end in ends)
    assert any(start == "2026-03-01 13:26:00" for start, _ in ends)


@pytest.mark.parametrize(
    ("time", "first"),
    [
        (lambda step: 1_700_000_000 + 60 * step, "2023-11-15 03:13:20"),
        (lambda step: 1_700_000_000_000 + 1500 * step, "2023-11-14 22:20:50"),
        (lambda step: f"{step:05}", "300"),  # a number, not a code
        (lambda step: np.datetime64("2026-03-01T00:00:00.1") + np.timedelta64(step, "s"), "2026-03-01 00:05:00.1"),
    ],
)
def test_times_of_events_are_told_apart(tmp_path, monkeypatch, time, first):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "m.csv", times=[time(step) for step in range(600)], broken=slice(300, 301))
    file.write_text(file.read_text().replace("Z,", ","))
    (event, *_) = json.loads(run("detect", file, *OPTIONS, "--window", "1", "--json").out)["events"]
    assert (event["start"], event["peak"]) == (first, first)


def test_detect_ranks_periods_and_names_the_channel(machine, tmp_path):
    done = run("detect", machine, *OPTIONS, "--json")
    assert done.code == 0
    found = json.loads(done.out)
    first = found["events"][0]
    assert first["channels"][0]["channel"] == "heat"
    assert first["channels"][0]["share"] > 0.5
    assert "2026-03-01 04:5" <= first["start"] <= "2026-03-01 05:01"
    assert first["end"] >= "2026-03-01 05:05"
    assert first["start"] <= first["peak"] <= first["end"]
    assert found["left_out"] == [{"column": "state", "why": "no numbers"}]
    with (tmp_path / "machine.scored.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    assert {row["event"] for row in rows[300:306]} == {"1"}
    assert rows[0]["event"] == ""
    page = (tmp_path / "machine.report.html").read_text()
    assert 'class="track"' in page
    assert page.count('class="event"') == 2 * len(found["events"])  # in the series, and in a picture of its own


def test_the_peak_of_an_event_stands_beside_the_usual_values(machine, tmp_path):
    """Of the steps that are not flagged the middle nine tenths of heat, about a sine, lie within 1."""
    run("detect", machine, *OPTIONS, "--format", "md", "--json", "--model", "m").succeeded()
    page = (tmp_path / "machine.report.md").read_text()
    assert "## Ranked events" in page
    _check_heat(page)
    run("score", machine, "--time", "when", "--model", "m", "--report", "scored.md").succeeded()
    _check_heat((tmp_path / "scored.md").read_text())


def _check_heat(page):
    heat = next(line for line in page.split("### Step ")[1].splitlines() if line.startswith("| heat |"))
    _, _, value, usual, where, *_ = (cell.strip() for cell in heat.split("|"))
    assert float(value) > 4.5
    assert [round(float(part)) for part in re.split(", mostly | to ", usual)] == [0, -1, 1]
    assert where == "above the usual"


def test_every_event_has_its_channels(machine):
    found = json.loads(
        run("detect", machine, *OPTIONS[:-2], "--threshold", "0.5", "--top", "2", "--json").succeeded().out
    )
    assert len(found["events"]) > 10
    assert all(event["channels"] for event in found["events"])


def test_a_channel_is_drawn_as_the_detector_has_it(machine, tmp_path):
    """Known at every other step alone it would be points without a line."""
    lines = machine.read_text().splitlines()
    cells = [line.split(",") for line in lines]
    halved = [[*row[:2], "" if place % 2 else row[2], row[3]] for place, row in enumerate(cells)]
    machine.write_text("\n".join(map(",".join, halved)) + "\n")
    run("detect", machine, *OPTIONS).succeeded()
    page = (tmp_path / "machine.report.html").read_text()
    drawn = re.search(r'<svg [^>]*class="track".*?</svg>.*?</svg>', page, re.DOTALL)[0]
    names = re.findall(r"<text[^>]*>(\w+):", drawn)
    path = re.findall(r'<path d="([^"]*)" class="line">', drawn)[names.index("heat")]
    assert path.count("M") == 1  # nothing is known of the first step
    assert path.count("L") > 500


def test_a_silent_channel_is_missing_and_the_side_that_counts_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine = write(tmp_path / "machine.csv", broken=slice(300, 312))
    frame = pd.read_csv(machine)
    frame.loc[304, "heat"] = -90  # which does not count
    frame.to_csv(machine, index=False)
    sided = run("detect", machine, *OPTIONS, "--one-sided", "heat:high", "--model", "m", "--json").succeeded()
    (event, *_) = json.loads(sided.out)["events"]
    (words,) = [one["words"] for one in event["channels"] if one["channel"] == "heat"]
    assert float(words.split()[1]) > 5
    frame.assign(heat=np.nan).to_csv("silent.csv", index=False)
    silent = run("score", "silent.csv", "--time", "when", "--model", "m", "--threshold", "-9", "--json").succeeded()
    assert "nan" not in silent.out
    channels = [one for event in json.loads(silent.out)["events"] for one in event["channels"]]
    assert {one["words"] for one in channels if one["channel"] == "heat"} <= {"heat missing"}


def test_info_speaks_of_steps(machine):
    run("fit", machine, "--time", "when", "--epochs", "1", "--model", "m").succeeded()
    run("info", "m").succeeded("trained on 600 steps: 1 epoch")


def test_columns_called_as_those_of_the_scored_table_are_kept(machine, tmp_path):
    lines = machine.read_text().replace("when,", "score,", 1).replace("heat", "event", 1).splitlines()
    (tmp_path / "m.csv").write_text("\n".join(lines))
    run("detect", "m.csv", "--time", "score", "--id", "event", "--epochs", "1", "--no-report").succeeded()
    table = pd.read_csv("m.scored.csv")
    assert list(table) == ["id_score", "id_event", "score", "is_anomaly", "event"]
    given = pd.read_csv("m.csv")
    assert table["id_event"].tolist() == given["event"].tolist()
    assert pd.to_datetime(table["id_score"]).tolist() == pd.to_datetime(given["score"]).tolist()


def test_without_window_a_single_channel_gets_its_period(machine):
    told = run("detect", machine, *OPTIONS, "--columns", "load").out
    assert "windows of 44 steps: the period of the series, from its autocorrelation" in told  # 2 pi 7 = 43.98
    assert "windows of 10 steps: the default for 2 channels" in run("detect", machine, *OPTIONS).out
    assert "windows of" not in run("detect", machine, *OPTIONS, "--window", "9").out


def test_the_table_on_the_screen_has_events(machine):
    done = run("detect", machine, *OPTIONS, "--no-report")
    assert "1 event: 12 of 600 steps flagged (*): " in done.out
    assert "heat" in done.out
    assert "start" in done.out


def test_cells_that_are_no_numbers(machine, tmp_path):
    quick = ("--time", "when", "--epochs", "1", "--members", "1")
    lines = machine.read_text().splitlines()
    cells = [line.split(",") for line in lines]

    def spoiled(name, cell, rows):
        own = [[*row[:2], cell, row[3]] if place in rows else row for place, row in enumerate(cells)]
        (tmp_path / name).write_text("\n".join(map(",".join, own)) + "\n")
        return name

    endless, text = spoiled("endless.csv", "inf", [40]), spoiled("text.csv", "off", [40])
    silent = spoiled("silent.csv", "", range(1, 601))
    run("detect", endless, *quick).failed("column 'heat', row 40 is inf; leave it empty or give a finite number")
    run("detect", text, *quick, "--no-report").succeeded("dropped, no numbers ('off' in row 40): heat")
    run("detect", text, *quick, "--columns", "heat").failed(
        "text.csv: no column except the time holds numbers: heat has no numbers ('off' in row 40)."
    )
    run("fit", machine, *quick).succeeded()
    score = ("score", "--time", "when", "--model", "machine.model")
    wrong = "text.csv: the channel 'heat' holds no numbers"
    run(*score, text).failed(wrong, "('off' in row 40)")
    assert "600 missing values" in run(*score, silent).succeeded().err


def test_fit_and_score_with_a_saved_model(machine, tmp_path):
    settings = ("--contamination", "0.05", "--window", "20", "--causal")
    assert run("fit", machine, *OPTIONS, *settings).code == 0
    fresh = write(tmp_path / "fresh.csv", 200, broken=slice(100, 115))
    done = run("score", fresh, "--model", "machine.model", "--time", "when", "--json")
    assert done.code == 0
    first = json.loads(done.out)["events"][0]
    assert "2026-03-01 01:40" <= first["start"][:16] < "2026-03-01 01:55" <= first["end"][:16]  # broken until then


def test_a_model_of_a_series_remembers_what_names_a_step(machine, tmp_path):
    assert run("fit", machine, *OPTIONS, "--id", "state").code == 0
    run("score", machine, "--model", "machine.model", "--time", "when").succeeded()
    assert (tmp_path / "machine.scored.csv").read_text().startswith('"when","state","score"')


@pytest.fixture
def labelled(tmp_path, monkeypatch):
    """A series whose broken steps, and three sound ones after them, are marked; the last ten have no label."""
    monkeypatch.chdir(tmp_path)
    lines = write(tmp_path / "plain.csv").read_text().splitlines()
    marks = ["fault", *("yes" if 300 <= step < 315 else "" if step >= 590 else "no" for step in range(600))]
    (tmp_path / "labelled.csv").write_text("".join(f"{a},{b}\n" for a, b in zip(lines, marks, strict=True)))
    return tmp_path / "labelled.csv"


def check_figures(evaluation, scored):
    """The figures against those of the scores in a scored file."""
    with open(scored) as file:
        scores = np.array([float(row["score"]) for row in csv.DictReader(file)])[:590]
    marks = (np.arange(590) >= 300) & (np.arange(590) < 315)
    assert (evaluation["rows"], evaluation["anomalies"], evaluation["unlabelled"]) == (590, 15, 10)
    assert evaluation["roc_auc"] == pytest.approx(roc_auc_score(marks, scores))
    assert evaluation["average_precision"] == pytest.approx(average_precision_score(marks, scores))
    assert (evaluation["vus_roc"], evaluation["vus_pr"]) == pytest.approx(volumes(marks, scores))
    assert evaluation["curves"]["roc"]["tpr"][-1] == evaluation["curves"]["pr"]["recall"][0] == 1


def test_evaluate_compares_the_steps_with_their_labels(labelled, tmp_path):
    options = (*OPTIONS, "--label", "fault", "--output", "scored.csv")
    done = run("evaluate", labelled, *options, "--json", "--report", "report.html")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    check_figures(found["evaluation"], "scored.csv")
    assert found["evaluation"]["roc_auc"] > 0.9
    assert found["left_out"] == [{"column": "fault", "why": "the label, for evaluation only"}]
    assert found["columns"] == ["load", "heat"]
    page = (tmp_path / "report.html").read_text()
    assert "VUS-PR" in page
    assert 'class="track"' in page
    printed = run("evaluate", labelled, *options).succeeded("15 anomalies in 590 steps", "ignored: 10 steps").out
    assert f"VUS-PR: {found['evaluation']['vus_pr']:.4f}" in printed


def test_evaluate_by_a_saved_model_of_a_series(labelled):
    settings = ("--contamination", "0.05", "--causal", "--window", "12", "--model", "m")
    assert run("fit", "plain.csv", *OPTIONS, *settings).code == 0
    done = run(
        "evaluate", labelled, "--time", "when", "--label", "fault", "--model", "m", "--json", "--output", "s.csv"
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    check_figures(found["evaluation"], "s.csv")
    assert found["trained_rows"] == 0
    assert found["left_out"] == [{"column": "fault", "why": "the label, for evaluation only"}]
    assert found["events"][0]["channels"][0]["channel"] == "heat"


def test_what_evaluate_cannot_do_with_a_series_is_said(labelled, tmp_path):
    time = ("--time", "when")
    assert "evaluate needs a label column" in run("evaluate", labelled, *time).err
    assert "--anomaly-value VALUE" in run("evaluate", labelled, *time, "--label", "heat").err
    (tmp_path / "told.csv").write_text(labelled.read_text().replace("yes", "1").replace("no", "0"))
    assert run("fit", "told.csv", *time, "--epochs", "1", "--members", "1").code == 0
    done = run("evaluate", "told.csv", *time, "--label", "fault", "--model", "told.model")
    assert done.code == 1
    assert "told.model: was trained on the column 'fault'" in done.err
    done = run("evaluate", "told.csv", *time, "--label", "fault", "--model", "told.model", "--window", "8")
    assert done.code == 2
    assert "--window applies to training and has no effect with --model" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", "--sample", "100"), "--sample does not apply to a series (--time)"),
        (("detect", "--all-rows"), "--all-rows does not apply to a series (--time)"),
        (
            ("evaluate", "--label", "fault", "--model", "m", "--epochs", "3"),
            "--epochs applies to training and has no effect with --model",
        ),
        (("detect", "--size", "32"), "--size does not apply to a series (--time), only to a folder of images"),
        (("fit", "--memory", "1GiB"), "--memory does not apply to a series (--time), only to a table"),
    ],
)
def test_options_that_would_do_nothing_are_refused(labelled, words, message):
    done = run(words[0], labelled, "--time", "when", *words[1:])
    assert done.code == 2
    assert message in " ".join(done.err.replace("│", " ").split())


def test_a_report_without_values_shows_none_of_them(machine, tmp_path):
    assert run("detect", machine, *OPTIONS, "--redact", "--figures", "figures").code == 0
    page = (tmp_path / "machine.report.html").read_text()
    assert 'class="track"' in page
    assert "2026-03-01 05" not in page
    assert "2026-03-01" not in (tmp_path / "figures" / "series.svg").read_text()


START = np.datetime64("2026-03-01T00:00:00")


def test_rows_in_any_order_and_twice_are_sorted_averaged_and_said(machine, tmp_path):
    sorted_run = json.loads(run("detect", machine, *OPTIONS, "--json").succeeded().out)
    head, *lines = machine.read_text().splitlines()
    order = np.random.default_rng(0).permutation([*range(600), 7])
    (tmp_path / "mixed.csv").write_text("\n".join([head, *(lines[place] for place in order)]))
    mixed = json.loads(run("detect", "mixed.csv", *OPTIONS, "--json").succeeded().out)
    assert [one["start"] for one in mixed["events"]] == [one["start"] for one in sorted_run["events"]]
    assert "rows with the same time averaged: 1 repeat" in mixed["notes"]
    assert any(note.startswith("rows sorted by time: ") for note in mixed["notes"])
    given, scored = pd.read_csv("mixed.csv"), pd.read_csv("mixed.scored.csv")
    whole = pd.read_csv("machine.scored.csv")["score"]
    np.testing.assert_allclose(scored["score"], whole[order])
    assert pd.to_datetime(given["when"]).tolist() == pd.to_datetime(scored["when"], utc=True).tolist()


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """Three machines of scales 1, 2 and 50, rows by time; the first and the last have a fault each."""
    monkeypatch.chdir(tmp_path)
    random, rows = np.random.default_rng(0), []
    for host, scale in zip("abc", (1, 2, 50), strict=True):
        values = np.sin(np.arange(600)[:, None] / 7 + np.arange(2)) + 0.05 * random.standard_normal((600, 2))
        values[300:312, 1] += 6 * (host == "a")
        values[450:456, 0] -= 5 * (host == "c")
        fault = np.zeros(600, int)
        fault[slice(300, 312) if host == "a" else slice(450, 456) if host == "c" else slice(0)] = 1
        times = START + np.arange(600) * np.timedelta64(60, "s")
        rows.append(pd.DataFrame({"when": times, "host": host, "load": 9 - scale, "heat": 0.0, "fault": fault}))
        rows[-1][["load", "heat"]] = scale * values + 7 * scale
    pd.concat(rows).sort_values("when", kind="stable").to_csv("machines.csv", index=False)
    return tmp_path / "machines.csv"


ENTITIES = ("--time", "when", "--by", "host", "--epochs", "3", "--members", "2", "--label", "fault")


def test_machines_of_different_scales_in_one_file(machines):
    found = json.loads(run("detect", machines, *ENTITIES, "--model", "m", "--json").succeeded().out)
    assert {(one["host"], one["channels"][0]["channel"]) for one in found["events"]} == {("a", "heat"), ("c", "load")}
    assert found["columns"] == ["load", "heat"]
    assert found["evaluation"]["events"] == {
        "labelled": 2, "found": 2, "false": 0, "delay": pytest.approx(0, abs=3), "true_of_first": 2,
    }  # fmt: skip
    scored, given = pd.read_csv("machines.scored.csv"), pd.read_csv("machines.csv")
    assert list(scored)[:2] == ["when", "host"]
    assert scored["host"].tolist() == given["host"].tolist()
    flagged = scored[scored["is_anomaly"]]
    assert set(flagged["host"]) == {"a", "c"}
    page = Path("machines.report.html").read_text()
    assert "a: 1 event" in page
    assert "b: no event" in page
    again = json.loads(run("score", machines, "--time", "when", "--model", "m", "--json").succeeded().out)
    assert {one["host"] for one in again["events"]} == {"a", "c"}
    assert again["decided_by"] == found["decided_by"]


def test_a_machine_that_training_did_not_have_is_said(machines):
    run("fit", machines, *ENTITIES, "--model", "m").succeeded("steps are judged within host: 3 groups")
    Path("new.csv").write_text(machines.read_text().replace(",c,", ",new,"))
    run("score", "new.csv", "--time", "when", "--model", "m").succeeded(
        "not in training, so compared with all of host: new"
    )


def test_a_series_shorter_than_a_window_is_said(machines):
    lines = machines.read_text().splitlines()
    short = [line for line in lines[1:] if ",a," in line][:7]
    Path("short.csv").write_text("\n".join([*lines, *(line.replace(",a,", ",new,") for line in short)]))
    said = "shorter than a window (10 steps), so their scores are rough: new"
    run("detect", "short.csv", *ENTITIES, "--model", "m", "--no-report").succeeded(said)
    Path("seven.csv").write_text("\n".join([lines[0], *short]))
    run("score", "seven.csv", "--time", "when", "--model", "m").succeeded(said.replace("new", "a"))


def test_days_before_months_where_no_value_tells_but_the_steps_do(machines):
    lines = machines.read_text().replace("2026-03-01 ", "02/03/2026 ").splitlines()
    later = [line.replace("02/03/2026", "03/03/2026") for line in lines[1:]]
    Path("days.csv").write_text("\n".join([*lines, *later]))
    told = run("detect", "days.csv", *ENTITIES, "--no-report").succeeded("'02/03/2026 00:00:00' are read day first").out
    assert told.count("(ambiguous; this order") == 1


def test_a_budget_of_events_and_a_minimum_length(machines):
    for count in (1, 3):
        found = json.loads(run("detect", machines, *ENTITIES, "--events", str(count), "--json").succeeded().out)
        assert len(found["events"]) == count
        assert found["decided_by"] == f"the strongest events, at most {count}"
    long = json.loads(run("detect", machines, *ENTITIES, "--min-steps", "100", "--json").succeeded().out)
    assert long["events"] == []
    assert long["anomalies"] == 0
    told = run("detect", machines, *ENTITIES, "--min-steps", "100", "--fail-above", "0").succeeded(
        "0 events: 0 of 1,800"
    )
    above = pd.read_csv("machines.scored.csv")["score"] > long["threshold"]
    assert f"{above.sum()} more in events shorter than --min-steps" in " ".join(told.out.split())
    assert "are shorter than --min-steps" in Path("machines.report.html").read_text()
    told = run("evaluate", machines, *ENTITIES).succeeded("2 of 2 labelled events found").out
    assert "0 false events; 2 true among the top 2 events" in told
    assert "at most one event in 1,000 windows of clean steps" in told


def test_the_closest_events_are_listed_where_nothing_is_flagged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.sin(np.arange(600) / 4) + 0.1 * np.random.default_rng(0).standard_normal(600)
    pd.DataFrame({"step": np.arange(600), "load": values}).to_csv("calm.csv", index=False)
    told = " ".join(
        run("detect", "calm.csv", "--time", "step").succeeded("0 events: 0 of 600 steps flagged").out.split()
    )
    count = int(re.search(r"the closest are listed, and --events (\d+) would flag them", told)[1])
    assert "The closest events are listed." in Path("calm.report.html").read_text()
    done = run("detect", "calm.csv", "--time", "step", "--events", str(count), "--json").succeeded()
    assert len(json.loads(done.out)["events"]) == count > 0


def test_a_series_that_never_changes_has_no_events(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{time},3" for time in START + np.arange(100) * np.timedelta64(60, "s")]
    Path("flat.csv").write_text("\n".join(["when,load", *lines]))
    found = json.loads(run("detect", "flat.csv", "--time", "when", "--json").succeeded().out)
    assert (found["anomalies"], found["top"]) == (0, [])
    assert "No event is ranked." in Path("flat.report.html").read_text()


def test_bands_are_columns_in_the_units_of_each_machine(machines):
    run("detect", machines, *ENTITIES, "--bands", "--no-report").succeeded()
    scored, given = pd.read_csv("machines.scored.csv"), pd.read_csv("machines.csv")
    assert (scored["heat_low"] <= scored["heat_expected"]).all()
    assert (scored["heat_expected"] <= scored["heat_high"]).all()
    for host, scale in zip("abc", (1, 2, 50), strict=True):
        own = (given["host"] == host).to_numpy()
        away = abs(given["heat"] - scored["heat_expected"])[own] / scale
        assert np.quantile(away, 0.9) < 0.4  # of a sine of 1
        if host == "a":
            assert away.iloc[302:310].min() > 4.5  # what was expected is not what was planted


@pytest.mark.parametrize(
    ("times", "options", "message"),
    [
        (
            lambda: [START] * 600,
            ("--time", "when"),
            "599 of 600 rows repeat a time; if the file has several machines, add --by COLUMN",
        ),
        (
            lambda: np.repeat(START + np.arange(300) * np.timedelta64(60, "s"), 2),  # two machines
            ("--time", "when"),
            "300 of 600 rows repeat a time; if the file has several machines, add --by COLUMN",
        ),
        (lambda: None, ("--time", "hwen"), "has no column 'hwen' (--time)"),
        (lambda: None, ("--time", "when", "--window", "600"), "window=600 leaves 1 complete window"),
        (lambda: None, ("--time", "when", "--columns", "heat, when"), "'when' holds the times of the steps (--time)"),
        (lambda: None, ("--time", "when", "--label", "when"), "remove it from --label"),
        (lambda: None, ("--window", "20"), "--window does not apply to a table, only to a series (--time)"),
        (lambda: None, ("--time", "when", "--columns", "state"), "no column except the time holds numbers"),
    ],
)
def test_what_cannot_be_is_said(tmp_path, monkeypatch, times, options, message):
    monkeypatch.chdir(tmp_path)
    done = run("detect", write(tmp_path / "m.csv", times=times(), more="state"), *options)
    assert done.code in (1, 2)
    assert message in " ".join(done.err.replace("│", " ").split())


def test_a_cell_that_is_no_time_is_named(machine, tmp_path):
    lines = machine.read_text().splitlines()
    lines[40] = "soon" + lines[40][lines[40].index(",") :]
    (tmp_path / "m.csv").write_text("\n".join(lines))
    run("detect", "m.csv", "--time", "when").failed("m.csv: the column 'when' (--time): ", "'soon' in row 40; give ISO")


def test_a_model_of_rows_scores_no_series(machine):
    assert run("fit", machine, "--epochs", "1", "--members", "1").code == 0
    done = run("score", machine, "--model", "machine.model", "--time", "when")
    assert done.code == 1
    assert "was fitted to a table" in done.err


def test_a_model_of_a_series_says_what_it_is_and_what_it_needs(machine):
    assert run("fit", machine, "--time", "when", "--epochs", "1", "--members", "1").code == 0
    assert "trained on 600 steps" in run("info", "machine.model").out
    done = run("score", machine, "--model", "machine.model")
    assert done.code == 1
    assert "was fitted to a series (--time), not to a table" in done.err


def test_two_models_of_a_series_are_compared_step_by_step(machine):
    for name, seed in (("first", 0), ("second", 1)):
        assert run("fit", machine, *OPTIONS, "--seed", seed, "--model", name).code == 0
        assert run("score", machine, "--time", "when", "--model", name, "--output", f"{name}.csv").code == 0
    done = run("diff", "first", "second", machine, "--time", "when", "--output", "moved.csv")
    done.succeeded("600 steps scored by first and second", "flagged: 12 before, 12 after")
    first, second, moved = (pd.read_csv(f"{name}.csv") for name in ("first", "second", "moved"))
    assert moved["when"].tolist() == first["when"].tolist()
    for one, when in ((first, "before"), (second, "after")):
        np.testing.assert_array_equal(moved[f"score_{when}"], one["score"])
        np.testing.assert_array_equal(moved[f"is_anomaly_{when}"], one["is_anomaly"])
        np.testing.assert_array_equal(moved[f"rank_{when}"], one["score"].rank(ascending=False, method="first"))
