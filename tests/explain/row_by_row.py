"""The oracle of words and of the choice of reasons: one value and one row at a time, in plain Python."""

import math
from datetime import datetime
from itertools import combinations

import numpy as np

from addml.explain import Reason, naming
from addml.explain.replacement import Replacement, features_by_column
from addml.explain.words import RARE, RARE_BESIDE, UNCOMMON_BESIDE, WEEKDAYS
from addml.explain.written import LONGEST


def column_words(usual, value):
    """What is unusual about a value, with and without the value itself; None for an ordinary one."""
    if _is_gap(value):
        words = f"{usual.column} missing"
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
    if low is None or high is None or low <= number <= high:
        return None
    if number < 0 <= low:
        return f"{name} negative", f"{name} negative"
    gist = f"{name} {'above' if number > high else 'below'} the usual"
    ratio = number / middle if middle and low >= 0 and number > 0 else 1  # only what has a zero has multiples
    if ratio >= 2 or (0 < ratio <= 0.5 and 1 / ratio < float("inf")):
        times = f"{_figures(ratio, 2)}x the usual" if ratio >= 2 else f"1/{_figures(1 / ratio, 2)} of the usual"
        return f"{name} {times}", gist
    for digits in (3, 4, 6):
        shown, usually = _figures(number, digits), _bounds(low, high, digits)
        if shown not in usually:
            return f"{name} {shown}, usually {' to '.join(usually)}", gist
    return None


def _bounds(low, high, digits):
    return tuple(dict.fromkeys([_figures(low, digits), _figures(high, digits)]))


def _figures(number, digits):
    """A number with so many significant digits, and all digits before the point: 97.3, 60, 1234567, 2.5e-09."""
    size = abs(number)
    if size and not 1e-4 <= size < 1e15:
        return f"{number:.{digits}g}"
    text = f"{number:.{max(0, digits - 1 - math.floor(math.log10(size or 1)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _level_words(usual, value):
    share = usual.levels.get(str(value).lower() if usual.kind == "boolean" else str(value))
    if share is None:
        word, percent = "rare" if usual.unlisted else "unseen", ""
    elif share < UNCOMMON_BESIDE * usual.commonest:
        word, percent = (
            "rare" if _is_rare(share, usual.commonest) else "uncommon",
            f" ({_figures(100 * share, 2)}%)",
        )
    else:
        return None
    return f"{usual.column} {_shown(usual, value)} {word}{percent}", f"{usual.column} {word}"


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
    side, nearest = ("after", latest) if moment > latest else ("before", earliest)
    when = f"in {moment.year}" if moment.year != nearest.year else f"on {moment:%Y-%m-%d}"
    gist = f"{usual.column} {side} all others"
    return (f"{usual.column} {when}, {side} all others", gist), abs(moment - nearest) > 0.1 * (latest - earliest)


def _clock_words(usual, moment):
    words, gists = [], []
    if usual.weekdays and _is_rare(usual.weekdays[moment.weekday()], max(usual.weekdays)):
        words.append(f"on a {WEEKDAYS[moment.weekday()]}")
        gists.append("on an unusual weekday")
    if usual.hours and not _is_between(moment.hour, *usual.hours):
        words.append(f"at {moment:%H:%M}, usually {usual.hours[0]:02} to {usual.hours[1]:02}")
        gists.append("at an unusual hour")
    return (f"{usual.column} {' '.join(words)}", f"{usual.column} {' '.join(gists)}") if words else None


def _is_between(hour, first, last):
    return first <= hour <= last if first <= last else hour >= first or hour <= last


def _moment(value):
    """The clock's time at a date, whatever its time zone; midnight where it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


def beside_others(usual, value):
    """For an ordinary value that does not fit the rest of its row."""
    gist = f"{usual.column} unusual for such a row"
    return (gist if _is_gap(value) else f"{usual.column} {_shown(usual, value)} unusual for such a row"), gist


def reasons(model, rows, baseline, origins, usual, values, most, closely):
    """The reasons of each row, from the contributions of its columns and of all pairs of the leading ones."""
    features = features_by_column(origins)
    scores, alone = Replacement(model, rows, baseline, "cpu", 1).by_column(features)
    apart = (scores - Replacement(model, baseline[None], baseline, "cpu", 1).by_column([])[0]).tolist()
    cases = [_case(row, fall.tolist(), usual, values, most) for row, fall in enumerate(alone)]
    doubtful = [row for row, case in enumerate(cases) if not case[2] or case[1][0][1] < naming.LITTLE * apart[row]]
    far = sorted(doubtful, key=lambda row: -apart[row])[:closely]
    pairs = dict(zip(far, _pairs(model, rows[far], baseline, features, alone[far]), strict=True))
    found = []
    for row, (named, leading, clear) in enumerate(cases):
        first = _first(named, leading, clear, pairs.get(row), apart[row], usual, values, row) if row in doubtful else []
        parts = [*first, *named][:most]
        found.append(
            [Reason(tuple(usual[c].column for c in cs), fall / max(apart[row], fall), *w) for cs, fall, w in parts]
        )
    return [tuple(of_row) for of_row in found]


def _case(row, alone, usual, values, most):
    """Columns with words of their own, the leading columns, and whether one of the former is clear."""
    order = sorted(range(len(alone)), key=lambda column: -alone[column])[: max(most, naming.PAIRED)]
    leading, named = [(column, alone[column]) for column in order], []
    for column, fall in leading:
        if fall <= 0 or fall < naming.MATTERS * leading[0][1] or len(named) == most:
            break
        words = column_words(usual[column], values[usual[column].column][row])
        if words:
            named.append(((column,), fall, words))
    return named, leading, any(fall >= naming.CLEAR * leading[0][1] for _, fall, _ in named)


def _pairs(model, rows, baseline, features, alone):
    """For each row the best pair of its leading columns: the columns, what both bring, what each brings."""
    for row, fall in zip(rows, alone.tolist(), strict=True):
        leading = sorted(sorted(range(len(fall)), key=lambda column: -fall[column])[: naming.PAIRED])
        pairs = list(combinations(leading, 2))
        both = [np.concatenate([features[column] for column in pair]) for pair in pairs]
        replacement = Replacement(model, row[None], baseline, "cpu", 1)
        _, falls = replacement.falls(np.arange(len(pairs))[None], both.__getitem__)
        best = max(range(len(pairs)), key=lambda at: falls[0, at])
        yield pairs[best], falls[0, best], sum(max(fall[column], 0) for column in pairs[best])


def _first(named, leading, clear, pair, apart, usual, values, row):
    """What to say first of a row that no single column explains."""
    lead, top = leading[0]
    if pair:
        columns, fall, alone = pair
        words = f"unusual together: {', '.join(usual[column].column for column in columns)}"
        own = {column for one, _, _ in named for column in one}
        beyond_named = not own.issuperset(columns) and fall >= max(2 * alone, naming.LITTLE * apart)
        if beyond_named if clear else fall > max(naming.PARTNER * top, 0):
            return [(columns, fall, (words, words))]
    if clear:
        return []
    if top > 0:
        return [((lead,), top, beside_others(usual[lead], values[usual[lead].column][row]))]
    return [((), apart, ("unusual as a whole, no column by itself",) * 2)] if apart > 0 else []
