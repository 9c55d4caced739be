"""`addml compare`: the paper's comparison on the user's own labelled table."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addml.cli.arguments import Device, Jobs, with_options
from addml.cli.outputs import check_writable
from addml.cli.screen import Screen, bars, show_left_out
from addml.errors import USAGE, AddmlError
from addml.pipeline.options import Options
from addml.text import counted

if TYPE_CHECKING:
    from rich.text import Text

    from addml.pipeline.protocol import LabelledTable, Row

ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl", ".json")
ROWS = 10_000  # some rivals grow with the square of the rows
NOTES = (
    "AUC and average precision (AP) in percent, means and deviations of nine runs.",
    "seen: tested on the training rows; unseen: on a held-out third; one-class: trained on normal rows.",
    "Stability: how alike three seeds rank a held-out third (Spearman's correlation); 1 is the same list.",
)

File = Annotated[str, typer.Argument(help="A labelled table; see addml detect.", metavar="FILE", show_default=False)]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        help="Methods to compare (NAME,NAME,...). ADDML is the default detector, ADDML.paper the paper's.",
        metavar="NAMES",
    ),
]
RankBy = Annotated[
    str,
    typer.Option(
        "--rank-by", help="Setting to rank by: seen, unseen or one-class.", metavar="SETTING", show_default=True
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", help="Also write the figures to a file: .csv, .json, .jsonl or .parquet.", metavar="FILE"),
]
Sample = Annotated[
    int, typer.Option("--sample", help="Compare on at most this many rows, drawn at random.", min=6, metavar="N")
]


@with_options("compare")
def compare(
    file: File,
    options: Options,
    methods: Methods = None,
    rank_by: RankBy = "unseen",
    output: Output = None,
    sample: Sample = ROWS,
    jobs: Jobs = 1,
    device: Device = "auto",
) -> None:
    """Compare detectors on a labelled table: 3 folds x 3 seeds, labels used for evaluation only."""
    from addml.pipeline import protocol

    if options.label is None:
        raise AddmlError("compare needs a label column: --label NAME.", USAGE)
    if rank_by not in protocol.SETTINGS:
        raise AddmlError(f"{rank_by!r} is not one of {', '.join(protocol.SETTINGS)} (--rank-by).", USAGE)
    chosen, target = protocol.known_methods(methods or protocol.METHODS), _target(output, file)
    screen, failures, rows = Screen(options), list[str](), list[dict[str, Any]]()
    progress = bars(screen)
    with screen.warned():
        with progress.stage(f"Reading {file}", None):
            data = protocol.read(options, sample)
        tasks = [protocol.MethodTask(method, data) for method in chosen]
        with progress.stage("Comparing", len(tasks)) as advance:
            run, machine = runner(options.engine, options.address), protocol.Machine.of(device, jobs)
            for ended, own in run(tasks, machine, jobs):
                failures += [] if ended.failure is None else [f"{ended.task.title}: {ended.failure}"]
                progress.note(f"compare: {ended.task.title}: {'failed' if ended.failure else f'{ended.seconds:.1f} s'}")
                rows += own
                advance(1)
    for line in failures:
        print(f"Failed: {line}", file=sys.stderr)
    if not rows:
        raise AddmlError(f"{data.name}: no method could be run.")
    found = protocol.summary(rows, rank_by)
    _show(screen, data, found, rank_by)
    if target is not None:
        _write(target, found)
        screen.say(f"figures: {target}")
    screen.document(_document(data, found, rank_by, failures))
    if failures:
        raise typer.Exit(1)


def runner(engine: str | None, address: str | None) -> Callable[..., Any]:
    """What runs tasks: processes of this machine, or a cluster."""
    from addml.pipeline.workers import run_tasks

    if engine is None:
        return run_tasks
    from addml.cluster.ray_cluster import run_on_ray

    return partial(run_on_ray, address=address)


def _target(output: str | None, file: str) -> Path | None:
    from addml.inputs.disk import is_part

    if output is None:
        return None
    path, wrong = Path(os.path.expanduser(output)), ""
    if path.suffix.lower() not in ENDINGS:
        wrong = f"the name must end in one of {', '.join(ENDINGS)}"
    elif is_part(path, file):
        wrong = "is the input, which is never overwritten, or lies in it"
    elif path.is_dir():
        wrong = "is a folder; give the figures another name"
    if wrong:
        raise AddmlError(f"{path}: {wrong} (--output).", USAGE)
    check_writable(path)
    return path


def _show(screen: Screen, data: LabelledTable, found: Sequence[Row], by: str) -> None:
    rows, columns = data.shape
    size = f"{counted(rows, 'row')}, {counted(columns, 'column')}"
    screen.say(f"{data.name}: {size}, {counted(int(data.y.sum()), 'anomaly', 'anomalies')}", style="bold")
    for note in data.notes:
        screen.say(f"  {note}")
    show_left_out(screen, data.dropped)
    _show_ranking(screen, found, by)
    for note in NOTES:
        screen.say(f"  {note}")


def _show_ranking(screen: Screen, found: Sequence[Row], by: str) -> None:
    """The methods, best first: measures in percent, stability, seconds of a fit and of scoring a third of all rows."""
    from addml.pipeline.protocol import ONE_CLASS, SETTINGS, UNSEEN

    columns: dict[str, Sequence[Any]] = {f"AUC {name}": _in_percent(found, name, "auc") for name in SETTINGS}
    columns[f"AP {by}"] = _in_percent(found, by, "ap")
    timed = [one for one in found if one["setting"] == (ONE_CLASS if by == ONE_CLASS else UNSEEN)]
    columns["Stability"] = [f"{one['stability']:.3f}" for one in timed]
    columns["Fit, s"] = [f"{one['fit_seconds']:.3f}" for one in timed]
    columns["Score, s"] = [f"{one['score_seconds']:.4f}" for one in timed]
    lines = zip(range(1, len(timed) + 1), [one["method"] for one in timed], *columns.values(), strict=True)
    screen.say()
    screen.grid(("Rank", "Method", *columns), lines, right=[*columns], whole=("Rank", "Method"))
    screen.say()


def _in_percent(found: Sequence[Row], setting: str, measure: str) -> list[Text]:
    """The methods' means of a measure, ROC-AUC with its deviation; the best, and others that read the same, in bold."""
    from rich.text import Text

    own = [one for one in found if one["setting"] == setting]
    means = [round(100 * one[measure], 1) for one in own]
    spreads = [f" ± {100 * one['auc_spread']:.1f}" if measure == "auc" else "" for one in own]
    best = max(means) if len(means) > 1 else None
    return [
        Text(f"{mean:.1f}{spread}", "bold" if mean == best else "") for mean, spread in zip(means, spreads, strict=True)
    ]


def _document(data: LabelledTable, found: Sequence[Row], by: str, failures: list[str]) -> Row:
    return {
        "source": data.name,
        "rows": data.shape[0],
        "columns": data.shape[1],
        "anomalies": int(data.y.sum()),
        "notes": list(data.notes),
        "left_out": [{"column": name, "why": why} for name, why in data.dropped],
        "by": by,
        "results": found,
        "failures": failures,
    }


def _write(target: Path, found: Sequence[Row]) -> None:
    from addml.io.write import write_table, write_whole

    if target.suffix.lower() == ".json":
        write_whole(target, (json.dumps(found, indent=1) + "\n").encode())
        return
    import pyarrow as pa

    write_table(pa.Table.from_pylist(found), target)
