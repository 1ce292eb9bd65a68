"""Processes that stand still, and those that have nothing to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from math import inf
from pathlib import Path

import pytest

from testbed.backends.emu.process_progress import (
    PendingWork,
    Progress,
    Spent,
    spent,
)
from tests.support.scripted_process import ScriptedProcess

WORK = PendingWork()


def stands_s(
    process: ScriptedProcess,
    work: PendingWork | None = WORK,
    looks: int = 10,
) -> float:
    progress = Progress(1, process.read)
    stood_s = 0.0
    for _ in range(looks + 1):
        stood_s += progress.look(process.at_s, work)
        process.at_s += 0.1
    return stood_s


def test_a_process_that_works_or_waits_for_a_processor_does_not_stand() -> (
    None
):
    assert stands_s(ScriptedProcess(0.5, 0.0)) == 0
    assert stands_s(ScriptedProcess(0.0, 1.0)) == 0
    # The kernel adds a wait when it is over.
    assert stands_s(ScriptedProcess(0.0, 0.0, "R")) == 0


def test_a_process_with_work_that_neither_runs_nor_waits_stands() -> None:
    assert stands_s(ScriptedProcess(0.0, 0.0)) == pytest.approx(1.0)
    assert stands_s(ScriptedProcess(0.0, 0.0, "D")) == pytest.approx(1.0)
    assert stands_s(ScriptedProcess(0.0, 0.0), None) == 0


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_process_stands_with_work_or_without(state: str) -> None:
    stopped = ScriptedProcess(0.0, 0.0, state)
    assert stands_s(stopped, None) == pytest.approx(1.0)


def test_a_tenth_of_a_second_is_no_standstill() -> None:
    assert stands_s(ScriptedProcess(0.0, 0.0), looks=1) == 0


def test_little_work_is_waited_for_longer() -> None:
    little = PendingWork(least_s=0.5, running=0.0)
    still = (0.0, 0.0)
    assert stands_s(ScriptedProcess(*still), little, looks=4) == 0
    found_s = stands_s(ScriptedProcess(*still), little, looks=6)
    assert found_s == pytest.approx(0.6)
    # It runs for next to nothing, which is all that it has to do.
    assert stands_s(ScriptedProcess(0.001, 0.0), little) == 0
    assert stands_s(ScriptedProcess(0.001, 0.0)) == pytest.approx(1.0)


def test_a_process_goes_on_when_it_was_last_seen_to() -> None:
    accounts = [0.0, 0.05, 0.05, 0.05]
    progress = Progress(1, lambda _: Spent(accounts.pop(0), 0.0, "S"))
    assert progress.progressed_s == inf
    for at_s in (10.0, 10.1, 10.2, 10.3):
        progress.look(at_s)
    assert progress.progressed_s == 10.1


def test_this_process_has_an_account_and_one_that_has_ended_none() -> None:
    account = spent(os.getpid())
    assert account is not None
    assert account.run_s > 0
    assert account.state == "R"
    assert spent(2**22 + 1) is None
    progress = Progress(1, lambda _: None)
    assert progress.look(1.0, WORK) == 0
    assert progress.progressed_s == inf


def test_a_process_whose_name_is_no_text_has_an_account(
    tmp_path: Path,
) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    # Its name is that of the file that is executed.
    named = tmp_path / os.fsdecode(b"gr\xf6\xdfe) S")
    named.symlink_to(sleep)
    with subprocess.Popen([named, "60"]) as child:
        account = spent(child.pid)
        child.kill()
    assert account is not None
