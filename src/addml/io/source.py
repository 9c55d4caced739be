"""The bytes of a table, from files, archives, the web and object stores, and the encoding of text."""

from __future__ import annotations

import atexit
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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from addml.text import counted, did_you_mean, listed

if TYPE_CHECKING:
    import pyarrow as pa

STREAMS = {"/dev/stdout": 1, "/dev/fd/1": 1, "/dev/stderr": 2, "/dev/fd/2": 2}  # the shell may redirect them to a file
STANDARD_INPUT = "-"
COMPRESSION_MARKS = {
    b"\x1f\x8b\x08": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), "zip"),
    **{b"BZh%d1AY&SY" % level: "bz2" for level in range(1, 10)},
}
COMPRESSION_NAMES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
PACKED_NAMES = {**COMPRESSION_NAMES, ".xz": "xz", ".zip": "zip"}  # the last two are only read
PARQUET_NAMES = (".parquet", ".pq")
OUTPUT_FORMATS = {
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys(PARQUET_NAMES, "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson"), "json"),
    ".xlsx": "excel",
}
SAMPLE_BYTES = 1 << 18  # the start of a text, from which its encoding and dialect are detected
DAMAGE = (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error)  # raised by the streams of an Origin
LARGEST_BLOCK = 1 << 30  # bytes; blocks grow to this to hold a long row


class ReadError(ValueError):
    """A source that cannot be read as a table."""


class NoRowsError(ReadError):
    """A source without rows, such as the log of a quiet day."""


@dataclass(frozen=True)
class FileOptions:
    """How to read a source; None means auto-detected."""

    delimiter: str | None = None
    header: bool | None = None
    encoding: str | None = None
    decimal: str | None = None
    skip_rows: int | None = None  # lines above the table
    columns: Sequence[str] | None = None  # required columns; a row with their names is the header
    texts: Sequence[str] = ()  # columns to keep as text
    codes: bool = True  # whether digits with leading zeros or 0x stay text
    query: str | None = None  # for a database
    part: str | None = None  # a sheet of a workbook, an array of an array file, or a file of a zip archive
    labels: Sequence[str] = ()  # label columns to read as well


@dataclass(frozen=True)
class Origin:
    """Named bytes that can be opened several times."""

    name: str
    path: Path | None = None
    content: bytes | None = None
    address: str = field(default="", repr=False)  # of a database, with the password
    compression: str | None = None
    member: str | None = None  # the file to read from a zip archive
    is_chosen: bool = False  # whether the archive holds other files besides the member

    def __fspath__(self) -> str:
        return self.name

    def open(self) -> pa.NativeFile:
        """The bytes from the start, decompressed while reading."""
        import pyarrow as pa

        stream = pa.BufferReader(self.content) if self.path is None else pa.OSFile(os.fsencode(self.path), "rb")
        if self.compression in ("xz", "zip"):
            return pa.PythonFile(self._unpack(stream), mode="r")
        return stream if self.compression is None else pa.CompressedInputStream(stream, self.compression)

    def _unpack(self, packed: pa.NativeFile) -> Any:
        try:
            return zipfile.ZipFile(packed).open(str(self.member)) if self.member else lzma.LZMAFile(packed)
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or an unknown compression method
            raise ReadError(f"{self.name}: {self.member} cannot be unpacked: {error}. Unpack it first.") from error

    def open_text(self, encoding: str, newline: str | None = None) -> io.TextIOWrapper:
        """The decoded text, with replacement characters for bytes that are not in the encoding."""
        return io.TextIOWrapper(io.BufferedReader(self.open()), encoding=encoding, errors="replace", newline=newline)

    def open_seekable(self) -> pa.NativeFile:
        """As `open`, for formats that need random access; compressed data is unpacked in memory."""
        import pyarrow as pa

        return self.open() if self.compression is None else pa.BufferReader(self.open().read())

    def head(self, size: int) -> bytes:
        """The first decompressed bytes, at most `size`."""
        try:
            with self.open() as stream:
                return bytes(stream.read(size))
        except DAMAGE as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: BaseException) -> ReadError:
        """The error to raise when reading fails: no permission, a damaged disk or archive."""
        if self.compression is None:
            return ReadError(f"{self.name}: cannot be read: {error}")
        problem = f"the {self.compression} data is damaged or cut short ({error})"
        return ReadError(f"{self.name}: {problem}. Copy or download the file again.")

    @property
    def is_folder(self) -> bool:
        return self.path is not None and self.path.is_dir()

    @property
    def suffix(self) -> str:
        """The file extension in lower case, ignoring that of the compression."""
        path = Path((self.member or self.name).lower())
        return Path(path.stem).suffix if path.suffix in PACKED_NAMES else path.suffix


def find_origin(source: str | os.PathLike[str], part: str | None = None) -> Origin:
    """Locate `source`; `part` selects a file in a zip archive."""
    if isinstance(source, Origin):  # an upload, which is never decompressed
        return source
    origin = _locate(os.fspath(source))
    if origin.is_folder:
        return origin
    head = origin.head(16)
    compression = next((kind for mark, kind in COMPRESSION_MARKS.items() if head.startswith(mark)), None)
    return _select_member(origin, part) if compression == "zip" else replace(origin, compression=compression)


def _locate(name: str) -> Origin:
    if name == STANDARD_INPUT:
        return Origin("standard input", content=sys.stdin.buffer.read())
    if is_remote(name):
        return Origin(without_credentials(name), download(name))
    if not name:  # Path("") is the current folder
        raise ReadError("the path is empty. Give a file or a folder ('.' is the current folder).")
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise no_such_file(path)
    try:
        return Origin(name, content=path.read_bytes()) if is_special(path) else Origin(name, path)
    except OSError as error:
        raise ReadError(f"{name}: cannot be opened: {error.strerror}.") from error


def is_special(path: Path) -> bool:
    """Whether this is a device, a pipe or a standard stream, which is read only once and never replaced by a file."""
    return str(path) in STREAMS or (path.exists() and not path.is_file() and not path.is_dir())


def _select_member(origin: Origin, part: str | None) -> Origin:
    """The only file of a zip archive, or the one named `part`; workbooks and .npz files stay whole."""
    names = zip_names(origin)
    if archive_format(names) is not None:
        return origin
    member = names[0] if len(names) == 1 else part
    if member not in names:
        content = f"{counted(len(names), 'file')} ({listed(names)})" if names else "nothing"
        raise ReadError(f"{origin.name}: is a zip archive of {content}. Choose one file with --sheet (part=...).")
    return replace(origin, compression="zip", member=member, is_chosen=len(names) > 1)


def zip_names(origin: Origin) -> list[str]:
    """The files in a zip archive, except hidden ones and those that macOS adds."""
    try:
        with origin.open_seekable() as stream, zipfile.ZipFile(stream) as archive:
            names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ReadError(f"{origin.name}: is damaged or cut short ({error}). Copy or download it again.") from error
    return [name for name in names if not name.startswith("__MACOSX/") and not Path(name).name.startswith(".")]


def archive_format(names: list[str]) -> str | None:
    """The format that stores its files in a zip archive, "excel" or "npz"; None for an ordinary archive."""
    if any(name.startswith("xl/") for name in names):
        return "excel"
    return "npz" if names and all(name.endswith(".npy") for name in names) else None


def no_such_file(path: Path) -> ReadError:
    """The error for a missing path; it suggests similar names in the same folder."""
    folder = path.parent
    if not folder.is_dir():
        return ReadError(f"{path}: no such file: the folder {folder} does not exist.")
    hint = did_you_mean(path.name, sorted(entry.name for entry in folder.iterdir()))
    return ReadError(f"{path}: no such file.{hint}")


def library(name: str, extra: str, user: str) -> Any:
    """Import an optional library; the error for a missing one names its user and the extra to install."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ReadError(f"{user} needs {name}: pip install 'addml[{extra}]'.") from error


WEB, STORES = ("https", "http"), ("s3", "gs", "gcs")
TIMEOUT = 30  # seconds without an answer


def is_remote(source: str) -> bool:
    """Whether the source is the address of a file to download."""
    scheme, separator, _ = source.partition("://")
    return bool(separator) and scheme.lower() in (*WEB, *STORES)


def without_credentials(address: str) -> str:
    """The address without user, password and query, which may hold a key."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@cache
def download(address: str) -> Path:
    """A local copy of a file, or of the Parquet files in a store's folder; deleted when Python exits."""
    folder = Path(tempfile.mkdtemp(prefix="addml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / (Path(unquote(urlsplit(address).path)).name or "download")
    try:
        if urlsplit(address).scheme.lower() in WEB:
            with _open_url(address) as response:
                _copy(response, target, address, int(response.headers.get("Content-Length") or 0))
        else:
            _copy_from_store(address, target)
    except (OSError, ValueError, HTTPException) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ReadError):
            raise
        name = without_credentials(address)
        reason = str(getattr(error, "reason", None) or error).replace(address, name)
        raise ReadError(f"{name}: cannot be downloaded: {reason}. Check the address and your access.") from None
    return target


def _copy(stream: Any, target: Path, address: str, size: int) -> None:
    """Copy a stream of `size` bytes (0: unknown) into a file."""
    with target.open("wb") as file:
        shutil.copyfileobj(stream, file)
    if (copied := target.stat().st_size) < size:
        name = without_credentials(address)
        raise ReadError(f"{name}: the download ended after {copied:,} of {size:,} bytes. Try again.")


def _open_url(address: str) -> Any:
    """The server's response; a redirect to another host does not carry the password."""
    parts = urlsplit(address)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    request = urllib.request.Request(url, headers={"User-Agent": "addml"})
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"the server answered {error.code} {error.reason}") from None
    if parts.scheme.lower() == "https" and urlsplit(response.url).scheme != "https":
        response.close()
        raise OSError("the server redirects to an unencrypted http address")
    return response


def _copy_from_store(address: str, target: Path) -> None:
    from pyarrow import fs

    store, path = fs.FileSystem.from_uri(address)
    info = store.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise ReadError(f"{without_credentials(address)}: no such file.")
    entries = [info] if info.is_file else store.get_file_info(fs.FileSelector(path, recursive=True))
    files = [file for file in entries if file is info or (file.is_file and file.path.lower().endswith(PARQUET_NAMES))]
    if not files:
        raise ReadError(f"{without_credentials(address)}: is a folder without Parquet files. Name one file.")
    for file in files:
        copy = target / os.path.relpath(file.path, path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with store.open_input_stream(file.path) as stream:
            _copy(stream, copy, address, int(file.size or 0))


BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: ("utf-8-sig", "UTF-8 with a byte order mark"),
    codecs.BOM_UTF32_LE: ("utf-32", "UTF-32"),  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF16_LE: ("utf-16", "UTF-16"),
    codecs.BOM_UTF16_BE: ("utf-16", "UTF-16"),
}
LATIN = ("cp1252", "cp1250", "cp1254")
OTHER_SCRIPTS = ("cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr")
POLISH = re.compile(rb"[A-Za-z][\xa3\xa5\xaf\xb3\xb9\xbf][a-z][\x00-\x7f]")  # letters in cp1250, symbols in cp1252
MIN_NON_ASCII = 12  # bytes; with fewer, the guess is Windows-1252
NON_ASCII_LINES = 200  # passed to charset-normalizer
SAME_CHAOS = 0.02  # smaller differences of charset-normalizer's `chaos` are a tie
NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # undefined in Windows-1252
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
CONTROL_SHARE = 0.01  # random bytes have about ten times as many


def decode(raw: bytes, name: str, encoding: str | None = None) -> tuple[str, str, str]:
    """The text of a file's first bytes, which may end inside a character; its encoding (detected if None) and label."""
    encoding, label = _detect_encoding(raw, name) if encoding is None else (encoding, f"{encoding}, as given")
    try:
        b"x".decode(encoding, "ignore")  # raises LookupError for codecs that are not text encodings, such as zip
        text = codecs.getincrementaldecoder(encoding)("replace").decode(raw)
    except LookupError as error:
        raise ReadError(f"{name}: unknown encoding {encoding!r}. Try 'utf-8' or 'cp1252'.") from error
    except UnicodeError as error:
        raise ReadError(f"{name}: is not {encoding}: {error}. Leave out the encoding to have it detected.") from error
    return text.removeprefix("\ufeff"), encoding, label


def _detect_encoding(raw: bytes, name: str) -> tuple[str, str]:
    for mark, encoding_and_label in BYTE_ORDER_MARKS.items():
        if raw.startswith(mark):
            return encoding_and_label
    half = len(raw) // 2
    even, odd = raw[0::2].count(0), raw[1::2].count(0)  # Western text in UTF-16 has a zero byte in every character
    if half >= 4 and max(even, odd) >= 0.7 * half and not min(even, odd):
        return "utf-16-le" if odd > even else "utf-16-be", "UTF-16 without a byte order mark"
    if b"\x00" in raw or len(CONTROL.findall(raw)) > CONTROL_SHARE * len(raw):
        raise ReadError(f"{name}: is binary data, not text. Check that it is the right file.")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw)
    n_invalid = text.count("\ufffd") - raw.count("\ufffd".encode())
    if not n_invalid:
        return "utf-8", "UTF-8"
    if sum(not letter.isascii() for letter in text) > 2 * n_invalid:  # mostly valid UTF-8
        line = text.partition("\ufffd")[0].count("\n") + 1
        raise ReadError(f"{name}, line {line}: is not UTF-8, but the rest is. Correct the line, or set the encoding.")
    if (guess := _legacy_encoding(raw)) is not None:
        return guess, f"{guess} (a guess; --encoding overrides it)"
    if NOT_WESTERN.search(raw):
        return "latin-1", "Latin-1 (not UTF-8)"
    return "cp1252", "Windows-1252 (not UTF-8; if letters look wrong, set --encoding)"


def _legacy_encoding(raw: bytes) -> str | None:
    """An encoding that fits better than Windows-1252, or None."""
    from charset_normalizer import from_bytes

    lines = b"\n".join(dict.fromkeys(line for line in raw.splitlines() if not line.isascii()))
    runs = re.findall(rb"[\x80-\xff]+", lines)
    if POLISH.search(lines):
        return "cp1250"
    if sum(map(len, runs)) < MIN_NON_ASCII:
        return None
    is_latin = 2 * sum(len(run) == 1 for run in runs) > len(runs)  # in other scripts, most have non-ASCII neighbours
    text = b"\n".join(lines.split(b"\n")[:NON_ASCII_LINES])
    # One chunk: smaller ones may end inside a character.
    matches = from_bytes(text, 1, len(text), cp_isolation=[*LATIN] if is_latin else [*LATIN, *OTHER_SCRIPTS])
    western = next((match.chaos for match in matches if match.encoding == "cp1252"), 1.0)
    best = matches.best()
    return None if best is None or western <= best.chaos + SAME_CHAOS else str(best.encoding)
