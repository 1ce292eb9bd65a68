"""Brings the switches to the desired state, and tracks their progress to it.

This is all of the controller that is neither a library's nor HTTP's: the
OpenFlow application tells it what the switches say, the API tells it what is
wanted, and it answers with messages to send. It knows switches only as
`SwitchChannel`, so that tests can put a fake one behind it.

Every change of the desired state gets the next *revision*. What is sent to a
switch is sent under a *ticket*; when the switch's barrier reply brings the
ticket back, that switch stands at the revision the ticket was written at. A
call that changes the state waits until all switches concerned stand at its
revision. A switch that (re)connects is asked for its rules first and then sent
the difference. Between the two nothing else is sent to it: the difference will
contain it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
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
    RemoveFlow,
    Step,
    difference,
    move_steps,
    tenant_cookie,
    tenant_flows,
)
from controller.saved_state import StateStore
from controller.values import Conflict, DesiredState, Switch, Tenant

LOG = logging.getLogger(__name__)

# Messages of 64 kB with a switch's rules, some 100,000 of them.
REPORT_PARTS_MAX = 128
# Connected switches that are not in the network; beyond, the first is cut off.
UNKNOWN_SWITCHES_MAX = 1024
# From the turn of a tenant's traffic to a new tree to the old tree's end. Three
# times what a switch port queues.
DRAIN_S = 0.1
# Stands for the base rules where a tenant's id would stand.
_BASE = 0


class SwitchChannel(Protocol):
    """One connection to one switch. Sending never blocks for the switch's sake."""

    @property
    def dpid(self) -> int:
        """The switch's datapath id."""

    def request_flows(self, ticket: int) -> None:
        """Asks for all its rules; they come to `ControlPlane.reported`."""

    def send_batch(
        self,
        changes: Sequence[Change],
        ticket: int,
    ) -> None:
        """Sends changes, to be carried out all or none, and a barrier.

        All of it under `ticket`.
        """

    def hang_up(self) -> None:
        """Closes the connection."""


@dataclass(frozen=True)
class ChangeOutcome:
    """Switches that have not confirmed a change in time, or refused, and why."""

    missing: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(eq=False)
class _Session:
    """The state of one connected switch.

    `asked` and `syncing` are the tickets of the request for its rules and of
    the bundle with the difference, while they are under way; `confirmed` is the
    revision it stands at, -1 before it has been brought up for the first time;
    `synced` is False if it refused the difference.
    """

    channel: SwitchChannel
    asked: int | None = None
    syncing: int | None = None
    synced: bool = True
    report: FlowReport = field(default_factory=FlowReport)
    parts: int = 0
    revision_of: dict[int, int] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    confirmed: int = -1
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
    """The desired state, the connected switches, and messages under way.

    What changes the desired state saves it first: a call that raises OSError
    has changed nothing.
    """

    def __init__(self, store: StateStore | None = None) -> None:
        """Starts from what `store` holds; without one from nothing."""
        self._store = store
        self._state = store.load() if store else DesiredState()
        self._lock = threading.RLock()
        # dpid -> tenant's id (or _BASE) -> rules.
        self._flows: dict[int, dict[int, tuple[Flow, ...]]] = {}
        self._sessions: dict[int, _Session] = {}
        self._waits: list[_Wait] = []
        # Switches -> rules of others that were found there and removed.
        self._foreign: Counter[int] = Counter()
        self._revision = 0
        # Revisions at which tenants came: those who add one again wait for its.
        self._arrived = {tenant.id: 0 for tenant in self._state.tenants}
        self._tickets = itertools.count()
        for switch in self._state.switches:
            self._flows[switch.dpid] = {_BASE: BASE_FLOWS}
        for tenant in self._state.tenants:
            self._want(tenant)

    # -- what the switches say

    def connected(self, channel: SwitchChannel) -> None:
        """Takes a switch that has finished its handshake.

        A later connection of it replaces an earlier.
        """
        with self._lock:
            former = self._sessions.pop(channel.dpid, None)
            if former is None:
                former = self._surplus_session()
            session = _Session(channel)
            self._sessions[channel.dpid] = session
            if channel.dpid in self._flows:
                self._ask(session)
        if former is not None and former.channel is not channel:
            former.channel.hang_up()

    def _surplus_session(self) -> _Session | None:
        """The oldest session that has to make room for a switch, if any."""
        unknown = [
            dpid for dpid in self._sessions if dpid not in self._flows
        ]
        if len(unknown) < UNKNOWN_SWITCHES_MAX:
            return None
        return self._sessions.pop(unknown[0])

    def disconnected(self, channel: SwitchChannel) -> None:
        """Takes the end of a connection."""
        with self._lock:
            session = self._sessions.get(channel.dpid)
            # The end of a connection that a later one has replaced is no
            # news.
            if session is not None and session.channel is channel:
                del self._sessions[channel.dpid]

    def reported(
        self,
        channel: SwitchChannel,
        ticket: int,
        report: FlowReport,
        *,
        partial: bool,
    ) -> None:
        """Takes (part of) a switch's reply to a request for its rules.

        Raises ValueError at one part too many: then nothing has come of it.
        """
        with self._lock:
            session = self._sessions.get(channel.dpid)
            # Else the answer to an earlier question, perhaps of an earlier
            # connection.
            if session is None or session.asked != ticket:
                return
            session.report = session.report.joined(report)
            session.parts += 1
            if session.parts > REPORT_PARTS_MAX:
                session.asked = None
                session.report = FlowReport()
                raise ValueError(
                    "it reports its rules in more than "
                    f"{REPORT_PARTS_MAX} parts"
                )
            if not partial:
                self._sync(channel.dpid, session)

    def confirmed(self, channel: SwitchChannel, ticket: int) -> None:
        """Takes a switch's word that it has done everything up to a ticket."""
        with self._lock:
            session = self._sessions.get(channel.dpid)
            # Tickets are never given twice: else it was an earlier
            # connection's.
            if session is None or ticket not in session.revision_of:
                return
            refusal = session.refusals.pop(ticket, None)
            if ticket == session.syncing:
                session.syncing = None
                session.synced = refusal is None
            revision = session.revision_of.pop(ticket)
            self._advance(channel.dpid, session, revision, refusal)

    def refused(
        self,
        channel: SwitchChannel,
        ticket: int,
        reason: str,
    ) -> None:
        """Takes a switch's refusal of something sent under a ticket.

        Its barrier reply still comes.
        """
        with self._lock:
            session = self._sessions.get(channel.dpid)
            if session is None or session.channel is not channel:
                return
            session.error = reason
            if ticket in session.revision_of:
                # Open vSwitch refuses a bundle twice: by the rule at fault,
                # then as a whole. The first says more.
                session.refusals.setdefault(ticket, reason)

    # -- what is wanted

    def put_network(self, switches: Sequence[Switch]) -> None:
        """Replaces the network.

        Switches that are new and connected are brought up at once; see
        `wait_connected`. Rules of ours are taken off switches that leave.
        Raises `InvalidValues`, or `Conflict` if tenants lose their place.
        """
        with self._lock:
            state = self._state.with_network(switches)
            # Saved first: what cannot be saved has not changed.
            if self._store:
                self._store.save_network(state.switches)
            self._state = state
            self._revision += 1
            known = state.switch_by_dpid.keys()
            for dpid in sorted(self._flows.keys() - known):
                self._let_go(dpid)
            for dpid in sorted(known - self._flows.keys()):
                self._take_on(dpid)

    def _let_go(self, dpid: int) -> None:
        """Takes our rules off a switch that leaves the network."""
        del self._flows[dpid]
        session = self._sessions.get(dpid)
        if session is not None:
            clear = RemoveByCookie(COOKIE_TAG, COOKIE_TAG_MASK)
            self._send(session, (clear,), self._next_ticket())

    def _take_on(self, dpid: int) -> None:
        """Brings up a switch that is new in the network, if it is connected."""
        self._flows[dpid] = {_BASE: BASE_FLOWS}
        former = self._sessions.get(dpid)
        if former is not None:
            # A new session on the old connection: what was under way no longer
            # counts.
            session = _Session(former.channel)
            self._sessions[dpid] = session
            self._ask(session)

    def add_tenant(self, tenant: Tenant, timeout_s: float) -> ChangeOutcome:
        """Brings a tenant in and waits until all its switches have confirmed.

        The very same tenant may be given again: then this only waits. A switch
        that is missing after `timeout_s` gets the rules when it connects. If a
        switch refuses a rule the tenant is taken out again. Raises
        `InvalidValues` or `Conflict`.
        """
        with self._lock:
            if tenant in self._state.tenants:
                wait = self._waiting_for(
                    tenant.dpids, self._arrived[tenant.id]
                )
            else:
                wait = self._take_in(tenant)
        outcome = self._outcome(wait, timeout_s)
        if outcome.refused:
            undo = None
            with self._lock:
                # Another caller may have taken it out meanwhile.
                if tenant in self._state.tenants:
                    undo = self._take_out(tenant)
            if undo is not None:
                self._outcome(undo, timeout_s)
        return outcome

    def _want(self, tenant: Tenant) -> dict[int, tuple[Flow, ...]]:
        """A tenant's rules, which its switches ought to have from now on."""
        flows = tenant_flows(tenant)
        for dpid, rules in flows.items():
            self._flows[dpid][tenant.id] = rules
        return flows

    def _take_in(self, tenant: Tenant) -> _Wait:
        state = self._state.with_tenant(tenant)
        if self._store:
            self._store.save_tenant(tenant)
        self._state = state
        self._revision += 1
        self._arrived[tenant.id] = self._revision
        wait = self._waiting_for(tenant.dpids, self._revision)
        for dpid, flows in self._want(tenant).items():
            self._send_if_synced(dpid, tuple(map(AddFlow, flows)))
        return wait

    def move_tenant(
        self, tenant: Tenant, timeout_s: float
    ) -> ChangeOutcome:
        """Brings a tenant to another tree, in the order of `move_steps`.

        Returns after the last step. The tree that it has may be given again:
        then this only waits. A switch that is missing after `timeout_s` gets
        the rules when it connects. If a switch refuses one, the tenant goes
        back. Raises `UnknownTenant`, `InvalidValues`, or `Conflict` where more
        than its tree differs.
        """
        with self._lock:
            old = self._state.tenant(tenant.id)
            if (
                old.name != tenant.name
                or old.prefix != tenant.prefix
                or old.vms != tenant.vms
            ):
                raise Conflict(
                    [
                        f"tenant {tenant.id} is another: only its tree may differ"
                    ]
                )
        if old == tenant:
            nothing: Step = dict.fromkeys(tenant.dpids, ())
            return self._outcome(
                self._take_step(tenant, nothing), timeout_s
            )
        outcome = self._move(tenant, timeout_s)
        if outcome.refused:
            self._move(old, timeout_s)
        return outcome

    def remove_tenant(
        self, tenant_id: int, timeout_s: float
    ) -> ChangeOutcome:
        """Takes a tenant out and waits until its switches have confirmed.

        Raises `UnknownTenant`.
        """
        with self._lock:
            tenant = self._state.tenant(tenant_id)
            wait = self._take_out(tenant)
        return self._outcome(wait, timeout_s)

    def wait_connected(
        self,
        dpids: Iterable[int] | None,
        timeout_s: float,
    ) -> ChangeOutcome:
        """Waits until these switches (None: the network's) have their rules.

        A switch that refused what it lacked is named as refusing until it is
        repaired. Raises `Conflict` for a dpid that is not in the network.
        """
        with self._lock:
            wanted = sorted(self._flows)
            if dpids is not None:
                wanted = sorted(set(dpids))
            problems = []
            for dpid in wanted:
                if dpid not in self._flows:
                    problems.append(f"switch {dpid} is not in the network")
            if problems:
                raise Conflict(problems)
            # Any revision: it is enough that a switch was brought up.
            wait = self._waiting_for(wanted, revision=0)
            for dpid in wanted:
                session = self._sessions.get(dpid)
                if session is not None and not session.synced:
                    wait.refused[dpid] = (
                        session.error or "refused its rules"
                    )
        return self._outcome(wait, timeout_s)

    def reconcile(
        self,
        timeout_s: float,
    ) -> tuple[ChangeOutcome, list[dict[str, Any]]]:
        """Asks every switch for its rules, repairs what differs; the repairs."""
        with self._lock:
            self._revision += 1
            dpids = sorted(self._flows)
            wait = self._waiting_for(dpids, self._revision)
            for dpid in dpids:
                session = self._sessions.get(dpid)
                if session is not None:
                    # A request that is under way is replaced: its reply
                    # bears an older ticket and is passed over.
                    self._ask(session)
        outcome = self._outcome(wait, timeout_s)
        with self._lock:
            return outcome, self._repairs()

    def _repairs(self) -> list[dict[str, Any]]:
        """Of each switch that had differed: the rules added and removed."""
        repairs = []
        for switch in self._state.switches:
            session = self._sessions.get(switch.dpid)
            if session is None or session.repaired == (0, 0):
                continue
            added, removed = session.repaired
            repairs.append(
                {
                    "dpid": switch.dpid,
                    "name": switch.name,
                    "added": added,
                    "removed": removed,
                }
            )
        return repairs

    @property
    def state(self) -> DesiredState:
        """The desired state at this moment."""
        return self._state

    def view(self) -> dict[str, Any]:
        """Switches, tenants, and what is missing, as JSON."""
        with self._lock:
            switches = [*map(self._switch_view, self._state.switches)]
            missing = []
            for switch in switches:
                if not switch["confirmed"]:
                    missing.append(switch["name"])
            unknown = self._sessions.keys() - self._flows.keys()
            return {
                "revision": self._revision,
                "switches": switches,
                "missing": missing,
                "unknown_dpids": sorted(unknown),
                "tenants": [*map(self._tenant_view, self._state.tenants)],
                "flows": sum(switch["flows"] for switch in switches),
            }

    # -- messages under way

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
        session.report = FlowReport()
        session.parts = 0
        session.channel.request_flows(session.asked)

    def _sync(self, dpid: int, session: _Session) -> None:
        """Sends a switch the difference from what it has reported."""
        wanted: list[Flow] = []
        for flows in self._flows.get(dpid, {}).values():
            wanted += flows
        changes = difference(wanted, session.report)
        adds = sum(isinstance(change, AddFlow) for change in changes)
        session.repaired = (adds, len(changes) - adds)
        foreign = len(session.report.foreign_cookies)
        if foreign:
            self._foreign[dpid] += foreign
            LOG.warning(
                "switch %s: %d flow rules of others are removed",
                self._name(dpid),
                foreign,
            )
        session.asked = None
        session.report = FlowReport()
        session.error = None
        if changes:
            session.syncing = self._next_ticket()
            self._send(session, changes, session.syncing)
        else:
            session.synced = True
            # Nothing is sent, so no barrier will come: the report itself
            # confirms.
            self._advance(dpid, session, self._revision, refusal=None)

    def _send_if_synced(
        self,
        dpid: int,
        changes: Sequence[Change],
    ) -> None:
        session = self._sessions.get(dpid)
        # One that is asked for its rules gets these with the difference.
        if session is not None and session.asked is None:
            self._send(session, changes, self._next_ticket())

    def _send(
        self,
        session: _Session,
        changes: Sequence[Change],
        ticket: int,
    ) -> None:
        session.revision_of[ticket] = self._revision
        session.channel.send_batch(changes, ticket)

    def _next_ticket(self) -> int:
        """The next ticket: a transaction id in the half that is ours.

        The library uses the lower half for its own messages.
        """
        return 0x80000000 | next(self._tickets) & 0x7FFFFFFF

    def _advance(
        self,
        dpid: int,
        session: _Session,
        revision: int,
        refusal: str | None,
    ) -> None:
        # A report can bring it further than a reply that is still under way.
        session.confirmed = max(session.confirmed, revision)
        for wait in self._waits:
            if dpid in wait.pending and session.confirmed >= wait.revision:
                wait.pending.discard(dpid)
                if refusal is not None:
                    wait.refused[dpid] = refusal
                # The last of its switches, whether it confirmed or refused.
                if not wait.pending:
                    wait.done.set()

    def _move(self, tenant: Tenant, timeout_s: float) -> ChangeOutcome:
        """Takes the steps of a move.

        The outcome is that of the first two, after which the tenant's traffic
        is on its new tree.
        """
        until_s = time.monotonic() + timeout_s
        added, turned, removed = self._begin_move(tenant)
        missing: dict[str, None] = {}
        refused: dict[str, str] = {}
        for step in (added, turned):
            outcome = self._outcome_by(
                self._take_step(tenant, step), until_s
            )
            missing |= dict.fromkeys(outcome.missing)
            refused |= dict(outcome.refused)
        # Packets that left by the old tree are still on their way.
        time.sleep(DRAIN_S)
        # A core that is gone itself is not waited for: should it come back, it
        # gets the difference.
        last = {
            dpid: changes
            for dpid, changes in removed.items()
            if dpid in self._sessions
        }
        self._outcome_by(self._take_step(tenant, last), until_s)
        return ChangeOutcome(tuple(missing), tuple(refused.items()))

    def _begin_move(
        self,
        tenant: Tenant,
    ) -> tuple[Step, Step, Step]:
        """The steps to a tree that is wanted from now on."""
        with self._lock:
            former = self._state.tenant(tenant.id)
            # No revision yet: each step of the move takes one as it is
            # sent.
            state = self._state.without_tenant(tenant.id).with_tenant(
                tenant
            )
            if self._store:
                self._store.save_tenant(tenant)
            self._state = state
            old = tenant_flows(former)
            for dpid in old:
                del self._flows[dpid][tenant.id]
            return move_steps(old, self._want(tenant))

    def _take_step(self, tenant: Tenant, step: Step) -> _Wait:
        """Sends one step of a move, as far as it is still wanted.

        Meanwhile the tenant may have been moved again, or taken out.
        """
        with self._lock:
            self._revision += 1
            wait = self._waiting_for(step, self._revision)
            for dpid, changes in step.items():
                wanted = self._flows.get(dpid, {}).get(tenant.id, ())
                self._send_if_synced(dpid, _still_due(changes, wanted))
            return wait

    def _take_out(self, tenant: Tenant) -> _Wait:
        state = self._state.without_tenant(tenant.id)
        if self._store:
            self._store.forget_tenant(tenant.id)
        self._state = state
        self._revision += 1
        del self._arrived[tenant.id]
        wait = self._waiting_for(tenant.dpids, self._revision)
        remove = RemoveByCookie(tenant_cookie(tenant.id))
        for dpid in tenant.dpids:
            del self._flows[dpid][tenant.id]
            self._send_if_synced(dpid, (remove,))
        return wait

    def _waiting_for(
        self,
        dpids: Iterable[int],
        revision: int,
    ) -> _Wait:
        wait = _Wait(revision, set())
        for dpid in dpids:
            session = self._sessions.get(dpid)
            if session is None or session.confirmed < revision:
                wait.pending.add(dpid)
        if wait.pending:
            self._waits.append(wait)
        else:
            wait.done.set()
        return wait

    def _outcome(self, wait: _Wait, timeout_s: float) -> ChangeOutcome:
        return self._outcome_by(wait, time.monotonic() + timeout_s)

    def _outcome_by(self, wait: _Wait, until_s: float) -> ChangeOutcome:
        # Asked again: green threads may wake before their time.
        while not wait.done.is_set() and time.monotonic() < until_s:
            wait.done.wait(max(0.0, until_s - time.monotonic()))
        with self._lock:
            if wait in self._waits:
                self._waits.remove(wait)
            missing = [*map(self._name, sorted(wait.pending))]
            refused = []
            for dpid, reason in sorted(wait.refused.items()):
                refused.append((self._name(dpid), reason))
        return ChangeOutcome(tuple(missing), tuple(refused))

    def _name(self, dpid: int) -> str:
        switch = self._state.switch_by_dpid.get(dpid)
        if switch is None:
            return f"dpid {dpid}"
        return switch.name

    def _tenant_view(self, tenant: Tenant) -> dict[str, Any]:
        flows = sum(
            len(self._flows[dpid][tenant.id]) for dpid in tenant.dpids
        )
        return {
            "id": tenant.id,
            "name": tenant.name,
            "prefix": tenant.prefix,
            "vms": len(tenant.vms),
            "flows": flows,
        }

    def _switch_view(self, switch: Switch) -> dict[str, Any]:
        """A switch as JSON; `confirmed`: it has all the rules it ought to have."""
        view = {
            "dpid": switch.dpid,
            "name": switch.name,
            "role": switch.role,
            "connected": False,
            "confirmed": self._stands(switch.dpid),
            "flows": sum(map(len, self._flows[switch.dpid].values())),
            "foreign_flows": self._foreign[switch.dpid],
            "error": None,
        }
        session = self._sessions.get(switch.dpid)
        if session is not None:
            view["connected"] = True
            view["error"] = session.error
        return view


def _still_due(
    changes: Iterable[AddFlow | RemoveFlow],
    wanted: Sequence[Flow],
) -> list[Change]:
    """Changes that lead to the rules that are wanted now."""
    keys = {flow.key for flow in wanted}
    due: list[Change] = []
    for change in changes:
        if isinstance(change, AddFlow):
            is_due = change.flow in wanted
        else:
            is_due = change.flow.key not in keys
        if is_due:
            due.append(change)
    return due
