"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Literal

from addml.data.writers import WriteError, is_special, open_special
from addml.findings import Findings
from addml.report.markdown import markdown
from addml.report.page import html_page
from addml.report.redaction import redacted

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


def write_whole(path: Path, content: bytes) -> None:
    """Write under another name in the same folder, then take the name; after a failure nothing is left."""
    special = is_special(path)
    target = path if special else Path(os.path.realpath(path))  # what /dev/stdout leads to has no name
    if target.is_dir():
        raise WriteError(f"{path}: is a folder. Give the name of a file in it.")
    if not target.parent.is_dir():
        raise WriteError(f"{path}: the folder {target.parent} does not exist. Create it, or write elsewhere.")
    try:
        if special:
            with open_special(target) as file:
                file.write(content)
        else:
            _replace(target, content)
    except OSError as error:
        remedy = "Check the folder's permissions and the space left, or write elsewhere."
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}. {remedy}") from error


def _replace(target: Path, content: bytes) -> None:
    part = target.with_name(f".addml-{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except BaseException:  # an interrupt too
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
