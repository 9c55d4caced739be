"""Findings as one self-contained HTML file, as Markdown, or as figures for a paper."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from addml.findings import Findings
from addml.io.write import write_whole
from addml.report.html import to_html
from addml.report.markdown import to_markdown
from addml.report.plots import write_figures
from addml.report.redact import redacted
from addml.report.sections import build_document

__all__ = ["FORMATS", "redacted", "write_figures", "write_report"]

FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}  # by file ending


def write_report(
    findings: Findings,
    path: str | os.PathLike[str],
    *,
    redact: bool = False,
    format: Literal["html", "md"] | None = None,
) -> Path:
    """Write a report to one file; without a format the ending of its name decides, HTML by default."""
    target = Path(os.path.expanduser(path))
    chosen = format or FORMATS.get(target.suffix.lower(), "html")
    if chosen not in FORMATS.values():
        raise ValueError(f"format={format!r} must be 'html' or 'md'")
    pictures = tuple(replace(one, file=_link(one.file, target.parent)) for one in findings.pictures)
    findings = replace(findings, pictures=pictures)
    report = build_document(redacted(findings) if redact else findings, is_redacted=redact)
    page = to_html(report) if chosen == "html" else to_markdown(report)
    write_whole(target, page.encode("utf-8", "replace"))
    return target


def _link(file: str | None, folder: Path) -> str | None:
    """A file as a link from a page in the folder, so that both can move together."""
    try:
        return None if file is None else quote(Path(os.path.relpath(file, folder)).as_posix())
    except ValueError:  # on another drive
        return None
