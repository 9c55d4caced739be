"""What is unusual about values, in words: for many values of many columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from addml.preprocessing.profile import CLOCK, CODE, MOST, ColumnProfile
from addml.text import figure, shortened

RARE, RARE_BESIDE = 0.05, 0.1  # a rare level has under 5 %, and under a tenth of the commonest level's share
UNCOMMON_BESIDE = 0.25  # an uncommon one under a quarter of it
RARITIES = {"new": "{} with a new value", "rare": "{} with a rare value", "uncommon": "{} with an uncommon value"}
FAR = 2.0  # times the usual number, or a part as small
FAR_OUTSIDE = 2.0  # half widths of the middle 90 % from its centre
LONGEST = 40  # characters of a level
ONE_VALUE = f" in over {MOST:.0%} of rows"  # of a column whose usual range is one value
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Values = Any  # of one kind: float64 for numbers, datetime64[us] for dates, Arrow's text for levels
Profiles = Sequence[ColumnProfile]


class PhraseGroup(NamedTuple):
    """Values that share a phrase. Words follow the column's name; the summary has {} in its place."""

    places: np.ndarray  # among all values
    words: pa.Array  # one text for each place: "1230, far above the usual 30"
    summary: str  # the same without the values: "{} unusually high"


def as_values(kind: str, values: Any) -> Values:
    """Values of a column of this kind as the functions here take them; None, NaN and NaT are gaps."""
    if kind == "number":
        return np.asarray(values, np.float64)
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, pa.Array):
        return values.cast(pa.string())
    if kind == "date":
        return np.array([None if _is_gap(value) else _moment(value) for value in values], "datetime64[us]")
    texts = [None if _is_gap(value) else str(value) for value in values]
    return pa.array(texts if kind == "category" else [text and text.lower() for text in texts], pa.string())


def taken(values: Values, places: np.ndarray) -> Values:
    """The values at these places."""
    return values[places] if isinstance(values, np.ndarray) else values.take(pa.array(places))


def unusual(profiles: Profiles, which: np.ndarray, values: Values) -> Iterator[PhraseGroup]:
    """What is unusual about values by themselves; each is in one group at most.

    The columns are of one kind, and the i-th value belongs to `profiles[which[i]]`.
    """
    kind, gaps, share = profiles[0].kind, _gaps(values), np.array([one.gaps for one in profiles])[which]
    yield from _same(np.flatnonzero(gaps & (share < 0.5)), "is missing")
    ordinary = ~gaps
    known = np.flatnonzero(ordinary)
    for group in KINDS[kind](profiles, which[known], taken(values, known)):
        if len(group.places):
            places = known[group.places]
            ordinary[places] = False
            yield group._replace(places=places)
    rest = np.flatnonzero(ordinary & (share > 0.5))
    if len(rest):
        words = joined(shown(profiles, which[rest], taken(values, rest)), ", usually missing")
        yield PhraseGroup(rest, words, "{} present, usually missing")


def unusual_together(
    profiles: Profiles, which: np.ndarray, values: Values, words: str = "unusual given the other columns"
) -> Iterator[PhraseGroup]:
    """As `unusual`, of ordinary values that do not fit the rest of their rows."""
    gaps = _gaps(values)
    yield from _same(np.flatnonzero(gaps), f"missing, {words}", f"{{}} {words}")
    known = np.flatnonzero(~gaps)
    if len(known):
        texts = shown(profiles, which[known], taken(values, known))
        yield PhraseGroup(known, joined(texts, f", {words}"), f"{{}} {words}")


uncommon = partial(unusual_together, words="somewhat uncommon")  # among the rarer values of their columns


def _is_gap(value: Any) -> bool:
    return value is None or bool(value != value)  # NaN and NaT differ from themselves


def _gaps(values: Values) -> np.ndarray:
    return np.asarray(values.is_null()) if isinstance(values, pa.Array) else np.asarray(values != values)


def _same(places: np.ndarray, words: str, summary: str | None = None) -> Iterator[PhraseGroup]:
    """Values of which the same is said, whatever they are."""
    if len(places):
        yield PhraseGroup(places, pa.repeat(words, len(places)), summary or f"{{}} {words}")


# Numbers ----------------------------------------------------------------------------------------------------


def _number_words(profiles: Profiles, which: np.ndarray, numbers: np.ndarray) -> Iterator[PhraseGroup]:
    low, middle, high = np.array([_middle_ninety(one) for one in profiles], np.float64).T[:, which]
    negative = (numbers < 0) & (low >= 0)
    places = np.flatnonzero(negative)
    yield PhraseGroup(places, joined(figures(numbers[places], 3), ", usually not negative"), "{} negative")
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios = np.where((low >= 0) & (middle != 0) & (numbers > 0), numbers / middle, 1)  # of what has a zero
    far = (ratios >= FAR) | (ratios <= 1 / FAR) | (abs(numbers - (low + high) / 2) > FAR_OUTSIDE * (high - low) / 2)
    far &= (high > low) & ~np.isnan(middle)
    sides = (("below", "{} unusually low", (numbers < low) & ~negative), ("above", "{} unusually high", numbers > high))
    for side, summary, beyond in sides:
        places = np.flatnonzero(beyond & far)
        usual = pa.array([figure(one.middle or 0.0, 3) for one in profiles]).take(pa.array(which[places]))
        yield PhraseGroup(places, joined(figures(numbers[places], 3), f", far {side} the usual ", usual), summary)
        yield from _beside_range(profiles, which, numbers, np.flatnonzero(beyond & ~far), side, summary)


def _middle_ninety(profile: ColumnProfile) -> tuple[float | None, float | None, float | None]:
    """The ends and the middle, or nothing, beyond which no number lies."""
    known = profile.low is not None and profile.high is not None and not profile.form
    return (profile.low, profile.middle, profile.high) if known else (None, None, None)


def sides(groups: Sequence[Profiles], which: np.ndarray, values: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Where numbers lie (rows, columns): 1 above the middle 90 % of their columns, -1 below, else 0; and how far out.

    That is measured from the centre of the middle 90 % in half widths of it.

    Row i is compared with the profiles of `groups[which[i]]`. Values of other kinds lie nowhere.
    """
    side, away = (np.zeros((len(which), len(groups[0])), kind) for kind in (np.int64, np.float64))
    for place, one in enumerate(groups[0]):
        if one.kind == "number":
            low, _, high = np.array([_middle_ninety(own[place]) for own in groups], np.float64).T[:, which]
            numbers = as_values("number", values[one.column])
            side[:, place] = (numbers > high).astype(np.int64) - (numbers < low)
            half = np.where(high > low, (high - low) / 2, np.inf)
            away[:, place] = np.nan_to_num(abs(numbers - (high + low) / 2) / half)
    return side, away


def _beside_range(
    profiles: Profiles, which: np.ndarray, numbers: np.ndarray, places: np.ndarray, side: str, summary: str
) -> Iterator[PhraseGroup]:
    """Numbers beside the usual range, with as many digits as it takes to tell them apart."""
    for digits in (3, 4, 6):
        own = figures(numbers[places], digits)
        ends = [[figure(end or 0.0, digits) for end in (one.low, one.high)] for one in profiles]
        texts = [*zip(*ends, strict=True), [" to ".join(dict.fromkeys(both)) for both in ends]]
        low, high, usual = (pa.array(one).take(pa.array(which[places])) for one in texts)
        apart = np.asarray(pc.and_(pc.not_equal(own, low), pc.not_equal(own, high)), bool)
        if apart.any():
            is_one = pc.equal(low, high)
            said = pc.if_else(is_one, ", ", f", {side} the usual ")
            words = joined(own, said, usual, pc.if_else(is_one, ONE_VALUE, "")).filter(pa.array(apart))
            yield PhraseGroup(places[apart], words, summary)
        places = places[~apart]
        if not len(places):
            return


# Levels -----------------------------------------------------------------------------------------------------


def _level_words(profiles: Profiles, which: np.ndarray, texts: pa.Array) -> Iterator[PhraseGroup]:
    """Each distinct level is judged once."""
    encoded = texts.dictionary_encode()
    levels, codes = encoded.dictionary.to_pylist(), np.asarray(encoded.indices)
    numbers, codes = np.unique(which * len(levels) + codes, return_inverse=True)
    judged = [_level_word(profiles[number // len(levels)], levels[number % len(levels)]) for number in numbers.tolist()]
    for rarity, summary in RARITIES.items():
        words = pa.array([words if word == rarity else None for word, words in judged], pa.string())
        found = words.take(pa.array(codes))
        yield PhraseGroup(np.flatnonzero(np.asarray(found.is_valid())), found.drop_null(), summary)


def _level_word(profile: ColumnProfile, level: str) -> tuple[str, str]:
    """How rare a level is, and that in words; nothing for a usual one."""
    share = profile.levels.get(level)
    if share is None:
        rarity, said = ("rare", "rare") if profile.unlisted else ("new", "never seen in training")
    elif share < UNCOMMON_BESIDE * profile.commonest:
        rarity = "rare" if _is_rare(share, profile.commonest) else "uncommon"
        said = f"{rarity} ({figure(100 * share, 2)}% of rows)"
    else:
        return "", ""
    return rarity, f"{level_text(profile.kind, level)}, {said}"


def _is_rare(share: float, commonest: float) -> bool:
    return share < min(RARE, RARE_BESIDE * commonest)


# Dates ------------------------------------------------------------------------------------------------------


def _date_words(profiles: Profiles, which: np.ndarray, moments: np.ndarray) -> Iterator[PhraseGroup]:
    """Dates by their place in time where that is far outside, else by weekday and hour, else by their place."""
    on, at = _by_clock(profiles, which, moments)
    ends = [_ends(one) for one in profiles]
    far = np.array([0.1 * (late - early) if early and late else None for early, late in ends], "timedelta64[us]")
    earliest, latest = np.array(ends, "datetime64[us]").T[:, which]
    for side, end, away in (("earlier", earliest, earliest - moments), ("later", latest, moments - latest)):
        is_far = away > far[which]
        places = np.flatnonzero((away > np.timedelta64(0)) & (is_far | ~(on | at)))
        on, at = on & ~is_far, at & ~is_far
        words = joined(year_or_day(moments[places], end[places]), f", {side} than all others")
        yield PhraseGroup(places, words, f"{{}} {side} than all others")
    yield from _clock_words(profiles, which, moments, on, at)


def _by_clock(profiles: Profiles, which: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which moments are on a rare weekday, and which at an unusual hour."""
    days, minutes = day_and_minute(moments)
    shares = [one.weekdays or (1.0,) * 7 for one in profiles]
    rare = np.array([[_is_rare(share, max(of_week)) for share in of_week] for of_week in shares])
    first, last = np.array([one.hours or (0, 23) for one in profiles]).T[:, which]
    after, before = minutes // 60 >= first, minutes // 60 <= last
    return rare[which, _weekday(days)], ~np.where(first <= last, after & before, after | before)


def _clock_words(
    profiles: Profiles, which: np.ndarray, moments: np.ndarray, on: np.ndarray, at: np.ndarray
) -> Iterator[PhraseGroup]:
    days, minutes = day_and_minute(moments)
    for mask, has_day, has_hour in ((on & ~at, True, False), (at & ~on, False, True), (on & at, True, True)):
        places, words, summaries = np.flatnonzero(mask), [], ["{}"]
        if has_day:
            weekdays = pa.array(WEEKDAYS).take(pa.array(_weekday(days[places])))
            words.append(joined("on a ", weekdays, "" if has_hour else ", a rare weekday"))
            summaries.append("on a rare weekday")
        if has_hour:
            hours = [one.hours or (0, 23) for one in profiles]
            usually = pa.array([f", usually {first:02}:00 to {last:02}:59" for first, last in hours])
            words.append(joined("at ", clock().take(pa.array(minutes[places])), usually.take(pa.array(which[places]))))
            summaries.append("at an unusual hour")
        yield PhraseGroup(places, pc.binary_join_element_wise(*words, " "), " ".join(summaries))


def _weekday(days: np.ndarray) -> np.ndarray:
    return np.asarray((days.astype(np.int64) + 3) % 7)  # 1970 began on a Thursday


def _ends(profile: ColumnProfile) -> tuple[datetime | None, datetime | None]:
    """The first and the last moment of training, if both are known."""
    known = profile.earliest is not None and profile.latest is not None
    return (_moment(profile.earliest), _moment(profile.latest)) if known else (None, None)


def _moment(value: Any) -> datetime:
    """The clock's time at a date, whatever its time zone; midnight where it has no time."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


KINDS: dict[str, Callable[[Profiles, np.ndarray, Any], Iterator[PhraseGroup]]] = {
    "number": _number_words,
    "boolean": _level_words,
    "category": _level_words,
    "date": _date_words,
}


# Values as text --------------------------------------------------------------------------------------------


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts joined value by value."""
    return pc.binary_join_element_wise(*parts, "")


def shown(profiles: Profiles, which: np.ndarray, values: Any) -> pa.Array:
    """Values of columns of one kind, none a gap, as text."""
    kind, forms = profiles[0].kind, np.array([one.form for one in profiles])[which]
    if kind == "number":
        texts = figures(values, 4)
        for form, written in ((CODE, "{:.0f}"), (CLOCK, "{:04.0f}")):
            if (own := forms == form).any():
                texts = pc.replace_with_mask(texts, own, pa.array([written.format(one) for one in values[own]]))
        return texts
    if kind == "date":
        days, minutes = day_and_minute(values)
        moments = pc.if_else(minutes == 0, _days(days), joined(_days(days), " ", clock().take(pa.array(minutes))))
        return pc.if_else(forms == CLOCK, clock().take(pa.array(minutes)), moments)
    encoded = values.dictionary_encode()
    return pa.array([level_text(kind, one) for one in encoded.dictionary.to_pylist()]).take(encoded.indices)


def figures(numbers: np.ndarray, digits: int) -> pa.Array:
    """Numbers as `figure` writes them, many at a time.

    A number that is rounded to so many digits is the shortest text of the nearest float, which Arrow writes. What
    lies so near the middle between two such texts that the product below may have crossed it is written one by one.
    """
    sizes = np.abs(numbers)
    plain = (sizes == 0) | ((sizes >= 1e-4) & (sizes < 1e9))  # beyond these Arrow writes exponents
    before = np.floor(np.log10(np.where(plain & (sizes > 0), sizes, 1)))
    tens = 10.0 ** np.maximum(0, digits - 1 - before)
    scaled = np.where(plain, numbers, 0) * tens
    whole = np.rint(scaled)
    texts = pa.array(whole / tens).cast(pa.string())
    if (sizes >= 9999).any():
        for pattern in (r"^(-?\d{2,})(\d{3})(\.|$)", r"^(-?\d+)(\d{3})(,)", r"^(-?\d+)(\d{3})(,)"):
            texts = pc.replace_substring_regex(texts, pattern, r"\1,\2\3")
    hard = ~plain | (np.abs(np.abs(scaled - whole) - 0.5) < 1e-6)
    if not hard.any():
        return texts
    return pc.replace_with_mask(texts, hard, pa.array([figure(one, digits) for one in numbers[hard].tolist()]))


def level_text(kind: str, text: str) -> str:
    """A level on one line, cut where it is too long."""
    return one_line(text) if kind == "boolean" else f"'{one_line(text)}'"


def no_number(texts: pa.Array) -> pa.Array:
    """Words for texts in a column of numbers."""
    return pa.array([f'is "{one_line(text)}", not a number' for text in texts.to_pylist()], pa.string())


def one_line(text: str) -> str:
    """A text on one line, cut where it is too long."""
    return shortened(" ".join(text.split()), LONGEST)


def year_or_day(moments: np.ndarray, nearest: np.ndarray) -> pa.Array:
    """The year where it is another than that of the nearest moment, else the day."""
    years, same = moments.astype("datetime64[Y]"), nearest.astype("datetime64[Y]")
    in_year = joined("in ", pa.array(years.astype(np.int64) + 1970).cast(pa.string()))
    return pc.if_else(years != same, in_year, joined("on ", _days(moments.astype("datetime64[D]"))))


def day_and_minute(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The days, and the minutes since midnight."""
    days = moments.astype("datetime64[D]")
    return days, ((moments - days) // np.timedelta64(1, "m")).astype(np.int64)


@lru_cache(maxsize=1)
def clock() -> pa.Array:
    """Every minute of a day as text; made late, since Arrow's first array from Python imports pandas."""
    return pa.array([f"{minute // 60:02}:{minute % 60:02}" for minute in range(1440)])


def _days(days: np.ndarray) -> pa.Array:
    return pa.array(days).cast(pa.string())
