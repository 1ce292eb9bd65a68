"""Evidence of jobs that run: counters against rates, processes that stand still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.demand import Command, Demand, Iperf3
from jobs.request import Enforcement
from testbed.backends.emu import job_evidence
from testbed.backends.emu.job_evidence import (
    EvidenceTaker,
    Followed,
    Waits,
    may_converge,
)
from testbed.backends.emu.limiter_counters import (
    COUNTERS,
    RECEIVE_CAP,
    SEND_CAP,
    WHOLE_LINK,
)
from testbed.backends.emu.process_progress import Progress, Spent
from testbed.backends.emu.sampling import LIMITER
from testbed.backends.emu.work_evidence import Claim
from testbed.embedding.placement import Placement
from testbed.plan.batch_lines import BURST_S
from testbed.plan.counted_traffic import SETTLES_S, Arrival, CurveStep
from testbed.plan.direct_evidence import JobEvidence, Kind
from testbed.plan.limits import (
    CATCH_UP_S,
    RESERVED_CATCH_UP_S,
    largest_packet_bytes,
)
from testbed.plan.network_plan import network_plan, tenant_plan
from tests.support.scripted_process import ScriptedProcess, scripted_switch
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


def taken(
    monkeypatch: pytest.MonkeyPatch,
    shares: tuple[float, float],
    job: Followed = JOB,
    pause_s: float = 0.0,
    arrivals: dict[int, Arrival] | None = None,
    ends_s: float = 10.0,
    disturbed_s: float | None = None,
    queues_until_s: int = 0,
    *,
    outlasts: bool = False,
) -> JobEvidence:
    """Evidence after nine samples; both VMs receive shares of their rate.

    The experiment disturbs the job ``disturbed_s`` after it has begun, once it
    stood still for two seconds.
    """
    clock = [0.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    taker = EvidenceTaker()
    taker.start(None)
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
        taker.count(rows, np.array(counters, COUNTERS))
    evidence = taker.finish_stopped(job, 10.0) if outlasts else None
    if not outlasts:
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


def test_acknowledgements_of_single_segments_are_no_lack_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data of 9.8 s and 2 % of acknowledgements: a job that is on time."""
    followed = replace(JOB, arriving=10.0 / 9.8)
    arrived = Arrival(9.8 * RATE_BPS, 110.0)
    arrivals = {0: arrived, 1: arrived}
    found = taken(monkeypatch, (1.0, 1.0), followed, arrivals=arrivals)
    assert found.missing_s == pytest.approx(0.0, abs=0.01)
    taken_for_data = taken(monkeypatch, (1.0, 1.0), arrivals=arrivals)
    assert taken_for_data.missing_s == pytest.approx(0.2, abs=0.01)


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


def test_a_vms_own_cap_has_a_small_bucket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Caps 3.5 % too wide were 1.5 % over: that of a switch's bucket was allowed."""
    job = replace(JOB, kind="best effort")
    excess = taken(monkeypatch, (1.035, 1.035), job).excess
    allowed = BURST_S + 8 * largest_packet_bytes(TENANT) / RATE_BPS
    assert excess == pytest.approx(0.035 - allowed / 8.0, abs=0.001)


@pytest.mark.parametrize(
    ("links", "bucket_s"),
    [(TENANT.link_bps, RESERVED_CATCH_UP_S), ((), CATCH_UP_S)],
    ids=["reserved", "best effort"],
)
def test_a_receive_cap_has_the_bucket_that_is_set(
    links: tuple[tuple[int, int], ...], bucket_s: float
) -> None:
    tenant = replace(TENANT, link_bps=links)
    taker = EvidenceTaker()
    taker.look([replace(JOB, tenant=tenant)])
    for second in range(10):
        sent = round(RATE_BPS / 8 * 1.1 * second)
        row = (RECEIVE_CAP, 1, 0, RATE_BPS, 0, 0, RATE_BPS)
        taker.count(
            np.array([row], LIMITER),
            np.array([(100.0 + second, sent, 0, 0)], COUNTERS),
        )
    evidence = taker.finish(1)
    assert evidence is not None
    packet_s = 8 * largest_packet_bytes(tenant) / RATE_BPS
    allowed = max(bucket_s, packet_s if links else 0.0) + packet_s
    assert evidence.excess == pytest.approx(0.1 - allowed / 9.0, abs=1e-4)


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
    # What it lost of its pace is known where it ran all the time.
    assert found.is_seen_in_part is not job.was_paused


@pytest.mark.parametrize("kind", ["command", "compute"])
def test_a_job_with_a_pace_of_its_own_misses_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    found = taken(monkeypatch, (0.3, 0.3), replace(JOB, kind=kind))
    assert found.missing == 0
    assert not found.is_complete


def test_a_job_in_the_background_has_no_complete_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind = replace(JOB, is_whole=False, is_reserved=False)
    found = taken(monkeypatch, (0.3, 0.3), behind)
    assert not found.is_complete
    assert found.missing == 0
    assert taken(monkeypatch, (1.5, 1.5), behind).excess == 0


def test_a_curve_that_moved_is_somewhere_else_in_its_course(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = replace(CURVE, is_whole=False)
    arrivals = {vm: Arrival(5.0 * RATE_BPS, 119.0) for vm in (0, 1)}
    found = taken(monkeypatch, (0.5, 0.5), moved, arrivals=arrivals)
    assert not found.is_complete


@pytest.mark.parametrize(
    ("before", "after", "missing_s"),
    [(1.0, 1.0, 0.0), (0.8, 1.0, 1.2), (1.0, 0.75, 1.0), (0.8, 0.75, 2.2)],
)
def test_a_transfer_that_moved_is_counted_where_it_was_and_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
    before: float,
    after: float,
    missing_s: float,
) -> None:
    """Six seconds, a pause of fifty, and what is left: counted for four more."""
    clock = [0.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    taker = EvidenceTaker()
    taker.look([JOB])

    def count(
        tenant: int, begun_s: float, seconds: int, share: float
    ) -> None:
        for second in range(1, seconds + 1):
            sent = round(RATE_BPS / 8 * share * second)
            row = (RECEIVE_CAP, tenant, 0, RATE_BPS, 0, 0, RATE_BPS)
            counters = [(begun_s + second, sent, 0, 0)]
            taker.count(
                np.array([row], LIMITER),
                np.array(counters, COUNTERS),
            )

    count(1, 100.0, 6, before)
    taker.leave(1)
    left = round(10_000_000 - RATE_BPS / 8 * before * 6)
    elsewhere = replace(
        JOB,
        tenant=replace(TENANT, tenant_id=2),
        is_whole=False,
        resumed_s=156.0,
        left_bytes={0: left},
    )
    taker.look([elsewhere])
    count(2, 156.0, 4, after)
    # All but a half of its fifth second has come.
    bits = RATE_BPS * (4 * after + 0.5)
    evidence = taker.finish(2, arrivals={0: Arrival(bits, 160.5)})
    assert evidence is not None
    assert evidence.missing_s == pytest.approx(missing_s, abs=0.05)
    assert evidence.watched_s == 10.0
    assert evidence.is_complete
    assert taker.finish(1) is None


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("ran_s", "short_s"), [(10.2, 0.0), (9.0, 1.0), (1.5, 8.5)]
)
def test_a_job_that_its_reservation_stops_may_have_begun_too_late(
    ran_s: float, short_s: float, is_known: bool
) -> None:
    """Also one that is stopped before it is looked at for the first time."""
    taker = EvidenceTaker()
    lease = replace(JOB, kind="compute", is_paced=True)
    if is_known:
        taker.look([lease])
    evidence = taker.finish_stopped(lease, ran_s)
    assert evidence is not None
    assert evidence.short_s == pytest.approx(short_s)
    assert not evidence.cut_off
    # Its agents have not said what they lost.
    assert evidence.held_s is None
    assert not evidence.is_complete
    assert taker.ended == [evidence]


def test_of_a_job_that_is_killed_nothing_is_kept() -> None:
    taker = EvidenceTaker()
    taker.look([replace(JOB, converging=frozenset({0}))])
    assert taker.converging()
    taker.forget("job", 1)
    assert taker.converging() == frozenset()
    taker.look([JOB])
    taker.leave(1)
    taker.forget("job", None)
    assert taker._left == {}


def test_a_lease_that_was_preempted_may_have_resumed_too_late() -> None:
    taker = EvidenceTaker()
    lease = replace(JOB, kind="compute", was_paused=True)
    evidence = taker.finish_stopped(lease, 9.0, computes=True)
    assert evidence is not None
    assert evidence.cut_off
    assert evidence.short_s == pytest.approx(1.0)
    assert "cut_off" not in evidence.record()
    # Of a transfer, part of whose traffic was under way, it is not known.
    other = replace(JOB, was_paused=True)
    evidence = taker.finish_stopped(other, 9.0)
    assert evidence is not None
    assert evidence.short_s == 0.0


def test_traffic_of_a_job_that_its_reservation_stops_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence = taken(monkeypatch, (1.0, 0.9), outlasts=True)
    assert evidence.missing == pytest.approx(0.1, abs=0.01)
    assert evidence.is_complete


def test_what_moves_took_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = replace(JOB, moving_s=0.25)
    assert taken(monkeypatch, (1.0, 1.0), moved).moving_s == 0.25


def stood_s(
    monkeypatch: pytest.MonkeyPatch,
    processes: Sequence[ScriptedProcess],
    *,
    job: Followed | None = None,
    looks: int = 6,
    outage_s: float | None = None,
) -> float:
    """A switch beside a job of 80 Mbit/s, which the experiment may disturb.

    Its first part has the first server's bridge, its last one the others.
    """
    clock = [101.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    if job is None:
        fast = replace(TENANT, rate_bps=40_000_000)
        job = replace(JOB, tenant=fast)
    taker = EvidenceTaker()
    taker.start(scripted_switch(monkeypatch, processes, PLAN))
    if outage_s is not None:
        taker.disturb(1, outage_s)
    for _ in range(looks):
        taker.look([job])
        clock[0] += 0.1
        for process in processes:
            process.at_s += 0.1
    evidence = taker.finish(1)
    assert evidence is not None
    return evidence.stood_s


IDLE = (0.0, 0.0)
WORKS = (0.5, 0.0)


def test_one_switch_that_does_not_run_stands_where_jobs_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = ScriptedProcess(*IDLE)
    assert stood_s(monkeypatch, [idle]) == pytest.approx(0.5)


@pytest.mark.parametrize("still", [0, 1])
def test_a_part_that_does_not_run_stands_where_its_vms_send(
    monkeypatch: pytest.MonkeyPatch, still: int
) -> None:
    processes = [ScriptedProcess(*WORKS), ScriptedProcess(*WORKS)]
    assert stood_s(monkeypatch, processes) == 0
    processes = [ScriptedProcess(*WORKS), ScriptedProcess(*WORKS)]
    processes[still] = ScriptedProcess(*IDLE)
    assert stood_s(monkeypatch, processes) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, kind="command"),
        replace(JOB, kind="iperf3"),
        replace(JOB, is_nearly_over=True),
        replace(JOB, began_s=200.0),
        replace(JOB, is_reserved=False),
    ],
    ids=["pauses", "connects", "nearly over", "not begun", "behind"],
)
def test_a_switch_without_steady_traffic_may_have_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, job: Followed
) -> None:
    idle = ScriptedProcess(*IDLE)
    assert stood_s(monkeypatch, [idle], job=job) == 0
    stopped = ScriptedProcess(*IDLE, "T")
    found_s = stood_s(monkeypatch, [stopped], job=job)
    assert found_s == pytest.approx(0.5)


@pytest.mark.parametrize("kind", ["one VM", "compute"])
def test_a_job_that_sends_nothing_is_held_up_by_no_switch(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    stopped = ScriptedProcess(*IDLE, "T")
    job = replace(JOB, kind=kind)
    assert stood_s(monkeypatch, [stopped], job=job) == 0


@pytest.mark.parametrize("outage_s", [0.0, 6.0, inf])
def test_a_switch_has_nothing_to_do_while_the_experiment_stops_its_job(
    monkeypatch: pytest.MonkeyPatch, outage_s: float
) -> None:
    """A failure, a pause, another rate: TCP waits for a timer of its own."""
    idle = ScriptedProcess(*IDLE)
    assert stood_s(monkeypatch, [idle], outage_s=outage_s) == 0
    # A stopped switch stands still all the same.
    stopped = ScriptedProcess(*IDLE, "T")
    found_s = stood_s(monkeypatch, [stopped], outage_s=outage_s)
    assert found_s == pytest.approx(0.5)


def test_a_switch_that_stays_still_after_a_disturbance_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = round(10 * SETTLES_S) + 11
    idle = ScriptedProcess(*IDLE)
    found_s = stood_s(monkeypatch, [idle], looks=looks, outage_s=0.0)
    assert found_s == pytest.approx(1.0, abs=0.11)


@pytest.mark.parametrize(
    ("states", "stood_s"), [("SSTTTTSS", 0.0), ("SSSSTTTT", 0.4)]
)
def test_an_agent_that_waits_for_a_program_counts_at_its_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    states: str,
    stood_s: float,
) -> None:
    """The program runs on while its agent is stopped."""
    clock = [101.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    agent = ScriptedProcess(*IDLE)
    monkeypatch.setattr(
        job_evidence, "Progress", lambda pid: Progress(pid, agent.read)
    )
    job = replace(JOB, kind="command", groups=(tmp_path,), pids=(7,))
    taker = EvidenceTaker()
    for state in states:
        agent.state = state
        taker.look([job])
        clock[0] += 0.1
    evidence = taker.finish(1)
    assert evidence is not None
    assert evidence.stood_s == pytest.approx(stood_s)


def ended(
    monkeypatch: pytest.MonkeyPatch,
    job: Followed = JOB,
    *,
    drops: int = 0,
    resent: int | None = None,
    late_s: Sequence[float] = (),
) -> JobEvidence:
    clock = [job.began_s - 1.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    taker = EvidenceTaker()
    taker.woke(9.0)
    clock[0] = job.began_s + 1.0
    taker.look([job])
    taker.drop(1, drops)
    taker.drop(2, 100)
    for late in late_s:
        taker.woke(late)
    evidence = taker.finish(1, resent=resent)
    assert evidence is not None
    return evidence


def test_what_drops_cost_is_what_was_sent_again_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packet_s = 8 * largest_packet_bytes(TENANT) / RATE_BPS
    found = ended(monkeypatch, drops=5)
    assert found.drops == 5
    assert found.resent_s == pytest.approx(5 * packet_s)
    # TCP sent less again, which a VM's own cap may have dropped as well.
    segment_s = 8 * 1514 / RATE_BPS
    found = ended(monkeypatch, drops=5, resent=3)
    assert found.resent_s == pytest.approx(3 * segment_s)
    assert ended(monkeypatch, drops=0, resent=900).resent_s == 0


def test_a_job_has_the_late_wake_ups_of_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late_s = [0.001] * 198 + [0.2, 0.3]
    found = ended(monkeypatch, replace(JOB, band=0.1), late_s=late_s)
    assert found.late_wake_s == 0.001
    assert found.band == 0.1
    found = ended(monkeypatch, late_s=[0.001, 0.3])
    assert found.late_wake_s == 0.3
    assert ended(monkeypatch).late_wake_s == 0


@pytest.mark.parametrize(
    ("shares", "held_s"), [((1.0, 1.0), 0.0), ((1.0, 0.5), 5.0)]
)
def test_traffic_without_a_reservation_is_held_against_its_caps(
    monkeypatch: pytest.MonkeyPatch,
    shares: tuple[float, float],
    held_s: float,
) -> None:
    job = replace(
        JOB,
        kind="best effort",
        is_continuous=True,
        crowded={0: frozenset(), 1: frozenset()},
    )
    found = taken(monkeypatch, shares, job)
    assert found.held_s == pytest.approx(held_s, abs=0.1)
    assert found.missing_s == 0
    assert found.is_complete == (held_s == 0)
    pauses = replace(job, is_continuous=False)
    assert taken(monkeypatch, shares, pauses).held_s is None
    # On links that nobody fills it lacks what it did not get.
    alone = taken(monkeypatch, shares, replace(job, crowded={}))
    assert alone.missing_s == pytest.approx(held_s, abs=0.1)
    assert alone.is_complete


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
        for left in ({"is_whole": False}, {"was_paused": True}):
            moved = replace(JOB, kind=kind, **left)
            assert finished(moved).lost_s is None
    # Computing VMs share their node by design.
    paced = finished(replace(JOB, kind="compute", is_paced=True))
    assert (paced.lost_s, paced.held_s) == (None, 0.5)
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
    # The group is gone.
    (group / "cpu.pressure").unlink()
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


@pytest.mark.parametrize(("sent", "held_s"), [(1.0, 0.0), (0.9, 1.0)])
def test_behind_a_full_link_nothing_lacks(
    monkeypatch: pytest.MonkeyPatch, sent: float, held_s: float
) -> None:
    """Half of what the VMs' caps let through, on a link of that rate."""
    clock = [100.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    link = 5
    crowded = dict.fromkeys((0, 1), frozenset({link}))
    job = replace(
        JOB, kind="best effort", is_continuous=True, crowded=crowded
    )
    taker = EvidenceTaker()
    taker.start(None)
    taker.look([job])
    rates = [(RECEIVE_CAP, 1, vm) for vm in (0, 1)]
    limiters = [(*key, RATE_BPS, 0, 0, RATE_BPS) for key in rates]
    limiters.append((WHOLE_LINK, 0, link, RATE_BPS, 0, 0, RATE_BPS))
    rows = np.array(limiters, LIMITER)
    for second in range(1, 10):
        at_s = 100.0 + second
        of_vms = round(RATE_BPS / 8 * 0.5 * second)
        of_link = round(RATE_BPS / 8 * sent * second)
        counters = [
            (at_s, size, 0, 0) for size in (of_vms, of_vms, of_link)
        ]
        taker.count(rows, np.array(counters, COUNTERS))
    evidence = taker.finish(1)
    assert evidence is not None
    # The link's first count has no time.
    assert evidence.watched_s == 8.0
    assert evidence.held_s == pytest.approx(held_s, abs=1e-6)
    assert evidence.is_complete == (held_s == 0.0)


def test_a_short_job_is_counted_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [101.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    short = replace(JOB, length_s=1.4)
    taker = EvidenceTaker()
    rows = np.array(
        [(RECEIVE_CAP, 1, 0, RATE_BPS, 0, 0, RATE_BPS)], LIMITER
    )

    def wants_count(at_s: float, job: Followed = short) -> bool:
        clock[0] = at_s
        taker.look([job])
        return taker.wants_count

    assert not wants_count(100.8)
    assert wants_count(100.9)
    assert not wants_count(100.9, replace(short, is_nearly_over=True))
    assert not wants_count(109.0, JOB)
    assert not wants_count(100.9, replace(short, kind="command"))
    taker.count(rows, np.array([(100.9, 1000, 0, 0)], COUNTERS))
    assert not wants_count(101.0)


@pytest.mark.parametrize(
    ("got", "held_s"), [(1.0, 0.0), (0.95, 0.45), (0.5, 0.9)]
)
def test_a_program_waits_for_its_node_s_other_vm_by_design(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    got: float,
    held_s: float,
) -> None:
    """It waited a tenth of nine seconds; its node got a share of a processor."""
    clock = [0.0]
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: clock[0])
    waited = {8: 0.0}
    monkeypatch.setattr(
        job_evidence, "spent", lambda pid: Spent(0.0, waited[pid], "R")
    )
    group = group_with(tmp_path, cgroup_procs="8\n")
    job = replace(
        JOB,
        kind="compute",
        groups=(group,),
        nodes=(Claim(tmp_path, 1.0),),
    )
    taker = EvidenceTaker()
    for second in range(10):
        clock[0] = float(second)
        waited[8] = 0.1 * second
        used_ns = round(1e9 * got * second)
        (tmp_path / "cpuacct.usage").write_text(str(used_ns))
        taker.look([job])
    # Alone on its node it waits for the machine.
    clock[0] = 10.0
    waited[8] += 0.05
    taker.look([replace(job, nodes=())])
    evidence = taker.finish(1)
    assert evidence is not None
    assert evidence.held_s == pytest.approx(held_s + 0.05)


@pytest.mark.parametrize(
    "line", ["throttled_time {}00000000", "throttled_usec {}00000"]
)
def test_time_without_a_quota_is_no_wait_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A tenth of the quota's time was before; later its node holds it up."""
    waited = {8: 0.75}
    monkeypatch.setattr(
        job_evidence, "spent", lambda pid: Spent(0.0, waited[pid], "R")
    )
    (tmp_path / "vm0").mkdir()
    group = group_with(tmp_path / "vm0", cgroup_procs="8\n")
    group_with(group, cpu_stat=f"nr_throttled 1\n{line.format(1)}\n")
    waits = Waits(group)
    assert waits.look([]) == 0.75
    group_with(group, cpu_stat=f"nr_throttled 9\n{line.format(6)}\n")
    assert waits.look([]) == pytest.approx(0.25)
    group_with(tmp_path, cpu_stat=f"nr_throttled 9\n{line.format(8)}\n")
    assert waits.look([]) == pytest.approx(0.05)


def test_a_disturbance_lasts_until_traffic_may_be_at_its_rate_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_evidence.time, "monotonic", lambda: 100.0)
    taker = EvidenceTaker()
    taker.disturb(1, outage_s=2.0)
    settled_s = 102.0 + SETTLES_S
    assert taker.is_disturbed(1, settled_s - 0.1)
    assert not taker.is_disturbed(1, settled_s)
    assert not taker.is_disturbed(2, 100.0)


PROGRAM = replace(JOB, kind="command")


@pytest.mark.parametrize(
    ("job", "demand", "enforcement", "may"),
    [
        (PROGRAM, Command(words=("x",)), "strict", True),
        (PROGRAM, Command(words=("x",)), "work-conserving", False),
        (PROGRAM, Command(words=("x",)), "none", False),
        (PROGRAM, Iperf3(pattern="all-to-all"), "strict", False),
        (JOB, Command(words=("x",)), "strict", False),
        (
            replace(PROGRAM, was_paused=True),
            Command(words=("x",)),
            "strict",
            False,
        ),
        (
            replace(PROGRAM, is_whole=False),
            Command(words=("x",)),
            "strict",
            False,
        ),
    ],
)
def test_only_a_program_held_to_its_reservation_fills_it_by_design(
    job: Followed, demand: Demand, enforcement: Enforcement, *, may: bool
) -> None:
    assert may_converge(job, demand, enforcement) == may
