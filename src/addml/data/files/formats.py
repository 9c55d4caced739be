"""Which format a source has: told by its first bytes, else by its name."""

from __future__ import annotations

import zipfile

from addml.data.files.origin import Origin, ReadError
from addml.data.files.text_encoding import decoded_head

SIGNATURES = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow stream",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"MATLAB 5.0 MAT-file": "mat",
    b"MATLAB 7.3 MAT-file": "mat 7.3",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"FEA1": "feather 1",
    b"\xd0\xcf\x11\xe0": "xls",
    b"SQLite format 3\x00": "sqlite",
    b"%PDF-": "pdf",
    b"\xfd7zXZ\x00": "xz",
    **{b"\x80" + bytes([version]): "pickle" for version in range(2, 6)},
}
REFUSED = {
    "mat 7.3": "is a MATLAB 7.3 (HDF5) file. Save it again in MATLAB with save(..., '-v7').",
    "hdf5": "is an HDF5 file, which is not read here. Write the table as Parquet or CSV.",
    "feather 1": "is a Feather file of version 1. Write it again as Feather 2 (Arrow) or Parquet.",
    "xls": "is an Excel file of the old .xls kind (or a protected one). Save it as .xlsx or CSV.",
    "pdf": "is a PDF document, not a table. Export the table as CSV or Excel.",
    "xz": "is compressed with xz, which is not read here. Unpack it (xz -d) or use gzip or zstd.",
    "pickle": "is a Python pickle, refused because reading one can run any code. Write Parquet.",
    "sqlite": "is an SQLite database. Read it by its address sqlite:///{name} and a query.",
    "html": "is a web page, not a table; the download may have ended at a login page. Download it again.",
}
NAMED = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
    ".npy": "npy",
    ".mat": "mat",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".json": "json lines",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
}
TEXT_FORMATS = ("csv", "json lines", "json list")


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
        raise ReadError(_not_what_it_says(origin, named))
    return found, [f"format: {found}, told by its content"]


def _by_content(origin: Origin) -> str:
    head = origin.head(4096)
    if not head:
        raise ReadError(f"{origin.name}: is empty (0 bytes).")
    for mark, kind in SIGNATURES.items():
        if head.startswith(mark):
            return _inside_zip(origin) if kind == "zip" else kind
    if NAMED.get(origin.suffix) == "mat":  # MATLAB 4 files begin with no mark
        return "mat"
    return _text_format(origin)


def _inside_zip(origin: Origin) -> str:
    try:
        with origin.open_python() as stream, zipfile.ZipFile(stream) as archive:
            names = archive.namelist()
    except Exception as error:  # a damaged file may raise anything
        raise ReadError(f"{origin.name}: is damaged or cut short ({error}). Copy or download it again.") from error
    if any(name.startswith("xl/") for name in names):
        return "excel"
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    raise ReadError(f"{origin.name}: is a zip archive of {', '.join(names[:3]) or 'nothing'}. Unpack it first.")


def _text_format(origin: Origin) -> str:
    named = NAMED.get(origin.suffix)
    if named not in (None, *TEXT_FORMATS) and _is_binary(origin):
        raise ReadError(_not_what_it_says(origin, str(named)))
    text = decoded_head(origin, 4096).lstrip()
    if text[:15].lower().startswith(("<!doctype html", "<html")):
        return "html"
    if named == "csv":
        return "csv"
    if text.startswith("[") and (named == "json lines" or text[1:].lstrip().startswith("{")):
        return "json list"
    return "json lines" if named == "json lines" or text.startswith("{") else "csv"


def _is_binary(origin: Origin) -> bool:
    try:
        decoded_head(origin, 4096)
    except ReadError:
        return True
    return False


def _not_what_it_says(origin: Origin, named: str) -> str:
    return (
        f"{origin.name}: is named like a {named} file but does not begin like one; it may be damaged, "
        "cut short or of another format. Copy it again, or rename it to what it is."
    )
