"""Rates of links and tenants, from two samples of counters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.backends.emu.limiter_counters import COUNTERS, Limiter
from testbed.plan.network_plan import enforced
from testbed.standing import traffic_rates
from testbed.standing.network_layout import NetworkLayout, TenantPlans
from testbed.standing.traffic_rates import TrafficCounters
from tests.unit.plan.test_lost_links import TREE, placed

NETWORK, TENANT, NAMES = placed(TREE, ((0, 2), (2, 1)))
LAYOUT = NetworkLayout(
    NETWORK, {b.name: ("/run/x", None) for b in NETWORK.bridges}, 6653, 1
)
RATE = 0.5


class Counted:
    """Counters by limiter, in place of the kernel's; the clock is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: dict[Limiter, tuple[int, int, int]] = {}
        self.limiters: list[Limiter] = []
        self.now_s = 100.0
        self.open: set[str | None] = set()
        monkeypatch.setattr(traffic_rates, "CounterReader", self._reader)
        monkeypatch.setattr(traffic_rates, "_side", self._side)
        monkeypatch.setattr(
            traffic_rates.time, "monotonic", lambda: self.now_s
        )

    def _reader(self, sides: Any, vms: Any, limiters: list[Limiter]) -> Any:
        self.limiters = limiters
        return SimpleNamespace(read=self._read)

    def _side(self, netns: str | None) -> Any:
        self.open.add(netns)
        return SimpleNamespace(
            route=SimpleNamespace(close=lambda: self.open.discard(netns))
        )

    def _read(self) -> Any:
        rows = [
            (0.0, *self.now.get(each, (-1, 0, 0))) for each in self.limiters
        ]
        return np.array(rows, COUNTERS)


def test_links_and_tenants_have_their_rates_queues_and_drops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    plans = TenantPlans((TENANT,), NAMES, borrowing=False)
    counters = TrafficCounters(LAYOUT, plans, RATE)
    assert counted.open == {None, "hn-s0v0", "hn-s0v1", "hn-s2v0"}
    uplink, share = Limiter(None, "hn-r0-u0"), Limiter(None, "hn-r0-u0", 1)
    first, second = Limiter("hn-s0v0", "eth0"), Limiter("hn-s0v1", "eth0")
    counted.now = {
        uplink: (1000, 1, 0),
        share: (900, 0, 0),
        first: (0, 0, 0),
    }
    counted.now_s += 1.0
    counters.sample()
    counted.now_s += 2.0
    counted.now = {
        uplink: (251_000, 4, 3000),
        share: (250_900, 3, 3000),
        first: (500_000, 5, 700),
        second: (
            10**9,
            10**6,
            0,
        ),  # there for the first time: its rate is not known
    }
    sample = counters.sample()
    assert sample.interval_s == 2.0
    links = {link.name: link for link in sample.links}
    assert len(links) == 2 * len(NETWORK.links)
    core = links["rack 0 -> core 0"]
    assert core.capacity_bps == 1000e6 / RATE
    assert core.reserved_bps == TENANT.rate_bps / RATE
    assert (core.sent_bps, core.queued_bytes, core.dropped) == (
        1e6 / RATE,
        3000,
        3,
    )
    idle = links["core 0 -> rack 0"]
    assert (idle.sent_bps, idle.queued_bytes, idle.dropped) == (0, 0, 0)
    (tenant,) = sample.tenants
    assert tenant.reserved_bps == 3 * TENANT.rate_bps / RATE
    assert tenant.sent_bps == 2e6 / RATE
    assert (tenant.queued_bytes, tenant.dropped) == (3700, 8)
    counters.close()
    assert counted.open == set()


def test_a_network_without_tenants_has_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    counters = TrafficCounters(
        LAYOUT, TenantPlans((), NAMES, borrowing=False), RATE
    )
    counted.now_s += 1.0
    sample = counters.sample()
    assert sample.tenants == ()
    assert {link.sent_bps for link in sample.links} == {0}


def test_who_is_not_enforced_reserves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    _, inside, _ = placed(TREE, ((0, 2),))
    tenants = [
        enforced(NETWORK, TENANT, "none"),
        enforced(NETWORK, TENANT, "work-conserving"),
    ]
    tenants += [inside, enforced(NETWORK, inside, "strict")]
    plans = TenantPlans(tuple(tenants), NAMES, borrowing=False)
    counters = TrafficCounters(LAYOUT, plans, RATE)
    counted.now_s += 1.0
    found = [
        tenant.reserved_bps * RATE / TENANT.rate_bps
        for tenant in counters.sample().tenants
    ]
    assert found == [0, 3, 2, 2]
