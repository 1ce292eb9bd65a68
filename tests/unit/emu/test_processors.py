"""What counts as idle: time that nobody used, or only who gives way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from testbed.backends.emu.processors import Processors, gained_s, giving_way_s

BURN = """
import os, sys, time
if sys.argv[1] == "idle":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("on", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end and os.getppid() != 1:
    pass
"""


@pytest.fixture(params=["idle", "other"])
def burner(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A process that computes all the time, of either class."""
    command = [sys.executable, "-S", "-c", BURN, request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield request.param, process.pid
        process.kill()


def test_only_who_gives_way_is_counted(burner: tuple[str, int]) -> None:
    kind, pid = burner
    assert (pid in giving_way_s()) == (kind == "idle")
    if kind == "idle":
        first = sum(psutil.Process(pid).cpu_times()[:2])
        counted = giving_way_s()[pid]
        last = sum(psutil.Process(pid).cpu_times()[:2])
        assert first <= counted <= last


def test_shares_are_shares() -> None:
    processors = Processors()
    time.sleep(0.05)
    use = processors.sample()
    assert 0.0 <= use.idle <= 1.0
    assert use.busy == 1.0 - use.idle


def test_who_came_or_went_counts_for_nothing() -> None:
    assert gained_s({1: 2.0, 2: 5.0}, {2: 5.5, 3: 9.0}) == pytest.approx(0.5)
    assert gained_s({1: 2.0}, {1: 1.0}) == 0.0


def test_a_name_with_brackets_is_no_field() -> None:
    from testbed.backends.emu.processors import _processor_s

    tick = os.sysconf("SC_CLK_TCK")
    stat = "7 (a) b) S " + " ".join(["0"] * 10) + f" {3 * tick} {2 * tick} 0"
    assert _processor_s(stat) == 5.0
