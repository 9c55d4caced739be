"""Run commands as a shell would, and write tables for them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from addml.cli import main

END = b"\0the end\0"  # no command prints it
QUICK = ("--members", "2", "--epochs", "6")  # enough to rank rows, whatever the quality


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    def failed(self, *words: str, code: int = 1) -> Done:
        """Check that it failed with these words in one short message and no traceback."""
        assert self.code == code, (self.code, self.out, self.err)
        assert "Traceback" not in self.err, self.err
        for word in words:
            assert word in self.err, f"{word!r} is not in: {self.err}"
        return self

    def succeeded(self, *words: str) -> Done:
        """Check that it succeeded and printed these words."""
        assert self.code == 0, (self.code, self.out, self.err)
        for word in words:
            assert word in self.out, f"{word!r} is not in: {self.out}"
        return self


def command(*arguments: object) -> list[str]:
    """The command line of `addml` with these arguments."""
    return [sys.executable, "-m", "addml", *map(str, arguments)]


def run_addml(
    folder: Path, *arguments: object, stdin: bytes = b"", main: Callable[[], None] = main, **variables: str
) -> Done:
    """Run `addml` with these arguments in a folder, in this process, and capture its streams."""
    with _standard_input(stdin), _captured(1) as out, _captured(2) as err:
        code = exit_code(folder, *arguments, main=main, **variables)
    return Done(code, *(read.result().decode(errors="surrogateescape") for read in (out, err)))


def exit_code(folder: Path, *arguments: object, main: Callable[[], None] = main, **variables: str) -> int:
    """The exit code of `addml` with these arguments in a folder, in this process, with its streams."""
    with _process_state(folder, ["addml", *map(str, arguments)], variables):
        try:
            main()
        except SystemExit as end:
            return end.code or 0  # type: ignore[return-value]
    return 0


def spawn_addml(folder: Path, *arguments: object, **variables: str) -> Done:
    """Run `addml` with these arguments in a folder, in a new process."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command(*arguments), cwd=folder, input=b"", capture_output=True, env=environment, check=False)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def _process_state(folder: Path, words: list[str], variables: dict[str, str]) -> Iterator[None]:
    """Set arguments, streams, environment, signals and warnings as in a new process; restore them afterwards."""
    streams = [open(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")]  # noqa: SIM115
    files = dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    with (
        chdir(folder),
        mock.patch.dict(os.environ, variables),
        mock.patch.multiple(sys, argv=words, excepthook=sys.excepthook, **files),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for stream in streams:
                stream.close()


@contextmanager
def _standard_input(content: bytes) -> Iterator[None]:
    with tempfile.TemporaryFile() as source:
        source.write(content)
        source.seek(0)
        with redirected(0, source.fileno()):
            yield


@contextmanager
def _captured(number: int) -> Iterator[Future[bytes]]:
    """The output to a stream, read from a pipe up to END: a child process that survives does not hold it open."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as pipe, open(writing, "wb", buffering=0), ThreadPoolExecutor(1) as reader:
        output = reader.submit(_until_end, pipe)
        try:
            with redirected(number, writing):
                yield output
        finally:
            os.write(writing, END)


def _until_end(pipe: io.RawIOBase) -> bytes:
    content = b""
    while not content.endswith(END):
        content += pipe.read(1 << 16) or b""
    return content.removesuffix(END)


@contextmanager
def redirected(number: int, target: int) -> Iterator[None]:
    """Redirect a file descriptor of this process, which also redirects /dev/stdout."""
    original = os.dup(number)
    os.dup2(target, number)
    try:
        yield
    finally:
        os.dup2(original, number)
        os.close(original)


def write_small(path: Path, rows: int = 300, header: str = "name,height,weight,colour,when") -> Path:
    """Names, two numbers that belong together, a category and a date."""
    random = np.random.default_rng(5)
    height = random.normal(170, 8, rows)
    weight = height - 100 + random.normal(0, 4, rows)
    height[min(41, rows - 1)] = 260
    lines = [header]
    for row in range(rows):
        colour, day = ("red", "green", "blue")[row % 3], f"2025-03-{1 + row % 28:02d}"
        lines.append(f"person-{row + 1:05d},{height[row]:.1f},{weight[row]:.1f},{colour},{day}")
    path.write_text("\n".join(lines) + "\n")
    return path


def files_in(folder: Path) -> set[str]:
    """The names of the files in a folder, including hidden ones."""
    return {path.name for path in folder.iterdir()}
