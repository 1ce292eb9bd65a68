"""Checks of a policy: the property tests that the testbed's own policies pass,
with their evidence.

A check plays small experiments (:mod:`testbed.policy_trials.policy_cases`). One
that fails has a counterexample, the smallest that was found, as an experiment
file. A run that the policy's own error ended fails the check ``sound`` alone; one
in which the engine refused an action fails ``capacity``.
"""

from __future__ import annotations

import json
from collections.abc import (
    Callable,
    Container,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
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
    SAYS,
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

NO_STARVATION = {"no-starvation", "no-starvation-without-bandwidth"}
"""The claims that the audit's check on starvation belongs to."""

# -- determinism ---------------------------------------------------------------


def determinism(subject: Subject) -> PolicyFinding:
    """Compares runs of the same experiments: two in one process, by an instance
    of the policy each, and one in another process.
    """
    chosen: list[Case] = []
    for family in subject.families:
        chosen += largest(cases(family), subject.effort.twice, subject.seed)
    n_whole = 0
    n_jobs = 0
    failed = []
    for case, [first, again], [other] in _played_thrice(subject, chosen):
        # Events are objects of JSON; a run that the policy broke ends with the
        # text of its error.
        if first[-1].startswith("{"):
            n_whole += 1
            n_jobs += case.n_jobs
        difference = _difference(first, again, other)
        if difference is not None:
            failed.append(Failed(case, difference))
    # Each case had three runs.
    subject.count(3 * n_whole, 3 * n_jobs)
    evidence = f"{subject.tried()}: two processes with different hash seeds, two instances in one"
    smallest = min(
        failed, key=lambda failure: failure.case.n_jobs, default=None
    )
    return subject.finding(smallest, evidence)


def _played_thrice(
    subject: Subject, chosen: Sequence[Case]
) -> Iterator[tuple[Case, list[Lines], list[Lines]]]:
    """Each case with its two runs in one process, and its run in another."""
    texts = [case.text(subject.entry) for case in chosen]
    # Each thread waits for a process: the two compute at the same time.
    with ThreadPoolExecutor(2) as pool:
        two_runs = pool.submit(
            in_fresh_process, texts, hash_seed=1, times=2
        )
        one_run = pool.submit(in_fresh_process, texts, hash_seed=2, times=1)
    return zip(chosen, two_runs.result(), one_run.result(), strict=True)


def _difference(first: Lines, again: Lines, other: Lines) -> str | None:
    """A sentence on the first event that differs; None where the runs agree."""
    for where, lines in (
        ("a second instance in the same process", again),
        ("another process, with another hash seed", other),
    ):
        pairs = zip_longest(first, lines)
        for number, (expected, differing) in enumerate(pairs, 1):
            if expected != differing:
                return (
                    f"{where} differs at event {number}:"
                    f" {_shown(expected)}; {_shown(differing)}"
                )
    return None


SHOWN_CHARACTERS = 110
"""The length of an event's line in a finding."""


def _shown(line: str | None) -> str:
    """An event without its fields that are lists or objects."""
    if line is None:
        return "nothing"
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
    """Replays recorded runs, in which jobs took other times than was estimated,
    and compares the decisions.
    """
    failed = _smallest_failure(
        subject, _replay_difference, subject.effort.replayed
    )
    evidence = (
        f"{subject.tried()}, each second one a replay: no decision differs"
    )
    return subject.finding(failed, evidence)


def _replay_difference(subject: Subject, case: Case) -> str | None:
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
            # Through JSON, as in a run folder: a copy of plain values.
            lambda answer: trace.append(json.loads(json.dumps(answer))),
        )

    recorded = decisions(subject.play(case, jittered))
    try:
        replayed = decisions(
            subject.play(
                case, lambda _: ReplayBackend(iter(enumerate(trace, 1)))
            )
        )
    except NoEvidence as stopped:
        if stopped.refused is None:
            return None
        # The engine accepted all of the recorded run, so this refusal is a
        # difference. As ``refused`` it would count against capacity too.
        return subject.refused.pop().how
    difference = first_difference(recorded, replayed)
    if difference is None:
        return None
    return (
        f"decision {difference.place} differs: {difference.first};"
        f" replayed {difference.second}"
    )


def _smallest_failure(
    subject: Subject,
    problem: Callable[[Subject, Case], str | None],
    number: int,
) -> Failed | None:
    """The smallest failing case of the first family that has one.

    ``number``: how many cases of each family are tried.
    """
    evident = partial(_evident, problem, subject)
    for family in subject.families:
        failed = search(
            cases(family), evident, number=number, seed=subject.seed
        )
        if failed is not None:
            return failed
    return None


def _evident(
    problem: Callable[[Subject, Case], str | None],
    subject: Subject,
    case: Case,
) -> str | None:
    """The problem of a case; None also where its run says nothing."""
    try:
        return problem(subject, case)
    except NoEvidence:
        return None


# -- capacity and claims -------------------------------------------------------


def capacity(subject: Subject) -> PolicyFinding:
    """Checks the ledger after each step, and audits each run; the policy's
    claims are left to their own check.
    """
    failed = _smallest_failure(
        subject,
        partial(_fault_or_refusal, without=CLAIMS),
        subject.effort.audited,
    )
    # Refusals in the runs of earlier checks count as well.
    failed = failed or next(iter(subject.refused), None)
    evidence = f"{subject.tried()} on {', '.join(subject.families)}: ledger checked after each step"
    return subject.finding(failed, evidence)


def claims(subject: Subject) -> PolicyFinding:
    """Audits runs for what the policy claims of itself."""
    if not subject.claims:
        return subject.finding(
            None, "the policy claims nothing", "not declared"
        )

    def problem(subject: Subject, case: Case) -> str | None:
        return _fault(_faults(subject, case), only=CLAIMS)

    failed = _smallest_failure(subject, problem, subject.effort.audited)
    evidence = (
        f"{len(subject.audited)} audited runs: {', '.join(subject.claims)}"
    )
    return subject.finding(failed, evidence)


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


def _fault(
    faults: Mapping[str, str],
    *,
    only: Container[str] | None = None,
    without: Container[str] = (),
) -> str | None:
    """The first of an audit's faults as a sentence; None where there is none.

    ``only``: of these checks; ``without``: none of these checks.
    """
    for name, message in faults.items():
        if name not in without and (only is None or name in only):
            return f"audit, {name}: {message}"
    return None


# -- starvation ----------------------------------------------------------------


def starvation(subject: Subject) -> PolicyFinding:
    """Plays a job that needs all nodes in a stream of small ones, each of which
    fits beside others.
    """
    declared = not NO_STARVATION.isdisjoint(subject.claims)
    fates: list[str] = []
    for case in chain.from_iterable(map(starving_cases, subject.families)):
        try:
            fault = _starvation_fault(subject, case)
            fates.append(_fate(subject.play(case)))
        except NoEvidence:
            continue
        if declared and fault is not None:
            starves = partial(_evident, _starvation_fault, subject)
            failed = smaller(Failed(case, fault), starves)
            return subject.finding(failed, "")
    # Fates are sentences that sort as they get worse.
    worst = max(fates, default="no run")
    evidence = f"a large job in {len(fates)} streams of small ones: {worst}"
    return subject.finding(
        None, evidence, "ok" if declared else "not declared"
    )


def _starvation_fault(subject: Subject, case: Case) -> str | None:
    return _faults(subject, case).get("no-starvation")


def _fate(history: Sequence[Event]) -> str:
    """The large job's fate as a sentence.

    Sentences of jobs that start sort before others, by the number of jobs that
    overtook them.
    """
    submitted = False
    overtaking = 0
    for event in history:
        if isinstance(event, JobSubmitted) and event.job["id"] == LARGE:
            submitted = True
        elif isinstance(event, JobStarted):
            if event.job_id == LARGE:
                # Two digits wide, to sort as the number does.
                return f"it starts after {overtaking:2d} of those that came later"
            if submitted:
                overtaking += 1
        elif isinstance(event, JobEnded) and event.job_id == LARGE:
            return f"it was {event.outcome}"
    return "it was never there"


# -- failures ------------------------------------------------------------------


def failures(subject: Subject) -> PolicyFinding:
    """Plays runs in which servers and links fail, with each value of
    ``on_failure`` that the policy declares.
    """
    fates = subject.kind.on_failure
    if not fates or "tree" not in subject.families:
        why = "it plays no tree" if fates else "no on_failure is declared"
        return subject.finding(None, why, "not declared")
    number = max(1, subject.effort.failing // len(fates))
    for fate in ON_FAILURE:
        if fate not in fates:
            continue
        # The two share lists and counters, but for audits and refusals: these
        # runs count as the subject's.
        varied = replace(
            subject,
            entry={**subject.entry, "on_failure": fate},
            refused=[],
            audited={},
        )
        failure = search(
            failing_cases(),
            partial(_fault_or_refusal, varied),
            number=number,
            seed=subject.seed,
        )
        if failure is not None:
            how = f"on_failure {fate}: {failure.how}"
            return varied.finding(Failed(failure.case, how), "")
    return subject.finding(None, f"{subject.tried()}: {', '.join(fates)}")


def _fault_or_refusal(
    subject: Subject, case: Case, without: Container[str] = ()
) -> str | None:
    """A run's first fault by its audit but for the checks ``without``, or the
    engine's refusal.
    """
    try:
        return _fault(_faults(subject, case), without=without)
    except NoEvidence as stopped:
        return stopped.refused


# -- live ----------------------------------------------------------------------


def not_run(why: str) -> PolicyFinding:
    """The finding of a check on the live network that this machine cannot make."""
    return PolicyFinding("live", SAYS["live"], "not run", why)


def live(
    subject: Subject, run: Callable[[Experiment], list[RunRecord]]
) -> PolicyFinding:
    """Plays a small experiment on the live network and replays it in the
    simulator; ``run`` plays it as ``testbed run`` does.
    """
    subject.check = "live"
    case = live_case(subject.kind, subject.families)
    experiment = case.experiment(subject.entry)
    try:
        [recorded] = run(experiment)
        sources = replay_sources(experiment, recorded.folder.path)
        with private_folder("policy-check-") as path:
            top = RunFolder(path)
            [replayed] = run_replayed(
                experiment, sources, top, ["testbed", "policy"]
            )
    except MachineCannot as cannot:
        return not_run(cannot.message)
    except RunFailed as error:
        return subject.finding(Failed(case, error.message), "")
    jobs = number_of(len(experiment.jobs), "job")
    evidence = f"{jobs}, {recorded.folder.path}: {replayed.sentence()}"
    failed = None if replayed.same else Failed(case, evidence)
    return subject.finding(failed, evidence)


# -- the policy itself ---------------------------------------------------------


def sound(subject: Subject) -> PolicyFinding:
    """Reports runs that the policy broke, and how long its decisions took."""
    broken = next(iter(subject.broken), None)
    # This check is about the runs of all others.
    subject.count(sum(subject.runs.values()), sum(subject.jobs.values()))
    remark = ""
    # A policy of the testbed's own, from no file.
    if subject.kind.source is None:
        remark = "; the testbed's own run without a guard"
    return subject.finding(
        broken, f"{subject.tried()}: {_speed(subject)}{remark}"
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
            yield PolicyFinding(name, SAYS[name], "failed", error.message)
