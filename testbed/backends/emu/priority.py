"""The switch's thread before everything else, for as long as a network is up.

On the userspace datapath one thread of ``ovs-vswitchd`` carries every packet over every hop. Each
time another process makes it wait, every flow of the emulation stands still at once. A real-time
class ends that; the kernel's real-time throttling still leaves 5 % of the time to others, and a
machine with a single processor is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from testbed.backends.emu.ledger import Ledger, Priority, start_ticks

LEVEL = 5
MIN_PROCESSORS = 2


@contextmanager
def real_time(pid: int | None, ledger: Ledger) -> Iterator[bool]:
    """Give a process the real-time class for the block; yields whether it has it."""
    if pid is None or (os.cpu_count() or 1) < MIN_PROCESSORS:
        yield False
        return
    policy, level = os.sched_getscheduler(pid), os.sched_getparam(pid).sched_priority
    entry = Priority("ovs-vswitchd", pid, start_ticks(pid) or 0, policy, level)
    ledger.add([entry])
    try:
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(LEVEL))
    except PermissionError:  # a container without CAP_SYS_NICE
        ledger.strike([entry])
        yield False
        return
    try:
        yield True
    finally:
        put_back(entry)
        ledger.strike([entry])


def put_back(entry: Priority) -> bool:
    """Restore a process' scheduling if it still is the same process in our class."""
    with suppress(ProcessLookupError):
        same = start_ticks(entry.pid) == entry.start_ticks
        if same and os.sched_getscheduler(entry.pid) == os.SCHED_RR:
            os.sched_setscheduler(entry.pid, entry.policy, os.sched_param(entry.level))
            return True
    return False
