"""A live job's time on nodes: what counts, and what counts once."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from jobs.demand import (
    Command,
    Compute,
    Demand,
    DemandCurve,
    Iperf3,
    Transfer,
)
from jobs.live.agent_protocol import AgentExited
from jobs.live.transfer_plan import Outgoing, TransferPlan
from jobs.request import JobRequest
from testbed.backends.emu.job_evidence import Followed
from testbed.backends.emu.live_job import LiveJob
from testbed.embedding.placement import Placement
from testbed.plan.direct_evidence import Kind
from testbed.plan.network_plan import TenantPlan, network_plan, tenant_plan
from testbed.spec.experiment import Scale
from topologies.datacentre import PLAIN, LinkQuality
from topologies.tree import tree

MS = 1_000_000
RATE_BPS = 8_000_000  # a byte takes a microsecond


def pair(quality: LinkQuality) -> TenantPlan:
    """Two VMs at 10 Mbit/s on two servers, whose links have a quality."""
    centre = tree([2], 10**8, 1).with_level_qualities([quality])
    network = network_plan(centre, scale_time=2.0)
    root = centre.trees[0].root
    return tenant_plan(
        centre,
        network,
        Placement(root, ((0, 1), (1, 1))),
        network.slots,
        1,
        "j",
        10_000_000,
    )


TENANT = pair(PLAIN)


def a_job() -> LiveJob:
    request = JobRequest("job", 0.0, 2, RATE_BPS, 1.0)
    return LiveJob(
        request,
        Placement(2, ((0, 1), (1, 1))),
        RATE_BPS,
        "foreground",
        best_effort=False,
        limit_s=None,
    )


def test_an_agent_that_a_real_time_signal_ends_fails_its_job_alone() -> (
    None
):
    """Most of these signals have no name; a job's program may send them."""
    job = a_job()
    number = signal.SIGRTMIN + 1
    job.receive("vm0", AgentExited(code=None, signum=number))
    assert (
        job.trouble == f"agent vm0 ended with signal {number} and no report"
    )
    assert job.exits == {"vm0": 128 + number}


def test_time_off_nodes_does_not_count() -> None:
    job = a_job()
    job.begin(1000 * MS, 1000 * MS)
    job.pause(1400 * MS)
    job.pause(1900 * MS)
    assert job.ran_until_ns(2000 * MS) == 400 * MS
    job.begin(3000 * MS, 3500 * MS)
    assert job.ran_until_ns(3600 * MS) == 1000 * MS


def sending(*volumes_bytes: int) -> tuple[TransferPlan, ...]:
    """Plans of VMs that send so many payload bytes each."""
    plans = []
    for vm, size_bytes in enumerate(volumes_bytes):
        peer = (vm + 1) % len(volumes_bytes)
        to = Outgoing(peer, ip="10.0.0.1", port=1, size_bytes=size_bytes)
        plan = TransferPlan(
            vm, ip="10.0.0.1", port=1, sends=(to,), receives=()
        )
        plans.append(plan)
    return tuple(plans)


def test_what_leaves_frozen_vms_counts_once_by_the_one_furthest_behind() -> (
    None
):
    job = a_job()
    job.plans = sending(3_000_000, 3_000_000)
    job.begin(0, 0)
    job.pause(100 * MS)
    job.sent_when_frozen = [1_000_000, 1_020_000]
    # The first VM, which has most left, sends 10 ms' worth, the other one 30.
    job.drained([1_010_000, 1_050_000], RATE_BPS, 200 * MS)
    assert job.ran_until_ns(500 * MS) == 110 * MS
    job.drained([1_010_000, 1_050_000], RATE_BPS, 250 * MS)
    assert job.ran_until_ns(500 * MS) == 110 * MS
    # The first one overtakes the other. At twice the rate from here on, as
    # much more takes half the time.
    job.drained([1_060_000, 1_050_000], 2 * RATE_BPS, 300 * MS)
    assert job.ran_until_ns(500 * MS) == 130 * MS
    # A full bucket has sent this within 5 ms.
    job.drained([1_100_000, 1_090_000], RATE_BPS, 305 * MS)
    assert job.ran_until_ns(500 * MS) == 135 * MS


def test_a_vm_that_has_little_left_to_send_decides_nothing() -> None:
    job = a_job()
    job.plans = sending(3_000_000, 1_000_000)
    job.begin(0, 0)
    job.pause(100 * MS)
    job.sent_when_frozen = [1_000_000, 1_000_000]
    job.drained([1_040_000, 1_000_000], RATE_BPS, 200 * MS)
    assert job.ran_until_ns(500 * MS) == 140 * MS


def test_of_a_program_the_vm_that_sends_longest_counts() -> None:
    job = a_job()
    job.request = replace(job.request, demand=Command(words=("true",)))
    job.begin(0, 0)
    job.pause(100 * MS)
    job.sent_when_frozen = [1_000_000, 0]
    job.drained([1_030_000, 0], RATE_BPS, 200 * MS)
    assert job.ran_until_ns(500 * MS) == 130 * MS


def test_a_vm_that_is_gone_has_sent_nothing_since() -> None:
    job = a_job()
    job.plans = sending(3_000_000, 3_000_000)
    job.sent_when_frozen = [1_000_000, 2_000_000]
    job.drained([0, 0], RATE_BPS, 500 * MS)
    assert job.ran_ns == 0


def test_the_duration_of_a_start_is_not_reported_for_a_later_one() -> None:
    job = a_job()
    job.decided_ns = 10 * MS
    job.begin(40 * MS, 43 * MS)
    job.pause(100 * MS)
    job.begin(500 * MS, 900 * MS)
    assert job.detail()["start_s_raw"] == 0.033


def test_whose_caps_are_what_holds_it() -> None:
    assert a_job().is_cap_limited
    curve = DemandCurve(((0.5, 1000), (1.0, 10)))
    for other in (
        Transfer("all-to-all"),
        Command(words=("true",)),
        curve,
        Compute(),
    ):
        job = a_job()
        job.request = replace(job.request, demand=other)
        assert not job.is_cap_limited
    job = a_job()
    job.best_effort = True
    assert not job.is_cap_limited


CURVE = DemandCurve(((0.5, 1000), (1.0, 10)))


@pytest.mark.parametrize(
    ("demand", "n_vms", "kind"),
    [
        (Transfer(), 2, "ring"),
        (Transfer("all-to-all"), 2, "shuffle"),
        (Transfer(), 1, "one VM"),
        (CURVE, 2, "demand curve"),
        (Command(words=("true",)), 2, "command"),
        (Command(words=("true",), network=False), 2, "compute"),
        (Iperf3(), 2, "iperf3"),
        (Iperf3("all-to-all"), 2, "command"),
        (Compute(), 1, "compute"),
    ],
)
def test_the_kind_of_its_evidence(
    demand: Demand, n_vms: int, kind: Kind
) -> None:
    job = a_job()
    job.request = replace(job.request, demand=demand, n_vms=n_vms)
    followed = job.followed(TENANT, Scale(time=2.0), enforced=True)
    assert followed.kind == kind
    assert followed.length_s == 0.5
    assert followed.is_whole
    job.best_effort = True
    followed = job.followed(TENANT, Scale(time=2.0), enforced=True)
    lone = n_vms == 1 and demand.network
    # A VM alone sends nothing, whatever is reserved.
    assert followed.kind == ("one VM" if lone else "best effort")


def test_segments_that_arrive_one_by_one_are_acknowledged_in_pairs() -> (
    None
):
    job = a_job()
    assert job.followed(TENANT, Scale(), enforced=True).arriving == 1
    alone = job.followed(TENANT, Scale(), enforced=True, offloads=False)
    assert alone.arriving == 1 + 66 / (2 * 1514)


def test_traffic_is_counted_where_a_job_began_and_is_reserved() -> None:
    def followed(job: LiveJob) -> Followed:
        return job.followed(TENANT, Scale(), enforced=True)

    moved = a_job()
    moved.generation = 1
    background = a_job()
    background.tier = "background"
    for job in (moved, background):
        assert not followed(job).is_whole
    assert followed(a_job()).is_whole
    paused = a_job()
    paused.begin(0, 0)
    assert not followed(paused).was_paused
    paused.pause(10 * MS)
    paused.begin(500 * MS, 500 * MS)
    assert followed(paused).was_paused
    assert followed(paused).began_s == 0


def test_a_demand_curve_at_its_rate_on_the_wire() -> None:
    """Half at 4, a pause, the rest at 16 Mbit/s, which 8 Mbit/s halve."""
    steps = ((0.25, 4_000_000), (0.5, 0), (1.0, 16_000_000))
    job = a_job()
    job.request = replace(
        job.request, duration_s=6.0, demand=DemandCurve(steps)
    )
    scale = Scale(rate=0.5, time=2.0)
    phases = job.followed(TENANT, scale, enforced=True).phases
    # Unhindered it takes 4 s, its last half twice as long at its rate.
    assert [phase.length_s for phase in phases] == [0.5, 0.5, 2.0]
    assert [phase.wire_bits for phase in phases] == [1e6, 0.0, 8e6]
    job.best_effort = True
    job.rate_bps = 0
    assert not job.followed(TENANT, scale, enforced=True).phases


def test_the_delay_of_its_links_is_known() -> None:
    job = a_job()
    job.begin(0, 0)
    assert job.delays(2.0) == {}
    job.tenant = TENANT
    assert job.delays(2.0) == {}
    job.tenant = pair(
        LinkQuality(delay_s=0.1, jitter_s=0.02, loss_share=0.1)
    )
    # In the experiment's time, which is twice that of the wire; at most, with a
    # round trip in which the receiver's first window is used up.
    delays = job.delays(2.0)
    assert delays["delay_s"] == pytest.approx([0.2, 0.72])
    assert delays["loss_share"] == pytest.approx(0.19)
    followed = job.followed(job.tenant, Scale(time=2.0), enforced=True)
    assert followed.began_s == pytest.approx(0.36)
