"""Small sets and plans for the tests of experiments, in place of the registry's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from addml.pipeline.rivals import Row
from research import plans
from research.datasets import LabelledArray
from research.experiment import Case
from research.plans import Plan


def blob(name: str, rows: int = 60, columns: int = 3, seed: int = 0) -> LabelledArray:
    """Normal rows around zero and every sixth row far away."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(rows, columns)), (np.arange(rows) % 6 == 0).astype(int)
    X[y == 1] += 6
    return LabelledArray(name, X, y)


def plan(
    name: str = "table2", sets: tuple[str, ...] = ("one", "two"), methods: tuple[str, ...] = ("HBOS", "KNN"), **more
):
    """A comparison of quick methods."""
    cases = tuple(Case(method) for method in methods)
    paper = {"paper": {method: method for method in methods if method in plans.paper()["table2"]["methods"]}}
    given = {"title": "A toy", "kind": "comparison", "words": "", "apart": (), "against": "KNN", "more": paper}
    return Plan(name=name, sets=sets, cases=cases, **{**given, **more})


def row(name: str, method: str, setting: str, auc: float, run: int = 0, **more) -> Row:
    """One stored run."""
    given = {"experiment": "table2", "variant": "", "settings": "{}", "ap": auc / 2, "fit_seconds": 1.0}
    return {"set": name, "method": method, "setting": setting, "seed": run, "fold": 0, "auc": auc, **given, **more}


def command(*arguments: object) -> list[str]:
    """The command line of `python -m research` with these arguments."""
    return [sys.executable, "-m", "research", *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """In which a new process, in any folder, finds `research`."""
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), **variables}
