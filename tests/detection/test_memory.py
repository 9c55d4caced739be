"""The C library is told to keep freed memory where it is glibc, and left alone elsewhere."""

import ctypes

from addml.detection import memory


def test_glibc_is_told(monkeypatch):
    told = []
    library = type("Library", (), {"mallopt": staticmethod(lambda *setting: told.append(setting))})
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    memory.keep_freed_memory()
    assert told == [(-3, memory.LARGEST), (-1, memory.KEPT)]


def test_other_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(ctypes, "CDLL", None)
    memory.keep_freed_memory()
