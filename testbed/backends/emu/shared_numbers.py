"""Numbers of the kernel's of which the whole machine has one.

A program in a VM could use them up for everybody: memory of sockets, open
files, terminals, asynchronous reads, neighbours. What takes one of them takes
memory too, and of that each VM has its share. So for a network's life there are
as many as memory bounds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from testbed.backends.emu.cleanup_journal import CleanupJournal, setting

SYSTEM = Path("/proc/sys")
SOCKET_PAGES = ("net/ipv4/tcp_mem", "net/ipv4/udp_mem")
"""Pages for all sockets of a protocol: at ease, under pressure, at most."""
AT_LEAST = {
    # As systemd sets it.
    "fs/file-max": (1 << 63) - 1,
    # 65,536 are for all users, databases among them; each is some bytes of a
    # ring in memory.
    "fs/aio-max-nr": 1 << 24,
    # The kernel allows no more.
    "kernel/pty/max": 1 << 20,
    # Addresses that are being looked for. A VM can look for those of its
    # tenant's network, and each is given up after some seconds.
    "net/ipv4/neigh/default/gc_thresh2": 1 << 20,
    "net/ipv4/neigh/default/gc_thresh3": 1 << 20,
}


@contextmanager
def raised_numbers(
    journal: CleanupJournal, system: Path = SYSTEM
) -> Iterator[None]:
    """Raises them for the block. In a container, which may not, they stay."""
    pages = os.sysconf("SC_PHYS_PAGES")
    with ExitStack() as stack:
        # At once under no pressure and at most: under pressure the kernel makes
        # all connections' windows smaller, and not those of one VM.
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
    # A container's are often read-only, or are not there at all.
    if not os.access(path, os.W_OK):
        return
    # Never lowered: somebody may have had a reason.
    present = map(int, path.read_text("ascii").split())
    wanted = map(max, zip(present, least, strict=True))
    text = "\t".join(map(str, wanted))
    with suppress(OSError):
        stack.enter_context(setting(path, text, journal))
