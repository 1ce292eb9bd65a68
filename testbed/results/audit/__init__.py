"""Replays a run's events and proves what must always be true.

Shares no code with the schedulers, the embedders, the ledger or the engine: it has its own
arithmetic. ``docs/runs-and-fidelity.md`` lists the checks.
"""

from testbed.results.audit.checks import CHECKS, audit, audit_all, audit_played
from testbed.results.audit.history import Audit, Check, Finding, Result

__all__ = ["CHECKS", "Audit", "Check", "Finding", "Result", "audit", "audit_all", "audit_played"]
