"""A table of results on the screen, and how far the work on it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from addml.cli.screen import Screen
from addml.errors import UserError

if TYPE_CHECKING:
    from addml.experiments.plans import Task
    from addml.experiments.running import Ended
    from addml.experiments.tables import Grid


def show_grid(screen: Screen, grid: Grid, digits: int = 1) -> None:
    """The table with at most so many decimals, its best figures in bold."""
    from rich.table import Table
    from rich.text import Text

    from addml.experiments.rendering import numeric, words

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, is_number in zip(grid.heads, numeric(grid), strict=True):
        table.add_column(Text(head), justify="right" if is_number else "left", no_wrap=not is_number)
    spread = "±" if grid.spreads else ""
    for line in grid.lines:
        short = [replace(cell, digits=min(cell.digits, digits)) for cell in line]
        table.add_row(*(Text(words(cell, spread=spread), "bold" if cell.best else "") for cell in short))
    screen.say()
    screen.console().print(table)
    screen.say()
    for note in grid.notes:
        screen.say(f"  {note}")


def plain(grid: Grid) -> dict[str, Any]:
    """The table for a JSON document."""
    lines = [[cell.text if cell.value is None else cell.value for cell in line] for line in grid.lines]
    return {"caption": grid.caption, "columns": list(grid.heads), "lines": lines, "notes": list(grid.notes)}


@contextmanager
def following(
    name: str, tasks: Sequence[Task], screen: Screen, failures: list[str]
) -> Iterator[Callable[[Ended], None]]:
    """What to call when a task ends: it moves a bar on, or prints a line where standard error is no terminal."""
    left = len(tasks)
    with _bar(name, tasks, screen) as say:

        def on_end(ended: Ended) -> None:
            nonlocal left
            left -= 1
            if ended.failure is not None:
                failures.append(f"{name}: {ended.task.words()}: {ended.failure}")
            say(ended, left)

        yield on_end


@contextmanager
def _bar(name: str, tasks: Sequence[Task], screen: Screen) -> Iterator[Callable[[Ended, int], None]]:
    if screen.silent or not sys.stderr.isatty():
        yield lambda ended, left: None if screen.silent else _line(name, ended, left)
        return
    from rich import progress
    from rich.console import Console

    text, left_of_all = (
        progress.TextColumn("{task.description}", markup=False),
        progress.TextColumn("{task.fields[left]}"),
    )
    columns = (text, progress.BarColumn(), progress.TaskProgressColumn(), left_of_all, progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        whole = bar.add_task(name, total=sum(task.work() for task in tasks), left=f"{len(tasks)} left")
        yield lambda ended, left: bar.update(
            whole, advance=ended.task.work(), left=f"{left} left", description=f"{name}: {ended.task.words()}"
        )


def _line(name: str, ended: Ended, left: int) -> None:
    outcome = "failed" if ended.failure else f"{ended.seconds:.1f} s"
    print(f"{name}: {ended.task.words()}: {outcome}; {left} left", file=sys.stderr, flush=True)


@contextmanager
def usage() -> Iterator[None]:
    """What is named wrongly is wrong usage."""
    try:
        yield
    except UserError as error:
        raise typer.BadParameter(str(error)) from error
