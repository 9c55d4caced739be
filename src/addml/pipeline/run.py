"""What the commands, web jobs and Python call: options in, findings, scored rows and a model out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from addml.checkpoint import Storage
from addml.io.image_folder import is_image_folder
from addml.pipeline.options import IMAGE, SERIES, TABLE, Options, check_applies
from addml.pipeline.ranking import Result
from addml.progress import Progress

if TYPE_CHECKING:
    from addml.findings import Findings
    from addml.pipeline.model_diff import ModelDiff

__all__ = ["Result", "Source", "detect", "evaluate", "fit", "load_model", "model_diff", "open_source", "score"]


class Source(Protocol):
    """Rows of one kind."""

    kind: str

    def train(self, progress: Progress) -> Any:
        """A model of the rows."""
        ...

    def training_findings(self, model: Any) -> Findings:
        """What training found."""
        ...

    def rank(self, model: Any, progress: Progress, mapped: bool = True) -> Result:
        """The rows, scored and ranked: those that were trained on, or new ones by a saved model."""
        ...


def fit(options: Options, progress: Progress) -> Result:
    """Train on a file."""
    source = open_source(options)
    model = source.train(progress)
    return Result(source.training_findings(model), (), model)


def detect(options: Options, progress: Progress, mapped: bool = True) -> Result:
    """Train on a file and rank its own rows; `mapped` for the map of the metric space, which only a report shows."""
    source = open_source(options)
    Storage(scratch=options.scratch).folder  # must exist before the work  # noqa: B018
    return source.rank(source.train(progress), progress, mapped)


def score(options: Options, progress: Progress, mapped: bool = True) -> Result:
    """Rank the rows of a file by a saved model."""
    source = open_source(options)
    return source.rank(load_model(options, source.kind), progress, mapped)


def evaluate(options: Options, progress: Progress, mapped: bool = True) -> Result:
    """Compare scores with a label column: those of a saved model, or of one trained on the file itself."""
    run = detect if options.model is None else score
    return run(options, progress, mapped)


def model_diff(before: str, after: str, options: Options, progress: Progress) -> ModelDiff:
    """Compare the ranks and decisions of two saved models on one file."""
    from addml.pipeline.model_diff import compare_series, compare_tables

    check_applies(options, kind_of(options))
    compare = compare_tables if options.time is None else compare_series
    return compare(before, after, options, progress)


def open_source(options: Options) -> Source:
    """The rows that the options name: a table, a folder of images or a series."""
    kind = kind_of(options)
    check_applies(options, kind)
    if kind == IMAGE:
        from addml.pipeline.image_source import ImageSource

        return ImageSource(options)
    if kind == SERIES:
        from addml.pipeline.series_source import SeriesSource

        return SeriesSource(options)
    from addml.pipeline.table_source import TableSource

    return TableSource(options)


def kind_of(options: Options) -> str:
    """The kind of row that the options name."""
    if is_image_folder(options.file):
        return IMAGE
    return TABLE if options.time is None else SERIES


def load_model(options: Options, kind: str) -> Any:
    """The saved model of `--model`, with the threshold that the options ask for."""
    if kind == SERIES:
        from addml.pipeline.series_source import SeriesModel

        return SeriesModel.load(options)
    from addml.pipeline.fitted import Fitted

    return Fitted.load(str(options.model), options, options)
