"""Which columns are trained on, which name a row, and which one is the label."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from addml.detection.errors import UserError
from addml.detection.settings import Naming, Selection
from addml.wording import counted, did_you_mean, listed


@dataclass(frozen=True)
class Chosen:
    """Columns by their use, and those that the user left out with the reason in words."""

    features: tuple[str, ...]
    ids: tuple[str, ...]
    label: str | None
    left_out: tuple[tuple[str, str], ...]


def choose(
    names: Sequence[str],
    selection: Selection,
    naming: Naming,
    label: str | None,
    source: str,
    taught: str | None = None,
) -> Chosen:
    """Divide the columns of a table as the user said; every name given must be there."""
    taught = find(taught, names, "--learn-from", source)
    if taught is not None and taught == label:
        raise UserError(f"{taught!r} cannot be both --label, which training never sees, and --learn-from.")
    ids = resolve(naming.id, names, "--id", source)
    ignored = resolve(selection.ignore, names, "--ignore", source)
    wanted = resolve(selection.columns, names, "--columns", source)
    label = find(label, names, "--label", source)
    if label in (*wanted, *ids):
        other = "--columns" if label in wanted else "--id"
        raise UserError(f"{label!r} is the label, which training never sees; leave it out of {other}.")
    if taught in (*wanted, *ids):
        other = "--columns" if taught in wanted else "--id"
        raise UserError(f"{taught!r} holds labels (--learn-from); leave it out of {other}.")
    reasons = {
        **{name: "not among --columns" for name in names if wanted and name not in wanted},
        **dict.fromkeys(ignored, "--ignore"),
        **dict.fromkeys(ids, "names a row (--id)"),
        **({label: "the label, for evaluation only"} if label else {}),
        **({taught: "labels to learn from"} if taught else {}),
    }
    features = tuple(name for name in names if name not in reasons)
    if not features:
        raise UserError(
            f"{source}: no column is left to train on; {counted(len(names), 'column is', 'columns are')} left out."
        )
    return Chosen(features, tuple(ids), label, tuple((name, reasons[name]) for name in names if name in reasons))


def resolve(given: Sequence[str], names: Sequence[str], option: str, source: str) -> list[str]:
    """The columns named, where a name may hold several with commas between them."""
    known, found = set(names), []
    for text in given:
        parts = [text] if text in known else [part.strip() for part in text.split(",") if part.strip()]
        found += [_known(part, names, known, option, source) for part in parts]
    return list(dict.fromkeys(found))


def find(name: str | None, names: Sequence[str], option: str, source: str) -> str | None:
    """The one column named, if any."""
    return None if name is None else _known(name, names, set(names), option, source)


def beside(ids: Sequence[str], own: Collection[str]) -> list[str]:
    """What ids are called beside columns of ours: `id_NAME` for one of ours, and so on where that is taken too."""
    taken, found = {*ids, *own}, []
    for name in ids:
        new = name if name not in own else f"id_{name}"
        while new != name and new in taken:
            new = f"id_{new}"
        taken.add(new)
        found.append(new)
    return found


def unseen(label: str | None, trained_on: Sequence[str], model: str | None) -> None:
    """Refuse a label that the model was trained on: how well it foretells what it was told says nothing."""
    if label is not None and label in trained_on:
        raise UserError(
            f"{model}: was trained on the column {label!r}, so that it cannot be the label (--label); fit it again "
            f"with --label {label} or --ignore {label}."
        )


def _known(name: str, names: Sequence[str], known: set[str], option: str, source: str) -> str:
    if name not in known:
        has = f" Its columns: {listed(names, 20)}."
        raise UserError(f"{source}: has no column {name!r} ({option}).{did_you_mean(name, names)}{has}")
    return name
