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

from controller import control_plane
from controller.control_plane import ChangeOutcome, ControlPlane
from controller.flow_rules import (
    BASE_FLOWS,
    COOKIE_TAG,
    AddFlow,
    Change,
    Drop,
    Flow,
    FlowReport,
    Match,
    desired_flows,
)
from controller.values import (
    Conflict,
    InvalidValues,
    Switch,
    Tenant,
    UnknownTenant,
)
from tests.support.fake_datacentre import (
    FakeDataCentre,
    fat_tree_datacentre,
    tree_datacentre,
)
from tests.support.fake_switch import FakeSwitch, TableFull
from tests.support.watching_client import namespaces

DATACENTRE = tree_datacentre([2, 2], slots_per_server=2)
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
        self.plane.reported(
            self, ticket, FlowReport(flows[:middle]), partial=True
        )
        self.plane.reported(
            self, ticket, FlowReport(flows[middle:]), partial=False
        )

    def _carry_out(self, changes: Sequence[Change], ticket: int) -> None:
        try:
            self.switch.apply(changes)
        except TableFull:
            self.plane.refused(self, ticket, "table full")
        self.plane.confirmed(self, ticket)


@dataclass
class Fabric:
    """A plane and the wires to all switches of a datacentre, connected and at rest."""

    datacentre: FakeDataCentre = DATACENTRE
    plane: ControlPlane = field(default_factory=ControlPlane)
    wires: dict[int, Wire] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plane.put_network(self.datacentre.switches)
        for switch in self.datacentre.switches:
            self.connect(FakeSwitch(switch.dpid, switch.ports))

    def connect(
        self, switch: FakeSwitch, *, immediate: bool = True
    ) -> Wire:
        wire = Wire(switch, self.plane, immediate=immediate)
        self.wires[switch.dpid] = wire
        self.plane.connected(wire)
        return wire

    def disconnect(self, dpid: int) -> FakeSwitch:
        wire = self.wires.pop(dpid)
        self.plane.disconnected(wire)
        return wire.switch

    def flows(self) -> dict[int, frozenset[Flow]]:
        return {
            dpid: wire.switch.flows
            for dpid, wire in sorted(self.wires.items())
        }

    def wanted(self) -> dict[int, frozenset[Flow]]:
        wanted = desired_flows(self.plane.state)
        return {
            dpid: frozenset(wanted[dpid]) for dpid in sorted(self.wires)
        }

    def synced(self) -> bool:
        return self.flows() == self.wanted()

    def tenant(
        self, tenant_id: int, first: int = 0, count: int = 4
    ) -> Tenant:
        slots = self.datacentre.slots[first : first + count]
        return self.datacentre.tenant(tenant_id, slots, lambda _count: 0)


class Call(threading.Thread):
    """A call that blocks, and what came of it."""

    def __init__(self, function: Callable[[], ChangeOutcome]) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.outcome: ChangeOutcome | None = None
        self.start()

    def run(self) -> None:
        self.outcome = self.function()

    def result(self) -> ChangeOutcome:
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
    fabric = Fabric()
    assert fabric.synced()
    assert fabric.flows()[1] == set(BASE_FLOWS)
    assert fabric.plane.wait_connected(None, 0) == ChangeOutcome()


def test_the_order_of_network_and_connection_does_not_matter() -> None:
    plane = ControlPlane()
    switch = DATACENTRE.switches[0]
    wire = Wire(
        FakeSwitch(switch.dpid, switch.ports), plane, immediate=True
    )
    plane.connected(wire)
    assert namespaces(plane.view()).unknown_dpids == [switch.dpid]
    assert wire.switch.flows == set()
    plane.put_network(DATACENTRE.switches)
    assert wire.switch.flows == set(BASE_FLOWS)
    assert namespaces(plane.view()).unknown_dpids == []
    missing = plane.wait_connected(None, 0).missing
    assert missing == tuple(s.name for s in DATACENTRE.switches[1:])


def test_a_tenant_comes_and_goes() -> None:
    fabric = Fabric()
    before = fabric.flows()
    tenant = fabric.tenant(3)
    assert fabric.plane.add_tenant(tenant, LONG_S) == ChangeOutcome()
    assert fabric.synced()
    assert fabric.flows() != before
    assert fabric.plane.remove_tenant(3, LONG_S) == ChangeOutcome()
    assert fabric.flows() == before
    with pytest.raises(UnknownTenant):
        fabric.plane.remove_tenant(3, LONG_S)


def test_only_the_switches_of_the_tenant_hear_of_it() -> None:
    fabric = Fabric()
    tenant = fabric.datacentre.tenant(
        3, DATACENTRE.slots[:2], lambda count: count - 1
    )
    for wire in fabric.wires.values():
        wire.batches.clear()
    fabric.plane.add_tenant(tenant, LONG_S)
    heard = [
        dpid for dpid, wire in sorted(fabric.wires.items()) if wire.batches
    ]
    assert heard == list(tenant.dpids) == [DATACENTRE.slots[0][0]]


def test_adding_returns_when_the_last_switch_has_confirmed() -> None:
    fabric = Fabric()
    tenant = fabric.tenant(3)
    slow = [fabric.wires[dpid] for dpid in tenant.dpids]
    for wire in slow:
        wire.immediate = False
    call = Call(lambda: fabric.plane.add_tenant(tenant, LONG_S))
    for wire in slow:
        wait_until_sent(wire)
    for wire in slow[:-1]:
        wire.carry()
        assert call.is_alive()
    slow[-1].carry()
    assert call.result() == ChangeOutcome()


def test_a_confirmation_counts_for_what_was_sent_before_it_and_no_more() -> (
    None
):
    fabric = Fabric()
    first, second = fabric.tenant(3, 0, 4), fabric.tenant(4, 4, 4)
    shared = fabric.wires[
        next(dpid for dpid in first.dpids if dpid in second.dpids)
    ]
    shared.immediate = False
    calls = []
    for length, tenant in enumerate((first, second), 1):
        calls.append(Call(partial(fabric.plane.add_tenant, tenant, LONG_S)))
        wait_until_sent(shared, length)
    shared.carry(1)
    assert calls[0].result() == ChangeOutcome()
    assert calls[1].is_alive()
    assert fabric.plane.add_tenant(second, 0).missing
    shared.carry(1)
    assert calls[1].result() == ChangeOutcome()


def test_who_does_not_confirm_in_time_is_named_and_gets_the_rules_later() -> (
    None
):
    fabric = Fabric()
    tenant = fabric.tenant(3)
    silent, gone = tenant.dpids[0], tenant.dpids[1]
    fabric.wires[silent].immediate = False
    switch = fabric.disconnect(gone)
    names = {s.dpid: s.name for s in DATACENTRE.switches}
    outcome = fabric.plane.add_tenant(tenant, 0.05)
    assert outcome.missing == (names[silent], names[gone])
    assert tenant in fabric.plane.state.tenants
    fabric.wires[silent].carry()
    fabric.connect(switch)
    assert fabric.synced()
    assert fabric.plane.add_tenant(tenant, 0) == ChangeOutcome(), (
        "the same tenant again only waits"
    )
    assert fabric.plane.wait_connected(None, 0) == ChangeOutcome()


def test_the_same_tenant_again_is_fine_long_after_others_came() -> None:
    fabric = Fabric()
    first = fabric.tenant(3, 0, 2)
    fabric.plane.add_tenant(first, LONG_S)
    fabric.plane.add_tenant(fabric.tenant(4, 4, 4), LONG_S)
    assert fabric.plane.add_tenant(first, 0) == ChangeOutcome()


def test_conflicts_change_nothing() -> None:
    fabric = Fabric()
    fabric.plane.add_tenant(fabric.tenant(3), LONG_S)
    before, revision = (
        fabric.flows(),
        namespaces(fabric.plane.view()).revision,
    )
    with pytest.raises(Conflict):
        fabric.plane.add_tenant(fabric.tenant(3, 4), LONG_S)
    with pytest.raises(Conflict):
        fabric.plane.put_network(DATACENTRE.switches[:1])
    elsewhere = tree_datacentre([1], slots_per_server=9)
    with pytest.raises(InvalidValues, match="has no port 9"):
        fabric.plane.add_tenant(
            elsewhere.tenant(5, elsewhere.slots[8:], lambda _c: 0), LONG_S
        )
    with pytest.raises(Conflict, match="switch 999 is not in the network"):
        fabric.plane.wait_connected([999], 0)
    assert fabric.flows() == before
    assert namespaces(fabric.plane.view()).revision == revision


def test_a_refusal_takes_the_tenant_out_everywhere() -> None:
    fabric = Fabric()
    before = fabric.flows()
    tenant = fabric.tenant(3)
    full = fabric.wires[tenant.dpids[0]].switch
    full.capacity = 3
    outcome = fabric.plane.add_tenant(tenant, LONG_S)
    assert outcome.refused == (
        (fabric.plane.state.switch_by_dpid[full.dpid].name, "table full"),
    )
    assert fabric.plane.state.tenants == ()
    assert fabric.flows() == before
    full.capacity = 1000
    assert fabric.plane.add_tenant(tenant, LONG_S) == ChangeOutcome()
    assert fabric.synced()


FAT_TREE = fat_tree_datacentre(4, slots_per_server=1)
ACROSS = (FAT_TREE.slots[0], FAT_TREE.slots[3], FAT_TREE.slots[8])


def on_root(number: int) -> Tenant:
    """A tenant of three VMs in two pods, below one of the four cores."""
    return FAT_TREE.tenant(1, ACROSS, lambda _: number)


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> Fabric:
    """A fat-tree with a tenant below its first core. Nothing is under way for long."""
    monkeypatch.setattr(control_plane, "DRAIN_S", 0.0)
    found = Fabric(FAT_TREE)
    assert found.plane.add_tenant(on_root(0), LONG_S) == ChangeOutcome()
    return found


def test_a_tenant_moves_to_another_tree(fabric: Fabric) -> None:
    assert fabric.plane.move_tenant(on_root(3), LONG_S) == ChangeOutcome()
    assert fabric.plane.state.tenants == (on_root(3),)
    assert fabric.synced()
    sent = {dpid: len(wire.batches) for dpid, wire in fabric.wires.items()}
    # Given again it only waits; and it goes as any other.
    assert fabric.plane.move_tenant(on_root(3), LONG_S) == ChangeOutcome()
    assert fabric.plane.add_tenant(on_root(3), LONG_S) == ChangeOutcome()
    changed = [
        dpid
        for dpid, wire in fabric.wires.items()
        if any(wire.batches[sent[dpid] :])
    ]
    assert changed == []
    assert fabric.plane.remove_tenant(1, LONG_S) == ChangeOutcome()
    assert fabric.synced()


def test_no_switch_turns_traffic_before_the_new_tree_has_its_rules(
    fabric: Fabric,
) -> None:
    core = next(
        e.parent_dpid
        for e in on_root(3).tree
        if e.parent_dpid not in on_root(0).dpids
    )
    before, late = fabric.flows(), fabric.wires[core]
    late.immediate = False
    moving = Call(lambda: fabric.plane.move_tenant(on_root(3), LONG_S))
    wait_until_sent(late)
    fabric.plane.view()  # not under way any more: the step has been sent to all
    flows = fabric.flows()
    assert all(flows[dpid] >= before[dpid] for dpid in flows), (
        "nothing replaced, nothing removed"
    )
    late.carry()
    late.immediate = True
    assert moving.result() == ChangeOutcome()
    assert fabric.synced()


def test_a_move_that_a_switch_refuses_is_taken_back(fabric: Fabric) -> None:
    before = fabric.flows()
    core = next(
        e.parent_dpid
        for e in on_root(3).tree
        if e.parent_dpid not in on_root(0).dpids
    )
    fabric.wires[core].switch.capacity = 3
    outcome = fabric.plane.move_tenant(on_root(3), LONG_S)
    assert [why for _, why in outcome.refused] == ["table full"]
    assert fabric.plane.state.tenants == (on_root(0),)
    assert fabric.flows() == before


def test_who_is_away_during_a_move_gets_its_rules_later(
    fabric: Fabric,
) -> None:
    core = next(
        e.parent_dpid
        for e in on_root(3).tree
        if e.parent_dpid not in on_root(0).dpids
    )
    away = fabric.disconnect(core)
    outcome = fabric.plane.move_tenant(on_root(3), 0.01)
    assert outcome.missing == (FAT_TREE.switches[core - 1].name,)
    fabric.connect(away)
    assert fabric.synced()


def test_the_old_root_is_not_waited_for_where_it_is_gone(
    fabric: Fabric,
) -> None:
    core = next(
        e.parent_dpid
        for e in on_root(0).tree
        if e.parent_dpid not in on_root(3).dpids
    )
    away = fabric.disconnect(core)
    assert (
        Call(
            lambda: fabric.plane.move_tenant(on_root(3), 10 * LONG_S)
        ).result()
        == ChangeOutcome()
    )
    fabric.connect(away)
    assert fabric.synced()


def test_only_the_tree_of_a_tenant_moves(fabric: Fabric) -> None:
    other = FAT_TREE.tenant(1, FAT_TREE.slots[:2], lambda _: 0)
    with pytest.raises(
        Conflict, match="tenant 1 is another: only its tree may differ"
    ):
        fabric.plane.move_tenant(other, LONG_S)
    with pytest.raises(UnknownTenant):
        fabric.plane.move_tenant(
            FAT_TREE.tenant(2, ACROSS, lambda _: 0), LONG_S
        )
    assert fabric.plane.state.tenants == (on_root(0),)


def test_a_tenant_taken_out_during_its_move_is_out(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        control_plane.time,
        "sleep",
        lambda _: fabric.plane.remove_tenant(1, LONG_S),
    )
    assert fabric.plane.move_tenant(on_root(3), LONG_S) == ChangeOutcome()
    assert fabric.plane.state.tenants == ()
    assert fabric.synced()


def test_a_refused_move_brings_back_no_tenant_taken_out_meanwhile(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = next(
        e.parent_dpid
        for e in on_root(3).tree
        if e.parent_dpid not in on_root(0).dpids
    )
    fabric.wires[core].switch.capacity = 3
    monkeypatch.setattr(
        control_plane.time,
        "sleep",
        lambda _: fabric.plane.remove_tenant(1, LONG_S),
    )
    outcome = fabric.plane.move_tenant(on_root(3), LONG_S)
    assert [why for _, why in outcome.refused] == ["table full"]
    assert fabric.plane.state.tenants == ()
    assert fabric.synced()


def test_a_switch_that_refuses_what_it_lacks_is_not_called_confirmed() -> (
    None
):
    fabric = Fabric()
    tenant = fabric.tenant(3)
    fabric.plane.add_tenant(tenant, LONG_S)
    dpid = tenant.dpids[0]
    fabric.disconnect(dpid)
    fabric.connect(
        FakeSwitch(dpid, DATACENTRE.switches[0].ports, capacity=2)
    )
    shown = next(
        s
        for s in namespaces(fabric.plane.view()).switches
        if s.dpid == dpid
    )
    assert (shown.connected, shown.confirmed, shown.error) == (
        True,
        False,
        "table full",
    )
    assert fabric.plane.wait_connected(None, 0).refused == (
        (shown.name, "table full"),
    )
    fabric.wires[dpid].switch.capacity = 1000
    outcome, repaired = fabric.plane.reconcile(LONG_S)
    assert outcome == ChangeOutcome()
    assert [m["dpid"] for m in repaired] == [dpid]
    assert fabric.plane.wait_connected(None, 0) == ChangeOutcome()
    assert fabric.synced()
    assert all(
        s.confirmed for s in namespaces(fabric.plane.view()).switches
    )


def test_a_switch_that_kept_its_rules_is_left_alone() -> None:
    fabric = Fabric()
    tenant = fabric.tenant(3)
    fabric.plane.add_tenant(tenant, LONG_S)
    wire = fabric.connect(fabric.disconnect(tenant.dpids[0]))
    assert wire.batches == []
    assert fabric.plane.wait_connected(None, 0) == ChangeOutcome()


def test_a_switch_that_lost_its_rules_gets_them_again() -> None:
    fabric = Fabric()
    tenant = fabric.tenant(3)
    fabric.plane.add_tenant(tenant, LONG_S)
    dpid = tenant.dpids[0]
    fabric.disconnect(dpid)
    fabric.connect(
        FakeSwitch(dpid, fabric.plane.state.switch_by_dpid[dpid].ports)
    )
    assert fabric.synced()


def test_reconnecting_gives_the_difference_and_removes_foreign_rules() -> (
    None
):
    fabric = Fabric()
    tenant = fabric.tenant(3)
    fabric.plane.add_tenant(tenant, LONG_S)
    dpid = tenant.dpids[0]
    switch = fabric.disconnect(dpid)
    wanted = switch.flows
    stale = Flow(1, 7, Match(in_port=1), Drop(), COOKIE_TAG | 99)
    foreign = Flow(0, 9, Match(in_port=2), Drop(), 5)
    lost = min(wanted, key=lambda flow: flow.text())
    kept = [flow for flow in switch.flows if flow != lost]
    fresh = FakeSwitch(dpid, switch.ports)
    fresh.apply([AddFlow(flow) for flow in [*kept, stale, foreign]])
    wire = fabric.connect(fresh)
    assert fresh.flows == set(wanted)
    assert [len(batch) for batch in wire.batches] == [3]
    assert (
        next(
            s
            for s in namespaces(fabric.plane.view()).switches
            if s.dpid == dpid
        ).foreign_flows
        == 1
    )


def test_what_changes_while_a_switch_is_asked_is_in_the_difference() -> (
    None
):
    fabric = Fabric()
    kept, gone = fabric.tenant(3, 0, 4), fabric.tenant(4, 4, 4)
    fabric.plane.add_tenant(gone, LONG_S)
    dpid = next(d for d in kept.dpids if d in gone.dpids)
    wire = fabric.connect(fabric.disconnect(dpid), immediate=False)
    added = Call(lambda: fabric.plane.add_tenant(kept, LONG_S))
    while kept not in fabric.plane.state.tenants:
        threading.Event().wait(0.001)
    removed = Call(lambda: fabric.plane.remove_tenant(gone.id, LONG_S))
    while gone in fabric.plane.state.tenants:
        threading.Event().wait(0.001)
    assert wire.batches == []
    wire.carry()
    assert added.result() == ChangeOutcome()
    assert removed.result() == ChangeOutcome()
    assert len(wire.batches) == 1
    assert fabric.synced()


def test_a_second_connection_replaces_the_first() -> None:
    fabric = Fabric()
    dpid = DATACENTRE.switches[0].dpid
    old = fabric.wires[dpid]
    old.immediate = False
    fabric.plane.add_tenant(fabric.tenant(3), 0)
    new = fabric.connect(old.switch)
    assert old.hung_up
    old.carry()
    fabric.plane.disconnected(old)
    assert fabric.plane.wait_connected(None, 0) == ChangeOutcome()
    assert new.switch.flows == fabric.wanted()[dpid]


def test_late_answers_of_an_old_question_are_ignored() -> None:
    fabric = Fabric()
    dpid = DATACENTRE.switches[0].dpid
    wire = fabric.connect(fabric.disconnect(dpid), immediate=False)
    first_question = wire.queue.popleft()
    call = Call(lambda: fabric.plane.reconcile(LONG_S)[0])
    wait_until_sent(wire)
    first_question()
    assert not next(
        s
        for s in namespaces(fabric.plane.view()).switches
        if s.dpid == dpid
    ).confirmed
    wire.carry()
    assert call.result() == ChangeOutcome()


def test_reconciling_repairs_and_reports_the_changes() -> None:
    fabric = Fabric()
    tenant = fabric.tenant(3)
    fabric.plane.add_tenant(tenant, LONG_S)
    switch = fabric.wires[tenant.dpids[0]].switch
    lost = len(switch.flows)
    switch._flows.clear()
    switch.apply([AddFlow(Flow(0, 1, Match(), Drop(), COOKIE_TAG | 9))])
    outcome, repaired = fabric.plane.reconcile(LONG_S)
    assert outcome == ChangeOutcome()
    assert [(m["dpid"], m["added"], m["removed"]) for m in repaired] == [
        (switch.dpid, lost, 1)
    ]
    assert fabric.synced()
    assert fabric.plane.reconcile(LONG_S) == (ChangeOutcome(), [])


def test_a_switch_that_leaves_the_network_is_cleaned_and_may_come_back() -> (
    None
):
    fabric = Fabric()
    leaver = DATACENTRE.switches[0]
    foreign = Flow(0, 9, Match(in_port=2), Drop(), 5)
    fabric.wires[leaver.dpid].switch.apply([AddFlow(foreign)])
    fabric.plane.put_network(DATACENTRE.switches[1:])
    assert fabric.wires[leaver.dpid].switch.flows == {foreign}
    assert namespaces(fabric.plane.view()).unknown_dpids == [leaver.dpid]
    fabric.plane.put_network(DATACENTRE.switches)
    assert fabric.wires[leaver.dpid].switch.flows == {*BASE_FLOWS}


def test_a_switch_that_leaves_while_it_is_asked_keeps_others_rules() -> (
    None
):
    fabric = Fabric()
    leaver = DATACENTRE.switches[0]
    foreign = Flow(0, 9, Match(in_port=2), Drop(), 5)
    switch = fabric.disconnect(leaver.dpid)
    switch.apply([AddFlow(foreign)])
    wire = fabric.connect(switch, immediate=False)
    fabric.plane.put_network(DATACENTRE.switches[1:])
    wire.carry()
    assert switch.flows == {foreign}


def test_a_returned_switch_is_not_confirmed_by_what_was_sent_before_it_left() -> (
    None
):
    fabric = Fabric()
    leaver = DATACENTRE.switches[0]
    wire = fabric.wires[leaver.dpid]
    wire.immediate = False
    fabric.plane.put_network(DATACENTRE.switches[1:])
    fabric.plane.put_network(DATACENTRE.switches)
    wire.carry(1)
    assert fabric.plane.wait_connected([leaver.dpid], 0).missing == (
        leaver.name,
    )
    wire.carry()
    assert fabric.plane.wait_connected([leaver.dpid], 0) == ChangeOutcome()
    assert wire.switch.flows == set(BASE_FLOWS)


def test_the_view_counts() -> None:
    fabric = Fabric()
    tenant = fabric.tenant(3)
    fabric.plane.add_tenant(tenant, LONG_S)
    view = namespaces(fabric.plane.view())
    wanted = desired_flows(fabric.plane.state)
    assert [(s.dpid, s.flows) for s in view.switches] == [
        (dpid, len(flows)) for dpid, flows in sorted(wanted.items())
    ]
    total = sum(len(flows) for flows in wanted.values())
    (shown,) = view.tenants
    assert (shown.id, shown.vms) == (3, len(tenant.vms))
    assert shown.flows == total - 2 * len(DATACENTRE.switches)


# ------------------------------------------------------------------------- any order of events


class AnyOrder(RuleBasedStateMachine):
    """Whatever the order: once all messages are carried, every switch has what is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.fabric = Fabric()
        self.switches = {
            dpid: wire.switch for dpid, wire in self.fabric.wires.items()
        }
        self.dead: list[Wire] = []
        for wire in self.fabric.wires.values():
            wire.immediate = False

    dpids = st.sampled_from([switch.dpid for switch in DATACENTRE.switches])

    @rule(tenant_id=st.integers(1, 4))
    def add(self, tenant_id: int) -> None:
        # Each of the four has two slots of its own, in different racks.
        slots = [
            DATACENTRE.slots[tenant_id - 1],
            DATACENTRE.slots[tenant_id + 3],
        ]
        self.fabric.plane.add_tenant(
            DATACENTRE.tenant(tenant_id, slots, lambda _count: 0), 0
        )

    @rule(tenant_id=st.integers(1, 4))
    def remove(self, tenant_id: int) -> None:
        if any(
            tenant.id == tenant_id
            for tenant in self.fabric.plane.state.tenants
        ):
            self.fabric.plane.remove_tenant(tenant_id, 0)

    @rule(dpid=dpids, steps=st.integers(1, 3))
    def carry(self, dpid: int, steps: int) -> None:
        if dpid in self.fabric.wires:
            self.fabric.wires[dpid].carry(steps)

    @rule(dpid=dpids)
    def disconnect(self, dpid: int) -> None:
        if dpid in self.fabric.wires:
            self.dead.append(self.fabric.wires[dpid])
            self.fabric.disconnect(dpid)

    @rule(dpid=dpids)
    def connect(self, dpid: int) -> None:
        if dpid in self.fabric.wires:
            self.dead.append(self.fabric.wires[dpid])
        self.fabric.connect(self.switches[dpid], immediate=False)

    @rule(dpid=dpids)
    def restart_switch(self, dpid: int) -> None:
        if dpid in self.fabric.wires:
            self.fabric.disconnect(dpid)
        ports = self.switches[dpid].ports
        self.switches[dpid] = FakeSwitch(dpid, ports)
        self.fabric.connect(self.switches[dpid], immediate=False)

    @rule()
    def reconcile(self) -> None:
        self.fabric.plane.reconcile(0)

    @rule(steps=st.integers(1, 3))
    def late_answers_of_dead_connections(self, steps: int) -> None:
        for wire in self.dead:
            # The switch no longer listens on it; what it had answered may still arrive.
            wire.switch = FakeSwitch(wire.dpid, ())
            wire.carry(steps)

    @invariant()
    def confirmed_means_that_it_has_its_rules(self) -> None:
        wanted = self.fabric.wanted()
        for shown in namespaces(self.fabric.plane.view()).switches:
            if shown.confirmed:
                assert (
                    self.fabric.wires[shown.dpid].switch.flows
                    == wanted[shown.dpid]
                )

    def teardown(self) -> None:
        for dpid, switch in self.switches.items():
            if dpid not in self.fabric.wires:
                self.fabric.connect(switch, immediate=False)
        for _ in range(3):
            for wire in self.fabric.wires.values():
                wire.carry()
        assert self.fabric.synced()
        assert self.fabric.plane.wait_connected(None, 0) == ChangeOutcome()
        assert self.fabric.plane._waits == []


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(stateful_step_count=30)


def test_a_switch_may_be_any_of_four_roles() -> None:
    plane = ControlPlane()
    plane.put_network(
        [Switch(1, "a", "server", ()), Switch(2, "b", "core", (1,))]
    )
    assert [s.role for s in namespaces(plane.view()).switches] == [
        "server",
        "core",
    ]


# ---------------------------------------------------------------------------- hostile switches


def test_a_report_without_end_comes_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_plane, "REPORT_PARTS_MAX", 10)
    plane = ControlPlane()
    plane.put_network(DATACENTRE.switches)
    wire = Wire(FakeSwitch(1, DATACENTRE.switches[0].ports), plane)
    plane.connected(wire)
    ticket = plane._sessions[1].request_ticket
    assert ticket is not None
    part = FlowReport(other_cookies=(COOKIE_TAG | 1,) * 4)
    for _ in range(10):
        plane.reported(wire, ticket, part, partial=True)
    with pytest.raises(ValueError, match="more than 10 parts"):
        plane.reported(wire, ticket, part, partial=True)
    plane.reported(wire, ticket, part, partial=False)
    assert wire.batches == []
    assert plane.wait_connected([1], timeout_s=0).missing == (
        DATACENTRE.switches[0].name,
    )


def test_switches_that_nobody_planned_are_not_kept_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_plane, "UNKNOWN_SWITCHES_MAX", 3)
    fabric = Fabric()
    strangers = [
        fabric.connect(FakeSwitch(dpid, [1])) for dpid in range(100, 106)
    ]
    assert [wire.hung_up for wire in strangers] == [True] * 3 + [False] * 3
    assert fabric.plane.view()["unknown_dpids"] == [103, 104, 105]
    again = fabric.connect(FakeSwitch(104, [1]))
    assert [wire.hung_up for wire in (*strangers[3:], again)] == [
        False,
        True,
        False,
        False,
    ]
    assert not any(
        fabric.wires[s.dpid].hung_up for s in DATACENTRE.switches
    )
