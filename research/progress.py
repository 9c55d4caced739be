"""Progress of an experiment's tasks, and wrong names as wrong usage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from addml.cli.screen import Screen
from addml.errors import AddmlError
from addml.pipeline.batches import Ended


@contextmanager
def task_progress(name: str, total: int, screen: Screen, failures: list[str]) -> Iterator[Callable[[Ended], None]]:
    """A callback for the end of a task: it advances a bar, or prints a line if standard error is not a terminal."""
    with _bar(name, total, screen) as show:
        remaining = total

        def on_end(ended: Ended) -> None:
            nonlocal remaining
            remaining -= 1
            if ended.failure is not None:
                failures.append(f"{name}: {ended.task.title}: {ended.failure}")
            show(ended, remaining)

        yield on_end


@contextmanager
def _bar(name: str, total: int, screen: Screen) -> Iterator[Callable[[Ended, int], None]]:
    if screen.silent or not sys.stderr.isatty():
        yield lambda ended, remaining: None if screen.silent else _line(name, ended, remaining)
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        all_tasks = bar.add_task(name, total=total)
        yield lambda ended, remaining: bar.update(all_tasks, advance=1, description=f"{name}: {ended.task.title}")


def _line(name: str, ended: Ended, remaining: int) -> None:
    outcome = "failed" if ended.failure else f"{ended.seconds:.1f} s"
    print(f"{name}: {ended.task.title}: {outcome}; {remaining} left", file=sys.stderr, flush=True)


@contextmanager
def usage_errors() -> Iterator[None]:
    """A wrong name is wrong usage: exit code 2."""
    try:
        yield
    except AddmlError as error:
        raise typer.BadParameter(str(error)) from error
