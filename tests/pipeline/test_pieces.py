"""What is kept of every row: in memory or on disk, the same."""

import numpy as np
import pyarrow as pa
import pytest

from addml.arrays import folder_of, mapped
from addml.pipeline import ranking
from addml.pipeline.ranking import Part, Scored, ranks


@pytest.mark.parametrize("most", [10, 2**28])
def test_pieces_come_back_as_often_as_wanted(tmp_path, monkeypatch, most):
    monkeypatch.setattr(ranking, "IN_MEMORY", most)
    kept = Scored(1, str(tmp_path))
    for start in (0, 100, 150):
        names = pa.array(["a", "b"] * 25).dictionary_encode()
        kept.add(Part(pa.record_batch({"x": np.arange(start, start + 50.0), "name": names}), []))
    for _ in range(2):
        table = pa.Table.from_batches(list(kept))
        assert table["x"].to_pylist() == [*range(50), *range(100, 200)]
        assert table["name"].to_pylist() == ["a", "b"] * 75
    whole = kept.column("x")
    np.testing.assert_array_equal(whole, [*range(50), *range(100, 200)])
    assert folder_of(whole) == (tmp_path if most == 10 else None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("levels", [3, 10**9])
def test_ranks_on_disk_are_those_in_memory(tmp_path, monkeypatch, levels):
    monkeypatch.setattr(ranking, "AT_ONCE", 77)
    scores = np.random.default_rng(0).integers(-levels, levels, 1000) / levels
    on_disk = mapped(tmp_path, scores.shape, scores.dtype)
    on_disk[...] = scores
    expected = {place: rank for rank, place in enumerate(sorted(range(1000), key=lambda p: (-scores[p], p)), start=1)}
    np.testing.assert_array_equal(ranks(scores), [expected[place] for place in range(1000)])
    np.testing.assert_array_equal(ranks(on_disk), ranks(scores))
