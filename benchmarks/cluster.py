"""The cost of a fit by many workers: measured pieces, a simulation made of them, and a check against real fits.

`python -m benchmarks.cluster` starts groups of 1, 2, 4, 8 and 16 gloo processes, up to the number of cores. Each group
times reading, a step, a pass, a cut-off and an all-reduce, and then fits Parquet files together. The simulation
combines the measured pieces and is compared with the fits. Needs only NumPy, pyarrow and torch. `--save FILE` stores
the measurements after every group; `--load docs/results/cluster.json --write` writes the page from them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from addml.checkpoint import Storage
from addml.config import Config
from addml.disk_fit import prepare
from addml.encoders import MLP
from addml.fit import fit
from addml.inputs.disk import open_source
from addml.learning.group import Group, TorchGroup
from addml.learning.learner import MetricLearner, padded
from addml.learning.losses import Batch, InstanceCloseness
from addml.learning.state import TrainingState, adam
from addml.learning.training import LEAST_PART, minibatches

COLUMNS, BATCH, EVERY = 32, 256, 50
ROWS = {"pilot": 100_000, "sync": 200_000, "local": 1_000_000}  # of each worker
EPOCHS = {"pilot": 1, "sync": 2, "local": 3}
KEPT, HELD_OUT = 2 / 3, 0.1
SIZES = (8, 16_384, 50_000, 150_000, 1_200_000)  # bytes: a count, the cut-off, weights, with moments, larger networks
LATENCY, BANDWIDTH = 1e-4, 10e9 / 8  # assumed of a data centre: seconds, bytes a second
SETTINGS = {"members": 1, "encoder": "mlp", "batch_size": BATCH, "patience": 9, "random_state": 0, "n_jobs": 1}
MEMORY = "96MiB"  # less than the smallest table takes, which would otherwise be held in memory by one process
LONGEST, DEADLINE = 330, 300  # seconds of one group, and after which no further group starts
PAGE = Path(__file__).parents[1] / "docs" / "cluster.md"
COSTS = PAGE.parent / "results" / "cluster.md"


# In a process of a group ------------------------------------------------------------------------------------


def write_rows(folder: Path, rank: int) -> None:
    """Write this process's shard of each table."""
    import pyarrow as pa
    from pyarrow import parquet

    random = np.random.default_rng(rank)
    for name, rows in ROWS.items():
        (folder / name).mkdir(exist_ok=True)
        table = pa.table({f"c{index}": random.normal(size=rows).astype(np.float32) for index in range(COLUMNS)})
        parquet.write_table(table, folder / name / f"{rank:03d}.parquet", row_group_size=50_000)


def measure(group: Group, table: Path) -> dict[str, Any]:
    """Seconds of each piece of training in this process, while the others run the same."""
    config = Config.resolve(SETTINGS)
    disk = prepare(config, open_source(table), None, "cpu", Storage(memory=MEMORY, scratch=table), group)
    encoder = MLP().build((COLUMNS,), [np.random.default_rng(0)])
    learner = MetricLearner(encoder.with_weights(encoder.weights.astype(np.float32)), InstanceCloseness())
    state, center = TrainingState.begin(learner.encoder.weights, 9), np.zeros((1, encoder.outputs), np.float32)
    member = disk.member(disk.randoms[0])
    rows, kept = len(member.train), np.random.default_rng(1).random(len(member.train)) < KEPT

    def steps(size: int, per_span: int, count: int, exchange: Callable[[], Any]) -> tuple[list[float], list[float]]:
        """Seconds per step in each span of `per_span` steps, and seconds of the exchange after each span."""
        batches, spans, waits = batches_of(size), [], []
        while len(spans) < count:
            start = time.perf_counter()
            for batch in islice(batches, per_span):
                gradient = learner.loss_and_grad(disk.rows.take(batch.ids), center, batch)[1]
                adam(state, gradient + state.weights * 1e-5, 1e-3)
            spans.append((time.perf_counter() - start) / per_span)
            waits.append(exchange())
        return spans[1:], waits[1:]

    def batches_of(size: int) -> Iterator[Batch]:
        return iter(list(minibatches([member], [kept], size, center, disk.rows.portions(0))))

    def seconds_per_row(work: Callable[[], Any]) -> float:
        work()  # the first time also maps the file
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) / rows

    ids = padded([member.train], state.weights)
    survey = seconds_per_row(lambda: learner.row_scores(disk.rows, ids, [rows]))
    scores = np.asarray(learner.row_scores(disk.rows, ids, [rows])[1])
    cutoff = seconds_per_row(lambda: Group().smallest(scores, [rows // 2]))
    shuffle = seconds_per_row(lambda: batches_of(BATCH))
    reduced = {str(size): median(_once(group, size) for _ in range(40)) for size in SIZES}
    weights = int(encoder.weights.size)
    group.sum(np.zeros(1))
    spans = steps(BATCH, EVERY, int(kept.sum()) // (BATCH * EVERY), lambda: 0.0)[0]
    group.sum(np.zeros(1))
    part, apart = steps(part_of(group.size), 1, 500, lambda: _once(group, 8 * weights))
    return {
        "steps": spans,
        "parts": part,
        "apart": float(np.mean(apart)),  # an all-reduce after a step, when processes have to wait and wake each other
        "survey": survey,
        "cutoff": cutoff,
        "shuffle": shuffle,
        "reduce": reduced,
        "weights": weights,
        "width": encoder.outputs,
    }


def part_of(workers: int) -> int:
    """A worker's rows of a batch when gradients are averaged."""
    return max(LEAST_PART, -(-BATCH // workers))


def _once(group: Group, size: int) -> float:
    values = np.ones(size // 8)
    start = time.perf_counter()
    group.sum(values)
    return time.perf_counter() - start


@dataclass
class Stages(logging.Handler):
    """The times at which a fit entered each stage."""

    starts: dict[str, float] = field(default_factory=dict)
    level = logging.INFO

    def __post_init__(self) -> None:
        super().__init__()

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the first time of a stage."""
        self.starts.setdefault(record.getMessage().split()[0], time.perf_counter())

    __hash__ = logging.Handler.__hash__


def timed_fit(group: Group, table: Path, name: str) -> dict[str, float]:
    """Seconds of the stages of a whole fit: reading and preparing, the epochs, references and scores."""
    stages, logger = Stages(), logging.getLogger("addml")
    logger.addHandler(stages)
    logger.setLevel(logging.INFO)
    config = Config.resolve(SETTINGS | {"epochs": EPOCHS[name], "device": "cpu"})
    group.sum(np.zeros(1))
    start = time.perf_counter()
    model = fit(config, table, storage=Storage(memory=MEMORY, scratch=table), group=group)
    group.sum(np.zeros(1))
    total = time.perf_counter() - start
    logger.removeHandler(stages)
    epochs = sum(entry["seconds"] for entry in model.history)
    read = stages.starts["Training"] - start
    return {"read": read, "epochs": epochs, "score": total - read - epochs, "total": total}


def work(rank: int, size: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    group = TorchGroup()
    write_rows(folder, rank)
    group.sum(np.zeros(1))
    costs: dict[str, Any] = {"fits": {}}

    def report() -> None:
        if rank == 0:
            print(json.dumps(costs), flush=True)

    local = TorchGroup(EVERY)
    timed_fit(local, folder / "pilot", "pilot")  # imports and compiles
    costs["pilots"] = {name: timed_fit(local, folder / name, "pilot") for name in ("pilot", "sync")}
    ranks = [json.loads(text) for text in group.gather(json.dumps(measure(group, folder / "local")).encode())]
    costs |= ranks[0]
    costs |= {name: quantiles([span for other in ranks for span in other[name]]) for name in ("steps", "parts")}
    means = {name: [other[name] for other in ranks] for name in ("survey", "cutoff", "shuffle", "apart")}
    costs |= {name: float(np.mean(values)) for name, values in means.items()}
    report()
    for mode in ["local", "sync"][: 1 if size == 1 else 2]:
        costs["fits"][mode] = timed_fit(local if mode == "local" else group, folder / mode, mode)
        report()
    dist.destroy_process_group()


def quantiles(spans: list[float]) -> list[float]:
    """Quantiles of the spans of all processes together."""
    return [float(f"{one:.4g}") for one in np.quantile(spans, (np.arange(200) + 0.5) / 200)]


def run(size: int) -> dict[str, Any]:
    """The measurements of one group of processes; incomplete if it ran out of time."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "benchmarks.cluster", "--worker", folder, str(size)]
        log = Path(folder, "log")
        with log.open("w") as output:
            processes = [
                subprocess.Popen([*command, str(rank)], stdout=None if rank else output, env=environment)
                for rank in range(size)
            ]
        end = time.monotonic() + LONGEST
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            if any(process.poll() for process in processes):  # the others would wait for it
                break
            time.sleep(0.2)
        failed = [rank for rank, process in enumerate(processes) if process.poll() != 0]
        for process in processes:
            process.kill()
            process.wait()
        lines = log.read_text().splitlines()
    if failed:
        print(f"of {size} processes, {failed} failed or took longer than {LONGEST} s", flush=True)
    return dict(json.loads(lines[-1])) if lines else {}


# The simulation ---------------------------------------------------------------------------------------------


def simulated(costs: dict[str, Any], rows: float, workers: int, mode: str, reduce: Any) -> tuple[float, float]:
    """Seconds of an epoch over `rows`, and how many of them workers wait for each other or the network."""
    own, size = rows / workers, costs["weights"] * 8
    train_rows = own * (1 - HELD_OUT)
    passes = train_rows * (costs["survey"] + costs["cutoff"] + costs["shuffle"]) + own * HELD_OUT * costs["survey"]
    waits = 6 * reduce(8, workers) + reduce(costs["width"] * 8, workers) + 3 * reduce(16_384, workers)
    if mode == "local":
        spans, at_once, batch = costs["steps"], EVERY, BATCH
        exchange = reduce(3 * size, workers) + reduce(8, workers)
    else:
        spans, at_once, batch = costs["parts"], 1, part_of(workers)
        measured = measured_reduce(costs)(size, 2) + straggling(spans, costs["workers"])
        exchange = reduce(size, workers) + max(0.0, costs["apart"] - measured)  # and waking up
    rounds, step = train_rows * KEPT / batch / at_once, float(np.mean(spans))
    waits += rounds * (exchange + at_once * straggling(spans, workers)) if workers > 1 else 0.0
    return passes + rounds * step * at_once + waits, waits


def straggling(spans: list[float], workers: int) -> float:
    """How much longer the slowest worker takes, each drawn from the measured steps."""
    drawn = np.random.default_rng(0).choice(spans, (2000, workers))
    return float(drawn.max(axis=1).mean() - np.mean(spans))


def measured_reduce(costs: dict[str, Any]) -> Any:
    """Seconds of an all-reduce, interpolated between the measured sizes."""
    sizes, spans = zip(*((int(size), span) for size, span in costs["reduce"].items()), strict=True)
    return lambda size, workers: float(np.interp(size, sizes, spans)) if workers > 1 else 0.0


def network_reduce(latency: float = LATENCY, bandwidth: float = BANDWIDTH) -> Any:
    """Seconds of an all-reduce over a network: in a ring or along a tree, whichever is faster."""

    def reduce(size: float, workers: int) -> float:
        ring = 2 * (workers - 1) * (latency + size / workers / bandwidth)
        return min(ring, 2 * float(np.log2(workers)) * (latency + size / bandwidth))

    return reduce


def stage(costs: dict[str, Any], name: str, rows: float) -> float:
    """Seconds of reading or scoring a worker's rows: a line through the two small fits."""
    small, large = (costs["pilots"][table][name] for table in ("pilot", "sync"))
    slope = (large - small) / (ROWS["sync"] - ROWS["pilot"])
    return max(0.0, small - slope * ROWS["pilot"]) + slope * rows


# Tables -----------------------------------------------------------------------------------------------------


def check(costs: dict[int, dict[str, Any]]) -> list[str]:
    """The fits of every group beside their simulation."""
    lines = [
        "| workers | mode | read s | simulated | an epoch s | simulated | score s | simulated | whole s | simulated "
        "| deviation |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    wholes: dict[str, list[float]] = {"local": [], "sync": []}
    epochs: dict[str, list[float]] = {"local": [], "sync": []}
    for size, own in sorted(costs.items()):
        for mode, real in own["fits"].items():
            epoch, _ = simulated(own, ROWS[mode] * size, size, mode, measured_reduce(own))
            parts = [stage(own, "read", ROWS[mode]), epoch, stage(own, "score", ROWS[mode])]
            found = [real["read"], real["epochs"] / EPOCHS[mode], real["score"]]
            total = parts[0] + EPOCHS[mode] * epoch + parts[2]
            both = [*(one for pair in zip(found, parts, strict=True) for one in pair), real["total"], total]
            wholes[mode].append(total / real["total"] - 1)
            epochs[mode].append(epoch / found[1] - 1)
            words = " | ".join(f"{one:.2f}" for one in both)
            lines.append(f"| {size} | {mode} | {words} | {wholes[mode][-1]:+.0%} |")
    words = [
        f"by {max(map(abs, own)):.0%} at most with `{mode}` (an epoch by {max(map(abs, epochs[mode])):.0%})"
        for mode, own in wholes.items()
        if own
    ]
    return [*lines, "", f"The simulated whole fit deviates from the real one {' and '.join(words)}."]


def pieces(costs: dict[int, dict[str, Any]]) -> list[str]:
    """The table of the measured pieces."""
    lines = [
        "| workers | read, rows/s | step of 256 rows ms | slowest of all ms | pass, rows/s | cut-off, rows/s "
        "| all-reduce 8 B ms | 50 kB | 150 kB | 1.2 MB | 50 kB between steps | score, rows/s |",
        "|--:" * 12 + "|",
    ]
    for size, own in sorted(costs.items()):
        step, late = 1000 * np.mean(own["steps"]), 1000 * straggling(own["steps"], size)
        rates = [1 / (stage(own, name, 2) - stage(own, name, 1)) for name in ("read", "score")]
        reduce = " | ".join(f"{1000 * own['reduce'][name]:.2f}" for name in ("8", "50000", "150000", "1200000"))
        lines.append(
            f"| {size} | {rates[0]:,.0f} | {step:.2f} | {step + late:.2f} | {1 / own['survey']:,.0f} "
            f"| {1 / own['cutoff']:,.0f} | {reduce} | {1000 * own['apart']:.2f} | {rates[1]:,.0f} |"
        )
    return lines


def estimate(costs: dict[str, Any]) -> list[str]:
    lines = [
        "| rows | workers | read h | ten epochs h | of which waiting | ten epochs with `--sync` h | score h |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for rows in (1e9, 1e10, 1e11):
        for workers in (16, 64, 256):
            local, waits = simulated(costs, rows, workers, "local", network_reduce())
            sync, _ = simulated(costs, rows, workers, "sync", network_reduce())
            read, score = (stage(costs, name, rows / workers) for name in ("read", "score"))
            lines.append(
                f"| 10^{int(np.log10(rows))} | {workers} | {read / 3600:.2f} | {local / 360:.2f} "
                f"| {waits / local:.0%} | {sync / 360:.1f} | {score / 3600:.2f} |"
            )
    return lines


def limit(costs: dict[str, Any]) -> list[str]:
    """The message time and the bandwidth at which the network takes as long as the work."""

    def share(mode: str, workers: int, reduce: Any) -> float:
        """The share of an epoch that messages take."""
        total, _ = simulated(costs, 1e11, workers, mode, reduce)
        return 1 - simulated(costs, 1e11, workers, mode, lambda *_: 0.0)[0] / total

    usual, powers = network_reduce(), [2**power for power in range(1, 15)]
    shares = [share("local", workers, usual) for workers in (16, 256, powers[-1])]
    slow = next(one for one in np.geomspace(LATENCY, 1, 200) if share("local", 256, network_reduce(one)) > 0.5)
    thin = next(
        one for one in np.geomspace(BANDWIDTH, 1, 200) if share("local", 256, network_reduce(LATENCY, one)) > 0.5
    )
    late = simulated(costs, 1e11, 256, "local", lambda *_: 0.0)
    waits = {workers: simulated(costs, 1e11, workers, "sync", usual) for workers in powers}
    busy = next(workers for workers, (total, own) in waits.items() if own > total / 2)
    rate = 3 * 4 * COLUMNS * 256 / (stage(costs, "read", 2) - stage(costs, "read", 1))
    return [
        f"- Averaging every {EVERY} steps, messages take {shares[0]:.0%} of an epoch with 16 workers, "
        f"{shares[1]:.0%} with 256 and {shares[2]:.0%} with {powers[-1]:,}; waiting for the slowest takes "
        f"{late[1] / late[0]:.0%} with 256. With 256 workers the network becomes the limit (half of the time) where a "
        f"message takes {1000 * slow:.1f} ms, as between distant data centres, or where a link carries less than "
        f"{thin * 8 / 1e6:.0f} Mbit/s.",
        f"- Averaging gradients in every step, messages are the limit from {busy} workers on.",
        f"- The storage must keep up: 256 workers that read {COLUMNS} columns of float32 in three passes take "
        f"{rate / 1e9:.0f} GB/s from it ({rate / 256 / BANDWIDTH:.0%} of a worker's link).",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sizes", nargs="*", type=int, help="numbers of processes (default: 1, 2, 4, 8, 16, up to the cores)"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="store the measurements after every group")
    parser.add_argument("--load", type=Path, metavar="FILE", help="make the tables from stored measurements")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/results/cluster.md")
    parser.add_argument("--worker", nargs=3, metavar=("FOLDER", "SIZE", "RANK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        folder, size, rank = arguments.worker
        return work(int(rank), int(size), Path(folder))
    stored = arguments.load
    measured = json.loads(stored.read_text()) if stored else measured_groups(arguments.sizes, arguments.save)
    costs = {int(size): {**own, "workers": int(size)} for size, own in measured["groups"].items() if "apart" in own}
    last = costs[max(costs)]
    tables = {
        "pieces": [measured["machine"], "", *pieces(costs)],
        "check": check(costs),
        "estimate": [*estimate(last), "", *limit(last)],
    }
    for name, lines in tables.items():
        if arguments.write:
            from benchmarks.documents import write_part

            write_part(COSTS, name, "\n".join(lines))
        else:
            print(*lines, "", sep="\n")
    return None


def measured_groups(sizes: list[int], save: Path | None) -> dict[str, Any]:
    """The measurements of groups of these sizes, one group after another."""
    cores, began = os.cpu_count() or 1, time.monotonic()
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    found: dict[str, Any] = {
        "machine": f"Measured on {cores} cores ({names[0] if names else 'unknown'}).",
        "groups": {},
    }
    for size in sizes or [size for size in (16, 8, 4, 2, 1) if size <= cores]:
        if time.monotonic() - began > DEADLINE:
            print(f"no time is left for {size} processes", flush=True)
            continue
        found["groups"][str(size)] = own = run(size)
        fits = {mode: round(one["total"], 1) for mode, one in own.get("fits", {}).items()}
        print(f"{size} processes: whole fits {fits} s, at {time.monotonic() - began:.0f} s", flush=True)
        if save:
            save.write_text(json.dumps(found))
    return found


if __name__ == "__main__":
    main()
