"""A program that a task runs is told once to end, whoever was interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_watch import wait_until

CHILD = """
import pathlib, signal, sys, time
log = pathlib.Path(sys.argv[1])
def note(number, frame):
    with log.open("a") as file:
        file.write("told\\n")
signal.signal(signal.SIGINT, note)
log.write_text("up\\n")
until_s = time.monotonic() + 60
while "told" not in log.read_text() and time.monotonic() < until_s:
    time.sleep(0.01)
# What a run takes down meanwhile; a second signal would be seen.
time.sleep(0.5)
with log.open("a") as file:
    file.write("down\\n")
"""
DRIVER = """
import sys
from testbed.sweeps.child_process import run_child
run_child([sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["driver", "group"])
def test_an_interrupted_program_takes_down_what_it_built(
    tmp_path: Path, whom: str
) -> None:
    """``group``: as a terminal does it; ``driver``: as ``kill -INT`` does."""
    log = tmp_path / "log"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, CHILD, str(log)],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: log.exists() and log.read_text() == "up\n",
            "the program",
        )
        if whom == "group":
            os.killpg(driver.pid, signal.SIGINT)
        else:
            os.kill(driver.pid, signal.SIGINT)
        # Less than the two minutes that an interrupted program has.
        _, trace = driver.communicate(timeout=100)
        assert b"KeyboardInterrupt" in trace
        assert log.read_text().split() == ["up", "told", "down"]
    finally:
        driver.kill()
        driver.communicate()
