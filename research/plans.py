"""The sets, methods and settings of each experiment, from its .toml file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from addml.config import Config
from addml.detector import ADDML
from addml.encoders.mlp import HIDDEN, MLP
from addml.errors import AddmlError
from addml.pipeline.rivals import OWN, PAPER, Machine, Row
from addml.text import TABLE, did_you_mean
from research import datasets, experiment, run_store
from research.experiment import METHODS, Case, new_detector

FOLDER = Path(__file__).parent
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
TITLES = {"IsolationForest": "IF", "OCSVM": "OC-SVM", "DeepAutoencoder": "DAE"}  # in the paper's Table II
RUN_SETTINGS = ("random_state", "device", "n_jobs", "verbose", "contamination")  # not settings of the method
BY_SQUARE = {"OCSVM": 12, "KNN": 400, "LOF": 400}  # kernels and neighbours grow with the square of the rows


@dataclass(frozen=True)
class Task:
    """One case on one set: the unit of work, and of resuming."""

    experiment: str
    set: str
    case: Case
    timed: bool = False  # measure seconds instead of running the protocol

    @property
    def title(self) -> str:
        """The task as messages name it."""
        variant = f" ({self.case.variant})" if self.case.variant else ""
        return f"{datasets.title(self.set)}, {self.case.method}{variant}"

    @property
    def key(self) -> tuple[str, ...]:
        """The key of its stored rows."""
        return run_store.key_of(self.row())

    def row(self) -> Row:
        """The values that all its rows share."""
        return {
            "experiment": self.experiment,
            "set": self.set,
            "method": self.case.method,
            "variant": self.case.variant,
            "settings": run_store.settings_text(effective_settings(self.case)),
        }

    def is_available(self) -> bool:
        """Whether its set is on this machine."""
        return self.set.startswith(experiment.DRAWN) or datasets.available(self.set)

    def size(self) -> tuple[int, int]:
        """Rows and columns of its set."""
        return experiment.timed_size(self.set) if self.timed else datasets.size(self.set)

    def work(self) -> int:
        """A rough estimate of its microseconds."""
        rows, columns = self.size()
        by_square = BY_SQUARE.get(self.case.method)
        return rows**2 // by_square if by_square else rows * (columns + 64)

    def run(self, machine: Machine) -> list[Row]:
        """Run it and return its results."""
        if self.timed:
            results = experiment.time_case(self.case, experiment.timed_data(self.set), machine)
        else:
            results = experiment.run_case(self.case, experiment.load(self.set), machine)
        rows, columns = self.size()
        when = datetime.now(UTC).isoformat(timespec="seconds")
        shared = {**self.row(), "rows": rows, "columns": columns, "device": machine.device, "when": when}
        return [{**shared, **result} for result in results]


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
        """The cases as tables name them."""
        return [case.label for case in self.cases]

    @property
    def methods(self) -> list[str]:
        """The methods of its cases; the figure of the metric space uses the paper's detector."""
        return [PAPER] if self.kind == "space" else [case.method for case in self.cases]

    def tasks(self) -> list[Task]:
        """Every case on every set, whether the set is available or not."""
        if self.kind == "runtime":
            pairs = experiment.timed_cases(self.methods, self.sets, self.more["runtime"])
            return [Task(self.name, name, case, timed=True) for name, case in pairs]
        return [Task(self.name, name, case) for name in self.sets for case in self.cases]


def named(texts: Sequence[str]) -> list[Plan]:
    """The experiments of these names; `all` stands for all of them."""
    names = [name for text in texts for name in (NAMES if text == ALL else (text,))]
    for name in names:
        if name not in NAMES:
            listed = ", ".join((*NAMES, ALL))
            raise AddmlError(f"{name!r} is not an experiment.{did_you_mean(name, NAMES)} Experiments: {listed}.")
    return [load(name) for name in dict.fromkeys(names)]


@lru_cache
def load(name: str) -> Plan:
    """The experiment of the file NAME.toml."""
    document = tomllib.loads((FOLDER / "experiments" / f"{name}.toml").read_text("utf-8"))
    apart, sets = tuple(document.pop("apart", ())), document.pop("sets")
    document["paper"] = _in_paper(document)
    listed = datasets.names(sets) if isinstance(sets, str) else sets  # a collection, or one by one
    return Plan(
        name=name,
        title=document.pop("title"),
        kind=document.pop("kind"),
        words=document.pop("words"),
        sets=tuple(dict.fromkeys([*listed, *apart])),
        apart=apart,
        cases=tuple(_cases(document)),
        against=document.pop("against", PAPER),
        more=document,
    )


def _in_paper(document: dict[str, Any]) -> dict[str, str]:
    """By case, its name in the paper's Table II, for the cases that the paper has figures for."""
    if "methods" in document:
        return {method: method for method in document["methods"] if method in paper()["table2"]["methods"]}
    return {case["variant"]: case["paper"] for case in document.get("cases", ()) if "paper" in case}


def _cases(document: dict[str, Any]) -> list[Case]:
    """Plain methods, cases with their own settings, or one setting in equal steps up to 1."""
    if "sweep" in document:
        method, setting, steps = (document["sweep"][name] for name in ("method", "setting", "steps"))
        values = [step / steps for step in range(1, steps + 1)]
        name = setting.rpartition("__")[2]
        return [Case(method, f"{name}={value:.2f}", {setting: value}) for value in values]
    if "cases" in document:
        return [Case(case["method"], case["variant"], case.get("settings", {})) for case in document.pop("cases")]
    return [Case(method) for method in document.pop("methods", [])]


@lru_cache
def paper() -> dict[str, Any]:
    """The figures of the paper's tables."""
    return tomllib.loads((FOLDER / "paper.toml").read_text("utf-8"))


def method_title(name: str) -> str:
    """The method's name in the paper's table, otherwise its own."""
    return TITLES.get(name, name)


def effective_settings(case: Case) -> dict[str, Any]:
    """Every setting of a method, and those that one-class data changes."""
    if case.method not in OWN:
        arguments = signature(METHODS[case.method].learn).parameters.values()
        defaults = {
            argument.name: argument.default for argument in arguments if argument.kind is Parameter.KEYWORD_ONLY
        }
        return {**defaults, **case.settings}
    polluted, clean = (_detector_settings(case, one_class) for one_class in (False, True))
    changed = {key: value for key, value in clean.items() if value != polluted[key]}
    return {**polluted, "one_class": changed} if changed else polluted


def _detector_settings(case: Case, one_class: bool) -> dict[str, Any]:
    detector = new_detector(case, Machine(), one_class=one_class, seed=0)
    values = detector.get_params(deep=False)
    if isinstance(detector, ADDML):
        values = _table_settings(Config.resolve(values))
    return {key: value for key, value in values.items() if key not in RUN_SETTINGS}


def _table_settings(config: Config) -> dict[str, Any]:
    """The settings for a table, with the defaults of its encoder and scorer filled in."""
    encoder, scaling = config.encoder_for(TABLE), "robust" if config.robust else "standard"
    if isinstance(encoder, MLP) and encoder.hidden is None:
        encoder = replace(encoder, hidden=HIDDEN)
    defaults: dict[str, Any] = {"encoder": encoder, "scorer": config.scorer_for(None), "scaling": scaling}
    return replace(config, **defaults, learning_rate=config.rate(TABLE)).to_plain()
