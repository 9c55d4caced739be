"""The queue of jobs: one uploaded file at a time, each in its own process (`addml.server.job`).

A process can be cancelled at any time and returns all its memory. Those that exceed their memory or time are stopped.
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
from typing import Any

from addml.checkpoint import lock
from addml.io.image_folder import SUFFIXES as IMAGE_SUFFIXES
from addml.io.image_folder import ZIP
from addml.io.read import NAMED
from addml.io.source import COMPRESSION_NAMES
from addml.pipeline.options import Options, check, is_known_file, is_list, options_of, parse
from addml.server import Limits, RefusedError
from addml.server.job import GRACE, MODEL
from addml.server.models import Models
from addml.text import did_you_mean

SUFFIXES = [name + packed for name in (*NAMED, "") for packed in (*COMPRESSION_NAMES, "")]
SUFFIXES += [ZIP, *IMAGE_SUFFIXES]
MAX_FINISHED = 20  # finished jobs to keep
FOLDER_PREFIX = "addml-serve-"
LOCK = "lock"  # a file in the server's folder, locked while the server lives
POLL_SECONDS = 0.1
MODEL_ZIP = "model.zip"


@dataclass
class Job:
    """One uploaded file with its options, state and result."""

    id: str
    file: str  # the client's name for the file: a label, never a path
    model: str | None
    options: list[tuple[str, str]]  # as given by the client
    request: dict[str, Any]
    folder: Path
    upload: Path
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    state: str = "uploading"  # waiting, running, done, failed, stopped
    progress: str | None = None  # the current stage
    error: dict[str, Any] | None = None
    summary: dict[str, Any] | None = None
    made: str | None = None  # the name of the trained model
    process: subprocess.Popen[bytes] | None = None

    def short(self) -> dict[str, Any]:
        """The fields shown in a list."""
        fields = {name: getattr(self, name) for name in ("id", "file", "model", "state", "progress", "error", "made")}
        return {**fields, "seconds": round((self.ended or time.monotonic()) - self.started, 1)}

    def full(self, root: str) -> dict[str, Any]:
        """All fields: also the URLs of the files below `root`, and the findings as in `addml --json`."""
        names = ["report", "scored", *(["model"] if self.made else [])] if self.state == "done" else []
        files = {name: f"{root}/api/v1/jobs/{self.id}/{name}" for name in names}
        return {**self.short(), "options": self.options, "files": files, "summary": self.summary}


class Jobs:
    """All jobs, in a temporary folder that is removed when the server stops. One process runs at a time."""

    def __init__(self, models: Models, limits: Limits) -> None:
        self.models, self.limits = models, limits
        remove_abandoned()
        self._root = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX)
        self._lock_file = (Path(self._root.name) / f".{LOCK}").open("wb")
        lock(self._lock_file)
        Path(self._lock_file.name).rename(Path(self._root.name) / LOCK)  # so no other server sees it unlocked
        self._jobs: dict[str, Job] = {}
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "addml jobs")

    @property
    def waiting(self) -> int:
        """The number of waiting jobs, including uploads in progress."""
        return sum(job.state in ("uploading", "waiting") for job in list(self._jobs.values()))

    def new(self, file: str, model: str | None, options: Iterable[tuple[str, str]]) -> Job:
        """Create a job. The caller writes its file to `job.upload`, then calls `start`, or `remove` on failure."""
        if self.waiting >= self.limits.queue:
            raise RefusedError(f"{self.waiting} jobs are already waiting; try again later", 429)
        label = _label(file)
        suffix = max((suffix for suffix in SUFFIXES if label.lower().endswith(suffix)), key=len)
        served = None if model is None else self.models[model]
        command = "detect" if served is None else "score"
        pairs = _with_underscores(options)
        values = {**_values(pairs, command), "device": self.models.device, "file": f"input{suffix}"}
        if served is not None:
            values["model"] = str(served.folder)
        check(Options(**{name: parse(name, value) for name, value in values.items()}), command)
        folder = Path(tempfile.mkdtemp(dir=self._root.name))
        upload = folder / values["file"]
        values["file"] = str(upload)
        labels = {str(upload): label, f"{folder}{os.sep}": ""}
        if served is not None:
            labels[str(served.folder)] = f"{served.name}.model"
        request = {"command": command, "options": values, "labels": labels, "unpacked": self.limits.unpacked}
        job = Job(secrets.token_hex(8), label, model, pairs, request, folder, upload)
        self._jobs[job.id] = job
        return job

    def again(self, id: str, options: Iterable[tuple[str, str]]) -> Job:
        """Run a job's file again. These options replace earlier ones of the same name; empty ones remove them."""
        job, changes = self[id], _with_underscores(options)
        unchanged = [option for option in job.options if option[0] not in dict(changes)]
        new = self.new(job.file, job.model, [*unchanged, *((name, value) for name, value in changes if value)])
        try:
            shutil.copyfile(job.upload, new.upload)
        except OSError:
            self.remove(new.id)
            _ = self[id]  # 404 if the job was removed in the meantime
            raise
        self.start(new)
        return new

    def start(self, job: Job) -> None:
        """Queue the job, and remove the oldest finished jobs."""
        with self._lock:
            if job.state == "stopped":  # the server is stopping
                return
            job.state = "waiting"
            finished = [other for other in self._jobs.values() if other.ended]
        for old in finished[:-MAX_FINISHED]:
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
        """Stop the job if it is running, and delete its files and its model."""
        with self._lock:
            job = self[id]
            del self._jobs[id]
            process, job.state = job.process, "stopped"
        if process is not None:
            _stop(process)
        self.models.pop(job.made or "", None)
        shutil.rmtree(job.folder, ignore_errors=True)

    def close(self) -> None:
        for id in list(self._jobs):
            with suppress(RefusedError):
                self.remove(id)
        self._thread.shutdown()
        self._lock_file.close()
        self._root.cleanup()

    def _run(self, job: Job) -> None:
        model_name, model = None, job.folder / MODEL
        try:
            outcome = self._run_process(job)
            if "result" in outcome and model.is_dir():
                name = job.file.rpartition(".")[0] or job.file
                with zipfile.ZipFile(job.folder / MODEL_ZIP, "w", zipfile.ZIP_DEFLATED) as archive:
                    for file in sorted(model.iterdir()):
                        archive.write(file, f"{name}.model/{file.name}")
                model_name = self.models.add(name, model).name
        except Exception as error:
            outcome = {"error": {"message": type(error).__name__, "code": "internal"}}
            if job.state != "stopped":  # otherwise it failed because its files were removed
                logging.getLogger("addml").error("job %s", job.id, exc_info=error)
        with self._lock:
            job.process, job.progress, job.ended = None, None, time.monotonic()
            if job.state != "stopped":
                job.summary, job.error, job.made = outcome.get("result"), outcome.get("error"), model_name
                job.state = "failed" if job.error else "done"
            elif model_name is not None:  # the job was removed while its model was being loaded
                self.models.pop(model_name, None)

    def _run_process(self, job: Job) -> dict[str, Any]:
        """Run the job's process and return its last line: the result or the error. Earlier lines report progress."""
        with self._lock:
            if job.state == "stopped":
                return {}
            job.started, job.state = time.monotonic(), "running"
            environment = {name: value for name, value in os.environ.items() if name != "ADDML_TOKEN"}
            job.process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "addml.server.job"],  # -P: import nothing from the working folder
                cwd=job.folder,
                env=environment | {"PYTHONUTF8": "1", "TMPDIR": str(job.folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        output: dict[str, Any] = {"progress": "starting"}
        with ThreadPoolExecutor(1, "addml watch") as executor:
            limit_error = executor.submit(watch, process, self.limits)
            with suppress(BrokenPipeError), process.stdin, process.stdout as lines:
                process.stdin.write(json.dumps(job.request).encode() + b"\n")
                process.stdin.flush()  # stays open: the job exits when it closes
                for line in lines:
                    output = json.loads(line)
                    job.progress = output.get("progress")
                process.wait()
        if "progress" in output:
            message = f"the job was killed from outside during: {output['progress']}"
            output = {"error": {"message": message, "code": "killed"}}
        return {"error": limit_error.result()} if limit_error.result() else output


def watch(process: subprocess.Popen[bytes], limits: Limits) -> dict[str, Any] | None:
    """Wait for a process. If it exceeds its memory or time, stop it and return the error."""
    end = time.monotonic() + limits.seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return None
        if time.monotonic() > end:
            _stop(process)
            message = f"the job took longer than {limits.seconds:g} s; raise the server's --limit seconds=N"
            return {"message": message, "code": "time_limit"}
        if resident(process.pid) > limits.memory:
            process.kill()
            size = f"{limits.memory / 1e6:,.0f} MB"
            message = f"the job used more than {size} of memory; raise the server's --limit memory=SIZE"
            return {"message": message, "code": "memory_limit"}


def resident(pid: int) -> int:
    """Memory of a process and its children in bytes, without file-backed pages; 0 if unknown."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        lists = Path(f"/proc/{pid}/task").glob("*/children")  # one per thread, with the children it started
        children = [child for file in lists for child in file.read_text().split()]
    except OSError:  # the process has ended, or this is not Linux
        return 0
    kilobytes = sum(int(size) for size in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE))
    return kilobytes * 1024 + sum(resident(int(child)) for child in children)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process, so that it removes unfinished files; kill it if it does not exit."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def remove_abandoned() -> None:
    """Remove the folders of killed servers: those whose lock is free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*") if os.name == "posix" else ():
        with suppress(OSError):
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                with (folder / LOCK).open("rb") as lock_file:
                    lock(lock_file)
                    shutil.rmtree(folder, ignore_errors=True)


def _label(file: str) -> str:
    name = re.split(r"[/\\]", file)[-1].strip()
    if not name or name.startswith((".", "-")) or not name.isprintable() or len(name.encode()) > 200:
        raise RefusedError(f"name={file!r}: give a file name such as transactions.csv")
    return name


def remote_options(command: str) -> list[str]:
    """The options that clients may set: none that can name a file, an address or a query."""
    return [field.name for field in options_of(command) if field.metadata["remote"]]


def _with_underscores(options: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name.replace("-", "_"), value) for name, value in options]


def _values(options: Iterable[tuple[str, str]], command: str) -> dict[str, Any]:
    allowed, values = remote_options(command), dict[str, Any]()
    for name, value in options:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise RefusedError(f"there is no option {name!r}.{hint} Options of this job: {', '.join(allowed)}")
        if name in values and not is_list(name):
            raise RefusedError(f"{name} is given twice; give it once")
        if name in ("known_normal", "known_anomalies") and is_known_file(value):
            raise RefusedError(f"{name}={value}: give row numbers or ids, not a file")
        values[name] = [*values.get(name, []), value] if is_list(name) else value
    return values
