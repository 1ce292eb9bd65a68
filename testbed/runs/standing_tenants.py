"""Tenants on a network that stays up: admitted one by one, by the ledger, until they are removed.

Bandwidths are the experiment's; on the emulated wire they are ``scale.rate`` times as much. Every
call does all that it says or changes nothing.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.request import ENFORCEMENTS, Enforcement
from testbed.backends.emu.cleanup_journal import Entry
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.backends.emu.vm_process import HOSTS, VmPlace
from testbed.embedding.base import embedder
from testbed.embedding.check import check_placement
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.errors import BadInput, DoesNotFit, RunFailed, TestbedError
from testbed.plan.lost_links import cables_of, cut_text, root_of
from testbed.plan.network_plan import (
    MAX_TENANT_VMS,
    TenantPlan,
    enforced,
    rerooted,
    scaled_bps,
    tenant_plan,
)
from testbed.reservation.ledger import Ledger, OverCommit
from testbed.reservation.rerooting import links_used, reroot
from testbed.runs.network_state import TenantState
from testbed.spec.document import unknown_name
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre

# The name of a VM is a host name, a letter first: "1.0" would be read as an address.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
# Every reservation is open-ended, from one instant on.
ALWAYS_S = 0.0
OPEN = "open"
"""The tenant that has all slots of an open network."""


@dataclass
class _Held:
    """``stays``: why its tree is the one that has lost a link; empty: it has lost none."""

    plan: TenantPlan
    bandwidth_bps: int
    vms: tuple[VmPlace, ...]
    enforcement: Enforcement
    stays: str = ""


class StandingTenants:
    """The tenants of one network. ``embedder_name`` places, and ``enforcement`` limits, those that
    name no other.

    ``folder`` is where the hosts files of VMs are.
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
        self._scale_rate = scale_rate
        self._embedder = embedder_name
        self._folder = folder
        self._enforcement = enforcement
        self.datacentre = emulation.datacentre
        self.ledger = Ledger(self.datacentre)
        self._held: dict[str, _Held] = {}
        self._open = False

    # -- changing ---------------------------------------------------------------------------

    def open(self) -> None:
        """Give all slots to one tenant without reservations: hosts h1, h2, … in their order.

        They share links as jobs without guarantees do. Raises BadInput, RunFailed.
        """
        self._open = True
        placement, slots = open_placement(self.datacentre), self._emulation.plan.slots
        self.ledger.reserve(OPEN, placement, 0, ALWAYS_S, None)
        most_bps = int(max(self.datacentre.nic_bps))
        wire_bps = scaled_bps(most_bps, self._scale_rate)
        given = placement, slots, 1, OPEN, wire_bps
        plan = replace(tenant_plan(self.datacentre, self._emulation.plan, *given), link_bps=())
        self._emulation.network.allow_borrowing()
        self._held[OPEN] = _Held(plan, most_bps, self._admitted(plan), "none")

    def add(
        self,
        name: str,
        n_vms: int,
        bandwidth_bps: int,
        embedder_name: str | None = None,
        at: Sequence[tuple[str, int]] = (),
        enforcement: str | None = None,
    ) -> TenantState:
        """Admit ⟨n, b⟩ where the embedder, or ``at`` (servers and numbers of VMs), puts it.

        Raises BadInput, DoesNotFit with the place that lacks room, RunFailed.
        """
        if not NAME.fullmatch(name):
            hint = "1 to 63 letters, digits, - or _, a letter first: its VMs are hosts NAME.0, …"
            raise BadInput(f"{name!r} cannot name a tenant", hint)
        if name in self._held:
            raise BadInput(f"there is a tenant {name} already", f"testbed tenant show {name}")
        if not 1 <= n_vms <= MAX_TENANT_VMS:
            raise BadInput(f"{n_vms} VMs: a live tenant has 1 to {MAX_TENANT_VMS}")
        self._check_bandwidth(bandwidth_bps)
        mode, lost = self._mode(enforcement), self._known_lost()
        free = self.ledger.residual(ALWAYS_S, None)
        placement = self._placement(name, n_vms, bandwidth_bps, embedder_name, at, free)
        links = self._emulation.plan.links
        used = [links[k].lower.name for k in sorted(links_used(self.datacentre, placement))]
        self._check_carried(name, used, lost)
        try:
            self.ledger.reserve(name, placement, bandwidth_bps, ALWAYS_S, None)
        except OverCommit as error:
            raise _does_not_fit(name, error) from error
        try:
            plan = enforced(
                self._emulation.plan, self._planned(name, placement, bandwidth_bps), mode
            )
            self._check_carried(name, cables_of(plan), lost)
            if mode == "none":
                self._emulation.network.allow_borrowing()
            self._held[name] = _Held(plan, bandwidth_bps, self._admitted(plan), mode)
        except BaseException:
            self.ledger.release(name, ALWAYS_S)
            raise
        return self.state(name)

    def remove(self, name: str) -> None:
        """End whatever runs in a tenant's VMs and free what it holds. Raises BadInput, RunFailed.

        One that could not be removed to the end is still there, and can be removed again.
        """
        plan = self._of(name).plan
        try:
            self._emulation.end_processes(plan)
            self._emulation.dismiss(plan)
            self._hosts_file(name).unlink(missing_ok=True)
        except OSError as error:
            raise RunFailed(f"tenant {name}: {error}") from error
        self._emulation.journal.remove([Entry("file", str(self._hosts_file(name)))])
        del self._held[name]
        self.ledger.release(name, ALWAYS_S)
        self._retry()

    def rerate(self, name: str, bandwidth_bps: int) -> TenantState:
        """Another bandwidth for a tenant's VMs, in place. Raises as :meth:`add` does."""
        held = self._of(name)
        self._check_bandwidth(bandwidth_bps)
        try:
            self.ledger.rerate(name, ALWAYS_S, bandwidth_bps)
        except OverCommit as error:
            raise _does_not_fit(name, error) from error
        try:
            wire_bps = scaled_bps(bandwidth_bps, self._scale_rate)
            held.plan = self._emulation.rerate(held.plan, wire_bps)
        except BaseException:
            self.ledger.rerate(name, ALWAYS_S, held.bandwidth_bps)
            raise
        held.bandwidth_bps = bandwidth_bps
        self._retry()
        return self.state(name)

    def follow_links(self) -> tuple[str, ...]:
        """Bring tenants whose tree has lost a link to another root where there is room; the others
        stay, and say why. A sentence for each that has moved, or has its links back.
        """
        lost = self._known_lost()
        hit, sentences = list[str](), list[str]()
        for name, held in self._held.items():
            if any(edge.lower.name in lost for edge in held.plan.edges):
                hit.append(name)
            elif held.stays:
                held.stays = ""
                sentences.append(f"tenant {name} has its links back")
        moves = self._rebooked(hit, lost) if self._emulation.own is None else {}
        network, booked = self._emulation.plan, self.ledger.holdings()
        new = {
            name: rerooted(self.datacentre, network, self._held[name].plan, booked[name].placement)
            for name in moves
        }
        failed = self._emulation.reroot([(self._held[n].plan, plan) for n, plan in new.items()])
        names = self.names
        for name, old in moves.items():
            if name in failed:
                self._rebook(name, old)
                self._held[name].stays = failed[name].message
                continue
            was, now = (names[root_of(plan)] for plan in (self._held[name].plan, new[name]))
            self._held[name].plan, self._held[name].stays = new[name], ""
            sentences.append(f"tenant {name} has moved from {was} to {now}")
        return tuple(sentences)

    def _rebooked(self, hit: Sequence[str], lost: Collection[str]) -> dict[str, Placement]:
        """Tenants that the ledger has brought to another root -> where they were. Whoever moves
        leaves room for others.
        """
        moved: dict[str, Placement] = {}
        down = self._numbers(lost)
        while True:
            before = len(moved)
            for name in (each for each in hit if each not in moved):
                old = self.ledger.holdings()[name].placement
                found = reroot(self.ledger, name, ALWAYS_S, down)
                if isinstance(found, Placement):
                    moved[name] = old
                else:
                    self._held[name].stays = found
            if len(moved) == before:
                return moved

    def _rebook(self, name: str, placement: Placement) -> None:
        """Back to where it was, over a link that is lost, unless another has come there."""
        self.ledger.set_lost((), ())
        with suppress(OverCommit):
            self.ledger.reroot(name, ALWAYS_S, placement)
        self._known_lost()

    def _retry(self) -> None:
        """There is room that was not there before; whoever made it has no part in what fails."""
        try:
            if any(held.stays for held in self._held.values()):
                for text in self.follow_links():
                    logging.info(text)
        except TestbedError:
            logging.exception("after a tenant has made room")

    # -- looking ----------------------------------------------------------------------------

    @property
    def plans(self) -> tuple[TenantPlan, ...]:
        """All tenants as they are on the network, in order of admission."""
        return tuple(held.plan for held in self._held.values())

    @property
    def names(self) -> dict[str, str]:
        """Bridge -> node, and port of a VM on its server -> VM, as people call them."""
        nodes, bridges = self.datacentre.names, self._emulation.plan.bridges
        named = {bridge.name: nodes[bridge.node] for bridge in bridges}
        for held in self._held.values():
            for vm, place in zip(held.plan.vms, held.vms, strict=True):
                named[vm.slot.port.name] = place.name
        return named

    @property
    def cables(self) -> dict[str, tuple[str, str]]:
        """Names of both ends of every link, and of every VM slot's cable, by the lower port."""
        names, plan = self.names, self._emulation.plan
        ports = [slot.port for slot in plan.slots]
        links = {k.lower.name: (names[k.lower.bridge], names[k.upper.bridge]) for k in plan.links}
        return links | {p.name: (names.get(p.name, p.name), names[p.bridge]) for p in ports}

    @property
    def reserved_bps(self) -> list[int]:
        """Reserved on each link, in the direction with more."""
        found = [0] * self.datacentre.n_links
        for name in self._held:
            for link, bps in self._reserved(name):
                found[link] += bps
        return found

    def _reserved(self, name: str) -> Iterator[tuple[int, int]]:
        """A tenant's links and what it reserves on each, in either direction."""
        reserved, servers = self.ledger.held(name), self.datacentre.n_servers
        for place, bps in zip(reserved.objects, reserved.amounts, strict=True):
            if servers <= place < servers + self.datacentre.n_links:
                yield int(place) - servers, int(bps)

    def cut(self, plan: TenantPlan, lost: Collection[str]) -> str:
        """A sentence about which VMs no longer reach which, and why; empty where all do."""
        if not lost:
            return ""
        cut = cut_text(plan, lost, self.names, pinned=len(self.datacentre.trees) > 1)
        return "; ".join(filter(None, (cut, self._held[plan.job_id].stays))) if cut else ""

    def state(self, name: str, lost: Collection[str] | None = None) -> TenantState:
        """``lost``: the cables that carry nothing, if the caller has asked the kernel already.

        Raises BadInput for a name that no tenant has.
        """
        lost = self._emulation.network.lost_cables() if lost is None else lost
        held = self._of(name)
        links = [
            (self.datacentre.link_name(2 * link + down), bps)
            for link, bps in self._reserved(name)
            for down in (0, 1)
        ]
        rates, cut = (held.bandwidth_bps, held.plan.rate_bps), self.cut(held.plan, lost)
        return TenantState(name, *rates, held.vms, tuple(links), held.enforcement, cut)

    def states(self) -> tuple[TenantState, ...]:
        """All tenants, in order of admission."""
        lost = self._emulation.network.lost_cables()
        return tuple(self.state(name, lost) for name in self._held)

    # -- inside -----------------------------------------------------------------------------

    def _of(self, name: str) -> _Held:
        if not self._held:
            raise BadInput(f"unknown tenant {name!r}: there are none", "testbed tenant add")
        if name not in self._held:
            raise BadInput(unknown_name("tenant", name, list(self._held)))
        return self._held[name]

    def _mode(self, name: str | None) -> Enforcement:
        modes = [mode for mode in ENFORCEMENTS if mode == (name or self._enforcement)]
        if not modes:
            raise BadInput(unknown_name("enforcement", str(name), ENFORCEMENTS))
        return modes[0]

    def _check_bandwidth(self, bandwidth_bps: int) -> None:
        if bandwidth_bps <= 0:
            raise BadInput("the bandwidth of a tenant is above 0 bit/s")
        most_bps = int(max(self.datacentre.nic_bps, default=0))
        if 0 < most_bps < bandwidth_bps:
            asked, most = map(human_bandwidth, (bandwidth_bps, most_bps))
            raise DoesNotFit(f"{asked} asked per VM, no server's link has more than {most}")

    def _known_lost(self) -> frozenset[str]:
        """Cables that carry nothing now; of their links the ledger has nothing free."""
        lost = self._emulation.network.lost_cables()
        self.ledger.set_lost((), self._numbers(lost))
        return lost

    def _numbers(self, lost: Collection[str]) -> list[int]:
        links = self._emulation.plan.links
        return [number for number, link in enumerate(links) if link.lower.name in lost]

    def _check_carried(self, name: str, cables: Iterable[str], lost: Collection[str]) -> None:
        """Raises DoesNotFit for a tenant whose packets a link that is down would not carry."""
        needed = [each for each in cables if each in lost]
        if needed:
            link = " - ".join(self.cables[needed[0]])
            why = f"tenant {name} does not fit: it would use the link {link}, which is down"
            raise DoesNotFit(why, "sudo testbed link show")

    def _placement(
        self,
        name: str,
        n: int,
        bps: int,
        chosen: str | None,
        at: Sequence[tuple[str, int]],
        free: Residual,
    ) -> Placement:
        if not at:
            found = embedder(chosen or self._embedder).embed(self.datacentre, free, n, bps)
            if isinstance(found, Refusal):
                raise DoesNotFit(f"tenant {name} does not fit: {found.reason}", "testbed status")
            return found
        vms_on: dict[int, int] = {}
        for text, count in at:
            server = self._server(text)
            vms_on[server] = vms_on.get(server, 0) + count
        if sum(vms_on.values()) != n or min(vms_on.values()) < 1:
            placed = f"{sum(vms_on.values())} are placed by hand"
            raise BadInput(f"{n} VMs are asked for, {placed}; each server named takes at least one")
        wanted = tuple(sorted(vms_on.items()))
        choices = [Placement(tree.root, wanted) for tree in self.datacentre.trees]
        # The first tree that has room; where none has, the ledger says what the first one lacks.
        fitting = (p for p in choices if not check_placement(self.datacentre, free, p, n, bps))
        return next(fitting, choices[0])

    def _server(self, text: str) -> int:
        """A server by its name, or by its number."""
        names = self.datacentre.names[: self.datacentre.n_servers]
        if text in names:
            return names.index(text)
        if text.isascii() and text.isdecimal() and int(text) < len(names):
            return int(text)
        raise BadInput(f"unknown server {text!r}: {names[0]} to {names[-1]}, or by their numbers")

    def _planned(self, name: str, placement: Placement, bandwidth_bps: int) -> TenantPlan:
        """The tenant in slots and with a number that no other has."""
        others = [held.plan for held in self._held.values()]
        ids, taken = {p.tenant_id for p in others}, {vm.slot for p in others for vm in p.vms}
        tenant_id = min(set(range(1, len(ids) + 2)) - ids)
        network = self._emulation.plan
        slots = [
            slot
            for server, count in placement.vms_on
            for slot in [s for s in network.slots_of_server[server] if s not in taken][:count]
        ]
        wire_bps = scaled_bps(bandwidth_bps, self._scale_rate)
        given = self.datacentre, network, placement, tuple(slots), tenant_id, name, wire_bps
        return tenant_plan(*given)

    def _admitted(self, plan: TenantPlan) -> tuple[VmPlace, ...]:
        """The tenant's VMs on the network, each with its control group and its hosts file."""
        self._emulation.admit(plan)
        try:
            joins = [self._emulation.open_vm(vm.slot) for vm in plan.vms]
            hosts = self._write_hosts(plan)
        except BaseException as error:
            self._emulation.dismiss(plan)
            if isinstance(error, OSError):
                raise RunFailed(f"tenant {plan.job_id}: {error}") from error
            raise
        places = []
        for vm, groups in zip(plan.vms, joins, strict=True):
            server = self.datacentre.names[vm.slot.server]
            netns, joined = str(NETNS_DIR / vm.slot.netns), tuple(map(str, groups))
            name = self._vm_name(plan, vm.index)
            places.append(VmPlace(name, server, str(vm.ip), netns, joined, str(hosts)))
        return tuple(places)

    def _vm_name(self, plan: TenantPlan, index: int) -> str:
        """A tenant's VMs count from 0, hosts of an open network from 1, as Mininet's do."""
        return f"h{index + 1}" if self._open else f"{plan.job_id}.{index}"

    def _hosts_file(self, name: str) -> Path:
        return self._folder / f"hosts.{name}"

    def _write_hosts(self, plan: TenantPlan) -> Path:
        """This machine's hosts, and the tenant's VMs: root's file, for all to read."""
        path = self._hosts_file(plan.job_id)
        self._emulation.journal.add([Entry("file", str(path))])
        known = HOSTS.read_text(encoding="utf-8", errors="replace") if HOSTS.exists() else ""
        lines = [
            known.rstrip("\n"),
            *(f"{vm.ip}\t{self._vm_name(plan, vm.index)}" for vm in plan.vms),
        ]
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write("".join(f"{line}\n" for line in lines))
        return path


def open_placement(datacentre: DataCentre) -> Placement:
    """A VM in every slot, on the first tree that has all servers. Raises BadInput without any."""
    on = tuple((server, n) for server, n in enumerate(datacentre.slots.tolist()) if n)
    servers = {server for server, _ in on}
    roots = [t.root for t in datacentre.trees if servers <= set(t.members.tolist())]
    if datacentre.n_links == 0 or not (on and roots):
        hint = "give the topology links that connect all servers, as kind: tree has"
        raise BadInput(f"no network connects all servers of this {datacentre.kind} topology", hint)
    if datacentre.total_slots > MAX_TENANT_VMS:
        most = f"an open network has at most {MAX_TENANT_VMS}"
        raise BadInput(f"{datacentre.total_slots} VM slots: {most}", "use a smaller topology")
    return Placement(roots[0], on)


def _does_not_fit(name: str, error: OverCommit) -> DoesNotFit:
    """The ledger's words, without the instant: every tenant stays until it is removed."""
    lacking = str(error).removeprefix(f"job {name}: ").removesuffix(f" from {ALWAYS_S:g} s on")
    return DoesNotFit(f"tenant {name} does not fit: {lacking}", "testbed status")
