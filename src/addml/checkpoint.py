"""Training that goes on after a kill: its state after every epoch, in a folder that one run at a time may use.

The state is written as a model is, as JSON and safetensors, whole or not at all, and never pickled. It belongs to one
set of settings and one table; with others it is refused and not touched.
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
from typing import Any

import numpy as np

from addml import __version__, model_file, parameters
from addml.arrays import Array, to_numpy
from addml.compute import on_device
from addml.inputs.disk import changes
from addml.learning.group import ALONE, Group
from addml.learning.state import Member, TrainingState
from addml.model_file import ModelFileError

ON_DEVICE = ("weights", "first", "second", "healthy", "best")
IN_MEMORY = ("steps", "active", "best_loss", "best_epoch", "patience_left", "collapsed", "untrained_spread")
BEGIN_ANEW = "or remove the folder to begin anew"
OURS = ("model.json", "weights-*.safetensors", ".model.json.*", ".weights-*.safetensors.*", "lock")


@dataclass(frozen=True)
class Storage:
    """How much memory a fit may take, where it keeps what does not fit, and where what it needs to resume."""

    checkpoint: str | os.PathLike[str] | None = None
    scratch: str | os.PathLike[str] | None = None
    memory: int | str = "2GiB"

    def __post_init__(self) -> None:
        for name in ("checkpoint", "scratch"):
            if getattr(self, name) is not None and not os.fspath(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)!r} names no folder; name one, or leave it out")
        parameters.size("memory", self.memory)

    @property
    def folder(self) -> Path:
        """Where files without a name are made: as said, else beside the checkpoint, else where temporary files are."""
        beside = None if self.checkpoint is None else Path(os.path.expanduser(self.checkpoint)).absolute().parent
        folder = Path(os.path.expanduser(self.scratch or beside or tempfile.gettempdir()))
        if not folder.is_dir():
            raise ValueError(f"scratch={str(folder)!r} is no folder; make it, or name another")
        return folder


class CheckpointError(ValueError):
    """A checkpoint that cannot be gone on from; the message says why and what to do."""


class Checkpoint:
    """A folder for the state of one training: what it belongs to, and how far it is."""

    def __init__(self, folder: Path, settings: dict[str, Any], group: Group = ALONE) -> None:
        self.folder, self.group = folder, group
        self._owner: dict[str, Any] = {"addml": __version__, "settings": settings}

    def claim(self, data: Callable[[], dict[str, Any]]) -> None:
        """Say what rows it is for: what was kept before must belong to these settings and these rows."""
        self._owner["data"] = data()
        if self.is_begun:
            with _whole(self.folder):
                self._found()

    def restored(self, state: TrainingState, members: Sequence[Member], device: str) -> TrainingState:
        """The state that was saved last, with the members' generators as they were then; else the one given."""
        if not self.is_begun:
            return state
        with _whole(self.folder):
            found, arrays = self._found()
            randoms = found["randoms"][self.group.rank]
            own = {
                name: np.frombuffer(arrays[name].tobytes(), np.dtype(dtype)).reshape(shape).copy()
                for name, (dtype, shape) in found["arrays"].items()
            }
            for member, random in zip(members, randoms, strict=True):
                member.random.bit_generator.state = random
            return TrainingState(
                **{name: on_device(own[name], device) for name in ON_DEVICE},
                **{name: own[name] for name in IN_MEMORY},
                epoch=found["epoch"],
                history=[model_file.record_from_json(record) for record in found["history"]],
                kept=list(own["kept"]) if "kept" in own else [],
            )

    @property
    def is_begun(self) -> bool:
        """Whether anything was kept."""
        begun = (self.folder / "model.json").exists()
        if self.group.counts([begun])[0] not in (0, self.group.size):
            raise CheckpointError(f"{self.folder}: is not the same folder on all machines; name a shared one")
        return begun

    def _found(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        document, arrays = model_file.read(self.folder)
        found = document["checkpoint"]
        self._check(found["owner"])
        return found, arrays

    def save(self, state: TrainingState, members: Sequence[Member]) -> None:
        """Write the state in place of the one before: the first process of a group does, for all of them."""
        own = json.dumps([member.random.bit_generator.state for member in members])
        randoms = list(map(json.loads, self.group.gather(own.encode())))
        if self.group.rank:
            return
        arrays = {name: to_numpy(getattr(state, name)) for name in (*ON_DEVICE, *IN_MEMORY)}
        if state.kept:
            arrays["kept"] = np.array(state.kept)
        checkpoint = {
            "owner": self._owner,
            "epoch": state.epoch,
            "history": [model_file.record_to_json(record) for record in state.history],
            "randoms": randoms,  # of every process
            "arrays": {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()},
        }
        as_bytes = {name: np.frombuffer(array.tobytes(), np.uint8) for name, array in arrays.items()}
        model_file.write(self.folder, {"checkpoint": checkpoint}, as_bytes)

    def remove(self) -> None:
        """Leave nothing behind, once the training is over."""
        for pattern in OURS:
            for file in self.folder.glob(pattern):
                file.unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's files are in it
            self.folder.rmdir()

    def _check(self, owner: dict[str, Any]) -> None:
        """It must belong to these settings and this table."""
        now = self._owner
        if owner["addml"] != now["addml"]:
            raise CheckpointError(
                f"{self.folder}: was made by addml {owner['addml']}, this is {now['addml']}; use that one, {BEGIN_ANEW}"
            )
        for name in sorted({*owner["settings"], *now["settings"]}, key=lambda name: (name != "workers", name)):
            before, after = (one["settings"].get(name) for one in (owner, now))
            if before != after:
                raise CheckpointError(
                    f"{self.folder}: was made with {name}={before!r}, now it is {after!r}; set it back, {BEGIN_ANEW}"
                )
        if owner["data"] != now["data"]:
            raise CheckpointError(
                f"{self.folder}: was made of other rows ({_difference(owner['data'], now['data'])}); "
                f"give the same table, {BEGIN_ANEW}"
            )


class NotKept:
    """A checkpoint that keeps nothing."""

    def claim(self, data: Callable[[], dict[str, Any]]) -> None:
        """Nothing."""

    def restored(self, state: TrainingState, members: Sequence[Member], device: str) -> TrainingState:
        return state

    def save(self, state: TrainingState, members: Sequence[Member]) -> None:
        """Nothing."""


@contextmanager
def open_checkpoint(
    folder: str | os.PathLike[str] | None, settings: dict[str, Any], group: Group = ALONE
) -> Iterator[Checkpoint | NotKept]:
    """The checkpoint in a folder, for this run alone, removed when the block ends well; without a folder, none."""
    if folder is None:
        yield NotKept()
        return
    if not isinstance(settings["random_state"], int):
        raise ValueError(
            f"random_state={settings['random_state']!r} with a checkpoint: give a whole number, or the run that "
            "resumes would not be the one that began"
        )
    path = Path(os.path.expanduser(folder))
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path}: is a file; a checkpoint is a folder: give another name")
    one = Checkpoint(path, settings, group)
    if group.rank:  # the first process looks after the folder
        yield one
        return
    path.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        try:
            yield one
        except BaseException:
            if not (path / "model.json").exists():
                one.remove()
            raise
        one.remove()


def described(rows: Array, labels: np.ndarray | None) -> dict[str, Any]:
    """What tells prepared rows and their labels from others."""
    return {"digest": _digest(rows), "labels": None if labels is None else _digest(labels)}


def _digest(rows: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(to_numpy(rows)).data, digest_size=16).hexdigest()


@contextmanager
def _whole(folder: Path) -> Iterator[None]:
    """What cannot be read of a checkpoint is an error that says what to do."""
    try:
        yield
    except CheckpointError:
        raise
    except (ModelFileError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder}: is no whole checkpoint ({error}); copy it again, {BEGIN_ANEW}") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder for one process; a lock goes with its process, however that ends."""
    try:
        import fcntl
    except ImportError:  # no locks on this system
        yield
        return
    with open(folder / "lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise CheckpointError(
                f"{folder}: another run is at work with it (process {owner}); wait for it, or give another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What differs between two descriptions of a table, in words."""
    for name, what in changes(before.get("files") or {}, after.get("files") or {}):
        return f"{name} {what}"
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {before.get(name)}, now {after.get(name)}" for name in names)
