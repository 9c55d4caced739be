"""`addml reproduce`: the paper's experiments, on this machine."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addml.cli.arguments import Device, Jobs, with_options
from addml.cli.grids import following, plain, show_grid, usage
from addml.cli.screen import Screen
from addml.errors import UserError
from addml.pipeline.options import Options
from addml.text import counted

if TYPE_CHECKING:
    from addml.experiments.plans import Plan
    from addml.experiments.reproducing import Choice

OUTPUT = "addml-results"
MOST_NAMED = 8  # missing sets

Names = Annotated[
    list[str],
    typer.Argument(
        help="The experiments: table1, table2, figure-rho-n, figure-rho-h, figure-space, choices, rivals, autoencoder, "
        "runtime, extension, leaders, ladder, or all.",
        metavar="NAME...",
        show_default=False,
    ),
]
Output = Annotated[
    str, typer.Option("--output", help="Folder for runs, tables and figures; FOLDER.md beside it.", metavar="FOLDER")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--sets", help="Run these data sets only; addml data list names them.", metavar="NAMES"),
]
Methods = Annotated[list[str] | None, typer.Option("--methods", help="Run these methods only.", metavar="NAMES")]
Again = Annotated[bool, typer.Option("--again", help="Run what is stored already too.", metavar="")]


@with_options("reproduce")
def reproduce(
    options: Options,
    names: Names,
    output: Output = OUTPUT,
    sets: Sets = None,
    methods: Methods = None,
    jobs: Jobs = 1,
    device: Device = "auto",
    again: Again = False,
) -> None:
    """Run the paper's experiments and write their tables and figures; a stopped run goes on where it was."""
    from addml.experiments import methods as all_methods
    from addml.experiments import plans
    from addml.experiments import sets as all_sets
    from addml.experiments.reproducing import Choice, check
    from addml.experiments.running import machine_for

    with usage():
        chosen = plans.named(names)
        choice = Choice(
            sets=tuple(all_sets.known(sets or ())),
            methods=tuple(all_methods.known(methods or ())),
            again=again,
            jobs=jobs,
            machine=machine_for(device, jobs),
            command=shlex.join(["addml", *sys.argv[1:]]),
        )
        check(chosen, choice)
        folder = _made(output)
    screen = Screen(options)
    with screen.warned():
        told = [_reproduce(plan, folder, choice, screen) for plan in chosen]
        _write_page(folder, screen)
    screen.document({"experiments": told, "page": str(_page_of(folder))})
    if any(one["failures"] for one in told):
        raise typer.Exit(1)


def _reproduce(plan: Plan, folder: Path, choice: Choice, screen: Screen) -> dict[str, Any]:
    """Run one experiment, write its files, and say what came out."""
    from addml.experiments import reproducing

    screen.say(f"{plan.name}: {plan.title}", style="bold")
    missing = _say_missing(plan, choice)
    tasks, failures = reproducing.waiting(plan, folder, choice), list[str]()
    if tasks:
        with following(plan.name, tasks, screen, failures) as on_end:
            reproducing.run(plan, tasks, folder, choice, on_end)
    rows = reproducing.stored(plan, folder)
    files, grids = reproducing.files(plan, rows, choice), reproducing.grids(plan, rows)
    _write(folder, files, reproducing.old_files(plan, folder, files))
    for grid in list(grids.values())[:1]:
        show_grid(screen, grid)
    for line in failures:
        print(f"Failed: {line}", file=sys.stderr)
    screen.say(
        f"  {counted(len(tasks), 'task')} run now, {counted(len(rows), 'row')} stored; files: {folder}/{plan.name}*"
    )
    return {
        "experiment": plan.name,
        "tasks": len(tasks),
        "rows": len(rows),
        "missing": missing,
        "failures": failures,
        "files": sorted(files),
        "tables": {name: plain(grid) for name, grid in grids.items()},
    }


def _made(output: str) -> Path:
    """The folder of results, made where it is not there, with a name of its own for the page beside it."""
    given = Path(os.path.expanduser(output))
    folder = given.resolve() if given.name in ("", "..") else given
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "is a file" if folder.exists() else error.strerror
        raise UserError(f"{output}: cannot be a folder of results: {reason} (--output). Name another.") from error
    return folder


def _write(folder: Path, files: dict[str, bytes], old: list[Path]) -> None:
    """The tables and figures, in place of those that there were of this experiment."""
    from addml.io.write import write_whole

    for file, content in files.items():
        write_whole(folder / file, content)
    for file_before in old:
        file_before.unlink()


def _say_missing(plan: Plan, choice: Choice) -> list[str]:
    """The sets asked for that are not on this machine; tables list them as missing."""
    from addml.experiments import sets

    missing = [name for name in plan.sets if name in (choice.sets or plan.sets) and not sets.is_here(name)]
    if missing:
        named = f"{len(missing)} sets" if len(missing) > MOST_NAMED else ", ".join(map(sets.title, missing))
        print(f"Missing on this machine: {named}; addml data pull gets them.", file=sys.stderr)
    return missing


def _page_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".md")


def _write_page(folder: Path, screen: Screen) -> None:
    from addml.experiments.page import page
    from addml.io.write import write_whole

    write_whole(_page_of(folder), page(folder).encode())
    screen.say(f"page: {_page_of(folder)}")
