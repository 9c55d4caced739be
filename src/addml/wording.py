"""Words that messages share: lists that are cut short, counts, and names that may have been meant. Level 0."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def listed(words: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """At most so many of the words, and how many more there are."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' with the known names nearest to `name`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(other) for other in near)}?" if near else ""
