"""Programs of agents: found before they are started, ended with their agent."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from jobs.live.agent import Channel
from jobs.live.command import (
    OUTPUT_LIMIT_BYTES,
    CommandAgent,
    CommandPlan,
    start_tied,
)
from jobs.live.program_output import OutputLog, ProgramOutput

AGENT = """
import subprocess, sys, time
from jobs.live.command import start_tied
child = start_tied(["sleep", "600"], subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(600)
"""
VARIABLES = {"PATH": os.defpath}


def output_of(folder: Path, *words: str) -> bytes:
    child = start_tied(
        words,
        subprocess.PIPE,
        env=VARIABLES,
        cwd=str(folder),
    )
    output, _ = child.communicate(timeout=60)
    return output


def script(folder: Path, mode: int) -> Path:
    path = folder / "script"
    path.write_text("#!/bin/sh\nps -o pgid= $$; pwd\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "word", ["no-such-program", "./script", "/no/such"]
)
def test_a_program_that_is_missing(tmp_path: Path, word: str) -> None:
    with pytest.raises(OSError, match="No such file") as raised:
        output_of(tmp_path, word)
    assert raised.value.errno == errno.ENOENT


def test_a_program_that_may_not_be_executed(tmp_path: Path) -> None:
    script(tmp_path, 0o644)
    with pytest.raises(OSError, match="Permission denied") as raised:
        output_of(tmp_path, "./script")
    assert raised.value.errno == errno.EACCES


def test_a_path_is_looked_up_in_its_folder(tmp_path: Path) -> None:
    """It is in a process group of its own there."""
    script(tmp_path, 0o755)
    group, folder = output_of(tmp_path, "./script").split()
    assert int(group) != os.getpgrp()
    assert os.fsdecode(folder) == str(tmp_path)


def test_words_that_look_like_options_are_the_programs(
    tmp_path: Path,
) -> None:
    words = ("echo", "--help", "--pdeathsig")
    assert output_of(tmp_path, *words) == b"--help --pdeathsig\n"


@pytest.mark.slow
def test_it_ends_with_its_agent_by_whatever_that_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", AGENT],
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        assert agent.stdout is not None
        program = psutil.Process(int(agent.stdout.readline()))
        # It may be on its way to what it becomes.
        until_s = time.monotonic() + 60
        while program.name() != "sleep":
            assert time.monotonic() < until_s
            time.sleep(0.01)
        agent.send_signal(signal.SIGKILL)
    program.wait(timeout=60)


@pytest.mark.timeout(20)
def test_output_without_end_is_left_for_later() -> None:
    """A reader that read until a fast writer paused would see nothing else."""
    near, far = socket.socketpair()
    plan = CommandPlan(0, "10.0.0.1", ("10.0.0.1",), ("cat",))
    agent = CommandAgent(plan, Channel(near))
    agent._kept_bytes = OUTPUT_LIMIT_BYTES
    log = OutputLog(())
    log.write(bytes(OUTPUT_LIMIT_BYTES))
    with near, far, Path("/dev/zero").open("rb") as endless:
        output = ProgramOutput(endless.fileno(), "", log, is_rank=True)
        assert agent._pass_on(endless.fileno())
        assert output.pass_on()
