"""Where the bytes of a table come from: a file, a folder or standard input."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from addml.wording import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

STREAMS = {
    "/dev/stdout": 1,
    "/dev/fd/1": 1,
    "/dev/stderr": 2,
    "/dev/fd/2": 2,
}  # which may lead to a file
STANDARD_INPUT = "-"
COMPRESSION_MARKS = {
    b"\x1f\x8b\x08": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    **{b"BZh%d1AY&SY" % level: "bz2" for level in range(1, 10)},
}
COMPRESSION_NAMES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


class ReadError(ValueError):
    """A source that cannot be read as a table; the message names it, the place and the remedy."""


@dataclass(frozen=True)
class Origin:
    """A named stream of bytes that can be opened again and again."""

    name: str
    path: Path | None = None
    content: bytes | None = None
    compression: str | None = None

    def open(self) -> pa.NativeFile:
        """The bytes from the start, decompressed while reading."""
        import pyarrow as pa

        stream = self._raw()
        return stream if self.compression is None else pa.CompressedInputStream(stream, self.compression)

    def open_seekable(self) -> pa.NativeFile:
        """As `open`, for formats read from their end; what is compressed is first unpacked in memory."""
        import pyarrow as pa

        return self._raw() if self.compression is None else pa.BufferReader(self._unpacked())

    def open_python(self) -> BinaryIO:
        """As `open_seekable`, as a Python file."""
        if self.path is not None and self.compression is None:
            return open(self.path, "rb")
        return io.BytesIO(self._unpacked())

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
        path = Path(self.name.lower())
        return Path(path.stem).suffix if path.suffix in COMPRESSION_NAMES else path.suffix

    def _raw(self) -> pa.NativeFile:
        import pyarrow as pa

        return pa.BufferReader(self.content) if self.path is None else pa.OSFile(os.fsencode(self.path), "rb")

    def _unpacked(self) -> bytes:
        with self.open() as stream:
            return bytes(stream.read())


def find_origin(source: str | os.PathLike[str]) -> Origin:
    """The file, folder or standard input that `source` names."""
    name = os.fspath(source)
    if name == STANDARD_INPUT:
        return _in_memory("standard input", sys.stdin.buffer.read())
    if not name:  # which Path takes for the present folder
        raise ReadError("an empty path names no table; give that of a file or a folder, '.' for the present one.")
    path = Path(os.path.expanduser(name))
    if not path.exists():
        raise no_such_file(path)
    if path.is_dir():
        return Origin(name, path)
    try:
        if is_special(path):
            return _in_memory(name, path.read_bytes())
        with path.open("rb") as stream:
            return Origin(name, path, compression=compression_of(stream.read(16)))
    except OSError as error:
        raise ReadError(f"{name}: cannot be opened: {error.strerror}.") from error


def is_special(path: Path) -> bool:
    """A device, a pipe or a standard stream, which is read only once, and written to, never replaced."""
    return str(path) in STREAMS or (path.exists() and not path.is_file() and not path.is_dir())


def no_such_file(path: Path) -> ReadError:
    """The error for a path that does not exist, with the nearest names beside it."""
    folder = path.parent
    if not folder.is_dir():
        return ReadError(f"{path}: no such file: the folder {folder} does not exist.")
    hint = did_you_mean(path.name, sorted(entry.name for entry in folder.iterdir()))
    return ReadError(f"{path}: no such file.{hint}")


def compression_of(head: bytes) -> str | None:
    """The compression that the first bytes of a file tell."""
    return next((kind for mark, kind in COMPRESSION_MARKS.items() if head.startswith(mark)), None)


def missing_extra(what: str, extra: str) -> ReadError:
    """The error for a format whose library is not installed."""
    return ReadError(f"{what} needs a part that is not installed: pip install 'addml[{extra}]'.")


def _in_memory(name: str, content: bytes) -> Origin:
    return Origin(name, content=content, compression=compression_of(content[:16]))
