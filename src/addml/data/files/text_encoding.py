"""Which encoding a text has, and whether it is text at all."""

from __future__ import annotations

import codecs
import re

from addml.data.files.origin import Origin, ReadError

MARKS = {
    codecs.BOM_UTF8: ("utf-8-sig", "UTF-8 with a byte order mark"),
    codecs.BOM_UTF32_LE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF32_BE: ("utf-32", "UTF-32"),
    codecs.BOM_UTF16_LE: ("utf-16", "UTF-16"),
    codecs.BOM_UTF16_BE: ("utf-16", "UTF-16"),
}
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
CONTROL_SHARE = 0.01  # random bytes hold about ten times as many
WESTERN = "Windows-1252 (it is not UTF-8; if letters look wrong, say which encoding it has)"


def encoding_of(raw: bytes, name: str) -> tuple[str, str]:
    """The codec of the text that begins with `raw`, and its name for people; an error when it is not text."""
    for mark, found in MARKS.items():
        if raw.startswith(mark):
            return found
    if (wide := _wide_without_mark(raw)) is not None:
        return wide, "UTF-16 without a byte order mark"
    if b"\x00" in raw or len(CONTROL.findall(raw)) > CONTROL_SHARE * len(raw):
        raise ReadError(f"{name}: holds binary data, not text: no table was found in it. Check what the file is.")
    if _decodes(raw, "utf-8"):
        return "utf-8", "UTF-8"
    return (single := single_byte(raw)), WESTERN if single == "cp1252" else "Latin-1 (it is not UTF-8)"


def single_byte(raw: bytes) -> str:
    """Windows-1252 where its five unused bytes do not occur, else Latin-1, which takes any byte."""
    return "cp1252" if _decodes(raw, "cp1252") else "latin-1"


def decoded_head(origin: Origin, size: int) -> str:
    """The text of the first `size` bytes, in the encoding they seem to have."""
    raw = origin.head(size)
    return decode_start(raw, encoding_of(raw, origin.name)[0], origin.name)


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
    try:
        codecs.getincrementaldecoder(encoding)("strict").decode(raw)
    except UnicodeDecodeError:
        return False
    return True


def _wide_without_mark(raw: bytes) -> str | None:
    """Western text in UTF-16 has a zero in nearly every second byte and none between."""
    half = len(raw) // 2
    even, odd = raw[0::2].count(0), raw[1::2].count(0)
    if half < 4 or max(even, odd) < 0.7 * half or min(even, odd) > 0:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"
