"""Figures, the metric space and running times."""

import numpy as np
import pytest

from addml.pipeline.rivals import SETTINGS, Machine
from research import experiment, figures, plans, reproduce
from research.experiment import Case
from research.reproduce import Choice
from research.statistics import Ranking
from tests.research.toy import blob, row

pytest.importorskip("matplotlib")


def test_the_sweep_is_drawn_as_svg_and_png():
    plan = plans.load("figure-rho-n")
    rows = [
        row("letter", "ADDML.paper", setting, 0.8 + run / 100, run, variant=case.variant)
        for case in plan.cases
        for setting in SETTINGS
        for run in range(3)
    ]
    files = figures.rendered("sweep", lambda: figures.sweep(plan, rows))
    assert files["sweep.svg"].lstrip().startswith(b"<?xml")
    assert files["sweep.png"].startswith(b"\x89PNG")
    assert b"normal ratio" in files["sweep.svg"]
    assert figures.rendered("sweep", lambda: figures.sweep(plan, rows))["sweep.svg"] == files["sweep.svg"]


def test_a_sweep_that_is_not_whole_is_drawn_as_far_as_it_goes():
    plan = plans.load("figure-rho-n")
    rows = [row("letter", "ADDML.paper", "seen", 0.8, run, variant=plan.cases[0].variant) for run in range(2)]
    assert set(reproduce.files(plan, rows, Choice())) == {
        f"figure-rho-n.{ending}" for ending in ("md", "tex", "csv", "svg", "png")
    }


def test_critical_differences_are_drawn():
    ranking = Ranking(("a", "b", "c"), 10, (1.2, 2.0, 2.8), 5.0, 0.01, 1.0)
    files = figures.rendered("ranks", lambda: figures.critical_differences({"seen": ranking, "unseen": ranking}))
    assert b"critical difference 1.00" in files["ranks.svg"]


def test_the_metric_space_tightens():
    data = blob("toy", 120, 6)
    found = figures.metric_space(data)
    assert found.before.shape == found.after.shape == (120, 2)
    spread = [float((points[data.y == 0] ** 2).sum(axis=1).mean()) for points in (found.before, found.after)]
    assert spread[1] < spread[0]
    assert figures.rendered("space", lambda: figures.space(found))["space.png"].startswith(b"\x89PNG")


def test_a_projection_keeps_what_lies_in_a_plane():
    random = np.random.default_rng(0)
    flat = random.normal(size=(50, 2)) @ random.normal(size=(2, 5))
    points = figures.projected(flat, flat.mean(axis=0))
    assert np.linalg.norm(points, axis=1) == pytest.approx(np.linalg.norm(flat - flat.mean(axis=0), axis=1))


def test_times_of_a_drawn_table():
    data = experiment.timed_data(experiment.drawn_name(300, 4))
    assert data.shape == (300 + experiment.SCORED, 4)
    rows = experiment.time_case(Case("HBOS", experiment.BY_ROWS), data, Machine())
    assert len(rows) == experiment.REPEATS
    assert all(one["fit_seconds"] > 0 and one["score_seconds"] > 0 for one in rows)


def test_running_times_are_drawn_and_tabled():
    plan = plans.load("runtime")
    rows = []
    for task in plan.tasks():
        size = dict(zip(("rows", "columns"), experiment.timed_size(task.set), strict=True))
        more = {**size, "variant": task.case.variant, "fit_seconds": 0.5, "score_seconds": 0.001}
        rows.append(row(task.set, task.case.method, "time", 0.9, **more))
    found = reproduce.grids(plan, rows)
    assert set(found) == {
        f"runtime-{what}" for what in ("fit-rows", "score-rows", "fit-columns", "score-columns", "saved")
    }
    assert found["runtime-fit-rows"].lines[0][1].value == 500
    assert found["runtime-saved"].lines[-1][2].value == 1
    drawn = figures.rendered("runtime", lambda: figures.runtime(plan, rows))["runtime.svg"]
    assert b"training rows" in drawn
    assert b"seconds to fit" in drawn


def test_without_matplotlib_the_tables_are_written_and_it_is_said(monkeypatch):
    def absent(name, draw):
        raise ImportError("figures need matplotlib: pip install 'addml[plots]'")

    monkeypatch.setattr(figures, "rendered", absent)
    with pytest.warns(UserWarning, match="pip install"):
        assert reproduce.drawn("sweep", lambda: None) == {}
