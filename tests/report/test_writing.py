"""Files appear whole or not at all."""

import os
import stat

import pytest

from addml.io.write import WriteError
from addml.report import write_report
from tests.report.sample import shop


@pytest.mark.parametrize(
    ("name", "format", "begins"),
    [
        ("r.html", None, "<!doctype html>"),
        ("r", None, "<!doctype html>"),
        ("r.md", None, "# 1 of 40"),
        ("r.MARKDOWN", None, "# 1 of 40"),
        ("r.txt", "md", "# 1 of 40"),
        ("r.md", "html", "<!doctype html>"),
    ],
)
def test_the_name_or_the_format_decides(tmp_path, name, format, begins):
    path = write_report(shop(), tmp_path / name, format=format)
    assert path == tmp_path / name
    assert path.read_text(encoding="utf-8").startswith(begins)
    assert b"\r" not in path.read_bytes()


def test_an_unknown_format_is_named(tmp_path):
    with pytest.raises(ValueError, match="format='pdf' must be 'html' or 'md'"):
        write_report(shop(), tmp_path / "r.pdf", format="pdf")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), MemoryError])
@pytest.mark.parametrize("before", [None, "old"])
def test_nothing_partial_stays(tmp_path, monkeypatch, error, before):
    path = tmp_path / "r.html"
    if before:
        path.write_text(before)

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((KeyboardInterrupt, WriteError, MemoryError)) as caught:
        write_report(shop(), path)
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value)
        assert str(path) in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == (["r.html"] if before else [])
    assert not before or path.read_text() == before


def test_a_missing_folder_and_a_folder_are_named(tmp_path):
    with pytest.raises(WriteError, match=r"does not exist\. Create it"):
        write_report(shop(), tmp_path / "no" / "r.html")
    with pytest.raises(WriteError, match="is a folder"):
        write_report(shop(), tmp_path)


def test_a_link_and_its_permissions_stay(tmp_path):
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_report(shop(), link)
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8").startswith("<!doctype")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_device_is_written_to():
    write_report(shop(), os.devnull)
    assert not os.path.isfile(os.devnull)
