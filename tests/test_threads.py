"""How many threads may be used."""

import os

import pytest

from addml.compute import most_threads


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, 4), (-1, 4), (-2, 3), (-9, 1), (1, 1), (6, 6)])
def test_threads_by_the_convention_of_scikit_learn(n_jobs, expected):
    assert most_threads(n_jobs) == expected


@pytest.mark.parametrize(
    ("said", "expected"), [("1", 1), ("3", 3), ("2,1", 2), (" 2 ", 2), ("8", 4), ("0", 4), ("", 4)]
)
def test_who_says_nothing_is_held_to_what_the_environment_allows(monkeypatch, said, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert most_threads(None) == expected
    assert most_threads(-1) == 4
    assert most_threads(3) == 3
