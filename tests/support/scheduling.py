"""Scheduling classes of processes that tests start."""

from __future__ import annotations

import os

import pytest


def need_usual_class() -> None:
    """Skips a test that needs a process outside SCHED_IDLE where there can be none.

    ``provision.sh test`` has unit tests in that class, which root alone may leave.
    """
    idle = os.sched_getscheduler(0) == os.SCHED_IDLE
    if idle and os.geteuid() != 0:
        pytest.skip("root alone may leave SCHED_IDLE")
