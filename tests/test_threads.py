"""How many threads may be used."""

import os
import time

import pytest

from addml.compute import in_threads, max_threads


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, 4), (-1, 4), (-2, 3), (-9, 1), (1, 1), (6, 6)])
def test_threads_by_the_convention_of_scikit_learn(n_jobs, expected):
    assert max_threads(n_jobs) == expected


@pytest.mark.parametrize(
    ("said", "expected"), [("1", 1), ("3", 3), ("2,1", 2), (" 2 ", 2), ("8", 4), ("0", 4), ("", 4)]
)
def test_who_says_nothing_is_held_to_what_the_environment_allows(monkeypatch, said, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert max_threads(None) == expected
    assert max_threads(-1) == 4
    assert max_threads(3) == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_has_not_begun_is_left_undone_behind_an_error(error):
    """An interrupt would otherwise be heard when all is done, and a bad row of many said then."""
    begun = []

    def work(part):
        begun.append(part)
        if part == 3:
            raise error
        time.sleep(0.001)

    with pytest.raises(error):
        in_threads(work, 5000, 2)
    assert len(begun) < 5000
    in_threads(begun.append, 3, 2)
    assert sorted(begun[-3:]) == [0, 1, 2]
