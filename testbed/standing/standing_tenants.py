"""Tenants of a standing network: admitted singly, until they are removed.

The ledger decides whether a tenant fits. Bandwidths are the experiment's; on
the emulated wire they are ``scale.rate`` times as much. A change is made whole,
or an error is raised and nothing has changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from jobs.request import ENFORCEMENTS, Enforcement
from testbed.backends.emu.emulation import Emulation
from testbed.embedding.placement import Placement
from testbed.errors import BadInput, DoesNotFit, TestbedError
from testbed.plan.lost_links import cables_of, cut_text, root_of
from testbed.plan.network_plan import (
    MAX_TENANT_VMS,
    Slot,
    TenantPlan,
    enforced,
    on_network,
    rerooted,
    scaled_bps,
    tenant_plan,
    with_topology_addresses,
)
from testbed.reservation.ledger import Ledger, OverCommit
from testbed.reservation.rerooting import links_used, reroot
from testbed.spec.document import unknown_name
from testbed.standing.keeper_protocol import AddTenant
from testbed.standing.network_state import TenantState
from testbed.standing.standing_vms import StandingVms
from testbed.standing.tenant_placement import (
    check_bandwidth,
    embedded,
    open_placement,
    placed_by_hand,
)
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre, down, up

# A letter first: a tenant's VMs are hosts NAME.0, …, and "1.0" would be read as
# an address.
TENANT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
# The ledger books over time. Here every reservation begins at this instant and
# has no end.
ALWAYS_S = 0.0
# The name of the tenant that has all slots of an open network.
OPEN = "open"


class StandingTenants:
    """The tenants of one network, and the ledger of what they reserve.

    ``embedder_name`` and ``enforcement`` are for tenants that name no other.
    The hosts files of VMs are in ``folder``.
    """

    def __init__(
        self,
        emulation: Emulation,
        scale_rate: float,
        embedder_name: str,
        folder: Path,
        enforcement: Enforcement = "strict",
    ) -> None:
        self._emulation = emulation
        self._network = emulation.network
        self._vms = StandingVms(emulation, folder)
        self._scale_rate = scale_rate
        self._embedder = embedder_name
        self._enforcement = enforcement
        self.datacentre = emulation.datacentre
        self.ledger = Ledger(self.datacentre)
        self._plans: dict[str, TenantPlan] = {}
        # Without links and trouble, which depend on the other tenants and on
        # the kernel: state() adds them.
        self._states: dict[str, TenantState] = {}
        # Tenants whose tree has lost a link, and why they are still on it.
        self._stay_reasons: dict[str, str] = {}
        # What any tenant so far has asked for per VM, at most.
        self._largest_bps = 0

    # -- changes

    def open(self) -> None:
        """Gives all slots to one tenant without reservations.

        Its VMs are hosts h1, h2, … They share links as jobs without guarantees
        do. Raises BadInput, RunFailed.
        """
        self._vms.mininet_names = True
        placement = open_placement(self.datacentre)
        # It reserves slots, and no bandwidth.
        self.ledger.reserve(
            OPEN, placement, rate_bps=0, start_s=ALWAYS_S, end_s=None
        )
        most_bps = int(max(self.datacentre.wider_nic_bps))
        network = self._emulation.plan
        plan = tenant_plan(
            self.datacentre,
            network,
            placement,
            network.slots,
            tenant_id=1,
            job_id=OPEN,
            rate_bps=scaled_bps(most_bps, self._scale_rate),
        )
        self._network.allow_borrowing()
        plan = enforced(network, plan, "none")
        self._admit(with_topology_addresses(plan), most_bps, "none")

    def add(self, request: AddTenant) -> TenantState:
        """Admits a tenant where its embedder, or ``at`` of the request, places it.

        The policy that a request may name is left to the caller. Raises
        BadInput, DoesNotFit with the place that lacks room, RunFailed.
        """
        name = request.name
        self._check_new(request)
        enforcement = self._enforcement_of(request)
        # Before it is placed: an embedder avoids links on which the ledger has
        # nothing free.
        lost = self._lost_cables()
        placement = self._placement(request)
        self._check_links_up(name, placement, lost)
        # Before anything is installed: a tenant that does not fit never reaches
        # the network.
        with _fitting(name):
            self.ledger.reserve(
                name,
                placement,
                request.bandwidth_bps,
                start_s=ALWAYS_S,
                end_s=None,
            )
        try:
            plan = self._planned(request, placement, enforcement)
            # Cables of VMs are known once these have slots.
            self._check_carried(name, cables_of(plan), lost)
            if enforcement == "none":
                self._network.allow_borrowing()
            self._admit(plan, request.bandwidth_bps, enforcement)
        except BaseException:
            self.ledger.release(name, ALWAYS_S)
            raise
        return self.state(name)

    def _admit(
        self,
        plan: TenantPlan,
        bandwidth_bps: int,
        enforcement: Enforcement,
    ) -> None:
        """Brings a tenant to the network, and keeps its plan and state."""
        places = self._vms.bring_up(plan)
        self._plans[plan.job_id] = plan
        self._states[plan.job_id] = TenantState(
            plan.job_id,
            bandwidth_bps,
            plan.rate_bps,
            vms=places,
            links=(),
            enforcement=enforcement,
        )

    def remove(self, name: str) -> None:
        """Ends whatever runs in a tenant's VMs and frees its reservation.

        A tenant whose removal fails is still listed, and can be removed again.
        Raises BadInput, RunFailed.
        """
        self._check_known(name)
        # From the network first: if that fails, its reservation stays.
        self._vms.remove(self._plans[name])
        del self._plans[name]
        del self._states[name]
        self._stay_reasons.pop(name, None)
        self.ledger.release(name, ALWAYS_S)
        self._retry()

    def rerate(self, name: str, bandwidth_bps: int) -> TenantState:
        """Changes the bandwidth of a tenant's VMs in place.

        Raises the errors of :meth:`add`.
        """
        self._check_known(name)
        check_bandwidth(self.datacentre, bandwidth_bps)
        state = self._states[name]
        with _fitting(name):
            self.ledger.rerate(name, ALWAYS_S, bandwidth_bps)
        wire_bps = scaled_bps(bandwidth_bps, self._scale_rate)
        try:
            plan = self._emulation.rerate(self._plans[name], wire_bps)
        except BaseException:
            # The network still has the old rate: the ledger books it again. On
            # lost links it books nothing: for this step it has none.
            self.ledger.set_lost((), ())
            self.ledger.rerate(name, ALWAYS_S, state.bandwidth_bps)
            self._lost_cables()
            raise
        self._plans[name] = plan
        self._states[name] = replace(
            state,
            bandwidth_bps=bandwidth_bps,
            wire_bps=plan.rate_bps,
        )
        self._retry()
        return self.state(name)

    def set_capacity(self, number: int, up_bps: int, down_bps: int) -> None:
        """Changes the capacities of the link ``number``, in the experiment's
        bit/s.

        Raises DoesNotFit below what is reserved on it, RunFailed; then nothing
        has changed.
        """
        self._check_reserved(up(number), up_bps)
        self._check_reserved(down(number), down_bps)
        datacentre = self.datacentre.with_capacity(number, up_bps, down_bps)
        ledger = self._ledger_of(datacentre)
        network = self._emulation.plan.with_capacity(
            number,
            up_bps=scaled_bps(up_bps, self._scale_rate),
            down_bps=scaled_bps(down_bps, self._scale_rate),
        )
        plans = {}
        pairs = []
        for name, plan in self._plans.items():
            plans[name] = on_network(network, plan)
            pairs.append((plan, plans[name]))
        # The one step that can fail: nothing has changed before it, and the
        # assignments below always succeed.
        self._emulation.set_capacities(datacentre, network, pairs)
        self.datacentre = datacentre
        self.ledger = ledger
        self._plans = plans
        # The new ledger does not know yet which links are down.
        self._lost_cables()
        self._retry()

    def _check_reserved(self, directed: int, capacity_bps: int) -> None:
        """Raises DoesNotFit where more is reserved on a directed link."""
        reserved_bps = self.reserved_bps[directed // 2]
        if capacity_bps < reserved_bps:
            raise DoesNotFit(
                f"{human_bandwidth(capacity_bps)} is below the"
                f" {human_bandwidth(reserved_bps)} that tenants reserve on"
                f" {self.datacentre.link_name(directed)}",
                "sudo testbed link show names them; tenant rerate or remove"
                " makes room",
            )

    def _ledger_of(self, datacentre: DataCentre) -> Ledger:
        """A ledger of other capacities with the same reservations."""
        ledger = Ledger(datacentre)
        for name, held in self.ledger.holdings().items():
            ledger.reserve(
                name,
                held.placement,
                held.rate_bps,
                start_s=ALWAYS_S,
                end_s=held.end_s,
            )
        return ledger

    # -- lost links

    def follow_links(self) -> tuple[str, ...]:
        """Moves tenants whose tree has lost a link to other roots with room.

        Tenants that must stay keep the reason, for :meth:`state`. Returns a
        sentence for each tenant that has moved, or has its links back.
        """
        lost = self._lost_cables()
        cut = self._cut_tenants(lost)
        sentences = self._restored(cut)
        # With a person's own controller nobody knows the trees that flows take.
        if self._emulation.own_controller is None:
            sentences += self._move(self._rerooted_in_ledger(cut, lost))
        return tuple(sentences)

    def _cut_tenants(self, lost: Collection[str]) -> list[str]:
        """Names of tenants whose tree has lost a link."""
        return [
            name
            for name, plan in self._plans.items()
            if any(edge.lower.name in lost for edge in plan.edges)
        ]

    def _restored(self, cut: Collection[str]) -> list[str]:
        """Sentences about tenants whose links are back.

        The reasons for which they stayed are dropped.
        """
        sentences = []
        for name in self._plans:
            if name in self._stay_reasons and name not in cut:
                del self._stay_reasons[name]
                sentences.append(f"tenant {name} has its links back")
        return sentences

    def _rerooted_in_ledger(
        self, cut: Sequence[str], lost: Collection[str]
    ) -> dict[str, Placement]:
        """Moves tenants to other roots, in the ledger alone.

        The network moves all of them together afterwards. Returns the old
        placements of those that have moved; the others get a reason to stay.
        """
        old_placements: dict[str, Placement] = {}
        lost_links = self._link_numbers(lost)
        moved = True
        # A tenant that moves makes room for others: passes until nobody moves.
        while moved:
            moved = False
            for name in cut:
                if name in old_placements:
                    continue
                old = self.ledger.holdings()[name].placement
                result: Placement | str = old
                # After a move that failed, the root that is booked may be
                # another one than the network's, and without a lost link.
                used = links_used(self.datacentre, old)
                if not used.isdisjoint(lost_links):
                    result = reroot(self.ledger, name, ALWAYS_S, lost_links)
                if isinstance(result, Placement):
                    old_placements[name] = old
                    moved = True
                else:
                    self._stay_reasons[name] = result
        return old_placements

    def _move(self, old_placements: dict[str, Placement]) -> list[str]:
        """Moves tenants on the network to the roots that the ledger has booked.

        Returns a sentence for each. A tenant that the network refuses to move
        gets its old placement in the ledger again.
        """
        moves = self._moves(old_placements)
        failed = self._emulation.reroot(moves)
        names = self.names
        sentences = []
        for old, new in moves:
            name = old.job_id
            if name in failed:
                self._rebook(name, old_placements[name])
                self._stay_reasons[name] = failed[name].message
                continue
            self._plans[name] = new
            self._stay_reasons.pop(name, None)
            old_root = names[root_of(old)]
            new_root = names[root_of(new)]
            sentences.append(
                f"tenant {name} has moved from {old_root} to {new_root}"
            )
        return sentences

    def _moves(
        self, names: Iterable[str]
    ) -> list[tuple[TenantPlan, TenantPlan]]:
        """Old and new plans of tenants; the new roots are the ledger's."""
        booked = self.ledger.holdings()
        network = self._emulation.plan
        moves = []
        for name in names:
            old = self._plans[name]
            placement = booked[name].placement
            new = rerooted(self.datacentre, network, old, placement)
            moves.append((old, new))
        return moves

    def _rebook(self, name: str, placement: Placement) -> None:
        """Books a tenant's old placement again, over the link that is lost.

        If another tenant has taken that room meanwhile, the new placement stays
        booked, for the next attempt.
        """
        # The ledger books nothing on lost links: for this step it has none.
        self.ledger.set_lost((), ())
        with suppress(OverCommit):
            self.ledger.reroot(name, ALWAYS_S, placement)
        self._lost_cables()

    def _retry(self) -> None:
        """Moves tenants that stay on lost links, now that there is more room.

        Errors are logged: the change that has made the room has succeeded.
        """
        if not self._stay_reasons:
            return
        try:
            for text in self.follow_links():
                logging.info(text)
        except TestbedError:
            logging.exception("after a tenant has made room")

    def _lost_cables(self) -> frozenset[str]:
        """Cables that carry nothing now; the ledger learns that their links are
        lost.
        """
        lost = self._network.lost_cables()
        self.ledger.set_lost((), self._link_numbers(lost))
        return lost

    def _link_numbers(self, cables: Collection[str]) -> list[int]:
        """Numbers of the links among some cables; the others are VMs'."""
        return [
            number
            for number, link in enumerate(self._emulation.plan.links)
            if link.lower.name in cables
        ]

    # -- states

    @property
    def plans(self) -> tuple[TenantPlan, ...]:
        """Plans of all tenants as they are now, in order of admission."""
        return tuple(self._plans.values())

    @property
    def names(self) -> dict[str, str]:
        """Names for users: bridge -> node, and port of a VM on its server -> VM."""
        nodes = self.datacentre.names
        names = {}
        for bridge in self._emulation.plan.bridges:
            names[bridge.name] = nodes[bridge.node]
        for name, state in self._states.items():
            plan = self._plans[name]
            for vm, place in zip(plan.vms, state.vms, strict=True):
                names[vm.slot.port.name] = place.name
        return names

    @property
    def cables(self) -> dict[str, tuple[str, str]]:
        """Cables of all links and VM slots: lower port -> names of both ends."""
        names = self.names
        plan = self._emulation.plan
        cables = {}
        for link in plan.links:
            ends = (names[link.lower.bridge], names[link.upper.bridge])
            cables[link.lower.name] = ends
        for slot in plan.slots:
            port = slot.port
            # A slot without a VM has the name of its port.
            vm = names.get(port.name, port.name)
            cables[port.name] = (vm, names[port.bridge])
        return cables

    @property
    def reserved_bps(self) -> list[int]:
        """Bandwidth reserved on each link, in either direction."""
        total_bps = [0] * self.datacentre.n_links
        for name in self._states:
            for link, bps in self._reserved(name):
                total_bps[link] += bps
        return total_bps

    def _reserved(self, name: str) -> Iterator[tuple[int, int]]:
        """A tenant's links and what it reserves on each, in either direction."""
        reserved = self.ledger.held(name)
        # The ledger numbers its objects: servers first, then links.
        first_link = self.datacentre.n_servers
        end = first_link + self.datacentre.n_links
        for number, amount in zip(
            reserved.objects, reserved.amounts, strict=True
        ):
            if first_link <= number < end:
                yield int(number) - first_link, int(amount)

    def cut(self, plan: TenantPlan, lost: Collection[str]) -> str:
        """A sentence about VMs of a tenant that no longer reach each other.

        With the reason for which it stays, if there is one. Empty where all of
        its VMs reach each other.
        """
        if not lost:
            return ""
        # With one tree there is no other root to be pinned to.
        pinned = len(self.datacentre.trees) > 1
        sentence = cut_text(plan, lost, self.names, pinned=pinned)
        reason = self._stay_reasons.get(plan.job_id)
        if sentence and reason:
            return f"{sentence}; {reason}"
        return sentence

    def state(
        self, name: str, lost: Collection[str] | None = None
    ) -> TenantState:
        """A tenant as it is now. Raises BadInput for an unknown name.

        ``lost``: the cables that carry nothing; None: the kernel is asked.
        """
        if lost is None:
            lost = self._network.lost_cables()
        self._check_known(name)
        links = []
        for number, bps in self._reserved(name):
            for directed in (up(number), down(number)):
                links.append((self.datacentre.link_name(directed), bps))
        return replace(
            self._states[name],
            links=tuple(links),
            trouble=self.cut(self._plans[name], lost),
        )

    def states(self) -> tuple[TenantState, ...]:
        """All tenants as they are now, in order of admission."""
        lost = self._network.lost_cables()
        return tuple(self.state(name, lost) for name in self._states)

    # -- checks

    def _check_new(self, request: AddTenant) -> None:
        name = request.name
        if not TENANT_NAME.fullmatch(name):
            raise BadInput(
                f"{name!r} cannot name a tenant",
                "1 to 63 letters, digits, - or _, a letter first: "
                "its VMs are hosts NAME.0, …",
            )
        if name in self._states:
            raise BadInput(
                f"there is a tenant {name} already",
                f"testbed tenant show {name}",
            )
        if not 1 <= request.n_vms <= MAX_TENANT_VMS:
            raise BadInput(
                f"{request.n_vms} VMs: a live tenant has 1 to {MAX_TENANT_VMS}"
            )
        check_bandwidth(self.datacentre, request.bandwidth_bps)

    def _check_known(self, name: str) -> None:
        if not self._states:
            raise BadInput(
                f"unknown tenant {name!r}: there are none",
                "testbed tenant add",
            )
        if name not in self._states:
            raise BadInput(unknown_name("tenant", name, list(self._states)))

    def _enforcement_of(self, request: AddTenant) -> Enforcement:
        """The request's enforcement, else the network's. Raises BadInput."""
        name = request.enforcement or self._enforcement
        for enforcement in ENFORCEMENTS:
            if enforcement == name:
                return enforcement
        raise BadInput(unknown_name("enforcement", name, ENFORCEMENTS))

    def _check_links_up(
        self, name: str, placement: Placement, lost: Collection[str]
    ) -> None:
        """Raises DoesNotFit for a tenant that would use a link that is down."""
        links = self._emulation.plan.links
        numbers = sorted(links_used(self.datacentre, placement))
        cables = [links[number].lower.name for number in numbers]
        self._check_carried(name, cables, lost)

    def _check_carried(
        self, name: str, cables: Iterable[str], lost: Collection[str]
    ) -> None:
        """Raises DoesNotFit for a tenant with a lost cable among its cables."""
        for cable in cables:
            if cable in lost:
                link = " - ".join(self.cables[cable])
                raise DoesNotFit(
                    f"tenant {name} does not fit: "
                    f"it would use the link {link}, which is down",
                    "sudo testbed link show",
                )

    # -- placement

    def _placement(self, request: AddTenant) -> Placement:
        free = self.ledger.residual(ALWAYS_S, None)
        if request.at:
            return placed_by_hand(self.datacentre, free, request)
        self._largest_bps = max(self._largest_bps, request.bandwidth_bps)
        return embedded(
            self.datacentre,
            free,
            request,
            embedder_name=request.embedder or self._embedder,
            largest_bps=self._largest_bps,
        )

    def _planned(
        self,
        request: AddTenant,
        placement: Placement,
        enforcement: Enforcement,
    ) -> TenantPlan:
        """The plan of a tenant: free slots, and the lowest free number."""
        # Numbers go into addresses, classes and cookies, and are few: new
        # tenants get those of removed ones.
        used_ids = {plan.tenant_id for plan in self._plans.values()}
        tenant_id = 1
        while tenant_id in used_ids:
            tenant_id += 1
        network = self._emulation.plan
        plan = tenant_plan(
            self.datacentre,
            network,
            placement,
            self._free_slots(placement),
            tenant_id=tenant_id,
            job_id=request.name,
            rate_bps=scaled_bps(request.bandwidth_bps, self._scale_rate),
        )
        return enforced(network, plan, enforcement)

    def _free_slots(self, placement: Placement) -> tuple[Slot, ...]:
        """Free slots for the VMs of a placement, the first ones on each server."""
        used: set[Slot] = set()
        for plan in self._plans.values():
            used.update(vm.slot for vm in plan.vms)
        slots_of_server = self._emulation.plan.slots_of_server
        slots: list[Slot] = []
        for server, count in placement.vms_on:
            free = [
                slot for slot in slots_of_server[server] if slot not in used
            ]
            slots += free[:count]
        return tuple(slots)


@contextmanager
def _fitting(name: str) -> Iterator[None]:
    """Raises DoesNotFit where the ledger has no room for a tenant."""
    try:
        yield
    except OverCommit as error:
        # The ledger's words without its job and its instant: a tenant stays
        # until it is removed.
        lacking = str(error).removeprefix(f"job {name}: ")
        lacking = lacking.removesuffix(f" from {ALWAYS_S:g} s on")
        raise DoesNotFit(
            f"tenant {name} does not fit: {lacking}", "testbed status"
        ) from error
