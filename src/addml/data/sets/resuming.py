"""A download over HTTP that goes on where an earlier one broke off."""

from __future__ import annotations

import errno
import http.client
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from addml.data.sets.errors import DownloadError, NoNetworkError

Advance = Callable[[float], None]
Stage = Callable[[str, float | None], AbstractContextManager[Advance]]

ATTEMPTS = 5
TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 16
RANGE_NOT_SATISFIABLE = 416


class _CutError(Exception):
    """A connection that broke off; what came before is in the file."""


def no_bar(words: str, total: float | None) -> AbstractContextManager[Advance]:
    """A stage that shows nothing."""
    return nullcontext(lambda steps: None)


def fetch(address: str, part: Path, words: str = "", stage: Stage = no_bar) -> None:
    """Download to `part`, going on after the bytes that are already there, again while each attempt brings some."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise DownloadError(f"{address}: is no http or https address. Check ADDML_MIRROR or --mirror.")
    for attempt in range(1, ATTEMPTS + 1):
        before = _size(part)
        try:
            return _fetch_rest(address, part, words, stage)
        except _CutError as error:
            if attempt == ATTEMPTS or _size(part) <= before:
                raise DownloadError(
                    f"{address}: the connection broke off after {_size(part):,} bytes ({error}). They are kept: "
                    "pull again to go on from there."
                ) from error


def _fetch_rest(address: str, part: Path, words: str, stage: Stage) -> None:
    with _open(address, part) as answer:
        mode = "ab" if answer.status == http.HTTPStatus.PARTIAL_CONTENT else "wb"
        with stage(words, answer.length) as advance, part.open(mode) as file:
            for block in _blocks(answer):
                _write(file.write, block, part)
                advance(len(block))


def _open(address: str, part: Path) -> http.client.HTTPResponse:
    headers = {"User-Agent": "addml", "Accept-Encoding": "identity"}
    if _size(part):
        headers["Range"] = f"bytes={_size(part)}-"
    try:
        answer: http.client.HTTPResponse = urlopen(Request(address, headers=headers), timeout=TIMEOUT)
        return answer
    except HTTPError as error:
        if error.code == RANGE_NOT_SATISFIABLE and _size(part):  # all there already, or more: begin again
            part.unlink()
            return _open(address, part)
        raise DownloadError(f"{address}: the server answers {error.code} {error.reason}.") from error
    except (URLError, http.client.HTTPException, OSError) as error:
        raise NoNetworkError(f"{address}: cannot be reached ({getattr(error, 'reason', error)}).") from error


def _blocks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while block := answer.read(BLOCK):
            yield block
    except (http.client.HTTPException, OSError) as error:
        raise _CutError(str(error)) from error
    if answer.length:
        raise _CutError(f"{answer.length:,} bytes are missing")


def _write(write: Callable[[bytes], int], block: bytes, part: Path) -> None:
    try:
        write(block)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            part.unlink(missing_ok=True)  # a full disk is not left full
        raise


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
