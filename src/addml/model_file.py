"""A model as a folder: JSON for what can be read, safetensors for what is counted, nothing that can run.

`save` writes weights-HASH.safetensors first and replaces model.json, which names it, last: at every moment the
folder is the old model or the new one. `load` reads nothing else and believes nothing unchecked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np

FORMAT = 5  # up to 4 other names of arrays; up to 3 another default score
DTYPES = ("float32", "float64", "int64", "uint8")
HASH = re.compile(r"[0-9a-f]{64}")


class ModelFileError(ValueError):
    """A model folder that cannot be used; the message says which file, what is wrong and what to do."""


def save(path: str | os.PathLike[str], meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a model into the folder `path`, whole or not at all."""
    from safetensors.numpy import save as to_bytes

    folder = Path(os.path.expanduser(path))
    if folder.exists() and not folder.is_dir():
        raise ModelFileError(f"{folder} is a file; a model is saved as a folder: give another path")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = to_bytes(arrays)
    digest = hashlib.sha256(content).hexdigest()
    shapes = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
    document = {"format": FORMAT, **meta, "arrays": shapes, "weights": digest}
    text = json.dumps({**document, "checksum": _checksum(document)}, indent=1, allow_nan=False)
    old, weights = list(folder.glob("weights-*.safetensors")), folder / f"weights-{digest}.safetensors"
    try:
        _replace(weights, content)
        _replace(folder / "model.json", text.encode())
    except BaseException:
        _undo(weights, known=weights in old, folder_too=is_new)
        raise
    named = _named_weights(folder)  # by another process's save, perhaps, whose weights must stay
    for file in old:
        if HASH.fullmatch(file.stem[8:]) and file.stem[8:] not in (digest, named):
            file.unlink(missing_ok=True)
    if named == digest and not weights.exists():  # removed by another save between our two steps
        _replace(weights, content)


def _undo(weights: Path, *, known: bool, folder_too: bool) -> None:
    """Remove what a save that failed has written, unless a model names it."""
    if not known and weights.stem[8:] != _named_weights(weights.parent):
        weights.unlink(missing_ok=True)
    if folder_too:
        with suppress(OSError):  # another process may have put something into it
            weights.parent.rmdir()


def _named_weights(folder: Path) -> str | None:
    """The hash that model.json names, where there is one that can be read."""
    try:
        named = json.loads((folder / "model.json").read_bytes())["weights"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return named if isinstance(named, str) and HASH.fullmatch(named) else None


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model folder: its JSON document and its arrays, all checked."""
    if not os.fspath(path):  # which Path takes for the present folder
        raise ModelFileError(f"path={path!r} names no folder; give the folder of a saved model")
    folder = Path(os.path.expanduser(path))
    for attempt in (1, 2):
        document = _document(folder / "model.json")
        weights = folder / f"weights-{document['weights']}.safetensors"
        try:
            content = weights.read_bytes()
            break
        except IsADirectoryError:
            raise ModelFileError(f"{weights} is a folder; copy the whole model again, or fit anew") from None
        except FileNotFoundError:
            if attempt == 2:  # once may be a save that finished between the two reads
                raise ModelFileError(f"{weights} is missing; copy the whole folder again, or fit anew") from None
    if hashlib.sha256(content).hexdigest() != document["weights"]:
        raise ModelFileError(f"{weights} is damaged or was changed: its hash is not the one in its name; copy it again")
    return document, _checked_arrays(weights, content, document["arrays"])


@contextmanager
def told(path: str | os.PathLike[str], document: dict[str, Any]) -> Iterator[None]:
    """Where a document of the folder `path` tells of no model, or of none that fits together, that is an error."""
    if "checkpoint" in document:
        raise ModelFileError(f"{path} is the checkpoint of a training that is not over: run it again, and it goes on")
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelFileError(f"{path}: model.json does not describe a detector ({error!r}); save it again") from None


def expect(name: str, array: np.ndarray, dtype: type[np.generic], shape: tuple[int | EllipsisType | None, ...]) -> None:
    """An array of a loaded model must have this dtype and shape; None is any length of at least one, ... any at all."""
    fits = len(array.shape) == len(shape) and all(
        have == want or want is ... or (want is None and have > 0)
        for have, want in zip(array.shape, shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        wanted = ", ".join(str(length) if isinstance(length, int) else "n" for length in shape)
        raise ModelFileError(
            f"{name} is {array.dtype} {array.shape}, not {np.dtype(dtype)} ({wanted}) as the layers ask for; "
            "fit and save the model again"
        )


def _document(file: Path) -> dict[str, Any]:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(f"{file} does not exist: {file.parent} is not a saved model") from None
    except NotADirectoryError:
        raise ModelFileError(f"{file.parent} is a file; give the folder of a saved model") from None
    except IsADirectoryError:
        raise ModelFileError(f"{file} is a folder: {file.parent} is not a saved model") from None
    try:
        document = json.loads(text, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} is cut off or not JSON ({error}); copy it again") from None
    if not isinstance(document, dict) or type(document.get("format")) is not int or document["format"] < 1:
        raise ModelFileError(f"{file} is not the description of an ADDML model")
    if document["format"] > FORMAT:
        raise ModelFileError(
            f"{file} has format {document['format']}, this version of addml reads up to {FORMAT}: update addml"
        )
    checksum = document.pop("checksum", None)
    try:
        unchanged = checksum == _checksum(document)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} holds what no saved model does ({error}); copy it again") from None
    if not unchanged:
        raise ModelFileError(f"{file} was changed after it was saved (its checksum differs); save the model again")
    if not HASH.fullmatch(str(document.get("weights"))) or not isinstance(document.get("arrays"), dict):
        raise ModelFileError(f"{file} does not name its weights; copy it again")
    return document


def _checked_arrays(file: Path, content: bytes, expected: dict[str, Any]) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        arrays = from_bytes(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{file} is not a safetensors file ({error}); copy it again") from None
    if set(arrays) != set(expected):
        raise ModelFileError(
            f"{file} holds {sorted(arrays)}, not {sorted(expected)} as model.json says; copy both again"
        )
    for name, array in arrays.items():
        if str(array.dtype) not in DTYPES:
            raise ModelFileError(f"{file}: {name} is {array.dtype}, which no model holds; fit and save the model again")
        if [str(array.dtype), list(array.shape)] != expected[name]:
            raise ModelFileError(
                f"{file}: {name} is {array.dtype} {array.shape}, not {expected[name]} as model.json says; copy again"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(f"{file}: {name} holds values that are not finite; fit the model anew")
    return arrays


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _no_constants(word: str) -> Any:
    raise ValueError(f"{word} is not allowed")


def _replace(file: Path, content: bytes) -> None:
    """Write a file under a temporary name and move it into place, on disk before it is seen."""
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk names no file
            reason = f"{error.strerror}; free some space, or name another folder"
            raise OSError(error.errno, reason, str(file.parent)) from None
        raise
