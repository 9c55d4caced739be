"""A registry of two small sets, and one that is missing."""

import pytest

from addml.experiments import sets
from tests.experiments.toy import blob


@pytest.fixture
def registry(monkeypatch):
    """Sets `one` and `two`; `gone` is known and not available."""
    known = {"one": blob("one"), "two": blob("two", 48, seed=1)}
    monkeypatch.setattr(sets, "is_here", lambda name: name in known)
    monkeypatch.setattr(sets, "load", lambda name: known[name])
    monkeypatch.setattr(sets, "size", lambda name: known[name].shape)
    monkeypatch.setattr(sets, "title", str.title)
    return known
