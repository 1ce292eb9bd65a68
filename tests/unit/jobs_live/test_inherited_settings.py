"""Priorities and limits of root's process are not handed down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.call_filter import ARCHITECTURES

pytestmark = pytest.mark.needs("root")
PROJECT = Path(__file__).parents[3]
# Root's as far above a user's as it can be; then a user's, who tries to get back.
PROGRAM = f"""
import os, resource, sys
sys.path.insert(0, {str(PROJECT)!r})
from jobs.inherited_settings import drop_inherited_settings
def can(action):
    try:
        action()
    except (OSError, ValueError):
        return False
    return True
# A container may not let root raise them.
for kind in (resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE):
    can(lambda: resource.setrlimit(kind, (40, 40)))
resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))
os.setpriority(os.PRIO_PROCESS, 0, -10)
# Whatever the class of the tests themselves.
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
# Nor every machine this.
can(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))
def spare():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-900")
can(spare)
if sys.argv[1] == "dropped":
    drop_inherited_settings()
os.setgroups([])
os.setresuid(65534, 65534, 65534)
print(os.sched_getscheduler(0) == os.SCHED_OTHER)
print(os.getpriority(os.PRIO_PROCESS, 0))
print(open("/proc/self/oom_score_adj").read().strip())
print(*resource.getrlimit(resource.RLIMIT_CORE))
print(can(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)))
print(can(lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))))
fifo = lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print(can(fifo))
"""


def told(which: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, which],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def test_priorities_and_limits_are_a_users() -> None:
    dropped = ["True", "0", "0", "1 1", "False", "False", "False"]
    assert told("dropped") == dropped
    inherited = told("inherited")
    assert (inherited[1], inherited[3]) == ("-10", "4096 4096")
    assert inherited[5] == "True"


def test_low_priorities_stay() -> None:
    code = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(PROJECT)!r})\n"
        "from jobs.inherited_settings import drop_inherited_settings\n"
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
        "drop_inherited_settings()\n"
        "print(os.sched_getscheduler(0) == os.SCHED_IDLE)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "True\n"


def test_an_agent_loads_no_module_for_them() -> None:
    """Nor packs the filter: each would do again what its fork server has done,
    in 3 ms.
    """
    code = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(PROJECT)!r})\n"
        "from jobs import call_filter, linux\n"
        "from jobs.inherited_settings import drop_inherited_settings\n"
        "from jobs.live import forkserver\n"
        "call_filter.pack_filter()\n"
        "before = set(sys.modules)\n"
        "drop_inherited_settings()\n"
        "linux.set_no_new_privileges()\n"
        "call_filter.refuse_calls()\n"
        "print(sorted(set(sys.modules) - before))\n"
        "print(call_filter._code.cache_info().misses)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    known = os.uname().machine in ARCHITECTURES
    assert done.stdout == f"[]\n{int(known)}\n"
