"""Findings without raw values: columns, directions, contributions, scores and row numbers remain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from addml.findings import Finding, Findings, Group, Reason, Track, Usual
from addml.report.charts import MAX_ROWS
from addml.report.summary import column_of, direction
from addml.text import MISSING, cell_text

HIDDEN = "[redacted]"
QUOTED = re.compile(
    r"(?<=constant: ).+(?= in every row)"
    r"|\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|“[^”]*”|‘[^’]*’|«[^»]*»|`[^`]*`"
)
VALUE_SETTINGS = ("anomaly_value",)  # settings that hold a value of the table
HARMLESS = re.compile("share|shift|distance|psi|statistic|p_value|count|gaps|missing|unseen|outside")


def redacted(findings: Findings) -> Findings:
    """The same findings without raw values, ids, usual values and images, also within sentences."""
    columns, usual = set(findings.columns), {one.column: one for one in findings.usual}
    scrub, track = _scrubber(findings), findings.track
    listed = (_finding(finding, usual, columns) for finding in findings.ranked[:MAX_ROWS])
    hidden = {name: HIDDEN for name in VALUE_SETTINGS if findings.settings.get(name) is not None}
    if track is not None:  # the scores alone; entities go by number
        spans = enumerate(track.entities, start=1)
        entities = tuple((f"series {place}", start, stop) for place, (_, start, stop) in spans)
        track = Track(("", ""), track.scores, (), track.events, None, entities)
    return replace(
        findings,
        left_out=tuple((column, scrub(why)) for column, why in findings.left_out),
        notes=tuple(map(scrub, findings.notes)),
        ranked=(*listed, *(replace(one, ids={}, values={}, reasons=()) for one in findings.ranked[MAX_ROWS:])),
        groups=tuple(_group(group, columns) for group in findings.groups),
        usual=tuple(Usual(one.column, one.kind, "") for one in findings.usual),
        evaluation=scrub(findings.evaluation),
        drift=tuple(_drift(entry, scrub) for entry in findings.drift),
        settings=scrub(findings.settings) | hidden,
        pictures=(),
        track=track,
    )


def _finding(finding: Finding, usual: dict[str, Usual], columns: set[str]) -> Finding:
    """Every value becomes its direction; the unusual ones come first."""
    places = {
        column: MISSING if cell_text(value) == MISSING else direction(value, usual.get(column)) or HIDDEN
        for column, value in finding.values.items()
    }
    reasons = []
    for reason in finding.reasons:
        column = column_of(reason.column, columns)
        place = places.get(column, HIDDEN)
        reasons.append(Reason(column, reason.share, column if place == HIDDEN else f"{column} {place}"))
    values = dict(sorted(places.items(), key=lambda item: item[1].startswith(("within", "a common", HIDDEN))))
    return replace(finding, ids={}, values=values, reasons=tuple(reasons))


def _group(group: Group, columns: set[str]) -> Group:
    bare = tuple(dict.fromkeys(column_of(column, columns) for column in group.columns))
    return Group(bare, ", ".join(bare), group.ranks)


def _drift(entry: dict[str, Any], scrub: Callable[[Any], Any]) -> dict[str, Any]:
    numbers = {key for key, value in entry.items() if isinstance(value, int | float) and HARMLESS.search(key)}
    kept = {key: value for key, value in entry.items() if key in numbers | {"column", "kind"}}
    return kept | ({"words": scrub(entry["words"])} if "words" in entry else {})


def _scrubber(findings: Findings) -> Callable[[Any], Any]:
    """Hides quoted text, constants, and every known raw value that is a word of its own, in text or structures."""
    sources = [*findings.notes, dict(findings.left_out), findings.settings, findings.evaluation, *findings.drift]
    text = "\n".join(_texts(sources))
    known = {value for value in _raw_values(findings) if value in text} - set(findings.columns)
    longest_first = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    values = re.compile(rf"(?<!\w)(?:{longest_first})(?!\w)") if known else None

    def scrub(value: Any) -> Any:
        if isinstance(value, str):
            sentence = QUOTED.sub(HIDDEN, value)
            return values.sub(HIDDEN, sentence) if values else sentence
        if isinstance(value, dict):
            return {key: scrub(inner) for key, inner in value.items()}
        return [scrub(inner) for inner in value] if isinstance(value, list | tuple) else value

    return scrub


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _raw_values(findings: Findings) -> Iterator[str]:
    """Ids, values and categories, unless so short that they are more likely a count or a letter."""
    cells = [value for one in findings.ranked[:MAX_ROWS] for value in (*one.ids.values(), *one.values.values())]
    held = [value for value in cells if cell_text(value) != MISSING]  # "missing" and None are no values
    texts = [text for value in held for text in (cell_text(value), str(value))]
    for text in (*texts, *(name for one in findings.usual for name, _ in one.common)):
        if len(text) >= 4 or (len(text) >= 2 and not text.isdigit()):
            yield text
