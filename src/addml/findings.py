"""The results of a run as plain values, which the command line prints, the report draws and files store."""

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
    """Why a row stands out: one column, or several that are ordinary by themselves."""

    column: str  # or several, joined by ", "
    share: float  # their contribution, as a share of the row's score
    words: str  # "amount 41x the usual", "country unseen"


@dataclass(frozen=True)
class Finding:
    """A row with its score and reasons."""

    row: int  # counted from 1, without the header
    rank: int  # 1 is the most anomalous
    score: float
    is_anomaly: bool
    ids: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # raw values of the columns used; None if missing
    reasons: tuple[Reason, ...] = ()
    p_value: float | None = None  # share of ordinary rows that are at least this unusual
    probability: float | None = None  # 1 - q, where q is the p-value adjusted for all rows

    def event_to_json(self) -> dict[str, Any]:
        channels = [{"channel": reason.column, "share": reason.share, "words": reason.words} for reason in self.reasons]
        return {"rank": self.rank, **self.ids, "score": self.score, "channels": channels}


@dataclass(frozen=True)
class Group:
    """Rows with the same first reason."""

    columns: tuple[str, ...]
    words: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Hidden:
    """Flagged rows that are not listed, because an entry marks them as normal."""

    place: str  # of the entry: "known.toml, entry 2"
    reason: str
    expires: str | None
    rows: int
    row: int  # the strangest one, counted from 1
    score: float

    @property
    def words(self) -> str:
        until = f" until {self.expires}" if self.expires else ""
        entry = f"{self.reason}: {self.place}" if self.reason else self.place
        return f"{self.rows:,} hidden{until} ({entry}), the strangest is row {self.row} with {self.score:.4g}"


@dataclass(frozen=True)
class Usual:
    """The usual values of a column, from the training rows that are not anomalies."""

    column: str
    kind: str  # "number", "boolean", "date", "category"
    words: str  # "12.5, mostly 3 to 40"
    low: float | None = None  # the middle 90 % of a number
    middle: float | None = None
    high: float | None = None
    common: tuple[tuple[str, float], ...] = ()  # most common categories with their shares

    @classmethod
    def of(cls, profile: ColumnProfile) -> Usual:
        """The part of a column's profile that findings need."""
        ends = profile.low, profile.middle, profile.high
        return cls(profile.column, profile.kind, profile.words, *ends, profile.common(MOST_COMMON))


@dataclass(frozen=True)
class Picture:
    """A thumbnail of an image."""

    name: str
    score: float
    kind: str  # "strange" or "typical"
    image: bytes  # PNG or JPEG
    map: bytes | None = None  # the same with its anomaly map as an overlay
    file: str | None = None  # path of the original


@dataclass(frozen=True)
class EventPicture:
    """An event of a series and the steps around it."""

    rank: int
    when: np.ndarray  # (n,) datetime64 or numbers
    span: tuple[int, int]  # the event among these steps
    channels: tuple[tuple[str, np.ndarray, np.ndarray | None], ...]  # name, values (n,), band (3, n): low, median, high


@dataclass(frozen=True)
class Track:
    """Series to draw: the scores and some channels by step, and the events."""

    times: tuple[str, str]  # of the first and of the last step
    scores: np.ndarray
    channels: tuple[tuple[str, np.ndarray], ...]
    events: tuple[tuple[int, int], ...]  # first step and the one after the last
    when: np.ndarray | None = None  # (n,) datetime64 or numbers
    entities: tuple[tuple[str, int, int], ...] = ()  # name, first step and the one after the last of each series
    pictures: tuple[EventPicture, ...] = ()  # of the first events


@dataclass(frozen=True)
class Findings:
    source: str
    rows: int
    columns: tuple[str, ...]  # used
    left_out: tuple[tuple[str, str], ...]  # (column, why)
    notes: tuple[str, ...]  # on reading and preparing the data
    scores: np.ndarray  # (n,), float64
    threshold: float
    ranked: tuple[Finding, ...]  # the flagged rows and the top ones, most anomalous first
    groups: tuple[Group, ...] = ()
    usual: tuple[Usual, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    evaluation: dict[str, Any] | None = None  # with a label column: roc_auc, average_precision, curves ...
    check: tuple[dict[str, Any], ...] = ()  # one dict for each kind of planted fault: see decisions/check.py
    drift: tuple[dict[str, Any], ...] = ()  # one dict for each column: how this table differs from the training rows
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    trained_rows: int = 0  # fewer than rows if training took a sample
    decided_by: str = ""  # how the threshold was chosen, in words
    least_p_value: float = 0.0  # resolution of p-values for new rows; 0 for training rows
    clear: int = 0  # rows that stand clear of the rest, by an estimate from the bulk of the training scores
    pictures: tuple[Picture, ...] = ()  # of images: the strangest, then the most typical
    noun: str = "row"  # the word for a row: "image", "step"
    track: Track | None = None  # of series, whose ranked rows are the peaks of events
    hidden: tuple[Hidden, ...] = ()  # rows above the threshold that are known to be normal
    too_short: int = 0  # steps above the threshold in events of fewer than --min-steps

    @property
    def anomalies(self) -> int:
        """How many rows are flagged: above the threshold, not hidden, and not in an event that is too short."""
        return int((self.scores > self.threshold).sum()) - sum(entry.rows for entry in self.hidden) - self.too_short

    @property
    def examples(self) -> tuple[Finding, ...]:
        """The ranked rows, with the repetitions within groups at the end."""
        repeated = {rank for group in self.groups for rank in group.ranks[1:]}
        return tuple(sorted(self.ranked, key=lambda finding: (finding.rank in repeated, finding.rank)))

    @property
    def rule(self) -> str:
        """Which rows are flagged: "the 10% highest-scoring rows; about 40 of them stand clear of the rest"."""
        rule = f"score above {self.threshold:.4g}"
        rule = f"{self.decided_by} ({rule})" if self.decided_by else rule
        rule += f"; {self.too_short:,} more in events shorter than --min-steps" if self.too_short else ""
        if self.track is not None and self.ranked and not self.anomalies:
            return f"{rule}; the closest are listed, and --events {len(self.ranked)} would flag them"
        if not self.anomalies or not self.decided_by or "stand clear" in rule or self.track is not None:
            return rule
        clear = min(self.clear, self.anomalies)
        if clear == self.anomalies == 1:
            return f"{rule}; it stands clear of the rest"
        who = f"about {clear:,} of them stand{'' if clear > 1 else 's'}" if clear else "none of them stands"
        return f"{rule}; {who} clear of the rest"

    def to_json(self, top: int) -> dict[str, Any]:
        """The findings with the `top` highest rows, as `--json` prints them and REST returns them."""
        events = [finding.event_to_json() for finding in self.ranked if finding.is_anomaly]
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
            "hidden": [asdict(entry) for entry in self.hidden],
            "clear": self.clear,
            "top": [asdict(finding) for finding in self.ranked[:top]],
            **({} if self.track is None else {"events": events}),
            "groups": [asdict(group) for group in self.groups],
            "evaluation": self.evaluation,
            "check": list(self.check),
            "drift": list(self.drift),
            "settings": self.settings,
            "versions": self.versions,
        }


def versions(*more: str) -> dict[str, str]:
    """The versions of Python, the platform, the packages that results depend on, and `more` packages."""
    result = {"python": platform.python_version(), "platform": platform.platform()}
    for name in (*PACKAGES, *more):
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            result[name] = "not installed"
    return result
