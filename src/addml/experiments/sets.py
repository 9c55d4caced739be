"""The data sets of an experiment, by the registry of `addml.data`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from addml.errors import UserError
from addml.experiments.protocol import Numbers
from addml.text import did_you_mean


def of_plan(sets: str | Sequence[str]) -> list[str]:
    """The sets that a plan names one by one, or as a collection."""
    from addml.data import registry

    return list(registry.names(sets)) if isinstance(sets, str) else list(sets)


def known(given: Sequence[str]) -> list[str]:
    """The sets named, with commas between them or one by one; an unknown one is an error."""
    from addml.data.registry import SETS

    found = [part.strip().lower() for text in given for part in text.split(",") if part.strip()]
    for name in found:
        if name not in SETS:
            raise UserError(f"{name!r} is no data set (--sets).{did_you_mean(name, list(SETS))} List: addml data list.")
    if given and not found:
        raise UserError("--sets names none. List: addml data list.")
    return list(dict.fromkeys(found))


def title(name: str) -> str:
    """The set as tables name it."""
    from addml.data.registry import SETS

    return str(SETS[name].title) if name in SETS else name


def is_here(name: str) -> bool:
    """Whether the set can be read now, without a download."""
    from addml.data import registry

    return bool(registry.available(name))


@lru_cache(maxsize=2)
def load(name: str) -> Numbers:
    """The set's rows and labels."""
    from addml.data import registry

    one = registry.load_set(name)
    return Numbers(name, one.X, one.y)


def size(name: str) -> tuple[int, int]:
    """Rows and columns, without reading the set where the registry knows them."""
    from addml.data.registry import SETS

    one = SETS[name]
    if one.rows and one.columns:
        return int(one.rows), int(one.columns)
    rows, columns = load(name).X.shape
    return rows, columns
