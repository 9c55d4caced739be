"""Triton kernels over tiles of pairs; `fused` says what they add up to. Imported only where there is CUDA."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _place(tile):
    """Row and column of a tile below or on the diagonal, counted row by row."""
    row = ((tl.sqrt(8.0 * tile.to(tl.float64) + 1.0) - 1.0) / 2.0).to(tl.int32)
    row = tl.where(row * (row + 1) // 2 > tile, row - 1, row)
    row = tl.where((row + 1) * (row + 2) // 2 <= tile, row + 1, row)
    return row, tile - row * (row + 1) // 2


@triton.jit
def _embeddings(z, member, tile, rows, width, TILE: tl.constexpr, WIDTH: tl.constexpr):
    """The embeddings (TILE, WIDTH) of a tile of rows, zeros outside."""
    row, column = tile * TILE + tl.arange(0, TILE), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    start = z + member.to(tl.int64) * rows * width
    return tl.load(start + row[:, None] * width + column[None, :], mask=inside, other=0.0)


@triton.jit
def distances(z, pairs, below, rows, width, TILE: tl.constexpr, WIDTH: tl.constexpr):
    """Squared distances of a tile of pairs; -1 on the diagonal, above it and outside."""
    tile, member = tl.program_id(0), tl.program_id(1)
    i, j = _place(tile)
    one = _embeddings(z, member, i, rows, width, TILE, WIDTH)
    other = _embeddings(z, member, j, rows, width, TILE, WIDTH)
    products = tl.dot(one, tl.trans(other), input_precision="tf32x3")
    squared = tl.sum(one * one, 1)[:, None] + tl.sum(other * other, 1)[None, :] - 2.0 * products
    row, column = i * TILE + tl.arange(0, TILE), j * TILE + tl.arange(0, TILE)
    real = (row < rows)[:, None] & (column[None, :] < row[:, None])
    squared = tl.where(real, tl.maximum(squared, 0.0), -1.0)
    start = pairs + (member.to(tl.int64) * below + tile) * TILE * TILE
    tl.store(start + tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :], squared)


@triton.jit
def back(
    z, pairs, cutoff, toward, degree, total, below, tiles, rows, width,
    TILE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """What a tile of rows is drawn towards by one part of its hard pairs, how many these are, and their sum."""
    i, part, member = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    least = tl.load(cutoff + member)
    own, column = tl.arange(0, TILE), tl.arange(0, WIDTH)
    drawn = tl.zeros((TILE, WIDTH), tl.float32)
    many, long = tl.zeros((TILE,), tl.float32), tl.zeros((TILE,), tl.float32)
    start = pairs + member.to(tl.int64) * below * TILE * TILE
    for j in range(part, tiles, PARTS):
        other = _embeddings(z, member, j, rows, width, TILE, WIDTH)
        low, high = tl.minimum(i, j), tl.maximum(i, j)
        tile = start + (high.to(tl.int64) * (high + 1) // 2 + low) * TILE * TILE
        values = tl.load(tile + own[:, None] * TILE + own[None, :])
        if j == i:
            values = tl.maximum(values, tl.trans(values))  # one of the two is -1
        elif j > i:
            values = tl.trans(values)
        hard = values >= least
        flags = hard.to(tl.float16)  # 0 and 1 are exact, and an embedding is the sum of two halves
        half = other.to(tl.float16)
        drawn += tl.dot(flags, half) + tl.dot(flags, (other - half.to(tl.float32)).to(tl.float16))
        many += tl.sum(flags.to(tl.float32), 1)
        long += tl.sum(tl.where(hard, values, 0.0), 1)
    row = i * TILE + own
    inside = row < rows
    line = (member.to(tl.int64) * PARTS + part) * rows + row
    tl.store(toward + line[:, None] * width + column[None, :], drawn, mask=inside[:, None] & (column < width)[None, :])
    tl.store(degree + line, many, mask=inside)
    tl.store(total + line, long, mask=inside)
