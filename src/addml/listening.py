"""Hearing what training logs, for a while. Level 0."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

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
