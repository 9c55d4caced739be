"""Scoring on Ray Data: Parquet parts in, Parquet parts out, each written atomically.

A manifest in the output folder records the model and the parts. A killed run resumes when it is started again: existing
parts are kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import dataset, parquet

from addml.cluster import BatchScorer
from addml.cluster.ray_fit import connected
from addml.errors import AddmlError
from addml.inputs.disk import Source
from addml.io.binary import folder_dataset, parquet_files
from addml.io.source import Origin, ReadError, find_origin
from addml.io.write import WriteError, write_pieces, write_whole
from addml.pipeline.batches import BATCH_ROWS
from addml.pipeline.options import Options
from addml.pipeline.run import load_model
from addml.pipeline.sources import identifiers
from addml.progress import Progress
from addml.text import TABLE, counted, listed

PART_ROWS = 1_000_000  # per output file, unless a row group has more
MANIFEST = "_manifest.json"  # Parquet readers ignore files that begin with _

Part = dict[str, Any]  # rows `start` to `stop` of `file`, scored into the file `target`


@dataclass(frozen=True)
class Scoring:
    """Scores parts in a worker."""

    scorer: BatchScorer
    schema: bytes  # the Arrow schema of all files together
    base: str  # the input folder
    columns: tuple[str, ...]

    def __call__(self, part: Part) -> dict[str, Any]:
        """Write a part. Errors are returned, not raised, so that the other parts continue."""
        result = {"file": part["file"], "rows": 0, "unreadable": "", "failed": ""}
        try:
            write_pieces(self._score(part), part["target"])
        except ReadError as error:
            return result | {"unreadable": str(error)}
        except (AddmlError, WriteError) as error:
            return result | {"failed": str(error)}
        return result | {"rows": part["stop"] - part["start"]}

    def _score(self, part: Part) -> Iterator[pa.Table]:
        file, schema = part["file"], pa.ipc.read_schema(pa.py_buffer(self.schema))
        rows = dataset.dataset([file], schema, "parquet", partitioning="hive", partition_base_dir=self.base)
        name, n_ids, row = os.path.relpath(file, self.base), len(self.scorer.columns or ()), part["start"] + 1
        for batch in Source(rows, file, self.columns).batches(part["start"], part["stop"], BATCH_ROWS):
            table = self.scorer(pa.Table.from_batches([batch]))
            table = table.add_column(n_ids, "file", pa.array([name] * batch.num_rows))
            yield table.add_column(n_ids + 1, "row", pa.array(np.arange(row, row + batch.num_rows)))
            row += batch.num_rows


def score_dataset(rows: Any, scorer: BatchScorer, workers: int | None = None) -> Any:
    """A Ray dataset with the results appended, computed lazily."""
    actors = _actors(scorer, workers) | {"fn_constructor_kwargs": vars(scorer)}
    return rows.map_batches(BatchScorer, batch_format="pyarrow", batch_size=BATCH_ROWS, **actors)


def _actors(scorer: BatchScorer, workers: int | None) -> dict[str, Any]:
    from ray import data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    data.DataContext.get_current().enable_progress_bars = False
    pool = data.ActorPoolStrategy(min_size=1) if workers is None else data.ActorPoolStrategy(size=workers)
    return {"compute": pool, "num_cpus": 1} | ({} if scorer.device == "cpu" else {"num_gpus": 1})


def score_folder(
    file: str,
    scorer: BatchScorer,
    output: str,
    progress: Progress,
    address: str | None = None,
    workers: int | None = None,
) -> dict[str, Any]:
    """Score Parquet files into parts in the folder `output`; existing parts are kept."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data logs an error for every actor pool
    scoring, parts, unreadable = plan(file, scorer, output)
    pending = [part for part in parts if not Path(part["target"]).exists()]
    rows, scored = _rows_of(parts), 0
    with progress.stage(f"Scoring {file}", rows) as advance:
        advance(rows - _rows_of(pending))
        for result in _results(scoring, pending, address, workers) if pending else ():
            if result["failed"]:
                raise AddmlError(result["failed"])
            if result["unreadable"]:
                unreadable[result["file"]] = result["unreadable"]
            scored += bool(result["rows"])
            advance(result["rows"])
    if unreadable:
        reasons = " ".join(listed([unreadable[name] for name in sorted(unreadable)]).split())
        raise AddmlError(
            f"{counted(len(unreadable), 'file')} could not be read: {reasons} "
            f"The others are scored in {output}; repair the unreadable files and run the command again."
        )
    return {"rows": rows, "parts": len(parts), "scored": scored}


def _rows_of(parts: list[Part]) -> int:
    return sum(part["stop"] - part["start"] for part in parts)


def score_table(options: Options, output: str, progress: Progress) -> dict[str, Any]:
    """`addml score` on a cluster."""
    model = load_model(options, TABLE)
    device = "cpu" if options.device == "auto" else options.device
    scorer = BatchScorer.of(str(options.model), reasons=options.reasons, threshold=model.threshold, device=device)
    return score_folder(options.file, scorer, output, progress, options.address, options.workers)


def _results(
    scoring: Scoring, pending: list[Part], address: str | None, workers: int | None
) -> Iterator[dict[str, Any]]:
    with connected(address, workers) as (ray, count):
        size = min(count, len(pending))
        items = ray.data.from_items(pending, override_num_blocks=min(len(pending), 32 * size))
        results = items.map(Scoring, fn_constructor_kwargs=vars(scoring), **_actors(scoring.scorer, size))
        yield from results.iter_rows()


def plan(file: str, scorer: BatchScorer, output: str) -> tuple[Scoring, list[Part], dict[str, str]]:
    """The parts to score, and the unreadable files with the reasons. An earlier run's manifest must agree."""
    origin, folder = find_origin(file), Path(os.path.abspath(os.path.expanduser(output)))
    if origin.path is None:
        raise AddmlError(f"{file}: --engine ray scores a Parquet file or a folder of Parquet files.", file=file)
    base = origin.path if origin.path.is_dir() else origin.path.parent
    if folder.is_relative_to(origin.path.resolve()):
        raise AddmlError(f"{output}: is inside the input folder and would be read next time; write elsewhere.")
    groups, unreadable = dict[str, list[int]](), dict[str, str]()  # by file: rows per row group, and the error
    for name in map(os.path.abspath, parquet_files(origin) if origin.path.is_dir() else [origin.path]):
        try:
            metadata = parquet.read_metadata(name)
            groups[name] = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        except (pa.ArrowException, OSError) as error:
            unreadable[name] = f"{name}: is empty, damaged or truncated ({error})."
    if not groups:
        raise AddmlError(f"{file}: no file can be read: {listed(list(unreadable.values()))}", file=file)
    rows, _ = folder_dataset(Origin(origin.name, base), list(groups))
    ids = tuple(dict.fromkeys([*scorer.model.by, *identifiers(scorer.model, rows.schema.names)]))
    scorer = replace(scorer, columns=ids)
    columns = tuple(dict.fromkeys([*scorer.model.used, *ids]))
    scoring = Scoring(scorer, rows.schema.serialize().to_pybytes(), str(base), columns)
    parts = list(_parts(groups, base, folder))
    _write_manifest(folder, scorer, parts)
    return scoring, parts, unreadable


def _parts(groups: dict[str, list[int]], base: Path, folder: Path) -> Iterator[Part]:
    """Divide each file into parts of whole row groups, about PART_ROWS rows each, named after the file."""
    for file, rows in groups.items():
        ends = np.cumsum([0, *rows])
        cuts = np.unique(np.append(ends[np.searchsorted(ends, np.arange(0, ends[-1], PART_ROWS))], ends[-1]))
        suffix = hashlib.sha256(os.path.relpath(file, base).encode()).hexdigest()[:8]
        for number, (start, stop) in enumerate(pairwise(cuts.tolist())):
            target = str(folder / f"{Path(file).stem}-{suffix}-{number:04d}.parquet")
            yield {"file": file, "start": start, "stop": stop, "target": target}


def _write_manifest(folder: Path, scorer: BatchScorer, parts: list[Part]) -> None:
    """Write the manifest; refuse a folder whose manifest has other settings or other parts."""
    entries: dict[str, list[Any]] = {}
    for part in parts:
        stat = os.stat(part["file"])
        entries[Path(part["target"]).name] = [part["file"], part["start"], part["stop"], stat.st_size, stat.st_mtime_ns]
    settings = {name: getattr(scorer, name) for name in ("version", "digest", "reasons", "threshold", "device")}
    document = {"settings": settings, "parts": entries}
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / MANIFEST
    if manifest.exists():
        previous = json.loads(manifest.read_bytes())
        changed = [name for name, value in settings.items() if previous["settings"][name] != value]
        changed += [name for name, entry in previous["parts"].items() if entries.get(name, entry) != entry]
        if changed:
            raise AddmlError(
                f"{folder}: contains the scores of another run (other {listed(changed)}); "
                "give another folder, or remove this one."
            )
        document["parts"] = previous["parts"] | entries
    elif any(folder.iterdir()):
        raise AddmlError(f"{folder}: contains other files; give an empty or a new folder.")
    write_whole(manifest, json.dumps(document, indent=1).encode())
