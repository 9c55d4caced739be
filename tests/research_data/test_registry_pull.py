"""Downloads, from a server on this machine: whole, resumed, wrong, out of reach."""

import errno
import hashlib
import logging
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from addml.data import registry
from addml.data.registry import DataSet, DownloadError, MissingSetError, NoNetworkError, SetError, WrongSetError
from addml.data.sets import resuming
from tests.io.serving import closed_port, npz, serving, small_table

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
    monkeypatch.setitem(registry.SETS, name, replace(small, **changes))


def is_small(name: str = "small") -> bool:
    table = registry.load_set(name)
    return np.array_equal(table.X, X, equal_nan=True) and np.array_equal(table.y, Y)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def part_of(cache: Path) -> Path:
    return cache / "downloads" / "small.npz.part"


def test_a_set_is_downloaded_verified_and_converted(cache, server):
    said = []
    registry.pull(["small"], mirror=server.address, said=said.append)
    assert said == ["small: 2,000 rows, 8 columns, 10.00% anomalies"]
    assert registry.state("small") == "cached"
    assert is_small()
    assert files_in(cache) == {"sets/small.parquet"}


def test_what_is_there_is_not_downloaded_again(cache, server):
    registry.pull(["small"], mirror=server.address)
    registry.pull(["small"], mirror=server.address)
    assert server.asked == [None]


def test_the_environment_names_a_mirror_too(cache, server, monkeypatch):
    monkeypatch.setenv("ADDML_MIRROR", server.address + "/")
    registry.pull(["small"])
    assert is_small()


def test_a_local_file_spares_the_download(cache, server, tmp_path, monkeypatch):
    monkeypatch.setenv("ADDML_DATA", str(tmp_path))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "small.npz").write_bytes(NPZ)
    registry.pull(["small"], mirror=server.address)
    assert server.asked == []
    assert files_in(cache) == {"sets/small.parquet"}


def test_a_damaged_cache_is_downloaded_anew(cache, server):
    registry.pull(["small"], mirror=server.address)
    (cache / "sets" / "small.parquet").write_bytes(b"PAR1")
    registry.pull(["small"], mirror=server.address)
    assert is_small()


def test_a_broken_connection_is_taken_up_where_it_broke(cache, server):
    server.cuts = [5000, 70_000]
    registry.pull(["small"], mirror=server.address)
    assert server.asked == [None, "bytes=5000-", "bytes=75000-"]
    assert is_small()


def test_a_later_pull_goes_on_where_an_earlier_one_was_left(cache, server):
    server.cuts = [5000, 0]
    with pytest.raises(DownloadError, match=r"broke off after 5,000 bytes .* pull again"):
        registry.pull(["small"], mirror=server.address)
    assert part_of(cache).read_bytes() == NPZ[:5000]
    registry.pull(["small"], mirror=server.address)
    assert server.asked == [None, "bytes=5000-", "bytes=5000-"]
    assert is_small()


def test_a_server_without_ranges_begins_again(cache, server):
    server.cuts, server.knows_ranges = [5000, 0], False
    with pytest.raises(DownloadError, match="broke off"):
        registry.pull(["small"], mirror=server.address)
    registry.pull(["small"], mirror=server.address)
    assert is_small()


def test_a_part_that_is_whole_already_does_no_harm(cache, server):
    part_of(cache).parent.mkdir(parents=True)
    part_of(cache).write_bytes(NPZ)
    registry.pull(["small"], mirror=server.address)
    assert server.asked == [f"bytes={len(NPZ)}-", None]
    assert is_small()


def test_another_hash_is_refused_and_leaves_nothing(cache, server):
    server.files[PLACE] = npz(X + 1, Y)
    with pytest.raises(WrongSetError) as caught:
        registry.pull(["small"], mirror=server.address)
    for content in (NPZ, server.files[PLACE]):
        assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert str(caught.value).startswith(f"small: {server.address}{PLACE}: ")
    assert files_in(cache) == set()


@pytest.mark.parametrize("changes", [{"rows": 1999}, {"columns": 9}, {"anomalies": 0.11}])
def test_another_shape_is_refused_and_leaves_nothing(cache, server, monkeypatch, changes):
    know(monkeypatch, sha256=None, **changes)
    with pytest.raises(WrongSetError, match=r"small: .* not (1,999|9|11)"):
        registry.pull(["small"], mirror=server.address)
    assert files_in(cache) == set()


def test_a_set_of_unknown_hash_and_shape_is_taken_as_it_is(cache, server, monkeypatch):
    know(monkeypatch, sha256=None, rows=None, columns=None, anomalies=None)
    registry.pull(["small"], mirror=server.address)
    assert is_small()


def test_pickled_objects_are_refused(cache, server, monkeypatch):
    know(monkeypatch, sha256=None)
    server.files[PLACE] = npz(np.full((2000, 8), None), Y)
    with pytest.raises(WrongSetError, match="damaged or no such file"):
        registry.pull(["small"], mirror=server.address)
    assert files_in(cache) == set()


def test_no_network_names_the_address_and_what_to_do(cache):
    address = closed_port()
    with pytest.raises(NoNetworkError) as caught:
        registry.pull(["small"], mirror=address)
    for words in (f"{address}{PLACE}: cannot be reached", "HTTPS_PROXY", "ADDML_MIRROR", "ADDML_DATA", "own/small.npz"):
        assert words in str(caught.value)
    assert files_in(cache) == set()


def test_no_network_is_found_out_once(cache, monkeypatch):
    know(monkeypatch, "second")
    with pytest.raises(NoNetworkError, match=r"^small: "):
        registry.pull(["small", "second"], mirror=closed_port())


def test_a_file_that_the_server_does_not_have(cache, server):
    server.files.clear()
    with pytest.raises(DownloadError, match="404"):
        registry.pull(["small"], mirror=server.address)


def test_only_web_addresses_are_taken(cache, tmp_path):
    with pytest.raises(DownloadError, match="no http or https address"):
        registry.pull(["small"], mirror=tmp_path.as_uri())


def test_the_other_sets_are_pulled_though_one_fails(cache, server, monkeypatch):
    know(monkeypatch, "wrong", rows=3)
    know(monkeypatch, "wide", columns=3)
    with pytest.raises(SetError, match=r"(?s)2 data sets failed.*wrong: .*wide: "):
        registry.pull(["wrong", "wide", "small"], mirror=server.address)
    assert is_small()


def test_an_unknown_name_is_found_before_anything_is_downloaded(cache, server):
    with pytest.raises(registry.UnknownSetError, match="'smal'"):
        registry.pull(["small", "smal"], mirror=server.address)
    assert server.asked == []


def test_a_set_without_an_address_cannot_be_pulled(cache):
    with pytest.raises(MissingSetError, match=r"isolet-reduced: cannot be downloaded, Isolet \(reduced\)"):
        registry.pull(["isolet-reduced"])


def test_a_full_disk_is_said_and_not_left_full(cache, server, monkeypatch):
    def full(write, block, part):
        def refuse(block):
            raise OSError(errno.ENOSPC, "No space left on device")

        write_block(refuse, block, part)

    write_block = resuming._write
    monkeypatch.setattr(resuming, "_write", full)
    with pytest.raises(SetError, match=r"small: .*No space left on device.* ADDML_CACHE"):
        registry.pull(["small"], mirror=server.address)
    assert files_in(cache) == set()


def test_an_interrupted_download_is_kept_and_the_cache_is_as_it_was(cache, server):
    registry.pull(["small"], mirror=server.address)
    path = cache / "sets" / "small.parquet"
    path.write_bytes(before := path.read_bytes()[:-1])  # damaged, so that it is pulled again

    def stage(words, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registry.pull(["small"], mirror=server.address, stage=stage)
    assert path.read_bytes() == before
    registry.pull(["small"], mirror=server.address)
    assert is_small()


def test_progress_counts_bytes(cache, server):
    seen = []

    class Bar:
        def __enter__(self):
            return seen.append

        def __exit__(self, *about):
            pass

    def stage(words, total):
        assert (words, total) == ("Small", len(NPZ))
        return Bar()

    registry.pull(["small"], mirror=server.address, stage=stage)
    assert sum(seen) == len(NPZ)


def test_without_pooch_the_extra_is_named(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"addml\[data\]"):
        registry.pull(["small"])


def test_pooch_itself_is_silent(cache, server, capfd):
    registry.pull(["small"], mirror=server.address)
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("addml").level == logging.NOTSET
