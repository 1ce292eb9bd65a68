"""Burning CPU with real work, in slices short enough to look after sockets in between."""

from __future__ import annotations

import hashlib
import resource
import time

SLICE_NS = 1_000_000
_BLOCK = bytes(range(256)) * 64


def burn_until(cpu_ns: int, slice_ns: int = SLICE_NS) -> None:
    """Hash until this thread's CPU time reaches ``cpu_ns``, for one slice at most."""
    digest = hashlib.sha256()
    end_ns = min(cpu_ns, time.thread_time_ns() + slice_ns)
    while time.thread_time_ns() < end_ns:
        digest.update(_BLOCK)


def used_cpu_s() -> float:
    """User and system time of this process so far, in seconds (getrusage)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
