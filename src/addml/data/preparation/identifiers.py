"""Columns that name rows instead of describing them, and text that is prose."""

from __future__ import annotations

import re

import numpy as np
import pyarrow.compute as pc

from addml.data.preparation.distinct_texts import DistinctTexts

FEWEST = 10  # numbers that can tell an identifier
NEARLY_ALL = 0.95  # distinct, of the rows
WITH_A_HINT = 0.9  # the same where the name says identifier; for texts HALF suffices
HALF = 0.5
COLLISIONS = 20  # that numbers without a repetition must have escaped to be called identifiers
HINTS = frozenset(("id", "ids", "uuid", "guid", "key", "pk", "hash", "token", "serial", "identifier"))
HASH = r"^\{?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\}?$|^[0-9a-fA-F]{24,}$"
PROSE_WORDS, PROSE_LENGTH = 4, 20  # on average


def identifier_numbers(name: str, values: np.ndarray) -> str | None:
    """Why a column of numbers is an identifier, or None; only whole numbers can be one.

    Distinct alone says nothing: amounts in cents are distinct too. But m numbers drawn from a range of R would repeat
    each other about m²/2R times; where that is many and none did, they were given out one by one.
    """
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if len(known) < FEWEST or not _whole(known[:1000]) or not _whole(known):
        return None
    hinted = is_hinted(name)
    if not hinted and len(np.unique(known[:1000])) < min(1000, len(known)):
        return None
    whole = known.astype(np.uint64 if known.dtype == np.uint64 else np.int64)
    ordered = np.sort(whole)
    distinct = 1 + np.count_nonzero(ordered[1:] != ordered[:-1])
    span = float(ordered[-1]) - float(ordered[0]) + 1
    if distinct == len(whole):
        steps = np.diff(whole.astype(np.int64))
        if len(known) == len(values) and (steps == steps[0]).all():
            return f"identifier: counts the rows in steps of {steps[0]:,}"
        if len(whole) ** 2 / (2 * span) >= COLLISIONS:
            return f"identifier: numbers from {ordered[0]:,} to {ordered[-1]:,}, none of them twice"
        if span >= 2.0**53:
            return "identifier: numbers of over 16 digits, none of them twice"
    if hinted and distinct >= WITH_A_HINT * len(whole):
        return "identifier: by its name, and (nearly) every row has a number of its own"
    return None


def identifier_texts(name: str, texts: DistinctTexts) -> str | None:
    """Why a column of texts is an identifier or prose, or None."""
    share, sample = texts.distinct_share, texts.sample()
    if share < HALF:
        return None
    words = pc.mean(pc.count_substring_regex(sample, r"\S+")).as_py()
    length = pc.mean(pc.utf8_length(sample)).as_py()
    if words >= PROSE_WORDS and length >= PROSE_LENGTH:
        return f"free text: {words:.0f} words on average, {share:.0%} of the rows differ"
    if pc.mean(pc.match_substring_regex(sample, HASH).cast("int8")).as_py() >= NEARLY_ALL:
        return "identifier: UUIDs or hashes"
    if share >= NEARLY_ALL:
        return "identifier: (nearly) every row has a value of its own"
    if is_hinted(name):
        return f"identifier: by its name, and {share:.0%} of the rows have a value of their own"
    return None


def is_hinted(name: str) -> bool:
    """Whether the name of the column says identifier: `id`, `order_id`, `orderId`."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return any(word.lower() in HINTS for word in words)


def _whole(values: np.ndarray) -> bool:
    if values.dtype.kind != "f":
        return True
    return bool((np.abs(values) < 2.0**53).all() and (values == np.floor(values)).all())
