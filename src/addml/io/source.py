"""Where the bytes of a table come from, which format they have, and which encoding if they are text."""

from __future__ import annotations

import codecs
import io
import lzma
import os
import re
import sys
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addml.io.remote import NoRowsError as NoRowsError
from addml.io.remote import ReadError as ReadError
from addml.io.remote import fetched, is_remote, shown
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
    **{b"BZh%d1AY&SY" % level: "bz2" for level in range(1, 10)},
}
COMPRESSION_NAMES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".lz4": "lz4"}  # also written
PACKED_NAMES = {**COMPRESSION_NAMES, ".xz": "xz", ".zip": "zip"}  # only read
ZIP = (b"PK\x03\x04", b"PK\x05\x06")


@dataclass(frozen=True)
class Origin:
    """A named stream of bytes that can be opened several times."""

    name: str
    path: Path | None = None
    content: bytes | None = None
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
            return pa.PythonFile(_Stream(stream, self), mode="r")
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
        return ReadError(
            f"{self.name}: the {self.compression} data is damaged or cut short ({error}). "
            "Copy or download the file again."
        )

    @property
    def suffix(self) -> str:
        """The extension in lower case, without that of the compression."""
        path = Path((self.member or self.name).lower())
        return Path(path.stem).suffix if path.suffix in PACKED_NAMES else path.suffix


class _Stream(io.RawIOBase):
    """Bytes that Python decompresses; damage is an OSError, as it is for the formats that Arrow decompresses."""

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
    is_file = origin.path is None or origin.path.is_file()
    return _in_zip(origin, part) if is_file and origin.compression is None and origin.head(4) in ZIP else origin


def _located(name: str) -> Origin:
    if name == STANDARD_INPUT:
        return _opened("standard input", content=sys.stdin.buffer.read())
    if is_remote(name):
        return _opened(shown(name), fetched(name))
    if not name:  # which Path takes for the present folder
        raise ReadError("an empty path names no table; give that of a file or a folder, '.' for the present one.")
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise no_such_file(path)
    try:
        return _opened(name, content=path.read_bytes()) if is_special(path) else _opened(name, path)
    except OSError as error:
        raise ReadError(f"{name}: cannot be opened: {error.strerror}.") from error


def _opened(name: str, path: Path | None = None, content: bytes | None = None) -> Origin:
    """The origin with the compression that its first bytes tell."""
    head = (content or b"")[:16]
    if path is not None and path.is_file():
        with path.open("rb") as stream:
            head = stream.read(16)
    compression = next((kind for mark, kind in COMPRESSION_MARKS.items() if head.startswith(mark)), None)
    return Origin(name, path, content, compression)


def is_special(path: Path) -> bool:
    """A device, a pipe or a standard stream, which is read only once, and written to, never replaced."""
    return str(path) in STREAMS or (path.exists() and not path.is_file() and not path.is_dir())


def _in_zip(origin: Origin, part: str | None) -> Origin:
    """The only file of a zip archive, or the one named; a workbook and an .npz are archives themselves."""
    names = _zip_names(origin)
    if _archive_format(names) is not None:
        return origin
    found = part if part in names else names[0] if len(names) == 1 else None
    if found is None:
        held = f"{counted(len(names), 'file')} ({listed(names)})" if names else "nothing"
        raise ReadError(f"{origin.name}: is a zip archive of {held}. Name one of them as the sheet, or unpack it.")
    return replace(origin, compression="zip", member=found, is_chosen=len(names) > 1)


def _zip_names(origin: Origin) -> list[str]:
    """The files of a zip archive, without those that macOS adds."""
    try:
        with origin.open_seekable() as stream, zipfile.ZipFile(stream) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ReadError(f"{origin.name}: is damaged or cut short ({error}). Copy or download it again.") from error
    return [one for one in names if not one.startswith("__MACOSX/") and not Path(one).name.startswith(".")]


def _archive_format(names: list[str]) -> str | None:
    """The format that is itself a zip archive of these files."""
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


# Format ------------------------------------------------------------------------------------------------------


SIGNATURES = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow stream",
    b"\x93NUMPY": "npy",
    b"MATLAB 5.0 MAT-file": "mat",
    b"MATLAB 7.3 MAT-file": "mat 7.3",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"FEA1": "feather 1",
    b"\xd0\xcf\x11\xe0": "xls",
    b"SQLite format 3\x00": "sqlite",
    b"%PDF-": "pdf",
    **{b"\x80" + bytes([version]): "pickle" for version in range(2, 6)},
}
REFUSED = {
    "mat 7.3": "is a MATLAB 7.3 (HDF5) file. Save it again in MATLAB with save(..., '-v7').",
    "hdf5": "is an HDF5 file, which is not read here. Write the table as Parquet or CSV.",
    "feather 1": "is a Feather file of version 1. Write it again as Feather 2 (Arrow) or Parquet.",
    "xls": "is an Excel file of the old .xls kind (or a protected one). Save it as .xlsx or CSV.",
    "pdf": "is a PDF document, not a table. Export the table as CSV or Excel.",
    "pickle": "is a Python pickle, refused because reading one can run any code. Write Parquet.",
    "sqlite": "is an SQLite database. Read it by its address sqlite:///{name} and a query.",
    "html": "is a web page, not a table; the download may have ended at a login page. Download it again.",
}
NAMED = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json", ".geojson"), "json"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **{f".{kind}": kind for kind in ("npz", "npy", "mat")},
}
TEXT_FORMATS = ("csv", "json")


def format_of(origin: Origin) -> tuple[str, list[str]]:
    """The format, and a note when it is not the one that the name promises."""
    if origin.path is not None and origin.path.is_dir():
        return "folder", []
    found = _by_content(origin)
    if found in REFUSED:
        raise ReadError(f"{origin.name}: {REFUSED[found].format(name=origin.name)}")
    named = NAMED.get(origin.suffix)
    if found == named or (found in TEXT_FORMATS and named in TEXT_FORMATS):
        return found, []
    if found in TEXT_FORMATS and named is not None:
        raise _misnamed(origin, named)
    return found, [f"format: {found}, told by its content"]


def _by_content(origin: Origin) -> str:
    head = origin.head(4096)
    if not head:
        raise NoRowsError(f"{origin.name}: is empty (0 bytes).")
    if head.startswith(ZIP):  # of which `find_origin` left these
        if (kind := _archive_format(_zip_names(origin))) is None:
            raise ReadError(f"{origin.name}: is a zip archive. Unpack it first.")
        return kind
    if (kind := next((kind for mark, kind in SIGNATURES.items() if head.startswith(mark)), None)) is not None:
        return kind
    if NAMED.get(origin.suffix) == "mat":  # MATLAB 4 files begin with no mark
        return "mat"
    return _text_format(origin)


def _text_format(origin: Origin) -> str:
    named = NAMED.get(origin.suffix)
    try:
        raw = origin.head(4096)
        text = decode_start(raw, encoding_of(raw, origin.name)[0], origin.name).lstrip()
    except ReadError as error:
        raise error if named in (None, *TEXT_FORMATS) else _misnamed(origin, str(named)) from error
    if text[:15].lower().startswith(("<!doctype html", "<html")):
        return "html"
    if named in TEXT_FORMATS:
        return str(named)
    return "json" if text.startswith("{") or (text[:1] == "[" and text[1:].lstrip()[:1] == "{") else "csv"


def _misnamed(origin: Origin, named: str) -> ReadError:
    return ReadError(
        f"{origin.name}: is named like a {named} file but does not begin like one; it may be damaged, "
        "cut short or of another format. Copy it again, or rename it to what it is."
    )


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
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
CONTROL_SHARE = 0.01  # random bytes hold about ten times as many
WESTERN = "Windows-1252 (it is not UTF-8; if letters look wrong, say which encoding it has)"


def encoding_of(raw: bytes, name: str) -> tuple[str, str]:
    """The codec of the text that begins with `raw`, and its name for people; an error when it is not text."""
    for mark, named in MARKS.items():
        if raw.startswith(mark):
            return named
    if (wide := _wide_without_mark(raw)) is not None:
        return wide, "UTF-16 without a byte order mark"
    if b"\x00" in raw or len(CONTROL.findall(raw)) > CONTROL_SHARE * len(raw):
        raise ReadError(f"{name}: holds binary data, not text: no table was found in it. Check what the file is.")
    if _decodes(raw, "utf-8"):
        return "utf-8", "UTF-8"
    _refuse_slips(raw, name)
    if (guess := _detected(raw)) is not None:
        return guess, f"{guess} (a guess; --encoding names another)"
    return ("cp1252", WESTERN) if _decodes(raw, "cp1252") else ("latin-1", "Latin-1 (it is not UTF-8)")


def _refuse_slips(raw: bytes, name: str) -> None:
    """An error where the text is UTF-8 but for a few bytes: in another encoding most letters would be wrong."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw)
    slips = text.count("\ufffd")
    if sum(not letter.isascii() for letter in text) > 2 * slips:
        line = text.partition("\ufffd")[0].count("\n") + 1
        raise ReadError(
            f"{name}, line {line}: holds bytes that are not UTF-8, which the rest of the text is. Correct the line, or "
            "name the encoding."
        )


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


def _decodes(raw: bytes, encoding: str) -> bool:
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder(encoding)("strict").decode(raw)
        return True
    return False


def _wide_without_mark(raw: bytes) -> str | None:
    """Western text in UTF-16 has a zero in nearly every second byte and none between."""
    half = len(raw) // 2
    even, odd = raw[0::2].count(0), raw[1::2].count(0)
    if half < 4 or max(even, odd) < 0.7 * half or min(even, odd) > 0:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"
