"""The settings of a detector, checked, and what a fit makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from addml import parameters, plain
from addml.compute import max_threads, on_device, threads_for
from addml.decisions.thresholds import METHODS, WITH_SHARE
from addml.distances import DISTANCES, count_of
from addml.encoders import ACTIVATIONS, ENCODERS, Network
from addml.encoders.mlp import HIDDEN
from addml.encoders.module import ModuleNetwork, is_module
from addml.encoders.recurrent import KINDS, POOLINGS
from addml.inputs.forms import Form
from addml.inputs.vectorizer import Vectorizer, check_sides
from addml.learning.losses import LOSSES, Objective
from addml.learning.state import Member
from addml.learning.training import Schedule
from addml.model import MetricModel
from addml.scoring import SCORERS
from addml.scoring.base import Scorer
from addml.scoring.views import WHOLE, Views
from addml.text import counted

RATE, RATES = 1e-3, {"conv": 3e-5}  # of learning, where none is said; and by encoder
SCALINGS = ("auto", "robust", "standard")
STRIDES = 4  # windows to learn from begin so many times within one, where nothing is said
SERIES_REFERENCES, STEPS_AT_ONCE = 256, 8  # of the default scorer, so that a step alone is scored as soon as it comes


@dataclass(frozen=True, eq=False)
class Config:
    """The settings of a detector, as its constructor documents them."""

    encoder: Any
    hidden: tuple[int, ...] | None
    metric_dim: int
    activation: str
    output_activation: str
    loss: str
    distance: str
    margin: float | None
    anomaly_pairs: bool
    normal_ratio: float
    hard_ratio: float
    miner: Callable[..., Any] | None
    scorer: str | Scorer
    scaling: str
    one_sided: Any
    window: int | None
    stride: int | None
    causal: bool
    cell: str
    pooling: str
    contamination: Any
    examples: int
    members: int
    epochs: int
    batch_size: int
    learning_rate: float | None
    weight_decay: float
    validation_ratio: float
    patience: int
    n_jobs: int | None
    verbose: int
    random_state: Any
    memory: int | str
    device: str

    @classmethod
    def resolve(cls, settings: dict[str, Any]) -> Config:
        """The settings of a detector, all checked."""
        one = cls(**settings)
        one._check()
        return one

    def _check(self) -> None:
        if not is_module(self.encoder):
            parameters.one_of("encoder", self.encoder, ENCODERS)
        elif self.hidden is not None:
            raise ValueError(f"hidden={self.hidden!r} says nothing of an encoder of your own; leave it out")
        parameters.one_of("activation", self.activation, ACTIVATIONS)
        parameters.one_of("output_activation", self.output_activation, ACTIVATIONS)
        parameters.one_of("loss", self.loss, LOSSES)
        parameters.one_of("distance", self.distance, DISTANCES)
        parameters.one_of("scaling", self.scaling, SCALINGS)
        check_sides(self.one_sided)
        self._check_series()
        if self.hidden is not None:
            parameters.widths("hidden", self.hidden)
        for name in ("metric_dim", "members"):
            parameters.whole(name, getattr(self, name), most=parameters.WIDEST)
        for name in ("epochs", "patience"):
            parameters.whole(name, getattr(self, name))
        parameters.whole("batch_size", self.batch_size, least=2)
        for name in ("normal_ratio", "hard_ratio"):
            parameters.number(name, getattr(self, name), 0, 1, with_low=False)
        parameters.number("validation_ratio", self.validation_ratio, 0, 1, with_low=False, with_high=False)
        parameters.threshold_method(None, self.contamination, METHODS, WITH_SHARE)
        parameters.whole("examples", self.examples, least=0)
        if self.margin is not None:
            parameters.number("margin", self.margin, 0, with_low=False)
        parameters.number("learning_rate", self.rate(), 0, with_low=False)
        parameters.number("weight_decay", self.weight_decay, 0, with_low=True)
        parameters.flag("anomaly_pairs", self.anomaly_pairs)
        max_threads(self.n_jobs)
        if not isinstance(self.verbose, (bool, np.bool_)):
            parameters.whole("verbose", self.verbose, least=0)
        parameters.size("memory", self.memory)
        if self.loss == "center" and (self.miner is not None or self.anomaly_pairs):
            raise ValueError("miner and anomaly_pairs are about pairs, which loss='center' has not; use 'instance'")
        if self.miner is not None and not callable(self.miner):
            raise ValueError(f"miner={self.miner!r} must be None or a pair miner of pytorch-metric-learning")
        self.scorer_for(None)

    def _check_series(self) -> None:
        parameters.one_of("cell", self.cell, KINDS)
        parameters.one_of("pooling", self.pooling, POOLINGS)
        parameters.flag("causal", self.causal)
        if self.window is not None:
            parameters.whole("window", self.window, most=parameters.LONGEST)
        if self.stride is not None:
            parameters.whole("stride", self.stride)
        if self.encoder == "recurrent" and self.window is None:
            raise ValueError("encoder='recurrent' needs window=..., the number of steps that it looks at: window=16")
        if self.encoder == "conv" and self.window is not None:
            raise ValueError(
                f"window={self.window!r} is about series, and encoder='conv' about images; use 'recurrent'"
            )
        about_series = {"stride": self.stride is not None, "causal": self.causal}
        for name, given in about_series.items():
            if given and self.window is None:
                raise ValueError(f"{name}={getattr(self, name)!r} is about series; give window=... with it")
        for name, usual in (("cell", "tanh"), ("pooling", "mean")):
            if getattr(self, name) != usual and self.encoder != "recurrent":
                raise ValueError(f"{name}={getattr(self, name)!r} is about encoder='recurrent', not {self.encoder!r}")
        if self.encoder == "recurrent" and self.cell != "tcn" and self.activation != "tanh":
            raise ValueError(
                f"activation={self.activation!r} does not act on cell={self.cell!r}, which is made with tanh; "
                "leave it out, or use cell='tcn'"
            )

    @property
    def steps_between(self) -> int:
        """Steps between two windows to learn from."""
        if self.stride is not None:
            return int(self.stride)
        return 1 if self.window is None else max(1, self.window // STRIDES)

    @property
    def robust(self) -> bool:
        """Robust scaling for rows, where a far value is one of many; the size of a deviation tells most in a series."""
        return self.scaling == "robust" or (self.scaling == "auto" and self.window is None)

    def scorer_for(self, form: Form | None) -> Scorer:
        """The scorer for rows of a table, images or windows; pixels and steps mean little one by one."""
        if isinstance(self.scorer, tuple(SCORERS.values())):
            return self.scorer  # type: ignore[return-value]
        parameters.one_of("scorer", self.scorer, SCORERS)
        if self.scorer != "views" or form is None:
            return SCORERS[str(self.scorer)]()
        series = {"references": SERIES_REFERENCES, "at_once": STEPS_AT_ONCE} if form.is_series else {}
        return Views(views=WHOLE, **series)

    def objective(self) -> Objective:
        margin = 1.0 if self.margin is None else self.margin
        return Objective(self.loss, self.distance, self.hard_ratio, margin, self.anomaly_pairs, self.miner)  # type: ignore[arg-type]

    def resolved(self) -> dict[str, Any]:
        """What stands for the settings that are left to the encoder or to the kind of rows, for rows of a table."""
        hidden = HIDDEN if self.hidden is None and self.encoder == "mlp" else self.hidden
        return {"hidden": hidden, "learning_rate": self.rate(), "scaling": "robust" if self.robust else "standard"}

    def check_preparation(self, vectorizer: Vectorizer) -> None:
        """What `refit` prepares as before must not be asked for in another way."""
        form = vectorizer.form
        same = {
            "scaling": self.robust == bool(vectorizer.features.knee[0]),
            "one_sided": np.array_equal(vectorizer.sides(self.one_sided), vectorizer.features.sides),
            "window": self.window == (form.shape[0] if form is not None and form.is_series else None),
        }
        changed = [f"{name}={getattr(self, name)!r}" for name, is_same in same.items() if not is_same]
        if changed:
            raise ValueError(f"refit prepares rows as before, not by {', '.join(changed)}: set it back, or use fit")

    def to_plain(self) -> dict[str, Any]:
        """The settings that a training depends on, as JSON values; an object goes by the name of its class."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        settings, objects = plain.plain_settings(given)
        kinds = {name: getattr(given[name], "__qualname__", type(given[name]).__qualname__) for name in objects}
        return {name: settings[name] for name in settings if name != "verbose"} | kinds

    def rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return RATES.get(self.encoder, RATE) if isinstance(self.encoder, str) else RATE

    def schedule(self, encoder: Network) -> Schedule:
        operations = 3 * encoder.operations * self.batch_size  # of one step: forward, and twice that back
        return Schedule(
            self.epochs,
            self.batch_size,
            self.rate(),
            float(self.weight_decay),
            self.patience,
            least_batch=1 if self.loss == "center" else 2,
            threads=threads_for(operations, max_threads(self.n_jobs)),
        )

    def randoms(self) -> list[np.random.Generator]:
        """One generator a member: member e draws the same whatever the number of members."""
        entropy = parameters.generator_seed(self.random_state).entropy
        seeds = [np.random.SeedSequence(entropy, spawn_key=(e,)) for e in range(self.members)]
        return [np.random.default_rng(seed) for seed in seeds]

    def new_encoder(self, shape: tuple[int, ...], randoms: list[np.random.Generator], device: str) -> Network:
        """The networks for rows of this shape before training."""
        encoder = self._networks(shape, randoms)
        return encoder.with_weights(on_device(encoder.weights.astype(np.float32), device))

    def _networks(self, shape: tuple[int, ...], randoms: list[np.random.Generator]) -> Network:
        if not is_module(self.encoder):
            made = ENCODERS[self.encoder](self.hidden, self.metric_dim, self.activation, self.output_activation)
            own = {"cell": self.cell, "pooling": self.pooling} if self.encoder == "recurrent" else {}
            return made.set_params(**own).build(shape, randoms)
        encoder = ModuleNetwork.build(self.encoder, shape, randoms)
        if encoder.outputs != self.metric_dim:
            raise ValueError(
                f"metric_dim={self.metric_dim}, but the encoder gives {encoder.outputs} numbers a row; "
                f"set metric_dim={encoder.outputs}"
            )
        return encoder

    def present_encoder(self, start: MetricModel, shape: tuple[int, ...], device: str) -> Network:
        """The present networks, to go on from."""
        encoder = start.encoder
        if isinstance(self.encoder, str) and self.encoder != encoder.to_plain()["name"]:
            raise ValueError(f"refit goes on with {encoder.to_plain()}, not encoder={self.encoder!r}: use fit")
        wanted = self._networks(shape, [np.random.default_rng(0)]).to_plain()
        if encoder.to_plain() != wanted or len(encoder.weights) != self.members:
            raise ValueError(
                f"refit goes on with {len(encoder.weights)} networks {encoder.to_plain()}; encoder, hidden, "
                f"metric_dim and members ask for {self.members} of {wanted}: set them back, or use fit"
            )
        return encoder.with_weights(on_device(encoder.weights.copy(), device))

    def split(self, usable: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """These rows divided at random into M and V, each in order."""
        held_out = count_of(self.validation_ratio, len(usable), least=2)
        order = random.permutation(usable)
        return np.sort(order[held_out:]), np.sort(order[:held_out])

    def member(self, usable: np.ndarray, marks: np.ndarray | None, random: np.random.Generator) -> Member:
        """One member's rows: V drawn at random, the rest M; too few rows to spare serve as both."""
        usable = usable if marks is None else usable[marks[usable] != 1]
        if len(usable) < (1 if self.window is None else 2):
            raise ValueError(
                f"window={self.window}, stride={self.steps_between}: of the whole windows that are learned from, "
                f"{counted(len(usable), 'ends', 'end')} at a step that is normal or unknown, and at least 2 are "
                "needed; give a longer series, a smaller window or stride, or other labels"
            )
        train, validation = self.split(usable, random)
        if len(train) < 2:
            train = validation = usable
        if marks is None:
            return Member(train, validation, random, self.normal_ratio)
        return Member(train, validation, random, self.normal_ratio, np.flatnonzero(marks == 1), marks[train] == 0)
