"""Compare all scores, decisions, reasons and --json outputs with another commit's, bit by bit. See `make golden`.

python -m benchmarks.golden dump FILE.json             run every configuration with the addml on PYTHONPATH
python -m benchmarks.golden compare OLD.json NEW.json  one line per configuration; exit code 1 if anything differs
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import addml
from benchmarks.golden_cases import CASES, fit, frame, images, series

SCORES = ("training", "new", "score")  # keys whose lists are ranked
VOLATILE = ("versions", "seconds", "bytes")  # keys whose values differ from run to run
SHOWN = 8  # differing keys of a configuration
WIDTH = 100  # characters of a value that is shown
COMMANDS = {  # run one after another in one folder
    "detect": "detect table.csv --label late --top 8",
    "detect redacted": "detect table.csv --ignore late --top 3 --redact --no-report --scorer center",
    "fit": "fit table.csv --ignore late --one-sided amount:high --model table.model",
    "fit center": "fit table.csv --ignore late --members 1 --scorer center --model other.model",
    "score": "score later.csv --model table.model --top 8",
    "score, Python's model": "score later.csv --model python.model --top 8",
    "evaluate": "evaluate later.csv --label late --model table.model --top 3",
    "diff": "diff table.model other.model later.csv --top 5",
    "info": "info table.model",
    "images": "detect pictures --epochs 3 --members 2 --top 3",
    "series": "detect series.csv --time when --window 12 --epochs 3 --members 2 --top 3",
}

# Dump --------------------------------------------------------------------------------------------------------


def write_files(folder: Path) -> None:
    """Write the commands' inputs: two tables, a series, a folder of images, and a model saved from Python."""
    from PIL import Image

    for seed, name in enumerate(("table.csv", "later.csv")):
        table = frame(seed)
        table.assign(late=(np.arange(len(table)) % 40 == 5).astype(int)).to_csv(folder / name, index=False)
    steps = pd.DataFrame(series(0), columns=["flow", "heat"])
    steps.insert(0, "when", pd.date_range("2025-01-01", periods=len(steps), freq="15min"))
    steps.to_csv(folder / "series.csv", index=False)
    (folder / "pictures").mkdir()
    for place, picture in enumerate(images(0)):
        Image.fromarray(picture[0]).save(folder / "pictures" / f"{place:03}.png")
    fit(frame(0)).save(folder / "python.model")


def run_command(words: str, folder: Path) -> dict[str, Any]:
    """Run a command; its --json output and its scored table."""
    line = [sys.executable, "-m", "addml", *words.split(), "--json"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"addml {words} ended with {done.returncode}: {done.stderr[-2000:]}")
    result = {"json": json.loads(done.stdout)}
    if scored := result["json"].get("files", {}).get("scored"):
        with open(folder / scored, newline="") as file:
            table = list(csv.DictReader(file))
        result["scored"] = {name: [_value(row[name]) for row in table] for name in table[0]}
    return result


def _value(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def plain(value: Any) -> Any:
    """The value in JSON without losing a bit, minus what differs from run to run."""
    if isinstance(value, dict):
        return {str(name): None if name in VOLATILE else plain(own) for name, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(own) for own in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def dump(path: Path) -> None:
    """Run every configuration and write the results; a failure is recorded as one."""
    warnings.simplefilter("ignore")
    source = str(Path(addml.__file__ or "").parent)
    print(f"addml of {source}", file=sys.stderr)
    works: dict[str, Callable[[Path], Any]] = {
        **CASES,
        **{f"addml {name}": partial(run_command, words) for name, words in COMMANDS.items()},
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        for name, work in works.items():
            start = time.perf_counter()
            try:
                results[name] = plain(work(Path(folder)))
            except Exception as error:  # whatever it is: the others are still worth comparing
                traceback.print_exc()
                results[name] = {"failed": f"{type(error).__name__}: {error}"}
            said = results[name].get("failed") or results[name].get("skipped") or "done"
            print(f"{name}: {said}, {time.perf_counter() - start:.1f} s", file=sys.stderr)
    path.write_text(json.dumps({"addml": source, "results": results}))  # floats are written to be read as they were


# Compare -----------------------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its path: json/top[0]/score."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None or not value:
        yield path, value
        return
    for name, own in items:
        yield from leaves(own, f"{path}[{name}]" if isinstance(value, list) else f"{path}/{name}".lstrip("/"))


def key_of(path: str) -> str:
    return re.sub(r"\[\d+\]", "[]", path)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def relative(pairs: list[tuple[Any, Any]]) -> float:
    """The largest difference between the numbers of a key, relative to the largest of them."""
    numbers = np.array([pair for pair in pairs if all(map(is_number, pair))], float).reshape(-1, 2)
    largest = abs(numbers).max(initial=0.0)
    return float(abs(numbers[:, 0] - numbers[:, 1]).max(initial=0.0) / largest) if largest else 0.0


def score_lists(value: Any, path: str = "") -> Iterator[tuple[str, list[float]]]:
    """The lists of scores in a result, with their paths."""
    for name, own in value.items() if isinstance(value, dict) else ():
        if name in SCORES and isinstance(own, list) and all(map(is_number, own)):
            yield f"{path}/{name}", own
        yield from score_lists(own, f"{path}/{name}")


def rank_correlation(old: Any, new: Any) -> float | None:
    """The lowest Spearman correlation over all score lists; None without any."""
    from scipy.stats import spearmanr

    ours, found = dict(score_lists(new)), []
    for path, scores in score_lists(old):
        if len(ours.get(path, [])) == len(scores):
            found.append(1.0 if scores == ours[path] else float(spearmanr(scores, ours[path]).statistic))
    return float(np.min(found)) if found else None


def compared(old: dict[str, Any], new: dict[str, Any]) -> tuple[list[str], list[str]]:
    """One line of the table, and the differences by key."""
    for which, result in (("OLD", old), ("NEW", new)):
        for why in ("failed", "skipped"):
            if why in result:
                return [f"{why} in {which}", "", "", ""], [str(result[why])]
    before, after = dict(leaves(old)), dict(leaves(new))
    by_key: dict[str, list[tuple[Any, Any]]] = {}
    for path in (path for path in before if path in after):
        by_key.setdefault(key_of(path), []).append((before[path], after[path]))
    notes, largest = [], 0.0
    for key, pairs in sorted(by_key.items()):
        changed = [pair for pair in pairs if repr(pair[0]) != repr(pair[1])]  # -0.0 is not 0.0, NaN is NaN
        if changed:
            away = relative(pairs)
            largest = max(largest, away) if math.isfinite(away) else math.inf
            example = " -> ".join(repr(value)[:WIDTH] for value in changed[0])
            by = f" by {away:.1e}" if all(map(is_number, changed[0])) else ""
            notes.append(f"{key}: {len(changed)} of {len(pairs)} differ{by}: {example}")
    differing = len(notes)
    missing, added = ({key_of(path) for path in one.keys() - two} for one, two in ((before, after), (after, before)))
    notes += [f"{key}: only in OLD" for key in sorted(missing)] + [f"{key}: only in NEW" for key in sorted(added)]
    if not notes:
        return [f"equal ({len(before)} values)", "", "", "1"], []
    rank = rank_correlation(old, new)
    keys = f"-{len(missing)} +{len(added)}" if missing or added else ""
    return [
        f"{differing} of {len(by_key)} keys differ",
        f"{largest:.1e}",
        keys,
        "" if rank is None else f"{rank:.6f}",
    ], notes


def compare(old_path: Path, new_path: Path) -> int:
    """Print a line per configuration, then the differences; return 1 if there are any."""
    old, new = (json.loads(path.read_text()) for path in (old_path, new_path))
    print(f"OLD {old['addml']}\nNEW {new['addml']}\n")
    nothing = {"skipped": "there is no such configuration"}
    lines, notes = [["configuration", "values", "largest relative", "keys", "rank correlation"]], []
    for name in dict.fromkeys([*old["results"], *new["results"]]):
        cells, own = compared(old["results"].get(name, nothing), new["results"].get(name, nothing))
        lines.append([name, *cells])
        notes += [f"\n{name}", *(f"  {note}" for note in own[:SHOWN])] if own else []
        notes += [f"  and {len(own) - SHOWN} more"] if len(own) > SHOWN else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print("\n".join(notes) if notes else "\nall equal")
    return int(bool(notes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("dump").add_argument("file", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compare(arguments.old, arguments.new)
    dump(arguments.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
