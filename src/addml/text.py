"""Text for messages: shortened lists, counts, suggestions for misspelt names, numbers and values; values for JSON."""

from __future__ import annotations

import datetime as dt
import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

TABLE, IMAGE, SERIES = KINDS = ("table", "image", "series")  # kinds of row


def listed(words: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """The first `most` words, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def shortened(text: str, most: int = 60) -> str:
    """The text, cut to `most` characters with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' with the known names closest to `name`; empty if none is close."""
    candidates = [*islice(known, 1000)]  # a client may send a million
    matches = difflib.get_close_matches(name[:100], candidates, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def json_value(value: Any) -> Any:
    """The value as JSON: null for numbers that are not finite, text for unknown types."""
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


MAX_LENGTH = 160  # characters of a value, a name or a sentence
MISSING = "missing"
PASSWORD = re.compile(r"(://[^\s:/@]*):\S*@")  # up to the last @: a password may contain / and @
SECRETS = re.compile(r"((?:https?|s3|gc?s)://)(?:[^\s/@]*@)?([^\s?#]*)\?\S+")  # a query may contain keys
LINE_BREAKS = "\n\r\t\u0085\u2028\u2029"
DIRECTION_MARKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # can make exe.png look like gnp.exe


def number(value: float, digits: int = 4) -> str:
    """A count or a measure, such as a score: like `figure`, but whole numbers keep all digits, grouped from 1,234."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else figure(value, digits)


@lru_cache(maxsize=4096)
def figure(value: float, digits: int) -> str:
    """A value to `digits` significant digits, grouped from 10,000 on (2014 may be a year): 97.3, 60,494, 2.5e-09."""
    value += 0.0  # -0.0 becomes 0.0; the cache does not tell them apart
    size = abs(value)
    if size and not 1e-4 <= size < 1e15:
        return f"{value:.{digits}g}"
    text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(size or 1)))}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    whole = text.partition(".")[0]
    return text.replace(whole, f"{int(whole):,}", 1) if len(whole.lstrip("-")) > 4 else text


def fixed(value: float, places: int) -> str:
    """A number with a fixed number of decimals, for columns of numbers."""
    return f"{value:,.{places}f}" if math.isfinite(value) else number(value)


def percent(share: float) -> str:
    """A share as a percentage; small ones are not rounded to zero."""
    if not math.isfinite(share):
        return "–"
    if 0 < share < 0.0001:
        return "under 0.01%"
    text = f"{100 * share:.0f}" if abs(share) >= 0.0995 else f"{100 * share:.2g}"
    return f"{text}%"


def one_in(p: float, least: float = 0.0) -> str:
    """A small share in words: "1 in 2,400"; at the `least` value that p can have, "fewer than 1 in 1,600"."""
    if p > 2 / 3:
        return "ordinary"
    if p <= least * (1 + 1e-9):
        return f"fewer than 1 in {round(1 / p) - 1:,}"
    return f"1 in {float(f'{1 / p:.2g}'):,.0f}"


def python_value(value: Any) -> Any:
    """The Python value of a NumPy or pyarrow scalar."""
    if hasattr(value, "as_py"):
        return value.as_py()
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def cell_text(value: Any) -> str:
    """A value of a table as text; None and NaN become "missing"."""
    value = python_value(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return figure(value, 7) if math.isfinite(value) else number(value)
    return value.isoformat(" ") if isinstance(value, dt.datetime) else one_line(value)


def one_line(value: Any, most: int = MAX_LENGTH) -> str:
    """Any value as one line of text, without control characters and passwords, cut to `most` characters."""
    return shortened(without_password(visible(str(value)[: 20 * most])), most)


def without_password(address: str) -> str:
    """A text with `***` for the passwords of addresses in it: postgresql://user:***@host/db."""
    return SECRETS.sub(r"\1\2?***", PASSWORD.sub(r"\1:***@", address))


def visible(line: str) -> str:
    """A text on one line, without control characters that terminals or pages would act on."""
    return line if line.isprintable() else "".join(map(_visible, line))


def _visible(character: str) -> str:
    if character in LINE_BREAKS:
        return " "
    is_control = character in DIRECTION_MARKS or unicodedata.category(character) in ("Cc", "Cs")
    return "\N{REPLACEMENT CHARACTER}" if is_control else character
