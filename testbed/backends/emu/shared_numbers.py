"""Limits of the kernel that the whole machine shares.

They limit memory of sockets, open files, terminals, asynchronous reads and
neighbours. A program in one VM that reached a limit would stop everybody. While
a network is up they are so high that memory runs out first, and each VM has a
limit of memory of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from testbed.backends.emu.cleanup_journal import CleanupJournal, setting

SYSTEM = Path("/proc/sys")
SOCKET_PAGES = ("net/ipv4/tcp_mem", "net/ipv4/udp_mem")
"""Memory of all sockets of a protocol, in pages: below the first number there
is no pressure, from the second on there is, and the third is the most.
"""
AT_LEAST = {
    # Open files: as systemd sets it.
    "fs/file-max": (1 << 63) - 1,
    # Asynchronous reads: by default 65,536 for all users, databases among them.
    # Each takes some bytes of memory.
    "fs/aio-max-nr": 1 << 24,
    # Terminals: the kernel allows no more.
    "kernel/pty/max": 1 << 20,
    # Neighbours: addresses that are being resolved. A VM can ask for all of its
    # tenant's network; the kernel drops an entry after some seconds.
    "net/ipv4/neigh/default/gc_thresh2": 1 << 20,
    "net/ipv4/neigh/default/gc_thresh3": 1 << 20,
}


@contextmanager
def raised_numbers(
    journal: CleanupJournal, system: Path = SYSTEM
) -> Iterator[None]:
    """Raises the limits for the block. Those that a container may not write stay
    as they are.

    ``system``: the folder of the kernel's settings.
    """
    pages = os.sysconf("SC_PHYS_PAGES")
    with ExitStack() as stack:
        # All three numbers are the machine's memory, so there is never
        # pressure: under it the kernel makes the windows of all connections
        # smaller, not only those of one VM.
        for name in SOCKET_PAGES:
            _raise(stack, journal, system / name, [pages] * 3)
        for name, least in AT_LEAST.items():
            _raise(stack, journal, system / name, [least])
        yield


def _raise(
    stack: ExitStack,
    journal: CleanupJournal,
    path: Path,
    least: list[int],
) -> None:
    """Raises a setting's numbers to ``least`` until the stack is closed."""
    # A container's settings are often read-only, or missing.
    if not os.access(path, os.W_OK):
        return
    present = map(int, path.read_text("ascii").split())
    # A number that is larger already stays: somebody may have had a reason.
    raised = map(max, zip(present, least, strict=True))
    text = "\t".join(map(str, raised))
    with suppress(OSError):
        stack.enter_context(setting(path, text, journal))
