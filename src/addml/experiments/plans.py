"""What each experiment does, from its .toml file: sets, methods and their settings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from addml.errors import UserError
from addml.experiments import methods, runs, sets, timing
from addml.experiments.fitting import Case, Machine, run_case
from addml.text import did_you_mean

NAMES = (
    "table2",
    "table1",
    "figure-rho-n",
    "figure-rho-h",
    "figure-space",
    "choices",
    "rivals",
    "autoencoder",
    "runtime",
    "extension",
    "leaders",
    "ladder",
)
ALL = "all"


@dataclass(frozen=True)
class Plan:
    """One experiment."""

    name: str
    title: str
    kind: str  # comparison, ablation, sweep, runtime or space
    words: str
    sets: tuple[str, ...]
    apart: tuple[str, ...]  # sets that are shown and not averaged
    cases: tuple[Case, ...]
    against: str  # the method that the others are tested against
    more: Mapping[str, Any]  # what only one kind of plan has

    @property
    def labels(self) -> list[str]:
        """The cases by what they are called in tables."""
        return [case.label for case in self.cases]

    @property
    def methods(self) -> list[str]:
        """The methods of its cases; the metric space is the paper's."""
        return [methods.PAPER] if self.kind == "space" else [case.method for case in self.cases]

    def tasks(self) -> list[Task]:
        """Every case on every set, whether the set is available or not."""
        if self.kind == "runtime":
            pairs = timing.cases(self.methods, list(self.sets), self.more["runtime"])
            return [Task(self.name, name, case, timed=True) for name, case in pairs]
        return [Task(self.name, name, case) for name in self.sets for case in self.cases]


@dataclass(frozen=True)
class Task:
    """One case on one set: the unit of work, and of going on after a stop."""

    experiment: str
    set: str
    case: Case
    timed: bool = False  # by the clock, in place of the protocol

    @property
    def key(self) -> tuple[str, ...]:
        """What its stored rows are found by."""
        return runs.key_of(self.row())

    def row(self) -> runs.Row:
        """What all its rows have in common."""
        case = self.case
        return {
            "experiment": self.experiment,
            "set": self.set,
            "method": case.method,
            "variant": case.variant,
            "settings": runs.settings_text(methods.effective(case.method, case.settings)),
        }

    def is_here(self) -> bool:
        """Whether its set is available."""
        return self.set.startswith(timing.DRAWN) or sets.is_here(self.set)

    def size(self) -> tuple[int, int]:
        """Rows and columns of its set."""
        return timing.size(self.set) if self.timed else sets.size(self.set)

    def run(self, machine: Machine) -> list[runs.Row]:
        """Its results."""
        if self.timed:
            return timing.run_case(self.case, timing.load(self.set), machine)
        return run_case(self.case, sets.load(self.set), machine)

    def work(self) -> int:
        """About how much there is to do, in steps of any length."""
        return methods.work(self.case.method, *self.size())

    def words(self) -> str:
        """The task as people are told of it."""
        method, variant = self.case.method, self.case.variant
        return f"{sets.title(self.set)}, {method}{f' ({variant})' if variant else ''}"


def named(given: Sequence[str]) -> list[Plan]:
    """The experiments of these names; `all` stands for every one."""
    names = [name for text in given for name in (NAMES if text == ALL else (text,))]
    for name in names:
        if name not in NAMES:
            listed = ", ".join((*NAMES, ALL))
            raise UserError(f"{name!r} is no experiment.{did_you_mean(name, NAMES)} Experiments: {listed}.")
    return [load(name) for name in dict.fromkeys(names)]


@lru_cache
def load(name: str) -> Plan:
    """The experiment of the file NAME.toml."""
    document = tomllib.loads((resources.files("addml.experiments") / "plans" / f"{name}.toml").read_text("utf-8"))
    apart = tuple(document.pop("apart", ()))
    document["paper"] = _in_paper(document)
    listed = dict.fromkeys([*sets.of_plan(document.pop("sets")), *apart])
    return Plan(
        name=name,
        title=document.pop("title"),
        kind=document.pop("kind"),
        words=document.pop("words"),
        sets=tuple(listed),
        apart=apart,
        cases=tuple(_cases(document)),
        against=document.pop("against", methods.PAPER),
        more=document,
    )


def _in_paper(document: dict[str, Any]) -> dict[str, str]:
    """What the paper's Table II calls each case that it has figures for."""
    if "methods" in document:
        return {method: method for method in document["methods"] if method in paper()["table2"]["methods"]}
    return {one["variant"]: one["paper"] for one in document.get("cases", ()) if "paper" in one}


def _cases(document: dict[str, Any]) -> list[Case]:
    """Methods as they are, cases with settings of their own, or one setting in even steps up to 1."""
    if "sweep" in document:
        method, setting, steps = (document["sweep"][name] for name in ("method", "setting", "steps"))
        values = [step / steps for step in range(1, steps + 1)]
        return [Case(method, f"{setting}={value:.2f}", {setting: value}) for value in values]
    if "cases" in document:
        return [Case(one["method"], one["variant"], one.get("settings", {})) for one in document.pop("cases")]
    return [Case(method) for method in document.pop("methods", [])]


@lru_cache
def paper() -> dict[str, Any]:
    """The figures of the paper's tables."""
    return tomllib.loads((resources.files("addml.experiments") / "paper.toml").read_text("utf-8"))
