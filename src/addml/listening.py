"""Hearing what training logs, for a while. Level 0."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

logger = logging.getLogger("addml")


@contextmanager
def listening(handler: logging.Handler) -> Iterator[None]:
    """Hand what is logged to a handler, from its own level on; the log is as before when this ends."""
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
