"""Tenants of a standing network: admitted one by one, until they are removed.

The ledger decides whether one fits. Bandwidths are the experiment's; on the
emulated wire they are ``scale.rate`` times as much. Every call does all of its
task or changes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
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

# The name of a VM is a host name, a letter first: "1.0" would be read as an
# address.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
# The ledger books over time; here every reservation is open-ended from one
# instant on.
ALWAYS_S = 0.0
# The tenant that has all slots of an open network.
OPEN = "open"


class StandingTenants:
    """The tenants of one network, and the ledger of what they reserve.

    ``embedder_name`` places, and ``enforcement`` limits, those that name no
    other. ``folder`` is where the hosts files of VMs are.
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
        # As admitted and rerated: links and trouble depend on the other tenants
        # and on the kernel, and are added when a state is asked for.
        self._states: dict[str, TenantState] = {}
        # Tenants whose tree has lost a link, and why they are still on it.
        self._stay_reasons: dict[str, str] = {}

    # -- changes

    def open(self) -> None:
        """Gives all slots to one tenant without reservations: hosts h1, h2, …

        They share links as jobs without guarantees do. Raises BadInput,
        RunFailed.
        """
        self._vms.mininet_names = True
        placement = open_placement(self.datacentre)
        # Slots are taken, and no bandwidth.
        self.ledger.reserve(OPEN, placement, 0, ALWAYS_S, None)
        most_bps = int(max(self.datacentre.wider_nic_bps))
        plan = tenant_plan(
            self.datacentre,
            self._emulation.plan,
            placement,
            self._emulation.plan.slots,
            tenant_id=1,
            job_id=OPEN,
            rate_bps=scaled_bps(most_bps, self._scale_rate),
        )
        self._network.allow_borrowing()
        plan = with_topology_addresses(replace(plan, link_bps=()))
        self._admit(plan, most_bps, "none")

    def add(self, request: AddTenant) -> TenantState:
        """Admits ⟨n, b⟩ where its embedder, or ``at``, places it.

        The policy that a request may name is left to the caller. Raises
        BadInput, DoesNotFit with the place that lacks room, RunFailed.
        """
        self._check_new(request)
        enforcement = self._enforcement_of(request)
        # First of all: the ledger then has no room on links that are down,
        # and an embedder takes others.
        lost = self._lost_cables()
        placement = self._placement(request)
        self._check_links_up(request.name, placement, lost)
        # Before anything is installed: what does not fit never reaches the
        # network.
        self._reserve(request, placement)
        try:
            plan = self._planned(request, placement, enforcement)
            # Its VMs' own cables too, known as soon as it has slots.
            self._check_carried(request.name, cables_of(plan), lost)
            if enforcement == "none":
                self._network.allow_borrowing()
            self._admit(plan, request.bandwidth_bps, enforcement)
        except BaseException:
            self.ledger.release(request.name, ALWAYS_S)
            raise
        return self.state(request.name)

    def _admit(
        self,
        plan: TenantPlan,
        bandwidth_bps: int,
        enforcement: Enforcement,
    ) -> None:
        """Brings a tenant to the network, and remembers it."""
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

    def _reserve(self, request: AddTenant, placement: Placement) -> None:
        try:
            self.ledger.reserve(
                request.name,
                placement,
                request.bandwidth_bps,
                ALWAYS_S,
                None,
            )
        except OverCommit as error:
            raise _does_not_fit(request.name, error) from error

    def remove(self, name: str) -> None:
        """Ends whatever runs in a tenant's VMs and frees its reservation.

        A tenant whose removal fails is still listed, and can be removed again.
        Raises BadInput, RunFailed.
        """
        self._check_known(name)
        # From the network first: where that fails, its room is still taken.
        self._vms.remove(self._plans[name])
        del self._plans[name]
        del self._states[name]
        self._stay_reasons.pop(name, None)
        self.ledger.release(name, ALWAYS_S)
        self._retry()

    def rerate(self, name: str, bandwidth_bps: int) -> TenantState:
        """Changes the bandwidth of a tenant's VMs in place.

        Raises as :meth:`add` does.
        """
        self._check_known(name)
        check_bandwidth(self.datacentre, bandwidth_bps)
        state = self._states[name]
        try:
            self.ledger.rerate(name, ALWAYS_S, bandwidth_bps)
        except OverCommit as error:
            raise _does_not_fit(name, error) from error
        wire_bps = scaled_bps(bandwidth_bps, self._scale_rate)
        try:
            plan = self._emulation.rerate(self._plans[name], wire_bps)
        except BaseException:
            # The network is as it was, and the ledger is again.
            self.ledger.rerate(name, ALWAYS_S, state.bandwidth_bps)
            raise
        self._plans[name] = plan
        self._states[name] = replace(
            state,
            bandwidth_bps=bandwidth_bps,
            wire_bps=plan.rate_bps,
        )
        self._retry()
        return self.state(name)

    def set_capacity(
        self,
        number: int,
        up_bps: int,
        down_bps: int,
    ) -> None:
        """Changes a link's capacities, in the experiment's bit/s.

        Raises DoesNotFit below what is reserved on it, RunFailed; then nothing
        has changed.
        """
        self._check_reserved(up(number), up_bps)
        self._check_reserved(down(number), down_bps)
        datacentre = self.datacentre.with_capacity(number, up_bps, down_bps)
        ledger = self._booked_again(datacentre)
        network = self._emulation.plan.with_capacity(
            number,
            up_bps=scaled_bps(up_bps, self._scale_rate),
            down_bps=scaled_bps(down_bps, self._scale_rate),
        )
        plans = {}
        for name, plan in self._plans.items():
            plans[name] = on_network(network, plan)
        pairs = [(self._plans[name], plans[name]) for name in plans]
        # The one step that others can refuse: what follows cannot fail, and
        # before it nothing has changed.
        self._emulation.set_capacities(datacentre, network, pairs)
        self.datacentre = datacentre
        self.ledger = ledger
        self._plans = plans
        # The new ledger does not know yet which links are down.
        self._lost_cables()
        self._retry()

    def _booked_again(self, datacentre: DataCentre) -> Ledger:
        """A ledger of other capacities with the same reservations."""
        ledger = Ledger(datacentre)
        for name, held in self.ledger.holdings().items():
            ledger.reserve(
                name, held.placement, held.rate_bps, ALWAYS_S, held.end_s
            )
        return ledger

    # -- lost links

    def _check_reserved(self, directed: int, capacity_bps: int) -> None:
        """Raises DoesNotFit where a directed link has more reserved."""
        reserved_bps = self.reserved_bps[directed // 2]
        if capacity_bps < reserved_bps:
            raise DoesNotFit(
                f"{human_bandwidth(capacity_bps)} is below the"
                f" {human_bandwidth(reserved_bps)} that tenants reserve on"
                f" {self.datacentre.link_name(directed)}",
                "sudo testbed link show names them; tenant rerate or remove"
                " makes room",
            )

    def follow_links(self) -> tuple[str, ...]:
        """Brings tenants whose tree has lost a link to other roots with room.

        The others stay, and keep the reason for :meth:`state`. Returns a
        sentence for each tenant that has moved, or has its links back.
        """
        lost = self._lost_cables()
        cut = self._cut_tenants(lost)
        sentences = self._restored(cut)
        old_placements: dict[str, Placement] = {}
        # With a person's own controller nobody knows the trees that flows take.
        if self._emulation.own is None:
            old_placements = self._rebooked(cut, lost)
        sentences += self._move(old_placements)
        return tuple(sentences)

    def _cut_tenants(self, lost: Collection[str]) -> list[str]:
        """Names of tenants whose tree has lost a link."""
        cut = []
        for name, plan in self._plans.items():
            if any(edge.lower.name in lost for edge in plan.edges):
                cut.append(name)
        return cut

    def _restored(self, cut: Collection[str]) -> list[str]:
        """Sentences about tenants whose links are back; they need no reason."""
        sentences = []
        for name in self._plans:
            if name in self._stay_reasons and name not in cut:
                del self._stay_reasons[name]
                sentences.append(f"tenant {name} has its links back")
        return sentences

    def _rebooked(
        self,
        cut: Sequence[str],
        lost: Collection[str],
    ) -> dict[str, Placement]:
        """Tenants that the ledger has brought to another root -> old placement.

        A tenant that moves leaves room for others: those that found none are
        tried again until a pass moves nobody.
        """
        old_placements: dict[str, Placement] = {}
        down = self._link_numbers(lost)
        while True:
            moved_before = len(old_placements)
            for name in cut:
                if name in old_placements:
                    continue
                old = self.ledger.holdings()[name].placement
                # In the ledger alone: the network moves all of them
                # together afterwards.
                result = reroot(self.ledger, name, ALWAYS_S, down)
                if isinstance(result, Placement):
                    old_placements[name] = old
                else:
                    self._stay_reasons[name] = result
            if len(old_placements) == moved_before:
                return old_placements

    def _move(
        self,
        old_placements: dict[str, Placement],
    ) -> list[str]:
        """Moves tenants on the network to the roots that the ledger has booked.

        Returns a sentence for each. One that the network refuses is booked at
        its old placement again.
        """
        new_plans = self._rerooted_plans(old_placements)
        moves = [(self._plans[name], new_plans[name]) for name in new_plans]
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

    def _rerooted_plans(
        self,
        names: Iterable[str],
    ) -> dict[str, TenantPlan]:
        """Plans of tenants on the roots that the ledger has booked for them."""
        booked = self.ledger.holdings()
        plans = {}
        for name in names:
            plans[name] = rerooted(
                self.datacentre,
                self._emulation.plan,
                self._plans[name],
                booked[name].placement,
            )
        return plans

    def _rebook(self, name: str, placement: Placement) -> None:
        """Books a tenant's old place again, over the link that is lost.

        Another tenant that has come there in the meantime keeps the room.
        """
        # The ledger books nothing on lost links: for this step it has none.
        self.ledger.set_lost((), ())
        with suppress(OverCommit):
            self.ledger.reroot(name, ALWAYS_S, placement)
        self._lost_cables()

    def _retry(self) -> None:
        """Tries the tenants that stay on lost links again: there is more room.

        The caller, who has made the room, has no part in what fails here.
        """
        if not self._stay_reasons:
            return
        try:
            for text in self.follow_links():
                logging.info(text)
        except TestbedError:
            logging.exception("after a tenant has made room")

    def _lost_cables(self) -> frozenset[str]:
        """Cables that carry nothing now; the ledger has none of their links."""
        lost = self._network.lost_cables()
        self.ledger.set_lost((), self._link_numbers(lost))
        return lost

    def _link_numbers(self, cables: Collection[str]) -> list[int]:
        numbers = []
        for number, link in enumerate(self._emulation.plan.links):
            if link.lower.name in cables:
                numbers.append(number)
        return numbers

    # -- states

    @property
    def plans(self) -> tuple[TenantPlan, ...]:
        """Plans of all tenants as they are now, in order of admission."""
        return tuple(self._plans.values())

    @property
    def names(self) -> dict[str, str]:
        """Bridge -> node, and port of a VM on its server -> VM: users' names."""
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
        """Lower port -> names of both ends, of every link and VM slot."""
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

    def _reserved(
        self,
        name: str,
    ) -> Iterator[tuple[int, int]]:
        """A tenant's links and what it reserves on each, in either direction."""
        reserved = self.ledger.held(name)
        # The ledger numbers its objects: servers first, then links.
        first_link = self.datacentre.n_servers
        end = first_link + self.datacentre.n_links
        for place, bps in zip(
            reserved.objects, reserved.amounts, strict=True
        ):
            if first_link <= place < end:
                yield int(place) - first_link, int(bps)

    def cut(
        self,
        plan: TenantPlan,
        lost: Collection[str],
    ) -> str:
        """A sentence about VMs that no longer reach each other, and the reason.

        Empty where all do.
        """
        if not lost:
            return ""
        pinned = len(self.datacentre.trees) > 1
        # With one tree there is no other root to be pinned to.
        sentence = cut_text(plan, lost, self.names, pinned=pinned)
        reason = self._stay_reasons.get(plan.job_id)
        if sentence and reason:
            return f"{sentence}; {reason}"
        return sentence

    def state(
        self,
        name: str,
        lost: Collection[str] | None = None,
    ) -> TenantState:
        """A tenant as it is now. Raises BadInput for an unknown name.

        ``lost``: the cables that carry nothing; None: ask the kernel.
        """
        if lost is None:
            lost = self._network.lost_cables()
        self._check_known(name)
        links = []
        for number, bps in self._reserved(name):
            # The directions of a link: up, then down.
            for directed in (2 * number, 2 * number + 1):
                link = self.datacentre.link_name(directed)
                links.append((link, bps))
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
        if not NAME.fullmatch(name):
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
        name = request.enforcement or self._enforcement
        for enforcement in ENFORCEMENTS:
            if enforcement == name:
                return enforcement
        raise BadInput(unknown_name("enforcement", name, ENFORCEMENTS))

    def _check_links_up(
        self,
        name: str,
        placement: Placement,
        lost: Collection[str],
    ) -> None:
        links = self._emulation.plan.links
        cables = []
        for number in sorted(links_used(self.datacentre, placement)):
            cables.append(links[number].lower.name)
        self._check_carried(name, cables, lost)

    def _check_carried(
        self,
        name: str,
        cables: Iterable[str],
        lost: Collection[str],
    ) -> None:
        """Raises DoesNotFit for a tenant that would need a cable that is down."""
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
        name = request.embedder or self._embedder
        return embedded(self.datacentre, free, request, name)

    def _planned(
        self,
        request: AddTenant,
        placement: Placement,
        enforcement: Enforcement,
    ) -> TenantPlan:
        """The tenant in free slots, with the lowest number that is free."""
        # Numbers go into addresses, classes and cookies, and are few: those of
        # tenants that are gone are given again.
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
            tenant_id,
            request.name,
            scaled_bps(request.bandwidth_bps, self._scale_rate),
        )
        return enforced(network, plan, enforcement)

    def _free_slots(self, placement: Placement) -> tuple[Slot, ...]:
        """The first free slots of the placement's servers."""
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


def _does_not_fit(name: str, error: OverCommit) -> DoesNotFit:
    """The ledger's words, without the instant: a tenant stays until removed."""
    lacking = str(error).removeprefix(f"job {name}: ")
    lacking = lacking.removesuffix(f" from {ALWAYS_S:g} s on")
    return DoesNotFit(
        f"tenant {name} does not fit: {lacking}", "testbed status"
    )
