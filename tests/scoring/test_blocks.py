"""Rows through fixed blocks: every product sees one shape, every row is written once, in its place."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from addml.inputs import MemoryRows
from addml.scoring.scorer import BLOCK, ROWS_PER_CALL, block_of_images, in_blocks

SIZE = BLOCK["cpu"]
CHUNK = ROWS_PER_CALL["cpu"]


def double(X, threads=1, calls=None):
    result, slices = np.full((2, len(X), X.shape[1]), np.nan), []

    def compute(x, rows):
        slices.append(rows)
        if calls is not None:
            calls.append((x.shape, threading.get_ident()))
        return np.concatenate([2 * x, 3 * x], axis=1)

    def write(rows, block):
        assert np.isnan(result[:, rows]).all()
        result[:, rows] = block

    in_blocks(MemoryRows(X.astype(np.float32)), compute, write, "cpu", threads)
    ends = sorted((rows.start, rows.stop) for rows in slices)  # of every stack, the rows without padding
    assert ends == [(start, min(start + CHUNK, len(X))) for start in range(0, len(X), CHUNK)]
    return result


@pytest.mark.parametrize(
    "rows", [1, 2, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE + 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_row_is_written_once_in_its_place(rows, threads):
    X = np.arange(2.0 * rows).reshape(rows, 2)
    np.testing.assert_array_equal(double(X, threads), np.stack([2 * X, 3 * X]))


@pytest.mark.parametrize("rows", [1, SIZE - 1, SIZE, SIZE + 1, CHUNK + 1])
def test_every_product_has_the_same_shape(rows):
    calls = []
    double(np.ones((rows, 2)), calls=calls)
    assert {shape[1:] for shape, _ in calls} == {(1, SIZE, 2)}  # whatever the number of blocks in a stack


@pytest.mark.parametrize(("columns", "blocks"), [(1024, 32), (2048, 16), (10**5, 1)])
def test_a_call_holds_few_blocks_of_wide_rows(columns, blocks):
    """A call holds 2^23 numbers, or one block."""
    rows, calls = MemoryRows(np.ones((CHUNK, 1), np.float32)), []
    wide = SimpleNamespace(shape=(CHUNK, columns), slice=rows.slice)

    def compute(x, rows):
        calls.append(x.shape[:3])
        return x[..., :1]

    in_blocks(wide, compute, lambda rows, block: None, "cpu", 1)
    assert set(calls) == {(blocks, 1, SIZE)}
    assert len(calls) == 32 // blocks


@pytest.mark.parametrize(("columns", "most"), [(32, CHUNK), (2**14, 32), (2**20, 1)])
def test_a_call_holds_few_large_rows_if_each_is_a_block(columns, most):
    """So that photographs are shared by the threads, and their patches fit into memory."""
    rows, calls = MemoryRows(np.ones((CHUNK, 1), np.float32)), []
    large = SimpleNamespace(shape=(CHUNK, columns), slice=rows.slice)
    in_blocks(large, lambda x, rows: (calls.append(len(x)), x[..., :1])[1], lambda rows, block: None, "cpu", 1, 1)
    assert set(calls) == {most}


def test_what_pads_a_block_is_zero():
    blocks = []
    rows = MemoryRows(np.ones((3, 2), np.float32))
    in_blocks(rows, lambda x, rows: (blocks.append(x), x)[1], lambda rows, block: None, "cpu", 1)
    assert blocks[0].sum() == 6


def test_an_error_in_a_thread_is_raised():
    def fail(x, rows):
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError, match="no"):
        in_blocks(MemoryRows(np.ones((3 * CHUNK, 1), np.float32)), fail, lambda rows, block: None, "cpu", 3)


@pytest.mark.parametrize(
    ("size", "device", "expected"),
    [
        *[(784, "cpu", 256), (1025, "cpu", 128), (4096, "cpu", 64), (3 * 256**2, "cpu", 8), (10**8, "cpu", 8)],
        *[(784, "cuda", 16384), (256**2, "cuda:1", 4096)],
    ],
)
def test_a_block_of_large_images_is_of_few(size, device, expected):
    assert block_of_images(size, device) == expected
