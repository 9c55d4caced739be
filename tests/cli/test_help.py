"""Help is complete and quick."""

import resource
import subprocess
import sys

import pytest
from typer.main import get_command

from addml.cli.app import app
from tests.cli.running import command

COMMANDS = ["detect", "fit", "score", "evaluate", "info", "diff", "demo", "reproduce", "compare"]
GROUPS = ["data"]
HEAVY = {"numpy", "pyarrow", "sklearn", "torch", "pandas", "scipy"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_documented(name):
    one = get_command(app).commands[name]
    assert str(one.help).endswith("."), f"addml {name} says nothing about itself"
    for parameter in one.params:
        assert str(parameter.help).endswith("."), f"addml {name}: {parameter.name} is not documented"


def test_the_commands_are_these():
    assert list(get_command(app).commands) == COMMANDS + GROUPS


def test_help_imports_nothing_heavy():
    program = f"import sys, addml.cli.app; print(*sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_help_answers_at_once():
    """Under 0.3 s on a machine with nothing else to do: processor time, which other programs hardly change."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command("--help"), capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert b"detect" in done.stdout
    assert min(times) < 0.3, times


def test_shell_completion_knows_the_commands(addml):
    done = addml("", _ADDML_COMPLETE="complete_bash", COMP_WORDS="addml de", COMP_CWORD="1")
    assert set(done.out.split()) == {"detect", "demo"}
