"""Replays a run's events and proves what must always be true.

Shares no code with the schedulers, the embedders, the ledger or the engine, and
follows jobs' holds by itself. ``docs/runs-and-fidelity.md`` lists the checks.
"""

from testbed.audit.checks import CHECKS, audit, audit_all, audit_played
from testbed.audit.history import Audit, Invariant, Result, Violation

__all__ = [
    "CHECKS",
    "Audit",
    "Invariant",
    "Result",
    "Violation",
    "audit",
    "audit_all",
    "audit_played",
]
