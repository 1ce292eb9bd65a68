"""Processor time that computing VMs lacked, by accounts written here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.live.compute import ComputePlan
from testbed.backends.emu.cgroups import CgroupLayout, RunCgroup
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.work_evidence import Claim, Work, used_s
from testbed.schedulers.actions import Tier


def account(group: Path, seconds: float, version: int = 1) -> None:
    """A control group's processor time, as the kernel shows it."""
    group.mkdir(exist_ok=True)
    if version == 1:
        (group / "cpuacct.usage").write_text(f"{round(seconds * 1e9)}\n")
    else:
        usage = f"usage_usec {round(seconds * 1e6)}\nuser_usec 0\n"
        (group / "cpu.stat").write_text(usage)


def lacked(
    group: Path, cpus: float, got: list[float], pause_after: int = -1
) -> Work:
    """A look a second at a VM that gets so much of a processor in each."""
    work = Work()
    total_s = 5.0
    for second, share in enumerate([0.0, *got]):
        total_s += share
        account(group, total_s)
        work.look(float(second), [Claim(group, cpus)])
        if second == pause_after:
            work.pause()
    return work


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_of_control_groups_are_read(
    tmp_path: Path, version: int
) -> None:
    account(tmp_path / "vm", 1.25, version)
    assert used_s(tmp_path / "vm") == pytest.approx(1.25)
    assert used_s(tmp_path / "gone") is None


def test_a_vm_that_gets_its_quota_lacks_nothing(tmp_path: Path) -> None:
    work = lacked(tmp_path / "vm", 0.1, [0.1] * 20)
    assert work.lack_s == pytest.approx(0.0, abs=1e-6)
    assert work.watched_s == pytest.approx(20.0)


def test_what_it_did_not_get_is_lack_in_seconds_of_the_job(
    tmp_path: Path,
) -> None:
    work = lacked(tmp_path / "vm", 0.5, [0.5, 0.25, 0.5, 0.0])
    assert work.lack_s == pytest.approx(0.5 + 1.0)


def test_what_is_caught_up_is_no_lack(tmp_path: Path) -> None:
    work = lacked(tmp_path / "vm", 0.5, [0.4, 0.6, 0.5])
    assert work.lack_s == pytest.approx(0.0, abs=1e-6)


def test_a_pause_is_not_looked_at(tmp_path: Path) -> None:
    work = lacked(tmp_path / "vm", 0.5, [0.5, 0.0, 0.5], pause_after=1)
    assert work.lack_s == pytest.approx(0.0, abs=1e-6)
    assert work.watched_s == pytest.approx(2.0)


def test_the_vm_that_lacks_most_counts(tmp_path: Path) -> None:
    full, short = tmp_path / "full", tmp_path / "short"
    work = Work()
    for second in range(11):
        account(full, float(second))
        account(short, 0.9 * second)
        work.look(float(second), [Claim(full, 1.0), Claim(short, 1.0)])
    assert work.lack_s == pytest.approx(1.0)


def test_a_vm_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    work = lacked(tmp_path / "vm", 1.0, [1.0, 1.0])
    work.look(9.0, [])
    work.look(10.0, [])
    assert work.lack_s == 0.0


@pytest.mark.parametrize(
    ("tier", "share", "cores", "claimed"),
    [
        ("foreground", 1.0, 1, ("node3/vm1", 0.2)),
        ("foreground", 0.5, 1, ("node3/vm1", 0.1)),
        ("foreground", 1.0, 3, ("node3/vm1", 0.6)),
        # More than a processor is no use to one process.
        ("foreground", 1.0, 8, ("node3/vm1", 1.0)),
        # It takes what others leave of its node, if it is always busy.
        ("background", 1.0, 1, ("node3", 0.4)),
        ("background", 0.5, 1, ("node3/vm1", 0.1)),
    ],
)
def test_what_a_vm_claims_of_its_node(
    tmp_path: Path,
    tier: Tier,
    share: float,
    cores: int,
    claimed: tuple[str, float],
) -> None:
    layout = CgroupLayout(1, {"cpuacct": tmp_path})
    emulation = SimpleNamespace(
        quotas={"cpus_per_slot": 0.2},
        datacentre=SimpleNamespace(slots=[1, 1, 1, 2]),
        cgroup=RunCgroup(layout, "run"),
    )
    plan = ComputePlan(0, cpu_s=1.0, share=share)
    slot = cast("Any", SimpleNamespace(server=3, index=1))
    claim = Emulation.claim(cast("Any", emulation), slot, plan, cores, tier)
    place, cpus = claimed
    assert claim.group == tmp_path / "hosenet" / "run" / place
    assert claim.cpus == pytest.approx(cpus)


def test_a_look_after_the_work_was_done_sees_no_lack(
    tmp_path: Path,
) -> None:
    """Its process learns of the end only then."""
    group = tmp_path / "vm"
    work = lacked(group, 0.1, [0.1, 0.1, 0.04])
    assert work.lack_s == pytest.approx(0.6)
    work.end(Claim(group, 0.1), 2.4)
    assert work.lack_s == pytest.approx(0.0, abs=1e-6)
    # Of one that was never seen, or was done after the last look, nothing.
    work.end(Claim(group, 0.1), 3.5)
    work.end(Claim(tmp_path / "other", 0.1), 1.0)
    assert work.lack_s == pytest.approx(0.0, abs=1e-6)


def test_background_vms_of_one_node_lack_its_time_once(
    tmp_path: Path,
) -> None:
    claim = Claim(tmp_path / "node", 2.0)
    work = Work()
    for second in range(5):
        account(claim.group, 1.5 * second)
        work.look(float(second), [claim, claim])
    assert work.lack_s == pytest.approx(1.0)
