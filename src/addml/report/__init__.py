"""Reports: findings as one self-contained HTML file or as Markdown, with or without raw values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from addml.findings import Finding, Findings, Track, Usual
from addml.io.write import write_whole
from addml.report.html import to_html, to_markdown
from addml.report.sections import build_document
from addml.report.summary import MAX_ROWS, position
from addml.text import MISSING, cell_text

__all__ = ["FORMATS", "redacted", "write_report"]

Format = Literal["html", "md"]
FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}  # by file ending
HIDDEN = "[redacted]"
QUOTED = re.compile(
    r"(?<=constant: ).+(?= in every row)"
    r"|\"(?:[^\"\\]|\\.)*\"|(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|“[^”]*”|‘[^’]*’|«[^»]*»|`[^`]*`"
)
DRIFT_KEYS = ("column", "kind", "psi", "gaps_then", "gaps_now", "unseen_share", "outside_count", "drifted", "words")


def write_report(
    findings: Findings, path: str | os.PathLike[str], *, redact: bool = False, format: Format | None = None
) -> Path:
    """Write a report to one file. Default format: by the file's ending, HTML for unknown ones."""
    target = Path(os.path.expanduser(path))
    kind = format or FORMATS.get(target.suffix.lower(), "html")
    if kind not in FORMATS.values():
        raise ValueError(f"format={format!r} must be 'html' or 'md'")
    pictures = tuple(replace(picture, file=_link(picture.file, target.parent)) for picture in findings.pictures)
    findings = replace(findings, pictures=pictures)
    document = build_document(redacted(findings) if redact else findings, is_redacted=redact)
    text = to_html(document) if kind == "html" else to_markdown(document)
    write_whole(target, text.encode("utf-8", "replace"))
    return target


def _link(file: str | None, folder: Path) -> str | None:
    """A relative link to a file, so that it can move together with the report in this folder."""
    try:
        return None if file is None else quote(Path(os.path.relpath(file, folder)).as_posix())
    except ValueError:  # a different drive
        return None


def redacted(findings: Findings) -> Findings:
    """The findings without raw values, ids, usual values and images, which are also removed from sentences."""
    scrub, track = _scrubber(findings), findings.track
    settings = scrub(findings.settings)
    if findings.settings.get("anomaly_value") is not None:
        settings["anomaly_value"] = HIDDEN
    if track is not None:  # scores only; entities are numbered
        spans = enumerate(track.entities, start=1)
        entities = tuple((f"series {number}", start, stop) for number, (_, start, stop) in spans)
        track = Track(("", ""), track.scores, (), track.events, None, entities)
    drift = [
        {key: entry[key] if key == "column" else scrub(entry[key]) for key in DRIFT_KEYS if key in entry}
        for entry in findings.drift
    ]
    usual = {column.column: column for column in findings.usual}
    return replace(
        findings,
        left_out=tuple((column, scrub(why)) for column, why in findings.left_out),
        notes=tuple(map(scrub, findings.notes)),
        ranked=(
            *(_redacted_row(row, usual) for row in findings.ranked[:MAX_ROWS]),
            *(replace(row, ids={}, values={}, reasons=()) for row in findings.ranked[MAX_ROWS:]),
        ),
        groups=tuple(replace(group, words=", ".join(group.columns)) for group in findings.groups),
        usual=tuple(Usual(column.column, column.kind, "") for column in findings.usual),
        evaluation=scrub(findings.evaluation),
        drift=tuple(drift),
        settings=settings,
        pictures=(),
        track=track,
    )


def _redacted_row(finding: Finding, usual: dict[str, Usual]) -> Finding:
    """Replace every value by its position in words, the unusual ones first."""
    positions = {
        column: MISSING if cell_text(value) == MISSING else position(value, usual.get(column)).words or HIDDEN
        for column, value in finding.values.items()
    }
    reasons = []
    for reason in finding.reasons:
        words = positions.get(reason.column, HIDDEN)
        reasons.append(replace(reason, words=reason.column if words == HIDDEN else f"{reason.column} {words}"))
    values = dict(sorted(positions.items(), key=lambda item: item[1].startswith(("within", "a common", HIDDEN))))
    return replace(finding, ids={}, values=values, reasons=tuple(reasons))


def _scrubber(findings: Findings) -> Callable[[Any], Any]:
    """A function that hides quoted text, constants and known raw values, in text or in structures of text."""
    text = str([*findings.notes, dict(findings.left_out), findings.settings, findings.evaluation, *findings.drift])
    cells = [value for row in findings.ranked[:MAX_ROWS] for value in (*row.ids.values(), *row.values.values())]
    raw = {form for value in cells if cell_text(value) != MISSING for form in (cell_text(value), str(value))}
    raw |= {name for column in findings.usual for name, _ in column.common}
    # A shorter value is more likely a count or a letter of the sentence.
    raw = {value for value in raw if len(value) >= 4 or (len(value) >= 2 and not value.isdigit())}
    raw = {value for value in raw if repr(value)[1:-1] in text} - set(findings.columns)
    longest_first = "|".join(map(re.escape, sorted(raw, key=len, reverse=True)))
    values = re.compile(rf"(?<!\w)(?:{longest_first})(?!\w)") if raw else None

    def scrub(value: Any) -> Any:
        if isinstance(value, str):
            sentence = QUOTED.sub(HIDDEN, value)
            return values.sub(HIDDEN, sentence) if values else sentence
        if isinstance(value, dict):
            return {key: scrub(inner) for key, inner in value.items()}
        return [scrub(inner) for inner in value] if isinstance(value, list | tuple) else value

    return scrub
