"""The package's layout: a module imports from lower levels only, and `import addml` loads nothing heavy."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "addml"

LEVELS = {
    name: level
    for level, names in enumerate(
        [
            "text parameters",
            "errors progress arrays arrow compute",
            "distances",
            "preprocessing io encoders learning scoring decisions",
            "inputs",
            "model",
            "model_file recent_steps",
            "explain stream",
            "checkpoint config",
            "disk_fit",
            "fit",
            "detector",
            "findings onnx pyod",
            "pipeline",
            "cluster",
            "report",
            "client server",
            "cli",
            "__main__",
        ]
    )
    for name in names.split()
}
LONGEST_MODULE, LONGEST_FUNCTION, MOST_MODULES, MOST_LINES = 400, 40, 110, 25_000
ROOT, RESEARCH = "addml", "research"
# The detector's conveniences (reports, charts, a notebook's summary) are those of the command line, asked for late.
LATE = {("detector", "report")}
# `from addml import ADDML` may reach any public module, so only cli and __main__ say it.
ROOT_LEVEL = LEVELS["report"]

Import = tuple[str, int, bool]  # dotted name, line, whether it runs when the module is imported


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def absolute(name: str, dots: int, package: str) -> str:
    """The full name of `dots` dots and `name`, seen from `package`."""
    if not dots:
        return name
    above = package.split(".")[: len(package.split(".")) - dots + 1]
    return ".".join([*above, name] if name else above)


def names_imported(node: ast.AST, package: str) -> list[str]:
    """The dotted names that one node imports, by statement or by `import_module("...")`."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            base = absolute(node.module or "", node.level, package)
            return [f"{base}.{alias.name}" for alias in node.names]
        case ast.Call(args=[ast.Constant(value=str(name)), *_]):
            called = ast.unparse(node.func)
            if called in ("import_module", "importlib.import_module", "__import__"):
                stem = name.lstrip(".")
                return [absolute(stem, len(name) - len(stem), package)]
    return []


def imports(tree: ast.AST, package: str, runs: bool = True) -> Iterator[Import]:
    """Every import of a tree, wherever it stands."""
    for node in ast.iter_child_nodes(tree):
        for name in names_imported(node, package):
            yield name, node.lineno, runs
        if is_type_checking(node):
            for part in node.body:
                yield from imports(ast.Module([part], []), package, False)
            for part in node.orelse:
                yield from imports(ast.Module([part], []), package, runs)
        else:
            lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(node, package, runs and not lazy)


def complaint(module: str, name: str, runs: bool) -> str | None:
    """Why `module` (its full dotted name) may not import `name`, or None where it may."""
    if name.split(".")[0] == RESEARCH:
        return f"imports {name}, which is not in the wheel; research may import addml, never the other way round"
    if name.split(".")[0] != ROOT:
        return None
    own, target = (*module.split("."), "")[1], (*name.split("."), "")[1]
    if module == ROOT:
        return f"imports {name} at once; it must do so inside a function" if runs else None
    if target not in LEVELS:
        if target.startswith("__") or LEVELS[own] > ROOT_LEVEL:
            return None  # __version__ costs nothing
        return f"imports {name} through the package's root; import it from its own module"
    if own == target or LEVELS[target] < LEVELS[own] or ((own, target) in LATE and not runs):
        return None
    return f"(level {LEVELS[own]}) imports {name} (level {LEVELS[target]}); only lower levels may be imported"


def complaints(module: str, source: str, is_package: bool = False) -> list[str]:
    """Every breach of the layout in one module's source."""
    top = (*module.split("."), "")[1]
    if top and top not in LEVELS:
        return [f"{module} has no level: add {top!r} to LEVELS in tests/test_layout.py"]
    package = module if is_package else module.rpartition(".")[0]
    found = imports(ast.parse(source), package)
    reasons = ((line, complaint(module, name, runs)) for name, line, runs in found)
    return [f"{module}, line {line}: {reason}" for line, reason in reasons if reason]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_modules_import_from_lower_levels_only():
    paths = sorted(SOURCES.rglob("*.py"))
    assert paths, f"no module under {SOURCES}"
    found = [
        line for path in paths for line in complaints(module_name(path), path.read_text(), path.stem == "__init__")
    ]
    assert not found, "\n".join(found)


def test_every_level_is_of_modules_that_exist():
    modules = {path.stem for path in SOURCES.glob("*.py")} | {
        path.parent.name for path in SOURCES.glob("*/__init__.py")
    }
    assert set(LEVELS) == modules - {"__init__"}


def test_the_architecture_names_every_module():
    document = (SOURCES.parents[1] / "docs" / "architecture.md").read_text()
    named = {word for quoted in re.findall(r"`([^`]+)`", document) for word in re.split(r"\W", quoted)}
    modules = [path for path in SOURCES.rglob("*.py") if not path.stem.startswith("__")]
    assert [module_name(path) for path in modules if path.stem not in named] == []


def test_modules_are_small_and_named_once():
    paths = sorted(SOURCES.rglob("*.py"))
    lines = {module_name(path): path.read_text().count("\n") for path in paths}
    assert {module: count for module, count in lines.items() if count > LONGEST_MODULE} == {}
    assert len(paths) <= MOST_MODULES
    assert sum(lines.values()) <= MOST_LINES
    names = [path.stem for path in paths if not path.stem.startswith("__")]
    assert {name for name in names if names.count(name) > 1} == set()


def test_functions_are_short():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        (module_name(path), node.name, length)
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, functions) and (length := node.end_lineno - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert [one for one in found if one[:2] != ("addml.detector", "__init__")] == []  # 20 parameters, 20 assignments


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"torch", "sklearn", "pyarrow", "pandas", "scipy"}
    program = f"import sys, addml; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("addml.compute", "from addml.distances import smallest"),
        ("addml.distances", "import numpy, addml.detector"),
        ("addml.io.read", "from addml.learning.training import train"),
        ("addml.io.read", "from addml import scoring"),
        ("addml.io.read", "from ..scoring import scorers"),
        ("addml.inputs.table", "from .. import detector"),
        ("addml.inputs.table", "def read():\n    from addml import detector"),
        ("addml.inputs.table", "class Rows:\n    async def read(self):\n        import addml.cli"),
        ("addml.inputs.table", "if TYPE_CHECKING:\n    from addml.detector import ADDML"),
        ("addml.inputs.table", "try:\n    pass\nexcept ImportError:\n    import addml.report"),
        ("addml.inputs.table", "import importlib\nimportlib.import_module('addml.detector')"),
        ("addml.inputs.table", "f = lambda: import_module('..detector', __package__)"),
        ("addml.pipeline.sources", "from addml.cli import compare"),
        ("addml.pipeline.rivals", "from research.tables import Grid"),
        ("addml.cli.compare", "def show():\n    import research"),
        ("addml", "def run():\n    import_module('research.plans')"),
        ("addml.report.html", "from addml import ADDML"),
        ("addml.report.html", "import addml"),
        ("addml.report.html", "from .. import *"),
        ("addml.detector", "from addml.helpers import anything"),
        ("addml", "from addml.detector import ADDML"),
        ("addml", "import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    from addml import geometry"),
    ],
)
def test_a_breach_is_found(module, source):
    assert len(complaints(module, source)) == 1


def test_a_breach_by_a_folder_itself_is_found():
    assert complaints("addml.inputs", "from . import rows", is_package=True) == []
    assert len(complaints("addml.io", "from .. import learning", is_package=True)) == 1
    assert len(complaints("addml", "from . import detector", is_package=True)) == 1


def test_a_module_without_a_level_is_named():
    (found,) = complaints("addml.helpers", "import numpy")
    assert "add 'helpers' to LEVELS" in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("addml.inputs.table", "import numpy\nfrom addml.distances import cutoff\nfrom .. import text"),
        ("addml.inputs.table", "from .array import scale\nfrom . import disk\nimport addml.inputs.series"),
        ("addml.model_file", "from addml import __version__"),
        ("addml.pipeline.rivals", "from pyod.models.base import BaseDetector\nfrom ..detector import ADDML"),
        ("addml.detector", "from addml import inputs, distances\nimport addml.learning.training as training"),
        ("addml.cli.commands", "from addml import ADDML"),
        ("addml.__main__", "from addml.cli import main"),
        ("addml", "def __getattr__(name):\n    from addml.detector import ADDML\n    return ADDML"),
        ("addml", "if TYPE_CHECKING:\n    from addml.detector import ADDML"),
    ],
)
def test_what_is_allowed_passes(module, source):
    assert complaints(module, source) == []
