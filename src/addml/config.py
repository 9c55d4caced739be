"""The checked settings of a detector, and what a fit derives from them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any

import numpy as np

from addml import parameters
from addml.compute import OPERATIONS_WORTH_A_THREAD, max_threads
from addml.decisions.decision import EVENTS, SHARE
from addml.distances import count_of
from addml.encoders import ENCODERS, MLP, Autoencoder, Conv, Encoder, Network
from addml.encoders.module import ModuleNetwork
from addml.inputs import STRIDES, RowShape, Vectorizer, Window, check_sides
from addml.learning.losses import CLOSENESS, CenterCloseness
from addml.learning.state import Member
from addml.learning.training import Schedule
from addml.parameters import Part, as_part, to_json
from addml.scoring import SCORERS
from addml.scoring.patches import PatchMemory
from addml.scoring.scorer import Scorer
from addml.scoring.views import WHOLE, Views
from addml.scoring.windows import ONE_CHANNEL, WindowViews
from addml.text import IMAGE, SERIES, TABLE

AUTO = "auto"
PART = "part"  # the key of a part's class in JSON
AUTO_ENCODERS: dict[str, type[Encoder]] = {TABLE: MLP, IMAGE: Conv, SERIES: Autoencoder}
SCALINGS = (AUTO, "robust", "standard")
SERIES_REFERENCES, STEPS_AT_ONCE = 256, 8  # of the default scorer; small, so that a stream scores a step quickly
TOLERANT = 4000  # training windows; with fewer, rare shapes look like noise that a network has memorised
SMOOTHING = 5  # steps: windows of several channels are short, and a single high score is mostly noise
RARE_VALUE = 0.999  # quantile of a single channel beyond which a value is anomalous in any window
KINDS: dict[str, dict[str, type[Any]]] = {
    "encoder": ENCODERS,
    "loss": CLOSENESS,
    "scorer": SCORERS,
    "window": {Window.name: Window},
}  # the parts of a detector, by parameter


@dataclass(frozen=True, eq=False)
class Config:
    """The settings of a detector, as its constructor documents them, checked."""

    encoder: Any = "auto"  # an Encoder, "auto", or the user's own module
    loss: CenterCloseness = "instance"  # type: ignore[assignment]
    scorer: Scorer | str = "views"  # a Scorer, or "views" for the default scorer of the kind of rows
    normal_ratio: float = None  # type: ignore[assignment]  # default: the encoder's
    members: int = 5
    scaling: str = "auto"
    one_sided: Any = None
    by: Any = None  # a tuple of columns
    window: Window | None = None
    contamination: Any = None  # SHARE for rows, "events" for series
    epochs: int = 10
    batch_size: int = 256
    learning_rate: float | None = None
    weight_decay: float = 1e-5
    validation_ratio: float = 0.1
    patience: int = 5
    device: str = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    settings: dict[str, Any] = field(default_factory=dict, repr=False)  # as given, as JSON values

    @classmethod
    def resolve(cls, settings: dict[str, Any]) -> Config:
        """Check the settings, add defaults and replace strings by the parts they stand for."""
        settings = {field.name: field.default for field in fields(cls) if field.name != "settings"} | settings
        config = cls(**{**settings, **_parts(settings)}, settings=settings_to_json(settings)[0])
        if config.normal_ratio is None:
            encoder = config.encoder_for(config.kind)
            config = replace(config, normal_ratio=getattr(encoder, "normal_ratio", Encoder.normal_ratio))
        config._check()
        return config

    def _check(self) -> None:
        kind = None if isinstance(self.encoder, str) or callable(self.encoder) else self.encoder.kind
        if kind == SERIES and self.window is None:
            raise ValueError(f"encoder={self.encoder!r} is for series; set window='auto', or a number of steps")
        if kind == IMAGE and self.window is not None:
            raise ValueError(f"window={self.window!r} is for series, encoder={self.encoder!r} for images: drop one")
        parameters.check_one_of("scaling", self.scaling, SCALINGS)
        check_sides(self.one_sided)
        parameters.check_whole("members", self.members, most=parameters.WIDEST)
        for name, least in (("epochs", 1), ("patience", 1), ("batch_size", 2)):
            parameters.check_whole(name, getattr(self, name), least)
        parameters.check_number("normal_ratio", self.normal_ratio, 0, 1, with_low=False)
        parameters.check_number("validation_ratio", self.validation_ratio, 0, 1, with_low=False, with_high=False)
        if self.contamination is not None:
            parameters.threshold_method(None, self.contamination)
            if self.contamination == EVENTS and self.window is None:
                raise ValueError("contamination='events' is for series; give window=..., or a share of rows")
        if self.learning_rate is not None:
            parameters.check_number("learning_rate", self.learning_rate, 0, with_low=False)
        parameters.check_number("weight_decay", self.weight_decay, 0, with_low=True)
        max_threads(self.n_jobs)
        if not isinstance(self.verbose, (bool, np.bool_)):
            parameters.check_whole("verbose", self.verbose, least=0)

    @property
    def flagged(self) -> Any:
        """The share of training rows to flag, or the method that finds it."""
        if self.contamination is not None:
            return self.contamination
        return SHARE if self.window is None else EVENTS

    @property
    def robust(self) -> bool:
        """Whether scaling is robust. For series, where the size of a deviation matters most, "auto" means standard."""
        return self.scaling == "robust" or (self.scaling == "auto" and self.window is None and not self.frozen)

    def scorer_for(self, row_shape: RowShape | None) -> Scorer:
        """The scorer for table rows, images or windows; for the latter two, single features mean little."""
        if not isinstance(self.scorer, str):
            return self.scorer
        if self.frozen:
            return PatchMemory()
        if row_shape is None:
            return Views()
        if isinstance(self.encoder_for(row_shape.kind), Autoencoder):
            if row_shape.channels > 1:
                return WindowViews(singly=row_shape.causal, smoothing=1 if row_shape.causal else SMOOTHING)
            return WindowViews(views=ONE_CHANNEL, step_quantile=RARE_VALUE, singly=row_shape.causal)
        series = {"references": SERIES_REFERENCES, "at_once": STEPS_AT_ONCE} if row_shape.is_series else {}
        return Views(views=WHOLE, **series)

    @property
    def kind(self) -> str:
        """The kind of rows that the settings name; images may be recognised later, by X."""
        return TABLE if self.window is None else SERIES

    def encoder_for(self, kind: str) -> Any:
        """The encoder for this kind of row."""
        if not isinstance(self.encoder, str):
            return self.encoder
        return AUTO_ENCODERS[kind]()

    @property
    def frozen(self) -> bool:
        """Whether the encoder is pretrained and not trained further: one network, and no rows are held out."""
        return bool(getattr(self.encoder, "frozen", False))

    @property
    def takes_images(self) -> bool:
        return getattr(self.encoder, "kind", None) == IMAGE

    def check_preparation(self, vectorizer: Vectorizer) -> None:
        """Refuse a refit whose settings prepare rows differently than the fit did."""
        row_shape, window = vectorizer.row_shape, self.window
        same_window = (window is not None) == (vectorizer.kind == SERIES)
        if window is not None and row_shape is not None:
            same_window &= window.length in (AUTO, row_shape.shape[0]) and window.causal == row_shape.causal
        is_unchanged = {
            "scaling": self.robust == vectorizer.features.is_robust,
            "one_sided": np.array_equal(vectorizer.sides(self.one_sided), vectorizer.features.sides),
            "window": same_window,
            "by": self.by == (() if vectorizer.groups is None else vectorizer.groups.by),
        }
        changed = [f"{name}={getattr(self, name)!r}" for name, unchanged in is_unchanged.items() if not unchanged]
        if changed:
            raise ValueError(f"refit cannot prepare rows with {', '.join(changed)}: set it back, or use fit")

    def to_plain(self) -> dict[str, Any]:
        """The settings that training depends on, as JSON values; those of parts have keys such as encoder__hidden."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            plain[name] = _json_or_class_name(value)
            if isinstance(value, Part):
                plain |= {f"{name}__{option}": _json_or_class_name(own) for option, own in vars(value).items()}
        del plain["verbose"], plain["settings"]
        return plain

    def rate(self, kind: str) -> float:
        """The learning rate; default: that of the encoder for this kind of row."""
        if self.learning_rate is not None:
            return self.learning_rate
        return float(getattr(self.encoder_for(kind), "learning_rate", Encoder.learning_rate))

    def schedule(self, network: Network, kind: str, rows: int) -> Schedule:
        encoder = self.encoder_for(kind)
        batch = min(self.batch_size, getattr(encoder, "largest_batch", Encoder.largest_batch))
        rows_per_epoch = getattr(encoder, "rows_per_epoch", None)
        operations = 3 * network.operations * batch  # per step; the backward pass takes twice the forward pass
        return Schedule(
            self.epochs,
            batch,
            self.rate(kind),
            float(self.weight_decay),
            self.patience,
            least_batch=1 if self.loss.name == "center" or rows_per_epoch else 2,
            passes=1 if rows_per_epoch is None else max(1, round(rows_per_epoch / rows)),
            threads=max(1, min(max_threads(self.n_jobs), int(operations / OPERATIONS_WORTH_A_THREAD))),
        )

    def randoms(self) -> list[np.random.Generator]:
        """One generator per member; the draws of a member do not depend on the number of members."""
        entropy = parameters.generator_seed(self.random_state).entropy
        seeds = [np.random.SeedSequence(entropy, spawn_key=(e,)) for e in range(1 if self.frozen else self.members)]
        return [np.random.default_rng(seed) for seed in seeds]

    def networks(self, vectorizer: Vectorizer, randoms: list[np.random.Generator]) -> Network:
        """Untrained networks for rows of this vectorizer, one per generator."""
        encoder = self.encoder_for(vectorizer.kind)
        if callable(encoder):
            return ModuleNetwork.build(encoder, vectorizer.shape, randoms)
        try:
            network: Network = encoder.build(vectorizer.shape, randoms)
        except ValueError as error:
            raise ValueError(f"encoder={encoder!r}: {error}") from None
        return network

    def check_encoder(self, encoder: Network, vectorizer: Vectorizer) -> None:
        """Refuse a refit whose settings ask for other networks than those of the fit."""
        new_encoder, fitted = self.encoder_for(vectorizer.kind), encoder.to_plain()
        if getattr(new_encoder, "name", encoder.name) != encoder.name:
            raise ValueError(f"refit continues with {fitted}, not encoder={new_encoder!r}: use fit")
        new = self.networks(vectorizer, [np.random.default_rng(0)]).to_plain()
        if fitted != new or len(encoder.weights) != (1 if self.frozen else self.members):
            raise ValueError(
                f"refit continues with {len(encoder.weights)} networks {fitted}; encoder and members ask for "
                f"{self.members} of {new}: set them back, or use fit"
            )

    def steps_between(self, row_shape: RowShape | None, rows: int) -> int:
        """The stride of the training windows, given the number of all windows."""
        if self.window is None or row_shape is None:
            return 1
        if self.window.stride is not None:
            return int(self.window.stride)
        rows_per_epoch = getattr(self.encoder_for(row_shape.kind), "rows_per_epoch", None)
        return max(1, row_shape.shape[0] // STRIDES if rows_per_epoch is None else -(-rows // rows_per_epoch))

    def split(self, usable: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Split rows at random into M and V, each in ascending order."""
        held_out = count_of(self.validation_ratio, len(usable), least=2)
        order = random.permutation(usable)
        return np.sort(order[held_out:]), np.sort(order[:held_out])

    def member(self, usable: np.ndarray, labels: np.ndarray | None, random: np.random.Generator) -> Member:
        """One member's rows: V is drawn at random, the rest is M. Too few rows to split serve as both."""
        usable = usable if labels is None else usable[labels[usable] != 1]
        if len(usable) < (1 if self.window is None else 2):
            raise ValueError(
                f"window={self.window!r}: at least 2 complete windows must end at a normal or unlabelled step, "
                f"not {len(usable)}; give a longer series, a smaller window or stride, or other labels"
            )
        train, validation = self.split(usable, random)
        if len(train) < 2 or self.frozen:
            train = validation = usable
        encoder = self.encoder_for(self.kind)
        is_default = self.settings["normal_ratio"] is None and len(usable) >= TOLERANT
        tolerance = getattr(encoder, "tolerance", 0.0) if is_default else 0.0
        member = Member(train, validation, random, self.normal_ratio, tolerance=tolerance)
        if labels is None:
            return member
        return replace(member, anomalies=np.flatnonzero(labels == 1), labelled_normal=labels[train] == 0)


def _parts(settings: dict[str, Any]) -> dict[str, Any]:
    """Checked parts for the settings that name them, and `by` as a tuple of columns."""
    encoder, scorer, by = (settings[name] for name in ("encoder", "scorer", "by"))
    is_module = callable(encoder) and not (isinstance(encoder, type) and issubclass(encoder, Part))
    window = usual_part("window", settings["window"])
    if window is not None and not isinstance(window, Window):
        raise ValueError(f"window={window!r} must be a number of steps, such as 16, 'auto', or Window(16, stride=4)")
    columns = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    if not all(isinstance(name, str) for name in columns) or len(set(columns)) < len(columns):
        raise ValueError(f"by={by!r} must be the name of a column, or a list of different names")
    return {
        "encoder": encoder if is_module or encoder == AUTO else as_part("encoder", encoder, ENCODERS, also=(AUTO,)),
        "loss": as_part("loss", settings["loss"], CLOSENESS),
        "scorer": scorer if scorer == Views.name else as_part("scorer", scorer, SCORERS),
        "window": None if window is None else as_part("window", window, KINDS["window"]),
        "by": columns,
    }


def with_usual_parts(changes: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The changes, with parts in place of strings whose parameters are set, as in loss__hard_ratio=0.5."""
    for part in {name.partition("__")[0] for name in changes if "__" in name}:
        value = changes.get(part, settings.get(part))
        if part == "encoder" and value == AUTO:
            value = "mlp" if changes.get("window", settings["window"]) is None else "autoencoder"
        if isinstance(value, (str, int)):
            changes[part] = usual_part(part, value)
    return changes


def usual_part(name: str, value: Any) -> Any:
    """The part that a string or a window length stands for; other values are returned unchanged."""
    if name == "window" and (isinstance(value, Integral) or value == AUTO):
        return Window(value)
    return KINDS[name][value]() if isinstance(value, str) and value in KINDS.get(name, {}) else value


def _json_or_class_name(value: Any) -> Any:
    if isinstance(value, Part):
        return type(value).__name__
    try:
        return to_json(value)
    except TypeError:
        return getattr(value, "__qualname__", type(value).__qualname__)


def settings_to_json(settings: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Parameters as JSON values (a part as its class and parameters), and the names of those that are other objects."""
    document: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in settings.items():
        if isinstance(value, Part):
            options, objects = settings_to_json(vars(value))
            part = next(base for base in type(value).__mro__ if base in KINDS[name].values())
            document[name] = {PART: part.__name__, **options}
            left_out += [f"{name}__{option}" for option in objects]
            continue
        try:
            document[name] = to_json(value)
        except TypeError:
            left_out.append(name)
    return document, left_out


def settings_from_json(document: dict[str, Any]) -> dict[str, Any]:
    settings = dict(document)
    for name, parts in KINDS.items():
        if isinstance(plain := settings.get(name), dict):
            options = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
            settings[name] = {part.__name__: part for part in parts.values()}[str(options.pop(PART))](**options)
    return settings
