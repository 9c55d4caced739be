"""`addml compare`: the paper's comparison on the user's own labelled file."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addml.cli.arguments import Device, Jobs, with_options
from addml.cli.grids import following, show_grid, usage
from addml.cli.outputs import check_writable
from addml.cli.screen import Screen, bars, show_left_out
from addml.errors import UserError
from addml.pipeline.options import Options
from addml.text import counted

if TYPE_CHECKING:
    from addml.experiments.comparing import Labelled, Result

ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl", ".json")
ROWS = 10_000  # some rivals grow with the square of the rows

File = Annotated[str, typer.Argument(help="A labelled table; see addml detect.", metavar="FILE", show_default=False)]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        help="Compare these; with commas between them. ADDML is the package's default, ADDML.paper the paper's.",
        metavar="NAMES",
    ),
]
By = Annotated[
    str,
    typer.Option("--by", help="Setting to rank by: seen, unseen or one-class.", metavar="SETTING", show_default=True),
]
Output = Annotated[
    str | None,
    typer.Option("--output", help="Write the figures too: .csv, .json, .jsonl or .parquet.", metavar="FILE"),
]
Sample = Annotated[
    int, typer.Option("--sample", help="Compare on at most so many rows, drawn at random.", min=6, metavar="N")
]


@with_options("compare")
def compare(
    file: File,
    options: Options,
    methods: Methods = None,
    by: By = "unseen",
    output: Output = None,
    sample: Sample = ROWS,
    jobs: Jobs = 1,
    device: Device = "auto",
) -> None:
    """Compare detectors on a labelled table: 3 folds x 3 seeds, labels for the evaluation only."""
    from addml.experiments import comparing
    from addml.experiments import methods as all_methods
    from addml.experiments.protocol import SETTINGS
    from addml.experiments.running import machine_for

    if options.label is None:
        raise typer.BadParameter("compare needs a label column: --label NAME.")
    if by not in SETTINGS:
        raise typer.BadParameter(f"{by!r} is not one of {', '.join(SETTINGS)} (--by).")
    with usage():
        chosen = all_methods.known(methods or comparing.METHODS)
        target = _target(output, file)
    screen, failures = Screen(options), list[str]()
    with screen.warned():
        with bars(screen).stage(f"Reading {file}", None):
            labelled = comparing.read(options, sample)
        tasks = comparing.tasks(labelled.data, chosen)
        with following("compare", tasks, screen, failures) as on_end:
            rows = comparing.compare(tasks, machine_for(device, jobs), jobs, on_end)
    for line in failures:
        print(f"Failed: {line}", file=sys.stderr)
    if not rows:
        raise UserError(f"{labelled.data.name}: no method could be run.")
    found = comparing.summary(rows, by)
    _show(screen, labelled, found, by)
    if target is not None:
        _write(target, found)
        screen.say(f"figures: {target}")
    screen.document(_document(labelled, found, by, failures))
    if failures:
        raise typer.Exit(1)


def _target(output: str | None, file: str) -> Path | None:
    """Where the figures go, found out before the work."""
    from addml.inputs.disk import is_part

    if output is None:
        return None
    path = Path(os.path.expanduser(output))
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path}: the name must end in one of {', '.join(ENDINGS)} (--output).")
    if is_part(path, file):
        raise UserError(f"{path}: is the input, which is never overwritten, or lies in it (--output).")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give the figures another name (--output).")
    check_writable(path)
    return path


def _show(screen: Screen, labelled: Labelled, found: list[Result], by: str) -> None:
    from addml.experiments.comparing import grid

    data = labelled.data
    rows, columns = data.shape
    size = f"{counted(rows, 'row')}, {counted(columns, 'column')}"
    screen.say(f"{data.name}: {size}, {counted(int(data.y.sum()), 'anomaly', 'anomalies')}", style="bold")
    for note in labelled.notes:
        screen.say(f"  {note}")
    show_left_out(screen, labelled.left_out)
    show_grid(screen, grid(found, data.name, by), digits=4)
    screen.say("  AUC and average precision (AP) in percent, means and deviations of nine runs.")
    screen.say(
        "  seen: tested on the rows learned from; unseen: on a held-out third; one-class: learned from normal rows."
    )
    screen.say("  Stability: how alike three seeds rank a held-out third (Spearman's correlation); 1 is the same list.")


def _document(labelled: Labelled, found: list[Result], by: str, failures: list[str]) -> dict[str, Any]:
    data = labelled.data
    about = {"source": data.name, "rows": data.shape[0], "columns": data.shape[1], "anomalies": int(data.y.sum())}
    results = [asdict(one) for one in found]
    left_out = [{"column": name, "why": why} for name, why in labelled.left_out]
    return {
        **about,
        "notes": list(labelled.notes),
        "left_out": left_out,
        "by": by,
        "results": results,
        "failures": failures,
    }


def _write(target: Path, found: list[Result]) -> None:
    rows = [asdict(one) for one in found]
    if target.suffix.lower() == ".json":
        from addml.io.write import write_whole

        write_whole(target, (json.dumps(rows, indent=1) + "\n").encode())
        return
    import pyarrow as pa

    from addml.io.write import write_table

    write_table(pa.Table.from_pylist(rows), target)
