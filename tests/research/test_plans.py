"""The plans, and the paper's figures that they are set against."""

from pathlib import Path

import pytest

from addml.cli.compare import known_methods
from addml.pipeline.rivals import RIVALS, SETTINGS, Machine
from research import datasets, plans
from research.experiment import METHODS, Case, new_detector

NOT_HERE = ("gisette", "isolet")


def test_the_figures_of_the_paper_have_its_averages():
    table = plans.paper()["table2"]
    assert len(table["sets"]) == 14
    for setting in SETTINGS:
        columns = zip(*(table["sets"][name][setting] for name in table["sets"]), strict=True)
        assert [sum(column) / 14 for column in columns] == pytest.approx(table["average"][setting], abs=0.006)


@pytest.mark.parametrize(("setting", "average"), [("seen", 84.32), ("unseen", 84.43), ("one-class", 87.12)])
def test_the_figures_of_the_paper_over_the_twelve_sets_of_this_project(setting, average):
    table = plans.paper()["table2"]
    ours = [values[setting][-1] for name, values in table["sets"].items() if name not in NOT_HERE]
    assert len(ours) == 12
    assert sum(ours) / 12 == pytest.approx(average, abs=0.006)


@pytest.mark.parametrize("name", plans.NAMES)
def test_every_plan_names_known_sets_and_methods(name):
    plan = plans.load(name)
    assert plan.sets
    assert datasets.parse_names(plan.sets) == list(plan.sets)
    assert known_methods(plan.methods, METHODS) == list(dict.fromkeys(plan.methods))


@pytest.mark.parametrize("name", plans.NAMES)
def test_every_plan_is_in_the_guide(name):
    guide = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    assert f"`{name}`" in guide.partition("## Data sets")[2]


def test_every_plan_has_tasks_of_their_own():
    keys = [task.key for task in plans.load("table1").tasks()]
    assert len(keys) == len(set(keys)) == 6


@pytest.mark.parametrize(("name", "setting"), [("figure-rho-n", "normal_ratio"), ("figure-rho-h", "loss__hard_ratio")])
def test_sweeps_go_from_a_twentieth_to_one(name, setting):
    values = [case.settings[setting] for case in plans.load(name).cases]
    assert values == pytest.approx([0.05 * step for step in range(1, 21)])


def test_one_class_fits_learn_from_all_rows_unless_the_plan_says_otherwise():
    def ratio(one_class=True, **settings):
        case = Case("ADDML.paper", settings=settings)
        return new_detector(case, Machine(), one_class=one_class, seed=0).normal_ratio

    assert ratio() == 1
    assert ratio(normal_ratio=0.5) == 0.5
    assert ratio(loss__hard_ratio=0.5) == 1
    assert ratio(one_class=False) == pytest.approx(2 / 3)


def test_the_paper_s_table_has_its_methods():
    names = [case.method for case in plans.load("table2").cases]
    assert set(plans.paper()["table2"]["methods"]) < set(names)
    assert {"KNN", "LOF"} < set(names)


def test_names_stand_for_plans():
    assert [plan.name for plan in plans.named(["all"])] == list(plans.NAMES)
    assert [plan.name for plan in plans.named(["table1", "table1"])] == ["table1"]
    with pytest.raises(ValueError, match=r"'tabel2' is not an experiment. Did you mean 'table2'"):
        plans.named(["tabel2"])


def test_names_of_sets_and_methods():
    assert datasets.parse_names(["Letter,vowels", "letter"]) == ["letter", "vowels"]
    assert known_methods(["knn, lof"], RIVALS) == ["KNN", "LOF"]
    with pytest.raises(ValueError, match="'leter' is not a known data set"):
        datasets.parse_names(["leter"])
    with pytest.raises(ValueError, match="'knnn' is not a known method"):
        known_methods(["knnn"], RIVALS)
