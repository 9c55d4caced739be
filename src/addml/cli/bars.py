"""Progress bars with rows per second and time left, on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from addml.cli.screen import Screen
from addml.detection.progress import Advance, Progress, Silent

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text


def bars(screen: Screen) -> Progress:
    """Bars for a person who looks on, nothing for anybody else."""
    return Silent() if screen.silent else Bars()


class Bars:
    """One bar a stage; it goes when the stage is over."""

    @contextmanager
    def stage(self, words: str, total: float | None, rows_each: float = 1) -> Iterator[Advance]:
        """A bar of `total` steps (None if not known) of `rows_each` rows, and the function that moves it on."""
        if not sys.stderr.isatty():
            yield lambda steps: None
            return
        from rich import progress
        from rich.console import Console

        columns = [
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            _rate_column(rows_each),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
        ]
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(words, total=total)
            yield lambda steps: bar.advance(task, steps)

    def note(self, words: str) -> None:
        """Say something on standard error, terminal or not."""
        print(words, file=sys.stderr)


def _rate_column(rows_each: float) -> Any:
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows a second."""

        def render(self, task: Task) -> Text:
            """The speed so far."""
            speed = task.finished_speed or task.speed
            return Text(f"{speed * rows_each:,.0f} rows/s" if speed else "", style="progress.data.speed")

    return Rate()
