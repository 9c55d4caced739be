"""What a long run logs, and how far it is. The command line draws it; by default nothing does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

logger = logging.getLogger("addml")

Advance = Callable[[float], None]


class Progress:
    """One bar for each stage of a run; this one draws nothing."""

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> AbstractContextManager[Advance]:
        """A bar of `total` steps (None if not known) of `rows_each` rows, and the function that moves it on."""
        return nullcontext(lambda steps: None)

    def note(self, words: str) -> None:
        """Say something that the user should know before the work is done."""


@contextmanager
def listening(handler: logging.Handler) -> Iterator[None]:
    """Pass log records to a handler, from its own level on; the logger is as before when this ends."""
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or handler.level, handler.level))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def on_standard_error(verbose: int) -> AbstractContextManager[None]:
    """Show the log of training on standard error while it runs, where verbose asks for it."""
    if not verbose:
        return nullcontext()
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO)
    return listening(handler)


def epochs_to(advance: Advance) -> AbstractContextManager[None]:
    """Move on by one with every epoch that the training loop logs."""
    return listening(_Details(logging.INFO, lambda details: advance(1) if "epoch" in details else None))


@contextmanager
def stages_to(progress: Progress) -> Iterator[None]:
    """A bar for each stage that a fit to rows on disk logs, which moves on with the rows that it reads."""
    advance: Advance = lambda steps: None  # noqa: E731
    passes = 1.0  # of a row, until it counts as done

    def hear(details: dict[str, Any]) -> None:
        nonlocal advance, passes
        if "stage" in details:
            bar.close()
            advance, passes = bar.enter_context(progress.stage(details["stage"], details["total"])), details["passes"]
        elif "rows" in details:
            advance(details["rows"] / passes)

    with ExitStack() as bar, listening(_Details(logging.DEBUG, hear)):
        yield


class _Details(logging.Handler):
    """Hears the details of log records that have some."""

    def __init__(self, level: int, hear: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(level)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, dict):
            self._hear(record.args)
