"""The kernels for large batches against the readable way, where there is a CUDA device."""

import numpy as np
import pytest

from addml.geometry import count_of
from addml.learning import fused, losses
from addml.learning.losses import Batch, Objective


@pytest.fixture(scope="module")
def cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    pytest.importorskip("triton")
    return "cuda"


@pytest.mark.parametrize("shape", [(1, 1024, 64), (3, 1500, 32), (2, 1025, 5), (1, 4096, 100)])
@pytest.mark.parametrize("ratio", [1 / 3, 0.01, 1.0])
def test_large_batches_in_kernels_as_in_the_open(cuda, monkeypatch, shape, ratio):
    import torch

    z = torch.tensor(np.tanh(np.random.default_rng(0).standard_normal(shape)), dtype=torch.float32, device=cuda)
    batch = Batch(None, shape[1], [shape[1]] * shape[0], [0] * shape[0])
    assert fused.applies(z)
    ours = losses.instance_closeness(z, None, batch, Objective(hard_ratio=ratio))
    again = losses.instance_closeness(z, None, batch, Objective(hard_ratio=ratio))
    monkeypatch.setattr(fused, "LEAST_ROWS", 10**9)
    theirs = losses.instance_closeness(z.double(), None, batch, Objective(hard_ratio=ratio))
    torch.testing.assert_close(ours.value.double(), theirs.value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.cutoff.double(), theirs.cutoff, rtol=1e-5, atol=1e-5)
    away = (ours.grad - theirs.grad).abs() / theirs.grad.abs().max()
    assert away.max() < 5e-3  # a pair at the cut-off may fall on the other side
    assert away.mean() < 1e-4
    assert torch.equal(ours.grad, again.grad)


def test_ties_at_the_cutoff_are_all_kept(cuda):
    import torch

    z = torch.zeros(1, 1024, 16, device=cuda)
    z[0, :512, 0] = 1.0  # 512 x 512 pairs at distance 1, the others at 0
    value, grad, cutoff = fused.hard_closeness(z, 1000)
    assert cutoff.item() == 1
    assert value.item() == 1
    wanted = torch.where(torch.arange(1024, device=cuda) < 512, 1.0, -1.0) * 2 * 512 / 512**2
    torch.testing.assert_close(grad[0, :, 0], wanted)
    assert fused.hard_closeness(z, 512 * 512 + 1)[2].item() == 0


@pytest.mark.parametrize("kind", ["usual", "tiny", "huge", "of all sizes", "few values"])
def test_the_cutoff_is_exactly_the_kth_largest(cuda, kind):
    import torch

    z = torch.randn(2, 1100, 24, device=cuda, generator=torch.Generator(cuda).manual_seed(0))
    size = torch.arange(1100, device=cuda)[:, None]
    z = {"tiny": z * 1e-18, "huge": z * 1e17, "of all sizes": z * 0.9**size, "few values": (z > 0) * 1.0}.get(kind, z)
    pairs = 1100 * 1099 // 2
    for k in (1, 17, count_of(1 / 3, pairs), pairs):
        cutoff, tiles = fused.hard_closeness(z, k)[2], _pairs(z)
        torch.testing.assert_close(cutoff, tiles.sort(1, descending=True).values[:, k - 1], rtol=0, atol=0)


def _pairs(z):
    """The distances as the kernel writes them, (E, pairs)."""
    import torch

    kernels, z = fused._kernels(), (z - z.mean(1, keepdim=True)).contiguous()
    tiles = -(-z.shape[1] // fused.TILE)
    below = tiles * (tiles + 1) // 2
    pairs = torch.empty(len(z), below, fused.TILE, fused.TILE, device=z.device)
    shape = {"rows": z.shape[1], "width": z.shape[2], "TILE": fused.TILE, "WIDTH": 32}
    counts = torch.zeros(len(z), fused.COUNTERS, dtype=torch.int32, device=z.device)
    kernels.distances[below, len(z)](z, pairs, counts, below, **shape, ROOM=fused.COUNTERS)
    flat = pairs.reshape(len(z), -1)
    return flat[flat >= 0].reshape(len(z), -1)
