"""What a person or a program reads: findings on standard output, progress, warnings and errors on standard error."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from addml.pipeline.options import Options
from addml.progress import Advance, Progress
from addml.text import counted, json_value, listed, one_in, one_line, percent, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task
    from rich.text import Text

    from addml.findings import Finding, Findings, Hidden
    from addml.pipeline.diffs import DayDiff, ModelDiff


def bars(screen: Screen) -> Progress:
    """Progress bars, unless nothing is to be printed."""
    return Progress() if screen.silent else Bars()


class Bars(Progress):
    """One bar a stage, with rows per second and time left; it disappears when the stage is over."""

    @contextmanager
    def stage(self, words: str, total: float | None, rows_each: float = 1) -> Iterator[Advance]:
        """A bar of `total` steps (None if not known) of `rows_each` rows, and the function that moves it on."""
        if not sys.stderr.isatty():
            yield lambda steps: None
            return
        from rich import progress
        from rich.console import Console

        columns = [
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            _rate_column(rows_each),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
        ]
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(words, total=total)
            yield lambda steps: bar.advance(task, steps)

    def note(self, words: str) -> None:
        print(words, file=sys.stderr)


def _rate_column(rows_each: float) -> Any:
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed * rows_each:,.0f} rows/s" if speed else "", style="progress.data.speed")

    return Rate()


# Findings ---------------------------------------------------------------------------------------------------

PLAIN_WIDTH = 120  # columns, where the output is no terminal
MOST_NAMED = 8  # columns listed in a sentence
MOST_GROUPS = 5  # of similar rows
MOST_IDS, LONGEST_ID = 6, 40  # columns shown with each row; characters of a value
MOST_DRIFTED = 10  # columns that have changed
UNCHANGED = "much as in training"
AREAS = {
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "vus_pr": "VUS-PR",
    "vus_roc": "VUS-ROC",
    "pixel_roc_auc": "pixel ROC-AUC",
    "pro": "PRO",
}


class Screen:
    """Prints, unless `--quiet` or `--json` was given."""

    def __init__(self, options: Options, aside: bool = False) -> None:
        """Print as `--quiet` and `--json` say; `aside` on standard error, where standard output is a file's."""
        self.options = options
        self.aside = aside
        self.warnings: list[str] = []

    @property
    def silent(self) -> bool:
        return self.options.quiet or self.options.json

    def console(self) -> Console:
        """The console for a person."""
        from rich.console import Console

        width = None if (sys.stderr if self.aside else sys.stdout).isatty() else PLAIN_WIDTH
        return Console(stderr=self.aside, width=width, highlight=False, quiet=self.silent, emoji=False)

    def say(self, text: str = "", style: str | None = None, whole: bool = False) -> None:
        """One line, in which nothing is markup; `whole` for what is not to be broken, such as a path."""
        self.console().print(visible(text), markup=False, style=style, soft_wrap=whole)

    def grid(
        self, names: Sequence[str], lines: Iterable[Sequence[object]], right: Sequence[str], whole: Sequence[str] = ()
    ) -> None:
        """A table, some of whose columns stand at the right, some on one line; a cell may be a styled text."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            justify: Any = "right" if name in right else "left"
            table.add_column(Text(visible(name)), justify=justify, no_wrap=name in whole)
        for line in lines:
            table.add_row(*(cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in line))
        self.console().print(table)

    def document(self, content: Mapping[str, Any]) -> None:
        """The JSON document, where one is asked for."""
        if self.options.json:
            ascii_only = not sys.stdout.encoding.lower().startswith("utf")
            print(json.dumps(json_value(content), indent=1, ensure_ascii=ascii_only, allow_nan=False))

    @contextmanager
    def warned(self) -> Iterator[None]:
        """Warnings in one line each on standard error, kept for the report."""
        shown = warnings.showwarning
        warnings.showwarning = self._warn
        try:
            yield
        finally:
            warnings.showwarning = shown

    def _warn(self, message: Any, *about: Any, **more: Any) -> None:
        self.warnings.append(str(message))
        print(f"Warning: {visible(str(message))}", file=sys.stderr)


def show_findings(screen: Screen, findings: Findings, top: int) -> None:
    show_reading(screen, findings)
    show_training(screen, findings)
    show_ranking(screen, findings, top)
    show_evaluation(screen, findings)
    show_check(screen, findings)
    show_drift(screen, findings)


def show_reading(screen: Screen, findings: Findings) -> None:
    """What was read, and the dropped columns with the reasons."""
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


def show_ranking(screen: Screen, findings: Findings, top: int) -> None:
    """The table of the most anomalous rows, and how many lie above the threshold."""
    examples = findings.examples[:top]
    ids = list(examples[0].ids)[:MOST_IDS] if examples else []
    if examples:
        screen.say()
        names = ("rank", "row", *ids, "score", "rarity", "", "reasons")
        similar = {group.ranks[0]: len(group.ranks) - 1 for group in findings.groups}
        cells = [_cells(one, ids, findings.least_p_value, similar.get(one.rank, 0)) for one in examples]
        screen.grid(names, cells, right=("rank", "row", "score", "rarity"))
    flagged = f"{findings.anomalies:,} of {counted(findings.rows, findings.noun)} flagged"
    found = sum(one.is_anomaly for one in findings.ranked)
    events = "" if findings.track is None else f"{counted(found, 'event')}: "
    screen.say()
    screen.say(f"{events}{flagged} (*): {findings.rule}", style="bold")
    show_hidden(screen, findings.hidden)
    for group in [group for group in findings.groups if len(group.ranks) > 1][:MOST_GROUPS]:
        ranks = listed(list(map(str, group.ranks)), MOST_NAMED)
        screen.say(f"  {len(group.ranks):,} similar {findings.noun}s: {group.words} (ranks {ranks})")


def show_hidden(screen: Screen, hidden: Sequence[Hidden]) -> None:
    """What is not listed, being known to be normal."""
    for words in map(hidden_words, hidden):
        screen.say(f"  {words}")


def hidden_words(one: Hidden) -> str:
    """How many rows an entry hides, why, and the strangest of them."""
    until = f" until {one.expires}" if one.expires else ""
    what = f"{one.reason}: {one.place}" if one.reason else one.place
    return f"{one.rows:,} hidden{until} ({what}), the strangest is row {one.row} with {one.score:.4g}"


def _cells(finding: Finding, ids: Sequence[str], least: float, similar: int) -> list[str]:
    names = [one_line(finding.ids.get(name, ""), LONGEST_ID) for name in ids]
    why = "; ".join(reason.words for reason in finding.reasons)
    why += f" (and {counted(similar, 'similar row')})" if similar else ""
    rarity = "" if finding.p_value is None else one_in(finding.p_value, least)
    mark = "*" if finding.is_anomaly else ""
    return [str(finding.rank), str(finding.row), *names, f"{finding.score:.4g}", rarity, mark, why]


def show_evaluation(screen: Screen, findings: Findings) -> None:
    evaluation = findings.evaluation
    if evaluation is None:
        return
    screen.say()
    marked = counted(evaluation["anomalies"], "anomaly", "anomalies")
    rows = counted(evaluation["rows"], findings.noun)
    what = "" if "kinds" in evaluation else "label column "
    screen.say(f"Compared with the {what}{evaluation['label']} ({marked} in {rows})", style="bold")
    for name, words in AREAS.items():
        if name in evaluation:
            screen.say(f"  {words}: {evaluation[name]:.4f}")
    at = ", ".join(f"{share:.3f} at {k:,}" for k, share in evaluation["precision_at"].items())
    screen.say(f"  precision: {at}")
    decision = {name: f"{evaluation[name]:.3f}" for name in ("precision", "recall", "f1")}
    figures = ", ".join(f"{name} {value}" for name, value in decision.items())
    screen.say(f"  of the flagged {findings.noun}s: {figures}")
    if "events" in evaluation:
        screen.say(f"  {event_words(evaluation['events'])}")
    if evaluation["unlabelled"]:
        screen.say(f"  not counted: {counted(evaluation['unlabelled'], findings.noun)} without a label")
    if evaluation.get("kinds"):
        keys = list(dict.fromkeys(key for one in evaluation["kinds"] for key in one))
        names = ["kind of defect", *(AREAS.get(key, key) for key in keys[1:])]
        cells = [[_figure(one.get(key, "")) for key in keys] for one in evaluation["kinds"]]
        screen.grid(names, cells, right=names[1:])


def event_words(figures: Mapping[str, Any]) -> str:
    """The events of a series against the labelled ranges."""
    delay = "" if figures["delay"] is None else f", {figures['delay']:g} steps after its start at the median"
    first = f"{figures['true_of_first']:,} of the first {counted(figures['labelled'], 'event is', 'events are')} true"
    found = f"{figures['found']:,} of {counted(figures['labelled'], 'labelled event')} found{delay}"
    return f"{found}; {counted(figures['false'], 'false event')}; {first}"


def show_check(screen: Screen, findings: Findings) -> None:
    if not findings.check:
        return
    screen.say()
    screen.say("Faults planted in held-out rows, scored by a model of the other rows (an estimate)", style="bold")
    cells = [(one["kind"], percent(one["flagged"]), percent(one["first"]), one["verdict"]) for one in findings.check]
    screen.grid(("kind", "flagged", "in the top 1%", ""), cells, right=("flagged", "in the top 1%"))


def _figure(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def show_training(screen: Screen, findings: Findings) -> None:
    if findings.trained_rows:
        seconds = sum(float(entry.get("seconds", 0)) for entry in findings.history)
        rows, took = counted(findings.trained_rows, findings.noun), _took(len(findings.history), seconds)
        screen.say(f"  trained on {rows}{took}; threshold {findings.threshold:.4g}")


def _took(epochs: int, seconds: float) -> str:
    return f": {counted(epochs, 'epoch')}, {seconds:.1f} s" if epochs else ""  # a frozen network is not trained


def show_drift(screen: Screen, findings: Findings) -> None:
    """How the table differs from the training rows, where that is known."""
    if not findings.drift:
        return
    changed = [entry for entry in findings.drift if entry["words"] != UNCHANGED]
    screen.say()
    screen.say("Compared with the training rows", style="bold")
    for entry in changed[:MOST_DRIFTED]:
        screen.say(f"  {entry['column']}: {', '.join(filter(None, (entry.get('figures'), entry['words'])))}")
    more = len(changed) - MOST_DRIFTED
    if more > 0:
        screen.say(f"  and {counted(more, 'more column has', 'more columns have')} changed; --json lists all")
    alike = len(findings.drift) - len(changed)
    screen.say(f"  {alike:,} of {counted(len(findings.drift), 'column')}: {UNCHANGED}")


def show_diff(screen: Screen, moved: ModelDiff | DayDiff, top: int) -> None:
    """How two models differ on a table, or two days under a model."""
    from addml.pipeline.diffs import DayDiff

    if isinstance(moved, DayDiff):
        return _show_days(screen, moved, top)
    rows = counted(len(moved.before), moved.noun)
    screen.say(f"{moved.source}: {rows} scored by {moved.models[0]} and {moved.models[1]}", style="bold", whole=True)
    few = moved.first == len(moved.before)  # of which all are the same
    shared = "" if few else f"; {moved.shared:,} of the first {moved.first:,} are the same"
    screen.say(f"  ranks agree by {moved.agreement:.3f} (Spearman){shared}")
    before, after = (int(flags.sum()) for flags in moved.flagged)
    new, gone = (int((moved.decision == what).sum()) for what in ("new", "gone"))
    screen.say(f"  flagged: {before:,} before, {after:,} after; {new:,} new, {gone:,} gone")
    found = moved.listed(top)
    if not found:
        return
    screen.say()
    screen.grid(
        (moved.noun, *found[0]["ids"], "rank before", "rank after", "decision"),
        [[row["row"], *row["ids"].values(), row["rank_before"], row["rank_after"], row["decision"]] for row in found],
        right=(moved.noun, "rank before", "rank after"),
    )


def _show_days(screen: Screen, diff: DayDiff, top: int) -> None:
    """Which kinds of anomaly are new, grown or gone; rows are named only of these."""
    (first, second), (before, after) = diff.files, diff.rows
    screen.say(f"{first} ({before:,} rows) and {second} ({after:,} rows) by {diff.model}", style="bold", whole=True)
    kinds = ", ".join(f"{count:,} {status}" for status, count in diff.counts.items() if count) or "none"
    screen.say(f"  flagged: {diff.flagged(0):,} before, {diff.flagged(1):,} after; kinds of anomaly: {kinds}")
    show_hidden(screen, diff.hidden)
    listed = [one for one in diff.kinds if one.status in ("new", "grown", "gone")][:top]
    if not listed:
        return
    screen.say()
    screen.grid(
        ("", "kind", "before", "after", "", "row", "strangest row"),
        [(x.status, x.id, x.before, x.after, x.words, x.example.row, x.example.words) for x in listed],
        right=("before", "after", "row"),
    )


def show_model(screen: Screen, about: Mapping[str, Any]) -> None:
    flagged, took = about["anomalies_in_training"], _took(about["epochs"], about["seconds"])
    screen.say(f"{about['model']}: {about['bytes'] / 1e6:.2f} MB, addml {about['addml']}", style="bold")
    screen.say(f"  trained on {counted(about['trained_rows'], about['noun'])}{took}")
    screen.say(f"  threshold {about['threshold']:.4g} {about['decided_by']}; {flagged:,} of these flagged")
    screen.say(f"  layers {' - '.join(map(str, about['layers']))}, {about['weights']:,} weights in all members")
    for kind in dict.fromkeys(about["columns"].values()):
        names = [name for name, own in about["columns"].items() if own == kind]
        screen.say(f"  {counted(len(names), f'{kind} column')}: {', '.join(names)}")
    show_left_out(screen, [(one["column"], one["why"]) for one in about["left_out"]])
    if about["ids"]:
        screen.say(f"  id columns: {listed(about['ids'], MOST_NAMED)}")
    screen.say("  settings: " + ", ".join(f"{name} {value}" for name, value in about["settings"].items()))


def show_files(screen: Screen, files: Mapping[str, str]) -> None:
    screen.say()
    for name in sorted(files, key="report".__eq__):  # which is to be opened, and so comes last
        words = {"scored": "scored table", "record": "options of this run"}.get(name, name)
        screen.say(f"{words}: {files[name]}", whole=True)
