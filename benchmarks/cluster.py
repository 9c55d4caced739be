"""What a fit by many workers costs: measured pieces, a simulation of an epoch, and a check against real processes.

`python -m benchmarks.cluster` starts groups of 2, 4, 8 and 16 gloo processes, as many as there are cores, measures what
a step, a pass over the rows, a cut-off and an all-reduce take in them, simulates an epoch from that and compares it
with epochs that the same processes train. It needs NumPy and torch alone. `--write` puts the tables into the docs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

try:
    import threadpoolctl  # noqa: F401
except ImportError:  # the processes have one thread by their environment
    nothing = types.SimpleNamespace(lib_controllers=[])
    fake: Any = types.ModuleType("threadpoolctl")
    fake.ThreadpoolController = lambda: types.SimpleNamespace(select=lambda **_: nothing)
    sys.modules["threadpoolctl"] = fake

from addml.encoders import MLP
from addml.learning.group import Group, TorchGroup
from addml.learning.learner import EMBEDDINGS_TO_KEEP, MetricLearner
from addml.learning.losses import Batch, InstanceCloseness
from addml.learning.state import Member, TrainingState, adam
from addml.learning.training import LEAST_PART, Schedule, train

COLUMNS, BATCH, EVERY, ROWS = 32, 256, 50, 2_000_000  # rows of each worker
KEPT, HELD_OUT = 2 / 3, 0.1
SIZES = (8, 16_384, 150_000, 1_200_000)  # bytes: a count, a round of the cut-off, weights and moments, larger networks
LATENCY, BANDWIDTH = 1e-4, 10e9 / 8  # assumed of a data centre: seconds, bytes a second
READING = 0.9e6  # rows a second and worker that are read and prepared (docs/performance.md)
SCORING = 25e3  # rows a second and worker by the default, read and written (docs/performance.md, two cores)
PAGE = Path(__file__).parents[1] / "docs" / "cluster.md"
COSTS = PAGE.parent / "results" / "cluster.md"


class Rows:
    """Rows in memory, without what reads tables."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The rows with these ids."""
        return self.values.take(ids, axis=0)

    def portions(self, epoch: int) -> list[None]:
        """All rows are shuffled together."""
        return [None]


def parts() -> tuple[MetricLearner, Rows, Member, Schedule]:
    random = np.random.default_rng(0)
    rows = Rows(random.normal(size=(ROWS, COLUMNS)).astype(np.float32))
    order = random.permutation(ROWS)
    held_out = int(HELD_OUT * ROWS)
    encoder = MLP().build((COLUMNS,), [random])
    encoder = encoder.with_weights(encoder.weights.astype(np.float32))
    member = Member(np.sort(order[held_out:]), np.sort(order[:held_out]), random, KEPT)
    return MetricLearner(encoder, InstanceCloseness()), rows, member, Schedule(2, BATCH, patience=9)


# In a process of a group ------------------------------------------------------------------------------------


def measure(group: Group) -> dict[str, Any]:
    """Seconds of the pieces in this process, while the others do the same."""
    learner, rows, member, _ = parts()
    state, center = TrainingState.begin(learner.encoder.weights, 9), np.zeros((1, learner.encoder.outputs), np.float32)

    def steps(size: int, rounds: int = 20, count: int = EVERY) -> list[float]:
        spans = []
        for _ in range(rounds):
            began = time.perf_counter()
            for place in range(count):
                batch = Batch(member.train[None, place * size : (place + 1) * size], size, [size], [0])
                adam(state, learner.loss_and_grad(rows.take(batch.ids), center, batch)[1], 1e-3)
            spans.append((time.perf_counter() - began) / count)
        return spans

    spans, part = steps(BATCH), steps(part_of(group.size))
    began = time.perf_counter()
    scores = learner.row_scores(rows, member.train[None], [len(member.train)])[1]
    survey = (time.perf_counter() - began) / len(member.train)
    began = time.perf_counter()
    Group().smallest(np.asarray(scores), [1000])
    cutoff = (time.perf_counter() - began) / len(member.train)
    reduced = {str(size): _all_reduce(group, size) for size in SIZES}
    apart = []  # between steps, when processes have to wake each other
    for _ in range(50):
        steps(part_of(group.size), 1, 1)
        apart.append(_once(group, np.ones(learner.encoder.weights.size)))
    own = {"step": median(spans), "part": median(part), "spread": float(np.std(spans)), "survey": survey}
    return own | {
        "cutoff": cutoff,
        "reduce": reduced,
        "apart": float(np.mean(apart)),
        "weights": int(learner.encoder.weights.size),
        "width": learner.encoder.outputs,
    }


def part_of(workers: int) -> int:
    """Rows of a batch that a worker has where gradients are averaged."""
    return max(LEAST_PART, -(-BATCH // workers))


def _all_reduce(group: Group, size: int) -> float:
    return median(_once(group, np.ones(size // 8)) for _ in range(40))


def _once(group: Group, values: np.ndarray) -> float:
    began = time.perf_counter()
    group.sum(values)
    return time.perf_counter() - began


def epoch(group: Group) -> float:
    """Seconds of the second of two epochs."""
    learner, rows, member, schedule = parts()
    learner.group = group
    state = train(learner, rows, [member], schedule, TrainingState.begin(learner.encoder.weights, 9), group=group)
    return float(state.history[-1]["seconds"])


def work(rank: int, size: int, store: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    group = TorchGroup()
    found = measure(group)
    each = [json.loads(one) for one in group.gather(json.dumps(found).encode())]
    found["step"] = float(np.mean([one["step"] for one in each]))
    found["spread"] = float(np.std([one["step"] for one in each]) + np.mean([one["spread"] for one in each]))
    found["epoch"] = {"local": epoch(TorchGroup(EVERY)), "sync": epoch(TorchGroup())}
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def run(size: int, *more: str) -> dict[str, Any]:
    """What a group of so many processes measured."""
    with tempfile.TemporaryDirectory() as folder:
        known = {"env": os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, "text": True}
        command = [sys.executable, "-m", "benchmarks.cluster", *more, "--worker", f"{folder}/store", str(size)]
        begun = [
            subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, **known)  # type: ignore[call-overload]
            for rank in range(size)
        ]
        outputs = [one.communicate()[0] for one in begun]
    if any(one.returncode for one in begun):
        raise SystemExit(f"a process of {size} failed; see above")
    if more:
        print(outputs[0])
        return {}
    found: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    return found


# The simulation ---------------------------------------------------------------------------------------------


def simulated(costs: dict[str, Any], rows: float, workers: int, mode: str, reduce: Any) -> tuple[float, float]:
    """Seconds of an epoch of so many rows, and those of them that workers wait for each other or the network."""
    own, random, size = rows / workers, np.random.default_rng(0), costs["weights"] * 8
    train_rows, twice = own * (1 - HELD_OUT), 1 + (own * costs["width"] > EMBEDDINGS_TO_KEEP)
    passes = train_rows * (twice * costs["survey"] + costs["cutoff"]) + own * HELD_OUT * costs["survey"]
    waits = 6 * reduce(8, workers) + reduce(costs["width"] * 8, workers) + 3 * reduce(16_384, workers)
    if mode == "local":
        steps, at_once, step = train_rows * KEPT / BATCH, EVERY, costs["step"]
        exchange = reduce(3 * size, workers) + reduce(8, workers)
    else:
        steps, at_once, step = train_rows * KEPT / part_of(workers), 1, costs["part"]
        exchange = reduce(size, workers) + costs["apart"] - measured_reduce(costs)(size, workers)  # and waking up
    spans = random.normal(step * at_once, costs["spread"] * at_once**0.5, (200, workers)).clip(0)
    rounds, straggling = steps / at_once, float((spans.max(axis=1) - step * at_once).mean())
    waits += rounds * (exchange + straggling) if workers > 1 else 0.0
    return passes + rounds * step * at_once + waits, waits


def measured_reduce(costs: dict[str, Any]) -> Any:
    """Seconds of an all-reduce of so many bytes among these processes, between measured sizes."""
    sizes, spans = zip(*((int(size), span) for size, span in costs["reduce"].items()), strict=True)
    return lambda size, workers: float(np.interp(size, sizes, spans)) if workers > 1 else 0.0


def network_reduce(size: float, workers: int) -> float:
    """Seconds of an all-reduce over a network: in a ring or along a tree, whichever is faster."""
    ring = 2 * (workers - 1) * (LATENCY + size / workers / BANDWIDTH)
    return min(ring, 2 * float(np.log2(workers)) * (LATENCY + size / BANDWIDTH))


# Tables -----------------------------------------------------------------------------------------------------


def check(sizes: list[int]) -> tuple[dict[int, dict[str, Any]], list[str]]:
    lines = [
        "| workers | step ms | all-reduce 150 kB ms | mode | epoch s | simulated s | ratio | of one worker's time |",
        "|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    costs = {size: run(size) for size in sizes}
    for size, own in costs.items():
        for mode, seconds in list(own["epoch"].items())[: 1 if size == 1 else 2]:
            expected, _ = simulated(own, ROWS * size, size, mode, measured_reduce(own))
            reduce, alone = 1000 * own["reduce"]["150000"], size * costs[1]["epoch"]["local"]
            lines.append(
                f"| {size} | {1000 * own['step']:.2f} | {reduce:.2f} | {mode} | {seconds:.2f} | {expected:.2f} "
                f"| {expected / seconds:.2f} | {seconds / alone:.2f} |"
            )
    return costs, lines


def estimate(costs: dict[str, Any]) -> list[str]:
    lines = [
        "| rows | workers | prepare h | ten epochs h | of which waiting | sync h | score h |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for rows in (1e9, 1e10, 1e11):
        for workers in (16, 64, 256):
            local, waits = simulated(costs, rows, workers, "local", network_reduce)
            sync, _ = simulated(costs, rows, workers, "sync", network_reduce)
            prepare, score = 3 * rows / workers / READING, rows / workers / SCORING
            lines.append(
                f"| 10^{int(np.log10(rows))} | {workers} | {prepare / 3600:.1f} | {local / 360:.1f} "
                f"| {waits / local:.0%} | {sync / 360:.0f} | {score / 3600:.1f} |"
            )
    return lines


def limit(costs: dict[str, Any]) -> str:
    """How many workers wait as long as they work."""
    words = []
    for mode, how in (("local", f"every {EVERY} steps"), ("sync", "gradients in every step")):
        shares = {2**power: simulated(costs, 1e11, 2**power, mode, network_reduce) for power in range(1, 15)}
        waiting = [workers for workers, (total, waits) in shares.items() if waits > total / 2]
        words.append(
            f"Averaging {how}, workers "
            + (
                f"wait longer than they work from {waiting[0]:,} on."
                if waiting
                else "never wait longer than they work (up to 16,384)."
            )
        )
    return " ".join(words)


def quality(store: str, rank: int) -> None:
    """The ROC-AUC in percent of two workers that average weights beside that of one, means of three seeds."""
    import pyarrow as pa
    import torch.distributed as dist
    from pyarrow import parquet
    from sklearn.metrics import roc_auc_score

    from addml import ADDML
    from addml.checkpoint import Storage
    from addml.config import Config
    from addml.fit import fit
    from benchmarks.documents import write_part
    from research.datasets import load as load_set

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    lines = ["| table | preset | one worker | two workers | difference |", "|---|---|--:|--:|--:|"]
    for name in ("shuttle", "magic-telescope"):
        known, path = load_set(name), Path(f"{store}-{name}-{rank}.parquet")
        order = np.random.default_rng(0).permutation(len(known.y))  # a file may be sorted by its labels
        columns = [f"c{place}" for place in range(known.X.shape[1])]
        parquet.write_table(pa.table(list(known.X[order].T), names=columns), path, row_group_size=4096)
        for preset, make in {"paper": ADDML.paper, "default": ADDML}.items():
            aucs: list[list[float]] = [[], []]
            for seed in range(3):
                config = Config.resolve(make(random_state=seed, epochs=10, n_jobs=1).get_params(deep=False))
                for own, group in zip(aucs, (Group(), TorchGroup(EVERY)), strict=True):
                    model = fit(config, path, storage=Storage(memory="1MiB"), group=group)
                    own.append(100 * float(roc_auc_score(known.y[order], model.training.values)))
            one, two = map(np.mean, aucs)
            lines.append(f"| {name} | {preset} | {one:.2f} | {two:.2f} | {two - one:+.2f} |")
    if rank == 0:
        write_part(PAGE, "quality", "\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, help="numbers of processes [2, 4, 8, 16, up to the cores]")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/results/cluster.md")
    parser.add_argument("--quality", action="store_true", help="compare the scores of one and two workers (ADDML_DATA)")
    parser.add_argument("--worker", nargs=3, metavar=("STORE", "SIZE", "RANK"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        store, size, rank = given.worker
        return quality(store, int(rank)) if given.quality else work(int(rank), int(size), store)
    if given.quality:
        run(2, "--quality")
        return None
    cores = os.cpu_count() or 1
    costs, checked = check([1, *(given.sizes or [size for size in (2, 4, 8, 16) if size <= cores])])
    last = costs[max(costs)]
    tables = {"check": [f"Measured on {cores} cores, {ROWS:,} rows a worker.", "", *checked]}
    tables["estimate"] = [*estimate(last), "", limit(last)]
    for name, lines in tables.items():
        if given.write:
            from benchmarks.documents import write_part

            write_part(COSTS, name, "\n".join(lines))
        else:
            print(*lines, "", sep="\n")
    return None


if __name__ == "__main__":
    main()
