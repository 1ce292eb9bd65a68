"""Parts of the switch that stand still while traffic waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from testbed.backends.emu.limiter_counters import LINK, SEND_CAP
from testbed.embedding.placement import Placement
from testbed.plan.limits import largest_packet_bytes
from testbed.plan.network_plan import (
    TenantPlan,
    network_plan,
    tenant_plan,
)
from tests.support.scripted_process import ScriptedProcess, scripted_switch
from topologies.tree import tree

# Two racks of two servers below a core; parts: a server's bridge each, the
# switches above in the last one.
CENTRE = tree([2, 2], [100_000_000, 100_000_000], 1)
PLAN = network_plan(CENTRE, "hn", 1.0)
UPPER = 4


def tenant_on(
    servers: Sequence[int], tenant_id: int = 1, rate_bps: int = 40_000_000
) -> TenantPlan:
    vms_on = tuple((server, 1) for server in servers)
    slots = [slot for slot in PLAN.slots if slot.server in servers]
    root = CENTRE.trees[0].root
    return tenant_plan(
        CENTRE,
        PLAN,
        Placement(root, vms_on),
        tuple(slots),
        tenant_id,
        "job",
        rate_bps,
    )


def parts(still: int | None = None) -> list[ScriptedProcess]:
    """Five; all work but one."""
    processes = [ScriptedProcess(0.5, 0.0) for _ in range(5)]
    if still is not None:
        processes[still] = ScriptedProcess(0.0, 0.0)
    return processes


def stood_s(
    monkeypatch: pytest.MonkeyPatch,
    processes: Sequence[ScriptedProcess],
    at_rate: Sequence[TenantPlan],
    tenant: TenantPlan | None = None,
    *,
    on_links: int = 0,
    looks: int = 10,
) -> float:
    """Seconds for which traffic of a tenant, the first, was held up.

    ``on_links``: bytes that its classes on links send in half a second.
    """
    tenant = tenant or at_rate[0]
    switch = scripted_switch(monkeypatch, processes, PLAN)
    found_s = 0.0
    for number in range(looks + 1):
        for process in processes:
            process.at_s = 0.1 * number
        switch.look(0.1 * number, at_rate)
        found_s += switch.stood_s(tenant)
        if number % 5 == 0:
            for link, _ in tenant.link_bps:
                sent = on_links * number // 5
                switch.count(tenant, (LINK, link), 0.1 * number, sent)
    return found_s


def test_a_part_that_its_vms_send_to_stands_without_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = tenant_on([0, 1])
    found_s = stood_s(monkeypatch, parts(still=0), [job])
    assert found_s == pytest.approx(1.0)
    assert stood_s(monkeypatch, parts(), [job]) == 0


def test_a_part_without_traffic_is_no_standing_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = tenant_on([0, 1])
    for idle in (2, 3, UPPER):
        assert stood_s(monkeypatch, parts(still=idle), [job]) == 0


def test_a_part_above_the_servers_has_work_once_it_was_seen_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ring or a permutation need not use all that its hose reserves."""
    job = tenant_on([0, 2])
    still = parts(still=UPPER)
    assert stood_s(monkeypatch, still, [job]) == 0
    still = parts(still=UPPER)
    found_s = stood_s(monkeypatch, still, [job], on_links=2_500_000)
    assert found_s > 0.3


def test_only_jobs_whose_traffic_passes_a_part_are_held_up_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = tenant_on([0, 1])
    other = tenant_on([2, 3], tenant_id=2)
    jobs = [job, other]
    found_s = stood_s(monkeypatch, parts(still=0), jobs, other)
    assert found_s == 0
    # One that pauses is held up by what is known of another.
    pauses = tenant_on([0, 3], tenant_id=3)
    found_s = stood_s(monkeypatch, parts(still=0), [job], pauses)
    assert found_s == pytest.approx(1.0)


def test_slow_traffic_gives_a_part_time_between_two_packets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = tenant_on([0, 1], rate_bps=500_000)
    packets_s = 12 * 8 * largest_packet_bytes(slow) / 500_000
    looks = int(10 * packets_s) - 1
    still = parts(still=0)
    assert stood_s(monkeypatch, still, [slow], looks=looks) == 0
    still = parts(still=0)
    found_s = stood_s(monkeypatch, still, [slow], looks=looks + 4)
    assert found_s > packets_s


def waited_s(
    monkeypatch: pytest.MonkeyPatch,
    process: ScriptedProcess,
    sent: Sequence[int],
    *,
    passes_after_s: float | None = None,
) -> float:
    """A VM's send cap is counted once a second, its part ten times.

    ``passes_after_s``: from then on the part works.
    """
    tenant = tenant_on([0, 1])
    switch = scripted_switch(monkeypatch, [process], PLAN)
    looks = 10 * len(sent)
    for number in range(looks + 3):
        process.at_s = 0.1 * number
        if passes_after_s is not None and process.at_s > passes_after_s:
            process.ran = 0.5
        switch.look(0.1 * number, [])
        if number % 10 == 0 and number < looks:
            count = sent[number // 10]
            switch.count(tenant, (SEND_CAP, 0), 0.1 * number, count)
    return switch.waited_s(tenant.tenant_id)


def test_what_was_sent_to_a_part_that_did_not_run_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of whatever job: its own limiter says that something came."""
    still = ScriptedProcess(0.0, 0.0)
    sent = [0, 1000, 2000, 2000, 3000]
    assert waited_s(monkeypatch, still, sent) == pytest.approx(3.0)


def test_a_part_that_nothing_came_to_did_not_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = ScriptedProcess(0.0, 0.0)
    assert waited_s(monkeypatch, idle, [0, 0, 0, 0]) == 0
    assert waited_s(monkeypatch, ScriptedProcess(0.5, 0.0), [0, 9, 19]) == 0


def test_what_came_just_before_a_count_did_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The part has nothing to do until then, and passes it on after."""
    idle = ScriptedProcess(0.0, 0.0)
    found_s = waited_s(monkeypatch, idle, [0, 0, 1000], passes_after_s=2.01)
    assert found_s == 0


def test_a_tenant_on_other_paths_is_looked_at_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = tenant_on([0, 1])
    processes = parts(still=0)
    switch = scripted_switch(monkeypatch, processes, PLAN)
    switch.look(0.0, [job])
    slower = replace(job, rate_bps=1)
    for number in range(1, 5):
        switch.look(0.1 * number, [slower])
    assert switch.stood_s(slower) == 0
    switch.forget(1)
    assert switch.waited_s(1) == 0
