"""One experiment from its plan to files: run what is not stored yet, then make its tables and figures."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from addml.errors import UserError
from addml.experiments import figures, rendering, sets, tables, times
from addml.experiments.fitting import Machine
from addml.experiments.plans import Plan, Task
from addml.experiments.running import Ended, results
from addml.experiments.runs import Row, Store, agree, key_of
from addml.experiments.tables import Grid
from addml.pipeline.options import versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from addml.experiments.space import Space

Files = dict[str, bytes]  # by name
RIVALS = ("pyod",)  # packages that only rivals come from


@dataclass(frozen=True)
class Choice:
    """What part of an experiment to run, and how."""

    sets: tuple[str, ...] = ()  # all if empty
    methods: tuple[str, ...] = ()
    again: bool = False  # what is stored already too
    jobs: int = 1
    machine: Machine = field(default_factory=Machine)
    command: str = ""

    def takes(self, name: str, method: str) -> bool:
        """Whether a method on a set is asked for."""
        return (not self.sets or name in self.sets) and (not self.methods or method in self.methods)


def check(plans: Sequence[Plan], choice: Choice) -> None:
    """Refuse a set or a method that no experiment has: nothing would be run for it."""
    owned = {
        "--sets": (choice.sets, {name for plan in plans for name in plan.sets}),
        "--methods": (choice.methods, {name for plan in plans for name in plan.methods}),
    }
    for option, (given, known) in owned.items():
        for name in given:
            if name not in known:
                where = ", ".join(plan.name for plan in plans)
                raise UserError(f"{name!r} is not in {where} ({option}); there: {', '.join(sorted(known))}.")


def waiting(plan: Plan, folder: Path, choice: Choice) -> list[Task]:
    """The tasks to run: available, asked for and not stored yet; the longest first, so that processes end together."""
    done = set() if choice.again else {key_of(row) for row in stored(plan, folder)}
    chosen = [
        task
        for task in plan.tasks()
        if choice.takes(task.set, task.case.method) and task.is_here() and task.key not in done
    ]
    return chosen if plan.kind == "runtime" else sorted(chosen, key=Task.work, reverse=True)


def run(
    plan: Plan,
    tasks: Sequence[Task],
    folder: Path,
    choice: Choice,
    on_end: Callable[[Ended], None] = lambda ended: None,
) -> None:
    """Run the tasks and keep the rows of each as it ends; what is timed has the machine for itself."""
    store, jobs = Store(folder, plan.name), 1 if plan.kind == "runtime" else choice.jobs
    about = {"versions": json.dumps(versions(*RIVALS)), "command": choice.command}
    try:
        for ended, rows in results(tasks, choice.machine, jobs):
            if rows:
                store.add([{**about, **row} for row in rows])
            on_end(ended)
    finally:  # an interrupt too
        store.gather()


def stored(plan: Plan, folder: Path) -> list[Row]:
    """The rows that belong to the plan as it is now; those of earlier settings do not count."""
    wanted = {task.key: task.row()["settings"] for task in plan.tasks()}
    rows = [row for row in Store(folder, plan.name).rows() if key_of(row) in wanted]
    own = [row for row in rows if agree(row["settings"], wanted[key_of(row)])]
    done = {key_of(row) for row in own}
    return own + _borrowed(plan, [task.row() for task in plan.tasks() if task.key not in done], folder)


def _borrowed(plan: Plan, wanted: Sequence[Row], folder: Path) -> list[Row]:
    """The same fits, of the experiment that the plan borrows from."""
    lent = Store(folder, plan.more["borrows"]).rows() if "borrows" in plan.more else []
    by_fit: dict[tuple[str, str], list[Row]] = {}
    for row in lent:
        by_fit.setdefault((row["set"], row["method"]), []).append(row)
    pairs = ((row, one) for one in wanted for row in by_fit.get((one["set"], one["method"]), []))
    return [{**row, **one} for row, one in pairs if agree(row["settings"], one["settings"])]


def files(plan: Plan, rows: Sequence[Row], choice: Choice) -> Files:
    """The tables and figures that the rows give, by the names of their files."""
    if plan.kind == "space":
        return space_files(plan, choice)
    found, made = grids(plan, rows), Files()
    for name, grid in found.items():
        made |= {f"{name}.{ending}": write(grid).encode() for ending, write in rendering.FORMATS.items()}
    if found:
        made[f"{plan.name}.html"] = rendering.html_page(plan.title, list(found.values())).encode()
    for name, draw in drawings(plan, rows).items():
        made |= drawn(name, draw)
    return made


def old_files(plan: Plan, folder: Path, files: Files) -> list[Path]:
    """What earlier runs made of the experiment and this one did not: it no longer belongs to the rows."""
    if plan.kind == "space":
        return []
    stems = {"", "-ranks", *(f"-{what}" for what in GRIDS[plan.kind](plan, ()))}
    endings = (*rendering.FORMATS, *figures.FORMATS, "html")
    made = {f"{plan.name}{stem}.{ending}" for stem in stems for ending in endings}
    return [folder / name for name in sorted(made - files.keys()) if (folder / name).exists()]


def grids(plan: Plan, rows: Sequence[Row]) -> dict[str, Grid]:
    """The tables of an experiment by name, those that have lines."""
    made = GRIDS[plan.kind](plan, rows) if rows else {}
    return {plan.name + (f"-{what}" if what else ""): grid for what, grid in made.items() if grid.lines}


def _comparison(plan: Plan, rows: Sequence[Row]) -> dict[str, Grid]:
    return {
        "": tables.comparison(plan, rows),
        "friedman": tables.friedman(plan, tables.rankings(plan, rows)),
        "wilcoxon": tables.wilcoxon(plan, rows),
        "precision": tables.comparison(plan, rows, "ap"),
        "seconds": times.of_methods(plan, rows),
    }


GRIDS: dict[str, Callable[[Plan, Sequence[Row]], dict[str, Grid]]] = {
    "comparison": _comparison,
    "ablation": lambda plan, rows: {"": tables.ablation(plan, rows)},
    "sweep": lambda plan, rows: {"": tables.sweep(plan, rows)},
    "runtime": times.grids,
}


def drawings(plan: Plan, rows: Sequence[Row]) -> dict[str, Callable[[], Figure]]:
    """The figures of an experiment by name, each to be drawn by a call."""
    if not rows:
        return {}
    if plan.kind == "comparison":
        found = tables.rankings(plan, rows)
        return {f"{plan.name}-ranks": lambda: figures.critical_differences(found)} if found else {}
    if plan.kind == "sweep":
        return {plan.name: lambda: figures.sweep(plan, rows)}
    if plan.kind == "runtime":
        return {plan.name: lambda: figures.runtime(plan, rows)}
    return {}


def drawn(name: str, draw: Callable[[], Figure]) -> Files:
    """The figure's files, or none and a warning where matplotlib is not installed."""
    try:
        return figures.rendered(name, draw)
    except ImportError as error:
        warnings.warn(f"{name}: not drawn: {error}", stacklevel=2)
        return {}


def space_files(plan: Plan, choice: Choice) -> Files:
    """The picture of the metric space and the points in it, or nothing where the set is not asked for or not here."""
    from addml.experiments.space import metric_space

    (name,), (method,) = plan.sets, plan.methods
    if not choice.takes(name, method) or not sets.is_here(name):
        return {}
    found = metric_space(sets.load(name), choice.machine.device)
    return {f"{plan.name}-points.parquet": _points(found), **drawn(plan.name, lambda: figures.space(found))}


def _points(found: Space) -> bytes:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    values = {"anomaly": found.y.astype(np.int8)}
    for stage, points in (("before", found.before), ("after", found.after)):
        values |= {f"{stage}_{axis}": points[:, place].astype(np.float32) for place, axis in enumerate("xy")}
    buffer = io.BytesIO()
    parquet.write_table(pa.table(values), buffer, compression="zstd")
    return buffer.getvalue()
