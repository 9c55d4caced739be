"""A model on disk: a folder with a JSON document and a safetensors file; neither can run code.

`write` first writes weights-HASH.safetensors, then replaces model.json, which names it. A crash leaves the old model or
the new one. Checksums detect damage. `load` scores a few rows, to refuse a model whose parts do not fit together.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from addml.decisions.decision import Decision, TrainingScores
from addml.distances import DISTANCES
from addml.encoders import WrongModuleError
from addml.encoders import from_plain as network_from_plain
from addml.encoders.module import ModuleNetwork
from addml.inputs import MemoryRows, vectorizer_from_json
from addml.inputs.series import Sampling
from addml.model import Examples, Model
from addml.parameters import check_one_of
from addml.preprocessing.groups import Groups
from addml.preprocessing.profile import ColumnProfile
from addml.preprocessing.scaling import Features
from addml.scoring import scorer_from_plain

FORMAT = 7  # addml 0.1 wrote up to 5
DTYPES = ("float32", "float64", "int64", "uint8")
TRIAL_ROWS = 4  # of each kind; of up to 1,024 references, one of the last four is embedded
HASH = re.compile(r"[0-9a-f]{64}")


class ModelFileError(ValueError):
    """A model folder that cannot be used; the message names the file, the problem and the remedy."""


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Save a model in the folder `path`, whole or not at all."""
    if not os.fspath(path):
        raise ValueError(f"path={path!r} is empty; give the folder to write")
    write(path, _document_of(model), _arrays_of(model))


def load(path: str | os.PathLike[str], encoder: Any = None) -> Model:
    """Read a model that `save` wrote. Pass `encoder` if it was fitted with your own module, which no file holds."""
    document, arrays = read(path)
    if "checkpoint" in document:
        raise ModelFileError(f"{path} is the checkpoint of an unfinished fit; run the fit again to resume")
    try:
        model = _model_of(document, arrays, encoder)
        _check(model, arrays)
        _score_trial_rows(model)
    except WrongModuleError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except ImportError:
        raise
    except Exception as error:
        raise ModelFileError(f"{path} is not a valid model ({error!r}); fit and save it again") from None
    return model


def digest(path: str | os.PathLike[str]) -> str:
    """The hash of model.json, which contains the hash of the weights: it identifies the whole model."""
    return hashlib.sha256((Path(path) / "model.json").read_bytes()).hexdigest()


def _document_of(model: Model) -> dict[str, Any]:
    answers = {"answers": model.encoder.answers().tolist()} if isinstance(model.encoder, ModuleNetwork) else {}
    return {
        "addml": model.version,
        "settings": model.settings,
        "vectorizer": model.vectorizer.to_json(),
        "encoder": model.encoder.to_plain() | answers,
        "distance": model.distance,
        "scorer": {"name": model.scorer.name, **model.scorer.settings()},
        "decision": asdict(model.decision),
        "training": {"compressed": model.training.compressed, "separation": model.training.separation},
        "history": [record_to_json(record) for record in model.history],
        "profiles": [profile.to_json() for profile in model.profiles],
        "sampling": None if model.sampling is None else asdict(model.sampling),
        "ids": list(model.ids),
    }


def _arrays_of(model: Model) -> dict[str, np.ndarray]:
    parts = {"features": model.vectorizer.features, "scale": model.scale, "examples": model.examples}
    arrays = {f"{part}.{f.name}": getattr(value, f.name) for part, value in parts.items() for f in fields(value)}
    groups = {} if model.vectorizer.groups is None else model.vectorizer.groups.arrays()
    return arrays | {
        **{f"groups.{name}": array for name, array in groups.items()},
        "encoder.weights": model.encoder.weights,
        **{f"scorer.{name}": array for name, array in model.scorer_arrays.items()},
        "center": model.center,
        "training_scores": model.training.values,
        "calibrating": np.packbits(model.training.calibrating),
        "kept": model.kept,
        "held_out": np.packbits(model.held_out, axis=1),
        "baseline": model.baseline,
    }


def _model_of(document: dict[str, Any], arrays: dict[str, np.ndarray], encoder: Any) -> Model:
    scorer, scores = scorer_from_plain(document["scorer"]), arrays["training_scores"]
    check_one_of("distance", document["distance"], DISTANCES)
    (rows,) = scores.shape
    plain, photographs = document["vectorizer"], document["encoder"]["name"] == "pretrained"
    vectorizer = vectorizer_from_json(plain, Features(**_arrays_in("features", arrays)), photographs=photographs)
    groups = (plain["columns"] or {}).get("groups") or plain.get("entities")
    if groups is not None:
        vectorizer = vectorizer.with_groups(Groups.from_json(groups, _arrays_in("groups", arrays)))
    return Model(
        vectorizer=vectorizer,
        encoder=network_from_plain(document["encoder"], arrays["encoder.weights"], encoder),
        distance=document["distance"],
        scorer=scorer,
        scorer_arrays=_arrays_in("scorer", arrays),
        scale=scorer.scale(**_arrays_in("scale", arrays)),
        center=arrays["center"],
        training=TrainingScores.from_json(document["training"], scores, arrays["calibrating"]),
        decision=Decision.from_json(document["decision"]),
        history=[record_from_json(record) for record in document["history"]],
        kept=arrays["kept"],
        held_out=np.unpackbits(arrays["held_out"], axis=1, count=rows).astype(bool),
        baseline=arrays["baseline"],
        examples=Examples(**_arrays_in("examples", arrays)),
        profiles=tuple(map(ColumnProfile.from_json, document["profiles"])),
        sampling=None if document["sampling"] is None else Sampling(**document["sampling"]),
        ids=tuple(map(str, document["ids"])),
        settings={**document["settings"]},
        version=str(document["addml"]),
    )


def _arrays_in(part: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    prefix = f"{part}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def record_to_json(record: dict[str, Any]) -> dict[str, Any]:
    """An epoch of the history as JSON: NaN and infinity become null."""
    plain = {name: value if np.isfinite(value) else None for name, value in record.items() if name != "members"}
    return plain | ({"members": list(map(record_to_json, record["members"]))} if "members" in record else {})


def record_from_json(plain: dict[str, Any]) -> dict[str, Any]:
    record = {name: np.nan if value is None else value for name, value in plain.items() if name != "members"}
    if not all(type(value) is float or (type(value) is int and abs(value) < 2**63) for value in record.values()):
        raise ValueError(f"epoch {plain} of the history is not made of numbers")
    return record | ({"members": list(map(record_from_json, plain["members"]))} if "members" in plain else {})


def _score_trial_rows(model: Model) -> None:
    """Score a row without values and a few training rows: parts that do not fit together raise an error."""
    features, groups, codes = model.features, model.vectorizer.groups, None
    empty = features.transform(np.full((1, len(features.median)), np.nan))
    examples, references = model.examples.features, model.scorer_arrays.get("rows", empty)
    rows = np.concatenate([empty, model.baseline[None], examples[-TRIAL_ROWS:], references[-TRIAL_ROWS:]])
    rows = rows[: model.block("cpu")]  # a single photograph, because a large one takes seconds
    if groups is not None and groups.own.any():  # of all groups' references, a short array would lack the last
        codes = np.append(np.full(len(rows), -1), np.flatnonzero(groups.own)[-1])
        rows = np.concatenate([rows, groups.own_rows[-1:]])
    with np.errstate(all="ignore"):
        model.scores(MemoryRows(rows, codes), "cpu", 1)


def _check(model: Model, arrays: dict[str, np.ndarray]) -> None:
    """Check what trial rows may miss: the names of arrays, and that divisors are positive. A column weight may be 0."""
    unexpected = sorted(set(arrays) - set(_arrays_of(model)))
    if unexpected:
        raise ValueError(f"the arrays {unexpected} are unexpected")
    features, weight = model.features, model.scorer_arrays.get("column_weight", np.ones(1))
    divisors = [features.scale, features.bent_scale, weight[weight != 0]]
    divisors += [getattr(model.scale, name) for name in ("unit", "deviation", "floor") if hasattr(model.scale, name)]
    if min(array.min(initial=1) for array in divisors) <= 0 or features.knee[0] < 0:
        raise ValueError("a deviation or a weight is out of range")


def write(path: str | os.PathLike[str], meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a document and arrays into the folder `path`, whole or not at all."""
    from safetensors.numpy import save as to_bytes

    from addml.io.write import write_whole

    folder = Path(os.path.expanduser(path))
    if folder.exists() and not folder.is_dir():
        raise ModelFileError(f"{folder} is a file; a model is saved as a folder: give another path")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    content = to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    document = {"format": FORMAT, **meta, "weights": digest}
    text = json.dumps({**document, "checksum": _checksum(document)}, indent=1, allow_nan=False)
    old, weights = list(folder.glob("weights-*.safetensors")), folder / f"weights-{digest}.safetensors"
    try:
        write_whole(weights, content)
        write_whole(folder / "model.json", text.encode())
    except BaseException:
        if digest != _named_weights(folder):
            weights.unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # another process may have put something into it
                folder.rmdir()
        raise
    current = _named_weights(folder)  # perhaps those that another process has just written, which must stay
    for file in old:
        if HASH.fullmatch(file.stem[8:]) and file.stem[8:] not in (digest, current):
            file.unlink(missing_ok=True)
    if current == digest and not weights.exists():  # another save removed them between our two steps
        write_whole(weights, content)


def _named_weights(folder: Path) -> str | None:
    try:
        weights = json.loads((folder / "model.json").read_bytes())["weights"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return weights if isinstance(weights, str) and HASH.fullmatch(weights) else None


def read(path: str | os.PathLike[str], *, finite: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read and verify the document and the arrays of a folder. `finite` refuses NaN, infinity and other dtypes."""
    if not os.fspath(path):  # Path("") is the current folder
        raise ModelFileError(f"path={path!r} is empty; give the folder of a saved model")
    folder = Path(os.path.expanduser(path))
    for attempt in (1, 2):
        document = _document(folder / "model.json")
        weights = folder / f"weights-{document['weights']}.safetensors"
        try:
            content = weights.read_bytes()
            break
        except (FileNotFoundError, IsADirectoryError):
            if attempt == 2:  # the first time, a save may have finished between the two reads
                raise ModelFileError(f"{weights} is missing; copy the whole folder again, or fit again") from None
    if hashlib.sha256(content).hexdigest() != document["weights"]:
        raise ModelFileError(f"{weights} is damaged: its hash differs from the one in its name; copy it again")
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        arrays = from_bytes(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{weights} is not a safetensors file ({error}); copy it again") from None
    for name, array in arrays.items() if finite else ():
        if str(array.dtype) not in DTYPES:
            raise ModelFileError(f"{weights}: {name} is {array.dtype}, not {', '.join(DTYPES)}; fit and save it again")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(f"{weights}: {name} contains NaN or infinity; fit the model again")
    return document, arrays


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ModelFileError(f"{file} is not a file: {file.parent} is not a saved model") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} is truncated or not JSON ({error}); copy it again") from None
    if not isinstance(document, dict) or type(document.get("format")) is not int or document["format"] < 1:
        raise ModelFileError(f"{file} does not describe an ADDML model")
    if document["format"] != FORMAT:
        remedy = "update addml" if document["format"] > FORMAT else "fit again"
        raise ModelFileError(f"{file} has format {document['format']}, this version of addml reads {FORMAT}: {remedy}")
    try:
        unchanged = document.pop("checksum", None) == _checksum(document)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} contains an invalid value ({error}); copy it again") from None
    if not unchanged:
        raise ModelFileError(f"{file} was changed after it was saved (its checksum differs); save the model again")
    if not HASH.fullmatch(str(document.get("weights"))):
        raise ModelFileError(f"{file} does not name its weights; copy it again")
    return document


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, allow_nan=False).encode()).hexdigest()
