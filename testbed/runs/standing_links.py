"""Cables of a network that stays up: what is reserved on them, and whom one cuts that is lost.

Whether a cable carries is asked of the kernel each time, whoever has taken it down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from testbed.backends.emu.emulation import Emulation
from testbed.errors import BadInput
from testbed.plan.lost_links import cables_of
from testbed.runs.network_state import LinkState
from testbed.runs.standing_tenants import StandingTenants
from testbed.spec.document import did_you_mean


class StandingLinks:
    """The cables of one network: its links in the plan's order, then those of VM slots."""

    def __init__(self, emulation: Emulation, tenants: StandingTenants) -> None:
        self._links = emulation.plan.links
        self._network = emulation.network
        self._tenants = tenants

    def states(self) -> tuple[LinkState, ...]:
        """Every cable as it is now."""
        of, lost = self._tenants, self._network.lost_cables()
        capacities_bps = of.datacentre.link_capacity_bps.tolist()
        rates_bps = zip(capacities_bps, of.reserved_bps, strict=True)
        both = zip(self._links, rates_bps, strict=True)
        of_link = {k.lower.name: (k.upper.name, *rates) for k, rates in both}
        used = [(plan, set(cables_of(plan))) for plan in of.plans]
        found = []
        for port, ends in of.cables.items():
            upper, capacity_bps, reserved_bps = of_link.get(port, ("", 0, 0))
            users = [plan for plan, cables in used if port in cables]
            cuts = [of.cut(plan, lost) for plan in users] if port in lost else []
            found.append(
                LinkState(
                    name=" - ".join(ends),
                    ends=ends,
                    ports=(port, upper) if upper else (port,),
                    up=port not in lost,
                    capacity_bps=capacity_bps,
                    reserved_bps=reserved_bps,
                    tenants=tuple(plan.job_id for plan in users),
                    broken=tuple(filter(None, cuts)),
                )
            )
        return tuple(found)

    def change(self, names: Sequence[str], *, up: bool) -> LinkState:
        """Take a cable down, or bring it back, in both directions; its limits stay. Tenants whose
        tree has lost it move where there is room.

        ``names``: both ends in any order, or the link's name. Raises BadInput, RunFailed.
        """
        self._network.set_ports(self._named(names).ports, up=up)
        moved = self._tenants.follow_links()
        return replace(self._named(names), moved=moved)

    def _named(self, names: Sequence[str]) -> LinkState:
        ends = [end for name in names for end in re.split(" <?->? ", name)]
        states = self.states()
        known = list(dict.fromkeys(end for state in states for end in state.ends))
        for end in ends:
            if end not in known:
                hint = "sudo testbed link show lists the links"
                raise BadInput(f"no link ends at {end!r}{did_you_mean(end, known)}", hint)
        found = [state for state in states if set(ends) <= set(state.ends)]
        if len(found) != 1:
            which = f"no link is between {' and '.join(ends)}" if ends[1:] else "name both ends"
            others = [end for s in states if ends[0] in s.ends for end in s.ends if end != ends[0]]
            raise BadInput(which, f"{ends[0]} has links to {', '.join(others)}")
        return found[0]

    def trouble(self) -> list[str]:
        """A sentence for each cable of links or VMs that is down."""
        down = [s for s in self.states() if not s.up and (s.tenants or s.capacity_bps)]
        return ["; ".join((f"link {state.name} is down", *state.broken)) for state in down]
