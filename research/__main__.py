"""`python -m research`: the paper's experiments and their data sets, from a clone of the repository."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from addml.cli.arguments import Device, Jobs
from addml.cli.commands import run as run_app
from addml.cli.compare import known_methods, runner
from addml.cli.screen import Screen
from addml.errors import AddmlError
from addml.io.write import write_whole
from addml.pipeline.options import Options, parse
from addml.pipeline.rivals import Machine
from addml.text import counted
from research import datasets, plans, reproduce
from research.datasets import DataSet
from research.experiment import METHODS
from research.plans import Plan
from research.progress import task_progress, usage_errors
from research.rendering import Grid, cell_text
from research.reproduce import Choice

MAX_NAMES = 8  # missing sets
FIELDS = ("name", "title", "collection", "group", "rows", "columns", "anomalies", "licence", "address", "sha256")


class RunByDefault(TyperGroup):
    """`python -m research table2` is short for `python -m research run table2`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `run` before the name of an experiment."""
        is_name = bool(args) and not args[0].startswith("-") and args[0] not in self.commands
        return super().parse_args(ctx, ["run", *args] if is_name else args)


app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Reproduce the paper's experiments: python -m research NAME... runs them. Run it from the root of a clone; "
    "the installed package does not include the experiments.",
)
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.", metavar="")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.", metavar="")]


# Experiments -------------------------------------------------------------------------------------------------


@app.command("run")
def run_experiments(
    names: Annotated[
        list[str],
        typer.Argument(help=f"Experiments: {', '.join(plans.NAMES)}, or all.", metavar="NAME...", show_default=False),
    ],
    output: Annotated[
        str, typer.Option(help="Folder for runs, tables and figures; the page is FOLDER.md.", metavar="FOLDER")
    ] = "addml-results",
    sets: Annotated[
        list[str] | None,
        typer.Option(help="Run only these data sets; python -m research list names them.", metavar="NAMES"),
    ] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Run only these methods.", metavar="NAMES")] = None,
    jobs: Jobs = 1,
    engine: Annotated[
        str | None, typer.Option(help="Run on a Ray cluster: ray; --jobs then counts its cores.", metavar="ray")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of the cluster (default: start one on this machine).", metavar="ADDRESS")
    ] = None,
    device: Device = "auto",
    again: Annotated[bool, typer.Option("--again", help="Run again what is already stored.", metavar="")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run experiments and write their tables and figures; the same command resumes a stopped run."""
    with usage_errors():
        chosen = plans.named(names)
        choice = Choice(
            sets=tuple(datasets.parse_names(sets or ())),
            methods=tuple(known_methods(methods or (), METHODS)),
            again=again,
            jobs=jobs,
            machine=Machine.of(device, jobs),
            run_tasks=runner(parse("engine", engine), address),
            command=shlex.join(["python", "-m", "research", *sys.argv[1:]]),
        )
        reproduce.check(chosen, choice)
        folder = _create_folder(output)
    screen, page = Screen(Options(quiet=quiet, json=json)), folder.with_name(folder.name + ".md")
    with screen.show_warnings():
        done = [_run_one(plan, folder, choice, screen) for plan in chosen]
        write_whole(page, reproduce.page(folder).encode())
        screen.say(f"page: {page}")
    screen.document({"experiments": done, "page": str(page)})
    if any(result["failures"] for result in done):
        raise typer.Exit(1)


def _create_folder(output: str) -> Path:
    """The folder of results, created if missing; the page is named after it."""
    path = Path(os.path.expanduser(output))
    folder = path.resolve() if path.name in ("", "..") else path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "is a file" if folder.exists() else error.strerror
        raise AddmlError(f"{output}: cannot be a folder of results: {reason} (--output). Name another.") from error
    return folder


def _run_one(plan: Plan, folder: Path, choice: Choice, screen: Screen) -> dict[str, Any]:
    """Run one experiment, write its files, and show its first table."""
    screen.say(f"{plan.name}: {plan.title}", style="bold")
    missing = _missing(plan, choice)
    tasks, failures = reproduce.waiting(plan, folder, choice), list[str]()
    if tasks:
        with task_progress(plan.name, len(tasks), screen, failures) as on_end:
            reproduce.run(plan, tasks, folder, choice, on_end)
    rows = reproduce.stored(plan, folder)
    files, grids = reproduce.files(plan, rows, choice), reproduce.grids(plan, rows)
    reproduce.write_files(plan, folder, files)
    for grid in list(grids.values())[:1]:
        _show_grid(screen, grid)
    for line in failures:
        print(f"Failed: {line}", file=sys.stderr)
    count = f"{counted(len(tasks), 'task')} run now, {counted(len(rows), 'row')} stored"
    screen.say(f"  {count}; files: {folder}/{plan.name}*")
    return {
        "experiment": plan.name,
        "tasks": len(tasks),
        "rows": len(rows),
        "missing": missing,
        "failures": failures,
        "files": sorted(files),
        "tables": {name: _plain(grid) for name, grid in grids.items()},
    }


def _missing(plan: Plan, choice: Choice) -> list[str]:
    """The chosen sets that are not on this machine, reported on standard error; tables list them as missing."""
    missing = [name for name in plan.sets if name in (choice.sets or plan.sets) and not datasets.available(name)]
    if missing:
        titles = f"{len(missing)} sets" if len(missing) > MAX_NAMES else ", ".join(map(datasets.title, missing))
        print(f"Missing on this machine: {titles}; python -m research data gets them.", file=sys.stderr)
    return missing


def _show_grid(screen: Screen, grid: Grid) -> None:
    """Print the table with one decimal, the best figures in bold."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, is_number in zip(grid.heads, grid.numeric, strict=True):
        table.add_column(Text(head), justify="right" if is_number else "left", no_wrap=not is_number)
    for line in grid.lines:
        short = [replace(cell, digits=min(cell.digits, 1)) for cell in line]
        spread = "±" if grid.spreads else ""
        table.add_row(*(Text(cell_text(cell, spread=spread), "bold" if cell.best else "") for cell in short))
    screen.say()
    screen.console().print(table)
    screen.say()
    for note in grid.notes:
        screen.say(f"  {note}")


def _plain(grid: Grid) -> dict[str, Any]:
    lines = [[cell.text if cell.value is None else cell.value for cell in line] for line in grid.lines]
    return {"caption": grid.caption, "columns": list(grid.heads), "lines": lines, "notes": list(grid.notes)}


# Data sets ---------------------------------------------------------------------------------------------------


@app.command("list")
def list_sets(quiet: Quiet = False, json: Json = False) -> None:
    """List the data sets of the experiments and their state on this machine."""
    screen, cache = Screen(Options(quiet=quiet, json=json)), str(datasets.cache_folder())
    states = {name: datasets.state(name) for name in datasets.names()}
    sets = [{field: getattr(entry, field) for field in FIELDS} for entry in datasets.SETS.values()]
    screen.document({"sets": [entry | {"state": states[entry["name"]]} for entry in sets], "cache": cache})
    names = ("set", "title", "collection", "rows", "columns", "anomalies %", "licence", "state")
    lines = [_set_line(entry, states[entry.name]) for entry in datasets.SETS.values()]
    screen.table(names, lines, right=("rows", "columns", "anomalies %"))
    screen.say()
    n_local = sum(state != "missing" for state in states.values())
    screen.say(f"{n_local} of {len(sets)} are on this machine; python -m research data NAME downloads others.")
    screen.say(f"Cache: {cache}")


def _set_line(entry: DataSet, state: str) -> list[str]:
    counts = ["?" if count is None else f"{count:,}" for count in (entry.rows, entry.columns)]
    share = "?" if entry.anomalies is None else f"{100 * entry.anomalies:.2f}"
    collection = entry.collection if entry.group is None else f"{entry.collection}, {entry.group}"
    return [entry.name, entry.title, collection, *counts, share, entry.licence or "not stated", state]


@app.command("data")
def download_sets(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets to download (default: the paper's).", metavar="NAME")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Download every set that has an address.", metavar="")] = False,
    mirror: Annotated[
        str | None,
        typer.Option(
            help="Download from this address instead of https://raw.githubusercontent.com (or set ADDML_MIRROR).",
            metavar="URL",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Download data sets and verify them, skipping those already on this machine."""
    if names and every:
        raise typer.BadParameter("give names or --all, not both.")
    with usage_errors():
        selected = [datasets.named(name).name for name in names or datasets.names("paper")]
    if every:
        selected = [name for name, entry in datasets.SETS.items() if entry.address is not None]
    screen = Screen(Options(quiet=quiet, json=json))
    datasets.pull(selected, mirror=mirror, report=screen.say)
    screen.document({"sets": {name: datasets.state(name) for name in selected}})


def main() -> None:
    """Run the command line and exit with its code."""
    run_app(app, "python -m research")


if __name__ == "__main__":
    main()
