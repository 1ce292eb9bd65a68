"""The switch in parts: jobs between parts, what is left afterwards, a part that dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bench.spoiling import frozen
from jobs.linux import C_COMPILERS
from testbed.backends.emu.cgroups import lives
from testbed.backends.emu.part_switches import RUN_ROOT
from testbed.backends.emu.traffic_control import NETNS_DIR
from tests.emu.test_run import Testbed, testbed  # noqa: F401 - a fixture

pytestmark = pytest.mark.needs("userspace-datapath")

# Too heavy for one part; each job has VMs in two pods.
LARGE = """
name: large
topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 8}
scale: {rate: 0.04}
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 40, bandwidth: 50 Mbit/s, duration: DURATION s, pattern: ring}
    - {id: b, vms: 40, bandwidth: 50 Mbit/s, duration: DURATION s, pattern: ring}
# Forwarding between parts is tested here, not how much of it this machine carries.
expect: {fidelity: invalid}
"""
IDLE = (
    LARGE.partition("    - {id: a")[0]
    + """\
    - {id: a, vms: 4, bandwidth: 500 Mbit/s, duration: 5 s, pattern: ring}
    - id: pauses
      kind: demand
      vms: 40
      bandwidth: 50 Mbit/s
      duration: 5 s
      demand:
        - {until: 10 %, at: 50 Mbit/s}
        - {until: 100 %, at: 100 kbit/s}
      cpu: 1 %
expect: {fidelity: invalid}
"""
)


def parts_of(testbed: Testbed, prefix: str) -> dict[str, set[str]]:  # noqa: F811
    """Part -> its bridges, as the run's plan has them."""
    text = (testbed.folder / "plan/0000-network.txt").read_text(
        encoding="utf-8"
    )
    lines = [
        line
        for line in text.splitlines()
        if line.startswith(f"{prefix}-part")
    ]
    return {
        name: set(bridges.split())
        for name, bridges in (x.split(": ") for x in lines)
    }


def daemons(mark: str) -> dict[str, int]:
    """Part -> the process that forwards its packets, of a run."""
    found = {}
    for file in (RUN_ROOT / mark).glob("*/ovs-vswitchd.pid"):
        found[file.parent.name] = int(file.read_text())
    return found


def running(
    testbed: Testbed,  # noqa: F811
) -> tuple[subprocess.Popen[str], dict[str, int]]:
    """A run whose only job has started and does not end, and its parts' processes."""
    lines = LARGE.replace("DURATION", "300").splitlines(keepends=True)
    testbed.file.write_text(
        "".join(line for line in lines if "{id: b" not in line)
    )
    process = testbed.start()
    testbed.until("job_started", process)
    (mark,) = testbed.marks
    return process, daemons(mark)


@pytest.fixture(autouse=True)
def earlier() -> set[Path]:
    """Folders of other runs, dead or alive, that none of these tests made."""
    return set(RUN_ROOT.glob("*"))


def left(prefix: str, earlier: set[Path]) -> list[str]:
    folders = sorted(set(RUN_ROOT.glob("*")) - earlier)
    return [
        *map(str, folders),
        *(path.name for path in NETNS_DIR.glob(f"{prefix}-*")),
    ]


def test_jobs_between_parts_finish_and_nothing_is_left(
    testbed: Testbed,  # noqa: F811
    prefix: str,
    earlier: set[Path],
) -> None:
    """One job in one rack, and one that pauses: most parts have nothing to do,
    and none of them is said to stand still.
    """
    testbed.file.write_text(IDLE)
    done = testbed.live("--json")
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)
    assert summary["finished"] == 2
    parts = parts_of(testbed, prefix)
    assert len(parts) > 1
    assert all(parts.values())
    facts = json.loads(
        (testbed.folder / "provenance.json").read_text(encoding="utf-8")
    )["live"]
    assert facts["switch_parts"] == len(parts)
    assert facts["switch_paced"] is any(map(shutil.which, C_COMPILERS))
    (noted,) = [
        event
        for event in testbed.events()
        if event.get("check") == "standstill"
    ]
    assert noted["level"] == "ok", noted
    assert left(prefix, earlier) == []


def test_a_part_that_dies_is_a_failed_run_with_its_name(
    testbed: Testbed,  # noqa: F811
    prefix: str,
    earlier: set[Path],
) -> None:
    process, pids = running(testbed)
    victim, pid = sorted(pids.items())[-1]
    os.kill(pid, signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 4
    assert f"switch part {victim} has died" in stderr
    logs = {
        path.name: path
        for path in (testbed.folder / "logs").glob("*-ovs-vswitchd.log")
    }
    assert list(logs) == [f"{victim}-ovs-vswitchd.log"]
    (log,) = logs.values()
    assert "ovs-vswitchd" in log.read_text(encoding="utf-8")
    assert log.stat().st_uid == testbed.folder.stat().st_uid
    assert left(prefix, earlier) == []


def test_a_part_that_stands_still_while_traffic_waits_is_seen(
    testbed: Testbed,  # noqa: F811
) -> None:
    """No signal has stopped it, and the other parts work."""
    testbed.file.write_text(LARGE.replace("DURATION", "8"))
    process = testbed.start("--json")
    # Of both: one part's traffic could be another job's.
    testbed.until("job_started", process, times=2)
    (mark,) = testbed.marks
    pids = daemons(mark)
    assert len(pids) > 1
    _, pid = min(pids.items())
    # A sample first: it says which parts the jobs' traffic passes.
    testbed.until("job_progress", process, times=2)
    time.sleep(1.5)
    with frozen(pid):
        time.sleep(1.0)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    (summary,) = json.loads(stdout)
    reasons = summary["fidelity"]["reasons"]
    assert summary["fidelity"]["verdict"] == "invalid"
    assert any("made no progress for" in reason for reason in reasons)


@pytest.mark.long
def test_a_killed_run_in_parts_is_cleaned_up_after(
    testbed: Testbed,  # noqa: F811
    prefix: str,
    earlier: set[Path],
) -> None:
    process, pids = running(testbed)
    process.kill()
    process.communicate(timeout=60)
    assert len(pids) > 1
    assert all(map(lives, pids.values()))
    shown = testbed.run("clean", "--dry-run")
    assert all(name in shown.stdout for name in pids), shown.stdout
    assert testbed.run("clean").returncode == 0
    assert left(prefix, earlier) == []
    assert not [pid for pid in pids.values() if lives(pid)]
