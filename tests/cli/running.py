"""Commands run as a shell would run them, and the tables they are given."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

QUICK = ("--members", "2", "--epochs", "6")  # enough to rank rows, whatever the quality


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

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
        """Check that it went well and printed these words."""
        assert self.code == 0, (self.code, self.out, self.err)
        for word in words:
            assert word in self.out, f"{word!r} is not in: {self.out}"
        return self


def command(*arguments: object) -> list[str]:
    """The command line of `addml` with these arguments."""
    return [sys.executable, "-m", "addml", *map(str, arguments)]


def run_addml(folder: Path, *arguments: object, stdin: bytes = b"", **variables: str) -> Done:
    """Run `addml` with these arguments in a folder."""
    done = subprocess.run(
        command(*arguments), cwd=folder, input=stdin, capture_output=True, env={**os.environ, **variables}, check=False
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


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


def left_in(folder: Path) -> set[str]:
    """The names of the files in a folder, hidden ones too."""
    return {path.name for path in folder.iterdir()}
