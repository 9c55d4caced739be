"""`python -m benchmarks.quality`: the tables of docs/quality.md, from the runs stored under docs/results.

The runs are made by `python -m research ladder extension leaders --output docs/results` and
`python -m benchmarks.robustness`. How alike two seeds rank rows is measured here and stored.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from addml.pipeline.ranking import rank_correlation
from benchmarks import robustness
from benchmarks.documents import DOCS, write_part
from benchmarks.timing import markdown
from research import datasets, plans, reproduce
from research.experiment import fits
from research.statistics import ranks

DOCUMENT, DETAILS, CURVES = (DOCS / name for name in ("quality.md", "results/quality.md", "results/robustness.md"))
STABILITY = robustness.RESULTS / "stability.csv"
WIDE, MANY = 100, 0.1  # columns, share of anomalies
SETTINGS = {"polluted": "unseen", "clean": "one-class"}


def means(rows: Sequence[dict[str, Any]], what: str = "auc") -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """The mean of each set per seed, for every case and setting: {(case, setting): {set: (seeds,)}}."""
    found: dict[tuple[str, str], dict[str, dict[int, list[float]]]] = {}
    for row in rows:
        case = found.setdefault((row["variant"] or row["method"], row["setting"]), {})
        case.setdefault(row["set"], {}).setdefault(row["seed"], []).append(100 * row[what])
    return {
        case: {name: np.array([np.mean(seeds[seed]) for seed in sorted(seeds)]) for name, seeds in by_set.items()}
        for case, by_set in found.items()
    }


def cell(by_set: dict[str, np.ndarray]) -> tuple[float, float]:
    """The mean over sets, and its deviation over seeds."""
    by_seed = np.mean([by_set[name] for name in sorted(by_set)], axis=0)
    return float(by_seed.mean()), float(by_seed.std(ddof=1)) if len(by_seed) > 1 else float("nan")


def ladder() -> str:
    """Each rung with its gain over the previous one, or over the default if it comes after it."""
    plan = plans.load("ladder")
    rows = reproduce.stored(plan, robustness.RESULTS)
    found, lines, before = means(rows), [], {name: float("nan") for name in SETTINGS}
    complete = {row["set"] for row in rows}
    for case in plan.cases:
        if any(set(found.get((case.label, setting), {})) != complete for setting in SETTINGS.values()):
            continue
        line = [case.label]
        for name, setting in SETTINGS.items():
            value, spread = cell(found[case.label, setting])
            gain = value - before[name]
            line.append(f"{value:.2f} ± {spread:.2f}" + ("" if np.isnan(gain) else f" ({gain:+.2f})"))
            if case.label[1] == " ":  # a rung has a number
                before[name] = value
        seconds = np.mean([row["fit_seconds"] for row in rows if row["variant"] == case.variant])
        lines.append([*line, f"{seconds:.2f}"])
    return markdown(["rung", "polluted", "clean", "seconds a fit"], lines)


def leaders(name: str) -> str:
    """Mean AUC, mean rank and average precision of every method in both settings."""
    plan = plans.load(name)
    rows = [row for row in reproduce.stored(plan, robustness.RESULTS) if row["set"] not in plan.apart]
    scores, precisions = means(rows), means(rows, "ap")
    complete = {row["set"] for row in rows}
    methods = [
        case.label
        for case in plan.cases
        if all(set(scores.get((case.label, setting), {})) == complete for setting in SETTINGS.values())
    ]
    columns: list[list[float]] = []
    for setting in SETTINGS.values():
        table = np.array([[scores[m, setting][s].mean() for m in methods] for s in sorted(complete)])
        columns += [list(table.mean(axis=0)), list(ranks(table).mean(axis=0))]
        columns += [[cell(precisions[m, setting])[0] for m in methods]]
    lines = [[m, *(f"{column[index]:.2f}" for column in columns)] for index, m in enumerate(methods)]
    heads = [f"{word}, {name}" for name in SETTINGS for word in ("AUC", "rank", "precision")]
    return markdown(["method", *heads], sorted(lines, key=lambda line: -float(line[1]) - float(line[4])))


def wide_or_polluted() -> str:
    """Mean AUC of every method on polluted tables of many columns or anomalies: of both collections and of each."""
    found: dict[str, dict[str, float]] = {}
    for name in ("leaders", "extension"):
        rows = reproduce.stored(plans.load(name), robustness.RESULTS)
        for (method, setting), by_set in means(rows).items():
            if setting == SETTINGS["polluted"]:
                found.setdefault(method, {}).update({key: float(aucs.mean()) for key, aucs in by_set.items()})
    about = datasets.SETS
    tables = [one for one in found["ADDML"] if about[one].columns >= WIDE or about[one].anomalies > MANY]
    papers = [one for one in tables if about[one].collection == "paper"]
    parts = (tables, papers, [one for one in tables if one not in papers])
    complete = {method: by_set for method, by_set in found.items() if set(tables) <= by_set.keys()}
    lines = [
        [method, *(f"{np.mean([own[one] for one in part]):.2f}" for part in parts)] for method, own in complete.items()
    ]
    heads = [f"all {len(tables)}", f"the paper's {len(papers)}", f"the dev tables' {len(tables) - len(papers)}"]
    return markdown(["method", *heads], sorted(lines, key=lambda line: -float(line[1])))


def stability() -> str:
    """How alike two seeds rank the held-out rows of each table."""
    import addml

    done = {row["set"]: row for row in csv.DictReader(STABILITY.open(newline=""))} if STABILITY.exists() else {}
    for name in sorted(name for name in datasets.names("adbench") if datasets.available(name)):
        data = datasets.load(name)
        fit = next(fit for fit in fits(data.y) if not fit.one_class)
        pair = [
            addml.ADDML(random_state=seed, device="cpu").fit(data.X[fit.train]).anomaly_score(data.X[fit.test])
            for seed in (0, 1)
        ]
        top = [set(np.argsort(-scores)[: max(1, len(scores) // 20)]) for scores in pair]
        correlation, overlap = rank_correlation(*pair), len(top[0] & top[1]) / len(top[0])
        done[name] = {"set": name, "correlation": f"{correlation:.4f}", "overlap": f"{overlap:.4f}"}
    with STABILITY.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("set", "correlation", "overlap"))
        writer.writeheader()
        writer.writerows(done.values())
    lines = [[datasets.title(row["set"]), row["correlation"], row["overlap"]] for row in done.values()]
    average = [f"{np.mean([float(row[key]) for row in done.values()]):.3f}" for key in ("correlation", "overlap")]
    return markdown(["table", "rank correlation", "overlap of the top 5 %"], [*lines, ["**mean**", *average]])


def curves() -> str:
    """The robustness curves as tables, in percent, without missing measurements."""
    rows, lines = robustness.stored(), []
    for curve, (_, _, values, _) in robustness.CURVES.items():
        lines.append([f"**{curve}**", *[""] * len(robustness.METHODS)])
        for value in values:
            found = [robustness.mean_of(rows, curve, value, method) for method in robustness.METHODS]
            lines.append([f"{value:g}", *("–" if np.isnan(auc) else f"{100 * auc:.1f}" for auc in found)])
    return markdown(["", *robustness.METHODS], lines)


PARTS = {
    "ladder": ladder,
    "extension": lambda: leaders("extension"),
    "leaders": lambda: leaders("leaders"),
    "wide": wide_or_polluted,
    "stability": stability,
    "robustness": curves,
}


def main() -> None:
    """Write the main table into docs/quality.md and the others into docs/results."""
    pages = {"leaders": DOCUMENT, "robustness": CURVES}
    warnings.simplefilter("ignore")
    for name, part in PARTS.items():
        write_part(pages.get(name, DETAILS), name, part())
    print(f"written to {DOCUMENT.name}")


if __name__ == "__main__":
    main()
