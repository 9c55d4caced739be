"""What a run found, as plain values: the command line prints it, the report draws it, a file stores it."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from addml.preprocessing.profile import ColumnProfile

MOST_COMMON = 5  # values named
MEASURES = {  # of an evaluation: areas under curves
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "vus_pr": "VUS-PR",
    "vus_roc": "VUS-ROC",
    "pixel_roc_auc": "pixel ROC-AUC",
    "pro": "PRO",
}
PACKAGES = ("addml", "numpy", "pyarrow", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True)
class Reason:
    """One column that made a row stand out, or several that are ordinary by themselves."""

    column: str
    share: float  # of the row's score, that they contribute
    words: str  # "amount 41x the usual", "country unseen"


@dataclass(frozen=True)
class Finding:
    """One row of the table with its score."""

    row: int  # counted from 1, the header not counted
    rank: int  # 1 is the most anomalous
    score: float
    is_anomaly: bool
    ids: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # raw values of the columns used; None is a gap
    reasons: tuple[Reason, ...] = ()
    p_value: float | None = None  # share of ordinary rows that are at least this unusual
    probability: float | None = None  # 1 - q, q being the p-value adjusted for all rows looked at

    def event_to_json(self) -> dict[str, Any]:
        channels = [{"channel": one.column, "share": one.share, "words": one.words} for one in self.reasons]
        return {"rank": self.rank, **self.ids, "score": self.score, "channels": channels}


@dataclass(frozen=True)
class Group:
    """Findings that stand out for the same columns."""

    columns: tuple[str, ...]
    words: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Hidden:
    """Flagged rows that are not listed, being known to be normal, by the entry that says so."""

    place: str  # "known.toml, entry 2"
    reason: str
    expires: str | None
    rows: int
    row: int  # the strangest of them, counted from 1
    score: float

    @property
    def words(self) -> str:
        """How many rows the entry hides, why, and the strangest of them."""
        until = f" until {self.expires}" if self.expires else ""
        what = f"{self.reason}: {self.place}" if self.reason else self.place
        return f"{self.rows:,} hidden{until} ({what}), the strangest is row {self.row} with {self.score:.4g}"


@dataclass(frozen=True)
class Usual:
    """The ordinary values of one column among the training rows that are not anomalies."""

    column: str
    kind: str  # "number", "boolean", "date", "category"
    words: str  # "12.5, mostly 3 to 40"
    low: float | None = None  # the middle 90 % of a number
    middle: float | None = None
    high: float | None = None
    common: tuple[tuple[str, float], ...] = ()  # most common categories with their shares

    @classmethod
    def of(cls, profile: ColumnProfile) -> Usual:
        """What findings hold of a column's profile."""
        ends = profile.low, profile.middle, profile.high
        return cls(profile.column, profile.kind, profile.words, *ends, profile.common(MOST_COMMON))


@dataclass(frozen=True)
class Picture:
    """One image, small, as a PNG or JPEG file."""

    name: str
    row: int  # counted from 1
    score: float
    kind: str  # "strange" or "typical"
    image: bytes
    heat: bytes | None = None  # the same with what makes it strange laid over it
    file: str | None = None  # where the original lies


@dataclass(frozen=True)
class EventPicture:
    """An event of a series and the steps around it."""

    rank: int
    when: np.ndarray  # (n,) datetime64 or numbers
    span: tuple[int, int]  # the event among these steps
    channels: tuple[tuple[str, np.ndarray, np.ndarray | None], ...]  # values (n,); low end, middle, high end (3, n)


@dataclass(frozen=True)
class Track:
    """Series to be drawn: scores and some channels step by step, and the events, each from a step to another."""

    times: tuple[str, str]  # of the first and of the last step
    scores: np.ndarray
    channels: tuple[tuple[str, np.ndarray], ...]
    events: tuple[tuple[int, int], ...]
    when: np.ndarray | None = None  # (n,) datetime64 or numbers
    entities: tuple[tuple[str, int, int], ...] = ()  # name, first step and the one behind the last of each series
    pictures: tuple[EventPicture, ...] = ()  # of the first events


@dataclass(frozen=True)
class Findings:
    """A whole run: what was read, what was left out, every score, the ranked rows with their reasons."""

    source: str
    rows: int
    columns: tuple[str, ...]  # used
    left_out: tuple[tuple[str, str], ...]  # (column, why)
    notes: tuple[str, ...]  # what reading and preparing found out and is to be said
    scores: np.ndarray  # (n,), float64
    threshold: float
    ranked: tuple[Finding, ...]  # the flagged rows and the top ones, most anomalous first
    groups: tuple[Group, ...] = ()
    usual: tuple[Usual, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    evaluation: dict[str, Any] | None = None  # with a label column: roc_auc, average_precision, curves ...
    check: tuple[dict[str, Any], ...] = ()  # one dict a kind of planted fault: see decisions/check.py
    drift: tuple[dict[str, Any], ...] = ()  # one dict a column: how this table differs from the training rows
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    trained_rows: int = 0  # less than rows where training took a sample
    decided_by: str = ""  # how the threshold was chosen, in words
    least_p_value: float = 0.0  # the least that the training rows can tell; 0 for rows that were trained on
    clear: int = 0  # rows that stand clear of the rest, by an estimate from the bulk of the training scores
    pictures: tuple[Picture, ...] = ()  # where the rows are images: the strangest, then the most typical
    noun: str = "row"  # what one of the rows is called
    track: Track | None = None  # of a series, whose ranked rows are the peaks of its events
    hidden: tuple[Hidden, ...] = ()  # rows above the threshold that are known to be normal

    @property
    def anomalies(self) -> int:
        """How many rows score above the threshold and are not hidden."""
        return int((self.scores > self.threshold).sum()) - sum(one.rows for one in self.hidden)

    @property
    def examples(self) -> tuple[Finding, ...]:
        """The ranked rows, of each group of similar ones the highest first and the others behind all examples."""
        later = {rank for group in self.groups for rank in group.ranks[1:]}
        return tuple(sorted(self.ranked, key=lambda one: (one.rank in later, one.rank)))

    @property
    def rule(self) -> str:
        """Which rows are flagged: "the 10% highest-scoring rows; about 40 of them stand clear of the rest"."""
        words, clear = f"score above {self.threshold:.4g}", min(self.clear, self.anomalies)
        words = f"{self.decided_by} ({words})" if self.decided_by else words
        if not self.anomalies or not self.decided_by or "stand clear" in words or self.track is not None:
            return words
        stand = f"about {clear:,} of them stand{'' if clear > 1 else 's'}" if clear else "none of them stands"
        stand = "it stands" if clear == self.anomalies == 1 else stand
        return f"{words}; {stand} clear of the rest"

    def to_json(self, top: int) -> dict[str, Any]:
        """The findings as plain values, with the `top` highest rows: what `--json` prints and REST answers."""
        flagged = [one for one in self.ranked if one.is_anomaly]
        return {
            "source": self.source,
            "rows": self.rows,
            "trained_rows": self.trained_rows,
            "columns": list(self.columns),
            "left_out": [{"column": name, "why": why} for name, why in self.left_out],
            "notes": list(self.notes),
            "threshold": self.threshold,
            "decided_by": self.decided_by,
            "anomalies": self.anomalies,
            "hidden": [asdict(one) for one in self.hidden],
            "clear": self.clear,
            "top": [asdict(finding) for finding in self.ranked[:top]],
            **({} if self.track is None else {"events": [one.event_to_json() for one in flagged]}),
            "groups": [asdict(group) for group in self.groups],
            "evaluation": self.evaluation,
            "check": list(self.check),
            "drift": list(self.drift),
            "settings": self.settings,
            "versions": self.versions,
        }


def versions(*more: str) -> dict[str, str]:
    """The versions that a result may depend on, and those of further packages."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
