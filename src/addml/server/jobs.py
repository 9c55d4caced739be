"""Uploaded files, one after another, each in a process of its own (`addml.server.job`).

A process can be stopped at any time, and returns all its memory.
"""

from __future__ import annotations

import json
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
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from addml.errors import AddmlError
from addml.io.source import COMPRESSION_NAMES, NAMED
from addml.pipeline.options import Options, check, current_name, is_list, options_of, parse
from addml.server.job import MODEL
from addml.server.models import Models, RefusedError
from addml.text import did_you_mean

SUFFIXES = [name + packed for name in (*NAMED, "") for packed in (*COMPRESSION_NAMES, "")]  # that tell a format
KEPT = 20  # jobs that are over
GRACE = 10  # seconds for a process to remove unfinished files
ZIPPED = "model.zip"

Given = list[tuple[str, str]]  # options by their names, as texts


@dataclass
class Job:
    """One uploaded file, what to do with it, and the result."""

    id: str
    file: str  # what its sender calls it: a label, never a path
    model: str | None
    options: Given
    request: dict[str, Any]
    folder: Path
    upload: Path
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    state: str = "waiting"  # running, done, failed, stopped
    progress: str | None = None  # the stage it is in
    error: str | None = None
    summary: dict[str, Any] | None = None
    made: str | None = None  # the name of the model that came of it
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("done", "failed", "stopped")

    def short(self) -> dict[str, Any]:
        """What a list shows of it."""
        seconds = self.seconds if self.is_over else time.monotonic() - self.began
        own = {name: getattr(self, name) for name in ("id", "file", "model", "state", "progress", "error", "made")}
        return {**own, "seconds": round(seconds, 1)}

    def whole(self) -> dict[str, Any]:
        """That, the addresses of its files, and the findings as `addml --json` prints them."""
        names = ["report", "scored", *(["model"] if self.made else [])] if self.state == "done" else []
        made = {name: f"/api/jobs/{self.id}/{name}" for name in names}
        return {**self.short(), "options": self.options, "files": made, "summary": self.summary}


class Jobs:
    """What was uploaded, in a folder that is removed at the end; one process at a time."""

    def __init__(self, models: Models) -> None:
        """No jobs yet, and a thread that waits for them."""
        self.models = models
        self._root = tempfile.TemporaryDirectory(prefix="addml-")
        self._jobs: dict[str, Job] = {}
        self._lock, self._waiting = threading.Lock(), queue.SimpleQueue[Job | None]()
        self._thread = threading.Thread(target=self._work, name="addml jobs", daemon=True)
        self._thread.start()

    def new(self, file: str, model: str | None, options: Iterable[tuple[str, str]]) -> Job:
        """A job for a file that is still to be written to its folder; `start` begins it."""
        label, own = _label(file), None if model is None else self.models[model]
        if own is not None and not own.takes_files:
            raise own.refusal()
        given = [(current_name(name), value) for name, value in options]
        command = "detect" if own is None else "score"
        values = {**_values(given, command), "device": self.models.device}
        folder = Path(tempfile.mkdtemp(dir=self._root.name))
        upload = folder / f"input{_suffix(label)}"
        values["file"], labels = str(upload), {str(upload): label}
        if own is not None:
            values["model"], labels[str(own.folder)] = str(own.folder), f"{own.name}.model"
        _check(values, command)
        request = {"command": command, "options": values, "labels": labels}
        return Job(secrets.token_hex(8), label, model, given, request, folder, upload)

    def again(self, id: str, options: Iterable[tuple[str, str]]) -> Job:
        """The file of a job once more, with these options in place of earlier ones of the same names."""
        job, asked = self[id], [(current_name(name), value) for name, value in options]
        names = {name for name, _ in asked}
        kept = [(name, value) for name, value in job.options if name not in names]
        new = self.new(job.file, job.model, [*kept, *((name, value) for name, value in asked if value)])
        try:
            shutil.copyfile(job.upload, new.upload)
        except FileNotFoundError:  # removed meanwhile
            shutil.rmtree(new.folder, ignore_errors=True)
            raise RefusedError(f"there is no job {id!r} here any more; upload the file again", 404) from None
        self.start(new)
        return new

    def start(self, job: Job) -> None:
        """Queue it; the oldest jobs that are over are removed."""
        with self._lock:
            self._jobs[job.id] = job
            over = [one for one in self._jobs.values() if one.is_over]
        for old in over[: max(0, len(over) - KEPT)]:
            with suppress(RefusedError):  # already removed
                self.remove(old.id)
        self._waiting.put(job)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def __getitem__(self, id: str) -> Job:
        try:
            return self._jobs[id]
        except KeyError:
            raise RefusedError(f"there is no job {id!r} here; GET /api/jobs lists them", 404) from None

    def remove(self, id: str) -> None:
        """Stop it if it is running, and remove all its files and its model."""
        with self._lock:
            job = self[id]
            del self._jobs[id]
            running, job.state = job.process, "stopped"
        if running is not None:
            _stop(running)
        if job.made is not None:
            self.models.remove(job.made)
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
            job.process = _start(job.folder)
        outcome = _outcome(job, job.process)
        job.process, job.progress, job.seconds = None, None, time.monotonic() - job.began
        if job.state == "stopped":
            return
        if "error" in outcome:
            job.state, job.error = "failed", outcome["error"]["message"]
            return
        job.summary, folder, made = outcome["result"], job.folder / MODEL, None
        if folder.is_dir():
            name = job.file.rpartition(".")[0] or job.file
            _zip(folder, job.folder / ZIPPED, f"{name}.model")
            made = self.models.add(name, folder).name
        with self._lock:
            if job.state != "stopped":
                job.made, job.state = made, "done"
        if job.state == "stopped" and made is not None:  # removed while its model was loaded
            self.models.remove(made)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """A process that waits for its request; its tracebacks go to the server's terminal."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "addml.server.job"],  # -P: no module of the folder is imported
        cwd=folder,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _outcome(job: Job, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The last line of a job's process, the result or the error; the lines before tell its progress."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(job.request).encode())
    found: dict[str, Any] = {"error": {"message": "it ended without a result"}}
    with process.stdout as lines:
        for line in lines:
            found = json.loads(line)
            job.progress = found.get("progress")
    process.wait()
    if "progress" in found:
        return {"error": {"message": f"it was ended from outside while {found['progress']}"}}
    return found


def _environment() -> dict[str, str]:
    """That of the server without its token, which no job needs."""
    return {name: value for name, value in os.environ.items() if name != "ADDML_TOKEN"} | {"PYTHONUTF8": "1"}


def _zip(folder: Path, file: Path, name: str) -> None:
    """A folder as one file, in which it has this name."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in sorted(folder.rglob("*")):
            archive.write(one, Path(name) / one.relative_to(folder))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate it, so that it removes unfinished files; kill it if it does not end."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _label(file: str) -> str:
    """What a file is called, without folders."""
    name = re.split(r"[/\\]", file)[-1].strip()
    if not name or name.startswith((".", "-")) or not name.isprintable() or len(name.encode()) > 200:
        raise RefusedError(f"name={file!r}: give the name of the file, such as transactions.csv")
    return name


def _suffix(label: str) -> str:
    """How the name of a file ends where that tells its format, else nothing."""
    return max((one for one in SUFFIXES if label.lower().endswith(one)), key=len)


def taken_options(command: str) -> list[str]:
    """The options that a job takes: none is a path, a pattern, an address or a query, or reads another file."""
    return [one.name for one in options_of(command) if one.metadata["remote"]]


def _values(given: Given, command: str) -> dict[str, Any]:
    """The options by name; what may be repeated as a list."""
    taken, values = taken_options(command), dict[str, Any]()
    for name, value in given:
        if name not in taken:
            hint = did_you_mean(name, taken)
            raise RefusedError(f"there is no option {name!r}.{hint} This job takes {', '.join(taken)}")
        if name in values and not is_list(name):
            raise RefusedError(f"{name} is given twice; give it once")
        values[name] = [*values.get(name, []), value] if is_list(name) else value
    return values


def _check(values: dict[str, Any], command: str) -> None:
    """What is wrong with the values themselves is refused before anything is uploaded."""
    try:
        check(Options(**{name: parse(name, value) for name, value in values.items()}), command)
    except AddmlError as error:
        raise RefusedError(str(error)) from error
