"""Screen output: findings on standard output; progress, warnings and errors on standard error."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from addml.cli.outputs import FILE_NAMES
from addml.findings import MEASURES, Findings
from addml.pipeline.options import Options
from addml.progress import Advance, Progress
from addml.text import counted, json_value, listed, one_in, one_line, percent, visible

if TYPE_CHECKING:
    from rich.console import Console

    from addml.pipeline.diffs import DayDiff, ModelDiff

PLAIN_WIDTH = 120  # characters, if the output is not a terminal
MAX_NAMES = 8  # columns per sentence
MAX_GROUPS = 5  # of similar rows
MAX_IDS, MAX_ID_LENGTH = 6, 40  # id columns per row; characters per id
MAX_DRIFTED = 10  # columns


class ProgressBars(Progress):
    """One progress bar per stage, with rows per second and time left."""

    @contextmanager
    def stage(self, words: str, total: float | None, rows_each: float = 1) -> Iterator[Advance]:
        if not sys.stderr.isatty():
            yield lambda steps: None
            return
        from rich import progress
        from rich.console import Console

        columns = [
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[rate]}", style="progress.data.speed"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
        ]
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(words, total=total, rate="")

            def advance(steps: float) -> None:
                speed = bar.tasks[task].speed
                bar.update(task, advance=steps, rate=f"{speed * rows_each:,.0f} rows/s" if speed else "")

            yield advance

    def note(self, words: str) -> None:
        print(words, file=sys.stderr)


class Screen:
    """Text for people and JSON for programs; silent with `--quiet` and `--json`."""

    def __init__(self, options: Options, to_stderr: bool = False) -> None:
        """`to_stderr`: a file of the run goes to standard output."""
        self.options = options
        self.to_stderr = to_stderr
        self.silent = options.quiet or options.json
        self.warnings: list[str] = []

    def progress(self) -> Progress:
        """Progress bars, or none with `--quiet` and `--json`."""
        return Progress() if self.silent else ProgressBars()

    def console(self) -> Console:
        from rich.console import Console

        width = None if (sys.stderr if self.to_stderr else sys.stdout).isatty() else PLAIN_WIDTH
        return Console(stderr=self.to_stderr, width=width, highlight=False, quiet=self.silent, emoji=False)

    def say(self, text: str = "", style: str | None = None, wrap: bool = True) -> None:
        """Print a line without interpreting markup."""
        self.console().print(visible(text), markup=False, style=style, soft_wrap=not wrap)

    def title(self, text: str) -> None:
        self.say()
        self.say(text, style="bold")

    def table(
        self, names: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str], no_wrap: Sequence[str] = ()
    ) -> None:
        """Print a table; the columns in `right` are right-aligned; a cell may be a styled text."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            justify: Any = "right" if name in right else "left"
            table.add_column(Text(visible(name)), justify=justify, no_wrap=name in no_wrap)
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in row))
        self.console().print(table)

    def document(self, content: Mapping[str, Any]) -> None:
        """Print the JSON document with `--json`."""
        if self.options.json:
            ascii_only = not sys.stdout.encoding.lower().startswith("utf")
            print(json.dumps(json_value(content), indent=1, ensure_ascii=ascii_only, allow_nan=False))

    def show_result(self, content: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """List the written files, or print the JSON document with them."""
        self.say()
        for name in sorted(files, key="report".__eq__):  # the report comes last, as it is the file to open
            self.say(f"{FILE_NAMES.get(name, name)}: {files[name]}", wrap=False)
        self.document({**content, "files": files})

    @contextmanager
    def show_warnings(self) -> Iterator[None]:
        """Print each warning as one line on standard error and keep it for the report."""

        def show(message: Any, *args: Any, **kwargs: Any) -> None:
            self.warnings.append(str(message))
            print(f"Warning: {visible(str(message))}", file=sys.stderr)

        original, warnings.showwarning = warnings.showwarning, show
        try:
            yield
        finally:
            warnings.showwarning = original


def show_findings(screen: Screen, findings: Findings, top: int) -> None:
    show_reading(screen, findings)
    show_training(screen, findings)
    _show_ranking(screen, findings, top)
    if findings.evaluation:
        _show_evaluation(screen, findings.evaluation, findings.noun)
    if findings.check:
        screen.title("Faults planted in held-out rows, scored by a model trained on the rest (an estimate)")
        rows = [(x["kind"], percent(x["flagged"]), percent(x["first"]), x["verdict"]) for x in findings.check]
        screen.table(("kind", "flagged", "in the top 1%", ""), rows, right=("flagged", "in the top 1%"))
    if findings.drift:
        _show_drift(screen, findings.drift)


def show_reading(screen: Screen, findings: Findings) -> None:
    """The input's size, notes on reading it, and the dropped columns."""
    columns = f", {counted(len(findings.columns), 'column')} used" if findings.noun != "image" else ""
    screen.say(f"{findings.source}: {counted(findings.rows, findings.noun)}{columns}", style="bold")
    for note in findings.notes:
        screen.say(f"  {note}")
    show_left_out(screen, findings.left_out)


def show_left_out(screen: Screen, left_out: Sequence[tuple[str, str]]) -> None:
    by_reason: dict[str, list[str]] = {}
    for name, reason in left_out:
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        screen.say(f"  dropped, {reason}: {listed(names, MAX_NAMES)}")


def show_training(screen: Screen, findings: Findings) -> None:
    if findings.trained_rows:
        seconds = sum(float(entry.get("seconds", 0)) for entry in findings.history)
        rows, duration = counted(findings.trained_rows, findings.noun), _duration(len(findings.history), seconds)
        screen.say(f"  trained on {rows}{duration}; threshold {findings.threshold:.4g}")


def _duration(epochs: int, seconds: float) -> str:
    return f": {counted(epochs, 'epoch')}, {seconds:.1f} s" if epochs else ""  # frozen networks have no epochs


def _show_ranking(screen: Screen, findings: Findings, top: int) -> None:
    """The most anomalous rows, the number of flagged ones, hidden rows and groups of similar ones."""
    examples = findings.examples[:top]
    if examples:
        id_names = list(examples[0].ids)[:MAX_IDS]
        similar = {group.ranks[0]: len(group.ranks) - 1 for group in findings.groups}
        rows = []
        for example in examples:
            ids = [one_line(example.ids.get(name, ""), MAX_ID_LENGTH) for name in id_names]
            reasons = "; ".join(reason.words for reason in example.reasons)
            if count := similar.get(example.rank, 0):
                reasons += f" (and {counted(count, 'similar row')})"
            rarity = "" if example.p_value is None else one_in(example.p_value, findings.least_p_value)
            mark = "*" if example.is_anomaly else ""
            rows.append((example.rank, example.row, *ids, f"{example.score:.4g}", rarity, mark, reasons))
        screen.say()
        names = ["rank", "row", *id_names, "score", "rarity", "", "reasons"]
        screen.table(names, rows, right=("rank", "row", "score", "rarity"))
    flagged = f"{findings.anomalies:,} of {counted(findings.rows, findings.noun)} flagged"
    n_events = sum(event.is_anomaly for event in findings.ranked)
    events = "" if findings.track is None else f"{counted(n_events, 'event')}: "
    screen.title(f"{events}{flagged} (*): {findings.rule}")
    for hidden in findings.hidden:
        screen.say(f"  {hidden.words}")
    for group in [group for group in findings.groups if len(group.ranks) > 1][:MAX_GROUPS]:
        ranks = listed(list(map(str, group.ranks)), MAX_NAMES)
        screen.say(f"  {len(group.ranks):,} similar {findings.noun}s: {group.words} (ranks {ranks})")


def _show_evaluation(screen: Screen, evaluation: Mapping[str, Any], noun: str) -> None:
    anomalies, rows = counted(evaluation["anomalies"], "anomaly", "anomalies"), counted(evaluation["rows"], noun)
    label = evaluation["label"] if "kinds" in evaluation else f"label column {evaluation['label']}"
    screen.title(f"Compared with the {label} ({anomalies} in {rows})")
    for name, title in MEASURES.items():
        if name in evaluation:
            screen.say(f"  {title}: {evaluation[name]:.4f}")
    precision_at = ", ".join(f"{share:.3f} at {k:,}" for k, share in evaluation["precision_at"].items())
    screen.say(f"  precision: {precision_at}")
    measures = ", ".join(f"{name} {evaluation[name]:.3f}" for name in ("precision", "recall", "f1"))
    screen.say(f"  flagged {noun}s: {measures}")
    if events := evaluation.get("events"):
        delay = "" if events["delay"] is None else f", with a median delay of {events['delay']:g} steps"
        detected = f"{events['found']:,} of {counted(events['labelled'], 'labelled event')} found{delay}"
        top = f"{events['true_of_first']:,} true among the top {counted(events['labelled'], 'event')}"
        screen.say(f"  {detected}; {counted(events['false'], 'false event')}; {top}")
    if evaluation["unlabelled"]:
        screen.say(f"  ignored: {counted(evaluation['unlabelled'], noun)} without a label")
    if kinds := evaluation.get("kinds"):
        keys = list(dict.fromkeys(key for kind in kinds for key in kind))
        names = ["kind of defect", *(MEASURES.get(key, key) for key in keys[1:])]
        values = [[kind.get(key, "") for key in keys] for kind in kinds]
        cells = [[f"{value:.3f}" if isinstance(value, float) else value for value in row] for row in values]
        screen.table(names, cells, right=names[1:])


def _show_drift(screen: Screen, drift: Sequence[dict[str, Any]]) -> None:
    from addml.preprocessing.profile import UNCHANGED

    changed = [entry for entry in drift if entry["words"] != UNCHANGED]
    screen.title("Compared with the training rows")
    for entry in changed[:MAX_DRIFTED]:
        screen.say(f"  {entry['column']}: {', '.join(filter(None, (entry.get('figures'), entry['words'])))}")
    n_unlisted = len(changed) - MAX_DRIFTED
    if n_unlisted > 0:
        screen.say(f"  {counted(n_unlisted, 'more column has', 'more columns have')} changed; --json lists all")
    screen.say(f"  {len(drift) - len(changed):,} of {counted(len(drift), 'column')}: {UNCHANGED}")


def show_diff(screen: Screen, diff: ModelDiff | DayDiff, top: int) -> None:
    from addml.pipeline.diffs import DayDiff

    if isinstance(diff, DayDiff):
        return _show_days(screen, diff, top)
    document = diff.to_json(top)
    rows, compared, (before, after) = document["rows"], document["compared_first"], document["models"]
    screen.say(f"{diff.source}: {counted(rows, diff.noun)} scored by {before} and {after}", style="bold", wrap=False)
    shared = f"; {document['shared_first']:,} of the top {compared:,} in common" if compared < rows else ""
    screen.say(f"  rank correlation {document['rank_agreement']:.3f} (Spearman){shared}")
    new, gone, both = (document["decisions"][key] for key in ("new", "gone", "anomaly"))
    screen.say(f"  flagged: {both + gone:,} before, {both + new:,} after; {new:,} new, {gone:,} gone")
    if moved := document["moved"]:
        keys = ("rank_before", "rank_after", "decision")
        screen.say()
        screen.table(
            (diff.noun, *moved[0]["ids"], "rank before", "rank after", "decision"),
            [[row["row"], *row["ids"].values(), *(row[key] for key in keys)] for row in moved],
            right=(diff.noun, "rank before", "rank after"),
        )


def _show_days(screen: Screen, diff: DayDiff, top: int) -> None:
    """The kinds of anomaly that are new, grown or gone, each with its strangest row."""
    (first, second), (before, after) = diff.files, diff.rows
    title = f"{first} ({before:,} rows) and {second} ({after:,} rows) scored by {diff.model}"
    screen.say(title, style="bold", wrap=False)
    document = diff.to_json(0)
    kinds = ", ".join(f"{count:,} {status}" for status, count in document["kinds"].items() if count) or "none"
    flagged = "{:,} before, {:,} after".format(*document["flagged"])
    screen.say(f"  flagged: {flagged}; kinds of anomaly: {kinds}")
    for hidden in diff.hidden:
        screen.say(f"  {hidden.words}")
    changed = [kind for kind in diff.kinds if kind.status in ("new", "grown", "gone")][:top]
    if changed:
        screen.say()
        screen.table(
            ("", "kind", "before", "after", "", "row", "strangest row"),
            [(x.status, x.id, x.before, x.after, x.words, x.example.row, x.example.words) for x in changed],
            right=("before", "after", "row"),
        )


def show_model(screen: Screen, metadata: Mapping[str, Any]) -> None:
    """The output of `addml info`."""
    rows = counted(metadata["trained_rows"], metadata["noun"])
    screen.say(f"{metadata['model']}: {metadata['bytes'] / 1e6:.2f} MB, addml {metadata['addml']}", style="bold")
    screen.say(f"  trained on {rows}{_duration(metadata['epochs'], metadata['seconds'])}")
    flagged = f"flags {metadata['anomalies_in_training']:,} of the {rows}"
    screen.say(f"  threshold {metadata['threshold']:.4g} ({metadata['decided_by']}): {flagged}")
    screen.say(f"  {metadata['weights']:,} weights in all members")
    for column_type in dict.fromkeys(metadata["columns"].values()):
        names = [name for name, other in metadata["columns"].items() if other == column_type]
        screen.say(f"  {counted(len(names), f'{column_type} column')}: {', '.join(names)}")
    show_left_out(screen, [(dropped["column"], dropped["why"]) for dropped in metadata["left_out"]])
    if metadata["ids"]:
        screen.say(f"  id columns: {listed(metadata['ids'], MAX_NAMES)}")
    screen.say("  settings: " + ", ".join(f"{name} {value}" for name, value in metadata["settings"].items()))
