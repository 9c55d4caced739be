"""The oracle of words and of the choice of reasons: one value and one row at a time, in plain Python."""

import math
from datetime import datetime

from addml.explain import Reason
from addml.explain.reasons import LONGEST, RARE, RARE_BESIDE, UNCOMMON_BESIDE, WEEKDAYS


def column_words(usual, value):
    """What is unusual about a value, with and without the value itself; None for an ordinary one."""
    if _is_gap(value):
        words = f"{usual.column} is missing"
        return (words, words) if usual.gaps < 0.5 else None
    words_of_kind = {"number": _number_words, "date": _date_words}.get(usual.kind, _level_words)
    found = words_of_kind(usual, value)
    if found is None and usual.gaps > 0.5:
        return f"{usual.column} {_shown(usual, value)}, usually missing", f"{usual.column} present, usually missing"
    return found


def _is_gap(value):
    return value is None or bool(value != value)  # NaN and NaT differ from themselves


def _shown(usual, value):
    if usual.kind == "number":
        return _figures(float(value), 4)
    if usual.kind == "date":
        return f"{_moment(value):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    return _level(value).lower() if usual.kind == "boolean" else f"'{_level(value)}'"


def _number_words(usual, value):
    name, low, middle, high, number = usual.column, usual.low, usual.middle, usual.high, float(value)
    if low is None or high is None or low <= number <= high or usual.form:
        return None
    if number < 0 <= low:
        return f"{name} {_figures(number, 3)}, usually not negative", f"{name} negative"
    side = "above" if number > high else "below"
    summary = f"{name} unusually {'high' if number > high else 'low'}"
    ratio = number / middle if middle and low >= 0 and number > 0 else 1  # only what has a zero has multiples
    if high > low and middle is not None and (ratio >= 2 or ratio <= 0.5 or _is_far_outside(usual, number)):
        return f"{name} {_figures(number, 3)}, far {side} the usual {_figures(middle, 3)}", summary
    for digits in (3, 4, 6):
        shown, usually = _figures(number, digits), _bounds(low, high, digits)
        if shown not in usually:
            if len(usually) == 1:
                return f"{name} {shown}, {usually[0]} in over 90% of rows", summary
            return f"{name} {shown}, {side} the usual {' to '.join(usually)}", summary
    return None


def _bounds(low, high, digits):
    return tuple(dict.fromkeys([_figures(low, digits), _figures(high, digits)]))


def _figures(number, digits):
    """A number with so many significant digits, and all digits before the point: 97.3, 60, 1,234,567, 2.5e-09."""
    number += 0.0  # never -0
    size = abs(number)
    if size and not 1e-4 <= size < 1e15:
        return f"{number:.{digits}g}"
    text = f"{number:,.{max(0, digits - 1 - math.floor(math.log10(size or 1)))}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace(",", "") if len(text.partition(".")[0].lstrip("-")) == 5 else text  # 1,234


def _level_words(usual, value):
    share = usual.levels.get(str(value).lower() if usual.kind == "boolean" else str(value))
    if share is None and usual.unlisted:
        said, summary = "rare", "with a rare value"
    elif share is None:
        said, summary = "never seen in training", "with a new value"
    elif share < UNCOMMON_BESIDE * usual.commonest:
        rare = _is_rare(share, usual.commonest)
        said = f"{'rare' if rare else 'uncommon'} ({_figures(100 * share, 2)}% of rows)"
        summary = f"with {'a rare' if rare else 'an uncommon'} value"
    else:
        return None
    return f"{usual.column} {_shown(usual, value)}, {said}", f"{usual.column} {summary}"


def _is_rare(share, commonest):
    return share < min(RARE, RARE_BESIDE * commonest)


def _level(value):
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _date_words(usual, value):
    """A date by its place in time where that is far outside, else by its weekday and hour, else by its place."""
    moment = _moment(value)
    outside, is_far = _outside_words(usual, moment)
    return (outside if is_far else None) or _clock_words(usual, moment) or outside


def _outside_words(usual, moment):
    if usual.earliest is None or usual.latest is None:
        return None, False
    earliest, latest = _moment(usual.earliest), _moment(usual.latest)
    if earliest <= moment <= latest:
        return None, False
    side, nearest = ("later", latest) if moment > latest else ("earlier", earliest)
    when = f"in {moment.year}" if moment.year != nearest.year else f"on {moment:%Y-%m-%d}"
    summary = f"{usual.column} {side} than all others"
    words = f"{usual.column} {when}, {side} than all others"
    return (words, summary), abs(moment - nearest) > 0.1 * (latest - earliest)


def _clock_words(usual, moment):
    words, summaries = [], []
    if usual.weekdays and _is_rare(usual.weekdays[moment.weekday()], max(usual.weekdays)):
        words.append(f"on a {WEEKDAYS[moment.weekday()]}")
        summaries.append("on a rare weekday")
    if usual.hours and not _is_between(moment.hour, *usual.hours):
        words.append(f"at {moment:%H:%M}, usually {usual.hours[0]:02}:00 to {usual.hours[1]:02}:59")
        summaries.append("at an unusual hour")
    elif words:
        words[0] += ", a rare weekday"
    return (f"{usual.column} {' '.join(words)}", f"{usual.column} {' '.join(summaries)}") if words else None


def _is_between(hour, first, last):
    return first <= hour <= last if first <= last else hour >= first or hour <= last


def _moment(value):
    """The clock's time at a date, whatever its time zone; midnight where it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


def unusual_together(usual, value, said="unusual given the other columns"):
    """For an ordinary value that does not fit the rest of its row."""
    shown = "missing" if _is_gap(value) else _shown(usual, value)
    return f"{usual.column} {shown}, {said}", f"{usual.column} {said}"


def reasons(shares, strange, said, usual, values, most):
    """The reasons of each row, from the shares of its columns, whether it is strange, and what is said of several."""
    rows = zip(shares.tolist(), strange.tolist(), said, strict=True)
    return [tuple(_of_row(row, *one, usual, values, most)) for row, one in enumerate(rows)]


def _of_row(row, shares, strange, said, usual, values, most):
    def value(column):
        return values[usual[column].column][row]

    order = sorted(range(len(shares)), key=lambda column: -shares[column])
    outside = [column for column in order if _is_far_outside(usual[column], value(column))]
    enough = [column for column in order if shares[column] >= 0.1] if strange else []
    named = {
        column: column_words(usual[column], value(column)) for column in order if column in outside or column in enough
    }
    found = [
        Reason((usual[column].column,), min(1, max(0, shares[column])), *words)
        for column, words in named.items()
        if words
    ]
    ordinary = [column for column, words in named.items() if not words]
    if strange and not enough:
        said, ordinary = (
            "unusual as a whole, mostly in {}",
            [column for column in order if shares[column] > 0 and column not in outside],
        )
    if ordinary:
        found.append(_together(said, ordinary[:3], shares, usual, value))
    if not found and strange:
        return [Reason((), 1, "unusual as a whole", "unusual as a whole")]
    farthest = max(outside, key=lambda column: _away(usual[column], value(column)), default=None)
    named = [one for one in found if farthest is not None and one.columns == (usual[farthest].column,)]
    if named and _away(usual[farthest], value(farthest)) > 6 and max(0, shares[farthest]) >= max(0, *shares) / 2:
        found = [*named, *(one for one in found if one != named[0])]
    if most > 1 and named and named[0] not in found[:most]:
        found = [*found[: most - 1], *named]
    return found[:most] or [Reason((), 0, "nothing unusual", "nothing unusual")]


def _is_far_outside(usual, value):
    """A number more than two half widths of the middle 90 % away from its centre."""
    if usual.kind != "number" or _is_gap(value) or usual.low is None or not usual.high > usual.low:
        return False
    return _away(usual, value) > 2


def _away(usual, value):
    """How far a number lies from the centre of the middle 90 %, in half widths of it."""
    return abs(float(value) - (usual.low + usual.high) / 2) / ((usual.high - usual.low) / 2)


def _together(said, columns, shares, usual, value):
    names = tuple(usual[column].column for column in columns)
    share = min(1, sum(shares[column] for column in columns))
    if len(columns) == 1:
        alone = ["somewhat uncommon"] if said == "somewhat uncommon values of {}" else []
        return Reason(names, share, *unusual_together(usual[columns[0]], value(columns[0]), *alone))
    in_order = [usual[column].column for column in sorted(columns)]
    return Reason(names, share, said.format(_listed(names)), said.format(_listed(in_order)))


def _listed(names):
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
