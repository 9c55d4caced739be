"""Files of the web (https://) and of object stores (s3://, gs://), downloaded once to a temporary file."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urljoin, urlsplit

WEB, STORES = ("https", "http"), ("s3", "gs", "gcs")
TIMEOUT = 30  # seconds without an answer
MOST_BYTES = 20 << 30  # of a download; a larger file is better downloaded by hand
SPARE_BYTES = 1 << 30  # that a download leaves free on the disk
CHUNK = 1 << 20
REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 5


class ReadError(ValueError):
    """A source that cannot be read as a table; the message names it, the place and the remedy."""


class NoRowsError(ReadError):
    """A source without rows, such as the file of a day on which nothing happened."""


def is_remote(source: str) -> bool:
    """Whether the source is the address of a file to download."""
    return source.partition("://")[0].lower() in (*WEB, *STORES) and "://" in source


def shown(address: str) -> str:
    """The address without user, password and query, which may hold a key."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@cache
def fetched(address: str) -> Path:
    """A local copy of the file, or of the Parquet files below a folder of a store; removed when Python ends."""
    folder = Path(_temporary().name) / str(len(list(Path(_temporary().name).iterdir())))
    folder.mkdir()
    name = Path(unquote(urlsplit(address).path)).name or "download"
    try:
        if urlsplit(address).scheme.lower() in WEB:
            with closing(_answer(address)) as answer:
                _copy(answer, folder / name, address, int(answer.headers.get("Content-Length") or 0))
            return folder / name
        return _from_store(address, folder, name)
    except (OSError, ValueError, urllib.error.URLError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ReadError):
            raise
        reason = str(getattr(error, "reason", None) or error).replace(address, shown(address))
        raise ReadError(
            f"{shown(address)}: cannot be downloaded: {reason}. Check the address and your access."
        ) from None


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="addml-")


def _copy(stream: IO[bytes] | Any, target: Path, address: str, size: int) -> None:
    """Copy a stream of `size` bytes, 0 where that is not known, into a file, unless it is too large or cut short."""
    most, done = min(MOST_BYTES, shutil.disk_usage(target.parent).free - SPARE_BYTES), 0
    with target.open("wb") as file:
        while size <= most and (chunk := stream.read(CHUNK)):
            done += len(chunk)
            if done > most:
                break
            file.write(chunk)
    if max(size, done) > most:
        raise ReadError(
            f"{shown(address)}: is larger than {max(0, most) / 1e9:.3g} GB, the limit of a download here. Download it "
            "yourself and give its path."
        )
    if done < size:
        raise ReadError(f"{shown(address)}: the download ended after {done:,} of {size:,} bytes. Try again.")


# The web ------------------------------------------------------------------------------------------------------


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _answer(address: str) -> Any:
    """The answer to a request; redirects lead to the web only, never from https to http, and take no password along."""
    opener, parts = urllib.request.build_opener(_NoRedirects), urlsplit(address)
    headers = {"User-Agent": "addml"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    for _ in range(MOST_REDIRECTS + 1):
        try:
            return opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            target = error.headers.get("Location")
            if error.code not in REDIRECTS or not target:
                raise OSError(f"the server answered {error.code} {error.reason}") from None
        before, url = urlsplit(url), urljoin(url, target)
        after = urlsplit(url)
        if after.scheme not in WEB or (before.scheme, after.scheme) == ("https", "http"):
            raise OSError(f"it redirects to a {after.scheme}: address")
        if (after.scheme, after.netloc) != (before.scheme, before.netloc):
            headers.pop("Authorization", None)
    raise OSError(f"it redirects more than {MOST_REDIRECTS} times")


# Object stores ------------------------------------------------------------------------------------------------


def _from_store(address: str, folder: Path, name: str) -> Path:
    from pyarrow import fs

    store, path = fs.FileSystem.from_uri(address)
    info = store.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise ReadError(f"{shown(address)}: no such file.")
    files = {folder / name: info}
    if info.type != fs.FileType.File:
        held = store.get_file_info(fs.FileSelector(path, recursive=True))
        parquet = [one for one in held if one.is_file and one.path.lower().endswith((".parquet", ".pq"))]
        files = {folder / name / os.path.relpath(one.path, path): one for one in parquet}
    if not files:
        raise ReadError(f"{shown(address)}: is a folder without Parquet files. Name one file.")
    for target, one in files.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        with store.open_input_stream(one.path) as stream:
            _copy(stream, target, address, int(one.size or 0))
    return folder / name
