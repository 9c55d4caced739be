"""Fixtures of the tests of the commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.running import QUICK, Done, run_addml, write_small


@pytest.fixture
def addml(tmp_path: Path) -> Callable[..., Done]:
    """Run `addml` with these arguments in an empty folder of the test's own."""
    return partial(run_addml, tmp_path)


@pytest.fixture
def small_csv(tmp_path: Path) -> Path:
    """A plain table of 300 rows in which row 42 is far from all others."""
    return write_small(tmp_path / "small.csv")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the small table."""
    folder = tmp_path_factory.mktemp("model")
    write_small(folder / "small.csv")
    run_addml(folder, "fit", "small.csv", *QUICK).succeeded()
    return folder / "small.model"
