"""The committed results: they stand for what this code gives."""

from pathlib import Path

import numpy as np
import pytest

from addml.pipeline.rivals import Machine
from research import datasets, plans, rendering, reproduce
from research.reproduce import Choice
from research.run_store import Store

DOCS = Path(__file__).parents[2] / "docs"
MOST_BYTES = 5_000_000
DRAWN = {"ADDML.paper", "DeepAutoencoder", "IsolationForest"}  # rounding elsewhere may change what they draw or learn


@pytest.fixture(scope="module")
def committed():
    if not (DOCS / "results" / "table2.parquet").exists():
        pytest.skip("docs/results holds no runs yet: python -m research all --output docs/results")
    return reproduce.stored(plans.load("table2"), DOCS / "results")


def means(rows, name):
    found = {}
    for row in rows:
        if row["set"] == name:
            found.setdefault((row["method"], row["setting"]), []).append(100 * row["auc"])
    return {place: float(np.mean(values)) for place, values in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["letter", "vowels"])
def test_the_committed_rows_come_out_again(committed, data_folder, tmp_path, name):
    plan, choice = plans.load("table2"), Choice(sets=(name,), machine=Machine("cpu"))
    reproduce.run(plan, reproduce.waiting(plan, tmp_path, choice), tmp_path, choice)
    now, then = (means(rows, name) for rows in (reproduce.stored(plan, tmp_path), committed))
    assert set(now) == set(then)
    for place, auc in now.items():
        assert auc == pytest.approx(then[place], abs=1.0 if place[0] in DRAWN else 0.05), place


def test_every_committed_set_has_nine_runs_of_every_method_and_setting(committed):
    counts = {}
    for row in committed:
        place = row["set"], row["method"], row["setting"]
        counts.setdefault(place, set()).add((row["seed"], row["fold"]))
    assert all(len(runs) == 9 for runs in counts.values())
    assert len({place[1] for place in counts}) == len(plans.load("table2").cases)


def test_results_are_small(committed):
    assert sum(file.stat().st_size for file in (DOCS / "results").rglob("*") if file.is_file()) < MOST_BYTES


@pytest.fixture(scope="module")
def sets_run(committed):
    return {row["set"] for name in plans.NAMES for row in Store(DOCS / "results", name).rows()}


@pytest.fixture
def then(sets_run, monkeypatch):
    """The folder of results as `python -m research` saw it: what was not run was missing."""
    monkeypatch.chdir(DOCS.parent)
    monkeypatch.setattr(datasets, "available", sets_run.__contains__)
    return Path("docs/results")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_is_that_of_the_stored_runs(then):
    assert Path("docs/results.md").read_text() == reproduce.page(then)


@pytest.mark.slow
@pytest.mark.parametrize("name", plans.NAMES)
def test_the_tables_are_those_of_the_stored_runs(then, name):
    plan = plans.load(name)
    for table, grid in reproduce.grids(plan, reproduce.stored(plan, then)).items():
        for ending, write in rendering.FORMATS.items():
            assert (then / f"{table}.{ending}").read_text() == write(grid), f"{table}.{ending}"
