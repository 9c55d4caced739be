"""`addml compare`: the paper's comparison on the user's own labelled table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addml.cli.arguments import Device, Jobs, argument, option, with_options
from addml.cli.outputs import plan_files
from addml.cli.screen import Screen, show_left_out
from addml.errors import USAGE, AddmlError
from addml.pipeline.options import Options
from addml.text import counted, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from addml.pipeline.rivals import LabelledTable, Method, Row

MAX_ROWS = 10_000  # some rivals take quadratic time
NOTES = (
    "AUC and average precision (AP) in percent, mean ± standard deviation of nine runs.",
    "seen: tested on the training rows; unseen: on a held-out third; one-class: trained on normal rows only.",
    "Stability: rank correlation (Spearman) of three seeds on a held-out third; 1: the same ranking.",
)

METHODS_HELP = "Methods to compare (NAME,NAME,...); ADDML is the default detector, ADDML.paper the paper's."

File = Annotated[str, argument("FILE", "Labelled table; see addml detect.")]
Methods = Annotated[list[str] | None, option("--methods", "NAMES", METHODS_HELP)]
RankBy = Annotated[str, option("--rank-by", "SETTING", "Setting to rank by: seen, unseen or one-class.")]
Output = Annotated[
    str | None, option("--output", "FILE", "Also write the results to a file: .csv, .parquet, .jsonl or .xlsx.")
]
Sample = Annotated[int, option("--sample", "N", "Maximum number of rows, drawn at random.", min=6)]


@with_options("compare")
def compare(
    file: File,
    options: Options,
    methods: Methods = None,
    rank_by: RankBy = "unseen",
    output: Output = None,
    sample: Sample = MAX_ROWS,
    jobs: Jobs = 1,
    device: Device = "auto",
) -> None:
    """Compare detectors on a labelled table: 3 folds x 3 seeds; labels are used for evaluation only."""
    from addml.pipeline import rivals

    if options.label is None:
        raise AddmlError("compare needs a label column: --label NAME.", USAGE)
    if rank_by not in rivals.SETTINGS:
        raise AddmlError(f"--rank-by {rank_by}: must be one of {', '.join(rivals.SETTINGS)}.", USAGE)
    names = known_methods(methods or rivals.METHODS, rivals.RIVALS)
    target = plan_files(replace(options, output=output), "").scored
    screen = Screen(options)
    progress = screen.progress()
    failures, rows = list[str](), list[dict[str, Any]]()
    with screen.show_warnings():
        with progress.stage(f"Reading {file}", None):
            data = rivals.read(options, sample)
        tasks = [rivals.MethodTask(name, data) for name in names]
        with progress.stage("Comparing", len(tasks)) as advance:
            run_tasks = runner(options.engine, options.address)
            for ended, results in run_tasks(tasks, rivals.Machine.of(device, jobs), jobs):
                failures += [] if ended.failure is None else [f"{ended.task.title}: {ended.failure}"]
                progress.note(f"compare: {ended.task.title}: {'failed' if ended.failure else f'{ended.seconds:.1f} s'}")
                rows += results
                advance(1)
    for line in failures:
        print(f"Failed: {line}", file=sys.stderr)
    if not rows:
        raise AddmlError(f"{data.name}: every method failed.")
    _write(screen, data, ranked_means(rows, rank_by), rank_by, failures, target)
    if failures:
        raise typer.Exit(1)


def known_methods(texts: Sequence[str], rivals: Mapping[str, Method]) -> list[str]:
    """Resolve comma-separated method names, ignoring case; an error lists all methods."""
    from addml.pipeline.rivals import OWN

    names = [*OWN, *rivals]
    by_name = {name.lower(): name for name in names}
    methods = [name for text in texts for name in map(str.strip, text.split(",")) if name]
    for name in methods:
        if name.lower() not in by_name:
            hint = did_you_mean(name, names)
            raise AddmlError(f"--methods: {name!r} is not a known method.{hint} Choose from {', '.join(names)}.", USAGE)
    if texts and not methods:
        raise AddmlError(f"--methods is empty; choose from {', '.join(names)}.", USAGE)
    return list(dict.fromkeys(by_name[name.lower()] for name in methods))


def runner(engine: str | None, address: str | None) -> Callable[..., Any]:
    """The function that runs tasks, on this machine or on a cluster."""
    if engine is None:
        from addml.pipeline.batches import run_tasks

        return run_tasks
    from addml.cluster.ray_fit import run_on_ray

    return partial(run_on_ray, address=address)


def ranked_means(rows: Sequence[Row], by: str) -> list[Row]:
    """Mean and standard deviation per method and setting, sorted by AUC in the setting `by`, then by name."""
    import numpy as np

    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["setting"]), []).append(row)
    results: list[Row] = []
    for (method, setting), runs in groups.items():
        scoring = [run["score_seconds"] for run in runs if run["score_seconds"] is not None]
        means: Row = {"method": method, "setting": setting}
        for name in ("auc", "ap"):
            values = [run[name] for run in runs]
            means |= {name: float(np.mean(values)), f"{name}_spread": float(np.std(values, ddof=1))}
        means["fit_seconds"] = float(np.mean([run["fit_seconds"] for run in runs]))
        means["score_seconds"] = float(np.mean(scoring)) if scoring else None  # the fit scores the seen rows
        means["stability"] = runs[0]["stability"]  # the same in all settings
        results.append(means)
    auc = {result["method"]: result["auc"] for result in results if result["setting"] == by}
    return sorted(results, key=lambda result: (-auc[result["method"]], result["method"]))


def _write(
    screen: Screen, data: LabelledTable, results: list[Row], by: str, failures: list[str], target: Path | None
) -> None:
    import pyarrow as pa

    from addml.io.write import write_table

    metadata = {
        "source": data.name,
        "rows": data.table.num_rows,
        "columns": data.table.num_columns,
        "anomalies": int(data.y.sum()),
        "notes": list(data.notes),
        "left_out": [{"column": name, "why": why} for name, why in data.dropped],
    }
    size = f"{counted(metadata['rows'], 'row')}, {counted(metadata['columns'], 'column')}"
    screen.say(f"{data.name}: {size}, {counted(metadata['anomalies'], 'anomaly', 'anomalies')}", style="bold")
    for note in data.notes:
        screen.say(f"  {note}")
    show_left_out(screen, data.dropped)
    _show_ranking(screen, results, by)
    if target is not None:
        write_table(pa.Table.from_pylist(results), target)
        screen.say(f"results: {target}")
    screen.document({**metadata, "by": by, "results": results, "failures": failures})


def _show_ranking(screen: Screen, results: list[Row], by: str) -> None:
    """The methods, best first: percent, stability, seconds to fit and to score a third of the rows."""
    methods: dict[str, dict[str, Row]] = {}
    for result in results:
        methods.setdefault(result["method"], {})[result["setting"]] = result
    rows = []
    for rank, (method, settings) in enumerate(methods.items(), start=1):
        aucs = [f"{100 * result['auc']:.1f} ± {100 * result['auc_spread']:.1f}" for result in settings.values()]
        timed = settings["unseen" if by == "seen" else by]
        times = (f"{timed['stability']:.3f}", f"{timed['fit_seconds']:.3f}", f"{timed['score_seconds']:.4f}")
        rows.append((rank, method, *aucs, f"{100 * settings[by]['ap']:.1f}", *times))
    measures = ("AUC seen", "AUC unseen", "AUC one-class", f"AP {by}", "Stability", "Fit, s", "Score, s")
    screen.say()
    screen.table(("Rank", "Method", *measures), rows, right=measures, no_wrap=("Rank", "Method"))
    screen.say()
    for note in NOTES:
        screen.say(f"  {note}")
