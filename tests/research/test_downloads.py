"""Downloads, from a server on this machine: whole, broken off, wrong, out of reach."""

import errno
import hashlib
import logging
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research import datasets
from research.datasets import DataSet, DataSetError, NetworkError
from tests.research.serving import closed_port, npz, serving, small_table

X, Y = small_table(2000, 8, 200)
NPZ = npz(X, Y)
PLACE = "/owner/repository/commit/small.npz"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ADDML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ADDML_DATA", raising=False)
    monkeypatch.delenv("ADDML_MIRROR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    know(monkeypatch)
    return tmp_path / "cache"


@pytest.fixture
def server():
    with serving({PLACE: NPZ}) as running:
        yield running


def know(monkeypatch, name="small", **changes) -> None:
    address, digest = f"https://raw.githubusercontent.com{PLACE}", hashlib.sha256(NPZ).hexdigest()
    small = DataSet(name, "Small", "paper", None, Path("own/small.npz"), address, None, 2000, 8, 0.1, digest)
    monkeypatch.setitem(datasets.SETS, name, replace(small, **changes))


def is_small(name: str = "small") -> bool:
    table = datasets.load(name)
    return np.array_equal(table.X, X, equal_nan=True) and np.array_equal(table.y, Y)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_set_is_downloaded_and_verified(cache, server):
    said = []
    datasets.pull(["small"], mirror=server.address, report=said.append)
    assert said == ["small: 2,000 rows, 8 columns, 10.00% anomalies"]
    assert datasets.state("small") == "cached"
    assert is_small()
    assert files_in(cache) == {"downloads/small.npz"}


def test_what_is_there_is_not_downloaded_again(cache, server):
    datasets.pull(["small"], mirror=server.address)
    datasets.pull(["small"], mirror=server.address)
    assert server.asked == [PLACE]


def test_the_environment_names_a_mirror_too(cache, server, monkeypatch):
    monkeypatch.setenv("ADDML_MIRROR", server.address + "/")
    datasets.pull(["small"])
    assert is_small()


def test_a_local_file_spares_the_download(cache, server, tmp_path, monkeypatch):
    monkeypatch.setenv("ADDML_DATA", str(tmp_path))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "small.npz").write_bytes(NPZ)
    datasets.pull(["small"], mirror=server.address)
    assert server.asked == []
    assert files_in(cache) == set()


def test_a_damaged_cache_is_downloaded_anew(cache, server):
    datasets.pull(["small"], mirror=server.address)
    (cache / "downloads" / "small.npz").write_bytes(b"half of it")
    datasets.pull(["small"], mirror=server.address)
    assert is_small()


def test_a_broken_connection_leaves_nothing_and_the_next_pull_starts_over(cache, server):
    server.cuts = [5000]
    with pytest.raises(DataSetError, match=f"small: {server.address}{PLACE}: .*Pull again"):
        datasets.pull(["small"], mirror=server.address)
    assert files_in(cache) == set()
    datasets.pull(["small"], mirror=server.address)
    assert is_small()


def test_another_hash_is_refused_and_leaves_nothing(cache, server):
    server.files[PLACE] = npz(X + 1, Y)
    with pytest.raises(DataSetError) as caught:
        datasets.pull(["small"], mirror=server.address)
    for content in (NPZ, server.files[PLACE]):
        assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert str(caught.value).startswith(f"small: {server.address}{PLACE}: ")
    assert files_in(cache) == set()


@pytest.mark.parametrize("changes", [{"rows": 1999}, {"columns": 9}, {"anomalies": 0.11}])
def test_another_shape_is_refused_and_leaves_nothing(cache, server, monkeypatch, changes):
    know(monkeypatch, sha256=None, **changes)
    with pytest.raises(DataSetError, match=r"small: .* not (1,999|9|11)"):
        datasets.pull(["small"], mirror=server.address)
    assert files_in(cache) == set()


def test_a_set_of_unknown_hash_and_shape_is_taken_as_it_is(cache, server, monkeypatch):
    know(monkeypatch, sha256=None, rows=None, columns=None, anomalies=None)
    datasets.pull(["small"], mirror=server.address)
    assert is_small()


def test_pickled_objects_are_refused(cache, server, monkeypatch):
    know(monkeypatch, sha256=None)
    server.files[PLACE] = npz(np.full((2000, 8), None), Y)
    with pytest.raises(DataSetError, match="is damaged"):
        datasets.pull(["small"], mirror=server.address)
    assert files_in(cache) == set()


def test_no_network_names_the_address_and_what_to_do(cache):
    address = closed_port()
    with pytest.raises(NetworkError) as caught:
        datasets.pull(["small"], mirror=address)
    for words in (f"{address}{PLACE}: cannot be reached", "HTTPS_PROXY", "ADDML_MIRROR", "ADDML_DATA", "own/small.npz"):
        assert words in str(caught.value)
    assert files_in(cache) == set()


def test_no_network_is_found_out_once(cache, monkeypatch):
    know(monkeypatch, "second")
    with pytest.raises(NetworkError, match=r"^small: "):
        datasets.pull(["small", "second"], mirror=closed_port())


def test_a_file_that_the_server_does_not_have(cache, server):
    server.files.clear()
    with pytest.raises(DataSetError, match="404"):
        datasets.pull(["small"], mirror=server.address)


def test_only_web_addresses_are_taken(cache, tmp_path):
    with pytest.raises(DataSetError, match=r"small: file://.*No connection adapters"):
        datasets.pull(["small"], mirror=tmp_path.as_uri())


def test_the_other_sets_are_pulled_though_one_fails(cache, server, monkeypatch):
    know(monkeypatch, "wrong", rows=3)
    know(monkeypatch, "wide", columns=3)
    with pytest.raises(DataSetError, match=r"(?s)2 data sets failed.*wrong: .*wide: "):
        datasets.pull(["wrong", "wide", "small"], mirror=server.address)
    assert is_small()


def test_an_unknown_name_is_found_before_anything_is_downloaded(cache, server):
    with pytest.raises(ValueError, match="'smal'"):
        datasets.pull(["small", "smal"], mirror=server.address)
    assert server.asked == []


def test_a_set_without_an_address_cannot_be_pulled(cache):
    with pytest.raises(DataSetError, match=r"isolet-reduced: cannot be downloaded, Isolet \(reduced\)"):
        datasets.pull(["isolet-reduced"])


def test_a_full_disk_is_said_and_leaves_nothing(cache, server, monkeypatch):
    pooch = pytest.importorskip("pooch")

    def full(self, url, output_file, pooch):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", full)
    with pytest.raises(DataSetError, match=r"small: .*No space left on device.* ADDML_CACHE"):
        datasets.pull(["small"], mirror=server.address)
    assert files_in(cache) == set()


def test_without_pooch_the_extra_is_named(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"addml\[data\]"):
        datasets.pull(["small"])


def test_pooch_itself_is_silent(cache, server, capfd):
    datasets.pull(["small"], mirror=server.address)
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("addml").level == logging.NOTSET
