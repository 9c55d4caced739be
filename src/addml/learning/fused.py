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
CHUNK = 4096  # distances that are counted together
COUNTERS = 3 * 64 + 16384  # of three digits of 5 and 6 bits and one of 14
MANY = 64  # distances of a chunk that share all digits but the last
PARTS = 4  # of the pairs of a row of tiles, added up apart


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
    counts = torch.zeros(members, COUNTERS, dtype=torch.int32, device=z.device)
    shape: dict[str, Any] = {"rows": rows, "width": width, "TILE": TILE, "WIDTH": padded}
    kernels.distances[below, members](z, pairs, counts, below, **shape, ROOM=COUNTERS)
    cutoff = _kth_largest(kernels, pairs, counts, k)
    toward, gradient = torch.empty(members, PARTS, rows, width, device=z.device), torch.empty_like(z)
    degree, total = (torch.empty(members, PARTS, rows, device=z.device) for _ in range(2))
    sums, value = (z, toward, degree, total), torch.empty_like(cutoff)
    kernels.back[tiles, PARTS, members](*sums, pairs, cutoff, below, tiles, PARTS=PARTS, **shape, num_stages=1)
    kernels.finish[tiles, members](*sums, gradient, value, PARTS=PARTS, CHUNK=CHUNK, **shape)
    return value, gradient, cutoff


def _kth_largest(kernels: Any, pairs: Array, counts: Array, k: int) -> Array:
    """The k-th largest distance (E,), when the first digits of all are counted."""
    members, size = len(pairs), pairs[0].numel()
    cutoff, every = pairs.new_empty(members), (-(-size // CHUNK), members)
    for digits in (1, 2):
        kernels.count_digits[every](pairs, counts, k, size, CHUNK=CHUNK, ROOM=COUNTERS, DIGITS=digits)
    kernels.count_last[every](pairs, counts, k, size, CHUNK=CHUNK, ROOM=COUNTERS, MANY=MANY)
    kernels.kth_largest[(members,)](counts, cutoff, k, ROOM=COUNTERS, num_warps=8)
    return cutoff


@lru_cache(maxsize=1)
def _kernels() -> Any:
    """The kernels, compiled when they are first used; None without Triton."""
    try:
        from addml.learning import kernels
    except ImportError:
        return None
    return kernels
