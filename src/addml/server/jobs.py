"""Files that are handed in, one after another, each by an `addml` command of its own.

A command in a process can be stopped at any time, and takes its memory with it; what it would print is the answer.
"""

from __future__ import annotations

import html
import json
import logging
import os
import queue
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from addml.io.source import COMPRESSION_NAMES, NAMED
from addml.pipeline import options as known
from addml.server.bodies import RefusedError
from addml.server.models import Shelf, Shelved
from addml.text import did_you_mean

# Options that a job takes, each named here: none is a path, a pattern, an address or a query, or reads another file.
SCORE = (
    *("id", "time", "threshold", "contamination", "tau", "top", "reasons"),
    *("part", "delimiter", "header", "encoding", "decimal", "redact", "strict"),
)
DETECT = (
    *SCORE,
    *("columns", "ignore", "label", "anomalous", "learn_from", "known_anomalies", "known_normal"),
    *("window", "cell", "causal", "one_sided", "clean", "members", "epochs", "scorer", "seed", "sample", "all_rows"),
)
SUFFIXES = [name + packed for name in (*NAMED, "") for packed in (*COMPRESSION_NAMES, "")]  # which tell a format
KEPT = 20  # jobs that are over
GRACE = 10  # seconds for a command to put away what is unfinished
SCORED, REPORT, MODEL, ZIPPED = "scored.csv", "report.html", "result.model", "model.zip"
BOX = re.compile(r"^[│|]\s?(.*?)\s*[│|]$")


@dataclass
class Job:
    """One file, what is to be done with it, and what came of it."""

    id: str
    file: str  # what its sender calls it: said to people, and never a path
    model: str | None
    options: list[tuple[str, str]]
    command: list[str]
    folder: Path
    upload: Path
    names: dict[str, str]  # what lies in the folder by names of our own, and what people call it
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    state: str = "waiting"  # running, done, failed, stopped
    error: str | None = None
    summary: dict[str, Any] | None = None
    made: str | None = None  # the name of the model that came of it
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in ("done", "failed", "stopped")

    def short(self) -> dict[str, Any]:
        """What a list says of it."""
        seconds = self.seconds if self.is_over else time.monotonic() - self.began
        own = {name: getattr(self, name) for name in ("id", "file", "model", "state", "error", "made")}
        return {**own, "seconds": round(seconds, 1)}

    def whole(self) -> dict[str, Any]:
        """That, and what was found: what `addml --json` prints, without the files, which have addresses."""
        found = None if self.summary is None else {key: self.summary[key] for key in self.summary if key != "files"}
        names = ["report", "scored", *(["model"] if self.made else [])] if self.state == "done" else []
        made = {name: f"/api/jobs/{self.id}/{name}" for name in names}
        return {**self.short(), "options": self.options, "files": made, "summary": found}


class Jobs:
    """What was handed in, in a folder that is gone at the end; one command at a time."""

    def __init__(self, shelf: Shelf) -> None:
        """An empty list, and a thread that waits for work."""
        self.shelf = shelf
        self._root = tempfile.TemporaryDirectory(prefix="addml-")
        self._jobs: dict[str, Job] = {}
        self._lock, self._waiting = threading.Lock(), queue.SimpleQueue[Job | None]()
        self._thread = threading.Thread(target=self._work, name="addml jobs", daemon=True)
        self._thread.start()

    def new(self, file: str, model: str | None, options: Iterable[tuple[str, str]]) -> Job:
        """A job for a file that is still to be written to its folder; `start` begins it."""
        label, own, options = _label(file), None if model is None else self.shelf[model], list(options)
        arguments = _arguments(options, DETECT if own is None else SCORE)
        if own is not None and not own.takes_files:
            raise own.refusal()
        id, folder = secrets.token_hex(8), Path(tempfile.mkdtemp(dir=self._root.name))
        upload = folder / f"input-{id}{_suffix(label)}"
        names = {upload.name: label}
        verb = ["detect", upload.name, f"--model={MODEL}"]
        if own is not None:
            link = _link(own, folder / f"model-{id}")
            names[link] = f"{own.name}.model"
            verb = ["score", upload.name, f"--model={link}"]
        outputs = ["--json", "--output", SCORED, "--report", REPORT, f"--device={self.shelf.device}"]
        known_as = [(option.replace("-", "_"), value) for option, value in options]
        return Job(id, label, model, known_as, [*verb, *outputs, *arguments], folder, upload, names)

    def again(self, id: str, options: Iterable[tuple[str, str]]) -> Job:
        """The file of a job once more, with these options in place of the earlier ones of their names."""
        job, asked = self[id], [(name.replace("-", "_"), value) for name, value in options]
        names = {name for name, _ in asked}
        kept = [(name, value) for name, value in job.options if name not in names]
        new = self.new(job.file, job.model, [*kept, *((name, value) for name, value in asked if value)])
        try:
            shutil.copyfile(job.upload, new.upload)
        except FileNotFoundError:  # removed meanwhile
            shutil.rmtree(new.folder, ignore_errors=True)
            raise RefusedError(f"there is no job {id!r} here any more; hand the file in anew", 404) from None
        self.start(new)
        return new

    def start(self, job: Job) -> None:
        """Let it wait for its turn; the oldest that are over make room."""
        with self._lock:
            self._jobs[job.id] = job
            over = [one for one in self._jobs.values() if one.is_over]
        for old in over[: max(0, len(over) - KEPT)]:
            with suppress(RefusedError):  # somebody else was faster
                self.remove(old.id)
        self._waiting.put(job)

    def __iter__(self) -> Any:
        return iter(list(self._jobs.values()))

    def __getitem__(self, id: str) -> Job:
        try:
            return self._jobs[id]
        except KeyError:
            raise RefusedError(f"there is no job {id!r} here; GET /api/jobs lists them", 404) from None

    def remove(self, id: str) -> None:
        """Stop it if it is under way, and forget all that came of it."""
        with self._lock:
            job = self[id]
            del self._jobs[id]
            running, job.state = job.process, "stopped"
        if running is not None:
            _stop(running)
        if job.made is not None:
            self.shelf.remove(job.made)
        shutil.rmtree(job.folder, ignore_errors=True)

    def close(self) -> None:
        """Stop everything and remove the folder."""
        for job in list(self):
            with suppress(RefusedError):
                self.remove(job.id)
        self._waiting.put(None)
        self._thread.join(GRACE)
        self._root.cleanup()

    # One after another --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            try:
                self._run(job)
            except Exception as error:  # whatever it is, the next job must have its turn
                if job.state != "stopped":  # and its files removed
                    job.state, job.error = "failed", f"{type(error).__name__}: {error}"

    def _run(self, job: Job) -> None:
        with self._lock:
            if job.state != "waiting":
                return
            job.began, job.state = time.monotonic(), "running"
            job.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "addml", *job.command],
                cwd=job.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        said, complained = job.process.communicate()
        code, job.process, job.seconds = job.process.returncode, None, time.monotonic() - job.began
        if job.state == "stopped":
            return
        if code != 0:
            job.state, job.error = "failed", _complaint(_called(complained.decode("utf-8", "replace"), job.names))
            return
        job.summary = json.loads(_called(said.decode(), job.names, lambda name: json.dumps(name)[1:-1]))
        report, folder, made = job.folder / REPORT, job.folder / MODEL, None
        report.write_text(_called(report.read_text("utf-8"), job.names, html.escape), "utf-8")
        if folder.is_dir():
            name = job.file.rpartition(".")[0] or job.file
            _zip(folder, job.folder / ZIPPED, f"{name}.model")
            made = self.shelf.add(name, folder).name
        with self._lock:
            if job.state != "stopped":
                job.made, job.state = made, "done"
        if job.state == "stopped" and made is not None:  # removed while its model was loaded
            self.shelf.remove(made)


def _environment() -> dict[str, str]:
    """That of the server, but for its token, which no command needs; and plain output."""
    own = {name: value for name, value in os.environ.items() if name != "ADDML_TOKEN"}
    return {**own, "NO_COLOR": "1", "COLUMNS": "1000", "PYTHONUTF8": "1"}


def _zip(folder: Path, file: Path, name: str) -> None:
    """A folder as one file, in which it has this name."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in sorted(folder.rglob("*")):
            archive.write(one, Path(name) / one.relative_to(folder))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As an interrupt does, so that nothing unfinished is left; what does not heed it is killed."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _link(model: Shelved, link: Path) -> str:
    """The model in the folder of a job, so that no message and no report tells where it lies."""
    try:
        link.symlink_to(model.folder, target_is_directory=True)
    except OSError:  # Windows lets not everybody
        return str(model.folder)
    return link.name


def _called(text: str, names: Mapping[str, str], written: Callable[[str], str] = str) -> str:
    """The text with what people call a file in place of its name in the folder, as such a text writes it."""
    for own, name in names.items():
        text = text.replace(own, written(name))
    return text


def _complaint(text: str) -> str:
    """What a command said was wrong, in one paragraph."""
    if "Traceback (most recent call last)" in text:  # our own fault: its paths are for the terminal alone
        logging.getLogger("addml").error(text)
        return f"it broke off ({text.strip().splitlines()[-1].partition(':')[0]}); the server's terminal says more"
    boxed = [found.group(1) for line in text.splitlines() if (found := BOX.match(line.strip()))]
    if boxed:  # wrong usage
        return " ".join(filter(None, boxed))
    lines = [line for line in text.splitlines() if not line.startswith("Warning: ")]
    return " ".join(lines).removeprefix("Error: ").strip() or "it ended without a word"


def _label(file: str) -> str:
    """What a file is called, without folders."""
    name = re.split(r"[/\\]", file)[-1].strip()
    if not name or name.startswith((".", "-")) or not name.isprintable() or len(name.encode()) > 200:
        raise RefusedError(f"name={file!r}: give the name of the file, such as transactions.csv")
    return name


def _suffix(label: str) -> str:
    """How the name of a file ends where that tells its format, else nothing."""
    return max((one for one in SUFFIXES if label.lower().endswith(one)), key=len)


def _arguments(options: Iterable[tuple[str, str]], taken: Sequence[str]) -> list[str]:
    """The options that are taken, by the names of the settings; their values are checked by the command itself."""
    groups = [kind for kind in get_type_hints(known.Settings).values() if is_dataclass(kind)]
    types = {name: kind for group in groups for name, kind in get_type_hints(group).items()}
    arguments, seen = [], set[str]()
    for said, value in options:
        name = said.replace("-", "_")
        if name not in taken:
            hint = did_you_mean(name, taken)
            raise RefusedError(f"there is no option {said!r}.{hint} This job takes {', '.join(taken)}")
        if name in seen and types[name] != tuple[str, ...]:
            raise RefusedError(f"{name} is given twice; give it once")
        if "\0" in value:
            raise RefusedError(f"{name}={value!r}: holds a NUL, which no option can")
        seen.add(name)
        flag = "--" + name.replace("_", "-")
        if types[name] in (bool, bool | None):
            if value not in ("true", "false"):
                raise RefusedError(f"{name}={value!r}: give true or false")
            off = [f"--no-{flag[2:]}"] if types[name] == (bool | None) else []
            arguments += [flag] if value == "true" else off
        else:
            arguments.append(f"{flag}={value}")
    return arguments
