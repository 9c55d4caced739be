"""The page of results: every experiment that was run, its tables and figures, and the commands that made them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from addml.experiments import plans, rendering, reproducing
from addml.experiments.plans import Plan
from addml.experiments.runs import Row

HEAD = """# Results

Made from the stored runs by `addml reproduce`; do not edit. Each run is one row of a Parquet file in
[{folder}/]({folder}/).

Protocol: 3-fold stratified cross-validation, three seeds, nine runs. *Seen*: trained and tested on the training part.
*Unseen*: tested on the held-out fold. *One-class*: trained on the training part without its anomalies, tested on the
fold. All columns are standardised by the training part. The paper is Yilmaz and Kozat; its figures stand in brackets.
"""
LONG = ("-precision",)  # tables that are linked, not shown


def page(folder: Path) -> str:
    """Markdown that stands beside the folder of results."""
    parts = [HEAD.format(folder=folder.name)]
    for name in plans.NAMES:
        plan = plans.load(name)
        if any((folder / f"{name}{ending}").exists() for ending in (".parquet", ".svg")):
            parts.append(_section(plan, reproducing.stored(plan, folder), folder))
    return "\n".join(parts)


def _section(plan: Plan, rows: Sequence[Row], folder: Path) -> str:
    lines = [f"## {plan.title}", "", plan.words, ""]
    for name, grid in reproducing.grids(plan, rows).items():
        if name.endswith(LONG) or plan.kind == "sweep":
            continue
        lines += [f"**{grid.caption}**", "", rendering.markdown(grid)]
    figures = sorted(file.name for file in folder.glob(f"{plan.name}*.svg"))
    lines += [line for name in figures for line in (f"![{plan.title}]({folder.name}/{name})", "")]
    return "\n".join([*lines, *_about(plan, rows, folder), ""])


def _about(plan: Plan, rows: Sequence[Row], folder: Path) -> list[str]:
    """The commands, the machine and the files."""
    again = shlex.join(["addml", "reproduce", plan.name, "--output", str(folder)])
    commands = dict.fromkeys(row["command"] for row in rows) or [again]
    lines = ["```", *commands, "```"]
    if rows:
        times, devices = [row["when"] for row in rows], sorted({row["device"] for row in rows})
        versions = json.loads(max(rows, key=lambda row: str(row["when"]))["versions"])
        made = f"{len(rows):,} rows, {min(times)[:10]} to {max(times)[:10]}, on {', '.join(devices)}"
        lines += ["", f"{made}; " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."]
    listed = sorted(file.name for file in folder.glob(f"{plan.name}*.*") if file.is_file())
    lines += ["", "Files: " + ", ".join(f"[{name}]({folder.name}/{name})" for name in listed) + "."]
    return lines
