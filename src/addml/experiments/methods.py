"""Who takes part: ADDML in the paper's settings and in its own, and the rivals of `addml.baselines`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from addml.config import Config
from addml.detector import ADDML
from addml.errors import UserError
from addml.text import did_you_mean

PAPER, DEFAULT = "ADDML.paper", "ADDML"
OWN = (PAPER, DEFAULT)
ONE_CLASS = {"normal_ratio": 1.0}  # of the paper's settings where all training rows are normal; ours are not told
OF_THE_RUN = ("random_state", "device", "n_jobs", "verbose", "contamination")  # no settings of the method


class Fitted(Protocol):
    """What is compared: a detector that has learned from rows without labels."""

    @property
    def anomaly_scores_(self) -> np.ndarray:
        """The scores of the rows that it learned from."""
        ...

    def anomaly_score(self, X: Any) -> np.ndarray:
        """How anomalous each row of X is."""
        ...


def names() -> list[str]:
    """All methods by name, ours first."""
    from addml.baselines import BASELINES

    return [*OWN, *BASELINES]


def title(name: str) -> str:
    """The method as the paper's table calls it, else by its name."""
    from addml.baselines import BASELINES

    return (BASELINES[name].column or name) if name in BASELINES else name


def seeded(name: str) -> bool:
    """Whether what a method finds depends on its seed."""
    from addml.baselines import BASELINES

    return name in OWN or BASELINES[name].seeded


def work(name: str, rows: int, columns: int) -> int:
    """About how long a method takes on a set of this size, in steps of a thousandth of a millisecond."""
    by_square = {"OCSVM": 12, "KNN": 400, "LOF": 400}  # kernels and neighbours grow with the square of the rows
    return rows**2 // by_square[name] if name in by_square else rows * (columns + 64)


def known(given: Sequence[str]) -> list[str]:
    """The methods named, however their letters are cased; an unknown one is an error that lists them all."""
    all_names = names()
    by_name = {name.lower(): name for name in all_names}
    found = []
    for text in given:
        for part in filter(None, (part.strip() for part in text.split(","))):
            if part.lower() not in by_name:
                hint = did_you_mean(part, all_names)
                raise UserError(f"{part!r} is no method (--methods).{hint} Methods: {', '.join(all_names)}.")
            found.append(by_name[part.lower()])
    if given and not found:
        raise UserError(f"--methods names none. Methods: {', '.join(all_names)}.")
    return list(dict.fromkeys(found))


def make(name: str, settings: Mapping[str, Any], *, one_class: bool, seed: int, device: str, jobs: int | None) -> Any:
    """A new detector of this name; `settings` are changes of its own."""
    if name in OWN:
        from addml.detector import ADDML

        start, told = (ADDML.paper, one_class) if name == PAPER else (ADDML, False)
        changes = {**(ONE_CLASS if told else {}), **_with_scorer(settings)}
        return start(**changes, random_state=seed, device=device, n_jobs=jobs)
    from addml import baselines

    return baselines.make(name, random_state=seed, **settings)


def _with_scorer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, a scorer that a plan describes by its own settings made of them."""
    from addml.scoring import SCORERS

    scorer = settings.get("scorer")
    if not isinstance(scorer, Mapping):
        return dict(settings)
    own = dict(scorer)
    return {**settings, "scorer": SCORERS[own.pop("name")](**own)}


def effective(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a method by its value, with what one-class data changes, so that results tell what made them."""
    polluted, clean = (_settings_of(name, settings, one_class) for one_class in (False, True))
    changed = {key: value for key, value in clean.items() if value != polluted[key]}
    return {**polluted, "one_class": changed} if changed else polluted


def _settings_of(name: str, settings: Mapping[str, Any], one_class: bool) -> dict[str, Any]:
    from addml.baselines.registry import described

    if name in OWN:
        detector = make(name, settings, one_class=one_class, seed=0, device="cpu", jobs=None)
    else:
        detector = described(name, random_state=0, **settings)
    values = {key: value for key, value in detector.get_params(deep=False).items() if key not in OF_THE_RUN}
    if isinstance(detector, ADDML):
        values |= Config.resolve(detector.get_params(deep=False)).resolved()
    return {**values, **{key: value for key, value in settings.items() if isinstance(value, Mapping)}}
