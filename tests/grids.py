"""Grids of cases for `pytest.mark.parametrize`, of which `-m "not slow"` runs a small part."""

from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*values: Any) -> list[Any]:
    """Every combination of these values; marked slow are those which no pair of values needs to be seen once."""
    grid = list(product(*(range(len(list(some))) for some in values)))
    unseen = {pair for case in grid for pair in _pairs(case)}
    chosen = set()
    while unseen:
        case = max(grid, key=lambda one: len(unseen.intersection(_pairs(one))))
        chosen.add(case)
        unseen.difference_update(_pairs(case))
    cases = [(case, [list(some)[place] for some, place in zip(values, case, strict=True)]) for case in grid]
    return [pytest.param(*given, marks=[] if case in chosen else pytest.mark.slow) for case, given in cases]


def _pairs(case: tuple[int, ...]) -> list[Any]:
    return list(combinations(enumerate(case), 2))
