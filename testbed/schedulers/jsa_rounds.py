"""Rounds: one decision an instant, after all that ends and arrives then."""

from __future__ import annotations

from testbed.schedulers.actions import Action, Ended, PolicyEvent, Wake
from testbed.schedulers.policy import View


class Rounds:
    """Asks to be woken once in every instant in which something happens.

    A batch arrives as many jobs at one instant; scheduling it needs all of them. What a policy is
    woken for comes after the ends and arrivals of that instant.
    """

    def __init__(self) -> None:
        self._asked = False

    def ask(self, view: View, event: PolicyEvent) -> list[Action]:
        """Answer an arrival or an end: a round at this instant, unless one is due already."""
        if self._asked or (isinstance(event, Ended) and event.more):
            return []
        self._asked = True
        return [Wake(view.now_s)]

    def begin(self) -> None:
        """The round has come."""
        self._asked = False
