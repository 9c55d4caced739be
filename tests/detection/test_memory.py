"""The C library is told to keep freed memory where it is glibc, Arrow to use it; others are left alone."""

import ctypes

import pyarrow as pa

from addml.detection import memory


def test_glibc_is_told(monkeypatch):
    told, pools = [], []
    library = type("Library", (), {"mallopt": staticmethod(lambda *setting: told.append(setting))})
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(pa, "set_memory_pool", pools.append)
    memory.keep_freed_memory()
    assert told == [(-3, memory.LARGEST), (-1, memory.KEPT)]
    assert [pool.backend_name for pool in pools] == ["system"]


def test_other_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(ctypes, "CDLL", None)
    memory.keep_freed_memory()
