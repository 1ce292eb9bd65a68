"""A policy under check: its runs of small experiments, and what they have shown
so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from testbed.engine.backend import Backend
from testbed.engine.engine import Engine
from testbed.engine.refusals import ActionRefused
from testbed.errors import BadInput
from testbed.events import Event, JobStarted
from testbed.play.playing import play, simulated
from testbed.policy_trials.policy_cases import (
    MINIMAL_CASE,
    Case,
    Entry,
    Failed,
    Family,
    cases,
    families_of,
    largest,
)
from testbed.policy_trials.policy_process import MOST_DECISIONS
from testbed.policy_trials.timed_policy import TimedPolicy
from testbed.reservation.ledger import LedgerBroken
from testbed.schedulers.policy import Policy, PolicyKind
from testbed.spec.experiment import Experiment, PolicySpec

Verdict = Literal["ok", "failed", "not declared", "not run"]

SAYS: Mapping[str, str] = {
    "determinism": "the same experiment gives the same events",
    "replay": "a replay of a run decides as the run did",
    "capacity": "every placement is within capacity, and the audit passes",
    "claims": "what the policy claims of itself holds",
    "no starvation": "a job that fits the empty data centre starts, however many come after it",
    "failures": "runs in which servers and links fail pass the audit",
    "sound": "every decision is an answer, in time, of the view alone",
    "live": "a live run, replayed in the simulator, decides as the run did",
}
"""The property that each check holds a policy to."""


@dataclass(frozen=True)
class PolicyFinding:
    """The outcome of one check: what it holds the policy to, and the evidence.

    ``counterexample`` is the text of an experiment file that shows the failure.
    """

    check: str
    says: str
    verdict: Verdict
    evidence: str
    counterexample: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Effort:
    """Numbers of experiments that are tried of each family."""

    twice: int = 4
    replayed: int = 12
    audited: int = 30
    failing: int = 18


QUICK = Effort(twice=2, replayed=4, audited=8, failing=6)


MOST_BROKEN = 5
"""Broken runs after which no other is tried."""


class NoEvidence(Exception):
    """A run that says nothing about the check: the policy broke it, or the
    engine refused it.
    """

    def __init__(self, refused: str | None = None) -> None:
        self.refused = refused


@dataclass
class Subject:
    """A policy under check, and what all of its runs have shown so far.

    ``broken`` are runs that ended by the policy's own fault, ``refused`` those
    that the engine stopped for what the policy asked of it.
    """

    entry: Entry
    spec: PolicySpec
    seed: int = 1
    effort: Effort = field(default_factory=Effort)
    broken: list[Failed] = field(default_factory=list)
    refused: list[Failed] = field(default_factory=list)
    decided_s: list[float] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    audited: dict[str, Mapping[str, str]] = field(default_factory=dict)
    check: str = ""

    @classmethod
    def of(cls, entry: Entry, seed: int, effort: Effort) -> Subject:
        """The policy of a file's entry. Raises SpecErrors where the entry is
        wrong.
        """
        [spec] = MINIMAL_CASE.experiment(entry).policies
        return cls(entry, spec, seed, effort)

    @property
    def kind(self) -> PolicyKind:
        return self.spec.kind

    @cached_property
    def claims(self) -> tuple[str, ...]:
        return self.kind.claims_of(dict(self.spec.parameters))

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Families of cases of which the policy starts a job."""
        able = families_of(self.kind)
        played = tuple(family for family in able if self._plays(family))
        # One that starts no job anywhere is checked all the same.
        return played or able

    def _plays(self, family: Family) -> bool:
        [case] = largest(cases(family), 1, self.seed)
        try:
            return any(
                isinstance(event, JobStarted) for event in self.play(case)
            )
        except NoEvidence:
            # It had its jobs, and broke or was refused: the checks of this
            # family say how.
            return True

    def play(
        self,
        case: Case,
        backend: Callable[[Experiment], Backend] | None = None,
    ) -> list[Event]:
        """The events of one run; the ledger is checked after each step. Raises
        NoEvidence.
        """
        if len(self.broken) >= MOST_BROKEN:
            raise NoEvidence
        experiment = case.experiment(self.entry)
        [policy] = experiment.policies
        history: list[Event] = []
        on = (
            simulated(experiment, policy)
            if backend is None
            else backend(experiment)
        )
        try:
            play(
                experiment,
                policy,
                on,
                sink=history.append,
                around=self._timed,
                after_step=_sound_ledger,
            )
        except BadInput:
            raise
        except Exception as error:
            raise self._noted(case, error) from error
        self.count(1, len(experiment.jobs))
        return history

    def _noted(self, case: Case, error: Exception) -> NoEvidence:
        """Keeps a failed run, by whose fault it is."""
        failed = Failed(case, str(error))
        if _is_refusal(error):
            self.refused.append(failed)
            return NoEvidence(str(error))
        self.broken.append(failed)
        return NoEvidence()

    def count(self, runs: int, jobs: int) -> None:
        """Adds runs that came to their end to the check that is being made."""
        self.runs[self.check] += runs
        self.jobs[self.check] += jobs

    def _timed(self, policy: Policy) -> Policy:
        return TimedPolicy(policy, self.decided_s, MOST_DECISIONS)

    def tried(self) -> str:
        """The runs of the check that is being made, in words."""
        return f"{self.runs[self.check]} runs of {self.jobs[self.check]:,} jobs"

    def finding(
        self,
        failed: Failed | None,
        evidence: str,
        verdict: Verdict = "ok",
    ) -> PolicyFinding:
        """The finding of the check that is being made; ``evidence`` and
        ``verdict`` are those of a check without a failure.
        """
        counterexample = None
        if failed is not None:
            verdict = "failed"
            evidence = failed.how
            counterexample = failed.case.text(self.entry)
        elif verdict == "ok" and self.broken and not self.runs[self.check]:
            verdict = "not run"
            evidence = "the policy broke every run: see sound"
        return PolicyFinding(
            self.check,
            SAYS[self.check],
            verdict,
            evidence,
            counterexample=counterexample,
        )


def _is_refusal(error: Exception) -> bool:
    """True where the engine refused an action, or a replay asks for what its
    run did not.
    """
    return (
        isinstance(error.__cause__, ActionRefused)
        or isinstance(error, LedgerBroken)
        or str(error).startswith("replay:")
    )


def _sound_ledger(engine: Engine) -> None:
    engine.reservations.check()
