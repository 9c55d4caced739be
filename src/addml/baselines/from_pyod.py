"""PyOD's detectors under the contract of all rivals; PyOD itself is imported on the first fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from addml import parameters
from addml.baselines.rival import Rival

MODULES = {
    "MCD": "pyod.models.mcd",
    "CBLOF": "pyod.models.cblof",
    "ECOD": "pyod.models.ecod",
    "COPOD": "pyod.models.copod",
    "DeepSVDD": "pyod.models.deep_svdd",
    "LUNAR": "pyod.models.lunar",
    "AutoEncoder": "pyod.models.auto_encoder",
}


class FromPyOD(Rival):
    """The PyOD detector of this name, with settings of its own.

    ECOD and COPOD rank new rows together with the training rows: there a score depends on the rows scored beside it.
    """

    def __init__(
        self,
        detector: str = "ECOD",
        *,
        settings: Mapping[str, Any] | None = None,
        contamination: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.detector = detector
        self.settings = settings
        self.contamination = contamination
        self.random_state = random_state

    def _check_parameters(self) -> None:
        parameters.one_of("detector", self.detector, MODULES)

    def _fit(self, Z: np.ndarray) -> None:
        seed = int(parameters.generator_seed(self.random_state).generate_state(1)[0])
        kind = _pyod_class(self.detector)
        arguments = self._arguments(kind, Z.shape[1], seed)
        with _seeded(seed):
            detector = kind(**arguments)
            try:
                self.detector_ = detector.fit(Z)
            except Exception as error:  # of any kind, such as UnboundLocalError where rows are few
                raise ValueError(f"{self._name()} could not be fitted: {error}") from error

    def _arguments(self, kind: Any, width: int, seed: int) -> dict[str, Any]:
        ours = {"contamination": self.contamination, "random_state": seed, "verbose": 0, "n_features": width}
        taken = signature(kind).parameters
        return {name: value for name, value in ours.items() if name in taken} | dict(self.settings or {})

    def _score(self, Z: np.ndarray) -> np.ndarray:
        return np.asarray(self.detector_.decision_function(Z))

    def _training_scores(self, Z: np.ndarray) -> np.ndarray:
        return np.asarray(self.detector_.decision_scores_)

    def _name(self) -> str:
        return f"PyOD's {self.detector}"


def _pyod_class(name: str) -> Any:
    try:
        return getattr(import_module(MODULES[name]), name)
    except ImportError as error:
        raise ImportError(f"{name} comes from PyOD: pip install 'addml[pyod]' ({error})") from error


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's and torch's global generators, which PyOD draws from, seeded inside and put back behind."""
    before, torch = np.random.get_state(), sys.modules.get("torch")
    np.random.seed(seed)
    try:
        with nullcontext() if torch is None else torch.random.fork_rng():
            if torch is not None:
                torch.manual_seed(seed)
            yield
    finally:
        np.random.set_state(before)
