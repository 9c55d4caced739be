"""Tables from stored runs: means, the paper's figures in brackets, the best in bold, averages, ranks, missing sets."""

import csv
import io

import pytest

from addml.pipeline.rivals import SETTINGS
from research import datasets, experiment, plans, rendering, reproduce, tables
from research.experiment import Case
from research.rendering import Cell, Grid, with_best
from tests.research.toy import plan, row

FIGURES = {("letter", "HBOS"): (0.50, 0.60), ("letter", "KNN"): (0.90, 0.92), ("vowels", "HBOS"): (0.75, 0.75)}
FIGURES |= {
    ("vowels", "KNN"): (0.70, 0.80),
    ("letter", "ADDML.paper"): (0.8, 0.9),
    ("vowels", "ADDML.paper"): (0.9, 0.9),
}


def stored_rows(figures=FIGURES):
    return [
        row(name, method, setting, auc, run)
        for (name, method), aucs in figures.items()
        for setting in SETTINGS
        for run, auc in enumerate(aucs)
    ]


@pytest.fixture
def table2(monkeypatch):
    """Letter and Vowels with runs, Gisette missing, Glass not run yet."""
    monkeypatch.setattr(datasets, "available", lambda name: name != "gisette")
    return plan(
        sets=("gisette", "glass", "letter", "vowels"), methods=("HBOS", "KNN", "ADDML.paper"), against="ADDML.paper"
    )


def lines_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_comparison_in_markdown(table2):
    lines = lines_of(rendering.markdown(tables.comparison(table2, stored_rows())))
    assert lines[0] == ["Set", "Setting", "HBOS", "KNN", "ADDML.paper"]
    assert lines[2] == ["Gisette (missing)", "seen", "– (35.60)", "–", "– (73.40)"]
    assert lines[5] == ["Letter", "seen", "55.00 (57.06)", "**91.00**", "85.00 (81.49)"]
    assert lines[8] == ["Vowels", "seen", "75.00 (63.38)", "75.00", "**90.00** (85.21)"]
    assert lines[11] == ["Average", "seen", "65.00 (60.22)", "83.00", "**87.50** (83.35)"]
    assert lines[14] == ["Mean rank", "seen", "2.75", "1.75", "**1.50**"]


def test_notes_name_what_is_missing_and_what_waits(table2):
    notes = tables.comparison(table2, stored_rows()).notes
    assert notes[0] == "Averages and ranks are over 2 sets."
    assert "Missing on the machine that ran this: Gisette." in notes
    assert "Available and not run yet: Glass." in notes


def test_a_set_apart_is_marked_and_not_averaged(table2):
    apart = plan(sets=("letter", "vowels"), methods=("HBOS", "KNN", "ADDML.paper"), apart=("vowels",))
    grid = tables.comparison(apart, stored_rows())
    assert grid.lines[3][0].text == "Vowels*"
    assert grid.lines[6][2].value == pytest.approx(55)
    assert any(note.startswith("* Vowels") for note in grid.notes)


def test_a_set_that_not_every_method_ran_on_is_not_averaged(table2):
    figures = {place: aucs for place, aucs in FIGURES.items() if place != ("vowels", "KNN")}
    grid = tables.comparison(table2, stored_rows(figures))
    averages = next(line for line in grid.lines if line[0].text == "Average")
    assert averages[2].value == pytest.approx(55)
    assert "Not averaged, as some methods are missing: Vowels." in grid.notes


def test_methods_that_were_not_run_leave_the_averages_of_the_others(table2):
    figures = {place: aucs for place, aucs in FIGURES.items() if place[1] == "HBOS"}
    averages = next(line for line in tables.comparison(table2, stored_rows(figures)).lines if line[0].text == "Average")
    assert averages[2].value == pytest.approx(65)
    assert averages[3].text == "–"


def test_average_precision_has_no_figures_of_the_paper(table2):
    grid = tables.comparison(table2, stored_rows(), "ap")
    assert all(cell.paper is None for line in grid.lines for cell in line)
    assert grid.lines[0][2].value == pytest.approx(27.5)


def test_equal_figures_are_both_best():
    cells = with_best([Cell(value=90.001), Cell(value=89.999), Cell("–"), Cell(value=80.0)])
    assert [cell.best for cell in cells] == [True, True, False, False]
    assert [cell.best for cell in with_best([Cell(value=1.0), Cell("–")])] == [False, False]  # nothing to be best of


GRID = Grid(
    "A & B",
    ("Set", "x_1"),
    ((Cell("50%"), Cell(value=1.5, best=True, paper=2.0, spread=0.25)), (Cell(""), Cell("–"))),
    ("* a note",),
    frozenset({1}),
)


def test_latex():
    text = rendering.latex(GRID)
    assert r"\caption{A \& B}" in text
    assert r"50\% & \textbf{1.50} (2.00) \\" in text
    assert text.index(r"\midrule" + "\n & --") > 0
    assert r"Set & x\_1 \\ \midrule" in text


def test_csv_has_figures_in_full():
    lines = list(csv.reader(io.StringIO(rendering.comma_separated(GRID))))
    assert lines == [
        ["Set", "x_1", "x_1 spread", "x_1 paper"],
        ["50%", "1.5000", "0.2500", "2.0000"],
        ["50%", "–", "", ""],
    ]


def test_csv_keeps_columns_of_one_name():
    grid = Grid("", ("Set", "share", "share"), ((Cell("one"), Cell(value=0.25), Cell(value=0.75)),))
    assert rendering.comma_separated(grid) == "Set,share,share\none,0.2500,0.7500\n"


def test_what_saving_takes_stands_under_a_head_of_its_own():
    times_of = {"letter": {"neither": 2.0, "both": 1.0}, "mnist": {"neither": 8.0, "both": 2.0}}
    rows = [
        row(name, "ADDML.paper", "time", 0.5, variant=f"{experiment.SAVED}: {what}", **{"fit_seconds": seconds})
        for name, by_part in times_of.items()
        for what, seconds in by_part.items()
    ]
    text = rendering.comma_separated(tables.runtime(plans.load("runtime"), rows)[experiment.SAVED])
    (both,) = (line for line in csv.DictReader(io.StringIO(text)) if line["Components"] == "both")
    assert (both["Letter, of neither"], both["Mnist, of neither"]) == ("0.5000", "0.2500")


def test_ablation_with_the_figures_of_the_paper():
    cases = (Case("ADDML.paper", "Instance closeness"), Case("ADDML.paper", "Center closeness"))
    own = plan(name="table1", sets=("letter",), kind="ablation")
    own = type(own)(**{**vars(own), "cases": cases})
    rows = [
        row("letter", "ADDML.paper", setting, auc, run, variant=variant)
        for variant, aucs in (("Instance closeness", (0.76, 0.78)), ("Center closeness", (0.8, 0.8)))
        for setting in SETTINGS
        for run, auc in enumerate(aucs)
    ]
    lines = lines_of(rendering.markdown(tables.ablation(own, rows)))
    spread = "77.00 ± 1.41"  # the deviation of 76 and 78
    assert lines[2] == ["Instance closeness", f"{spread} (77.42)", f"{spread} (77.96)", f"{spread} (81.37)"]
    best = "**80.00** ± 0.00"
    assert lines[3] == ["Center closeness", f"{best} (79.80)", f"{best} (79.63)", f"{best} (78.87)"]
    assert r"Instance closeness & 77.00 $\pm$ 1.41 (77.42)" in rendering.latex(tables.ablation(own, rows))


def test_the_tables_of_a_comparison(table2):
    found = reproduce.grids(table2, stored_rows())
    assert list(found) == ["table2", "table2-friedman", "table2-wilcoxon", "table2-precision", "table2-seconds"]
    assert [cell.text for cell in found["table2-wilcoxon"].lines[0][:4]] == ["seen", "HBOS", "2", "0"]
    assert reproduce.grids(table2, []) == {}
