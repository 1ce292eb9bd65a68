"""Faults while jobs run: an outcome and a reason; the run continues or ends whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.schedulers.actions import Start
from testbed.schedulers.policy import View
from tests.emu.test_run import Testbed, short, testbed  # noqa: F401 - fixtures
from tests.support.scripted_run import (
    ScriptedPolicy,
    ended,
    on,
    play,
    small_emulation,
)
from topologies.tree import tree

MBIT = 10**6
SWITCH = 4


@pytest.fixture
def emulation(prefix: str, tmp_path: Path) -> Iterator[Emulation]:
    with small_emulation(
        tree([4], [1000 * MBIT], 1), prefix, tmp_path
    ) as up:
        yield up


def jobs(*names: str, duration_s: float = 1.0) -> list[JobRequest]:
    return [
        JobRequest(name, 0.0, 2, 500 * MBIT, duration_s) for name in names
    ]


def agents_of(folder: Path, job_id: str) -> list[int]:
    """The processes whose output goes to the job's logs."""
    found = []
    for descriptor in Path("/proc").glob("[0-9]*/fd/1"):
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith(f"{folder}/agent-{job_id}."):
            found.append(int(descriptor.parts[2]))
    return sorted(found)


def test_an_agent_that_dies_ends_its_job_alone(
    emulation: Emulation,
) -> None:
    def strike(_: View) -> list[Start]:
        os.kill(agents_of(emulation.log_dir, "hit")[0], signal.SIGKILL)
        return []

    left, right = on(SWITCH, (0, 1), (1, 1)), on(SWITCH, (2, 1), (3, 1))
    scripted = ScriptedPolicy(
        {
            "hit": lambda _: [Start("hit", left, 500 * MBIT)],
            "well": lambda _: [Start("well", right, 500 * MBIT)],
            # Its reservation is back: the same place at the same rate fits again.
            "next": lambda _: [Start("next", left, 500 * MBIT)],
        },
        {0.5: strike},
    )
    histories = play(
        emulation,
        [
            *jobs("hit", duration_s=60.0),
            *jobs("well", duration_s=2.0),
            JobRequest("next", 1.5, 2, 500 * MBIT, 0.5, after="hit"),
        ],
        scripted,
    )
    end = ended(histories["hit"])
    assert (end.outcome, end.reason) == (
        "killed",
        "agent hit.0 ended with SIGKILL and no report",
    )
    assert (
        ended(histories["well"]).outcome
        == ended(histories["next"]).outcome
        == "finished"
    )


def test_a_vm_whose_port_vanishes_ends_its_job_and_the_next_one_there_says_so(
    emulation: Emulation,
) -> None:
    prefix = emulation.plan.prefix

    def strike(_: View) -> list[Start]:
        subprocess.run(
            ["ip", "link", "delete", f"{prefix}-s0v0"],
            check=True,
            timeout=60,
        )
        return []

    left, right = on(SWITCH, (0, 1), (1, 1)), on(SWITCH, (2, 1), (3, 1))
    scripted = ScriptedPolicy(
        {
            "hit": lambda _: [Start("hit", left, 500 * MBIT)],
            "well": lambda _: [Start("well", right, 500 * MBIT)],
            "next": lambda _: [Start("next", left, 500 * MBIT)],
        },
        {0.5: strike},
    )
    follower = JobRequest("next", 0.0, 2, 500 * MBIT, 0.5, after="hit")
    hit, well = jobs("hit", duration_s=60.0), jobs("well", duration_s=2.0)
    histories = play(emulation, [*hit, *well, follower], scripted)
    end = ended(histories["hit"])
    assert end.outcome == "killed"
    assert f"VM 0: its port {prefix}-s0v0 is gone" in end.reason
    assert ended(histories["well"]).outcome == "finished"
    assert ended(histories["next"]).outcome == "killed"
    assert "could not be started" in ended(histories["next"]).reason


def test_a_namespaces_name_that_vanishes_costs_the_job_that_comes_next(
    emulation: Emulation,
) -> None:
    prefix = emulation.plan.prefix

    def strike(_: View) -> list[Start]:
        subprocess.run(
            ["ip", "netns", "delete", f"{prefix}-s0v0"],
            check=True,
            timeout=60,
        )
        return []

    left = on(SWITCH, (0, 1), (1, 1))
    scripted = ScriptedPolicy(
        {
            "now": lambda _: [Start("now", left, 500 * MBIT)],
            "next": lambda _: [Start("next", left, 500 * MBIT)],
            "elsewhere": lambda _: [
                Start("elsewhere", on(SWITCH, (2, 1), (3, 1)), 500 * MBIT)
            ],
        },
        {0.3: strike},
    )
    histories = play(
        emulation,
        [
            *jobs("now", duration_s=3.0),
            JobRequest("next", 0.0, 2, 500 * MBIT, 0.5, after="now"),
            JobRequest("elsewhere", 0.0, 2, 500 * MBIT, 0.5, after="next"),
        ],
        scripted,
    )
    assert ended(histories["now"]).outcome == "finished"
    assert f"{prefix}-s0v0" in ended(histories["next"]).reason
    assert not any(
        isinstance(event, events.JobStarted) for event in histories["next"]
    )
    assert ended(histories["elsewhere"]).outcome == "finished"


JUMPING = """
import itertools, time
_real, _jumps = time.time, itertools.cycle([0.0, 7200.0, -7200.0])
time.time = lambda: _real() + next(_jumps)
"""


def test_a_clock_that_jumps_changes_nothing(
    short: Testbed,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = tmp_path / "jumping"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(JUMPING)
    short.environment["PYTHONPATH"] = (
        f"{folder}:{short.environment['PYTHONPATH']}"
    )
    done = short.live("--json")
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)
    assert (summary["finished"], summary["jobs"]) == (2, 2)
    assert summary["audit_passed"]
    ratio = summary["estimate_ratio"]
    assert (
        0.9 < ratio["min"] <= ratio["max"] < 1000
    )  # a jump is hours, an estimate 2 s at most


def test_a_full_disk_ends_the_run_with_a_whole_folder(
    testbed: Testbed,  # noqa: F811
) -> None:
    testbed.out.mkdir()
    size = ["-o", "size=24m,mode=755"]
    subprocess.run(
        ["mount", "-t", "tmpfs", *size, "tmpfs", str(testbed.out)],
        check=True,
    )
    try:
        process = testbed.start("--json")
        testbed.until("job_started", process)
        # Standing still, so that its jobs last until the disk is full.
        process.send_signal(signal.SIGSTOP)
        filler = testbed.out / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            except OSError:
                pass
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 4, err
        assert "full" in out + err
        folder = next(
            path for path in testbed.out.iterdir() if path.is_dir()
        )
        present = {path.name for path in folder.iterdir()}
        assert present >= {
            "events.jsonl",
            "jobs.csv",
            "summary.json",
            "report.html",
        }
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["status"] == "failed"
        assert (
            summary["jobs"]
            == summary["finished"]
            + summary["killed"]
            + summary["unfinished"]
            + (summary["rejected"])
        )
        last = (folder / "events.jsonl").read_text().splitlines()[-1]
        assert json.loads(last)["event"] == "run_ended"
    finally:
        give_up = time.monotonic() + 60
        while subprocess.run(
            ["umount", str(testbed.out)], check=False
        ).returncode:
            assert time.monotonic() < give_up
            time.sleep(0.1)
