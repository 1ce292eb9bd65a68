"""Settings of a process of root's that programs in VMs must not inherit.

Root's shell may run at a high or real-time priority, be spared when memory runs
short, and have raised limits, as many services have.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from io import FileIO

NO_CORE_DUMPS = 1
"""Limit of a core dump in bytes. The kernel writes no file of so few. With a limit
of 0 it would write none either, but still start the program of ``core_pattern``,
if there is one, as root and outside of the VM.
"""
LIMITS = {
    resource.RLIMIT_CORE: NO_CORE_DUMPS,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_NICE: 0,
}
"""The most that a program in a VM may have. Only root can raise it again."""
REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)
OOM_ADJUSTMENT = "/proc/self/oom_score_adj"
"""A file with a number. Below 0, the process is spared when memory runs short."""


def drop_inherited_settings() -> None:
    """Gives this process, which is root's, the priorities and limits of a
    user's. Raises OSError.
    """
    for kind, most in LIMITS.items():
        # Raises ValueError in a container whose root may not raise a limit
        # from 0, which then stays.
        with suppress(ValueError):
            resource.setrlimit(kind, (most, most))
    # The kernel adds this flag to the policy of a process that has it.
    policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    # Lower priorities than usual stay: whoever calls `nice testbed run` wants
    # them.
    if policy in REAL_TIME:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    # Unbuffered: pathlib and its codecs, which each agent would load anew, took
    # 1.5 ms.
    with FileIO(OOM_ADJUSTMENT) as file:
        is_spared = int(file.read()) < 0
    if is_spared:
        with FileIO(OOM_ADJUSTMENT, "w") as file:
            file.write(b"0")
