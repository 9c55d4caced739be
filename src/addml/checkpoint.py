"""Training that resumes after a kill: its state after every epoch, in a folder that one run at a time may use.

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
        """Where files without a name are made: as given, else beside the checkpoint, else with temporary files."""
        beside = None if self.checkpoint is None else Path(os.path.expanduser(self.checkpoint)).absolute().parent
        folder = Path(os.path.expanduser(self.scratch or beside or tempfile.gettempdir()))
        if not folder.is_dir():
            raise ValueError(f"scratch={str(folder)!r} is no folder; make it, or name another")
        return folder


class CheckpointError(ValueError):
    """A checkpoint that cannot be resumed from; the message says why and what to do."""


class Checkpoint:
    """A folder for the state of one training: what it belongs to, and how far it is; without a folder, nothing."""

    def __init__(self, folder: Path | None, settings: dict[str, Any], group: Group = ALONE) -> None:
        self.folder, self.group = folder, group
        self._owner: dict[str, Any] = {"addml": __version__, "settings": settings}
        self._found: tuple[dict[str, Any], dict[str, np.ndarray]] | None = None

    def claim(self, data: Callable[[], dict[str, Any]]) -> None:
        """Say what rows it is for: what was kept before must belong to these settings and these rows."""
        if self.folder is None:
            return
        self._owner["data"] = data()
        begun = (self.folder / "model.json").exists()
        if self.group.counts([begun])[0] not in (0, self.group.size):
            raise CheckpointError(f"{self.folder}: is not the same folder on all machines; name a shared one")
        if not begun:
            return
        try:
            document, arrays = model_file.read(self.folder, finite=False)
            found = document["checkpoint"]
            wrong = _difference(found["owner"], self._owner)
            found["history"] = [model_file.record_from_json(record) for record in found["history"]]
            self._found = found, {name: arrays[name] for name in (*ON_DEVICE, *IN_MEMORY, "kept")}
        except (KeyError, TypeError, ValueError) as error:
            what = f"is no whole checkpoint ({error}); copy it again"
            raise CheckpointError(f"{self.folder}: {what}, {BEGIN_ANEW}") from None
        if wrong:
            raise CheckpointError(f"{self.folder}: was made {wrong}, {BEGIN_ANEW}")

    def restored(self, state: TrainingState, members: Sequence[Member], device: str) -> TrainingState:
        """The state that was saved last, with the members' generators as they were then; else the one given."""
        if self._found is None:
            return state
        found, arrays = self._found
        for member, random in zip(members, found["randoms"][self.group.rank], strict=True):
            member.random.bit_generator.state = random
        return TrainingState(
            **{name: on_device(arrays[name], device) for name in ON_DEVICE},
            **{name: arrays[name] for name in IN_MEMORY},
            epoch=found["epoch"],
            history=found["history"],
            kept=list(arrays["kept"]),
        )

    def save(self, state: TrainingState, members: Sequence[Member]) -> None:
        """Write the state in place of the one before: the first process of a group does, for all of them."""
        if self.folder is None:
            return
        own = json.dumps([member.random.bit_generator.state for member in members])
        randoms = list(map(json.loads, self.group.gather(own.encode())))
        if self.group.rank:
            return
        checkpoint = {
            "owner": self._owner,
            "epoch": state.epoch,
            "history": [model_file.record_to_json(record) for record in state.history],
            "randoms": randoms,  # of every process
        }
        arrays = {name: to_numpy(getattr(state, name)) for name in (*ON_DEVICE, *IN_MEMORY)}
        model_file.write(self.folder, {"checkpoint": checkpoint}, {**arrays, "kept": np.array(state.kept, np.uint8)})


@contextmanager
def open_checkpoint(
    folder: str | os.PathLike[str] | None, settings: dict[str, Any], group: Group = ALONE
) -> Iterator[Checkpoint]:
    """The checkpoint in a folder, for this run alone, removed when the block ends well; without a folder, none."""
    if folder is None:
        yield Checkpoint(None, settings, group)
        return
    if not isinstance(settings["random_state"], int):
        raise ValueError(
            f"random_state={settings['random_state']!r} with a checkpoint: give a whole number, or the run that "
            "resumes would not be the one that began"
        )
    path = Path(os.path.expanduser(folder))
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path}: is a file; a checkpoint is a folder: give another name")
    if group.rank:  # the first process looks after the folder
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
    """Leave nothing behind, once the training is over."""
    for pattern in OURS:
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)
    with suppress(OSError):  # somebody else's files are in it
        folder.rmdir()


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


def described(rows: Array, labels: np.ndarray | None) -> dict[str, Any]:
    """What tells prepared rows and their labels from others."""
    return {"digest": _digest(rows), "labels": None if labels is None else _digest(labels)}


def _digest(rows: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(to_numpy(rows)).data, digest_size=16).hexdigest()


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """How the owner of a checkpoint differs from the present one, and what to do; None if it does not."""
    if before["addml"] != now["addml"]:
        return f"by addml {before['addml']}, this is {now['addml']}; use that one"
    settings = {*before["settings"], *now["settings"]}
    for name in sorted(settings, key=lambda name: (name != "workers", name)):
        then, given = (one["settings"].get(name) for one in (before, now))
        if then != given:
            return f"with {name}={then!r}, now it is {given!r}; set it back"
    was, data = before["data"], now["data"]
    for name, what in changes(was.get("files") or {}, data.get("files") or {}):
        return f"of other rows ({name} {what}); give the same table"
    names = [name for name in sorted({*was, *data}) if was.get(name) != data.get(name)]
    other = ", ".join(f"{name} {was.get(name)}, now {data.get(name)}" for name in names)
    return f"of other rows ({other}); give the same table" if names else None
