"""Findings of a real fit, and a browser where there is one."""

import pytest

from tests.report import sample
from tests.report.devtools import CHROMIUM, Browser


@pytest.fixture(scope="session")
def findings():
    """What a real fit on the breast-cancer table found."""
    return sample.breast_cancer()


@pytest.fixture(scope="session")
def million():
    """A million rows, a tenth of them flagged."""
    return sample.million()


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH: apt-get install -y --no-install-recommends chromium")
    one = Browser()
    yield one
    one.close()
