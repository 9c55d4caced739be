"""`addml data`: which labelled data sets there are, and how to get them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addml.cli.arguments import with_options
from addml.cli.screen import Screen
from addml.pipeline.options import Options

if TYPE_CHECKING:
    from addml.data.registry import DataSet
    from addml.data.sets.resuming import Advance

INTERRUPTED = 130  # exit code
PAPER = "paper"
NOT_STATED = "not stated"
UNKNOWN = "?"

Names = Annotated[
    list[str] | None,
    typer.Argument(help="The data sets to get; those of the paper when none is named.", metavar="NAME"),
]
All = Annotated[bool, typer.Option("--all", help="Get every data set that has an address.", metavar="")]
Mirror = Annotated[
    str | None,
    typer.Option(
        "--mirror",
        help="Download from this address in place of https://raw.githubusercontent.com; ADDML_MIRROR does the same.",
        metavar="URL",
    ),
]

data = typer.Typer(no_args_is_help=True, help="List and download the labelled data sets of the experiments.")


@data.command(name="list")
@with_options("data")
def list_sets(options: Options) -> None:
    """List the known data sets, and which of them are on this machine."""
    from addml.data import registry

    screen = Screen(options)
    sets, cache = list(registry.SETS.values()), str(registry.cache_folder())
    states = {one.name: registry.state(one.name) for one in sets}
    screen.document({"sets": [_plain(one, states[one.name]) for one in sets], "cache": cache})
    screen.console().print(_table(sets, states))
    screen.say()
    here = sum(one != "missing" for one in states.values())
    screen.say(f"{here} of {len(sets)} are on this machine; addml data pull NAME gets others. Cache: {cache}")


@data.command(name="pull")
@with_options("data")
def pull_sets(options: Options, names: Names = None, every: All = False, mirror: Mirror = None) -> None:
    """Download data sets, verify them and keep them as Parquet; what is there already is not downloaded again."""
    from addml.data import registry

    screen = Screen(options)
    wanted = _wanted(names or [], every)
    try:
        registry.pull(wanted, mirror=mirror, stage=_bar(screen), said=screen.say)
    except KeyboardInterrupt:
        print("Interrupted. What was downloaded is kept: the same command goes on from there.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    screen.document({"sets": {name: registry.state(name) for name in wanted}})


def _wanted(names: list[str], every: bool) -> list[str]:
    from addml.data import registry

    if names and every:
        raise typer.BadParameter("give names or --all, not both.")
    if every:
        return [name for name, one in registry.SETS.items() if one.address is not None]
    try:
        return [registry.named(name).name for name in names] or registry.names(PAPER)
    except registry.UnknownSetError as error:
        raise typer.BadParameter(str(error)) from error


def _plain(one: DataSet, state: str) -> dict[str, Any]:
    fields = ("name", "title", "collection", "group", "rows", "columns", "anomalies", "licence", "address", "sha256")
    return {name: getattr(one, name) for name in fields} | {"state": state}


def _table(sets: list[DataSet], states: dict[str, Any]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("set", "title", "collection", "rows", "columns", "anomalies %", "licence", "state"):
        table.add_column(heading, justify="right" if heading in ("rows", "columns", "anomalies %") else "left")
    for one in sets:
        table.add_row(*map(Text, _cells(one, states[one.name])))
    return table


def _cells(one: DataSet, state: str) -> list[str]:
    counts = [UNKNOWN if count is None else f"{count:,}" for count in (one.rows, one.columns)]
    share = UNKNOWN if one.anomalies is None else f"{100 * one.anomalies:.2f}"
    collection = one.collection if one.group is None else f"{one.collection}, {one.group}"
    return [one.name, one.title, collection, *counts, share, one.licence or NOT_STATED, state]


def _bar(screen: Screen) -> Any:
    """A bar of bytes for each download, for a person who looks on."""

    @contextmanager
    def stage(words: str, total: float | None) -> Iterator[Advance]:
        if screen.silent or not sys.stderr.isatty():
            yield lambda steps: None
            return
        from rich import progress
        from rich.console import Console

        columns = (progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn())
        with progress.Progress("{task.description}", *columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(words, total=total)
            yield lambda steps: bar.advance(task, steps)

    return stage
