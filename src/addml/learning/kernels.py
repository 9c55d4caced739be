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


# The k-th largest distance -----------------------------------------------------------------------------------
#
# The bits of distances are in the order of the distances. They are read as digits of 5, 6, 6 and 14 bits: of those
# that share the digits found so far with the k-th largest, the next digits are counted, which tells the next digit of
# the k-th largest. What is no distance is below 0, and so are its bits.


@triton.jit
def _digit(counts, k, BINS: tl.constexpr):
    """The digit of the k-th largest number by the counts of all digits, and which of those with that digit it is."""
    bins = tl.arange(0, BINS)
    many = tl.load(counts + bins)
    digit = tl.sum((tl.cumsum(many, reverse=True) >= k).to(tl.int32)) - 1
    return digit, k - tl.sum(tl.where(bins > digit, many, 0))


@triton.jit
def _found(counts, k, DIGITS: tl.constexpr):
    """The first digits of the k-th largest distance, as one number, and which of those that share them it is."""
    found, left = 0, k
    for place in tl.static_range(DIGITS):
        digit, left = _digit(counts + 64 * place, left, 64)
        found = found * 64 + digit
    return found, left


@triton.jit
def _count(digits, counted, counts, BINS: tl.constexpr):
    """Add to the counts how often each digit occurs among those that are counted."""
    bins = tl.arange(0, BINS)
    many = tl.histogram(tl.ravel(tl.where(counted, digits, 0)), BINS)
    many = tl.where(bins == 0, many - tl.sum(tl.ravel((~counted).to(tl.int32))), many)
    tl.atomic_add(counts + bins, many, mask=many > 0)


@triton.jit
def _bits(pairs, size, CHUNK: tl.constexpr):
    """The bits of this program's part of the distances."""
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    start = pairs + tl.program_id(1).to(tl.int64) * size
    return tl.load(start + place, mask=place < size, other=-1.0).to(tl.int32, bitcast=True)


@triton.jit
def count_digits(pairs, counts, k, size, CHUNK: tl.constexpr, ROOM: tl.constexpr, DIGITS: tl.constexpr):
    """Count the next digits of the distances that share the first ones with the k-th largest."""
    own = counts + tl.program_id(1) * ROOM
    found, _ = _found(own, k, DIGITS)
    bits = _bits(pairs, size, CHUNK)
    _count((bits >> (26 - 6 * DIGITS)) & 63, (bits >> (32 - 6 * DIGITS)) == found, own + 64 * DIGITS, 64)


@triton.jit
def count_last(pairs, counts, k, size, CHUNK: tl.constexpr, ROOM: tl.constexpr, MANY: tl.constexpr):
    """Count the last digits, each by itself: those that share all others are few, or many are equal."""
    own = counts + tl.program_id(1) * ROOM
    found, _ = _found(own, k, 3)
    bits = _bits(pairs, size, CHUNK)
    near, last = (bits >> 14) == found, bits & 16383
    tries = 0  # equal ones would wait for each other: add up some of them first
    while (tl.sum(near.to(tl.int32)) > MANY) & (tries < MANY):
        largest = tl.max(tl.where(near, last, -1))
        tl.atomic_add(own + 192 + largest, tl.sum((near & (last == largest)).to(tl.int32)))
        near, tries = near & (last != largest), tries + 1
    tl.atomic_add(own + 192 + last, 1, mask=near)


@triton.jit
def kth_largest(counts, cutoff, k, ROOM: tl.constexpr):
    """The k-th largest distance by the counts of its digits."""
    member = tl.program_id(0)
    own = counts + member * ROOM
    found, left = _found(own, k, 3)
    last, _ = _digit(own + 192, left, 16384)
    tl.store(cutoff + member, (found * 16384 + last).to(tl.float32, bitcast=True))


# Pairs -------------------------------------------------------------------------------------------------------


@triton.jit
def distances(z, pairs, counts, below, rows, width, TILE: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr):
    """Squared distances of a tile of pairs, -1 on the diagonal, above it and outside; count their first digits."""
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
    _count(squared.to(tl.int32, bitcast=True) >> 26, real, counts + member * ROOM, 32)


@triton.jit
def back(
    z, toward, degree, total, pairs, cutoff, below, tiles, rows, width,
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


@triton.jit
def finish(
    z, toward, degree, total, gradient, value, rows, width,
    TILE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of rows, and the mean distance of all hard pairs, from the sums of their parts."""
    i, member = tl.program_id(0), tl.program_id(1)
    own, column = i * TILE + tl.arange(0, TILE), tl.arange(0, WIDTH)
    inside = own < rows
    place, within = own[:, None] * width + column[None, :], inside[:, None] & (column < width)[None, :]
    drawn, many = tl.zeros((TILE, WIDTH), tl.float32), tl.zeros((TILE,), tl.float32)
    for part in range(PARTS):
        line = (member.to(tl.int64) * PARTS + part) * rows
        drawn += tl.load(toward + line * width + place, mask=within, other=0.0)
        many += tl.load(degree + line + own, mask=inside, other=0.0)
    ends, length = tl.zeros((CHUNK,), tl.int32), tl.zeros((CHUNK,), tl.float32)
    first = member.to(tl.int64) * PARTS * rows
    for start in range(0, PARTS * rows, CHUNK):
        line = start + tl.arange(0, CHUNK)
        ends += tl.load(degree + first + line, mask=line < PARTS * rows, other=0.0).to(tl.int32)
        length += tl.load(total + first + line, mask=line < PARTS * rows, other=0.0)
    ends = tl.maximum(tl.sum(ends), 2).to(tl.float32)  # every pair has two
    tl.store(value + member, tl.sum(length) / ends, mask=i == 0)
    start = member.to(tl.int64) * rows * width
    away = many[:, None] * tl.load(z + start + place, mask=within, other=0.0) - drawn
    tl.store(gradient + start + place, away * (4.0 / ends), mask=within)
