"""Settings of root's process that a program in a VM would inherit.

Root's shell may run at a real-time priority, be spared when memory runs short,
or have raised limits: a service's often has. Programs in VMs begin without.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

NO_CORE_DUMPS = 1
"""Bytes of a core dump. The kernel writes none of so few; and where it starts a
program for each (``core_pattern``), as root and outside of the VM, it does so
with a limit of 0, but not with this one.
"""
MOST = {
    resource.RLIMIT_CORE: NO_CORE_DUMPS,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_NICE: 0,
}
"""Limits that it cannot raise again."""
REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)
SPARED = "/proc/self/oom_score_adj"
"""Below 0: to be spared when memory runs short."""


def drop_inherited_settings() -> None:
    """Gives this process, which is root's, the priorities and limits of a
    user's. Raises OSError.
    """
    for kind, most in MOST.items():
        # A container may not let root raise a limit from 0.
        with suppress(ValueError):
            resource.setrlimit(kind, (most, most))
    # Low priorities stay: who calls `nice testbed run` means it. The kernel
    # adds the flag to the policy of a process that has it.
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK in REAL_TIME:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    # By system calls: pathlib and its codecs, which each agent would load anew,
    # took 1.5 ms.
    if int(_spared(os.O_RDONLY)) < 0:
        _spared(os.O_WRONLY, b"0")


def _spared(
    flags: int,
    text: bytes = b"",
) -> bytes:
    """Reads SPARED, or writes a text to it."""
    descriptor = os.open(SPARED, flags | os.O_CLOEXEC)
    try:
        if text:
            os.write(descriptor, text)
            return text
        return os.read(descriptor, 32)
    finally:
        os.close(descriptor)
