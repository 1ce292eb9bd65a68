"""Brings the switches to the desired state, and tracks their progress to it.

The controller's logic, free of OpenFlow libraries and of HTTP. The OpenFlow
application passes on the switches' messages, and the API passes on changes of
the desired state. Messages to a switch go through its `SwitchChannel`, for
which tests have a fake.

Every change of the desired state gets the next *revision*. Every batch of
messages to a switch bears a *ticket*, for which the revision at its sending is
kept. The switch's barrier reply returns the ticket: the switch has then
*confirmed* that revision. A call that changes the state waits until all
switches concerned have confirmed its revision.

A switch that (re)connects is first asked for its rules, then sent the
difference from the wanted ones. Between the two nothing else is sent to it,
as the difference will contain it.
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

# Messages of 64 kB in a switch's report: room for some 100,000 rules.
REPORT_PARTS_MAX = 128
# Connected switches that are not in the network. When another one connects,
# the oldest is disconnected.
UNKNOWN_SWITCHES_MAX = 1024
# Between the turn of a tenant's traffic to its new tree and the removal of the
# old tree's rules. Three times the longest queueing delay of a switch port.
DRAIN_S = 0.1
# Key of the base rules among the tenants' ids.
_BASE = 0


class SwitchChannel(Protocol):
    """One connection to one switch. Sending does not wait for the switch."""

    @property
    def dpid(self) -> int:
        """The switch's datapath id."""

    def request_flows(self, ticket: int) -> None:
        """Asks for all the switch's rules.

        The reply goes to `ControlPlane.reported`.
        """

    def send_batch(
        self,
        changes: Sequence[Change],
        ticket: int,
    ) -> None:
        """Sends changes as one transaction, then a barrier, under `ticket`.

        The switch carries out either all changes or none.
        """

    def hang_up(self) -> None:
        """Closes the connection."""


@dataclass(frozen=True)
class ChangeOutcome:
    """Names of the switches that have not made a change.

    `missing` have not confirmed it in time. `refused` are pairs of a switch
    and its reason.
    """

    missing: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(eq=False)
class _Session:
    """The state of one connected switch.

    `request_ticket` is that of the request for its rules and `sync_ticket`
    that of the batch with the difference, each None unless under way. `synced`
    is False if the switch refused the difference. `revision_of` and `refusals`
    are by ticket. `confirmed_revision` is -1 before the switch has all its
    rules for the first time. `repaired` counts the rules that the last
    difference added and removed.
    """

    channel: SwitchChannel
    request_ticket: int | None = None
    sync_ticket: int | None = None
    synced: bool = True
    report: FlowReport = field(default_factory=FlowReport)
    parts: int = 0
    revision_of: dict[int, int] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    confirmed_revision: int = -1
    error: str | None = None
    repaired: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class _Wait:
    """A wait until switches have confirmed a revision.

    `pending` are the dpids still to confirm. `done` is set when none is left.
    """

    revision: int
    pending: set[int]
    refused: dict[int, str] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class ControlPlane:
    """The desired state, the connected switches, and messages under way.

    A change of the desired state is saved before it takes effect: a call that
    raises OSError has changed nothing.
    """

    def __init__(self, store: StateStore | None = None) -> None:
        """Starts from the state in `store`; without a store, empty."""
        self._store = store
        self._state = store.load() if store else DesiredState()
        self._lock = threading.RLock()
        # dpid -> tenant's id (or _BASE) -> wanted rules.
        self._flows: dict[int, dict[int, tuple[Flow, ...]]] = {}
        self._sessions: dict[int, _Session] = {}
        self._waits: list[_Wait] = []
        # dpid -> number of other programs' rules that were removed there.
        self._foreign: Counter[int] = Counter()
        self._revision = 0
        # Tenant's id -> revision of its addition: a call that adds the same
        # tenant again waits for that one.
        self._arrived = {tenant.id: 0 for tenant in self._state.tenants}
        self._tickets = itertools.count()
        for switch in self._state.switches:
            self._flows[switch.dpid] = {_BASE: BASE_FLOWS}
        for tenant in self._state.tenants:
            self._set_wanted(tenant)

    # -- events of the switches

    def connected(self, channel: SwitchChannel) -> None:
        """Registers the connection of a switch that has finished its handshake.

        It replaces an earlier connection of the same switch.
        """
        with self._lock:
            former = self._sessions.pop(channel.dpid, None)
            if former is None:
                former = self._surplus_session()
            session = _Session(channel)
            self._sessions[channel.dpid] = session
            if channel.dpid in self._flows:
                self._request_report(session)
        if former is not None and former.channel is not channel:
            former.channel.hang_up()

    def _surplus_session(self) -> _Session | None:
        """Removes and returns the oldest unknown switch's session.

        None while fewer than UNKNOWN_SWITCHES_MAX of them are connected.
        """
        unknown = [
            dpid for dpid in self._sessions if dpid not in self._flows
        ]
        if len(unknown) < UNKNOWN_SWITCHES_MAX:
            return None
        return self._sessions.pop(unknown[0])

    def disconnected(self, channel: SwitchChannel) -> None:
        """Forgets a connection that has ended."""
        with self._lock:
            session = self._sessions.get(channel.dpid)
            # A later connection may have replaced the one that ended.
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

        Sends the difference after the last part. Raises ValueError after more
        than REPORT_PARTS_MAX parts, and drops them all.
        """
        with self._lock:
            session = self._sessions.get(channel.dpid)
            # Replies to earlier requests are ignored, as those of an earlier
            # connection.
            if session is None or session.request_ticket != ticket:
                return
            session.report = session.report.joined(report)
            session.parts += 1
            if session.parts > REPORT_PARTS_MAX:
                session.request_ticket = None
                session.report = FlowReport()
                raise ValueError(
                    "it reports its rules in more than "
                    f"{REPORT_PARTS_MAX} parts"
                )
            if not partial:
                self._sync(channel.dpid, session)

    def confirmed(self, channel: SwitchChannel, ticket: int) -> None:
        """Takes a barrier reply: everything up to a ticket is carried out."""
        with self._lock:
            session = self._sessions.get(channel.dpid)
            # No ticket is used twice: an unknown one is of an earlier
            # connection.
            if session is None or ticket not in session.revision_of:
                return
            refusal = session.refusals.pop(ticket, None)
            if ticket == session.sync_ticket:
                session.sync_ticket = None
                session.synced = refusal is None
            revision = session.revision_of.pop(ticket)
            self._advance(channel.dpid, session, revision, refusal)

    def refused(
        self,
        channel: SwitchChannel,
        ticket: int,
        reason: str,
    ) -> None:
        """Keeps a switch's refusal of a message that was sent under a ticket.

        Waits end only with the barrier reply, which still comes.
        """
        with self._lock:
            session = self._sessions.get(channel.dpid)
            if session is None or session.channel is not channel:
                return
            session.error = reason
            if ticket in session.revision_of:
                # Open vSwitch refuses a bundle twice: first with the rule at
                # fault, then as a whole. The first reason is the better.
                session.refusals.setdefault(ticket, reason)

    # -- changes of the desired state

    def put_network(self, switches: Sequence[Switch]) -> None:
        """Replaces the network.

        New switches that are connected get their rules, which
        `wait_connected` waits for. Switches that leave lose our rules. Raises
        `InvalidValues`, or `Conflict` if a tenant's ports are not in it.
        """
        with self._lock:
            state = self._state.with_network(switches)
            # Saved first, so that nothing has changed if it cannot be saved.
            if self._store:
                self._store.save_network(state.switches)
            self._state = state
            self._revision += 1
            known = state.switch_by_dpid.keys()
            for dpid in sorted(self._flows.keys() - known):
                self._clear_switch(dpid)
            for dpid in sorted(known - self._flows.keys()):
                self._bring_up_switch(dpid)

    def _clear_switch(self, dpid: int) -> None:
        """Removes our rules from a switch that leaves the network."""
        del self._flows[dpid]
        session = self._sessions.get(dpid)
        if session is not None:
            # The difference would remove others' rules, too.
            session.request_ticket = None
            clear = RemoveByCookie(COOKIE_TAG, COOKIE_TAG_MASK)
            self._send(session, (clear,), self._next_ticket())

    def _bring_up_switch(self, dpid: int) -> None:
        """Includes a switch in the network; asks for its rules if connected."""
        self._flows[dpid] = {_BASE: BASE_FLOWS}
        former = self._sessions.get(dpid)
        if former is not None:
            # A new session on the same connection, so that replies to earlier
            # messages are ignored.
            session = _Session(former.channel)
            self._sessions[dpid] = session
            self._request_report(session)

    def add_tenant(self, tenant: Tenant, timeout_s: float) -> ChangeOutcome:
        """Adds a tenant and waits until all its switches have confirmed.

        For a tenant that is there already, with equal values, it only waits. A
        switch that is missing after `timeout_s` gets the rules when it
        connects. If a switch refuses a rule, the tenant is removed again.
        Raises `InvalidValues` or `Conflict`.
        """
        with self._lock:
            if tenant in self._state.tenants:
                wait = self._waiting_for(
                    tenant.dpids, self._arrived[tenant.id]
                )
            else:
                wait = self._begin_addition(tenant)
        outcome = self._outcome_within(wait, timeout_s)
        if outcome.refused:
            undo = None
            with self._lock:
                # Another caller may have removed it meanwhile.
                if tenant in self._state.tenants:
                    undo = self._begin_removal(tenant)
            if undo is not None:
                self._outcome_within(undo, timeout_s)
        return outcome

    def _set_wanted(self, tenant: Tenant) -> dict[int, tuple[Flow, ...]]:
        """Makes a tenant's rules wanted, and returns them by dpid."""
        flows = tenant_flows(tenant)
        for dpid, rules in flows.items():
            self._flows[dpid][tenant.id] = rules
        return flows

    def _begin_addition(self, tenant: Tenant) -> _Wait:
        state = self._state.with_tenant(tenant)
        if self._store:
            self._store.save_tenant(tenant)
        self._state = state
        self._revision += 1
        self._arrived[tenant.id] = self._revision
        wait = self._waiting_for(tenant.dpids, self._revision)
        for dpid, flows in self._set_wanted(tenant).items():
            self._send_if_synced(dpid, tuple(map(AddFlow, flows)))
        return wait

    def move_tenant(
        self, tenant: Tenant, timeout_s: float
    ) -> ChangeOutcome:
        """Moves a tenant to another tree, in the order of `move_steps`.

        Returns after the last step. If the tenant has that tree already, it
        only waits. A switch that is missing after `timeout_s` gets the rules
        when it connects. If a switch refuses a rule, the tenant moves back to
        its old tree. Raises `UnknownTenant`, `InvalidValues`, or `Conflict` if
        more than the tree differs.
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
            # Without changes, each switch gets a barrier alone.
            nothing: Step = dict.fromkeys(tenant.dpids, ())
            return self._outcome_within(
                self._send_step(tenant, nothing), timeout_s
            )
        outcome = self._move(tenant, timeout_s)
        # Another caller may have removed it meanwhile, or moved it again.
        if outcome.refused and tenant in self._state.tenants:
            self._move(old, timeout_s)
        return outcome

    def remove_tenant(
        self, tenant_id: int, timeout_s: float
    ) -> ChangeOutcome:
        """Removes a tenant and waits until its switches have confirmed.

        Raises `UnknownTenant`.
        """
        with self._lock:
            tenant = self._state.tenant(tenant_id)
            wait = self._begin_removal(tenant)
        return self._outcome_within(wait, timeout_s)

    def wait_connected(
        self,
        dpids: Iterable[int] | None,
        timeout_s: float,
    ) -> ChangeOutcome:
        """Waits until switches have their rules; None: all of the network.

        A switch that refused its difference counts as refusing until a later
        difference succeeds. Raises `Conflict` for a dpid that is not in the
        network.
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
            # 0 is reached by any switch that once had all its rules.
            wait = self._waiting_for(wanted, revision=0)
            for dpid in wanted:
                session = self._sessions.get(dpid)
                if session is not None and not session.synced:
                    wait.refused[dpid] = (
                        session.error or "refused its rules"
                    )
        return self._outcome_within(wait, timeout_s)

    def reconcile(
        self,
        timeout_s: float,
    ) -> tuple[ChangeOutcome, list[dict[str, Any]]]:
        """Asks every switch for its rules and repairs those that differ.

        Returns the outcome and, for each repaired switch, its dpid, its name
        and the numbers of rules added and removed.
        """
        with self._lock:
            self._revision += 1
            dpids = sorted(self._flows)
            wait = self._waiting_for(dpids, self._revision)
            for dpid in dpids:
                session = self._sessions.get(dpid)
                if session is not None:
                    # This replaces a request that is under way: the reply to
                    # that one bears an older ticket and is ignored.
                    self._request_report(session)
        outcome = self._outcome_within(wait, timeout_s)
        with self._lock:
            return outcome, self._repairs()

    def _repairs(self) -> list[dict[str, Any]]:
        """Counts of rules added and removed, of each switch that differed."""
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
        """Switches, tenants, and the switches not up to date, as JSON."""
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

    def _is_up_to_date(self, dpid: int) -> bool:
        """True if a switch has confirmed all rules that it is to have."""
        session = self._sessions.get(dpid)
        return (
            session is not None
            and session.synced
            and session.request_ticket is None
            and session.confirmed_revision >= 0
            and not session.revision_of
        )

    def _request_report(self, session: _Session) -> None:
        session.request_ticket = self._next_ticket()
        session.report = FlowReport()
        session.parts = 0
        session.channel.request_flows(session.request_ticket)

    def _sync(self, dpid: int, session: _Session) -> None:
        """Sends a switch the changes from its reported to its wanted rules."""
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
        session.request_ticket = None
        session.report = FlowReport()
        session.error = None
        if changes:
            session.sync_ticket = self._next_ticket()
            self._send(session, changes, session.sync_ticket)
        else:
            session.synced = True
            # Nothing is sent, so no barrier reply will come: the report itself
            # confirms the revision.
            self._advance(dpid, session, self._revision, refusal=None)

    def _send_if_synced(
        self,
        dpid: int,
        changes: Sequence[Change],
    ) -> None:
        session = self._sessions.get(dpid)
        # While a switch is asked for its rules, the difference is still to
        # come, and will contain these changes.
        if session is not None and session.request_ticket is None:
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
        """The next ticket: an OpenFlow transaction id from the upper half.

        The library uses the lower half for its own messages.
        """
        return 0x80000000 | (next(self._tickets) & 0x7FFFFFFF)

    def _advance(
        self,
        dpid: int,
        session: _Session,
        revision: int,
        refusal: str | None,
    ) -> None:
        """Notes a switch's revision; ends waits that lacked this switch alone.

        A wait that ends for this switch records `refusal`, if any.
        """
        # A report may have confirmed a later revision than this barrier reply.
        session.confirmed_revision = max(
            session.confirmed_revision, revision
        )
        for wait in self._waits:
            if (
                dpid in wait.pending
                and session.confirmed_revision >= wait.revision
            ):
                wait.pending.discard(dpid)
                if refusal is not None:
                    wait.refused[dpid] = refusal
                # A refusal, too, ends the wait for a switch.
                if not wait.pending:
                    wait.done.set()

    def _move(self, tenant: Tenant, timeout_s: float) -> ChangeOutcome:
        """Moves a tenant: adds the new tree, turns the traffic, removes the old.

        The outcome is that of the first two steps, after which the tenant's
        traffic is on its new tree.
        """
        until_s = time.monotonic() + timeout_s
        added, turned, removed = self._begin_move(tenant)
        missing: dict[str, None] = {}
        refused: dict[str, str] = {}
        for step in (added, turned):
            outcome = self._outcome_by(
                self._send_step(tenant, step), until_s
            )
            missing |= dict.fromkeys(outcome.missing)
            refused |= dict(outcome.refused)
        # Packets that left by the old tree are still on their way.
        time.sleep(DRAIN_S)
        # The old tree's core may be disconnected: it is not waited for, as it
        # gets the difference when it connects again.
        last = {
            dpid: changes
            for dpid, changes in removed.items()
            if dpid in self._sessions
        }
        self._outcome_by(self._send_step(tenant, last), until_s)
        return ChangeOutcome(tuple(missing), tuple(refused.items()))

    def _begin_move(
        self,
        tenant: Tenant,
    ) -> tuple[Step, Step, Step]:
        """Makes a tenant's new tree wanted, and returns the steps to it."""
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
            return move_steps(old, self._set_wanted(tenant))

    def _send_step(self, tenant: Tenant, step: Step) -> _Wait:
        """Sends those changes of a move's step that are still wanted.

        Since the move began, the tenant may have been moved again or removed.
        """
        with self._lock:
            self._revision += 1
            wait = self._waiting_for(step, self._revision)
            for dpid, changes in step.items():
                wanted = self._flows.get(dpid, {}).get(tenant.id, ())
                self._send_if_synced(dpid, _still_due(changes, wanted))
            return wait

    def _begin_removal(self, tenant: Tenant) -> _Wait:
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
            if session is None or session.confirmed_revision < revision:
                wait.pending.add(dpid)
        if wait.pending:
            self._waits.append(wait)
        else:
            wait.done.set()
        return wait

    def _outcome_within(
        self, wait: _Wait, timeout_s: float
    ) -> ChangeOutcome:
        return self._outcome_by(wait, time.monotonic() + timeout_s)

    def _outcome_by(self, wait: _Wait, until_s: float) -> ChangeOutcome:
        # In a loop, as green threads may wake before their time.
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
        """A switch as JSON; `confirmed`: it has all its wanted rules."""
        view = {
            "dpid": switch.dpid,
            "name": switch.name,
            "role": switch.role,
            "connected": False,
            "confirmed": self._is_up_to_date(switch.dpid),
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
    """Those changes that still lead to the wanted rules."""
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
