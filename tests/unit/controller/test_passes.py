"""A controller's passes: a standstill shows, a wait for a processor does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from controller.passes import PASS_EVERY_S, LoopPass, Passes

S = 1_000_000_000
PASS = LoopPass(10 * S, 1 * S, 5 * S, 7)
COUNTING = (
    "import sys, time\n"
    "from controller.passes import pass_for_ever\n"
    "pass_for_ever(int(sys.argv[1]), time.sleep)"
)


@pytest.mark.parametrize(
    ("after_s", "waited_s", "more_s"),
    [
        (0.1, 0.0, 0.0),
        (0.3, 0.0, 0.0),
        (2.1, 0.0, 2.0),
        (2.1, 1.5, 0.5),
        (2.1, 2.1, 0.0),
    ],
)
def test_a_standstill_is_neither_a_sleep_nor_a_wait(
    after_s: float, waited_s: float, more_s: float
) -> None:
    now_ns = round((10 + after_s) * S)
    stood_ns = PASS.stood_until(now_ns, round((5 + waited_s) * S))
    assert stood_ns == pytest.approx((1 + more_s) * S)


def test_a_controller_that_counts_no_passes_is_not_known() -> None:
    assert Passes().stood_s(os.getpid()) is None


def until(holds: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


@pytest.mark.slow
def test_a_stopped_process_stands_still_until_it_continues() -> None:
    passes = Passes()
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTING, str(passes.descriptor)],
        pass_fds=[passes.descriptor],
    )

    def stood_s() -> float:
        return passes.stood_s(process.pid) or 0.0

    try:
        until(lambda: passes.last() is not None)
        before_s = stood_s()
        process.send_signal(signal.SIGSTOP)
        # On a busy machine it has to wait for a processor first, to stop.
        stopped = psutil.STATUS_STOPPED
        until(lambda: psutil.Process(process.pid).status() == stopped)
        stopped_s = time.monotonic()
        until(lambda: stood_s() >= before_s + 1.0)
        process.send_signal(signal.SIGCONT)
        for_s = time.monotonic() - stopped_s
        last = passes.last()
        until(lambda: passes.last() != last)
        assert stood_s() >= before_s + for_s - 2 * PASS_EVERY_S
    finally:
        process.kill()
        process.wait()
