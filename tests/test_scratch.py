"""Arrays in nameless files."""

import errno
import os
from collections import namedtuple

import numpy as np
import pytest

from addml import arrays
from addml.distances import smallest


def test_an_array_on_disk_is_zero_and_has_no_name(tmp_path):
    array = arrays.mapped(tmp_path, (3, 4), np.float32)
    assert not array.any()
    array[1] = 7
    assert array.sum() == 28
    assert arrays.folder_of(array[1:]) == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_an_empty_array_needs_no_file(tmp_path):
    assert arrays.mapped(tmp_path, (0, 4), np.int64).shape == (0, 4)


def test_results_lie_beside_what_they_come_from(tmp_path):
    on_disk = arrays.mapped(tmp_path, (5,), np.float32)
    assert arrays.folder_of(arrays.empty_beside((2,), bool, on_disk[1:3])) == tmp_path
    assert arrays.folder_of(arrays.empty_beside((2,), bool, np.zeros(3))) is None


def test_a_cut_off_of_numbers_on_disk_is_exact(tmp_path):
    values = np.random.default_rng(0).random((2, 1001)).astype(np.float32)
    on_disk = arrays.mapped(tmp_path, values.shape, values.dtype)
    on_disk[...] = values
    np.testing.assert_array_equal(smallest(on_disk, [1, 500]), [np.sort(values[0])[0], np.sort(values[1])[499]])
    np.testing.assert_array_equal(on_disk, values)


def test_a_folder_that_takes_no_files_is_said(tmp_path):
    with pytest.raises(arrays.ScratchError, match=r"none: cannot create a file in it \(No such file.*--scratch"):
        arrays.mapped(tmp_path / "none", (100,), np.float64)


def test_a_disk_without_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(arrays.shutil, "disk_usage", lambda folder: usage(100, 90, 10))
    with pytest.raises(arrays.ScratchError, match=r"prepared rows need .* free some space, .*--scratch"):
        arrays.mapped(tmp_path, (100,), np.float64)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no bytes")
def test_a_disk_that_fills_meanwhile_leaves_nothing(tmp_path, monkeypatch):
    def full(file, offset, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(arrays.ScratchError, match="No space left on device"):
        arrays.mapped(tmp_path, (100,), np.float64)
    assert list(tmp_path.iterdir()) == []
