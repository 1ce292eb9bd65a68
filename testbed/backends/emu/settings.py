"""Kernel settings that are changed for a moment, listed in the ledger while they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from testbed.backends.emu.ledger import Ledger, Sysctl

RCU_EXPEDITED = Path("/sys/kernel/rcu_expedited")


@contextmanager
def setting(path: Path, new: str, ledger: Ledger) -> Iterator[None]:
    """Write ``new`` for the block and the old value after it. Without the file nothing happens."""
    try:
        old = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        yield
        return
    if old == new:
        yield
        return
    entry = Sysctl(str(path), old, new)
    ledger.add([entry])
    path.write_text(new, encoding="ascii")
    try:
        yield
    finally:
        path.write_text(old, encoding="ascii")
        ledger.strike([entry])


@contextmanager
def expedited(ledger: Ledger) -> Iterator[None]:
    """Short grace periods in the kernel while a network is made or removed.

    The switch opens and closes a packet socket for every port, one after the other, and each
    close waits for a grace period: some 15 ms, or 2 ms expedited.
    """
    with ExitStack() as stack:
        # A container's /sys may be read-only, the ledger's disk full: it takes longer, that is all.
        if os.access(RCU_EXPEDITED, os.W_OK):
            with suppress(OSError):
                stack.enter_context(setting(RCU_EXPEDITED, "1", ledger))
        yield
