"""What the C library does with memory that was given back."""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's names of these settings, from malloc.h
KEPT, LARGEST = 1 << 28, 1 << 25  # bytes: of free memory that are kept, of an array that is cut from it


def keep_freed_memory() -> None:
    """Let arrays of a few megabytes, which every batch needs again, lie where those of the last batch lay.

    By default glibc gives them back to the system, which clears every page before it lends it again: a tenth of the
    time that scoring takes. Arrow's own allocator does so too, and is passed over. Other C libraries are left as they
    are.
    """
    if platform.libc_ver()[0] == "glibc":
        import pyarrow as pa

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, KEPT)
        pa.set_memory_pool(pa.system_memory_pool())
