"""What each command does after its options are read: call one function of `detection`, write, print."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import typer

from addml.cli import outputs, screen, series
from addml.cli.checks import checked
from addml.cli.screen import Screen
from addml.cli.session import finish, finish_training, session
from addml.io.source import STANDARD_INPUT, is_special
from addml.pipeline.options import Labelling, Naming, Settings
from addml.pipeline.sources import name_of, on_disk_source


def detect(settings: Settings, folder: Path = Path()) -> None:
    """`addml detect`."""
    from addml.pipeline import run as detecting

    settings = checked(settings)
    name = str(folder / name_of(settings.file))
    files = outputs.planned(settings, name, scored=True, report=True, model=settings.saving.model)
    if settings.timing.time is not None:
        return series.detect(settings, files)
    settings = _with_checkpoint(settings, settings.saving.model or name)
    with session("detect", settings, files) as one:
        outcome = detecting.detect(settings, one.progress, files.shows_map)
        outputs.save_model(files, outcome.fitted.save)
        finish(one, outcome)


def fit(settings: Settings) -> None:
    """`addml fit`."""
    from addml.pipeline import run as detecting

    settings = checked(settings)
    name = name_of(settings.file)
    files = outputs.planned(settings, name, model=settings.saving.model or f"{name}.model")
    if settings.timing.time is not None:
        return series.fit(settings, files)
    settings = _with_checkpoint(settings, str(files.model))
    with session("fit", settings, files) as one:
        trained = detecting.fit(settings, one.progress)
        outputs.save_model(files, trained.fitted.save)
        finish_training(one, trained.findings())


def _with_checkpoint(settings: Settings, name: str) -> Settings:
    """The settings with a checkpoint where a table is larger than memory and none is named."""
    streaming = settings.streaming
    if streaming.checkpoint is not None or on_disk_source(settings) is None:
        return settings
    return replace(settings, streaming=replace(streaming, checkpoint=f"{name}.checkpoint"))


def score(settings: Settings) -> None:
    """`addml score`."""
    from addml.pipeline import run as detecting

    settings = checked(settings)
    if settings.using.model is None:
        raise typer.BadParameter("score needs a model: --model FOLDER, as addml fit wrote it.")
    files = outputs.planned(settings, name_of(settings.file), scored=True)
    if settings.timing.time is not None:
        return series.score(settings, files)
    with session("score", settings, files) as one:
        finish(one, detecting.score(settings, one.progress, files.shows_map))


def evaluate(settings: Settings) -> None:
    """`addml evaluate`."""
    from addml.pipeline import run as detecting

    settings = checked(settings)
    if settings.labelling.label is None:
        raise typer.BadParameter("evaluate needs a label column: --label NAME.")
    files = outputs.planned(settings, name_of(settings.file))
    if settings.timing.time is not None:
        return series.evaluate(settings, files)
    with session("evaluate", settings, files) as one:
        run = detecting.detect if settings.using.model is None else detecting.score
        finish(one, run(settings, one.progress, files.shows_map))


def diff(before: str, after: str, settings: Settings) -> None:
    """`addml diff`."""
    from addml.pipeline.model_diff import compare_models

    settings = checked(settings)
    files, top = outputs.planned(settings, "diff"), settings.listing.top
    with session("diff", settings, files, before=before, after=after) as one:
        moved = compare_models(before, after, settings, one.progress)
        outputs.write_scored(files, [moved.table])
        outputs.write_record(files, one.run, {"rows": len(moved.before)})
        screen.show_diff(one.screen, moved, top)
        screen.show_files(one.screen, files.named())
        one.screen.document(moved.summary(top) | {"files": files.named()})


def info(model: str, settings: Settings) -> None:
    """`addml info`."""
    from addml.pipeline.about import about_model

    about = about_model(model)
    out = Screen(settings.showing)
    out.document(about)
    screen.show_model(out, about)


def export(model: str, output: str | None, settings: Settings) -> None:
    """`addml export`."""
    from addml.detector import load
    from addml.onnx import to_onnx

    file = output or f"{Path(os.path.abspath(os.path.expanduser(model))).name.removesuffix('.model')}.onnx"
    to_pipe = is_special(Path(file))
    if file == STANDARD_INPUT or (to_pipe and settings.showing.json):
        raise typer.BadParameter(f"--output {file}: give the ONNX file a name; without --json it may be /dev/stdout.")
    to_onnx(load(model, device="cpu"), file)
    out = Screen(settings.showing, aside=to_pipe)
    out.document({"model": model, "files": {"onnx": file}})
    out.say(f"ONNX file: {file}", whole=True)


def demo(folder: str, settings: Settings) -> None:
    """`addml demo`."""
    from addml.pipeline.example import write_example

    target = Path(os.path.expanduser(folder))
    file = write_example(target)
    groups = ("naming", "labelling", "deciding", *settings.groups)
    label = Labelling("diagnosis", "malignant")
    detect(replace(settings, file=str(file), groups=groups, naming=Naming(("patient",)), labelling=label), target)
