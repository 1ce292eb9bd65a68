"""Tenants of a standing network: each is admitted singly and stays until it is
removed.

The ledger decides whether a tenant fits. Bandwidths are the experiment's; the
emulated network carries ``scale.rate`` times as much. A change that fails raises
an error and changes nothing.
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
# The instant of all ledger calls: no time passes here, and reservations have no
# end.
INSTANT_S = 0.0
# The tenant that has all slots of an open network.
OPEN = "open"


class StandingTenants:
    """The tenants of one network, and the ledger of what they reserve.

    ``embedder_name`` and ``enforcement`` are the defaults of tenants.
    ``folder`` is for the hosts files of VMs.
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
        # state() adds links and trouble, which change with other tenants and
        # with the kernel's links.
        self._states: dict[str, TenantState] = {}
        # Why a tenant stays on a tree that has lost a link, by tenant.
        self._stay_reasons: dict[str, str] = {}
        # The largest bandwidth per VM of any request, for embedders.
        self._largest_bps = 0

    # -- changes

    def open(self) -> None:
        """Gives all slots to one tenant without reservations.

        Its VMs are hosts h1, h2, … and share links without guarantees. Raises
        BadInput, RunFailed.
        """
        self._vms.mininet_names = True
        placement = open_placement(self.datacentre)
        # At 0 bit/s it reserves slots alone.
        self.ledger.reserve(
            OPEN, placement, rate_bps=0, start_s=INSTANT_S, end_s=None
        )
        widest_bps = int(max(self.datacentre.wider_nic_bps))
        network = self._emulation.plan
        plan = tenant_plan(
            self.datacentre,
            network,
            placement,
            network.slots,
            tenant_id=1,
            job_id=OPEN,
            rate_bps=scaled_bps(widest_bps, self._scale_rate),
        )
        self._network.allow_borrowing()
        plan = enforced(network, plan, "none")
        self._admit(with_topology_addresses(plan), widest_bps, "none")

    def add(self, request: AddTenant) -> TenantState:
        """Admits a tenant, placed by ``request.at`` or by its embedder.

        ``request.policy`` is not read here: the keeper has replaced it by the
        policy's embedder. Raises BadInput, DoesNotFit with the place that lacks
        room, RunFailed.
        """
        name = request.name
        self._check_new(request)
        enforcement = self._enforcement_of(request)
        # The embedder avoids lost links because the ledger has nothing free on
        # them: the ledger has to know them before the placement.
        lost = self._update_lost_cables()
        placement = self._placement(request)
        self._check_links_up(name, placement, lost)
        # In the ledger first: a tenant that does not fit never reaches the
        # network.
        with _over_commit_as_does_not_fit(name):
            self.ledger.reserve(
                name,
                placement,
                request.bandwidth_bps,
                start_s=INSTANT_S,
                end_s=None,
            )
        try:
            plan = self._planned(request, placement, enforcement)
            # Cables of VMs are known only from the plan, which assigns slots.
            self._check_cables(name, cables_of(plan), lost)
            if enforcement == "none":
                self._network.allow_borrowing()
            self._admit(plan, request.bandwidth_bps, enforcement)
        except BaseException:
            self.ledger.release(name, INSTANT_S)
            raise
        return self.state(name)

    def _admit(
        self,
        plan: TenantPlan,
        bandwidth_bps: int,
        enforcement: Enforcement,
    ) -> None:
        """Installs a tenant on the network, and keeps its plan and state."""
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
        """Ends all processes in a tenant's VMs and frees its reservation.

        A tenant whose removal fails stays listed, and its removal can be
        repeated. Raises BadInput, RunFailed.
        """
        self._check_known(name)
        # The network first: if that fails, the tenant keeps its reservation.
        self._vms.remove(self._plans[name])
        del self._plans[name]
        del self._states[name]
        self._stay_reasons.pop(name, None)
        self.ledger.release(name, INSTANT_S)
        self._retry_moves()

    def rerate(self, name: str, bandwidth_bps: int) -> TenantState:
        """Changes the bandwidth of a tenant's VMs in place.

        Raises the errors of :meth:`add`.
        """
        self._check_known(name)
        check_bandwidth(self.datacentre, bandwidth_bps)
        state = self._states[name]
        with _over_commit_as_does_not_fit(name):
            self.ledger.rerate(name, INSTANT_S, bandwidth_bps)
        wire_bps = scaled_bps(bandwidth_bps, self._scale_rate)
        try:
            plan = self._emulation.rerate(self._plans[name], wire_bps)
        except BaseException:
            # The network kept the old rate, so the ledger returns to it. Until
            # then it knows no lost links, as it refuses reservations on them.
            self.ledger.set_lost((), ())
            self.ledger.rerate(name, INSTANT_S, state.bandwidth_bps)
            self._update_lost_cables()
            raise
        self._plans[name] = plan
        self._states[name] = replace(
            state,
            bandwidth_bps=bandwidth_bps,
            wire_bps=plan.rate_bps,
        )
        self._retry_moves()
        return self.state(name)

    def set_capacity(self, number: int, up_bps: int, down_bps: int) -> None:
        """Changes the capacities of link ``number``, in the experiment's bit/s.

        Raises DoesNotFit for less than is reserved on it, RunFailed.
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
        # Only this step can fail. Nothing has changed before it, and the
        # assignments after it cannot fail.
        self._emulation.set_capacities(datacentre, network, pairs)
        self.datacentre = datacentre
        self.ledger = ledger
        self._plans = plans
        # The new ledger does not know the lost links yet.
        self._update_lost_cables()
        self._retry_moves()

    def _check_reserved(self, directed: int, capacity_bps: int) -> None:
        """Raises DoesNotFit for less capacity than is reserved on a directed
        link.
        """
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
        """A new ledger of ``datacentre`` with all present reservations."""
        ledger = Ledger(datacentre)
        for name, held in self.ledger.holdings().items():
            ledger.reserve(
                name,
                held.placement,
                held.rate_bps,
                start_s=INSTANT_S,
                end_s=held.end_s,
            )
        return ledger

    # -- lost links

    def follow_links(self) -> tuple[str, ...]:
        """Moves tenants whose tree has lost a link to other roots with room.

        For the others :meth:`state` reports why they stay. Returns a sentence
        for each tenant that has moved, or has its links back.
        """
        lost = self._update_lost_cables()
        cut = self._cut_tenants(lost)
        sentences = self._restored(cut)
        # The user's own controller may route flows over any tree: there is
        # nothing to move.
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
        """Drops the stay reasons of tenants whose links are back; a sentence for
        each.
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
        """Moves the tenants ``cut`` to other roots, in the ledger alone.

        Returns the old placements of those that moved, which the network has to
        move next. The others get a stay reason.
        """
        old_placements: dict[str, Placement] = {}
        lost_links = self._link_numbers(lost)
        moved = True
        # A tenant that moves makes room for others: repeat until none moves.
        while moved:
            moved = False
            for name in cut:
                if name in old_placements:
                    continue
                old = self.ledger.holdings()[name].placement
                # After a move that failed on the network alone, the ledger may
                # have a root without lost links already: it is kept.
                result: Placement | str = old
                used = links_used(self.datacentre, old)
                if not used.isdisjoint(lost_links):
                    result = reroot(
                        self.ledger, name, INSTANT_S, lost_links
                    )
                if isinstance(result, Placement):
                    old_placements[name] = old
                    moved = True
                else:
                    self._stay_reasons[name] = result
        return old_placements

    def _move(self, old_placements: dict[str, Placement]) -> list[str]:
        """Moves tenants on the network to their roots in the ledger.

        Returns a sentence for each that moved. A tenant whose move fails gets
        its old placement in the ledger back.
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
        """Pairs of a tenant's plan and the same plan at its root in the ledger."""
        holdings = self.ledger.holdings()
        network = self._emulation.plan
        moves = []
        for name in names:
            old = self._plans[name]
            placement = holdings[name].placement
            new = rerooted(self.datacentre, network, old, placement)
            moves.append((old, new))
        return moves

    def _rebook(self, name: str, placement: Placement) -> None:
        """Reserves a tenant's old placement again, although it has a lost link.

        If another tenant has taken that room meanwhile, the ledger keeps the
        new placement, for the next attempt to move.
        """
        # Until then the ledger knows no lost links, as it refuses reservations
        # on them.
        self.ledger.set_lost((), ())
        with suppress(OverCommit):
            self.ledger.reroot(name, INSTANT_S, placement)
        self._update_lost_cables()

    def _retry_moves(self) -> None:
        """Tries again to move the tenants that stay on lost links.

        Called after a change that may have made room. That change has
        succeeded, so errors here are only logged.
        """
        if not self._stay_reasons:
            return
        try:
            for text in self.follow_links():
                logging.info(text)
        except TestbedError:
            logging.exception("after a tenant has made room")

    def _update_lost_cables(self) -> frozenset[str]:
        """Marks lost links in the ledger, as the kernel has them now; returns the
        lost cables.
        """
        lost = self._network.lost_cables()
        self.ledger.set_lost((), self._link_numbers(lost))
        return lost

    def _link_numbers(self, cables: Collection[str]) -> list[int]:
        """Numbers of the links among ``cables``; cables of VMs have none."""
        return [
            number
            for number, link in enumerate(self._emulation.plan.links)
            if link.lower.name in cables
        ]

    # -- states

    @property
    def plans(self) -> tuple[TenantPlan, ...]:
        """Present plans of all tenants, in order of admission."""
        return tuple(self._plans.values())

    @property
    def names(self) -> dict[str, str]:
        """Names for users: of nodes by bridge, of VMs by their server's port."""
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
        """Names of both ends of all links' and slots' cables, by lower port."""
        names = self.names
        plan = self._emulation.plan
        cables = {}
        for link in plan.links:
            ends = (names[link.lower.bridge], names[link.upper.bridge])
            cables[link.lower.name] = ends
        for slot in plan.slots:
            port = slot.port
            # The end of a slot without a VM is called after the port.
            vm = names.get(port.name, port.name)
            cables[port.name] = (vm, names[port.bridge])
        return cables

    @property
    def reserved_bps(self) -> list[int]:
        """Bit/s that all tenants reserve per link, the same in both directions."""
        total_bps = [0] * self.datacentre.n_links
        for name in self._states:
            for link, bps in self._reserved(name):
                total_bps[link] += bps
        return total_bps

    def _reserved(self, name: str) -> Iterator[tuple[int, int]]:
        """Pairs of a tenant's link and the bit/s that it reserves there, the same
        in both directions.
        """
        reserved = self.ledger.held(name)
        # Objects of the ledger are the servers by number, then the links.
        first_link = self.datacentre.n_servers
        end = first_link + self.datacentre.n_links
        for number, amount in zip(
            reserved.objects, reserved.amounts, strict=True
        ):
            if first_link <= number < end:
                yield int(number) - first_link, int(amount)

    def trouble(self, plan: TenantPlan, lost: Collection[str]) -> str:
        """A sentence about VMs of a tenant that no longer reach each other, with
        the reason why it stays there; empty if all reach each other.
        """
        if not lost:
            return ""
        # With a single tree its root need not be named.
        pinned = len(self.datacentre.trees) > 1
        sentence = cut_text(plan, lost, self.names, pinned=pinned)
        reason = self._stay_reasons.get(plan.job_id)
        if sentence and reason:
            return f"{sentence}; {reason}"
        return sentence

    def state(
        self, name: str, lost: Collection[str] | None = None
    ) -> TenantState:
        """A tenant's present state. Raises BadInput for an unknown name.

        ``lost``: the lost cables; None: read from the kernel.
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
            trouble=self.trouble(self._plans[name], lost),
        )

    def states(self) -> tuple[TenantState, ...]:
        """Present states of all tenants, in order of admission."""
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
        """Raises DoesNotFit for a placement that uses a lost link."""
        links = self._emulation.plan.links
        numbers = sorted(links_used(self.datacentre, placement))
        cables = [links[number].lower.name for number in numbers]
        self._check_cables(name, cables, lost)

    def _check_cables(
        self, name: str, cables: Iterable[str], lost: Collection[str]
    ) -> None:
        """Raises DoesNotFit if one of ``cables`` is lost."""
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
        free = self.ledger.residual(INSTANT_S, None)
        self._largest_bps = max(self._largest_bps, request.bandwidth_bps)
        if request.at:
            return placed_by_hand(self.datacentre, free, request)
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
        """The plan of a new tenant, on free slots.

        Its id is the lowest that is free: ids are few, as they are parts of
        addresses, classes and cookies.
        """
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
        """The first free slots of each server for the VMs of a placement."""
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
def _over_commit_as_does_not_fit(name: str) -> Iterator[None]:
    """Raises DoesNotFit in place of the ledger's OverCommit."""
    try:
        yield
    except OverCommit as error:
        # Without job and instant, which mean nothing to a tenant's user.
        lacking = str(error).removeprefix(f"job {name}: ")
        lacking = lacking.removesuffix(f" from {INSTANT_S:g} s on")
        raise DoesNotFit(
            f"tenant {name} does not fit: {lacking}", "testbed status"
        ) from error
