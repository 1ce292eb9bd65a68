"""Evidence of jobs that run: counters against rates, processes that stand still."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.backends.emu import job_evidence
from testbed.backends.emu.job_evidence import (
    EvidenceTaker,
    Followed,
    Progress,
    Spent,
    Waits,
)
from testbed.backends.emu.limiter_counters import COUNTERS
from testbed.backends.emu.sampling import LIMITER, RECEIVE_CAP, SEND_CAP
from testbed.backends.emu.work_evidence import Claim
from testbed.embedding.placement import Placement
from testbed.plan.counted_traffic import SETTLES_S, Arrival, CurveStep
from testbed.plan.direct_evidence import JobEvidence, Kind
from testbed.plan.network_plan import network_plan, tenant_plan
from topologies.tree import tree

RATE_BPS = 8_000_000
PLAN = network_plan(PAIR := tree([2], [100_000_000], 1), "hn", 1.0)
TENANT = replace(
    tenant_plan(
        PAIR,
        PLAN,
        Placement(PAIR.trees[0].root, ((0, 1), (1, 1))),
        PLAN.slots,
        1,
        "job",
        RATE_BPS,
    ),
    volume_bytes=10_000_000,
)
JOB = Followed("job", "ring", TENANT, 100.0, 10.0, pids=())


class Process:
    """A process that runs for a share of each second, and waits for another."""

    def __init__(self, ran: float, waited: float, state: str = "S") -> None:
        self.ran, self.waited, self.state = ran, waited, state
        self.at_s = 0.0

    def read(self, _: int) -> Spent:
        return Spent(
            self.ran * self.at_s, self.waited * self.at_s, self.state
        )

    def stands_s(self, *, has_work: bool, looks: int = 10) -> float:
        progress = Progress(1, self.read)
        stood_s = 0.0
        for _ in range(looks + 1):
            stood_s += progress.look(self.at_s, has_work=has_work)
            self.at_s += 0.1
        return stood_s


def test_a_process_that_works_or_waits_for_a_processor_does_not_stand() -> (
    None
):
    assert Process(0.5, 0.0).stands_s(has_work=True) == 0
    assert Process(0.0, 1.0).stands_s(has_work=True) == 0


def test_a_process_with_work_that_neither_runs_nor_waits_stands() -> None:
    assert Process(0.0, 0.0).stands_s(has_work=True) == pytest.approx(1.0)
    assert Process(0.0, 0.0).stands_s(has_work=False) == 0


def test_a_stopped_process_stands_with_work_or_without() -> None:
    stopped = Process(0.0, 0.0, "T")
    assert stopped.stands_s(has_work=False) == pytest.approx(1.0)


def test_a_tenth_of_a_second_is_no_standstill() -> None:
    assert Process(0.0, 0.0).stands_s(has_work=True, looks=1) == 0


def taken(
    monkeypatch: pytest.MonkeyPatch,
    shares: tuple[float, float],
    job: Followed = JOB,
    pause_s: float = 0.0,
    arrivals: dict[int, Arrival] | None = None,
    ends_s: float = 10.0,
    disturbed_s: float | None = None,
    queues_until_s: int = 0,
) -> JobEvidence:
    """Evidence after nine samples; both VMs receive shares of their rate.

    The experiment disturbs the job ``disturbed_s`` after it has begun, once it
    stood still for two seconds.
    """
    clock = [0.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    taker = EvidenceTaker()
    taker.start([])
    taker.look([job])
    rows = np.array(
        [
            (what, 1, vm, RATE_BPS, 512_000, 0, RATE_BPS)
            for vm in (0, 1)
            for what in (SEND_CAP, RECEIVE_CAP)
        ],
        LIMITER,
    )
    for second in range(1, 10):
        if disturbed_s is not None and second > disturbed_s:
            clock[0] = 100.0 + disturbed_s
            taker.disturb(1, outage_s=2.0)
            disturbed_s = None
        counters: list[tuple[Any, ...]] = []
        for share in shares:
            sends_s = max(0.0, min(second, ends_s) - pause_s)
            sent = round(RATE_BPS / 8 * share * sends_s)
            backlog = 3_000 if second <= queues_until_s else 0
            counters += [(100.0 + second, sent, 0, backlog)] * 2
        taker.count(rows, np.array(counters, COUNTERS), RECEIVE_CAP)
    evidence = taker.finish(1, arrivals=arrivals)
    assert evidence is not None
    assert taker.ended == [evidence]
    return evidence


def test_a_job_at_its_rate_lacks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = taken(monkeypatch, (1.0, 1.0))
    assert found.is_complete
    assert found.missing == 0
    assert found.excess == 0


def test_a_queue_at_a_limiter_says_when_the_network_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert taken(monkeypatch, (1.0, 1.0)).queued == 0
    found = taken(monkeypatch, (1.0, 1.0), queues_until_s=6)
    assert found.queued == pytest.approx(6 / 9)
    assert found.record()["queued"] == 0.6667


def test_the_vm_that_receives_least_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = taken(monkeypatch, (1.0, 0.9))
    assert found.missing == pytest.approx(0.1, abs=0.01)


def test_a_pause_at_the_start_is_missing_traffic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = taken(monkeypatch, (1.0, 1.0), pause_s=0.5)
    assert found.missing_s == pytest.approx(0.5, abs=0.1)


def test_what_a_disturbance_takes_is_missing_of_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = taken(monkeypatch, (1.0, 1.0), pause_s=2.0, disturbed_s=0.5)
    assert found.missing == 0
    assert (found.watched_s, found.disturbed_s) == (7.0, 2.0)
    assert found.is_complete
    assert found.possible_error.endswith("but for 2.0 s of disturbances")
    lacking = taken(monkeypatch, (1.0, 0.9), pause_s=2.0, disturbed_s=0.5)
    assert lacking.missing == pytest.approx(0.1, abs=0.02)


def test_what_is_counted_after_all_has_come_is_no_time_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = replace(TENANT, volume_bytes=4_800_000)
    found = taken(monkeypatch, (1.0, 1.0), replace(JOB, tenant=half))
    assert found.watched_s == 5.0


@pytest.mark.parametrize("late_s", [0.0, 0.05, 0.5, 4.0])
@pytest.mark.parametrize("pause_s", [0.0, 0.7])
def test_the_time_until_the_last_byte_counts(
    monkeypatch: pytest.MonkeyPatch, late_s: float, pause_s: float
) -> None:
    """A job of ten seconds, counted for nine: the rest comes late."""
    last_s = 110.0 + pause_s + late_s
    on_time = Arrival(10.0 * RATE_BPS, 110.0 + pause_s)
    arrivals = {0: on_time, 1: replace_last(on_time, last_s)}
    found = taken(
        monkeypatch, (1.0, 1.0), pause_s=pause_s, arrivals=arrivals
    )
    assert found.missing_s == pytest.approx(pause_s + late_s, abs=0.01)
    assert found.tail_s == pytest.approx(late_s, abs=0.01)


def replace_last(arrival: Arrival, last_s: float) -> Arrival:
    return arrival._replace(last_s=last_s)


def test_a_last_byte_before_its_time_lacks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = Arrival(10.0 * RATE_BPS, 109.5)
    found = taken(monkeypatch, (1.0, 1.0), arrivals={0: early, 1: early})
    assert found.missing == 0


def test_a_cap_that_lets_too_much_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert taken(monkeypatch, (1.5, 1.5)).excess > 0.3


def test_the_rest_of_a_job_of_iperf3_that_has_ended_is_no_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sent for five seconds, and is counted for nine: others were started."""
    job = replace(JOB, kind="iperf3", length_s=5.0)
    found = taken(monkeypatch, (1.0, 1.0), job, ends_s=5.0)
    assert found.missing == 0
    assert found.is_complete


# Of the bytes that both VMs receive a second, half in the first five.
PHASES = (
    CurveStep(2.5 * RATE_BPS, 5.0),
    CurveStep(2.5 * RATE_BPS, 5.0),
)
CURVE = replace(JOB, kind="demand curve", phases=PHASES)


@pytest.mark.parametrize("late_s", [0.0, 0.3])
def test_a_demand_curve_is_held_against_what_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    arrival = Arrival(5.0 * RATE_BPS, 110.0)
    arrivals = {0: arrival, 1: replace_last(arrival, 110.0 + late_s)}
    found = taken(monkeypatch, (0.5, 0.5), CURVE, arrivals=arrivals)
    assert found.missing_s == pytest.approx(late_s, abs=0.01)
    assert found.is_complete


@pytest.mark.parametrize(
    "job", [CURVE, replace(CURVE, was_paused=True)], ids=["", "paused"]
)
def test_a_curve_that_could_not_take_its_course_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, job: Followed
) -> None:
    """No stamp of its last byte, a pause, or a failure of the file's."""
    arrival = Arrival(5.0 * RATE_BPS, 119.0)
    arrivals = {}
    disturbed_s = 2.5
    if job.was_paused:
        arrivals = {0: arrival, 1: arrival}
        disturbed_s = 8.5
    found = taken(
        monkeypatch,
        (0.5, 0.5),
        job,
        arrivals=arrivals,
        disturbed_s=disturbed_s,
    )
    assert found.missing == 0
    assert not found.is_complete
    assert found.is_seen_in_part


@pytest.mark.parametrize("kind", ["command", "compute"])
def test_a_job_with_a_pace_of_its_own_misses_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    found = taken(monkeypatch, (0.3, 0.3), replace(JOB, kind=kind))
    assert found.missing == 0
    assert not found.is_complete


def test_a_job_that_was_elsewhere_has_no_complete_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = replace(JOB, is_whole=False)
    found = taken(monkeypatch, (0.3, 0.3), moved)
    assert not found.is_complete
    assert found.missing == 0
    assert taken(monkeypatch, (1.5, 1.5), moved).excess == 0


def stood_s(
    monkeypatch: pytest.MonkeyPatch,
    process: Process,
    *,
    parts: int = 1,
    looks: int = 6,
    outage_s: float | None = None,
) -> float:
    """A switch beside a job of 80 Mbit/s, which the experiment may disturb."""
    clock = [0.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        job_evidence, "Progress", lambda pid: Progress(pid, process.read)
    )
    fast = replace(JOB, tenant=replace(TENANT, rate_bps=40_000_000))
    taker = EvidenceTaker()
    taker.start(range(1, parts + 1))
    if outage_s is not None:
        taker.disturb(1, outage_s)
    for _ in range(looks):
        taker.look([fast])
        clock[0] += 0.1
        process.at_s += 0.1
    evidence = taker.finish(1)
    assert evidence is not None
    return evidence.stood_s


@pytest.mark.parametrize(("parts", "expected_s"), [(1, 0.5), (2, 0.0)])
def test_a_part_of_the_switch_may_have_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, parts: int, expected_s: float
) -> None:
    """One switch that does not run stands still where jobs send at 80 Mbit/s."""
    idle = Process(0.0, 0.0)
    found_s = stood_s(monkeypatch, idle, parts=parts)
    assert found_s == pytest.approx(expected_s)


@pytest.mark.parametrize("outage_s", [0.0, 6.0, inf])
def test_a_switch_has_nothing_to_do_while_the_experiment_stops_its_job(
    monkeypatch: pytest.MonkeyPatch, outage_s: float
) -> None:
    """A failure, a pause, another rate: TCP waits for a timer of its own."""
    found_s = stood_s(monkeypatch, Process(0.0, 0.0), outage_s=outage_s)
    assert found_s == 0
    # A stopped switch stands still all the same.
    stopped = Process(0.0, 0.0, "T")
    found_s = stood_s(monkeypatch, stopped, outage_s=outage_s)
    assert found_s == pytest.approx(0.5)


def test_a_switch_that_stays_still_after_a_disturbance_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = round(10 * SETTLES_S) + 11
    idle = Process(0.0, 0.0)
    found_s = stood_s(monkeypatch, idle, looks=looks, outage_s=0.0)
    assert found_s == pytest.approx(1.0, abs=0.11)


def test_an_agent_s_own_loss_counts_where_it_keeps_a_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: 0.0)

    def finished(job: Followed) -> JobEvidence:
        taker = EvidenceTaker()
        taker.look([job])
        evidence = taker.finish(1, lost_s=0.5)
        assert evidence is not None
        return evidence

    for kind in ("one VM", "demand curve"):
        assert finished(replace(JOB, kind=kind)).lost_s == 0.5
    moved = replace(JOB, kind="one VM", is_whole=False)
    assert finished(moved).lost_s == 0
    # Computing VMs share their node by design.
    paced = finished(replace(JOB, kind="compute", is_paced=True))
    assert (paced.lost_s, paced.held_s) == (0.0, 0.5)
    assert finished(replace(JOB, kind="compute")).held_s is None


@pytest.mark.parametrize(
    ("share_got", "looks", "held_s"),
    [(1.0, 10, 0.0), (0.9, 10, 1.0), (1.0, 4, None)],
)
def test_a_computing_job_lacks_what_its_vms_did_not_get(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share_got: float,
    looks: int,
    held_s: float | None,
) -> None:
    """Of ten seconds; wherever it runs, and after a pause too."""
    clock = [0.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    job = replace(
        JOB,
        kind="compute",
        claims=(Claim(tmp_path, 0.5),),
        is_whole=False,
        was_paused=True,
    )
    taker = EvidenceTaker()
    for second in range(looks + 1):
        clock[0] = float(second)
        used_ns = round(1e9 * 0.5 * share_got * second)
        (tmp_path / "cpuacct.usage").write_text(str(used_ns))
        taker.look([job])
    # Time in which it is preempted is not its own.
    clock[0] += 3.0
    taker.look([])
    clock[0] += 3.0
    taker.look([job])
    evidence = taker.finish(1)
    assert evidence is not None
    if held_s is None:
        assert evidence.held_s is None
    else:
        assert evidence.held_s == pytest.approx(held_s)
    assert evidence.is_complete == (held_s == 0.0)


def group_with(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="ascii")
    return folder


def test_programs_wait_by_their_group_s_own_count(tmp_path: Path) -> None:
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull total=0\n"
    group = group_with(tmp_path, cpu_pressure=line.format(1_000_000))
    waits = Waits(group)
    assert waits.look([]) == 0
    group_with(tmp_path, cpu_pressure=line.format(1_250_000))
    assert waits.look([]) == 0.25


def test_programs_wait_by_their_processes_where_stalls_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = {7: 5.0, 8: 0.25, 9: 0.5}
    monkeypatch.setattr(
        job_evidence, "spent", lambda pid: Spent(0.0, waited[pid], "R")
    )
    waits = Waits(group_with(tmp_path, cgroup_procs="7\n8\n9\n"))
    assert waits.look([7]) == 0.75
    # One has ended, and the agent has reported.
    group_with(tmp_path, cgroup_procs="7\n8\n")
    assert waits.look([]) == 0.75
    assert Waits(tmp_path / "gone").look([]) == 0
