"""Where the bytes of a table come from: files, archives, the web and object stores; and how text is encoded."""

from __future__ import annotations

import base64
import codecs
import io
import lzma
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from addml.text import counted, did_you_mean, listed

if TYPE_CHECKING:
    import pyarrow as pa

STREAMS = {"/dev/stdout": 1, "/dev/fd/1": 1, "/dev/stderr": 2, "/dev/fd/2": 2}  # which may lead to a file
STANDARD_INPUT = "-"
COMPRESSION_MARKS = {
    b"\x1f\x8b\x08": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), "zip"),
    **{b"BZh%d1AY&SY" % level: "bz2" for level in range(1, 10)},
}
COMPRESSION_NAMES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".lz4": "lz4"}  # also written
PACKED_NAMES = {**COMPRESSION_NAMES, ".xz": "xz", ".zip": "zip"}  # only read


class ReadError(ValueError):
    """A source that cannot be read as a table; the message names it, the place and the remedy."""


class NoRowsError(ReadError):
    """A source without rows, such as the file of a day on which nothing happened."""


@dataclass(frozen=True)
class Origin:
    """A named stream of bytes that can be opened several times."""

    name: str
    path: Path | None = None
    content: bytes | None = None  # in place of the path
    compression: str | None = None
    member: str | None = None  # of a zip archive
    is_chosen: bool = False  # whether `member` was one of several

    def __fspath__(self) -> str:
        return self.name

    def open(self) -> pa.NativeFile:
        """The bytes from the start, decompressed while reading."""
        import pyarrow as pa

        stream = pa.BufferReader(self.content) if self.path is None else pa.OSFile(os.fsencode(self.path), "rb")
        if self.compression in ("xz", "zip"):
            return pa.PythonFile(_Unpacked(stream, self), mode="r")
        return stream if self.compression is None else pa.CompressedInputStream(stream, self.compression)

    def open_seekable(self) -> pa.NativeFile:
        """As `open`, for formats read from their end; what is compressed is first unpacked in memory."""
        import pyarrow as pa

        return self.open() if self.compression is None else pa.BufferReader(self.open().read())

    def head(self, size: int) -> bytes:
        """The first `size` decompressed bytes, fewer when the source is shorter."""
        try:
            with self.open() as stream:
                return bytes(stream.read(size))
        except OSError as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: BaseException) -> ReadError:
        """The error for bytes that cannot be had: no permission, a damaged disk or archive."""
        if self.compression is None:
            return ReadError(f"{self.name}: cannot be read: {error}")
        problem = f"the {self.compression} data is damaged or cut short ({error})"
        return ReadError(f"{self.name}: {problem}. Copy or download the file again.")

    @property
    def suffix(self) -> str:
        """The extension in lower case, without that of the compression."""
        path = Path((self.member or self.name).lower())
        return Path(path.stem).suffix if path.suffix in PACKED_NAMES else path.suffix


class _Unpacked(io.RawIOBase):
    """Bytes that Python decompresses piece by piece; damage is an OSError, as it is where Arrow decompresses."""

    def __init__(self, packed: Any, origin: Origin) -> None:
        try:
            is_zip = origin.compression == "zip"
            self._stream = zipfile.ZipFile(packed).open(str(origin.member)) if is_zip else lzma.LZMAFile(packed)  # noqa: SIM115
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way that Python does not know
            raise ReadError(f"{origin.name}: {origin.member} cannot be unpacked: {error}. Unpack it first.") from error

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except (lzma.LZMAError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise OSError(str(error)) from error

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def find_origin(source: str | os.PathLike[str], part: str | None = None) -> Origin:
    """The file, folder or standard input that `source` names; `part` chooses a file of a zip archive.

    An origin is what it is: an upload is never unpacked from an archive.
    """
    if isinstance(source, Origin):
        return source
    origin = _located(os.fspath(source))
    if origin.path is not None and origin.path.is_dir():
        return origin
    head = origin.head(16)
    compression = next((kind for mark, kind in COMPRESSION_MARKS.items() if head.startswith(mark)), None)
    return _in_zip(origin, part) if compression == "zip" else replace(origin, compression=compression)


def _located(name: str) -> Origin:
    if name == STANDARD_INPUT:
        return Origin("standard input", content=sys.stdin.buffer.read())
    if is_remote(name):
        return Origin(shown(name), fetched(name))
    if not name:  # which Path takes for the present folder
        raise ReadError("an empty path names no table; give that of a file or a folder, '.' for the present one.")
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise no_such_file(path)
    try:
        return Origin(name, content=path.read_bytes()) if is_special(path) else Origin(name, path)
    except OSError as error:
        raise ReadError(f"{name}: cannot be opened: {error.strerror}.") from error


def is_special(path: Path) -> bool:
    """A device, a pipe or a standard stream, which is read only once, and written to, never replaced."""
    return str(path) in STREAMS or (path.exists() and not path.is_file() and not path.is_dir())


def _in_zip(origin: Origin, part: str | None) -> Origin:
    """The only file of a zip archive, or the one named; a workbook and an .npz are archives themselves."""
    names = zip_names(origin)
    if archive_format(names) is not None:
        return origin
    found = part if part in names else names[0] if len(names) == 1 else None
    if found is None:
        held = f"{counted(len(names), 'file')} ({listed(names)})" if names else "nothing"
        raise ReadError(f"{origin.name}: is a zip archive of {held}. Name one of them as the sheet, or unpack it.")
    return replace(origin, compression="zip", member=found, is_chosen=len(names) > 1)


def zip_names(origin: Origin) -> list[str]:
    """The files of a zip archive, without those that macOS adds."""
    try:
        with origin.open_seekable() as stream, zipfile.ZipFile(stream) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ReadError(f"{origin.name}: is damaged or cut short ({error}). Copy or download it again.") from error
    return [one for one in names if not one.startswith("__MACOSX/") and not Path(one).name.startswith(".")]


def archive_format(names: list[str]) -> str | None:
    """The format that is itself a zip archive of these files: a workbook or an .npz."""
    if any(name.startswith("xl/") for name in names):
        return "excel"
    return "npz" if names and all(name.endswith(".npy") for name in names) else None


def no_such_file(path: Path) -> ReadError:
    """The error for a path that does not exist, with the nearest names beside it."""
    folder = path.parent
    if not folder.is_dir():
        return ReadError(f"{path}: no such file: the folder {folder} does not exist.")
    hint = did_you_mean(path.name, sorted(entry.name for entry in folder.iterdir()))
    return ReadError(f"{path}: no such file.{hint}")


def library(name: str, extra: str, what: str) -> Any:
    """The library that a format needs; where it is not installed the error names the extra."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ReadError(f"{what} needs a part that is not installed: pip install 'addml[{extra}]'.") from error


# Files of the web (https://) and of object stores (s3://, gs://), downloaded once to a temporary file --------
WEB, STORES = ("https", "http"), ("s3", "gs", "gcs")
TIMEOUT = 30  # seconds without an answer
CHUNK = 1 << 20


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
    folder = Path(tempfile.mkdtemp(dir=_temporary().name))
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
        where, reason = shown(address), getattr(error, "reason", None) or error
        problem = f"cannot be downloaded: {str(reason).replace(address, where)}"
        raise ReadError(f"{where}: {problem}. Check the address and your access.") from None


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="addml-")


def _copy(stream: Any, target: Path, address: str, size: int) -> None:
    """Copy a stream of `size` bytes, 0 where that is not known, into a file."""
    with target.open("wb") as file:
        shutil.copyfileobj(stream, file, CHUNK)
    if (done := target.stat().st_size) < size:
        raise ReadError(f"{shown(address)}: the download ended after {done:,} of {size:,} bytes. Try again.")


def _answer(address: str) -> Any:
    """The server's answer to a request; a redirect takes no password along."""
    parts = urlsplit(address)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    request = urllib.request.Request(url, headers={"User-Agent": "addml"})
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"the server answered {error.code} {error.reason}") from None
    if parts.scheme.lower() == "https" and urlsplit(answer.url).scheme != "https":
        answer.close()
        raise OSError("it redirects to an http: address, which anybody on the way can change")
    return answer


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


# Encoding ----------------------------------------------------------------------------------------------------
MARKS = {
    codecs.BOM_UTF8: ("utf-8-sig", "UTF-8 with a byte order mark"),
    codecs.BOM_UTF32_LE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF32_BE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF16_LE: ("utf-16", "UTF-16"),
    codecs.BOM_UTF16_BE: ("utf-16", "UTF-16"),
}
LATIN = ("cp1252", "cp1250", "cp1254")
OTHER_SCRIPTS = ("cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr")
POLISH = re.compile(rb"[A-Za-z][\xa3\xa5\xaf\xb3\xb9\xbf][a-z][\x00-\x7f]")  # letters of Windows-1250, signs in 1252
LEAST_BEYOND = 12  # bytes beyond ASCII, under which no other encoding than Windows-1252 is guessed
BEYOND_LINES = 200  # that are looked at
SAME_CHAOS = 0.02  # of charset-normalizer's measure
NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # bytes that Windows-1252 does not have
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
CONTROL_SHARE = 0.01  # random bytes hold about ten times as many
WESTERN = "Windows-1252 (it is not UTF-8; if letters look wrong, say which encoding it has)"


def encoding_of(raw: bytes, name: str) -> tuple[str, str]:
    """The codec of the text that begins with `raw`, and its name for people; an error when it is not text."""
    for mark, named in MARKS.items():
        if raw.startswith(mark):
            return named
    half, even, odd = len(raw) // 2, raw[0::2].count(0), raw[1::2].count(0)
    if half >= 4 and max(even, odd) >= 0.7 * half and not min(even, odd):  # as Western text in UTF-16 has zeros
        return "utf-16-le" if odd > even else "utf-16-be", "UTF-16 without a byte order mark"
    if b"\x00" in raw or len(CONTROL.findall(raw)) > CONTROL_SHARE * len(raw):
        raise ReadError(f"{name}: holds binary data, not text: no table was found in it. Check what the file is.")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw)
    slips = text.count("\ufffd") - raw.count("\ufffd".encode())
    if not slips:
        return "utf-8", "UTF-8"
    if sum(not letter.isascii() for letter in text) > 2 * slips:  # in another encoding most letters would be wrong
        line = text.partition("\ufffd")[0].count("\n") + 1
        raise ReadError(
            f"{name}, line {line}: holds bytes that are not UTF-8, which the rest of the text is. Correct the line, or "
            "name the encoding."
        )
    if (guess := _detected(raw)) is not None:
        return guess, f"{guess} (a guess; --encoding names another)"
    return ("latin-1", "Latin-1 (it is not UTF-8)") if NOT_WESTERN.search(raw) else ("cp1252", WESTERN)


def _detected(raw: bytes) -> str | None:
    """Another encoding than Windows-1252 where one fits better.

    Letters beyond ASCII stand alone in Western and Central European words and side by side in other scripts.
    """
    from charset_normalizer import from_bytes

    lines = b"\n".join(dict.fromkeys(line for line in raw.splitlines() if not line.isascii()))
    runs = re.findall(rb"[\x80-\xff]+", lines)
    if POLISH.search(lines):
        return "cp1250"
    if sum(map(len, runs)) < LEAST_BEYOND:
        return None
    is_latin = 2 * sum(len(run) == 1 for run in runs) > len(runs)
    text = b"\n".join(lines.split(b"\n")[:BEYOND_LINES])  # in one chunk, as others may end within a character
    found = from_bytes(text, 1, len(text), cp_isolation=[*LATIN, *(() if is_latin else OTHER_SCRIPTS)])
    western = next((one.chaos for one in found if one.encoding == "cp1252"), 1.0)
    best = found.best()
    return None if best is None or western <= best.chaos + SAME_CHAOS else str(best.encoding)


def decode_start(raw: bytes, encoding: str, name: str) -> str:
    """The text of `raw`, which may end in the middle of a character; an error where that is not its encoding."""
    try:
        b"x".decode(encoding, "ignore")  # a LookupError where it is none of text, such as zip
        return codecs.getincrementaldecoder(encoding)("replace").decode(raw)
    except LookupError as error:
        raise ReadError(f"{name}: there is no encoding {encoding!r}. Try 'utf-8' or 'cp1252'.") from error
    except UnicodeError as error:
        raise ReadError(f"{name}: is not in {encoding}: {error}. Left out, the encoding is found.") from error
