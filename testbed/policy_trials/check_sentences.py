"""A policy's check in sentences: what passed, and its place among the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.policy_trials.policy_standing import Standing
from testbed.policy_trials.policy_subject import PolicyFinding
from testbed.policy_trials.standing_pictures import standing_alt
from testbed.units import number_of


def check_sentences(
    findings: Sequence[PolicyFinding], standings: Sequence[Standing]
) -> list[str]:
    """The sentence on the checks, then one for each workload."""
    return [_checks(findings), *map(standing_alt, standings)]


def _checks(findings: Sequence[PolicyFinding]) -> str:
    """Checks that failed or did not apply by name, the others by their count."""
    passed = list(_with(findings, "ok"))
    failed = list(_with(findings, "failed"))
    opening = f"Failed: {', '.join(failed)}. "
    if not failed:
        opening = "No check failed. "
    parts = [
        f"{len(passed):,} of {number_of(len(findings), 'check')} passed"
    ]
    for name in _with(findings, "not run"):
        parts.append(f"{name}: not run")
    for name in _with(findings, "not declared"):
        parts.append(
            f"{name}: this policy does not declare it, so that nothing decides"
        )
    return f"{opening}{'; '.join(parts)}."


def _with(findings: Sequence[PolicyFinding], verdict: str) -> Iterator[str]:
    for finding in findings:
        if finding.verdict == verdict:
            yield finding.check


def standing_caption(standing: Standing) -> str:
    """The meaning of a workload table's columns."""
    means = "Values of one seed."
    if len(standing.seeds) > 1:
        seeds = number_of(len(standing.seeds), "seed")
        means = (
            f"Means over {seeds}, ± half of the 95 % confidence interval."
        )
    return (
        f"{means} Success: jobs that finished, and by their deadline where they"
        " have one. Mean wait: of the jobs that started; a policy that rejects"
        " what it cannot start at once waits for nothing. Bounded slowdown:"
        " time from submission to end over running time, of jobs as short as"
        " 10 s. Makespan: until the last job ended. Decision: time of a"
        " decision. → marks the policy under check."
    )
