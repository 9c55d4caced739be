"""How a long run says how far it is. The command line draws it; by default nothing does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

Advance = Callable[[float], None]

logger = logging.getLogger("addml")


class Progress(Protocol):
    """Draws one bar for each stage of a run."""

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> AbstractContextManager[Advance]:
        """A bar of `total` steps (None if not known) of `rows_each` rows, and the function that moves it on."""
        ...

    def note(self, words: str) -> None:
        """Say something now that should be known before the work is done."""
        ...


class Silent:
    """Draws nothing."""

    def stage(self, words: str, total: float | None, rows_each: float = 1) -> AbstractContextManager[Advance]:
        """No bar."""
        return nullcontext(lambda steps: None)

    def note(self, words: str) -> None:
        """Nothing."""


@contextmanager
def epochs_to(advance: Advance) -> Iterator[None]:
    """Move on by one with every epoch that the training loop logs."""
    handler = _EpochHandler(advance)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _EpochHandler(logging.Handler):
    def __init__(self, advance: Advance) -> None:
        super().__init__(logging.INFO)
        self._advance = advance

    def emit(self, entry: logging.LogRecord) -> None:
        details: Any = entry.args
        if isinstance(details, dict) and "epoch" in details:
            self._advance(1)
