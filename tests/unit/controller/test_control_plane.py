"""The control plane against fake switches whose answers come when the test says so."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.control_plane import ControlPlane, Outcome
from controller.flows import (
    COOKIE_TAG,
    AddFlow,
    Change,
    Drop,
    Flow,
    FlowReport,
    Match,
    base_flows,
    desired_flows,
)
from controller.values import Conflict, InvalidValues, Switch, Tenant, UnknownTenant
from tests.support.fake_datacentre import World, tree_world
from tests.support.fake_switch import FakeSwitch, TableFull

WORLD = tree_world([2, 2], slots_per_server=2)
LONG_S = 30.0
"""Never waited for in full unless the code is wrong."""


@dataclass(eq=False)
class Wire:
    """A channel that keeps what is sent until it is told to carry it to the switch."""

    switch: FakeSwitch
    plane: ControlPlane
    queue: deque[Callable[[], None]] = field(default_factory=deque)
    batches: list[tuple[Change, ...]] = field(default_factory=list)
    hung_up: bool = False
    immediate: bool = False

    @property
    def dpid(self) -> int:
        return self.switch.dpid

    def request_flows(self, ticket: int) -> None:
        self._later(lambda: self._report(ticket))

    def send_batch(self, changes: Sequence[Change], ticket: int) -> None:
        self.batches.append(tuple(changes))
        self._later(lambda: self._carry_out(changes, ticket))

    def hang_up(self) -> None:
        self.hung_up = True

    def carry(self, steps: int = 1000) -> None:
        """Let the switch see and answer so many messages."""
        for _ in range(steps):
            if not self.queue:
                return
            self.queue.popleft()()

    def _later(self, step: Callable[[], None]) -> None:
        self.queue.append(step)
        if self.immediate:
            self.carry()

    def _report(self, ticket: int) -> None:
        flows = self.switch.report().flows
        middle = len(flows) // 2
        self.plane.reported(self, ticket, FlowReport(flows[:middle]), more=True)
        self.plane.reported(self, ticket, FlowReport(flows[middle:]), more=False)

    def _carry_out(self, changes: Sequence[Change], ticket: int) -> None:
        try:
            self.switch.apply(changes)
        except TableFull:
            self.plane.refused(self, ticket, "table full")
        self.plane.confirmed(self, ticket)


@dataclass
class Site:
    """A plane and the wires to all switches of a world, connected and at rest."""

    world: World = WORLD
    plane: ControlPlane = field(default_factory=ControlPlane)
    wires: dict[int, Wire] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plane.put_network(self.world.switches)
        for switch in self.world.switches:
            self.connect(FakeSwitch(switch.dpid, switch.ports))

    def connect(self, switch: FakeSwitch, *, immediate: bool = True) -> Wire:
        wire = Wire(switch, self.plane, immediate=immediate)
        self.wires[switch.dpid] = wire
        self.plane.connected(wire)
        return wire

    def disconnect(self, dpid: int) -> FakeSwitch:
        wire = self.wires.pop(dpid)
        self.plane.disconnected(wire)
        return wire.switch

    def flows(self) -> dict[int, frozenset[Flow]]:
        return {dpid: wire.switch.flows for dpid, wire in sorted(self.wires.items())}

    def wanted(self) -> dict[int, frozenset[Flow]]:
        wanted = desired_flows(self.plane.state)
        return {dpid: frozenset(wanted[dpid]) for dpid in sorted(self.wires)}

    def settled(self) -> bool:
        return self.flows() == self.wanted()

    def tenant(self, tenant_id: int, first: int = 0, count: int = 4) -> Tenant:
        slots = self.world.slots[first : first + count]
        return self.world.tenant(tenant_id, slots, lambda _count: 0)


class Call(threading.Thread):
    """A call that blocks, and what came of it."""

    def __init__(self, function: Callable[[], Outcome]) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.outcome: Outcome | None = None
        self.start()

    def run(self) -> None:
        self.outcome = self.function()

    def result(self) -> Outcome:
        self.join(LONG_S)
        assert self.outcome is not None
        return self.outcome


def wait_until_sent(wire: Wire, length: int = 1) -> None:
    """Until the calling thread has come as far as sending something to this switch."""
    for _ in range(10_000):
        if len(wire.queue) == length:
            return
        threading.Event().wait(0.001)
    pytest.fail("nothing was sent")


def test_switches_get_the_base_rules_when_they_connect() -> None:
    site = Site()
    assert site.settled()
    assert site.flows()[1] == set(base_flows(WORLD.switches[0]))
    assert site.plane.wait_connected(None, 0).complete


def test_the_order_of_network_and_connection_does_not_matter() -> None:
    plane = ControlPlane()
    switch = WORLD.switches[0]
    wire = Wire(FakeSwitch(switch.dpid, switch.ports), plane, immediate=True)
    plane.connected(wire)
    assert plane.view().unknown_dpids == (switch.dpid,)
    assert wire.switch.flows == set()
    plane.put_network(WORLD.switches)
    assert wire.switch.flows == set(base_flows(switch))
    assert plane.view().unknown_dpids == ()
    missing = plane.wait_connected(None, 0).missing
    assert missing == tuple(s.name for s in WORLD.switches[1:])


def test_a_tenant_comes_and_goes() -> None:
    site = Site()
    before = site.flows()
    tenant = site.tenant(3)
    assert site.plane.add_tenant(tenant, LONG_S).complete
    assert site.settled()
    assert site.flows() != before
    assert site.plane.remove_tenant(3, LONG_S).complete
    assert site.flows() == before
    with pytest.raises(UnknownTenant):
        site.plane.remove_tenant(3, LONG_S)


def test_only_the_switches_of_the_tenant_hear_of_it() -> None:
    site = Site()
    tenant = site.world.tenant(3, WORLD.slots[:2], lambda count: count - 1)
    for wire in site.wires.values():
        wire.batches.clear()
    site.plane.add_tenant(tenant, LONG_S)
    heard = [dpid for dpid, wire in sorted(site.wires.items()) if wire.batches]
    assert heard == list(tenant.dpids) == [WORLD.slots[0][0]]


def test_adding_returns_when_the_last_switch_has_confirmed() -> None:
    site = Site()
    tenant = site.tenant(3)
    slow = [site.wires[dpid] for dpid in tenant.dpids]
    for wire in slow:
        wire.immediate = False
    call = Call(lambda: site.plane.add_tenant(tenant, LONG_S))
    for wire in slow:
        wait_until_sent(wire)
    for wire in slow[:-1]:
        wire.carry()
        assert call.is_alive()
    slow[-1].carry()
    assert call.result().complete


def test_a_confirmation_counts_for_what_was_sent_before_it_and_no_more() -> None:
    site = Site()
    first, second = site.tenant(3, 0, 4), site.tenant(4, 4, 4)
    shared = site.wires[next(dpid for dpid in first.dpids if dpid in second.dpids)]
    shared.immediate = False
    calls = []
    for length, tenant in enumerate((first, second), 1):
        calls.append(Call(partial(site.plane.add_tenant, tenant, LONG_S)))
        wait_until_sent(shared, length)
    shared.carry(1)
    assert calls[0].result().complete
    assert calls[1].is_alive()
    assert site.plane.add_tenant(second, 0).missing
    shared.carry(1)
    assert calls[1].result().complete


def test_who_does_not_confirm_in_time_is_named_and_gets_the_rules_later() -> None:
    site = Site()
    tenant = site.tenant(3)
    silent, gone = tenant.dpids[0], tenant.dpids[1]
    site.wires[silent].immediate = False
    switch = site.disconnect(gone)
    names = {s.dpid: s.name for s in WORLD.switches}
    outcome = site.plane.add_tenant(tenant, 0.05)
    assert outcome.missing == (names[silent], names[gone])
    assert tenant in site.plane.state.tenants
    site.wires[silent].carry()
    site.connect(switch)
    assert site.settled()
    assert site.plane.add_tenant(tenant, 0).complete, "the same tenant again only waits"
    assert site.plane.wait_connected(None, 0).complete


def test_the_same_tenant_again_is_fine_long_after_others_came() -> None:
    site = Site()
    first = site.tenant(3, 0, 2)
    site.plane.add_tenant(first, LONG_S)
    site.plane.add_tenant(site.tenant(4, 4, 4), LONG_S)
    assert site.plane.add_tenant(first, 0).complete


def test_conflicts_change_nothing() -> None:
    site = Site()
    site.plane.add_tenant(site.tenant(3), LONG_S)
    before, revision = site.flows(), site.plane.view().revision
    with pytest.raises(Conflict):
        site.plane.add_tenant(site.tenant(3, 4), LONG_S)
    with pytest.raises(Conflict):
        site.plane.put_network(WORLD.switches[:1])
    elsewhere = tree_world([1], slots_per_server=9)
    with pytest.raises(InvalidValues, match="has no port 9"):
        site.plane.add_tenant(elsewhere.tenant(5, elsewhere.slots[8:], lambda _c: 0), LONG_S)
    with pytest.raises(Conflict, match="switch 999 is not in the network"):
        site.plane.wait_connected([999], 0)
    assert site.flows() == before
    assert site.plane.view().revision == revision


def test_a_refusal_takes_the_tenant_out_everywhere() -> None:
    site = Site()
    before = site.flows()
    tenant = site.tenant(3)
    full = site.wires[tenant.dpids[0]].switch
    full.capacity = 3
    outcome = site.plane.add_tenant(tenant, LONG_S)
    assert outcome.refused == ((site.plane.state.switch_by_dpid[full.dpid].name, "table full"),)
    assert site.plane.state.tenants == ()
    assert site.flows() == before
    full.capacity = 1000
    assert site.plane.add_tenant(tenant, LONG_S).complete
    assert site.settled()


def test_a_switch_that_refuses_what_it_lacks_is_not_called_confirmed() -> None:
    site = Site()
    tenant = site.tenant(3)
    site.plane.add_tenant(tenant, LONG_S)
    dpid = tenant.dpids[0]
    site.disconnect(dpid)
    site.connect(FakeSwitch(dpid, WORLD.switches[0].ports, capacity=2))
    shown = next(s for s in site.plane.view().switches if s.dpid == dpid)
    assert (shown.connected, shown.confirmed, shown.error) == (True, False, "table full")
    assert site.plane.wait_connected(None, 0).refused == ((shown.name, "table full"),)
    site.wires[dpid].switch.capacity = 1000
    outcome, mended = site.plane.reconcile(LONG_S)
    assert outcome.complete
    assert [m.dpid for m in mended] == [dpid]
    assert site.plane.wait_connected(None, 0).complete
    assert site.settled()
    assert all(s.confirmed for s in site.plane.view().switches)


def test_a_switch_that_kept_its_rules_is_left_alone() -> None:
    site = Site()
    tenant = site.tenant(3)
    site.plane.add_tenant(tenant, LONG_S)
    wire = site.connect(site.disconnect(tenant.dpids[0]))
    assert wire.batches == []
    assert site.plane.wait_connected(None, 0).complete


def test_a_switch_that_lost_its_rules_gets_them_again() -> None:
    site = Site()
    tenant = site.tenant(3)
    site.plane.add_tenant(tenant, LONG_S)
    dpid = tenant.dpids[0]
    site.disconnect(dpid)
    site.connect(FakeSwitch(dpid, site.plane.state.switch_by_dpid[dpid].ports))
    assert site.settled()


def test_reconnecting_gives_the_difference_and_leaves_foreign_rules() -> None:
    site = Site()
    tenant = site.tenant(3)
    site.plane.add_tenant(tenant, LONG_S)
    dpid = tenant.dpids[0]
    switch = site.disconnect(dpid)
    wanted = switch.flows
    stale = Flow(1, 7, Match(in_port=1), Drop(), COOKIE_TAG | 99)
    foreign = Flow(0, 9, Match(in_port=2), Drop(), 5)
    lost = min(wanted, key=lambda flow: flow.text())
    kept = [flow for flow in switch.flows if flow != lost]
    fresh = FakeSwitch(dpid, switch.ports)
    fresh.apply([AddFlow(flow) for flow in [*kept, stale, foreign]])
    wire = site.connect(fresh)
    assert fresh.flows == {*wanted, foreign}
    assert [len(batch) for batch in wire.batches] == [2]
    assert next(s for s in site.plane.view().switches if s.dpid == dpid).foreign_flows == 1


def test_what_changes_while_a_switch_is_asked_is_in_the_difference() -> None:
    site = Site()
    kept, gone = site.tenant(3, 0, 4), site.tenant(4, 4, 4)
    site.plane.add_tenant(gone, LONG_S)
    dpid = next(d for d in kept.dpids if d in gone.dpids)
    wire = site.connect(site.disconnect(dpid), immediate=False)
    added = Call(lambda: site.plane.add_tenant(kept, LONG_S))
    while kept not in site.plane.state.tenants:
        threading.Event().wait(0.001)
    removed = Call(lambda: site.plane.remove_tenant(gone.id, LONG_S))
    while gone in site.plane.state.tenants:
        threading.Event().wait(0.001)
    assert wire.batches == []
    wire.carry()
    assert added.result().complete
    assert removed.result().complete
    assert len(wire.batches) == 1
    assert site.settled()


def test_a_second_connection_replaces_the_first() -> None:
    site = Site()
    dpid = WORLD.switches[0].dpid
    old = site.wires[dpid]
    old.immediate = False
    site.plane.add_tenant(site.tenant(3), 0)
    new = site.connect(old.switch)
    assert old.hung_up
    old.carry()
    site.plane.disconnected(old)
    assert site.plane.wait_connected(None, 0).complete
    assert new.switch.flows == site.wanted()[dpid]


def test_late_answers_of_an_old_question_are_ignored() -> None:
    site = Site()
    dpid = WORLD.switches[0].dpid
    wire = site.connect(site.disconnect(dpid), immediate=False)
    first_question = wire.queue.popleft()
    call = Call(lambda: site.plane.reconcile(LONG_S)[0])
    wait_until_sent(wire)
    first_question()
    assert not next(s for s in site.plane.view().switches if s.dpid == dpid).confirmed
    wire.carry()
    assert call.result().complete


def test_reconciling_mends_and_says_what() -> None:
    site = Site()
    tenant = site.tenant(3)
    site.plane.add_tenant(tenant, LONG_S)
    switch = site.wires[tenant.dpids[0]].switch
    lost = len(switch.flows)
    switch._flows.clear()
    switch.apply([AddFlow(Flow(0, 1, Match(), Drop(), COOKIE_TAG | 9))])
    outcome, mended = site.plane.reconcile(LONG_S)
    assert outcome.complete
    assert [(m.dpid, m.added, m.removed) for m in mended] == [(switch.dpid, lost, 1)]
    assert site.settled()
    assert site.plane.reconcile(LONG_S) == (Outcome(), ())


def test_a_switch_that_leaves_the_network_is_cleaned_and_may_come_back() -> None:
    site = Site()
    leaver = WORLD.switches[0]
    foreign = Flow(0, 9, Match(in_port=2), Drop(), 5)
    site.wires[leaver.dpid].switch.apply([AddFlow(foreign)])
    site.plane.put_network(WORLD.switches[1:])
    assert site.wires[leaver.dpid].switch.flows == {foreign}
    assert site.plane.view().unknown_dpids == (leaver.dpid,)
    site.plane.put_network(WORLD.switches)
    assert site.wires[leaver.dpid].switch.flows == {foreign, *base_flows(leaver)}


def test_a_returned_switch_is_not_confirmed_by_what_was_sent_before_it_left() -> None:
    site = Site()
    leaver = WORLD.switches[0]
    wire = site.wires[leaver.dpid]
    wire.immediate = False
    site.plane.put_network(WORLD.switches[1:])
    site.plane.put_network(WORLD.switches)
    wire.carry(1)
    assert site.plane.wait_connected([leaver.dpid], 0).missing == (leaver.name,)
    wire.carry()
    assert site.plane.wait_connected([leaver.dpid], 0).complete
    assert wire.switch.flows == set(base_flows(leaver))


def test_the_view_counts() -> None:
    site = Site()
    tenant = site.tenant(3)
    site.plane.add_tenant(tenant, LONG_S)
    view = site.plane.view()
    wanted = desired_flows(site.plane.state)
    assert [(s.dpid, s.flows) for s in view.switches] == [
        (dpid, len(flows)) for dpid, flows in sorted(wanted.items())
    ]
    total = sum(len(flows) for flows in wanted.values())
    assert view.tenants == ((tenant, total - 2 * len(WORLD.switches)),)


# ------------------------------------------------------------------------- any order of events


class AnyOrder(RuleBasedStateMachine):
    """Whatever the order: once all messages are carried, every switch has what is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Site()
        self.switches = {dpid: wire.switch for dpid, wire in self.site.wires.items()}
        self.dead: list[Wire] = []
        for wire in self.site.wires.values():
            wire.immediate = False

    dpids = st.sampled_from([switch.dpid for switch in WORLD.switches])

    @rule(tenant_id=st.integers(1, 4))
    def add(self, tenant_id: int) -> None:
        # Each of the four has two slots of its own, in different racks.
        slots = [WORLD.slots[tenant_id - 1], WORLD.slots[tenant_id + 3]]
        self.site.plane.add_tenant(WORLD.tenant(tenant_id, slots, lambda _count: 0), 0)

    @rule(tenant_id=st.integers(1, 4))
    def remove(self, tenant_id: int) -> None:
        if any(tenant.id == tenant_id for tenant in self.site.plane.state.tenants):
            self.site.plane.remove_tenant(tenant_id, 0)

    @rule(dpid=dpids, steps=st.integers(1, 3))
    def carry(self, dpid: int, steps: int) -> None:
        if dpid in self.site.wires:
            self.site.wires[dpid].carry(steps)

    @rule(dpid=dpids)
    def disconnect(self, dpid: int) -> None:
        if dpid in self.site.wires:
            self.dead.append(self.site.wires[dpid])
            self.site.disconnect(dpid)

    @rule(dpid=dpids)
    def connect(self, dpid: int) -> None:
        if dpid in self.site.wires:
            self.dead.append(self.site.wires[dpid])
        self.site.connect(self.switches[dpid], immediate=False)

    @rule(dpid=dpids)
    def restart_switch(self, dpid: int) -> None:
        if dpid in self.site.wires:
            self.site.disconnect(dpid)
        ports = self.switches[dpid].ports
        self.switches[dpid] = FakeSwitch(dpid, ports)
        self.site.connect(self.switches[dpid], immediate=False)

    @rule()
    def reconcile(self) -> None:
        self.site.plane.reconcile(0)

    @rule(steps=st.integers(1, 3))
    def late_answers_of_dead_connections(self, steps: int) -> None:
        for wire in self.dead:
            # The switch no longer listens on it; what it had answered may still arrive.
            wire.switch = FakeSwitch(wire.dpid, ())
            wire.carry(steps)

    @invariant()
    def confirmed_means_that_it_has_its_rules(self) -> None:
        wanted = self.site.wanted()
        for shown in self.site.plane.view().switches:
            if shown.confirmed:
                assert self.site.wires[shown.dpid].switch.flows == wanted[shown.dpid]

    def teardown(self) -> None:
        for dpid, switch in self.switches.items():
            if dpid not in self.site.wires:
                self.site.connect(switch, immediate=False)
        for _ in range(3):
            for wire in self.site.wires.values():
                wire.carry()
        assert self.site.settled()
        assert self.site.plane.wait_connected(None, 0).complete
        assert self.site.plane._waits == []


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(stateful_step_count=30)


def test_a_switch_may_be_any_of_four_roles() -> None:
    plane = ControlPlane()
    plane.put_network([Switch(1, "a", "server", ()), Switch(2, "b", "core", (1,))])
    assert [s.role for s in plane.view().switches] == ["server", "core"]
