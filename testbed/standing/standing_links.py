"""Cables of a standing network: reservations on them, and tenants they cut.

Whether a cable carries is asked of the kernel each time: anybody may have taken
it down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from testbed.backends.emu.emulation import Emulation
from testbed.errors import BadInput
from testbed.plan.lost_links import cables_of
from testbed.plan.network_plan import TenantPlan
from testbed.spec.document import did_you_mean
from testbed.standing.keeper_protocol import Way
from testbed.standing.network_state import LinkState
from testbed.standing.standing_tenants import StandingTenants


class StandingLinks:
    """The cables of one network: its links in order, then those of VM slots."""

    def __init__(
        self, emulation: Emulation, tenants: StandingTenants
    ) -> None:
        self._links = emulation.plan.links
        self._network = emulation.network
        self._tenants = tenants

    def states(self) -> tuple[LinkState, ...]:
        """Every cable as it is now."""
        lost = self._network.lost_cables()
        plans = self._tenants.plans
        cables = [(plan, set(cables_of(plan))) for plan in plans]
        links = self._links_by_port()
        # A cable is known by the port at its lower end; that of a VM by the
        # port on its server.
        states = []
        for port, ends in self._tenants.cables.items():
            users = [plan for plan, used in cables if port in used]
            state = _state(port, ends, links.get(port), users)
            if port in lost:
                sentences = (
                    self._tenants.trouble(plan, lost) for plan in users
                )
                broken = tuple(filter(None, sentences))
                state = replace(state, up=False, broken=broken)
            states.append(state)
        return tuple(states)

    def _links_by_port(self) -> dict[str, _LinkRates]:
        """Links of the data centre, by their lower ports."""
        directed_bps = (
            self._tenants.datacentre.directed_capacity_bps.tolist()
        )
        reserved_bps = self._tenants.reserved_bps
        links = {}
        for k, link in enumerate(self._links):
            links[link.lower.name] = _LinkRates(
                link.upper.name,
                directed_bps[2 * k],
                directed_bps[2 * k + 1],
                reserved_bps[k],
            )
        return links

    def change(
        self,
        names: Sequence[str],
        *,
        up: bool,
    ) -> LinkState:
        """Takes a cable down, or brings it back, in both directions.

        Its limits stay. Tenants whose tree has lost it move where there is
        room. ``names``: both ends in any order, or the link's name. Raises
        BadInput, RunFailed.
        """
        self._network.set_ports(self._named(names).ports, up=up)
        moved = self._tenants.follow_links()
        # Asked anew: the tenants that have moved use other cables now.
        return replace(self._named(names), moved=moved)

    def set_capacity(
        self,
        names: Sequence[str],
        capacity_bps: int,
        way: Way = "both",
    ) -> LinkState:
        """Changes a link's capacity in one direction or both. Raises BadInput,
        DoesNotFit, RunFailed.
        """
        state = self._named(names)
        if not state.capacity_bps:
            raise BadInput(
                f"{state.name} is a VM's cable: its rate is its tenant's",
                "sudo testbed tenant rerate NAME RATE",
            )
        up_bps = state.capacity_bps
        down_bps = state.capacity_down_bps
        if way != "down":
            up_bps = capacity_bps
        if way != "up":
            down_bps = capacity_bps
        lower = [link.lower.name for link in self._links]
        self._tenants.set_capacity(
            lower.index(state.ports[0]), up_bps, down_bps
        )
        return self._named(names)

    def _named(self, names: Sequence[str]) -> LinkState:
        """The one cable that has all these ends. Raises BadInput."""
        states = self.states()
        ends = _ends_of(names, states)
        matching = [
            state for state in states if set(ends) <= set(state.ends)
        ]
        if len(matching) > 1:
            # A host of a Topo and its VM have one name: the link is meant.
            matching = [state for state in matching if state.capacity_bps]
        if len(matching) == 1:
            return matching[0]
        neighbours: list[str] = []
        for state in states:
            if ends[0] in state.ends:
                neighbours += (end for end in state.ends if end != ends[0])
        problem = "name both ends"
        if len(ends) > 1:
            problem = f"no link is between {' and '.join(ends)}"
        raise BadInput(
            problem, f"{ends[0]} has links to {', '.join(neighbours)}"
        )

    def trouble(self) -> list[str]:
        """A sentence for each cable of links or VMs that is down."""
        sentences = []
        for state in self.states():
            # The cable of a slot without a VM is nobody's trouble.
            used = state.tenants or state.capacity_bps
            if used and not state.up:
                parts = (f"link {state.name} is down", *state.broken)
                sentences.append("; ".join(parts))
        return sentences


class _LinkRates(NamedTuple):
    """A link of the data centre; bit/s up, down, and reserved in either
    direction.
    """

    upper_port: str
    up_bps: int
    down_bps: int
    reserved_bps: int


def _state(
    port: str,
    ends: tuple[str, str],
    link: _LinkRates | None,
    users: Sequence[TenantPlan],
) -> LinkState:
    """A cable that is up. ``link``: None if the cable is a VM's."""
    state = LinkState(
        name=" - ".join(ends),
        ends=ends,
        ports=(port,),
        up=True,
        capacity_bps=0,
        reserved_bps=0,
        tenants=tuple(plan.job_id for plan in users),
        broken=(),
    )
    if link is None:
        return state
    return replace(
        state,
        ports=(port, link.upper_port),
        capacity_bps=link.up_bps,
        capacity_down_bps=link.down_bps,
        reserved_bps=link.reserved_bps,
    )


_DASH = re.compile(" <?->? ")


def _split(name: str, states: Sequence[LinkState]) -> list[str]:
    """The ends that a name holds: an end as it is, or two of one cable."""
    if any(name in state.ends for state in states):
        return [name]
    for dash in _DASH.finditer(name):
        both = [name[: dash.start()], name[dash.end() :]]
        if any(set(both) == set(state.ends) for state in states):
            return both
    return _DASH.split(name)


def _ends_of(
    names: Sequence[str], states: Sequence[LinkState]
) -> list[str]:
    """Ends as they are given, or in a link's name. Raises BadInput."""
    ends: list[str] = []
    for name in names:
        # A link's name, in one direction or both, has two ends; these may hold
        # " - " themselves.
        ends += _split(name, states)
    # Not a set: suggestions come in the order of the cables.
    known: dict[str, None] = {}
    for state in states:
        known |= dict.fromkeys(state.ends)
    for end in ends:
        if end not in known:
            raise BadInput(
                f"no link ends at {end!r}{did_you_mean(end, list(known))}",
                "sudo testbed link show lists the links",
            )
    return ends
