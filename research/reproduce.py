"""One experiment from plan to files: run what is not stored yet, then write tables, figures and the page."""

from __future__ import annotations

import io
import json
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addml.errors import AddmlError
from addml.findings import versions
from addml.io.write import write_whole
from addml.pipeline.batches import Ended, run_tasks
from addml.pipeline.rivals import Machine, Row
from research import datasets, figures, plans, rendering, tables
from research.plans import Plan, Task
from research.rendering import Grid
from research.run_store import Store, agree, key_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Files = dict[str, bytes]  # by name
RIVAL_PACKAGES = ("pyod",)
LINKED = "-precision"  # tables that the page links and does not show
HEAD = """# Results

Made from the stored runs by `python -m research`; do not edit. Each run is one row of a Parquet file in
[{folder}/]({folder}/).

Protocol: 3-fold stratified cross-validation, three seeds, nine runs. *Seen*: trained and tested on the training part.
*Unseen*: tested on the held-out fold. *One-class*: trained on the training part without its anomalies, tested on the
fold. All columns are standardised by the training part. The paper is Yilmaz and Kozat; its figures stand in brackets.
"""


@dataclass(frozen=True)
class Choice:
    """What part of an experiment to run, and how."""

    sets: tuple[str, ...] = ()  # all if empty
    methods: tuple[str, ...] = ()
    again: bool = False  # also what is stored already
    jobs: int = 1
    machine: Machine = field(default_factory=Machine)
    command: str = ""
    run_tasks: Callable[..., Any] = run_tasks  # in processes of this machine, or on a cluster

    def takes(self, name: str, method: str) -> bool:
        """Whether this method on this set was chosen."""
        return (not self.sets or name in self.sets) and (not self.methods or method in self.methods)


def check(chosen: Sequence[Plan], choice: Choice) -> None:
    """Raise if no experiment has a chosen set or method, since nothing would run for it."""
    options = {
        "--sets": (choice.sets, {name for plan in chosen for name in plan.sets}),
        "--methods": (choice.methods, {name for plan in chosen for name in plan.methods}),
    }
    for option, (names, valid) in options.items():
        for name in names:
            if name not in valid:
                experiments = ", ".join(plan.name for plan in chosen)
                raise AddmlError(f"{option}: {name!r} is not in {experiments}; choose from {', '.join(sorted(valid))}.")


# Running -----------------------------------------------------------------------------------------------------


def waiting(plan: Plan, folder: Path, choice: Choice) -> list[Task]:
    """The tasks to run: available, chosen and not stored yet, the longest first so that processes end together."""
    done = set() if choice.again else {key_of(row) for row in stored(plan, folder)}
    chosen = [
        task
        for task in plan.tasks()
        if choice.takes(task.set, task.case.method) and task.is_available() and task.key not in done
    ]
    return chosen if plan.kind == "runtime" else sorted(chosen, key=Task.work, reverse=True)


def run(
    plan: Plan,
    tasks: Sequence[Task],
    folder: Path,
    choice: Choice,
    on_end: Callable[[Ended], None] = lambda ended: None,
) -> None:
    """Run the tasks and store the rows of each as it ends; timed tasks run one at a time."""
    store, jobs = Store(folder, plan.name), 1 if plan.kind == "runtime" else choice.jobs
    metadata = {"versions": json.dumps(versions(*RIVAL_PACKAGES)), "command": choice.command}
    try:
        for ended, rows in choice.run_tasks(tasks, choice.machine, jobs):
            if rows:
                store.add([{**metadata, **row} for row in rows])
            on_end(ended)
    finally:  # after an interrupt too
        store.gather()


def stored(plan: Plan, folder: Path) -> list[Row]:
    """The rows of the plan with its current settings, without those of earlier settings."""
    tasks = {task.key: task.row() for task in plan.tasks()}
    rows = [row for row in Store(folder, plan.name).rows() if key_of(row) in tasks]
    current = [row for row in rows if agree(row["settings"], tasks[key_of(row)]["settings"])]
    done = {key_of(row) for row in current}
    return current + _borrowed(plan, [task for key, task in tasks.items() if key not in done], folder)


def _borrowed(plan: Plan, tasks: Sequence[Row], folder: Path) -> list[Row]:
    """The rows of the same fits in the experiment from which the plan borrows."""
    if "borrows" not in plan.more:
        return []
    by_fit: dict[tuple[str, str], list[Row]] = {}
    for row in Store(folder, plan.more["borrows"]).rows():
        by_fit.setdefault((row["set"], row["method"]), []).append(row)
    pairs = ((row, task) for task in tasks for row in by_fit.get((task["set"], task["method"]), []))
    return [{**row, **task} for row, task in pairs if agree(row["settings"], task["settings"])]


# Files -------------------------------------------------------------------------------------------------------


def grids(plan: Plan, rows: Sequence[Row]) -> dict[str, Grid]:
    """The non-empty tables of an experiment by name."""
    by_suffix = GRIDS[plan.kind](plan, rows) if rows else {}
    return {plan.name + (f"-{suffix}" if suffix else ""): grid for suffix, grid in by_suffix.items() if grid.lines}


def _comparison(plan: Plan, rows: Sequence[Row]) -> dict[str, Grid]:
    return {
        "": tables.comparison(plan, rows),
        "friedman": tables.friedman(plan, tables.rankings(plan, rows)),
        "wilcoxon": tables.wilcoxon(plan, rows),
        "precision": tables.comparison(plan, rows, "ap"),
        "seconds": tables.seconds_of_fits(plan, rows),
    }


GRIDS: dict[str, Callable[[Plan, Sequence[Row]], dict[str, Grid]]] = {
    "comparison": _comparison,
    "ablation": lambda plan, rows: {"": tables.ablation(plan, rows)},
    "sweep": lambda plan, rows: {"": tables.sweep(plan, rows)},
    "runtime": tables.runtime,
    "space": lambda plan, rows: {},
}


def files(plan: Plan, rows: Sequence[Row], choice: Choice) -> Files:
    """The tables and figures of the rows, by file name."""
    if plan.kind == "space":
        return _space_files(plan, choice)
    contents = {
        f"{name}.{ending}": write(grid).encode()
        for name, grid in grids(plan, rows).items()
        for ending, write in rendering.FORMATS.items()
    }
    for name, draw in _drawings(plan, rows).items():
        contents |= drawn(name, draw)
    return contents


def _drawings(plan: Plan, rows: Sequence[Row]) -> dict[str, Callable[[], Figure]]:
    """The figures of an experiment by name, as functions that draw them."""
    if rows and plan.kind == "comparison":
        rankings = tables.rankings(plan, rows)
        return {f"{plan.name}-ranks": lambda: figures.critical_differences(rankings)} if rankings else {}
    if rows and plan.kind in ("sweep", "runtime"):
        draw = figures.sweep if plan.kind == "sweep" else figures.runtime
        return {plan.name: lambda: draw(plan, rows)}
    return {}


def drawn(name: str, draw: Callable[[], Figure]) -> Files:
    """The figure's files; none, with a warning, if matplotlib is not installed."""
    try:
        return figures.rendered(name, draw)
    except ImportError as error:
        warnings.warn(f"{name}: not drawn: {error}", stacklevel=2)
        return {}


def _space_files(plan: Plan, choice: Choice) -> Files:
    """The picture of the metric space and its points, or nothing if the set is not chosen or not available."""
    import pyarrow as pa
    from pyarrow import parquet

    (name,), (method,) = plan.sets, plan.methods
    if not choice.takes(name, method) or not datasets.available(name):
        return {}
    space = figures.metric_space(datasets.load(name), choice.machine.device)
    columns = {"anomaly": space.y.astype("int8")}
    for stage, points in (("before", space.before), ("after", space.after)):
        columns |= {f"{stage}_{axis}": points[:, index].astype("float32") for index, axis in enumerate("xy")}
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer, compression="zstd")
    return {f"{plan.name}-points.parquet": buffer.getvalue(), **drawn(plan.name, lambda: figures.space(space))}


def write_files(plan: Plan, folder: Path, files: Files) -> None:
    """Write tables and figures, and remove obsolete ones of earlier runs."""
    for name, content in files.items():
        write_whole(folder / name, content)
    if plan.kind != "space":
        suffixes = {"", "-ranks", *(f"-{suffix}" for suffix in GRIDS[plan.kind](plan, ()))}
        endings = (*rendering.FORMATS, *figures.FORMATS)
        possible = {f"{plan.name}{suffix}.{ending}" for suffix in suffixes for ending in endings}
        for name in possible - files.keys():
            (folder / name).unlink(missing_ok=True)


# The page of results -----------------------------------------------------------------------------------------


def page(folder: Path) -> str:
    """The Markdown page next to the folder of results: every experiment that was run."""
    parts = [HEAD.format(folder=folder.name)]
    for name in plans.NAMES:
        if any((folder / f"{name}{ending}").exists() for ending in (".parquet", ".svg")):
            plan = plans.load(name)
            parts.append(_section(plan, stored(plan, folder), folder))
    return "\n".join(parts)


def _section(plan: Plan, rows: Sequence[Row], folder: Path) -> str:
    lines = [f"## {plan.title}", "", plan.words, ""]
    for name, grid in grids(plan, rows).items():
        if not name.endswith(LINKED) and plan.kind != "sweep":
            lines += [f"**{grid.caption}**", "", rendering.markdown(grid)]
    pictures = sorted(file.name for file in folder.glob(f"{plan.name}*.svg"))
    lines += [line for name in pictures for line in (f"![{plan.title}]({folder.name}/{name})", "")]
    return "\n".join([*lines, *_origin(plan, rows, folder), ""])


def _origin(plan: Plan, rows: Sequence[Row], folder: Path) -> list[str]:
    """The commands, the machine and the files."""
    default = shlex.join(["python", "-m", "research", plan.name, "--output", str(folder)])
    # Runs stored before research/ left the package name its former command.
    commands = dict.fromkeys(row["command"].replace("addml reproduce", "python -m research", 1) for row in rows)
    lines = ["```", *(commands or [default]), "```"]
    if rows:
        times, devices = [row["when"] for row in rows], sorted({row["device"] for row in rows})
        packages = json.loads(max(rows, key=lambda row: str(row["when"]))["versions"])
        runs = f"{len(rows):,} rows, {min(times)[:10]} to {max(times)[:10]}, on {', '.join(devices)}"
        lines += ["", f"{runs}; " + ", ".join(f"{name} {version}" for name, version in packages.items()) + "."]
    listed = sorted(file.name for file in folder.glob(f"{plan.name}*.*") if file.is_file())
    lines += ["", "Files: " + ", ".join(f"[{name}]({folder.name}/{name})" for name in listed) + "."]
    return lines
