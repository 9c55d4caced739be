"""Column names as files have them: repeated, blank, or asked for and not there."""

from __future__ import annotations

from collections.abc import Sequence

from addml.data.files.origin import ReadError
from addml.wording import did_you_mean, listed


def numbered_names(count: int) -> list[str]:
    """x0, x1, ...: the names of columns that have none."""
    return [f"x{position}" for position in range(count)]


def unique_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names made unique, `name` then `name_2`, a blank one after its position; and what was changed."""
    given = [name.strip() for name in names]
    taken = set(given) - {""}
    seen: set[str] = set()
    result: list[str] = []
    changes: list[str] = []
    for position, name in enumerate(given):
        new = name
        if not name or name in seen:
            new = _free_name(name or f"x{position}", first=2 if name else 1, taken=taken)
            changes.append(f"column {position + 1} {name!r} is called {new!r}")
        seen.add(new)
        taken.add(new)
        result.append(new)
    return result, _renaming_note(changes)


def check_columns(columns: Sequence[str] | None, names: Sequence[str], source: str) -> list[str] | None:
    """The columns asked for, each of which must be there."""
    if columns is None:
        return None
    for column in columns:
        if column not in names:
            hint = did_you_mean(column, names)
            raise ReadError(f"{source}: has no column {column!r}.{hint} It has: {listed(names, 20)}.")
    return list(dict.fromkeys(columns))


def _free_name(name: str, first: int, taken: set[str]) -> str:
    if first == 1 and name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _renaming_note(changes: list[str]) -> list[str]:
    if not changes:
        return []
    return [f"column names: repeated or blank, so {listed(changes, between='; ')}"]
