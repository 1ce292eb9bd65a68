"""Delay and loss of a tenant's paths, and what a transfer takes with them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.wire import SEGMENT_BYTES
from testbed.embedding.placement import Placement
from testbed.plan.installation import (
    first_window,
    tenant_sysctls,
    tenant_text,
    transfer_added_s,
)
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    network_plan,
    tenant_plan,
)
from testbed.plan.path_delay import PathDelay, path_delay, slow_start_s
from tests.support.examples import examples
from topologies.datacentre import LinkQuality, Tree
from topologies.tree import tree

MBIT = 1_000_000
DELAYS = st.floats(0, 0.1)
QUALITIES = st.builds(LinkQuality, DELAYS, DELAYS, st.floats(0, 0.3))


def placed(
    qualities: list[LinkQuality],
    rate_bps: int = 10 * MBIT,
    servers: tuple[int, ...] = (0, 1, 3),
) -> tuple[NetworkPlan, TenantPlan, Tree]:
    """VMs on servers of four, below two racks; a quality per directed link."""
    centre = tree([2, 2], 100 * MBIT, 1)
    centre = replace(centre, qualities=tuple(qualities))
    network = network_plan(centre)
    placement = Placement(
        centre.trees[0].root, tuple((server, 1) for server in servers)
    )
    slots = tuple(network.slots_of_server[s][0] for s in servers)
    tenant = tenant_plan(
        centre, network, placement, slots, 5, "j", rate_bps
    )
    return network, tenant, centre.trees[0]


def uniform(quality: LinkQuality) -> list[LinkQuality]:
    return [quality] * 12


def directed_path(whole: Tree, sender: int, receiver: int) -> list[int]:
    """Directed links from a server to another, by their ways to the root."""
    upward = whole.path_to_root(sender)
    downward = whole.path_to_root(receiver)
    top = next(node for node in upward if node in downward)
    path = [2 * int(whole.uplink[n]) for n in upward[: upward.index(top)]]
    below = downward[: downward.index(top)]
    return path + [2 * int(whole.uplink[n]) + 1 for n in reversed(below)]


@examples(40)
@given(
    st.lists(QUALITIES, min_size=12, max_size=12),
    st.lists(st.integers(0, 3), min_size=2, max_size=4, unique=True),
)
def test_the_longest_paths_are_those_of_all_pairs(
    qualities: list[LinkQuality], servers: list[int]
) -> None:
    _, tenant, whole = placed(qualities, servers=tuple(sorted(servers)))
    found = path_delay(tenant)
    one_way, latest, round_trip, loss = [], [], [], []
    for sender, receiver in permutations(servers, 2):
        there = [
            qualities[k] for k in directed_path(whole, sender, receiver)
        ]
        back = [
            qualities[k] for k in directed_path(whole, receiver, sender)
        ]
        one_way.append(sum(q.delay_s for q in there))
        latest.append(sum(q.delay_s + q.jitter_s for q in there))
        round_trip.append(sum(q.delay_s + q.jitter_s for q in there + back))
        loss.append(1 - math.prod(1 - q.loss_share for q in there))
    assert found.one_way_s == pytest.approx(max(one_way))
    assert found.latest_s == pytest.approx(max(latest))
    assert found.round_trip_s == pytest.approx(max(round_trip))
    assert found.loss_share == pytest.approx(max(loss))


@given(st.floats(1e5, 1e10), st.floats(0.0001, 1), st.floats(1e3, 1e8))
def test_slow_start_waits_less_for_a_larger_window(
    rate_bps: float, round_trip_s: float, window_bytes: float
) -> None:
    idle_s = slow_start_s(rate_bps, round_trip_s, window_bytes)
    assert idle_s >= 0
    assert slow_start_s(rate_bps, round_trip_s, 2 * window_bytes) <= idle_s
    # A round trip's worth of the rate is never waited for.
    enough = rate_bps * round_trip_s / 8
    assert slow_start_s(rate_bps, round_trip_s, enough) == 0
    # Each doubling waits for a part of one round trip.
    doublings = max(0, math.ceil(math.log2(max(1, enough / window_bytes))))
    assert idle_s <= doublings * round_trip_s * (1 + 1e-9)


def test_slow_start_by_hand() -> None:
    # 8 Mbit/s for 100 ms are 100 kB: 30, 60, then 120 kB.
    expected_s = (0.1 - 0.03) + (0.1 - 0.06)
    assert slow_start_s(8e6, 0.1, 30_000) == pytest.approx(expected_s)


@examples(30)
@given(st.integers(1, 400), st.floats(0, 1))
def test_a_reserved_tenants_windows_hold_a_round_trip(
    mbit: int, delay_s: float
) -> None:
    quality = LinkQuality(delay_s=delay_s)
    _, tenant, _ = placed(uniform(quality), mbit * MBIT)
    round_trip_s = path_delay(tenant).round_trip_s
    on_the_way = tenant.rate_bps * round_trip_s / 8
    assert (
        first_window(tenant) * SEGMENT_BYTES >= on_the_way - SEGMENT_BYTES
    )
    receive_bytes = 1 << 20
    for key, value in tenant_sysctls(tenant):
        sizes = list(map(int, value.split()))
        assert sizes == sorted(sizes)
        if key == "net.ipv4.tcp_rmem":
            receive_bytes = sizes[1]
    # Half of a receive buffer is the window.
    assert receive_bytes / 2 >= on_the_way
    least_s, most_s = transfer_added_s(tenant)
    assert least_s == pytest.approx(4 * delay_s)
    # Until data come a receiver's window is 64 kB, whatever the sender's is.
    first_trip_s = round_trip_s if on_the_way > 65_535 else 0.0
    assert most_s == pytest.approx(4 * delay_s + first_trip_s, abs=0.001)


def test_buffers_are_no_larger_than_the_kernel_counts() -> None:
    quality = LinkQuality(delay_s=0.1)
    _, tenant, _ = placed(uniform(quality), 10_000 * MBIT)
    sizes = [
        list(map(int, value.split())) for _, value in tenant_sysctls(tenant)
    ]
    largest = 2**31 - 1
    assert sizes == [[4096, largest, largest], [4096, 16384, largest]]


def test_without_delay_nothing_changes() -> None:
    _, plain, _ = placed([], 10 * MBIT)
    _, queued, _ = placed(uniform(LinkQuality(queue_packets=10)), 10 * MBIT)
    for tenant in (plain, queued):
        assert path_delay(tenant) == PathDelay()
        assert transfer_added_s(tenant) == (0.0, 0.0)
        assert tenant_sysctls(tenant) == ()
    assert first_window(queued) == first_window(plain)


def test_a_plan_says_what_is_known() -> None:
    network, tenant, _ = placed(uniform(LinkQuality(0.01, 0.001, 0.01)))
    lines = tenant_text(network, tenant).splitlines()
    assert lines[0].startswith(
        "# delay: round trips of up to 88 ms; a transfer ends 40 ms to 132 ms"
        " after its estimate (first window "
    )
    # 1 - 0.99^4 of packets; sqrt(1.5 / p) segments of 1,448 bytes in 88 ms.
    most = 8 * SEGMENT_BYTES * math.sqrt(1.5 / (1 - 0.99**4)) / 0.088
    assert lines[1] == (
        "# loss: up to 3.9 % of packets between two VMs; no reservation can be"
        f" kept to; a TCP connection gets about {most / 1e6:.3g} Mbit/s at most"
    )
    assert PathDelay(loss_share=0.1).lossy_bps() == math.inf
