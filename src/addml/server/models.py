"""The models that a server offers, each loaded once and again when it changes on disk."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addml.errors import AddmlError
from addml.findings import Usual
from addml.pipeline.batches import scoring_place
from addml.pipeline.options import TABLE, Options
from addml.pipeline.run import info, load_model
from addml.preprocessing.profile import ColumnProfile
from addml.server import RefusedError
from addml.text import did_you_mean

if TYPE_CHECKING:
    from addml.model import Model


def model_hash(folder: Path) -> str:
    """What tells a saved model from another: model.json names the hashes of all else."""
    return hashlib.sha256((folder / "model.json").read_bytes()).hexdigest()[:16]


def _changed(folder: Path) -> tuple[int, ...]:
    """When the model was last written; empty where there is none any more."""
    try:
        return folder.stat().st_mtime_ns, (folder / "model.json").stat().st_mtime_ns
    except OSError:
        return ()


@dataclass(frozen=True)
class ServedModel:
    """One model: its name, where it lies, what it is, and the detector, unless it is about images or series."""

    name: str
    folder: Path
    about: dict[str, Any]
    model: Model | None
    device: str = "cpu"
    hash: str = ""
    changed: tuple[int, ...] = ()

    def refusal(self) -> RefusedError:
        """What is said to whoever brings rows to a model that takes none."""
        return RefusedError(f"{self.name} is about {self.about['noun']}s; upload files: POST /api/v1/jobs")

    def short(self) -> dict[str, Any]:
        """What a list says of it."""
        about = self.about
        kept = {key: about[key] for key in ("noun", "trained_rows", "threshold", "decided_by")}
        return {"name": self.name, "hash": self.hash, **kept, "columns": len(about["columns"])}

    def whole(self) -> dict[str, Any]:
        """All that is known of it, but for where it lies."""
        columns = () if self.model is None else self.model.profiles
        usual = [asdict(Usual.of(one)) | {"value": _ordinary(one)} for one in columns]
        return {**self.about, "name": self.name, "model": self.name, "hash": self.hash, "usual": usual}


def _ordinary(column: ColumnProfile) -> Any:
    """A value that is nothing special: the middle one, the most common one, a day between the first and the last."""
    if column.earliest is not None and column.latest is not None:
        return str(column.earliest + (column.latest - column.earliest) / 2)[:10]
    if column.kind == "number":
        return column.middle
    return max(column.levels, key=lambda one: column.levels[one], default=None)


class Models:
    """Models by their names; one that is written anew is loaded anew."""

    def __init__(self, device: str) -> None:
        self.device, self._models, self._lock = device, dict[str, ServedModel](), threading.Lock()

    @classmethod
    def load(cls, folders: Sequence[str], device: str) -> Models:
        """The models in these folders, named after them."""
        models = cls(device)
        for folder in folders:
            path = Path(os.path.expanduser(folder)).resolve()  # jobs run in other folders
            name = path.name.removesuffix(".model")
            if name in models._models:
                raise AddmlError(
                    f"{folder}: {models._models[name].folder} is called {name} too; rename one of the two folders."
                )
            models.add(name, path)
        return models

    def add(self, name: str, folder: Path) -> ServedModel:
        """Load a model and serve it under a name, with a number behind it where that is taken."""
        model = self._loaded(name, folder)
        with self._lock:
            number, free = 1, name
            while free in self._models:
                number += 1
                free = f"{name}-{number}"
            self._models[free] = replace(model, name=free)
            return self._models[free]

    def _loaded(self, name: str, folder: Path) -> ServedModel:
        """A model, all of it from one save."""
        for _ in range(10):
            changed, about = _changed(folder), info(str(folder))
            options = Options(device=self.device, model=str(folder))
            own = load_model(options, TABLE) if about["noun"] == "row" else None
            device = "cpu" if own is None else scoring_place(options, own)[0]
            model = ServedModel(name, folder, about, own, device, model_hash(folder), changed)
            if changed == _changed(folder):
                return model
        raise AddmlError(f"{folder}: keeps changing; serve it once it has been written")

    def fresh(self, name: str) -> ServedModel:
        """The model as it is on disk now, unless that cannot be loaded: then the last one that could."""
        model = self[name]
        if (changed := _changed(model.folder)) in ((), model.changed):
            return model
        with self._lock:
            model = self[name]
            if changed == model.changed:
                return model
            try:
                model = self._loaded(name, model.folder)
            except (ValueError, OSError) as error:
                logging.getLogger("addml").error("%s stays as it was: %s", name, error)
                model = replace(model, changed=changed)
            self._models[name] = model
        return model

    def remove(self, name: str) -> None:
        self._models.pop(name, None)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(list(self._models.values()))

    def __getitem__(self, name: str) -> ServedModel:
        try:
            return self._models[name]
        except KeyError:
            hint = did_you_mean(name, self._models)
            raise RefusedError(f"there is no model {name!r} here.{hint}", 404) from None
