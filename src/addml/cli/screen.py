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
MOST_NAMED = 8  # columns per sentence
MOST_GROUPS = 5  # of similar rows
MOST_IDS, LONGEST_ID = 6, 40  # id columns per row; characters per id
MOST_DRIFTED = 10  # columns


def bars(screen: Screen) -> Progress:
    """Progress bars, or none with `--quiet` and `--json`."""
    return Progress() if screen.silent else Bars()


class Bars(Progress):
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
        """`to_stderr`: standard output is taken by a file of the run."""
        self.options = options
        self.to_stderr = to_stderr
        self.silent = options.quiet or options.json
        self.warnings: list[str] = []

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

    def grid(
        self, names: Sequence[str], lines: Iterable[Sequence[object]], right: Sequence[str], no_wrap: Sequence[str] = ()
    ) -> None:
        """Print a table; the columns in `right` are right-aligned; a cell may be a styled text."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            justify: Any = "right" if name in right else "left"
            table.add_column(Text(visible(name)), justify=justify, no_wrap=name in no_wrap)
        for line in lines:
            table.add_row(*(cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in line))
        self.console().print(table)

    def document(self, content: Mapping[str, Any]) -> None:
        """Print the JSON document if `--json` asks for it."""
        if self.options.json:
            ascii_only = not sys.stdout.encoding.lower().startswith("utf")
            print(json.dumps(json_value(content), indent=1, ensure_ascii=ascii_only, allow_nan=False))

    def show_result(self, content: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """List the files that were written, or print the JSON document with them."""
        self.say()
        for name in sorted(files, key="report".__eq__):  # the report last, as it is the one to open
            self.say(f"{FILE_NAMES.get(name, name)}: {files[name]}", wrap=False)
        self.document({**content, "files": files})

    @contextmanager
    def warned(self) -> Iterator[None]:
        """Print each warning as one line on standard error and keep it for the report."""

        def warn(message: Any, *about: Any, **more: Any) -> None:
            self.warnings.append(str(message))
            print(f"Warning: {visible(str(message))}", file=sys.stderr)

        shown, warnings.showwarning = warnings.showwarning, warn
        try:
            yield
        finally:
            warnings.showwarning = shown


def show_findings(screen: Screen, findings: Findings, top: int) -> None:
    show_reading(screen, findings)
    show_training(screen, findings)
    _show_ranking(screen, findings, top)
    if findings.evaluation:
        _show_evaluation(screen, findings.evaluation, findings.noun)
    if findings.check:
        screen.title("Faults planted in held-out rows, scored by a model trained on the rest (an estimate)")
        cells = [(x["kind"], percent(x["flagged"]), percent(x["first"]), x["verdict"]) for x in findings.check]
        screen.grid(("kind", "flagged", "in the top 1%", ""), cells, right=("flagged", "in the top 1%"))
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
    reasons: dict[str, list[str]] = {}
    for name, why in left_out:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        screen.say(f"  dropped, {why}: {listed(names, MOST_NAMED)}")


def show_training(screen: Screen, findings: Findings) -> None:
    if findings.trained_rows:
        seconds = sum(float(entry.get("seconds", 0)) for entry in findings.history)
        rows, took = counted(findings.trained_rows, findings.noun), _took(len(findings.history), seconds)
        screen.say(f"  trained on {rows}{took}; threshold {findings.threshold:.4g}")


def _took(epochs: int, seconds: float) -> str:
    return f": {counted(epochs, 'epoch')}, {seconds:.1f} s" if epochs else ""  # frozen networks have no epochs


def _show_ranking(screen: Screen, findings: Findings, top: int) -> None:
    """The most anomalous rows, the number of flagged ones, hidden rows and groups of similar ones."""
    examples = findings.examples[:top]
    if examples:
        ids = list(examples[0].ids)[:MOST_IDS]
        similar = {group.ranks[0]: len(group.ranks) - 1 for group in findings.groups}
        cells = []
        for one in examples:
            names = [one_line(one.ids.get(name, ""), LONGEST_ID) for name in ids]
            why = "; ".join(reason.words for reason in one.reasons)
            more = similar.get(one.rank, 0)
            why += f" (and {counted(more, 'similar row')})" if more else ""
            rarity = "" if one.p_value is None else one_in(one.p_value, findings.least_p_value)
            mark = "*" if one.is_anomaly else ""
            cells.append((one.rank, one.row, *names, f"{one.score:.4g}", rarity, mark, why))
        screen.say()
        names = ["rank", "row", *ids, "score", "rarity", "", "reasons"]
        screen.grid(names, cells, right=("rank", "row", "score", "rarity"))
    flagged = f"{findings.anomalies:,} of {counted(findings.rows, findings.noun)} flagged"
    found = sum(one.is_anomaly for one in findings.ranked)
    events = "" if findings.track is None else f"{counted(found, 'event')}: "
    screen.title(f"{events}{flagged} (*): {findings.rule}")
    for hidden in findings.hidden:
        screen.say(f"  {hidden.words}")
    for group in [group for group in findings.groups if len(group.ranks) > 1][:MOST_GROUPS]:
        ranks = listed(list(map(str, group.ranks)), MOST_NAMED)
        screen.say(f"  {len(group.ranks):,} similar {findings.noun}s: {group.words} (ranks {ranks})")


def _show_evaluation(screen: Screen, evaluation: Mapping[str, Any], noun: str) -> None:
    marked, rows = counted(evaluation["anomalies"], "anomaly", "anomalies"), counted(evaluation["rows"], noun)
    what = "" if "kinds" in evaluation else "label column "
    screen.title(f"Compared with the {what}{evaluation['label']} ({marked} in {rows})")
    for name, words in MEASURES.items():
        if name in evaluation:
            screen.say(f"  {words}: {evaluation[name]:.4f}")
    at = ", ".join(f"{share:.3f} at {k:,}" for k, share in evaluation["precision_at"].items())
    screen.say(f"  precision: {at}")
    figures = ", ".join(f"{name} {evaluation[name]:.3f}" for name in ("precision", "recall", "f1"))
    screen.say(f"  flagged {noun}s: {figures}")
    if events := evaluation.get("events"):
        delay = "" if events["delay"] is None else f", with a median delay of {events['delay']:g} steps"
        found = f"{events['found']:,} of {counted(events['labelled'], 'labelled event')} found{delay}"
        top = f"{events['true_of_first']:,} true among the top {counted(events['labelled'], 'event')}"
        screen.say(f"  {found}; {counted(events['false'], 'false event')}; {top}")
    if evaluation["unlabelled"]:
        screen.say(f"  ignored: {counted(evaluation['unlabelled'], noun)} without a label")
    if kinds := evaluation.get("kinds"):
        keys = list(dict.fromkeys(key for one in kinds for key in one))
        names = ["kind of defect", *(MEASURES.get(key, key) for key in keys[1:])]
        values = [[one.get(key, "") for key in keys] for one in kinds]
        cells = [[f"{value:.3f}" if isinstance(value, float) else value for value in line] for line in values]
        screen.grid(names, cells, right=names[1:])


def _show_drift(screen: Screen, drift: Sequence[dict[str, Any]]) -> None:
    from addml.preprocessing.profile import UNCHANGED

    changed = [entry for entry in drift if entry["words"] != UNCHANGED]
    screen.title("Compared with the training rows")
    for entry in changed[:MOST_DRIFTED]:
        screen.say(f"  {entry['column']}: {', '.join(filter(None, (entry.get('figures'), entry['words'])))}")
    more = len(changed) - MOST_DRIFTED
    if more > 0:
        screen.say(f"  {counted(more, 'more column has', 'more columns have')} changed; --json lists all")
    screen.say(f"  {len(drift) - len(changed):,} of {counted(len(drift), 'column')}: {UNCHANGED}")


def show_diff(screen: Screen, moved: ModelDiff | DayDiff, top: int) -> None:
    from addml.pipeline.diffs import DayDiff

    if isinstance(moved, DayDiff):
        return _show_days(screen, moved, top)
    about = moved.to_json(top)
    rows, first, (before, after) = about["rows"], about["compared_first"], about["models"]
    screen.say(f"{moved.source}: {counted(rows, moved.noun)} scored by {before} and {after}", style="bold", wrap=False)
    shared = f"; {about['shared_first']:,} of the top {first:,} in common" if first < rows else ""
    screen.say(f"  rank correlation {about['rank_agreement']:.3f} (Spearman){shared}")
    new, gone, both = (about["decisions"][what] for what in ("new", "gone", "anomaly"))
    screen.say(f"  flagged: {both + gone:,} before, {both + new:,} after; {new:,} new, {gone:,} gone")
    if found := about["moved"]:
        keys = ("rank_before", "rank_after", "decision")
        screen.say()
        screen.grid(
            (moved.noun, *found[0]["ids"], "rank before", "rank after", "decision"),
            [[row["row"], *row["ids"].values(), *(row[key] for key in keys)] for row in found],
            right=(moved.noun, "rank before", "rank after"),
        )


def _show_days(screen: Screen, diff: DayDiff, top: int) -> None:
    """The kinds of anomaly that are new, grown or gone, each with its strangest row."""
    (first, second), (before, after) = diff.files, diff.rows
    title = f"{first} ({before:,} rows) and {second} ({after:,} rows) scored by {diff.model}"
    screen.say(title, style="bold", wrap=False)
    about = diff.to_json(0)
    kinds = ", ".join(f"{count:,} {status}" for status, count in about["kinds"].items() if count) or "none"
    flagged = "{:,} before, {:,} after".format(*about["flagged"])
    screen.say(f"  flagged: {flagged}; kinds of anomaly: {kinds}")
    for hidden in diff.hidden:
        screen.say(f"  {hidden.words}")
    found = [one for one in diff.kinds if one.status in ("new", "grown", "gone")][:top]
    if found:
        screen.say()
        screen.grid(
            ("", "kind", "before", "after", "", "row", "strangest row"),
            [(x.status, x.id, x.before, x.after, x.words, x.example.row, x.example.words) for x in found],
            right=("before", "after", "row"),
        )


def show_model(screen: Screen, about: Mapping[str, Any]) -> None:
    """The output of `addml info`."""
    rows = counted(about["trained_rows"], about["noun"])
    screen.say(f"{about['model']}: {about['bytes'] / 1e6:.2f} MB, addml {about['addml']}", style="bold")
    screen.say(f"  trained on {rows}{_took(about['epochs'], about['seconds'])}")
    flagged = f"flags {about['anomalies_in_training']:,} of the {rows}"
    screen.say(f"  threshold {about['threshold']:.4g} ({about['decided_by']}): {flagged}")
    screen.say(f"  {about['weights']:,} weights in all members")
    for kind in dict.fromkeys(about["columns"].values()):
        names = [name for name, own in about["columns"].items() if own == kind]
        screen.say(f"  {counted(len(names), f'{kind} column')}: {', '.join(names)}")
    show_left_out(screen, [(one["column"], one["why"]) for one in about["left_out"]])
    if about["ids"]:
        screen.say(f"  id columns: {listed(about['ids'], MOST_NAMED)}")
    screen.say("  settings: " + ", ".join(f"{name} {value}" for name, value in about["settings"].items()))
