"""Checks of a policy: the property tests that the testbed's own policies pass,
with their evidence.

A check plays small experiments (:mod:`testbed.policy_trials.policy_cases`). One
that fails has a counterexample, the smallest that was found, as an experiment
file. A run that the policy breaks is evidence for the check ``sound`` alone,
and one that the engine refuses for ``capacity``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from testbed.audit import audit
from testbed.engine.backend import Backend
from testbed.errors import MachineCannot, RunFailed
from testbed.events import Event, JobEnded, JobStarted, JobSubmitted
from testbed.failures import ON_FAILURE
from testbed.play.backend_trace import ReplayBackend, TracingBackend
from testbed.play.playing import (
    RunRecord,
    replay_sources,
    resolved_record,
    run_replayed,
)
from testbed.policy_trials.jittered_backend import JitteredBackend
from testbed.policy_trials.policy_cases import (
    LARGE,
    Case,
    Failed,
    Family,
    cases,
    failing_cases,
    largest,
    live_case,
    search,
    smaller,
    starving_cases,
)
from testbed.policy_trials.policy_process import Lines, in_fresh_process
from testbed.policy_trials.policy_subject import (
    NoEvidence,
    PolicyFinding,
    Subject,
)
from testbed.private_folders import private_folder
from testbed.record.comparison import decisions, first_difference
from testbed.record.conclusion import conclude
from testbed.record.folder import RESOLVED, RunFolder
from testbed.record.metrics import quantile
from testbed.schedulers.policy import CLAIMS
from testbed.spec.experiment import Experiment
from testbed.units import number_of

# -- determinism ---------------------------------------------------------------


def determinism(subject: Subject) -> PolicyFinding:
    """The same events in two processes, and of two instances in one."""
    says = "the same experiment gives the same events"
    chosen: list[Case] = []
    for family in subject.families:
        drawn = cases(family)
        chosen += largest(drawn, subject.effort.twice, subject.seed)
    texts = [case.text(subject.entry) for case in chosen]
    # Threads that wait for a process each: the two compute at the same
    # time.
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(in_fresh_process, texts, 1, 2)
        second = pool.submit(in_fresh_process, texts, 2, 1)
        pairs = list(
            zip(chosen, first.result(), second.result(), strict=True)
        )
    n_whole = 0
    n_jobs = 0
    failed = []
    for case, (lines, again), [other] in pairs:
        # The last line of a run that the policy broke is the error.
        if lines[-1].startswith("{"):
            n_whole += 1
            n_jobs += case.n_jobs
        difference = _differs(lines, again, other)
        if difference is not None:
            failed.append(Failed(case, difference))
    subject.count(3 * n_whole, 3 * n_jobs)
    good = f"{subject.tried()}: two processes with different hash seeds, two instances in one"
    return subject.finding(
        says,
        min(failed, key=lambda failure: failure.case.n_jobs, default=None),
        good,
    )


def _differs(first: Lines, again: Lines, other: Lines) -> str | None:
    for where, lines in (
        ("a second instance in the same process", again),
        ("another process, with another hash seed", other),
    ):
        if first != lines:
            place = _first_difference(first, lines)
            expected, differing = (
                _shortened(run[place]) if place < len(run) else "nothing"
                for run in (first, lines)
            )
            return f"{where} differs at event {place + 1}: {expected}; {differing}"
    return None


def _first_difference(first: Lines, second: Lines) -> int:
    """The index of the first line that differs, or that only one has."""
    shorter = min(len(first), len(second))
    for place in range(shorter):
        if first[place] != second[place]:
            return place
    return shorter


SHOWN_CHARACTERS = 110
"""The length of an event's line in a finding."""


def _shortened(line: str) -> str:
    """A line of the events without the fields that are long."""
    try:
        event: Any = json.loads(line)
    except ValueError:
        return line[:SHOWN_CHARACTERS]
    kept = []
    for key, value in event.items():
        if not isinstance(value, list | dict):
            kept.append(f"{key} {value}")
    return " ".join(kept)[:SHOWN_CHARACTERS]


# -- the same decisions on a replay --------------------------------------------


def replay(subject: Subject) -> PolicyFinding:
    """Decides a recorded run again, whose times and ends are not those that
    were estimated.
    """
    says = "a replay of a run decides as the run did"
    failed = _searched(
        subject, subject.families, _replayed, subject.effort.replayed
    )
    good = (
        f"{subject.tried()}, each second one a replay: no decision differs"
    )
    return subject.finding(says, failed, good)


def _replayed(subject: Subject, case: Case) -> str | None:
    trace: list[dict[str, Any]] = []

    def jittered(experiment: Experiment) -> Backend:
        sharing = subject.spec.kind.sharing_of(
            dict(subject.spec.parameters)
        )
        backend = JitteredBackend(
            experiment.datacentre, sharing, experiment.seed
        )
        return TracingBackend(
            backend,
            # Through JSON, as a run folder has it: a copy in plain values.
            lambda answer: trace.append(json.loads(json.dumps(answer))),
        )

    live = decisions(subject.play(case, jittered))
    try:
        again = decisions(
            subject.play(
                case, lambda _: ReplayBackend(iter(enumerate(trace, 1)))
            )
        )
    except NoEvidence as none:
        if none.refused is None:
            return None
        # A refusal of the replay alone is this check's finding. It leaves
        # the list, which is the evidence against capacity.
        return subject.refused.pop().how
    difference = first_difference(live, again)
    if difference is None:
        return None
    return (
        f"decision {difference.place} differs: {difference.first};"
        f" replayed {difference.second}"
    )


def _searched(
    subject: Subject,
    families: Sequence[Family],
    problem: Callable[[Subject, Case], str | None],
    number: int,
) -> Failed | None:
    """The first family's smallest failing case, if there is one."""

    def problem_of(case: Case) -> str | None:
        try:
            return problem(subject, case)
        except NoEvidence:
            return None

    for family in families:
        failed = search(
            cases(family), problem_of, number=number, seed=subject.seed
        )
        if failed is not None:
            return failed
    return None


# -- capacity and claims -------------------------------------------------------


def capacity(subject: Subject) -> PolicyFinding:
    """The ledger after each step, and the audit of each run but for the
    policy's claims.
    """
    says = "every placement is within capacity, and the audit passes"

    def problem(subject: Subject, case: Case) -> str | None:
        try:
            return _first(_faults(subject, case), but=CLAIMS)
        except NoEvidence as none:
            return none.refused

    failed = _searched(
        subject, subject.families, problem, subject.effort.audited
    )
    # Runs of the checks before, too: the engine refuses in all of them.
    failed = failed or next(iter(subject.refused), None)
    good = f"{subject.tried()} on {', '.join(subject.families)}: ledger checked after each step"
    return subject.finding(says, failed, good)


def claims(subject: Subject) -> PolicyFinding:
    """The audit's verdict on what the policy declares of itself."""
    says = "what the policy claims of itself holds"
    if not subject.claims:
        return subject.finding(
            says, None, "the policy claims nothing", "not declared"
        )

    def problem(subject: Subject, case: Case) -> str | None:
        return _first(_faults(subject, case), only=CLAIMS)

    failed = _searched(
        subject, subject.families, problem, subject.effort.audited
    )
    return subject.finding(
        says,
        failed,
        f"{len(subject.audited)} audited runs: {', '.join(subject.claims)}",
    )


def _faults(subject: Subject, case: Case) -> Mapping[str, str]:
    """The audit's findings on a run, one for each check that fails."""
    text = case.text(subject.entry)
    # Capacity, claims and starvation look at the same runs: each is played
    # and audited once.
    if text not in subject.audited:
        subject.audited[text] = _audited(subject, case, subject.play(case))
    return subject.audited[text]


def _audited(
    subject: Subject, case: Case, history: Sequence[Event]
) -> dict[str, str]:
    experiment = case.experiment(subject.entry)
    with private_folder("policy-check-") as path:
        folder = RunFolder(path)
        with folder.open_events() as log:
            for event in history:
                log(event)
        folder.write_json(
            RESOLVED, resolved_record(experiment, experiment.policies[0])
        )
        conclude(
            folder, experiment.expect, name=experiment.name, wall_s=0.0
        )
        results = audit(folder.path).results
    return {
        result.name: result.findings[0].message
        for result in results
        if result.status == "failed"
    }


def _first(
    faults: Mapping[str, str],
    *,
    but: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
) -> str | None:
    kept = (
        f"audit, {name}: {message}"
        for name, message in faults.items()
        if name not in (but or ()) and (only is None or name in only)
    )
    return next(kept, None)


# -- starvation ----------------------------------------------------------------


def starvation(subject: Subject) -> PolicyFinding:
    """A job of all nodes in a stream of small ones, each of which would fit."""
    says = "a job that fits the empty data centre starts, however many come after it"
    declared = "no-starvation" in subject.claims
    worst: list[str] = []
    tried = [
        case
        for family in subject.families
        for case in starving_cases(family)
    ]
    for case in tried:
        try:
            faults = _faults(subject, case)
            worst.append(_fate(subject.play(case)))
        except NoEvidence:
            continue
        if declared and "no-starvation" in faults:
            failed = Failed(case, faults["no-starvation"])
            return subject.finding(
                says,
                smaller(failed, lambda less: _starves(subject, less)),
                "",
            )
    seen = f"a large job in {len(worst)} streams of small ones: {max(worst, default='no run')}"
    return subject.finding(
        says, None, seen, "ok" if declared else "not declared"
    )


def _starves(subject: Subject, case: Case) -> str | None:
    try:
        return _faults(subject, case).get("no-starvation")
    except NoEvidence:
        return None


def _fate(history: Sequence[Event]) -> str:
    """The large job's fate, as a text that sorts by how bad it is."""
    submitted = overtaken = 0
    for event in history:
        if isinstance(event, JobSubmitted) and event.job["id"] == LARGE:
            submitted = 1
        elif isinstance(event, JobStarted):
            if event.job_id == LARGE:
                # In two places, so that the texts sort as the numbers do.
                return f"it starts after {overtaken:2d} of those that came later"
            overtaken += submitted
        elif isinstance(event, JobEnded) and event.job_id == LARGE:
            return f"it was {event.outcome}"
    return "it was never there"


# -- failures ------------------------------------------------------------------


def failures(subject: Subject) -> PolicyFinding:
    """Runs in which servers and links are lost, with each fate that the policy
    declares.
    """
    says = "runs in which servers and links fail pass the audit"
    fates = subject.kind.on_failure
    if not fates or "tree" not in subject.families:
        why = "it plays no tree" if fates else "no on_failure is declared"
        return subject.finding(says, None, why, "not declared")
    number = max(1, subject.effort.failing // len(fates))
    for fate in ON_FAILURE:
        if fate not in fates:
            continue
        other = _with(subject, fate)
        failure = search(
            failing_cases(),
            partial(_first_fault, other),
            number=number,
            seed=subject.seed,
        )
        if failure is not None:
            how = f"on_failure {fate}: {failure.how}"
            return other.finding(says, Failed(failure.case, how), "")
    return subject.finding(
        says, None, f"{subject.tried()}: {', '.join(fates)}"
    )


def _first_fault(subject: Subject, case: Case) -> str | None:
    """A run's first fault, by its audit or by the engine's refusal."""
    try:
        return _first(_faults(subject, case))
    except NoEvidence as none:
        return none.refused


def _with(subject: Subject, fate: str) -> Subject:
    """The policy with another ``on_failure``; its runs count as the subject's."""
    other = Subject(
        {**subject.entry, "on_failure": fate}, subject.spec, subject.seed
    )
    # The same objects, no copies: runs of this one count as the subject's.
    other.effort = subject.effort
    other.check = subject.check
    other.broken = subject.broken
    other.decided_s = subject.decided_s
    other.runs = subject.runs
    other.jobs = subject.jobs
    return other


# -- live ----------------------------------------------------------------------

_LIVE_SAYS = "a live run, replayed in the simulator, decides as the run did"


def not_run(why: str) -> PolicyFinding:
    """The finding of a check on the live network that this machine cannot make."""
    return PolicyFinding("live", _LIVE_SAYS, "not run", why)


def live(
    subject: Subject, run: Callable[[Experiment], list[RunRecord]]
) -> PolicyFinding:
    """A small experiment on the live network and its replay; ``run`` is as
    ``testbed run``.
    """
    subject.check = "live"
    case = live_case(subject.kind, subject.families)
    experiment = case.experiment(subject.entry)
    try:
        [recorded] = run(experiment)
        sources = replay_sources(experiment, recorded.folder.path)
        with private_folder("policy-check-") as path:
            top = RunFolder(path)
            [again] = run_replayed(
                experiment, sources, top, ["testbed", "policy"]
            )
    except MachineCannot as cannot:
        return not_run(cannot.message)
    except RunFailed as error:
        return subject.finding(_LIVE_SAYS, Failed(case, error.message), "")
    seen = f"{number_of(len(experiment.jobs), 'job')}, {recorded.folder.path}: {again.sentence()}"
    failed = None if again.same else Failed(case, seen)
    return subject.finding(_LIVE_SAYS, failed, seen)


# -- the policy itself ---------------------------------------------------------


def sound(subject: Subject) -> PolicyFinding:
    """No run was broken by the policy; how long its decisions took."""
    says = "every decision is an answer, in time, of the view alone"
    broken = next(iter(subject.broken), None)
    subject.count(
        *(sum(counted.values()) for counted in (subject.runs, subject.jobs))
    )
    remark = ""
    if subject.kind.source is None:
        remark = "; the testbed's own run without a guard"
    return subject.finding(
        says, broken, f"{subject.tried()}: {_speed(subject)}{remark}"
    )


def _speed(subject: Subject) -> str:
    ordered = sorted(1e3 * took_s for took_s in subject.decided_s)
    if not ordered:
        return "no decision was asked for"
    times = {
        "median": quantile(ordered, 0.5),
        "p99": quantile(ordered, 0.99),
        "max": ordered[-1],
    }
    shown = ", ".join(
        f"{name} {took_ms:.3g} ms" for name, took_ms in times.items()
    )
    return f"{number_of(len(ordered), 'decision')}, {shown}"


CHECKS: Mapping[str, Callable[[Subject], PolicyFinding]] = {
    "determinism": determinism,
    "replay": replay,
    "capacity": capacity,
    "claims": claims,
    "no starvation": starvation,
    "failures": failures,
    "sound": sound,
}
"""Checks by name, in the order in which they are made; ``sound`` sums up the
others.
"""


def policy_findings(subject: Subject) -> Iterator[PolicyFinding]:
    """The finding of each check, as soon as it is there."""
    for name, check in CHECKS.items():
        subject.check = name
        try:
            yield check(subject)
        except RunFailed as error:
            yield PolicyFinding(
                name, check.__doc__ or "", "failed", error.message
            )
