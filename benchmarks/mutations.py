"""`python -m benchmarks.mutations`: break twenty lines, one at a time, and see whether `make test` notices.

First run `make test ARGS="--cov=addml --cov-branch --cov-context=test"`, which records in `.coverage` the tests of
each line. A line's tests then run on a copy of the package in which it is broken. A line without tests counts as
missed.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SEED, LINES, MOST_TESTS = 0, 20, 60
BOUNDS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
          ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}  # fmt: skip
SIGNS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
WRITTEN = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
           ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
           ast.Div: "/"}  # fmt: skip


class Mutation(NamedTuple):
    """A line of a file and its replacement."""

    file: Path
    line: int
    before: str
    after: str


def mutations(file: Path) -> Iterator[Mutation]:
    """The possible mutations of a file: a bound, a sign, a call whose result is unused."""
    lines = file.read_text().splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            found = _swapped(lines, node.left, type(node.ops[0]), node.comparators[0], BOUNDS)
        elif isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
            found = _swapped(lines, node.left, type(node.op), node.right, SIGNS)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == node.end_lineno:
            before = lines[node.lineno - 1]
            found = node.lineno, before, before[: node.col_offset] + "pass" + before[node.end_col_offset :]
        else:
            continue
        if found is not None:
            yield Mutation(file, *found)


def _swapped(
    lines: list[str], left: ast.expr, operator: type, right: ast.expr, by: dict[type, str]
) -> tuple[int, str, str] | None:
    """The line with another operator, if both operands are on it."""
    if left.end_lineno != right.lineno or left.end_col_offset is None or operator not in by:
        return None
    line = lines[right.lineno - 1]
    if not line.isascii():  # offsets are in bytes
        return None
    between = line[left.end_col_offset : right.col_offset]
    changed = between.replace(WRITTEN[operator], by[operator], 1)
    return (
        None
        if changed == between
        else (right.lineno, line, line[: left.end_col_offset] + changed + line[right.col_offset :])
    )


def drawn() -> list[Mutation]:
    """One mutation for each of the lines drawn at random."""
    found: dict[tuple[Path, int], list[Mutation]] = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        for mutation in mutations(file):
            found.setdefault((file, mutation.line), []).append(mutation)
    draw = random.Random(SEED)
    return [draw.choice(found[index]) for index in draw.sample(sorted(found), LINES)]


def tests_of(mutation: Mutation) -> list[str]:
    """Some of the tests that run the line, from as many files as possible."""
    from coverage import CoverageData

    data = CoverageData(os.environ.get("COVERAGE_FILE", str(ROOT / ".coverage")))
    data.read()
    file = next((name for name in data.measured_files() if name.endswith(str(mutation.file.relative_to(ROOT)))), None)
    contexts = data.contexts_by_lineno(file).get(mutation.line, []) if file else []
    tests = sorted({context.rpartition("|")[0] for context in contexts} - {""})
    random.Random(SEED).shuffle(tests)
    return tests[:MOST_TESTS]


def is_noticed(mutation: Mutation, tests: list[str]) -> bool:
    """Whether one of these tests fails on a copy of the package with the mutation."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__"))
        copy = Path(folder) / mutation.file.relative_to(ROOT)
        lines = copy.read_text().splitlines()
        lines[mutation.line - 1] = mutation.after
        copy.write_text("\n".join(lines) + "\n")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        variables = {**os.environ, "PYTHONPATH": str(Path(folder) / "src")}
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1, 2, 3):
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return done.returncode != 0


def main() -> None:
    """Break one line after another and report which are noticed."""
    noticed = 0
    for mutation in drawn():
        tests = tests_of(mutation)
        found = bool(tests) and is_noticed(mutation, tests)
        noticed += found
        state = "noticed" if found else f"MISSED ({len(tests)} tests)"
        print(f"{state}: {mutation.file.relative_to(ROOT)}:{mutation.line}", flush=True)
        print(f"    {mutation.before.strip()}\n    {mutation.after.strip()}", flush=True)
    print(f"{noticed} of {LINES} noticed")


if __name__ == "__main__":
    main()
