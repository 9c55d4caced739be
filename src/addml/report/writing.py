"""The report as a file, in the format that is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from addml.findings import Findings
from addml.io.write import write_whole
from addml.report.markdown import markdown
from addml.report.page import html_page
from addml.report.redact import redacted

ENDINGS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}


def write_report(
    findings: Findings,
    path: str | os.PathLike[str],
    *,
    redact: bool = False,
    format: Literal["html", "md"] | None = None,
) -> Path:
    """Write one self-contained file; without a format the name's ending decides, HTML by default."""
    target = Path(os.path.expanduser(path))
    kind = format or ENDINGS.get(target.suffix.lower(), "html")
    if kind not in ENDINGS.values():
        raise ValueError(f"format={format!r} must be 'html' or 'md'")
    shown = redacted(findings) if redact else findings
    page = html_page(shown, is_redacted=redact) if kind == "html" else markdown(shown, is_redacted=redact)
    write_whole(target, page.encode("utf-8", "replace"))
    return target
