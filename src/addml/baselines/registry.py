"""The rivals by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from addml import parameters

if TYPE_CHECKING:
    from addml.baselines.rival import Rival


@dataclass(frozen=True)
class Baseline:
    """One rival: where its class is, what the paper calls it, and what it needs."""

    module: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from the class's defaults
    column: str | None = None  # in the paper's Table II
    explains: str | None = None  # the paper's column that this variant agrees with, where the method itself does not
    seeded: bool = False
    extra: str | None = None  # of this package, to be installed

    @property
    def available(self) -> bool:
        """Whether what it needs is installed."""
        return self.extra is None or all(find_spec(module) for module in NEEDS[self.extra])

    def load(self) -> Callable[..., Rival]:
        """The class, imported now."""
        kind: Callable[..., Rival] = getattr(import_module(f"addml.baselines.{self.module}"), self.kind)
        return kind


NEEDS = {"pyod": ("pyod", "torch")}  # the modules of an extra


def _pyod(detector: str, seeded: bool) -> Baseline:
    return Baseline("from_pyod", "FromPyOD", {"detector": detector}, seeded=seeded, extra="pyod")


BASELINES: dict[str, Baseline] = {
    "DeepAutoencoder": Baseline("autoencoder", "DeepAutoencoder", column="DAE", seeded=True),
    "IsolationForest": Baseline("forest", "IsolationForest", column="IF", seeded=True),
    "PCC": Baseline("principal", "PCC", column="PCC"),
    "OCSVM": Baseline("support", "OCSVM", column="OC-SVM"),
    "HBOS": Baseline("histogram", "HBOS", column="HBOS"),
    "DistilledAutoencoder": Baseline("autoencoder", "DeepAutoencoder", {"normal_ratio": 2 / 3}, seeded=True),
    "SigmoidAutoencoder": Baseline(
        "autoencoder", "DeepAutoencoder", {"output_activation": "sigmoid"}, explains="DAE", seeded=True
    ),
    "EigenvectorPCC": Baseline("principal", "EigenvectorPCC", explains="PCC"),
    "KNN": Baseline("neighbours", "KNN"),
    "LOF": Baseline("neighbours", "LOF"),
    "PCA": Baseline("principal", "PCA"),
    "MCD": _pyod("MCD", seeded=True),
    "CBLOF": _pyod("CBLOF", seeded=True),
    "ECOD": _pyod("ECOD", seeded=False),
    "COPOD": _pyod("COPOD", seeded=False),
    "DeepSVDD": _pyod("DeepSVDD", seeded=True),
    "LUNAR": _pyod("LUNAR", seeded=True),
    "PyODAutoEncoder": _pyod("AutoEncoder", seeded=True),
}


def make(name: str, random_state: Any = None, contamination: float = 0.1, **changes: Any) -> Rival:
    """The rival of this name with the paper's settings, changed where said; a seed goes to those that draw."""
    parameters.one_of("baseline", name, BASELINES)
    if not BASELINES[name].available:
        raise ImportError(f"{name} needs PyOD: pip install 'addml[{BASELINES[name].extra}]'")
    return described(name, random_state, contamination, **changes)


def described(name: str, random_state: Any = None, contamination: float = 0.1, **changes: Any) -> Rival:
    """The same for its settings alone: what it needs to be fitted may not be installed."""
    found = BASELINES[name]
    own = dict(found.settings) | {"contamination": contamination}
    if found.seeded:
        own["random_state"] = random_state
    if found.kind == "FromPyOD":
        changes = {"settings": changes}
    return found.load()(**own | changes)
