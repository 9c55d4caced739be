"""Log records and progress of long runs. The command line draws bars; by default nothing is drawn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

logger = logging.getLogger("addml")

Advance = Callable[[float], None]


class Progress:
    """Draws a bar for each stage of a run; this base class draws nothing."""

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> AbstractContextManager[Advance]:
        """A bar of `total` steps (None if unknown) of `rows_each` rows; gives the function that advances it."""
        return nullcontext(lambda steps: None)

    def note(self, words: str) -> None:
        """Tell the user something while the work goes on."""


@contextmanager
def listening(handler: logging.Handler) -> Iterator[None]:
    """Pass log records to a handler from its level on; afterwards the logger is as before."""
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or handler.level, handler.level))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def on_standard_error(verbose: int) -> AbstractContextManager[None]:
    """Log training to standard error if `verbose`."""
    if not verbose:
        return nullcontext()
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO)
    return listening(handler)


def advance_per_epoch(advance: Advance) -> AbstractContextManager[None]:
    """Advance by one with each epoch that the training loop logs."""
    return listening(_Details(logging.INFO, lambda details: advance(1) if "epoch" in details else None))


@contextmanager
def stages_to(progress: Progress) -> Iterator[None]:
    """A bar for each stage that a fit to rows on disk logs, advanced by the rows that it reads."""
    advance: Advance = lambda steps: None  # noqa: E731
    passes = 1.0  # over each row in this stage

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
    """Calls a function with the arguments of log records that have a dict of them."""

    def __init__(self, level: int, hear: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(level)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, dict):
            self._hear(record.args)
