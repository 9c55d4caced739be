"""Findings without raw values: what is left are columns, directions, shares, scores and row numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from addml.findings import Finding, Findings, Group, Reason, Usual
from addml.report.comparison import direction, owner
from addml.report.digest import MOST_ROWS
from addml.text import MISSING, raw

HIDDEN = "[redacted]"
QUOTED = re.compile(
    r"(?<=constant: ).+(?= in every row)"
    r"|\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|“[^”]*”|‘[^’]*’|«[^»]*»|`[^`]*`"
)
VALUES = ("anomaly_value",)  # settings that hold a value of the table
HARMLESS = re.compile("share|shift|distance|psi|statistic|p_value|count|gaps|missing|unseen|outside")


def redacted(findings: Findings) -> Findings:
    """The same findings with every raw value, id and everyday value left out, in words too."""
    columns = set(findings.columns)
    usual = {one.column: one for one in findings.usual}
    scrub = _Scrub(findings)
    listed = (_finding(finding, usual, columns) for finding in findings.ranked[:MOST_ROWS])
    return replace(
        findings,
        left_out=tuple((column, scrub(why)) for column, why in findings.left_out),
        notes=tuple(map(scrub, findings.notes)),
        ranked=(*listed, *(replace(one, ids={}, values={}, reasons=()) for one in findings.ranked[MOST_ROWS:])),
        groups=tuple(_group(group, columns) for group in findings.groups),
        usual=tuple(Usual(one.column, one.kind, "") for one in findings.usual),
        evaluation=None if findings.evaluation is None else scrub.all(findings.evaluation),
        drift=tuple(_drift(entry, scrub) for entry in findings.drift),
        settings=_settings(scrub.all(findings.settings)),
        pictures=(),
        track=None if findings.track is None else replace(findings.track, channels=(), times=("", "")),
    )


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without the one that is itself a value of the table."""
    return settings | {name: HIDDEN for name in VALUES if settings.get(name) is not None}


def _finding(finding: Finding, usual: dict[str, Usual], columns: set[str]) -> Finding:
    def where(column: str) -> str:
        value = finding.values.get(column)
        return MISSING if raw(value) == MISSING else direction(value, usual.get(column)) or HIDDEN

    reasons = []
    for reason in finding.reasons:
        column = owner(reason.column, columns)
        said = where(column) if column in finding.values else ""
        words = column if said in ("", HIDDEN) else f"{column} {said}"
        reasons.append(Reason(column, reason.share, words))
    said_of = {column: where(column) for column in finding.values}
    values = dict(sorted(said_of.items(), key=lambda item: item[1].startswith(("within", "a common", HIDDEN))))
    return replace(finding, ids={}, values=values, reasons=tuple(reasons))


def _group(group: Group, columns: set[str]) -> Group:
    bare = tuple(dict.fromkeys(owner(column, columns) for column in group.columns))
    return Group(bare, ", ".join(bare), group.ranks)


def _drift(entry: dict[str, Any], scrub: _Scrub) -> dict[str, Any]:
    kept = {key: value for key, value in entry.items() if key in ("column", "kind") or _is_harmless(key, value)}
    return kept | ({"words": scrub(entry["words"])} if "words" in entry else {})


def _is_harmless(key: str, value: Any) -> bool:
    return isinstance(value, int | float) and HARMLESS.search(key) is not None


class _Scrub:
    """Hides quoted text, constants, and every known raw value that stands as a word of its own."""

    def __init__(self, findings: Findings) -> None:
        sources = [*findings.notes, dict(findings.left_out), findings.settings, findings.evaluation, *findings.drift]
        said = "\n".join(_texts(sources))
        known = {value for value in _raw_values(findings) if _is_telling(value) and value in said}
        longest_first = sorted(known - set(findings.columns), key=len, reverse=True)
        self._known = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)") if known else None

    def __call__(self, sentence: str) -> str:
        sentence = QUOTED.sub(HIDDEN, sentence)
        return self._known.sub(HIDDEN, sentence) if self._known else sentence

    def all(self, value: Any) -> Any:
        """The same structure with its texts scrubbed."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {key: self.all(inner) for key, inner in value.items()}
        return [self.all(inner) for inner in value] if isinstance(value, list | tuple) else value


def _texts(value: Any) -> Iterator[str]:
    """Every text within a nested structure."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _raw_values(findings: Findings) -> Iterator[str]:
    for finding in findings.ranked[:MOST_ROWS]:
        for value in (*finding.ids.values(), *finding.values.values()):
            yield from (raw(value), str(value))
    for one in findings.usual:
        yield from (name for name, _ in one.common)


def _is_telling(value: str) -> bool:
    """Not so short that it is more likely a count or a letter than the value."""
    return len(value) >= 4 or (len(value) >= 2 and not value.isdigit())
