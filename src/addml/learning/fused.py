"""The instance closeness of large batches on CUDA, in kernels that pass over the pairs as seldom as they can.

Distances of the pairs below the diagonal are written once, in tiles; the exact cut-off is found among them, and one
more pass turns the hard pairs into the gradient. No flags and no other matrix of pairs are ever written, and sums are
taken in a fixed order: results repeat to the last bit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from addml.arrays import Array

LEAST_ROWS = 1024  # below that, compiling the kernels costs more than they save
MOST_WIDTH = 128
TILE = 64  # rows and columns of a tile of pairs
PARTS = 8  # of the pairs of a row of tiles, added up apart


def applies(z: Array) -> bool:
    """Whether embeddings z (E, b, w) are many enough, on CUDA, and the compiler of kernels is there."""
    fits = z.shape[1] >= LEAST_ROWS and z.shape[2] <= MOST_WIDTH and getattr(z, "is_cuda", False)
    return fits and _kernels() is not None


def hard_closeness(z: Array, k: int) -> tuple[Array, Array, Array]:
    """Mean squared distance (E,) over the k farthest pairs of z (E, b, w) and their ties, its gradient, the cut-off."""
    import torch

    kernels = _kernels()
    members, rows, width = z.shape
    z = (z - z.mean(1, keepdim=True)).contiguous()  # distances do not change; float32 cancels less
    tiles = -(-rows // TILE)
    below, padded = tiles * (tiles + 1) // 2, max(16, 1 << (width - 1).bit_length())
    pairs = torch.empty(members, below, TILE, TILE, device=z.device)
    shape: dict[str, Any] = {"rows": rows, "width": width, "TILE": TILE, "WIDTH": padded}
    kernels.distances[below, members](z, pairs, below, **shape)
    cutoff = pairs.reshape(members, -1).topk(k, sorted=False).values.amin(-1)
    toward = torch.empty(members, PARTS, rows, width, device=z.device)
    degree, total = (torch.empty(members, PARTS, rows, device=z.device) for _ in range(2))
    kernels.back[tiles, PARTS, members](z, pairs, cutoff, toward, degree, total, below, tiles, PARTS=PARTS, **shape)
    degree = degree.sum(1)
    count = (degree.sum(1, dtype=torch.float64) / 2).clamp_(min=1).float()
    gradient = torch.addcmul(-toward.sum(1), degree[..., None], z) * (2 / count)[:, None, None]
    return total.sum((1, 2)) / (2 * count), gradient, cutoff


@lru_cache(maxsize=1)
def _kernels() -> Any:
    """The kernels, compiled when they are first used; None without Triton."""
    try:
        from addml.learning import kernels
    except ImportError:
        return None
    return kernels
