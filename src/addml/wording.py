"""Words that messages share: lists cut short, counts, names that may be meant; values as JSON has them. Level 0."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def listed(words: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """At most so many of the words, and how many more there are."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def shortened(text: str, most: int = 60) -> str:
    """A text of at most so many characters, the last of them an ellipsis where there were more."""
    return text if len(text) <= most else text[: most - 1] + "…"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' with the known names nearest to `name`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(other) for other in near)}?" if near else ""


def json_value(value: Any) -> Any:
    """The value as JSON has it: null for what is not finite, text for what JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
