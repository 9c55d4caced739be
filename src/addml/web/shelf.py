"""The models that a server offers, each loaded once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from addml.detection.about import about_model
from addml.detection.errors import UserError
from addml.detection.fitted import Fitted
from addml.detection.settings import Computing, Deciding
from addml.detection.usual import described
from addml.explain import UsualColumn
from addml.web.bodies import RefusedError
from addml.wording import did_you_mean


@dataclass(frozen=True)
class Shelved:
    """One model: its name, where it lies, what it is, and the detector, unless it is about images or series."""

    name: str
    folder: Path
    about: dict[str, Any]
    fitted: Fitted | None

    @property
    def takes_files(self) -> bool:
        """Whether a file can be handed in to it; images come in folders."""
        return bool(self.about["noun"] != "image")

    def refusal(self) -> RefusedError:
        """What is said to whoever brings what it does not take."""
        way = "score folders of them by the command addml score"
        if self.takes_files:
            way = "hand in files: POST /api/jobs"
        return RefusedError(f"{self.name} is about {self.about['noun']}s; {way}")

    def short(self) -> dict[str, Any]:
        """What a list says of it."""
        about = self.about
        kept = {key: about[key] for key in ("noun", "trained_rows", "threshold", "decided_by")}
        return {"name": self.name, **kept, "columns": len(about["columns"])}

    def whole(self) -> dict[str, Any]:
        """All that is known of it, but for where it lies."""
        columns = () if self.fitted is None else self.fitted.usual_columns
        usual = [asdict(described(one)) | {"value": _ordinary(one)} for one in columns]
        return {**self.about, "name": self.name, "model": self.name, "usual": usual}


def _ordinary(column: UsualColumn) -> Any:
    """A value that is nothing special: the middle one, the most common one, a day between the first and the last."""
    if column.earliest is not None and column.latest is not None:
        return str(column.earliest + (column.latest - column.earliest) / 2)[:10]
    return (
        column.middle
        if column.kind == "number"
        else max(column.levels, key=lambda one: column.levels[one], default=None)
    )


class Shelf:
    """Models by their names."""

    def __init__(self, computing: Computing) -> None:
        """None yet; they will compute as is said."""
        self._computing, self._models = computing, dict[str, Shelved]()
        self.device = computing.device

    @classmethod
    def of(cls, folders: Sequence[str], computing: Computing) -> Shelf:
        """Models in these folders, called after them."""
        shelf = cls(computing)
        for folder in folders:
            path = Path(os.path.expanduser(folder)).resolve()  # jobs run elsewhere
            name = path.name.removesuffix(".model")
            if name in shelf._models:
                raise UserError(
                    f"{folder}: {shelf._models[name].folder} is called {name} too; rename one of the two folders."
                )
            shelf.add(name, path)
        return shelf

    def add(self, name: str, folder: Path) -> Shelved:
        """Load a model and offer it under a name; where that is taken, with a number behind it."""
        about, number = about_model(str(folder)), 1
        is_table = about["noun"] == "row"
        fitted = Fitted.load(str(folder), self._computing, Deciding()) if is_table else None
        free = name
        while free in self._models:
            number += 1
            free = f"{name}-{number}"
        self._models[free] = Shelved(free, folder, about, fitted)
        return self._models[free]

    def remove(self, name: str) -> None:
        """Offer it no longer."""
        self._models.pop(name, None)

    def __iter__(self) -> Any:
        return iter(list(self._models.values()))

    def __getitem__(self, name: str) -> Shelved:
        try:
            return self._models[name]
        except KeyError:
            hint = did_you_mean(name, self._models)
            raise RefusedError(f"there is no model {name!r} here.{hint}", 404) from None
