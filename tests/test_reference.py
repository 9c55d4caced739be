"""docs/api.md names what a program imports, and nothing that is not there."""

import importlib
import re
from pathlib import Path

import pytest

import addml
from addml import client, scoring

REFERENCE = Path(__file__).parents[1] / "docs" / "api.md"
NAMED = re.findall(r"^\.\. auto\w+:: ([\w.]+)$", REFERENCE.read_text(), re.MULTILINE)


def test_every_public_name_is_there():
    scorers = {kind.__name__ for kind in scoring.SCORERS.values()}
    public = {f"addml.{name}" for name in addml.__all__} - {"addml.__version__"}
    public |= {f"addml.scoring.{name}" for name in scorers - {name.split(".")[1] for name in public}} | {
        "addml.pyod.ADDML",
        "addml.stream.Stream",
    }
    public |= {"addml.pipeline.rivals.make", f"{client.__name__}.Client", f"{client.__name__}.ServerError"}
    assert public <= set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_every_name_is_documented(name):
    module, own = name.rsplit(".", 1)
    if module == "addml.pyod":
        pytest.importorskip("pyod", reason="the extra addml[pyod] is not installed")
    assert getattr(importlib.import_module(module), own).__doc__
