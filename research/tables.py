"""Stored runs to tables: comparisons, significance tests, ablations, sweeps and seconds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np

from addml.pipeline.rivals import SEEN, SETTINGS, Row
from research import datasets, experiment, plans
from research.plans import Plan, method_title
from research.rendering import NONE, Cell, Grid, with_best
from research.run_store import label_of
from research.statistics import Duel, Ranking, duels, rank, ranks

FITS = 18

Place = tuple[str, str, str]  # set, setting, method or variant


def percents(rows: Iterable[Row], measure: str = "auc") -> dict[Place, np.ndarray]:
    """The runs of each set, setting and method (or variant of one), in percent."""
    found: dict[Place, list[float]] = {}
    for row in rows:
        found.setdefault((row["set"], row["setting"], label_of(row)), []).append(100 * row[measure])
    return {place: np.array(values) for place, values in found.items()}


# The comparison ---------------------------------------------------------------------------------------------


def comparison(plan: Plan, rows: Sequence[Row], measure: str = "auc") -> Grid:
    """Sets and settings against methods, with averages and mean ranks at the end."""
    runs, labels = percents(rows, measure), plan.labels
    paper = _paper_table2(plan) if measure == "auc" else {}
    there, known = ({place[0] for place in found} for found in (runs, paper))
    shown = [name for name in plan.sets if name in there or (name in known and not datasets.available(name))]
    lines: list[tuple[Cell, ...]] = []
    rules = set()
    for name in shown:
        rules.add(len(lines))
        mark = "*" if name in plan.apart else "" if name in there else " (missing)"
        lines += _set_lines(name, mark, labels, runs, paper)
    whole = complete_sets(plan, runs)
    rules.add(len(lines))
    for setting in SETTINGS:
        lines.append(_average_line(setting, labels, whole, runs, paper))
    rules.add(len(lines))
    for setting in SETTINGS:
        lines.append(_rank_line(setting, labels, whole, runs))
    caption = {"auc": "ROC-AUC", "ap": "Average precision"}[measure]
    notes = _notes(plan, there, whole)
    return Grid(
        f"{plan.title}: {caption}",
        ("Set", "Setting", *map(method_title, labels)),
        tuple(lines),
        notes,
        frozenset(rules),
    )


def complete_sets(plan: Plan, runs: Mapping[Place, np.ndarray]) -> list[str]:
    """The sets for averages and ranks: those with runs of every method that has any."""
    wanted = [(setting, label) for setting in SETTINGS for label in labels_run(plan, runs)]
    names = [name for name in plan.sets if name not in plan.apart]
    return [name for name in names if wanted and all((name, *place) in runs for place in wanted)]


def labels_run(plan: Plan, runs: Mapping[Place, np.ndarray]) -> list[str]:
    """The cases with any run, in the plan's order."""
    found = {place[2] for place in runs}
    return [label for label in plan.labels if label in found]


def _paper_table2(plan: Plan) -> dict[Place, float]:
    """The paper's figures by the plan's labels."""
    table, methods = plans.paper()["table2"], plan.more["paper"]
    return {
        (name, setting, label): values[table["methods"].index(method)]
        for name, settings in table["sets"].items()
        for setting, values in settings.items()
        for label, method in methods.items()
    }


def _set_lines(
    name: str, mark: str, methods: Sequence[str], runs: Mapping[Place, np.ndarray], paper: Mapping[Place, float]
) -> list[tuple[Cell, ...]]:
    lines = []
    for setting in SETTINGS:
        cells = [_cell(runs.get((name, setting, one)), paper.get((name, setting, one))) for one in methods]
        first = Cell(datasets.title(name) + mark if setting == SETTINGS[0] else "")
        lines.append((first, Cell(setting), *with_best(cells)))
    return lines


def _cell(values: np.ndarray | None, paper: float | None = None) -> Cell:
    if values is None:
        return Cell(NONE, paper=paper)
    return Cell(value=float(values.mean()), spread=float(values.std(ddof=1)) if len(values) > 1 else None, paper=paper)


def _average_line(
    setting: str,
    methods: Sequence[str],
    names: Sequence[str],
    runs: Mapping[Place, np.ndarray],
    paper: Mapping[Place, float],
) -> tuple[Cell, ...]:
    cells = []
    for method in methods:
        own = [runs[name, setting, method].mean() for name in names if (name, setting, method) in runs]
        theirs = [paper[name, setting, method] for name in names if (name, setting, method) in paper]
        printed = float(np.mean(theirs)) if theirs and len(theirs) == len(names) else None
        cells.append(Cell(value=float(np.mean(own)), paper=printed) if own else Cell(NONE, paper=printed))
    return Cell("Average" if setting == SETTINGS[0] else ""), Cell(setting), *with_best(cells)


def _rank_line(
    setting: str, methods: Sequence[str], names: Sequence[str], runs: Mapping[Place, np.ndarray]
) -> tuple[Cell, ...]:
    ran = [method for method in methods if names and (names[0], setting, method) in runs]
    means = ranks(score_matrix(setting, ran, names, runs)).mean(axis=0) if ran else []
    by_method = {method: Cell(value=float(mean)) for method, mean in zip(ran, means, strict=True)}
    cells = [by_method.get(method, Cell(NONE)) for method in methods]
    return Cell("Mean rank" if setting == SETTINGS[0] else ""), Cell(setting), *with_best(cells, lowest=True)


def score_matrix(
    setting: str, methods: Sequence[str], names: Sequence[str], runs: Mapping[Place, np.ndarray]
) -> np.ndarray:
    """Means of the runs, (sets, methods)."""
    means = [[runs[name, setting, method].mean() for method in methods] for name in names]
    return np.array(means).reshape(len(names), len(methods))


def _notes(plan: Plan, there: Container[str], whole: Sequence[str]) -> tuple[str, ...]:
    notes = [f"Averages and ranks are over {len(whole)} set{'' if len(whole) == 1 else 's'}."]
    if marked := [name for name in plan.apart if name in there]:
        notes.append(f"* {_titles(marked)}: shown but not averaged, as it is not one of the paper's sets.")
    if partial := [name for name in plan.sets if name in there and name not in (*whole, *plan.apart)]:
        notes.append(f"Not averaged, as some methods are missing: {_titles(partial)}.")
    absent = [name for name in plan.sets if name not in there]
    if missing := [name for name in absent if not datasets.available(name)]:
        notes.append(f"Missing on the machine that ran this: {_titles(missing)}.")
    if waiting := [name for name in absent if name not in missing]:
        notes.append(f"Available and not run yet: {_titles(waiting)}.")
    return tuple(notes)


def _titles(names: Iterable[str]) -> str:
    return ", ".join(map(datasets.title, names))


# Significance -----------------------------------------------------------------------------------------------


def rankings(plan: Plan, rows: Sequence[Row]) -> dict[str, Ranking]:
    """Friedman's and Nemenyi's tests for each setting with enough sets."""
    runs = percents(rows)
    methods, names = labels_run(plan, runs), complete_sets(plan, runs)
    found = {setting: rank(methods, score_matrix(setting, methods, names, runs)) for setting in SETTINGS}
    return {setting: one for setting, one in found.items() if one is not None}


def friedman(plan: Plan, found: Mapping[str, Ranking]) -> Grid:
    """Friedman's test and the critical difference in each setting."""
    lines = [
        (
            Cell(setting),
            Cell(str(one.sets)),
            Cell(value=one.chi2),
            Cell(f"{one.p:.2g}"),
            Cell(value=one.critical_difference),
            Cell("; ".join(" = ".join(map(method_title, group)) for group in one.groups()) or "none"),
        )
        for setting, one in found.items()
    ]
    heads = ("Setting", "Sets", "Friedman chi2", "p", "Critical difference", "Not told apart (Nemenyi, 5%)")
    return Grid(f"{plan.title}: do ranks differ?", heads, tuple(lines))


def wilcoxon(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Every method against ours, by Wilcoxon's signed ranks."""
    runs = percents(rows)
    methods, names = labels_run(plan, runs), complete_sets(plan, runs)
    lines: list[tuple[Cell, ...]] = []
    rules = set()
    for setting in SETTINGS:
        rules.add(len(lines))
        scores = score_matrix(setting, methods, names, runs)
        lines += [_duel_line(setting, one) for one in duels(methods, scores, plan.against)]
    heads = ("Setting", f"{plan.against} against", "Wins", "Losses", "Mean difference", "p (Wilcoxon, Holm)")
    return Grid(f"{plan.title}: {plan.against} against each", heads, tuple(lines), rules=frozenset(rules))


def _duel_line(setting: str, one: Duel) -> tuple[Cell, ...]:
    counts = (Cell(str(one.wins)), Cell(str(one.losses)))
    return Cell(setting), Cell(method_title(one.method)), *counts, Cell(value=one.difference), Cell(f"{one.p:.3g}")


# The ablation -----------------------------------------------------------------------------------------------


def ablation(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Variants against settings: of one set, or means over all complete sets."""
    runs, variants = percents(rows), [case.variant for case in plan.cases]
    names = [
        name
        for name in plan.sets
        if name not in plan.apart and all((name, setting, one) in runs for setting in SETTINGS for one in variants)
    ]
    columns = []
    for setting in SETTINGS:
        theirs = [_paper_variant(plan, names, setting, one) for one in variants]
        own = [[runs[name, setting, one] for name in names] for one in variants]
        cells = [_over_sets(*pair) for pair in zip(own, theirs, strict=True)]
        columns.append(with_best(cells))
    lines = [(Cell(one), *cells) for one, cells in zip(variants, zip(*columns, strict=True), strict=True)]
    notes = [f"Mean over {len(names)} sets: {_titles(names)}."] if len(names) != 1 else []
    return Grid(plan.title, ("Components", *SETTINGS), tuple(lines), tuple(notes), spreads=True)


def _paper_variant(plan: Plan, names: Sequence[str], setting: str, variant: str) -> float | None:
    """The paper's figure for a variant: from Table I, or a method's mean in Table II over the same sets."""
    if variant in plan.more["paper"] and names:
        table = _paper_table2(plan)
        return float(np.mean([table[name, setting, variant] for name in names]))
    figures = plans.paper().get(plan.name, {}).get(names[0] if names else "", {})
    return figures[variant][SETTINGS.index(setting)] if variant in figures else None


def _over_sets(runs: Sequence[np.ndarray], paper: float | None) -> Cell:
    """The runs of one set with their spread, or the mean of the means of several."""
    if len(runs) == 1:
        return _cell(runs[0], paper)
    return Cell(value=float(np.mean([values.mean() for values in runs])), paper=paper) if runs else Cell(NONE)


# The sweep --------------------------------------------------------------------------------------------------


def sweep(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Values of one setting against the three settings of the protocol, with spreads."""
    runs, setting = percents(rows), plan.more["sweep"]["setting"]
    lines = [
        (
            Cell(f"{case.settings[setting]:.2f}"),
            *(_cell(runs.get((plan.sets[0], name, case.variant))) for name in SETTINGS),
        )
        for case in plan.cases
    ]
    own_name = setting.rpartition("__")[2]  # hard_ratio of loss__hard_ratio
    return Grid(plan.title, (own_name, *SETTINGS), tuple(lines), spreads=True)


# Seconds ----------------------------------------------------------------------------------------------------


def seconds_of_fits(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Seconds of all fits of each set by each method, from the comparison's runs."""
    labels = plan.labels
    names = [name for name in plan.sets if any(row["set"] == name for row in rows)]
    lines = [(Cell(datasets.title(name)), *(_seconds(_fits(rows, name, one)) for one in labels)) for name in names]
    totals = [_seconds([second for name in names for second in _fits(rows, name, one)]) for one in labels]
    note = f"Seconds for the {FITS} fits of a set, by one process; those of ADDML train together in one call."
    return Grid(
        f"{plan.title}: seconds",
        ("Set", *map(method_title, labels)),
        (*lines, (Cell("All"), *totals)),
        (note,),
        frozenset({len(lines)}),
    )


def _fits(rows: Iterable[Row], name: str, label: str) -> list[float]:
    """The seconds of each fit; a polluted one has two rows."""
    return [
        row["fit_seconds"] for row in rows if row["set"] == name and label_of(row) == label and row["setting"] != SEEN
    ]


def _seconds(found: Sequence[float]) -> Cell:
    return Cell(value=float(np.sum(found)), digits=1) if found else Cell(NONE)


def runtime(plan: Plan, rows: Sequence[Row]) -> dict[str, Grid]:
    """Seconds to fit and score against rows and columns, and the savings by distillation and mining."""
    found = {}
    for what in (experiment.BY_ROWS, experiment.BY_COLUMNS):
        for words, seconds in (("fit", "fit_seconds"), ("score", "score_seconds")):
            found[f"{words}-{what}"] = _against(plan, rows, what, words, seconds)
    return {**found, experiment.SAVED: _saved(plan, rows)}


def _against(plan: Plan, rows: Sequence[Row], what: str, words: str, seconds: str) -> Grid:
    own = [row for row in rows if row["variant"] == what]
    sizes = sorted({row[what] for row in own})
    methods = [case.method for case in plan.cases]
    lines = []
    for method in methods:
        values = [[row[seconds] for row in own if row["method"] == method and row[what] == size] for size in sizes]
        lines.append((Cell(method), *(_milliseconds(one) for one in values)))
    task = "fit" if words == "fit" else f"score {experiment.SCORED:,} rows"
    heads = ("Method", *(f"{size:,} {what}" for size in sizes))
    return Grid(f"Milliseconds to {task}, against {what}", heads, tuple(lines))


def _milliseconds(found: Sequence[float]) -> Cell:
    return Cell(value=1000 * min(found), digits=1) if found else Cell(NONE)


def _saved(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Seconds of a fit of 50 epochs with each component on or off, and the share of the time without them."""
    lines = []
    for what in experiment.SAVINGS:
        cells = []
        for name in plan.sets:
            own, whole = (_fastest(rows, name, one) for one in (what, "neither"))
            cells += [Cell(NONE)] * 2 if own is None or whole is None else [Cell(value=own), Cell(value=own / whole)]
        lines.append((Cell(what), *cells))
    heads = [f"{datasets.title(name)}, {what}" for name in plan.sets for what in ("s", "of neither")]
    return Grid("Seconds of 50 epochs with distillation and mining on or off", ("Components", *heads), tuple(lines))


def _fastest(rows: Iterable[Row], name: str, what: str) -> float | None:
    found = [
        row["fit_seconds"] for row in rows if row["set"] == name and row["variant"] == f"{experiment.SAVED}: {what}"
    ]
    return min(found) if found else None
