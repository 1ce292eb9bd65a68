"""When a job will have ended, from what its agents say of their progress."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jobs.live.protocol import ComputePlan, Plan, Progress, TransferPlan

SAMPLES = 6
"""How far an agent's speed looks back: some 1.2 s, as it says what it has done every 0.2 s."""


@dataclass
class Pace:
    """How much of its plan each agent of a job had done when, lately."""

    plans: tuple[Plan, ...]
    _seen: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)

    def hear(self, progress: Progress) -> None:
        """Take in a sample."""
        share = _share(self.plans[progress.index], progress)
        if share is not None:
            seen = self._seen.setdefault(progress.index, deque(maxlen=SAMPLES))
            seen.append((progress.at_ns, share))

    def end_ns(self, over: frozenset[int]) -> float | None:
        """When the last of its agents is done at the present speed; None: it cannot be told.

        ``over``: agents that have ended already.
        """
        latest = 0.0
        for index in range(len(self.plans)):
            if index in over:
                continue
            seen = self._seen.get(index)
            if seen is None or seen[-1][1] <= seen[0][1]:
                return None
            (from_ns, had), (at_ns, has) = seen[0], seen[-1]
            latest = max(latest, at_ns + (1.0 - has) * (at_ns - from_ns) / (has - had))
        return latest


def _share(plan: Plan, progress: Progress) -> float | None:
    """How much of a plan is done; None of what nobody knows the end of."""
    match plan:
        case ComputePlan(cpu_s=cpu_s):
            return progress.cpu_s / cpu_s
        case TransferPlan(receives=receives) if receives:
            return progress.received_bytes / sum(flow.size_bytes for flow in receives)
    return None
