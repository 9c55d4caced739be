"""Known data sets: the table of them, loading from ADDML_DATA."""

import gzip
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from research import datasets
from research.datasets import DataSet, DataSetError
from tests.research.serving import npz, small_table

PAPER = [
    *("Gisette", "Glass", "Ionosphere", "Isolet", "Letter", "Madelon", "Magic-Telescope"),
    *("Mnist", "Musk", "Pendigits", "Satellite", "Satimage-2", "Shuttle", "Vowels"),
]
X, Y = small_table()
NPZ = npz(X, Y)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, no ADDML_DATA."""
    monkeypatch.setenv("ADDML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ADDML_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def originals(tmp_path, monkeypatch, cache):
    """ADDML_DATA, with one small known set in it."""
    folder = tmp_path / "originals"
    folder.mkdir()
    (folder / "small.npz").write_bytes(NPZ)
    know(monkeypatch, "small.npz", NPZ)
    monkeypatch.setenv("ADDML_DATA", str(folder))
    return folder


def know(monkeypatch, file: str, content: bytes | None, **changes) -> None:
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    small = DataSet("small", "Small", "paper", None, Path(file), None, None, 50, 4, 0.1, digest)
    monkeypatch.setitem(datasets.SETS, "small", replace(small, **changes))


def is_small(table) -> bool:
    exact = np.array_equal(table.X, X, equal_nan=True) and np.array_equal(table.y, Y)
    return exact and (table.name, table.X.dtype, table.y.dtype) == ("small", np.float64, np.int8)


def test_the_papers_sets_are_those_of_its_table_in_its_order():
    assert [datasets.SETS[name].title for name in datasets.names("paper")] == PAPER


def test_the_reduced_isolet_is_never_called_isolet():
    one = datasets.named("isolet-reduced")
    assert (one.title, one.collection, one.address) == ("Isolet (reduced)", "stand-in", None)


def test_adbench_has_twelve_sets_for_choosing_defaults():
    assert len(datasets.names("adbench", "dev")) == 12
    assert set(datasets.names("adbench", "dev")) < set(datasets.names("adbench"))
    assert not set(datasets.names("adbench")) & set(datasets.names("paper"))


def test_every_address_is_pinned_to_a_commit():
    for one in datasets.SETS.values():
        assert one.address is None or re.search(r"/[0-9a-f]{40}/", one.address), one.name


def test_an_unknown_name_is_an_error_with_a_hint():
    with pytest.raises(ValueError, match=r"'Leter' is not a known data set.* mean 'letter'"):
        datasets.load("Leter")


def test_a_missing_set_says_how_to_get_it(cache):
    assert not datasets.available("letter")
    with pytest.raises(DataSetError, match=r"letter: .* -m research data letter .* ADDML_DATA .* odds/letter\.mat"):
        datasets.load("letter")
    with pytest.raises(DataSetError, match=r"isolet-reduced: .* ADDML_DATA") as caught:
        datasets.load("isolet-reduced")
    assert "research data" not in str(caught.value)


def test_a_local_set_is_read_as_it_is(originals, cache):
    assert datasets.state("small") == "local"
    assert is_small(datasets.load("small"))
    assert not cache.exists()


def test_the_local_file_counts_more_than_the_cache(originals, cache, monkeypatch):
    know(monkeypatch, "small.npz", None)
    (cache / "downloads").mkdir(parents=True)
    (cache / "downloads" / "small.npz").write_bytes(npz(X + 1, Y))
    assert is_small(datasets.load("small"))
    (originals / "small.npz").unlink()
    assert datasets.state("small") == "cached"
    assert np.array_equal(datasets.load("small").X, X + 1, equal_nan=True)


@pytest.mark.parametrize("file", ["small.mat", "small.txt.gz"])
def test_other_formats_are_read_to_the_last_bit(originals, monkeypatch, file):
    if file.endswith(".mat"):
        savemat(originals / file, {"X": X, "y": Y[:, None]})
    else:
        text = "\n".join(",".join(f"{value:.18e}" for value in row) for row in np.column_stack([X, Y]))
        (originals / file).write_bytes(gzip.compress(text.encode()))
    know(monkeypatch, file, None)
    assert is_small(datasets.load("small"))


def test_another_hash_is_refused(originals):
    other = npz(X + 1, Y)
    (originals / "small.npz").write_bytes(other)
    with pytest.raises(DataSetError) as caught:
        datasets.load("small")
    assert hashlib.sha256(other).hexdigest() in str(caught.value)
    assert hashlib.sha256(NPZ).hexdigest() in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": 51}, "has 50 rows, not 51"),
        ({"columns": 5}, "has 4 columns, not 5"),
        ({"anomalies": 0.1001}, r"has 10.00% anomalies, not 10.01%"),
    ],
)
def test_another_shape_or_share_is_refused(originals, monkeypatch, changes, words):
    know(monkeypatch, "small.npz", NPZ, **changes)
    with pytest.raises(DataSetError, match=words):
        datasets.load("small")


@pytest.mark.parametrize(
    "content",
    [b"", NPZ[:300], npz(X, Y[:-1]), npz(X, Y + 1), npz(X, np.full(50, None))],
    ids=["empty", "cut short", "a label too few", "labels 1 and 2", "pickled"],
)
def test_a_damaged_file_is_refused(originals, monkeypatch, content):
    know(monkeypatch, "small.npz", None)
    (originals / "small.npz").write_bytes(content)
    with pytest.raises(DataSetError, match=r"small: .*small\.npz"):
        datasets.load("small")


def table_of_the_readme(folder: Path) -> dict[str, tuple[int, int, float]]:
    found = re.findall(r"^\| ([\w-]+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", (folder / "README.md").read_text(), re.M)
    return {title: (int(rows), int(columns), float(share)) for title, rows, columns, share in found}


def hashes_of_the_readme(folder: Path) -> dict[str, str]:
    found = re.findall(r"^([0-9a-f]{64})  (\S+)$", (folder / "README.md").read_text(), re.M)
    return {path: digest for digest, path in found}


def test_all_local_sets_are_as_their_description_says(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ADDML_CACHE", str(tmp_path))
    known, hashes = table_of_the_readme(data_folder), hashes_of_the_readme(data_folder)
    assert (len(known), len(hashes)) == (14, 24)
    assert sum(datasets.SETS[name].path.as_posix() in hashes for name in datasets.names()) == 24
    local = [name for name in datasets.names() if datasets.state(name) == "local"]
    assert len(local) == 25
    for name in local:
        one, table = datasets.named(name), datasets.load(name)
        assert one.sha256 == hashes.get(one.path.as_posix(), one.sha256)
        rows, columns, share = known.get(one.title, (one.rows, one.columns, 100 * one.anomalies))
        assert (*table.X.shape, round(100 * table.y.mean(), 2)) == pytest.approx((rows, columns, share), abs=1e-9)


def test_real_files_are_read_as_other_readers_read_them(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ADDML_CACHE", str(tmp_path))
    text = np.loadtxt(data_folder / "cmuxstream" / "magic-telescope_sampled.txt.gz", delimiter=",")
    table = datasets.load("magic-telescope")
    assert np.array_equal(np.column_stack([table.X, table.y]), text)
    letter = loadmat(data_folder / "odds" / "letter.mat")
    table = datasets.load("letter")
    assert np.array_equal(np.column_stack([table.X, table.y]), np.column_stack([letter["X"], letter["y"]]))


def test_gisette_and_isolet_are_known_by_their_shape_alone(data_folder):
    known = table_of_the_readme(data_folder)
    for name in ("gisette", "isolet"):
        one = datasets.named(name)
        assert one.sha256 is None
        assert (one.rows, one.columns, round(100 * one.anomalies, 2)) == known[one.title]
