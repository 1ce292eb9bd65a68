"""The view that plug-ins decide from: the engine's, read-only.

All its values are frozen or copies.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NoReturn, TypeVar

import numpy as np

from testbed.reservation.ledger import Ledger
from testbed.reservation.timeline import Footprint, Pool, Timeline
from testbed.schedulers.policy import View

Refuse = Callable[[str], NoReturn]
"""Ends the decision, with the reason."""


class PlugInView:
    """See :class:`testbed.schedulers.policy.View`; ``now_s`` is set before each
    decision.
    """

    def __init__(self, view: View, refuse: Refuse) -> None:
        self.datacentre = view.datacentre
        self.listening = view.listening
        self.now_s = view.now_s
        self.job = view.job
        self.order = view.order
        self.tier = view.tier
        self.waiting = view.waiting
        self.running = view.running
        self.placement = view.placement
        self.left = view.left
        self.residual = view.residual
        self._real = view
        self._refuse = refuse
        self._read: ReadLedger | None = None

    @property
    def largest_bps(self) -> int:
        return self._real.largest_bps

    @property
    def ledger(self) -> ReadLedger:
        real = self._real.ledger
        if self._read is None or not self._read.is_of(real):
            self._read = ReadLedger(real, self._refuse)
        return self._read

    def renew(self, now_s: float) -> None:
        """Makes it the view of a decision at ``now_s``."""
        self.now_s = now_s
        if self._read is not None:
            self._read.renew()


class ReadLedger:
    """A read-only :class:`~testbed.reservation.ledger.Ledger`.

    Its arrays are copies; a call that would change it ends the decision.
    """

    def __init__(self, ledger: Ledger, refuse: Refuse) -> None:
        self.datacentre = ledger.datacentre
        self._ledger = ledger
        self._refuse = refuse
        self._timeline: Timeline | None = None

    def is_of(self, ledger: Ledger) -> bool:
        return self._ledger is ledger

    @property
    def timeline(self) -> Timeline:
        """A copy of the ledger's timeline, the same within a decision.
        O(changes + objects).
        """
        if self._timeline is None:
            self._timeline = _copied(self._ledger.timeline)
            self._timeline.pool = _copied(self._timeline.pool)
        return self._timeline

    def renew(self) -> None:
        """Forgets the copy: the ledger may have changed."""
        self._timeline = None

    def held(self, job_id: str) -> Footprint:
        held = self._ledger.held(job_id)
        return Footprint(held.objects.copy(), held.amounts.copy())

    def __getattr__(self, name: str) -> Any:
        # Python calls this for names that are not defined above.
        if name in _READS:
            return getattr(self._ledger, name)
        if name in _CHANGES:
            self._refuse(f"changes the ledger (Ledger.{name})")
        raise AttributeError(f"a ledger to read has no attribute {name!r}")


_READS = frozenset(
    {"has_lost", "residual", "residuals", "free_at", "holdings", "check"}
)
_CHANGES = frozenset(
    {
        "reserve",
        "release",
        "rerate",
        "reroot",
        "shorten",
        "set_lost",
        "forget_before",
    }
)
_Copied = TypeVar("_Copied", Timeline, Pool)


def _copied(of: _Copied) -> _Copied:
    """A copy that shares no array with the original."""
    other = copy(of)
    for name, value in vars(of).items():
        if isinstance(value, np.ndarray | list):
            setattr(other, name, value.copy())
    return other
