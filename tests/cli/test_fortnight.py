"""A fortnight of daily files, as examples/fortnight.py draws it: what the user sees each morning, on one screen."""

import csv
import json
import re
import runpy
from pathlib import Path

import pytest

from tests.cli.running import run_addml

EXAMPLE = Path(__file__).parents[2] / "examples" / "fortnight.py"
LINES = 24  # of a screen


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fortnight")
    runpy.run_path(str(EXAMPLE))["write"](folder)
    fit = ("fit", "history.csv", "--by", "store", "--id", "receipt", "--alarm-rate", "0.005", "--model", "shops")
    run_addml(folder, *fit).succeeded("rows are judged within store: 3 groups, 1,120 rows each")
    return folder


def morning(folder, day):
    known = ("--known-normal", "known.toml") if day > 3 else ()
    done = run_addml(folder, "diff", "shops", f"day-{day - 1:02}.csv", f"day-{day:02}.csv", *known).succeeded()
    assert len((done.err + done.out).splitlines()) <= LINES
    return done


@pytest.mark.parametrize("day", [2, 4, 5, 8, 11])
def test_an_ordinary_day_takes_a_few_lines(shops, day):
    done = morning(shops, day)
    assert done.err == ""
    assert len(done.out.splitlines()) <= 7  # at most one row by chance


def test_the_market_is_new_on_day_3_and_hidden_on_day_10(shops):
    assert "Turin: customers unusually high" in morning(shops, 3).out
    tenth = morning(shops, 10)
    assert "3 hidden until 2099-12-31 (market on the square, every Wednesday: known.toml, entry 1)" in tenth.out
    market = [line for line in tenth.out.splitlines() if "Turin: customers unusually high" in line]
    assert all(" 99 " in line for line in market)  # another till, slightly busy


def test_the_unit_change_on_day_6_is_drift_with_figures(shops):
    done = morning(shops, 6)
    assert "Warning: day-06.csv: 1 column has drifted since training: delivery_miles: median 4.65 -> 7.65" in done.err
    for store in ("Bergen", "Lisbon", "Turin"):
        assert f"store {store}: delivery_miles" in done.out
    score = ("score", "day-06.csv", "--model", "shops", "--quiet", "--output", "six.csv")
    quiet = run_addml(shops, *score, "--fail-on-drift")
    assert (quiet.code, quiet.out) == (5, "")
    assert "delivery_miles: median 4.65 -> 7.65" in quiet.err
    assert "median 4.65 -> 7.65" in run_addml(shops, *score).succeeded().err
    assert run_addml(shops, "score", "day-05.csv", *score[2:], "--fail-on-drift").code == 0


def test_the_new_kind_of_fault_on_day_9_is_new_in_every_store_and_gone_the_next_day(shops):
    ninth, tenth = morning(shops, 9).out, morning(shops, 10).out
    for store in ("Bergen", "Lisbon", "Turin"):
        line = next(line for line in ninth.splitlines() if f"store {store}: sales unusually low" in line)
        status, identity, before, after = line.split()[:4]
        assert (status, before, after) == ("new", "0", "3")
        assert f"gone  {identity}       3      0" in tenth


def test_the_store_that_drops_by_80_percent_on_day_12_is_all_that_is_flagged(shops):
    done = run_addml(shops, "score", "day-12.csv", "--model", "shops", "--json", "--output", "twelve.csv").succeeded()
    top = json.loads(done.out)["top"]
    assert {row["ids"]["store"] for row in top} == {"Bergen"}
    rows = list(csv.DictReader((shops / "twelve.csv").open()))
    flagged = [row["store"] for row in rows if row["is_anomaly"] == "true"]
    assert flagged == ["Bergen"] * 40
    assert "store Bergen: customers unusually low" in morning(shops, 12).out


def test_known_rows_are_scored_and_not_listed(shops):
    score = ("score", "day-10.csv", "--model", "shops", "--json", "--output", "ten.csv")
    before = json.loads(run_addml(shops, *score).succeeded().out)
    known = ("--known-normal", "known.toml", "--known-normal", "T10-2-17,T10-2-18")
    after = json.loads(run_addml(shops, *score, *known, "--fail-above", 2).succeeded().out)
    assert after["anomalies"] == before["anomalies"] - 4 == 0
    hidden, by_id = after["hidden"]
    assert (by_id["place"], by_id["rows"], by_id["row"]) == ("--known-normal T10-2-17", 1, 99)
    assert (hidden["rows"], hidden["place"], hidden["expires"]) == (3, "known.toml, entry 1", "2099-12-31")
    assert hidden["row"] not in [row["row"] for row in after["top"]]
    assert hidden["row"] in [row["row"] for row in before["top"]]
    row = list(csv.DictReader((shops / "ten.csv").open()))[hidden["row"] - 1]
    assert (row["is_anomaly"], row["known"]) == ("false", "known.toml, entry 1 (market on the square, every Wednesday)")
    run_addml(shops, *score[:-3], *known, "--report", "ten.md", "--output", "ten.csv").succeeded(
        "3 hidden until 2099-12-31"
    )
    assert "3 hidden until 2099-12-31" in (shops / "ten.md").read_text()
    run_addml(shops, *score, "--fail-above", 2).failed("flagged: more than --fail-above 2", code=3)


def test_a_stranger_row_than_the_example_and_an_expired_entry_are_warnings(shops):
    text = (shops / "known.toml").read_text()
    (shops / "strict.toml").write_text(text.replace("score = 3.0", "score = 1.5"))
    diff = ("diff", "shops", "day-09.csv", "day-10.csv", "--known-normal")
    assert re.search(
        r"hides row 111, score 2\.\d+: stranger than its example, 1.5", run_addml(shops, *diff, "strict.toml").err
    )
    (shops / "old.toml").write_text(text.replace("2099-12-31", "2020-12-31"))
    done = run_addml(shops, *diff, "old.toml").succeeded("Turin: customers unusually high")
    assert "old.toml, entry 1 (market on the square, every Wednesday) expired on 2020-12-31" in done.err


def test_detect_learns_from_a_file_and_hides_its_rows(shops):
    detect = ("detect", "day-10.csv", "--by", "store", "--id", "receipt", "--no-report", "--flag", 5, "--json")
    found = json.loads(run_addml(shops, *detect, "--known-normal", "known.toml").succeeded().out)
    assert "learned from answers: 0 anomalies and 4 normal rows labelled" in found["notes"]
    assert found["anomalies"] == 5
    assert not {row["row"] for row in found["top"]} & {111, 112, 113, 114}
