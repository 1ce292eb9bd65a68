"""A policy whose decisions are timed and counted."""

from __future__ import annotations

import time

from testbed.errors import RunFailed
from testbed.schedulers.actions import Action, PolicyEvent
from testbed.schedulers.policy import Policy, View


class TimedPolicy:
    """A policy around another one: appends the seconds of each decision to
    ``decided_s``.

    It raises RunFailed after ``most`` decisions: so many for few jobs are a
    sign of a run that never ends.
    """

    def __init__(
        self, policy: Policy, decided_s: list[float], most: int
    ) -> None:
        self._policy = policy
        self._decided_s = decided_s
        self._most = most
        self._decisions_left = most
        self.name = policy.name
        # The engine knows a policy that charges by this attribute.
        price = getattr(policy, "price", None)
        if price is not None:
            self.price = price

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        self._decisions_left -= 1
        if self._decisions_left < 0:
            raise RunFailed(
                f"policy {self.name} has made {self._most:,} decisions, at"
                f" {view.now_s:g} s, and the run does not end",
                "does it wake itself, or start again?",
            )
        began = time.perf_counter()
        try:
            return self._policy.decide(view, event)
        finally:
            self._decided_s.append(time.perf_counter() - began)
