"""Checkpoints: the state of training after each epoch, in a folder that one run locks, so that a killed run can resume.

The state is stored like a model: JSON and safetensors, written atomically, no pickle. A checkpoint is valid for one set
of settings and one table; with any other it is refused and left unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from addml import __version__, model_file, parameters
from addml.arrays import Array, to_numpy
from addml.compute import on_device
from addml.inputs.disk import changes
from addml.learning.group import ALONE, Group
from addml.learning.state import Member, TrainingState

ON_DEVICE = ("weights", "first", "second", "healthy", "best")
IN_MEMORY = ("steps", "active", "best_loss", "best_epoch", "patience_left", "collapsed", "untrained_spread")
FILES = ("model.json", "weights-*.safetensors", ".addml-*.part", "lock")


@dataclass(frozen=True)
class Storage:
    """How much memory a fit may use, and the folders for temporary files and for the checkpoint."""

    checkpoint: str | os.PathLike[str] | None = None
    scratch: str | os.PathLike[str] | None = None
    memory: int | str = "2GiB"

    def __post_init__(self) -> None:
        for name, folder in (("checkpoint", self.checkpoint), ("scratch", self.scratch)):
            if folder is not None and not os.fspath(folder):
                raise ValueError(f"{name}={folder!r} is empty; give a folder, or leave it out")
        parameters.size("memory", self.memory)

    @property
    def folder(self) -> Path:
        """The folder for temporary files. Default: beside the checkpoint, else the system's folder."""
        beside = None if self.checkpoint is None else Path(os.path.expanduser(self.checkpoint)).absolute().parent
        folder = Path(os.path.expanduser(self.scratch or beside or tempfile.gettempdir()))
        if not folder.is_dir():
            raise ValueError(f"scratch={str(folder)!r} is not a folder; create it, or give another")
        return folder


class CheckpointError(ValueError):
    """A checkpoint that training cannot resume from; the message gives the reason and the remedy."""


class Checkpoint:
    """The checkpoint of one training run; does nothing without a folder."""

    def __init__(self, folder: Path | None, settings: dict[str, Any], group: Group = ALONE) -> None:
        self.folder, self.group = folder, group
        self._owner: dict[str, Any] = {"addml": __version__, "settings": settings}
        self._loaded: tuple[dict[str, Any], dict[str, np.ndarray]] | None = None

    def claim(self, data: Callable[[], dict[str, Any]]) -> None:
        """Load an earlier checkpoint, if any; it must have the same settings and the same `data`."""
        if self.folder is None:
            return
        self._owner["data"] = data()
        exists = (self.folder / "model.json").exists()
        if self.group.counts([exists])[0] not in (0, self.group.size):
            raise CheckpointError(f"{self.folder}: is not the same folder on all machines; give a shared one")
        if not exists:
            return
        try:
            document, arrays = model_file.read(self.folder, finite=False)
            saved = document["checkpoint"]
            problem = _difference(saved["owner"], self._owner)
            saved["history"] = [model_file.record_from_json(record) for record in saved["history"]]
            self._loaded = saved, {name: arrays[name] for name in (*ON_DEVICE, *IN_MEMORY, "kept")}
        except (KeyError, TypeError, ValueError) as error:
            problem = f"is not a complete checkpoint ({error}); copy it again"
        if problem:
            raise CheckpointError(f"{self.folder}: {problem}, or remove the folder to start again")

    def restored(self, state: TrainingState, members: Sequence[Member], device: str) -> TrainingState:
        """The saved state, or `state` if there is none. Also restores the members' random generators."""
        if self._loaded is None:
            return state
        saved, arrays = self._loaded
        for member, random in zip(members, saved["randoms"][self.group.rank], strict=True):
            member.random.bit_generator.state = random
        return TrainingState(
            **{name: on_device(arrays[name], device) for name in ON_DEVICE},
            **{name: arrays[name] for name in IN_MEMORY},
            epoch=saved["epoch"],
            history=saved["history"],
            kept=list(arrays["kept"]),
        )

    def save(self, state: TrainingState, members: Sequence[Member]) -> None:
        """Save the state; the first process of a group does this for all of them."""
        if self.folder is None:
            return
        random = json.dumps([member.random.bit_generator.state for member in members])
        randoms = list(map(json.loads, self.group.gather(random.encode())))
        if self.group.rank:
            return
        checkpoint = {
            "owner": self._owner,
            "epoch": state.epoch,
            "history": [model_file.record_to_json(record) for record in state.history],
            "randoms": randoms,  # one list per process
        }
        arrays = {name: to_numpy(getattr(state, name)) for name in (*ON_DEVICE, *IN_MEMORY)}
        model_file.write(self.folder, {"checkpoint": checkpoint}, {**arrays, "kept": np.array(state.kept, np.uint8)})


@contextmanager
def open_checkpoint(
    folder: str | os.PathLike[str] | None, settings: dict[str, Any], group: Group = ALONE
) -> Iterator[Checkpoint]:
    """Lock the checkpoint in `folder` for this run, and remove it if the block ends without an error."""
    if folder is None:
        yield Checkpoint(None, settings, group)
        return
    if not isinstance(settings["random_state"], int):
        raise ValueError(f"random_state={settings['random_state']!r}: a checkpoint needs a whole number")
    path = Path(os.path.expanduser(folder))
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path}: is a file; a checkpoint is a folder: give another name")
    if group.rank:  # the first process locks and removes the folder
        yield Checkpoint(path, settings, group)
        return
    path.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        try:
            yield Checkpoint(path, settings, group)
        except BaseException:
            if not (path / "model.json").exists():
                _remove(path)
            raise
        _remove(path)


def _remove(folder: Path) -> None:
    for pattern in FILES:
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)
    with suppress(OSError):  # it contains other files
        folder.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "a+") as file:
        try:
            lock(file)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise CheckpointError(
                f"{folder}: another run is using it (process {owner}); wait for it, or give another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def lock(file: IO[Any]) -> None:
    """Lock a file until this process ends; OSError if another process holds it. Does nothing on Windows."""
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def fingerprint(rows: Array, labels: np.ndarray | None) -> dict[str, Any]:
    """The hashes that identify prepared rows and their labels."""
    return {"digest": _digest(rows), "labels": None if labels is None else _digest(labels)}


def _digest(rows: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(to_numpy(rows)).data, digest_size=16).hexdigest()


def _difference(saved: dict[str, Any], new: dict[str, Any]) -> str | None:
    """How the owner of a checkpoint differs from this run, with the remedy; None if it does not."""
    if saved["addml"] != new["addml"]:
        return f"was made by addml {saved['addml']}, this is {new['addml']}; use {saved['addml']}"
    settings = {*saved["settings"], *new["settings"]}
    for name in sorted(settings, key=lambda name: (name != "workers", name)):
        before, now = saved["settings"].get(name), new["settings"].get(name)
        if before != now:
            return f"was made with {name}={before!r}, now it is {now!r}; set it back"
    old_data, data = saved["data"], new["data"]
    for name, change in changes(old_data.get("files") or {}, data.get("files") or {}):
        return f"was made from other rows ({name} {change}); give the same table"
    names = [name for name in sorted({*old_data, *data}) if old_data.get(name) != data.get(name)]
    differences = ", ".join(f"{name} {old_data.get(name)}, now {data.get(name)}" for name in names)
    return f"was made from other rows ({differences}); give the same table" if names else None
