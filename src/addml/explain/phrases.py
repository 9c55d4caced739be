"""What is unusual about one value of a column, in words.

A phrase is a pair of texts that follow the column's name, with the value and without it:
("1230, far above the usual 30", "unusually high").
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from addml.preprocessing.profile import CLOCK, CODE, MOST, ColumnProfile
from addml.text import figure, shortened

RARE, RARE_BESIDE = 0.05, 0.1  # a rare level has under 5 %, and under a tenth of the commonest level's share
UNCOMMON_BESIDE = 0.25  # an uncommon one under a quarter of it
FAR = 2.0  # times the usual number, or a part as small
FAR_OUTSIDE = 2.0  # half widths of the middle 90 % from its centre
LONGEST = 40  # characters of a level
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Phrase = tuple[str, str]


def unusual(profile: ColumnProfile, value: Any) -> Phrase | None:
    """What is unusual about a value by itself; None for an ordinary one."""
    value = _plain(value)
    if value is None:
        return ("is missing", "is missing") if profile.gaps < 0.5 else None
    if profile.kind == "number":
        found = _number_phrase(profile, value)
    elif profile.kind == "date":
        found = _date_phrase(profile, value)
    else:
        found = _level_phrase(profile, value)
    if found is None and profile.gaps > 0.5:
        return f"{_shown(profile, value)}, usually missing", "present, usually missing"
    return found


def unusual_together(profile: ColumnProfile, value: Any, said: str = "unusual given the other columns") -> Phrase:
    """The phrase about an ordinary value that does not fit the rest of its row."""
    value = _plain(value)
    return f"{'missing' if value is None else _shown(profile, value)}, {said}", said


def uncommon(profile: ColumnProfile, value: Any) -> Phrase:
    """The phrase about a value among the rarer ones of its column."""
    return unusual_together(profile, value, "somewhat uncommon")


def not_a_number(text: str) -> Phrase:
    """The phrase about a text in a column of numbers."""
    return f'is "{_on_one_line(text)}", not a number', "is not a number"


def _plain(value: Any) -> Any:
    """NumPy's and Arrow's scalars as Python's own; None for NaN and NaT, which differ from themselves."""
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, pa.Scalar):
        value = value.as_py()
    return None if value != value else value


def _shown(profile: ColumnProfile, value: Any) -> str:
    if profile.kind == "number":
        return {CODE: "{:.0f}", CLOCK: "{:04.0f}"}[profile.form].format(value) if profile.form else figure(value, 4)
    if profile.kind == "date":
        moment = _moment(value)
        return f"{moment:%H:%M}" if profile.form == CLOCK else f"{moment:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    text = _on_one_line(_level(profile, value))
    return text if profile.kind == "boolean" else f"'{text}'"


def _on_one_line(text: str) -> str:
    return shortened(" ".join(text.split()), LONGEST)


def _number_phrase(profile: ColumnProfile, number: float) -> Phrase | None:
    low, middle, high = profile.low, profile.middle, profile.high
    if profile.form or low is None or high is None or low <= number <= high:
        return None
    if number < 0 <= low:
        return f"{figure(number, 3)}, usually not negative", "negative"
    side, summary = ("above", "unusually high") if number > high else ("below", "unusually low")
    if high > low and middle is not None:
        ratio = number / middle if middle and low >= 0 and number > 0 else 1.0  # only what has a zero has multiples
        outside = abs(number - (low + high) / 2) > FAR_OUTSIDE * (high - low) / 2
        if outside or ratio >= FAR or ratio <= 1 / FAR:
            return f"{figure(number, 3)}, far {side} the usual {figure(middle, 3)}", summary
    for digits in (3, 4, 6):  # as many as it takes to tell the number from the ends of the range
        shown, ends = figure(number, digits), dict.fromkeys((figure(low, digits), figure(high, digits)))
        if shown not in ends:
            beside = f"{side} the usual {' to '.join(ends)}"
            usual = beside if len(ends) > 1 else f"{figure(low, digits)} in over {MOST:.0%} of rows"
            return f"{shown}, {usual}", summary
    return None


def _level(profile: ColumnProfile, value: Any) -> str:
    return str(value).lower() if profile.kind == "boolean" else str(value)


def _level_phrase(profile: ColumnProfile, value: Any) -> Phrase | None:
    share, shown = profile.levels.get(_level(profile, value)), _shown(profile, value)
    if share is None:
        rare, new = (f"{shown}, rare", "with a rare value"), (f"{shown}, never seen in training", "with a new value")
        return rare if profile.unlisted else new
    if share >= UNCOMMON_BESIDE * profile.commonest:
        return None
    rarity, article = ("rare", "a") if _is_rare(share, profile.commonest) else ("uncommon", "an")
    return f"{shown}, {rarity} ({figure(100 * share, 2)}% of rows)", f"with {article} {rarity} value"


def _is_rare(share: float, commonest: float) -> bool:
    return share < min(RARE, RARE_BESIDE * commonest)


def _date_phrase(profile: ColumnProfile, value: Any) -> Phrase | None:
    """A date by its place in time if that is far outside, else by its weekday and hour, else by its place."""
    moment, outside, is_far = _moment(value), None, False
    if profile.earliest is not None and profile.latest is not None:
        earliest, latest = _moment(profile.earliest), _moment(profile.latest)
        if not earliest <= moment <= latest:
            side, end = ("later", latest) if moment > latest else ("earlier", earliest)
            when = f"on {moment:%Y-%m-%d}" if moment.year == end.year else f"in {moment.year}"
            outside = f"{when}, {side} than all others", f"{side} than all others"
            is_far = abs(moment - end) > 0.1 * (latest - earliest)
    return outside if is_far else _clock_phrase(profile, moment) or outside


def _clock_phrase(profile: ColumnProfile, moment: datetime) -> Phrase | None:
    day, (first, last) = moment.weekday(), profile.hours or (0, 23)
    rare_day = bool(profile.weekdays) and _is_rare(profile.weekdays[day], max(profile.weekdays))
    after, before = moment.hour >= first, moment.hour <= last
    odd_hour = not (after and before if first <= last else after or before)
    words, summaries = list[str](), list[str]()
    if rare_day:
        words.append(f"on a {WEEKDAYS[day]}" + ("" if odd_hour else ", a rare weekday"))
        summaries.append("on a rare weekday")
    if odd_hour:
        words.append(f"at {moment:%H:%M}, usually {first:02}:00 to {last:02}:59")
        summaries.append("at an unusual hour")
    return (" ".join(words), " ".join(summaries)) if words else None


def _moment(value: Any) -> datetime:
    """The clock's time at a date, whatever its time zone; midnight if it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
