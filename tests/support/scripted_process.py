"""Processes whose account of their time is scripted, and switches of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from testbed.backends.emu import switch_evidence
from testbed.backends.emu.process_progress import Progress, Spent
from testbed.backends.emu.switch_evidence import Forwarder, SwitchEvidence
from testbed.plan.network_plan import NetworkPlan


class ScriptedProcess:
    """A process that runs for a share of each second, and waits for another."""

    def __init__(self, ran: float, waited: float, state: str = "S") -> None:
        self.ran = ran
        self.waited = waited
        self.state = state
        self.at_s = 0.0

    def read(self, _: int) -> Spent:
        """Its account at ``at_s``."""
        return Spent(
            self.ran * self.at_s, self.waited * self.at_s, self.state
        )


def scripted_switch(
    monkeypatch: pytest.MonkeyPatch,
    processes: Sequence[ScriptedProcess],
    plan: NetworkPlan,
) -> SwitchEvidence:
    """A switch of these parts: a bridge each, the last one has all others."""

    def progress(pid: int) -> Progress:
        return Progress(pid, processes[pid - 1].read)

    monkeypatch.setattr(switch_evidence, "Progress", progress)
    names = [bridge.name for bridge in plan.bridges]
    forwarders = []
    for pid in range(1, len(processes) + 1):
        bridges = names[pid - 1 : pid]
        if pid == len(processes):
            bridges = names[pid - 1 :]
        forwarders.append(Forwarder(pid, frozenset(bridges)))
    return SwitchEvidence(plan, forwarders)
