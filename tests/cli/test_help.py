"""Help is complete and quick."""

import subprocess
import sys

import pytest
from typer.main import get_command

from addml.cli.commands import app

COMMANDS = ["detect", "fit", "score", "evaluate", "info", "diff", "export", "demo", "compare", "serve"]
HEAVY = {"numpy", "pyarrow", "sklearn", "torch", "pandas", "scipy"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_documented(name):
    one = get_command(app).commands[name]
    assert str(one.help).endswith("."), f"addml {name} says nothing about itself"
    for parameter in one.params:
        assert str(parameter.help).endswith("."), f"addml {name}: {parameter.name} is not documented"


@pytest.mark.parametrize("name", ["detect", "fit", "score", "evaluate", "diff"])
def test_help_fits_on_a_screen(addml, name):
    """80 lines of 80 columns; --help-all shows the other options too."""
    lines = addml(name, "--help", COLUMNS="80").succeeded("--json").out.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 80
    assert "--encoding" not in "\n".join(lines)
    addml(name, "--help-all", COLUMNS="80").succeeded("--json", "--encoding")


def test_help_shows_brackets_as_they_are(addml):
    addml("fit", "--help-all", COLUMNS="200").succeeded("needs addml[ray]")
    addml("serve", "--help", COLUMNS="200").succeeded("serve [OPTIONS] [MODEL]...")


def test_the_commands_are_these():
    assert list(get_command(app).commands) == COMMANDS


def test_help_imports_nothing_heavy():
    """What `addml --help` takes is the imports: `python -m benchmarks files` measures it."""
    program = f"""
import atexit, sys
atexit.register(lambda: print(*sorted({HEAVY} & set(sys.modules)), file=sys.stderr))
sys.argv = ["addml", "--help"]
from addml.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "detect" in done.stdout
    assert done.stderr.split() == []


def test_shell_completion_knows_the_commands(addml):
    done = addml("", _ADDML_COMPLETE="complete_bash", COMP_WORDS="addml de", COMP_CWORD="1")
    assert set(done.out.split()) == {"detect", "demo"}
