"""What a CUDA device takes for training, and how far each part of a step is from the floor that the card sets.

The floor of a part is the larger of two times: the bytes it cannot but move at the bandwidth of a plain copy, and its
multiplications and additions at the rate of a large product, both measured first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

import addml
from addml.distances import count_of
from addml.encoders import MLPNetwork
from addml.inputs.rows import MemoryRows
from addml.learning import fused
from addml.learning.cuda_graphs import Recorder, _Recording
from addml.learning.learner import MetricLearner
from addml.learning.losses import Objective
from addml.learning.state import TrainingState, move
from benchmarks.many import seconds_of
from benchmarks.tables import SHAPES, table
from benchmarks.timing import markdown, seconds

BATCH, WIDTHS = 4096, (32, 64, 64)


class Ceilings(NamedTuple):
    """Bytes a second of a copy (read and written), operations a second of products."""

    copy: float
    float32: float
    tf32: float
    bfloat16: float


class Work(NamedTuple):
    """A part of a step, the bytes it must move and the operations it must make."""

    name: str
    call: Callable[[], Any]
    bytes: float
    operations: float


def ceilings() -> Ceilings:
    """The two limits of the card, measured."""
    source, size = torch.empty(2**28, device="cuda"), 8192
    target, x = torch.empty_like(source), torch.randn(size, size, device="cuda")
    copied = 2 * source.nbytes / on_device_seconds(lambda: target.copy_(source))
    half, rates = x.bfloat16(), {}
    for name, factor, tf32 in (("float32", x, False), ("tf32", x, True), ("bfloat16", half, False)):
        before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, tf32
        rates[name] = 2 * size**3 / on_device_seconds(lambda a=factor: a @ a)
        torch.backends.cuda.matmul.allow_tf32 = before
    return Ceilings(copied, **rates)


def on_device_seconds(call: Callable[[], Any], rounds: int = 20) -> float:
    """Seconds of one call, replayed from a recording so that launches are not timed; the least of five rounds."""
    call()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        call()
    took = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(rounds):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        took.append(begin.elapsed_time(end) / 1000 / rounds)
    return min(took)


def step_parts() -> list[Work]:
    """The parts of a training step of one member at a large batch."""
    encoder = _encoder()
    x = torch.randn(1, BATCH, WIDTHS[0], device="cuda")
    z, back = encoder.forward(x)
    k, grad = count_of(1 / 3, BATCH * (BATCH - 1) // 2), torch.randn_like(z)
    moments = [torch.zeros_like(encoder.weights) for _ in range(3)]
    rows, matrix, products = 4.0 * BATCH * sum(WIDTHS), 4.0 * BATCH**2, float(encoder.operations * BATCH)
    pairs = 2.0 * BATCH**2 * WIDTHS[-1]
    return [
        Work("layers", lambda: encoder.forward(x), rows, products),
        Work(
            "pairs: distances, cut-off, back to embeddings", lambda: fused.hard_closeness(z, k), 3 * matrix, 2 * pairs
        ),
        Work("back to weights", lambda: back(grad), 2 * rows, 2 * products),
        Work("Adam", lambda: move(encoder.weights, *moments, 1e-9, 1e-8), 7 * 4.0 * encoder.weights.numel(), 0.0),
    ]


def _encoder() -> MLPNetwork:
    encoder = MLPNetwork.initial(WIDTHS, ("tanh", "tanh"), [np.random.default_rng(0)])
    return encoder.with_weights(torch.from_numpy(encoder.weights.astype(np.float32)).cuda())


def whole_step() -> float:
    """Seconds of a recorded step at the large batch, as training replays it."""
    encoder = _encoder()
    rows = MemoryRows(torch.randn(4 * BATCH, WIDTHS[0], device="cuda"))
    recorder = Recorder(MetricLearner(encoder, Objective()), rows, 1e-3, 1e-5)
    state = TrainingState.begin(encoder.weights, 5)
    with torch.no_grad():
        recording = _Recording(recorder, state, torch.zeros(1, WIDTHS[-1], device="cuda"), BATCH)
    recording.ids.random_(0, len(rows))

    def again() -> None:
        recording.place.zero_()
        recording._graph.replay()

    took = []
    for _ in range(20):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(10):
            again()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - began) / 10)
    return min(took)


def resident_rate(rows: int = 100_000_000) -> float:
    """Rows of 32 columns on the device that the paper's detector scores there in a second."""
    X = torch.randn(rows, WIDTHS[0], device="cuda")
    detector = addml.ADDML.paper(random_state=0, epochs=2, device="cuda").fit(X[:20_000].cpu().numpy())

    def score() -> None:
        detector.anomaly_score(X)
        torch.cuda.synchronize()

    score()
    return rows / seconds({"resident": score})["resident"]


def _fit(name: str, members: int) -> Callable[[], Any]:
    X, _ = table(name)
    settings: dict[str, Any] = {"members": members, "patience": 50, "random_state": 0, "device": "cuda"}
    return lambda: addml.ADDML.paper(**settings).fit(X)


def gpu() -> str:
    """Everything about training on the device, as tables."""
    limits = ceilings()
    took = seconds({"one": _fit("letter", 1), "ten": _fit("letter", 10), "shuttle": _fit("shuttle", 1)})
    seconds_of("glass", "cuda")
    many = sum(seconds_of(name, "cuda") for name in SHAPES)
    floor, step = 3 * 4 * BATCH**2 / limits.copy, whole_step()
    facts = [
        ["copy, GB/s read and written", f"{limits.copy / 1e9:,.0f}"],
        *([f"product in {kind}, TFLOP/s", f"{getattr(limits, kind) / 1e12:.0f}"] for kind in limits._fields[1:]),
        ["Letter, 50 epochs, one member, s", f"{took['one']:.3f}"],
        ["Letter, 50 epochs, ten members, s", f"{took['ten']:.3f}"],
        ["ratio", f"{took['ten'] / took['one']:.2f}"],
        ["Shuttle, 50 epochs, one member, s", f"{took['shuttle']:.2f}"],
        ["the 216 fits of the paper's table, s", f"{many:.1f}"],
        ["rows of 32 columns on the device scored there, million a second", f"{resident_rate() / 1e6:.0f}"],
        [f"a step at batch {BATCH}, microseconds", f"{step * 1e6:.0f}"],
        ["its floor: the pairs written once and read twice", f"{floor * 1e6:.0f}"],
        ["share of the floor", f"{100 * floor / step:.0f} %"],
    ]
    device = torch.cuda.get_device_name()
    return markdown([device, "measured"], facts) + "\n" + markdown(*_parts_table(limits))


def _parts_table(limits: Ceilings) -> tuple[list[str], list[list[str]]]:
    rows = []
    with torch.no_grad():
        for work in step_parts():
            took = on_device_seconds(work.call)
            floor = max(work.bytes / limits.copy, work.operations / limits.float32)
            rows.append([work.name, f"{took * 1e6:.0f}", f"{floor * 1e6:.1f}", f"{100 * floor / took:.0f} %"])
    return [f"part of a step at batch {BATCH}", "microseconds", "floor", "share"], rows
