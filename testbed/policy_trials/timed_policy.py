"""A policy whose decisions are timed and counted."""

from __future__ import annotations

import time

from testbed.errors import RunFailed
from testbed.schedulers.actions import Action, PolicyEvent
from testbed.schedulers.policy import Policy, View


class TimedPolicy:
    """Adds the seconds of each decision of a policy to ``decided_s``.

    Raises RunFailed at more than ``most`` decisions: a run of few jobs that
    never ends.
    """

    def __init__(
        self, policy: Policy, decided_s: list[float], most: int
    ) -> None:
        self._policy = policy
        self._decided_s = decided_s
        self._left = self._most = most
        self.name = policy.name
        # Only where it has one: by this attribute the engine knows a policy
        # that charges.
        price = getattr(policy, "price", None)
        if price is not None:
            self.price = price

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        self._left -= 1
        if self._left < 0:
            why = f"policy {self.name} has made {self._most:,} decisions, at {view.now_s:g} s"
            raise RunFailed(
                f"{why}, and the run does not end",
                "does it wake itself, or start again?",
            )
        began = time.perf_counter()
        try:
            return self._policy.decide(view, event)
        finally:
            self._decided_s.append(time.perf_counter() - began)
