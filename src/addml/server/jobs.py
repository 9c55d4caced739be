"""Uploaded files, one after another, each in a process of its own (`addml.server.job`).

A process can be stopped at any time, and returns all its memory. One that takes too much memory or time is stopped.
"""

from __future__ import annotations

import json
import logging
import os
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from addml.io.image_folder import SUFFIXES as PICTURES
from addml.io.image_folder import ZIP
from addml.io.read import NAMED
from addml.io.source import COMPRESSION_NAMES
from addml.pipeline.options import Options, check, is_list, names_file, options_of, parse
from addml.server import Limits, RefusedError
from addml.server.job import GRACE, MODEL
from addml.server.models import Models
from addml.text import did_you_mean

SUFFIXES = [name + packed for name in (*NAMED, "") for packed in (*COMPRESSION_NAMES, "")]  # that tell a format
SUFFIXES += [ZIP, *PICTURES]
KEPT = 20  # jobs that are over
FOLDERS = "addml-serve-"  # how the folder of a server begins, where temporary files are
LOCK = "lock"  # in that folder, held by its server
WATCHED = 0.1  # seconds between two looks at a process
ZIPPED = "model.zip"


@dataclass
class Job:
    """One uploaded file, what to do with it, and the result."""

    id: str
    file: str  # what its sender calls it: a label, never a path
    model: str | None
    options: list[tuple[str, str]]  # by their names, as texts
    request: dict[str, Any]
    folder: Path
    upload: Path
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    state: str = "uploading"  # waiting, running, done, failed, stopped
    progress: str | None = None  # the stage it is in
    error: dict[str, Any] | None = None  # its message, code, and what else is known
    summary: dict[str, Any] | None = None
    made: str | None = None  # the name of the model that came of it
    process: subprocess.Popen[bytes] | None = None

    def short(self) -> dict[str, Any]:
        """What a list shows of it."""
        own = {name: getattr(self, name) for name in ("id", "file", "model", "state", "progress", "error", "made")}
        return {**own, "seconds": round((self.ended or time.monotonic()) - self.began, 1)}

    def whole(self, root: str = "") -> dict[str, Any]:
        """That, the addresses of its files behind `root`, and the findings as `addml --json` prints them."""
        names = ["report", "scored", *(["model"] if self.made else [])] if self.state == "done" else []
        files = {name: f"{root}/api/v1/jobs/{self.id}/{name}" for name in names}
        return {**self.short(), "options": self.options, "files": files, "summary": self.summary}


class Jobs:
    """What was uploaded, in a folder that is removed at the end; one process at a time."""

    def __init__(self, models: Models, limits: Limits) -> None:
        self.models, self.limits = models, limits
        remove_abandoned()
        self._root = tempfile.TemporaryDirectory(prefix=FOLDERS)
        self._held = (Path(self._root.name) / f".{LOCK}").open("wb")
        _lock(self._held)
        Path(self._held.name).rename(Path(self._root.name) / LOCK)  # which no other server ever sees unlocked
        self._jobs: dict[str, Job] = {}
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "addml jobs")

    @property
    def waiting(self) -> int:
        """How many jobs wait or are uploaded."""
        return sum(job.state in ("uploading", "waiting") for job in list(self._jobs.values()))

    def new(self, file: str, model: str | None, options: Iterable[tuple[str, str]]) -> Job:
        """A job whose file is still to be written; then `start` begins it, or `remove` ends it."""
        if self.waiting >= self.limits.queue:
            raise RefusedError(f"{self.waiting} jobs are waiting already; try again later", 429)
        label, own = _label(file), None if model is None else self.models[model]
        suffix = max((one for one in SUFFIXES if label.lower().endswith(one)), key=len)
        given, command = [(name.replace("-", "_"), value) for name, value in options], "score" if own else "detect"
        values = {**_values(given, command), "device": self.models.device, "file": f"input{suffix}"}
        if own is not None:
            values["model"] = str(own.folder)
        check(Options(**{name: parse(name, value) for name, value in values.items()}), command)
        folder = Path(tempfile.mkdtemp(dir=self._root.name))
        upload = folder / values["file"]
        values["file"], labels = str(upload), {str(upload): label, f"{folder}{os.sep}": ""}
        if own is not None:
            labels[str(own.folder)] = f"{own.name}.model"
        request = {"command": command, "options": values, "labels": labels, "unpacked": self.limits.unpacked}
        job = Job(secrets.token_hex(8), label, model, given, request, folder, upload)
        self._jobs[job.id] = job
        return job

    def again(self, id: str, options: Iterable[tuple[str, str]]) -> Job:
        """The file of a job once more, with these options in place of earlier ones of the same names."""
        job, asked = self[id], [(name.replace("-", "_"), value) for name, value in options]
        kept = [one for one in job.options if one[0] not in dict(asked)]
        new = self.new(job.file, job.model, [*kept, *(one for one in asked if one[1])])
        try:
            shutil.copyfile(job.upload, new.upload)
        except OSError:
            self.remove(new.id)
            _ = self[id]  # refused, if it was removed meanwhile
            raise
        self.start(new)
        return new

    def start(self, job: Job) -> None:
        """Queue it; the oldest jobs that are over are removed."""
        with self._lock:
            if job.state == "stopped":  # the server ends
                return
            job.state = "waiting"
            over = [one for one in self._jobs.values() if one.ended]
        for old in over[:-KEPT]:
            with suppress(RefusedError):  # already removed
                self.remove(old.id)
        self._thread.submit(self._run, job)

    def __iter__(self) -> Iterator[Job]:
        return iter([job for job in list(self._jobs.values()) if job.state != "uploading"])

    def __getitem__(self, id: str) -> Job:
        if id not in self._jobs:
            raise RefusedError(f"there is no job {id!r} here; GET /api/v1/jobs lists them", 404)
        return self._jobs[id]

    def remove(self, id: str) -> None:
        """Stop it if it is running, and remove all its files and its model."""
        with self._lock:
            job = self[id]
            del self._jobs[id]
            running, job.state = job.process, "stopped"
        if running is not None:
            _stop(running)
        self.models.pop(job.made or "", None)
        shutil.rmtree(job.folder, ignore_errors=True)

    def close(self) -> None:
        for id in list(self._jobs):
            with suppress(RefusedError):
                self.remove(id)
        self._thread.shutdown()
        self._held.close()
        self._root.cleanup()

    # One after another --------------------------------------------------------------------------------------

    def _run(self, job: Job) -> None:
        made, model = None, job.folder / MODEL
        try:
            outcome = self._outcome(job)
            if "result" in outcome and model.is_dir():  # zipped and served
                name = job.file.rpartition(".")[0] or job.file
                with zipfile.ZipFile(job.folder / ZIPPED, "w", zipfile.ZIP_DEFLATED) as archive:
                    for file in sorted(model.iterdir()):
                        archive.write(file, f"{name}.model/{file.name}")
                made = self.models.add(name, model).name
        except Exception as error:
            outcome = {"error": {"message": type(error).__name__, "code": "internal"}}
            if job.state != "stopped":  # and its files removed
                logging.getLogger("addml").error("job %s", job.id, exc_info=error)
        with self._lock:
            job.process, job.progress, job.ended = None, None, time.monotonic()
            if job.state != "stopped":
                job.summary, job.error, job.made = outcome.get("result"), outcome.get("error"), made
                job.state = "failed" if job.error else "done"
            elif made is not None:  # removed while its model was loaded
                self.models.pop(made, None)

    def _outcome(self, job: Job) -> dict[str, Any]:
        """Run the process of a job; its last line is the result or the error, those before tell its progress."""
        with self._lock:
            if job.state == "stopped":
                return {}
            job.began, job.state = time.monotonic(), "running"
            environment = {name: value for name, value in os.environ.items() if name != "ADDML_TOKEN"}
            job.process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "addml.server.job"],  # -P: no module of the folder is imported
                cwd=job.folder,
                env=environment | {"PYTHONUTF8": "1", "TMPDIR": str(job.folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        found: dict[str, Any] = {"progress": "starting"}
        with ThreadPoolExecutor(1, "addml watch") as watching:
            stopped = watching.submit(watch, process, self.limits)
            with suppress(BrokenPipeError), process.stdin, process.stdout as lines:
                process.stdin.write(json.dumps(job.request).encode() + b"\n")
                process.stdin.flush()  # and left open: a job ends when it closes
                for line in lines:
                    found = json.loads(line)
                    job.progress = found.get("progress")
                process.wait()
        if "progress" in found:
            found = {"error": {"message": f"it was ended from outside while {found['progress']}", "code": "killed"}}
        return {"error": stopped.result()} if stopped.result() else found


def watch(process: subprocess.Popen[bytes], limits: Limits) -> dict[str, Any] | None:
    """Stop a process that takes too much memory or time, and say so; None where it ends by itself."""
    end = time.monotonic() + limits.seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(WATCHED)
            return None
        if time.monotonic() > end:
            _stop(process)
            words = f"it ran longer than {limits.seconds:g} s; the server allows more by --limit seconds=N"
            return {"message": words, "code": "time_limit"}
        if resident(process.pid) > limits.memory:
            process.kill()
            most = f"{limits.memory / 1e6:,.0f} MB"
            words = f"it took more than {most} of memory; the server allows more by --limit memory=SIZE"
            return {"message": words, "code": "memory_limit"}


def resident(pid: int) -> int:
    """Bytes of memory of a process and its children, without files that the system can drop; 0 where it is unknown."""
    try:
        about = Path(f"/proc/{pid}/status").read_text()
        threads = Path(f"/proc/{pid}/task").glob("*/children")  # each lists those that it began
        children = [child for one in threads for child in one.read_text().split()]
    except OSError:  # gone, or not Linux
        return 0
    own = sum(int(size) for size in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", about, re.MULTILINE))
    return own * 1024 + sum(resident(int(child)) for child in children)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate it, so that it removes unfinished files; kill it if it does not end."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _lock(file: IO[bytes]) -> None:
    """Hold a file for as long as this process lives; an error where another one does."""
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_abandoned() -> None:
    """Remove the folders of servers that were killed: nobody holds them any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*") if os.name == "posix" else ():
        with suppress(OSError):
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                with (folder / LOCK).open("rb") as held:
                    _lock(held)
                    shutil.rmtree(folder, ignore_errors=True)


# Names and options ------------------------------------------------------------------------------------------


def _label(file: str) -> str:
    """What a file is called, without folders."""
    name = re.split(r"[/\\]", file)[-1].strip()
    if not name or name.startswith((".", "-")) or not name.isprintable() or len(name.encode()) > 200:
        raise RefusedError(f"name={file!r}: give the name of the file, such as transactions.csv")
    return name


def taken_options(command: str) -> list[str]:
    """The options that a job takes: none is a path, a pattern, an address or a query, or reads another file."""
    return [one.name for one in options_of(command) if one.metadata["remote"]]


def _values(given: Iterable[tuple[str, str]], command: str) -> dict[str, Any]:
    """The options by name; what may be repeated as a list."""
    taken, values = taken_options(command), dict[str, Any]()
    for name, value in given:
        if name not in taken:
            hint = did_you_mean(name, taken)
            raise RefusedError(f"there is no option {name!r}.{hint} This job takes {', '.join(taken)}")
        if name in values and not is_list(name):
            raise RefusedError(f"{name} is given twice; give it once")
        if name in ("known_normal", "known_anomalies") and names_file(value):
            raise RefusedError(f"{value}: a job takes row numbers and ids, no file")
        values[name] = [*values.get(name, []), value] if is_list(name) else value
    return values
