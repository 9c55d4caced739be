"""Stored runs to tables: comparisons, significance tests, ablations, sweeps and seconds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import product

import numpy as np

from addml.pipeline.rivals import SEEN, SETTINGS, Row
from research import datasets, experiment, plans
from research.plans import Plan, method_title
from research.rendering import NONE, Cell, Grid, with_best
from research.run_store import label_of
from research.statistics import Duel, Ranking, duels, rank, ranks

FITS = 18

Key = tuple[str, str, str]  # set, setting, method or variant


def percents(rows: Iterable[Row], measure: str = "auc") -> dict[Key, np.ndarray]:
    """The runs of each set, setting and method (or variant of a method), in percent."""
    values: dict[Key, list[float]] = {}
    for row in rows:
        values.setdefault((row["set"], row["setting"], label_of(row)), []).append(100 * row[measure])
    return {key: np.array(percentages) for key, percentages in values.items()}


# The comparison ---------------------------------------------------------------------------------------------


def comparison(plan: Plan, rows: Sequence[Row], measure: str = "auc") -> Grid:
    """Sets and settings against methods, with averages and mean ranks at the end."""
    runs, labels = percents(rows, measure), plan.labels
    paper = _paper_table2(plan) if measure == "auc" else {}
    sets_run, sets_in_paper = {key[0] for key in runs}, {key[0] for key in paper}
    lines: list[tuple[Cell, ...]] = []
    rules = set()
    for name in plan.sets:
        if name in sets_run or (name in sets_in_paper and not datasets.available(name)):
            rules.add(len(lines))
            mark = "*" if name in plan.apart else "" if name in sets_run else " (missing)"
            lines += _set_lines(name, mark, labels, runs, paper)
    complete = complete_sets(plan, runs)
    rules.add(len(lines))
    for setting in SETTINGS:
        lines.append(_average_line(setting, labels, complete, runs, paper))
    rules.add(len(lines))
    for setting in SETTINGS:
        lines.append(_rank_line(setting, labels, complete, runs))
    caption = {"auc": "ROC-AUC", "ap": "Average precision"}[measure]
    notes = _notes(plan, sets_run, complete)
    return Grid(
        f"{plan.title}: {caption}",
        ("Set", "Setting", *map(method_title, labels)),
        tuple(lines),
        notes,
        frozenset(rules),
    )


def complete_sets(plan: Plan, runs: Mapping[Key, np.ndarray]) -> list[str]:
    """The sets for averages and ranks: those with runs of every method that has any."""
    required = [(setting, label) for setting in SETTINGS for label in labels_run(plan, runs)]
    names = [name for name in plan.sets if name not in plan.apart]
    return [name for name in names if required and all((name, *pair) in runs for pair in required)]


def labels_run(plan: Plan, runs: Mapping[Key, np.ndarray]) -> list[str]:
    """The cases with any run, in the plan's order."""
    labels = {key[2] for key in runs}
    return [label for label in plan.labels if label in labels]


def _paper_table2(plan: Plan) -> dict[Key, float]:
    """The paper's figures by the plan's labels."""
    table, methods = plans.paper()["table2"], plan.more["paper"]
    return {
        (name, setting, label): values[table["methods"].index(method)]
        for name, settings in table["sets"].items()
        for setting, values in settings.items()
        for label, method in methods.items()
    }


def _set_lines(
    name: str, mark: str, methods: Sequence[str], runs: Mapping[Key, np.ndarray], paper: Mapping[Key, float]
) -> list[tuple[Cell, ...]]:
    lines = []
    for setting in SETTINGS:
        keys = [(name, setting, method) for method in methods]
        cells = [_cell(runs.get(key), paper.get(key)) for key in keys]
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
    runs: Mapping[Key, np.ndarray],
    paper: Mapping[Key, float],
) -> tuple[Cell, ...]:
    cells = []
    for method in methods:
        keys = [(name, setting, method) for name in names]
        means = [runs[key].mean() for key in keys if key in runs]
        in_paper = [paper[key] for key in keys if key in paper]
        paper_mean = float(np.mean(in_paper)) if in_paper and len(in_paper) == len(names) else None
        cells.append(Cell(value=float(np.mean(means)), paper=paper_mean) if means else Cell(NONE, paper=paper_mean))
    return Cell("Average" if setting == SETTINGS[0] else ""), Cell(setting), *with_best(cells)


def _rank_line(
    setting: str, methods: Sequence[str], names: Sequence[str], runs: Mapping[Key, np.ndarray]
) -> tuple[Cell, ...]:
    ran = [method for method in methods if names and (names[0], setting, method) in runs]
    means = ranks(score_matrix(setting, ran, names, runs)).mean(axis=0) if ran else []
    by_method = {method: Cell(value=float(mean)) for method, mean in zip(ran, means, strict=True)}
    cells = [by_method.get(method, Cell(NONE)) for method in methods]
    return Cell("Mean rank" if setting == SETTINGS[0] else ""), Cell(setting), *with_best(cells, lowest=True)


def score_matrix(
    setting: str, methods: Sequence[str], names: Sequence[str], runs: Mapping[Key, np.ndarray]
) -> np.ndarray:
    """Means of the runs, (sets, methods)."""
    means = [[runs[name, setting, method].mean() for method in methods] for name in names]
    return np.array(means).reshape(len(names), len(methods))


def _notes(plan: Plan, sets_run: Container[str], complete: Sequence[str]) -> tuple[str, ...]:
    notes = [f"Averages and ranks are over {len(complete)} set{'' if len(complete) == 1 else 's'}."]
    if marked := [name for name in plan.apart if name in sets_run]:
        notes.append(f"* {_titles(marked)}: shown but not averaged, as it is not one of the paper's sets.")
    if partial := [name for name in plan.sets if name in sets_run and name not in (*complete, *plan.apart)]:
        notes.append(f"Not averaged, as some methods are missing: {_titles(partial)}.")
    not_run = [name for name in plan.sets if name not in sets_run]
    if missing := [name for name in not_run if not datasets.available(name)]:
        notes.append(f"Missing on the machine that ran this: {_titles(missing)}.")
    if waiting := [name for name in not_run if name not in missing]:
        notes.append(f"Available and not run yet: {_titles(waiting)}.")
    return tuple(notes)


def _titles(names: Iterable[str]) -> str:
    return ", ".join(map(datasets.title, names))


# Significance -----------------------------------------------------------------------------------------------


def rankings(plan: Plan, rows: Sequence[Row]) -> dict[str, Ranking]:
    """Friedman's and Nemenyi's tests for each setting with enough sets."""
    runs = percents(rows)
    methods, names = labels_run(plan, runs), complete_sets(plan, runs)
    by_setting = {setting: rank(methods, score_matrix(setting, methods, names, runs)) for setting in SETTINGS}
    return {setting: ranking for setting, ranking in by_setting.items() if ranking is not None}


def friedman(plan: Plan, by_setting: Mapping[str, Ranking]) -> Grid:
    """Friedman's test and the critical difference in each setting."""
    lines = [
        (
            Cell(setting),
            Cell(str(ranking.sets)),
            Cell(value=ranking.chi2),
            Cell(f"{ranking.p:.2g}"),
            Cell(value=ranking.critical_difference),
            Cell("; ".join(" = ".join(map(method_title, group)) for group in ranking.groups()) or "none"),
        )
        for setting, ranking in by_setting.items()
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
        lines += [_duel_line(setting, duel) for duel in duels(methods, scores, plan.against)]
    heads = ("Setting", f"{plan.against} against", "Wins", "Losses", "Mean difference", "p (Wilcoxon, Holm)")
    return Grid(f"{plan.title}: {plan.against} against each", heads, tuple(lines), rules=frozenset(rules))


def _duel_line(setting: str, duel: Duel) -> tuple[Cell, ...]:
    counts = (Cell(str(duel.wins)), Cell(str(duel.losses)))
    return Cell(setting), Cell(method_title(duel.method)), *counts, Cell(value=duel.difference), Cell(f"{duel.p:.3g}")


# The ablation -----------------------------------------------------------------------------------------------


def ablation(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Variants against settings: of one set, or means over all complete sets."""
    runs, variants = percents(rows), [case.variant for case in plan.cases]
    names = [
        name
        for name in plan.sets
        if name not in plan.apart and all((name, *pair) in runs for pair in product(SETTINGS, variants))
    ]
    columns = []
    for setting in SETTINGS:
        cells = []
        for variant in variants:
            in_paper = _paper_variant(plan, names, setting, variant)
            cells.append(_over_sets([runs[name, setting, variant] for name in names], in_paper))
        columns.append(with_best(cells))
    lines = [(Cell(variant), *cells) for variant, *cells in zip(variants, *columns, strict=True)]
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
    short_name = setting.rpartition("__")[2]  # hard_ratio of loss__hard_ratio
    return Grid(plan.title, (short_name, *SETTINGS), tuple(lines), spreads=True)


# Seconds ----------------------------------------------------------------------------------------------------


def seconds_of_fits(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Seconds of all fits of each set by each method, from the comparison's runs."""
    labels = plan.labels
    names = [name for name in plan.sets if any(row["set"] == name for row in rows)]
    lines = [(Cell(datasets.title(name)), *(_seconds(_fits(rows, name, label)) for label in labels)) for name in names]
    totals = [_seconds([seconds for name in names for seconds in _fits(rows, name, label)]) for label in labels]
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


def _seconds(values: Sequence[float]) -> Cell:
    return Cell(value=float(np.sum(values)), digits=1) if values else Cell(NONE)


def runtime(plan: Plan, rows: Sequence[Row]) -> dict[str, Grid]:
    """Seconds to fit and score against rows and columns, and the savings by distillation and mining."""
    grids = {}
    for dimension in (experiment.BY_ROWS, experiment.BY_COLUMNS):
        for phase in ("fit", "score"):
            grids[f"{phase}-{dimension}"] = _against(plan, rows, dimension, phase)
    return {**grids, experiment.SAVED: _saved(plan, rows)}


def _against(plan: Plan, rows: Sequence[Row], dimension: str, phase: str) -> Grid:
    times: dict[tuple[str, int], list[float]] = {}  # by method and size
    for row in rows:
        if row["variant"] == dimension:
            times.setdefault((row["method"], row[dimension]), []).append(row[f"{phase}_seconds"])
    sizes = sorted({size for _, size in times})
    methods = [case.method for case in plan.cases]
    lines = [(Cell(name), *(_milliseconds(times.get((name, size), ())) for size in sizes)) for name in methods]
    task = "fit" if phase == "fit" else f"score {experiment.SCORED:,} rows"
    heads = ("Method", *(f"{size:,} {dimension}" for size in sizes))
    return Grid(f"Milliseconds to {task}, against {dimension}", heads, tuple(lines))


def _milliseconds(seconds: Sequence[float]) -> Cell:
    return Cell(value=1000 * min(seconds), digits=1) if seconds else Cell(NONE)


def _saved(plan: Plan, rows: Sequence[Row]) -> Grid:
    """Seconds of a fit of 50 epochs with each component on or off, and the share of the time without them."""
    lines = []
    for saving in experiment.SAVINGS:
        cells = []
        for name in plan.sets:
            fastest, base = _fastest(rows, name, saving), _fastest(rows, name, "neither")
            if fastest is None or base is None:
                cells += [Cell(NONE)] * 2
            else:
                cells += [Cell(value=fastest), Cell(value=fastest / base)]
        lines.append((Cell(saving), *cells))
    heads = [f"{datasets.title(name)}, {unit}" for name in plan.sets for unit in ("s", "of neither")]
    return Grid("Seconds of 50 epochs with distillation and mining on or off", ("Components", *heads), tuple(lines))


def _fastest(rows: Iterable[Row], name: str, saving: str) -> float | None:
    variant = f"{experiment.SAVED}: {saving}"
    return min((row["fit_seconds"] for row in rows if row["set"] == name and row["variant"] == variant), default=None)
