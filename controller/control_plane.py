"""Brings the switches to the desired state, and tracks their progress to it.

This is all of the controller that is neither a library's nor HTTP's: the OpenFlow application
tells it what the switches say, the API tells it what is wanted, and it answers with messages to
send. It knows switches only as `Channel`, so that tests can put a fake one behind it.

Every change of the desired state gets the next *revision*. What is sent to a switch is sent under
a *ticket*; when the switch's barrier reply brings the ticket back, that switch stands at the
revision the ticket was written at. Whoever changed the state waits until all switches concerned
stand at his revision. A switch that (re)connects is asked for its rules first and then given the
difference; while it is asked nothing else is sent to it, as the difference will contain it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.flow_rules import (
    BASE_FLOWS,
    COOKIE_TAG,
    COOKIE_TAG_MASK,
    AddFlow,
    Change,
    Flow,
    FlowReport,
    RemoveByCookie,
    Step,
    difference,
    move_steps,
    tenant_cookie,
    tenant_flows,
)
from controller.saved_state import StateStore
from controller.values import Conflict, DesiredState, Switch, Tenant

REPORT_PARTS_MAX = 128
"""Messages of 64 kB in which a switch reports its rules, some 100,000 of them."""
UNKNOWN_SWITCHES_MAX = 1024
"""Connected switches that are not in the network: one more, and the first of them is cut off."""
DRAIN_S = 0.1
"""Between the turn of a tenant's traffic to another tree and the end of its rules on the old one:
three times what a switch port queues."""
_BASE = 0
"""Stands for the base rules where a tenant's id would stand."""


class Channel(Protocol):
    """One connection to one switch. Sending never blocks for the switch's sake."""

    @property
    def dpid(self) -> int:
        """The switch's datapath id."""
        ...

    def request_flows(self, ticket: int) -> None:
        """Ask for all its rules; they come back through `ControlPlane.reported`."""
        ...

    def send_batch(self, changes: Sequence[Change], ticket: int) -> None:
        """Send these changes, to be carried out all or none, and a barrier, all under `ticket`."""
        ...

    def hang_up(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The progress of a change: switches that have not confirmed in time, or refused and why."""

    missing: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(eq=False)
class _Session:
    """The state of one connected switch.

    `asked` and `syncing` are the tickets of the request for its rules and of the bundle with the
    difference, while they are under way; `confirmed` is the revision it stands at, -1 before it
    has been brought up for the first time; `synced` is False if it refused the difference.
    """

    channel: Channel
    asked: int | None = None
    syncing: int | None = None
    synced: bool = True
    report: FlowReport = field(default_factory=FlowReport)
    parts: int = 0
    revision_of: dict[int, int] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    confirmed: int = -1
    foreign_flows: int = 0
    error: str | None = None
    repaired: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class _Wait:
    """A waiter for these switches to reach a revision."""

    revision: int
    pending: set[int]
    refused: dict[int, str] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class ControlPlane:
    """The desired state, the connected switches, and what is under way between them.

    What changes the desired state saves it first: a call that raises OSError has changed nothing.
    """

    def __init__(self, store: StateStore | None = None) -> None:
        """Starts from what `store` holds; without one from nothing."""
        self._store = store
        self._state = store.load() if store else DesiredState()
        self._lock = threading.RLock()
        self._flows: dict[int, dict[int, tuple[Flow, ...]]] = {}
        self._sessions: dict[int, _Session] = {}
        self._waits: list[_Wait] = []
        self._revision = 0
        self._arrived = {tenant.id: 0 for tenant in self._state.tenants}
        self._tickets = itertools.count()
        for switch in self._state.switches:
            self._flows[switch.dpid] = {_BASE: BASE_FLOWS}
        for tenant in self._state.tenants:
            for dpid, flows in tenant_flows(tenant).items():
                self._flows[dpid][tenant.id] = flows

    # ------------------------------------------------------------------- what the switches say

    def connected(self, channel: Channel) -> None:
        """A switch has finished its handshake. A later connection of it replaces an earlier."""
        with self._lock:
            former = self._sessions.pop(channel.dpid, None)
            unknown = [dpid for dpid in self._sessions if dpid not in self._flows]
            if former is None and len(unknown) >= UNKNOWN_SWITCHES_MAX:
                former = self._sessions.pop(unknown[0])
            session = self._sessions[channel.dpid] = _Session(channel)
            if channel.dpid in self._flows:
                self._ask(session)
        if former is not None and former.channel is not channel:
            former.channel.hang_up()

    def disconnected(self, channel: Channel) -> None:
        """A connection has ended."""
        with self._lock:
            session = self._sessions.get(channel.dpid)
            if session is not None and session.channel is channel:
                del self._sessions[channel.dpid]

    def reported(self, channel: Channel, ticket: int, report: FlowReport, *, more: bool) -> None:
        """Takes (part of) a switch's reply to a request for its rules.

        Raises ValueError at one part too many: then nothing has come of it.
        """
        with self._lock:
            session = self._sessions.get(channel.dpid)
            if session is None or session.asked != ticket:
                return  # An answer to an earlier question, perhaps of an earlier connection.
            session.report = session.report.joined(report)
            session.parts += 1
            if session.parts > REPORT_PARTS_MAX:
                session.asked, session.report = None, FlowReport()
                raise ValueError(f"it reports its rules in more than {REPORT_PARTS_MAX} parts")
            if not more:
                self._sync(channel.dpid, session)

    def confirmed(self, channel: Channel, ticket: int) -> None:
        """A switch has carried out everything up to this ticket."""
        with self._lock:
            session = self._sessions.get(channel.dpid)
            if session is None or ticket not in session.revision_of:
                return  # Tickets are never given twice: this one was an earlier connection's.
            refusal = session.refusals.pop(ticket, None)
            if ticket == session.syncing:
                session.syncing, session.synced = None, refusal is None
            self._advance(channel.dpid, session, session.revision_of.pop(ticket), refusal)

    def refused(self, channel: Channel, ticket: int, reason: str) -> None:
        """A switch has refused something sent under this ticket; its barrier reply still comes."""
        with self._lock:
            session = self._sessions.get(channel.dpid)
            if session is None or session.channel is not channel:
                return
            session.error = reason
            if ticket in session.revision_of:
                session.refusals.setdefault(ticket, reason)

    # ---------------------------------------------------------------------- what is wanted

    def put_network(self, switches: Sequence[Switch]) -> None:
        """Replace the network. Raises `InvalidValues`, or `Conflict` if tenants lose their place.

        Switches that are new and connected are brought up at once; see `wait_connected`. Rules of
        ours are taken off switches that leave.
        """
        with self._lock:
            state = self._state.with_network(switches)
            if self._store:
                self._store.save_network(state.switches)
            self._state = state
            self._revision += 1
            left = sorted(self._flows.keys() - self._state.switch_by_dpid.keys())
            came = sorted(self._state.switch_by_dpid.keys() - self._flows.keys())
            for dpid in left:
                del self._flows[dpid]
                if dpid in self._sessions:
                    clear = (RemoveByCookie(COOKIE_TAG, COOKIE_TAG_MASK),)
                    self._send(self._sessions[dpid], clear, self._next_ticket())
            for dpid in came:
                self._flows[dpid] = {_BASE: BASE_FLOWS}
                if dpid in self._sessions:
                    # A new session on the old connection: what was under way no longer counts.
                    session = self._sessions[dpid] = _Session(self._sessions[dpid].channel)
                    self._ask(session)

    def add_tenant(self, tenant: Tenant, timeout_s: float) -> Outcome:
        """Bring a tenant in and wait until all its switches have confirmed.

        Raises `InvalidValues` or `Conflict`. The very same tenant may be given again: then this
        only waits. Whoever is missing after `timeout_s` gets the rules when it connects. If a
        switch refuses a rule the tenant is taken out again.
        """
        with self._lock:
            if tenant not in self._state.tenants:
                state = self._state.with_tenant(tenant)
                if self._store:
                    self._store.save_tenant(tenant)
                self._state = state
                self._revision += 1
                self._arrived[tenant.id] = self._revision
                wait = self._waiting_for(tenant.dpids, self._revision)
                for dpid, flows in tenant_flows(tenant).items():
                    self._flows[dpid][tenant.id] = flows
                    self._send_if_synced(dpid, tuple(map(AddFlow, flows)))
            else:
                wait = self._waiting_for(tenant.dpids, self._arrived[tenant.id])
        outcome = self._outcome(wait, timeout_s)
        if outcome.refused:
            with self._lock:
                undo = self._take_out(tenant) if tenant in self._state.tenants else None
            if undo is not None:
                self._outcome(undo, timeout_s)
        return outcome

    def move_tenant(self, tenant: Tenant, timeout_s: float) -> Outcome:
        """Bring a tenant to another tree, in the order of `move_steps`; returns after the last.

        Raises `UnknownTenant`, `InvalidValues`, or `Conflict` where more than its tree differs.
        The tree that it has may be given again: then this only waits. Whoever is missing after
        `timeout_s` gets the rules when it connects. If a switch refuses one, the tenant goes back.
        """
        with self._lock:
            old = self._state.tenant(tenant.id)
            if (old.name, old.prefix, old.vms) != (tenant.name, tenant.prefix, tenant.vms):
                raise Conflict([f"tenant {tenant.id} is another: only its tree may differ"])
        if old == tenant:
            nothing: Step = dict.fromkeys(tenant.dpids, ())
            return self._outcome(self._take_step(tenant, nothing), timeout_s)
        outcome = self._moved(tenant, timeout_s)
        if outcome.refused:
            self._moved(old, timeout_s)
        return outcome

    def remove_tenant(self, tenant_id: int, timeout_s: float) -> Outcome:
        """Take a tenant out and wait until its switches have confirmed. `UnknownTenant`."""
        with self._lock:
            tenant = self._state.tenant(tenant_id)
            wait = self._take_out(tenant)
        return self._outcome(wait, timeout_s)

    def wait_connected(self, dpids: Iterable[int] | None, timeout_s: float) -> Outcome:
        """Wait until these switches (all of the network if None) have their rules.

        A switch that refused what it lacked is named as refusing until it is repaired. Raises
        `Conflict` for a dpid that is not in the network.
        """
        with self._lock:
            wanted = sorted(self._flows) if dpids is None else sorted(set(dpids))
            unknown = [dpid for dpid in wanted if dpid not in self._flows]
            if unknown:
                raise Conflict(f"switch {dpid} is not in the network" for dpid in unknown)
            wait = self._waiting_for(wanted, 0)
            for dpid in wanted:
                session = self._sessions.get(dpid)
                if session is not None and not session.synced:
                    wait.refused[dpid] = session.error or "refused its rules"
        return self._outcome(wait, timeout_s)

    def reconcile(self, timeout_s: float) -> tuple[Outcome, list[dict[str, Any]]]:
        """Ask every switch for its rules and repair what differs. Returns the repairs."""
        with self._lock:
            self._revision += 1
            wait = self._waiting_for(sorted(self._flows), self._revision)
            for dpid in sorted(self._flows):
                session = self._sessions.get(dpid)
                if session is not None:
                    self._ask(session)
        outcome = self._outcome(wait, timeout_s)
        with self._lock:
            return outcome, [
                {"dpid": switch.dpid, "name": switch.name, "added": added, "removed": removed}
                for switch in self._state.switches
                if switch.dpid in self._sessions
                for added, removed in [self._sessions[switch.dpid].repaired]
                if added or removed
            ]

    @property
    def state(self) -> DesiredState:
        """The desired state at this moment."""
        return self._state

    def view(self) -> dict[str, Any]:
        """All that there is to show, as JSON: switches, tenants, what is missing, rules."""
        with self._lock:
            switches = [self._switch_view(switch) for switch in self._state.switches]
            return {
                "revision": self._revision,
                "switches": switches,
                "missing": [switch["name"] for switch in switches if not switch["confirmed"]],
                "unknown_dpids": sorted(self._sessions.keys() - self._flows.keys()),
                "tenants": [self._tenant_view(tenant) for tenant in self._state.tenants],
                "flows": sum(switch["flows"] for switch in switches),
            }

    # --------------------------------------------------------------------------- the works

    def _stands(self, dpid: int) -> bool:
        """True if a switch has confirmed everything that is wanted of it."""
        session = self._sessions.get(dpid)
        return (
            session is not None
            and session.synced
            and session.asked is None
            and session.confirmed >= 0
            and not session.revision_of
        )

    def _ask(self, session: _Session) -> None:
        session.asked = self._next_ticket()
        session.report, session.parts = FlowReport(), 0
        session.channel.request_flows(session.asked)

    def _sync(self, dpid: int, session: _Session) -> None:
        wanted = [flow for flows in self._flows.get(dpid, {}).values() for flow in flows]
        changes = difference(wanted, session.report)
        adds = sum(isinstance(change, AddFlow) for change in changes)
        session.repaired = (adds, len(changes) - adds)
        session.foreign_flows = session.report.foreign_count
        session.asked, session.report, session.error = None, FlowReport(), None
        if changes:
            session.syncing = self._next_ticket()
            self._send(session, changes, session.syncing)
        else:
            session.synced = True
            self._advance(dpid, session, self._revision, None)

    def _send_if_synced(self, dpid: int, changes: Sequence[Change]) -> None:
        session = self._sessions.get(dpid)
        if session is not None and session.asked is None:
            self._send(session, changes, self._next_ticket())

    def _send(self, session: _Session, changes: Sequence[Change], ticket: int) -> None:
        session.revision_of[ticket] = self._revision
        session.channel.send_batch(changes, ticket)

    def _next_ticket(self) -> int:
        """Tickets travel as transaction ids; the library uses the lower half of these."""
        return 0x80000000 | next(self._tickets) & 0x7FFFFFFF

    def _advance(self, dpid: int, session: _Session, revision: int, refusal: str | None) -> None:
        session.confirmed = max(session.confirmed, revision)
        for wait in self._waits:
            if dpid in wait.pending and session.confirmed >= wait.revision:
                wait.pending.discard(dpid)
                if refusal is not None:
                    wait.refused[dpid] = refusal
                if not wait.pending:
                    wait.done.set()

    def _moved(self, tenant: Tenant, timeout_s: float) -> Outcome:
        """The outcome of the steps in which it is waited for the tree that is wanted."""
        until_s = time.monotonic() + timeout_s
        added, turned, removed = self._begin_move(tenant)
        outcomes = []
        for step in (added, turned):
            wait = self._take_step(tenant, step)
            outcomes.append(self._outcome(wait, max(0.0, until_s - time.monotonic())))
        time.sleep(DRAIN_S)
        # A core that is gone itself is not waited for: should it come back, it has the difference.
        removed = {dpid: changes for dpid, changes in removed.items() if dpid in self._sessions}
        self._outcome(self._take_step(tenant, removed), max(0.0, until_s - time.monotonic()))
        refused = dict(pair for each in outcomes for pair in each.refused)
        missing = dict.fromkeys(name for each in outcomes for name in each.missing)
        return Outcome(tuple(missing), tuple(refused.items()))

    def _begin_move(self, tenant: Tenant) -> tuple[Step, Step, Step]:
        """The tree is wanted from now on, and what it takes to have it."""
        with self._lock:
            former = self._state.tenant(tenant.id)
            state = self._state.without_tenant(tenant.id).with_tenant(tenant)
            if self._store:
                self._store.save_tenant(tenant)
            self._state = state
            old, new = tenant_flows(former), tenant_flows(tenant)
            for dpid in old:
                del self._flows[dpid][tenant.id]
            for dpid, flows in new.items():
                self._flows[dpid][tenant.id] = flows
            return move_steps(old, new)

    def _take_step(self, tenant: Tenant, step: Step) -> _Wait:
        """Without what is not wanted any more of a tenant moved again, or taken out, meanwhile."""
        with self._lock:
            self._revision += 1
            wait = self._waiting_for(step, self._revision)
            for dpid, changes in step.items():
                wanted = self._flows.get(dpid, {}).get(tenant.id, ())
                keys = {flow.key for flow in wanted}
                due = [
                    each
                    for each in changes
                    if (
                        each.flow in wanted
                        if isinstance(each, AddFlow)
                        else each.flow.key not in keys
                    )
                ]
                self._send_if_synced(dpid, due)
            return wait

    def _take_out(self, tenant: Tenant) -> _Wait:
        state = self._state.without_tenant(tenant.id)
        if self._store:
            self._store.forget_tenant(tenant.id)
        self._state = state
        self._revision += 1
        del self._arrived[tenant.id]
        wait = self._waiting_for(tenant.dpids, self._revision)
        for dpid in tenant.dpids:
            del self._flows[dpid][tenant.id]
            self._send_if_synced(dpid, (RemoveByCookie(tenant_cookie(tenant.id)),))
        return wait

    def _waiting_for(self, dpids: Iterable[int], revision: int) -> _Wait:
        pending = {
            dpid
            for dpid in dpids
            if dpid not in self._sessions or self._sessions[dpid].confirmed < revision
        }
        wait = _Wait(revision, pending)
        if pending:
            self._waits.append(wait)
        else:
            wait.done.set()
        return wait

    def _outcome(self, wait: _Wait, timeout_s: float) -> Outcome:
        deadline = time.monotonic() + timeout_s
        while not wait.done.is_set() and time.monotonic() < deadline:
            wait.done.wait(max(0.0, deadline - time.monotonic()))
        with self._lock:
            if wait in self._waits:
                self._waits.remove(wait)
            return Outcome(
                tuple(self._name(dpid) for dpid in sorted(wait.pending)),
                tuple((self._name(dpid), why) for dpid, why in sorted(wait.refused.items())),
            )

    def _name(self, dpid: int) -> str:
        switch = self._state.switch_by_dpid.get(dpid)
        return switch.name if switch else f"dpid {dpid}"

    def _tenant_view(self, tenant: Tenant) -> dict[str, Any]:
        flows = sum(len(self._flows[dpid][tenant.id]) for dpid in tenant.dpids)
        named = {"id": tenant.id, "name": tenant.name, "prefix": tenant.prefix}
        return {**named, "vms": len(tenant.vms), "flows": flows}

    def _switch_view(self, switch: Switch) -> dict[str, Any]:
        """`confirmed`: it has all the rules it ought to have."""
        session = self._sessions.get(switch.dpid)
        return {
            "dpid": switch.dpid,
            "name": switch.name,
            "role": switch.role,
            "connected": session is not None,
            "confirmed": self._stands(switch.dpid),
            "flows": sum(len(flows) for flows in self._flows[switch.dpid].values()),
            "foreign_flows": session.foreign_flows if session else 0,
            "error": session.error if session else None,
        }
