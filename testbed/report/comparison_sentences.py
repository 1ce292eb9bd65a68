"""Two runs beside each other in sentences: the outcome, then all that differs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from testbed.record.comparison import (
    SAME_TIME_S,
    Decision,
    JobPair,
    PolicyComparison,
)
from testbed.record.metrics import spread
from testbed.report.labels import seconds_text
from testbed.report.metric_words import metric_words
from testbed.units import human_bandwidth, human_duration, number_of

MOST_NAMED = 10
"""Jobs that a sentence names."""
ALIKE = 0.00005
"""Shares below this are printed as 0.00 %."""


@dataclass(frozen=True)
class NamedJobs:
    """Jobs that a sentence is about: the sentence's beginning, and their ids."""

    says: str
    job_ids: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The sentence with the first names."""
        names = ", ".join(self.job_ids[:MOST_NAMED])
        left = len(self.job_ids) - MOST_NAMED
        if left > 0:
            names += f" and {left:,} more"
        return f"{self.says}: {names}"


def sentences(comparison: PolicyComparison) -> list[str]:
    """All sentences on two runs, as a terminal prints them."""
    return [
        *headline(comparison),
        *decision_sentences(comparison),
        *(jobs.sentence for jobs in named_jobs(comparison)),
        *details(comparison),
    ]


def short_names(comparison: PolicyComparison) -> tuple[str, ...]:
    """The policies' names; the runs' whole names where the policy is the same."""
    first, second = comparison.both("policy")
    if first != second:
        return first, second
    return comparison.names


# -- the outcome


def headline(comparison: PolicyComparison) -> list[str]:
    """Sentences on the jobs, on who finished more and who waited longer, and on
    fidelity that is not ok.
    """
    lines = [
        _finished(comparison),
        *_longer(comparison, "wait_mean_s", "waited", "they started"),
        *_longer(
            comparison=comparison,
            metric="response_mean_s",
            verb="took",
            clause="they finished",
            until=" from submission to end",
        ),
    ]
    for name, summary in zip(
        comparison.names, comparison.summaries, strict=True
    ):
        fidelity = summary.fidelity
        if fidelity.verdict not in (None, "ok"):
            reason = "".join(fidelity.reasons[:1]) or "no reason given"
            lines.append(
                f"The emulation of {name} is {fidelity.verdict}: {reason}."
            )
    return lines


def has_same_jobs(comparison: PolicyComparison) -> bool:
    return not comparison.other_requests and not any(comparison.only_in)


def _finished(comparison: PolicyComparison) -> str:
    """The jobs of both, and how many each finished."""
    first, second = comparison.summaries
    names = short_names(comparison)
    if not has_same_jobs(comparison):
        return f"{_not_same(comparison)} {_each(comparison)}"
    jobs = f"the same {number_of(first.jobs, 'job')}"
    if first.finished == second.finished:
        return f"Of {jobs} both finished {first.finished:,}."
    more = int(second.finished > first.finished)
    away = abs(second.finished - first.finished)
    return (
        f"Of {jobs} {names[0]} finished {first.finished:,} and {names[1]}"
        f" {second.finished:,}: {away:,} more with {names[more]}."
    )


def _not_same(comparison: PolicyComparison) -> str:
    parts = []
    other = len(comparison.other_requests)
    if other:
        parts.append(
            f"{other:,} of {number_of(len(comparison.jobs), 'name')} in both"
            " stand for different jobs"
        )
    for name, jobs in zip(
        short_names(comparison), comparison.only_in, strict=True
    ):
        if jobs:
            parts.append(f"{number_of(len(jobs), 'job')} only {name} had")
    return f"Not the same jobs: {', '.join(parts)}."


def _each(comparison: PolicyComparison) -> str:
    """``dcloud finished 151 of 243, vc 121 of 200.``"""
    parts = []
    for name, summary in zip(
        short_names(comparison), comparison.summaries, strict=True
    ):
        parts.append(f"{name} {summary.finished:,} of {summary.jobs:,}")
    return f"Finished: {', '.join(parts)}."


def _longer(
    comparison: PolicyComparison,
    metric: str,
    verb: str,
    clause: str,
    until: str = "",
) -> Iterator[str]:
    """The run whose jobs took longer on average; nothing without a mean."""
    means_s = comparison.both(metric)
    first_s, second_s = means_s
    if first_s is None or second_s is None:
        return
    names = short_names(comparison)
    if abs(second_s - first_s) < SAME_TIME_S:
        yield f"The jobs that {clause} {verb} equally long{until} on average."
        return
    longer = int(second_s > first_s)
    text = metric_words(metric).text
    away = text(abs(second_s - first_s))
    yield (
        f"{names[longer]}'s jobs {verb} {away} longer{until} on average than"
        f" {names[1 - longer]}'s ({text(means_s[longer])} and"
        f" {text(means_s[1 - longer])}; of the jobs that {clause})."
    )


# -- decisions


def decision_sentences(comparison: PolicyComparison) -> list[str]:
    """Sentences on the first decision that differs, or on all being the same."""
    n_first, n_second = comparison.n_decisions
    apart = comparison.difference
    if apart is None:
        return [
            f"all {n_first:,} decisions are the same, {_times(comparison)}"
        ]
    counts = f"(of {n_first:,} and {n_second:,})"
    lines = [
        f"decision {apart.place:,} {counts} is the first that differs:"
    ]
    both = (apart.first, apart.second)
    shared = _shared(apart.first, apart.second)
    for name, decision in zip(comparison.names, both, strict=True):
        if decision is None:
            lines.append(f"  {name}: none any more")
        else:
            at = seconds_text(decision.at_s)
            lines.append(f"  {name}: {at}: {in_words(decision, shared)}")
    return lines


def first_difference(comparison: PolicyComparison) -> str:
    """The first decision that differs, in a sentence without places and rates."""
    apart = comparison.difference
    if apart is None:
        return f"All decisions are the same, {_times(comparison)}."
    for decision in (apart.first, apart.second):
        if decision is not None:
            at = f"{decision.job_id} at {seconds_text(decision.at_s)}"
            return f"Their decisions differ from number {apart.place:,} on: {at}."
    return "One of the runs has no decisions."


def _times(comparison: PolicyComparison) -> str:
    """The times of decisions that are the same otherwise: ``at the same times``."""
    if comparison.moved is None:
        return "at the same times"
    first, second = comparison.moved
    times = (
        f"at {seconds_text(first.at_s)} and at {seconds_text(second.at_s)}"
    )
    return f"at other times: {first.job_id} is {first.name} {times}"


def _shared(first: Decision | None, second: Decision | None) -> list[str]:
    """Parts that two decisions on one job have in common."""
    if first is None or second is None:
        return []
    if (first.job_id, first.name) != (second.job_id, second.name):
        return []
    of_second = dict(second.what)
    return [key for key, value in first.what if of_second.get(key) == value]


def in_words(decision: Decision, without: Collection[str] = ()) -> str:
    """``a reserved (at 5 bit/s, 2 VMs on server 0)``."""
    what = []
    for key, value in decision.what:
        if value is not None and key not in without:
            what.append(_part(key, value))
    detail = f" ({', '.join(what)})" if what else ""
    return f"{decision.job_id} {decision.name.replace('_', ' ')}{detail}"


def _part(key: str, value: Any) -> str:
    """A part of a decision as people read it: ``2 VMs on server 1``."""
    if key == "rate_bps":
        return f"at {human_bandwidth(value)}"
    if key == "vms_on":
        places = []
        for server, count in value:
            places.append(f"{number_of(count, 'VM')} on server {server}")
        return ", ".join(places)
    if key == "cost_s":
        return f"at a cost of {human_duration(value)}"
    if key == "tier":
        return f"in the {value}"
    if key == "root":
        return f"topmost switch {value}"
    return f"{key} {value}"


# -- jobs


def named_jobs(comparison: PolicyComparison) -> list[NamedJobs]:
    """Jobs that one run alone rejected or had, or that differ in the two."""
    named = []
    names = short_names(comparison)
    for side, name in enumerate(names):
        rejected = tuple(
            pair.job_id
            for pair in comparison.jobs
            if pair.accepted_differs and pair.outcomes[side] == "rejected"
        )
        says = f"{number_of(len(rejected), 'job')} rejected by {name} alone"
        named.append(NamedJobs(says, rejected))
    for name, jobs in zip(names, comparison.only_in, strict=True):
        says = f"{number_of(len(jobs), 'job')} only in {name}"
        named.append(NamedJobs(says, jobs))
    other = comparison.other_requests
    says = f"{number_of(len(other), 'name')} of different jobs"
    named.append(NamedJobs(says, other))
    return [jobs for jobs in named if jobs.job_ids]


def details(comparison: PolicyComparison) -> list[str]:
    """Sentences on the differences of jobs' times and of success rates."""
    lines = [*_running_times(comparison), *_ends(comparison)]
    if comparison.success_points is not None:
        rates = difference(comparison, "success_rate")
        lines.append(f"success rate: {rates}")
    return lines


def _running_times(comparison: PolicyComparison) -> Iterator[str]:
    apart = [
        pair
        for pair in comparison.jobs
        if pair.completion_difference is not None
    ]
    completion = comparison.completion
    if completion is None or not apart:
        return
    jobs = number_of(len(apart), "job")
    if completion.max < ALIKE:
        yield f"{jobs} that finished in both ran equally long"
        return
    most = max(apart, key=lambda pair: abs(pair.completion_difference or 0))
    close = "equally long"
    if completion.median > ALIKE:
        close += f" within {100 * completion.median:.2f} %"
    yield (
        f"half of the {jobs} that finished in both ran {close}; the largest"
        f" difference: {most.job_id} ran {longer_text(most)} with"
        f" {short_names(comparison)[1]}"
    )


def longer_text(pair: JobPair) -> str:
    """``98.6 % longer``, ``the same``; a dash where it did not finish in both."""
    share = pair.completion_difference
    if share is None:
        return "–"
    if abs(share) < ALIKE:
        return "the same"
    way = "longer" if share > 0 else "shorter"
    return f"{100 * abs(share):.2f} % {way}"


def later_text(pair: JobPair) -> str:
    """``22 h 05 min later``, ``the same``; a dash where it did not finish in
    both.
    """
    if pair.later_s is None:
        return "–"
    if abs(pair.later_s) < SAME_TIME_S:
        return "the same"
    way = "later" if pair.later_s > 0 else "earlier"
    return f"{seconds_text(abs(pair.later_s))} {way}"


def _ends(comparison: PolicyComparison) -> Iterator[str]:
    """The distance of jobs' ends; nothing where no job finished in both."""
    ended = [pair for pair in comparison.jobs if pair.later_s is not None]
    middle = spread(abs(pair.later_s or 0.0) for pair in ended)
    if middle is None:
        return
    if middle.max < SAME_TIME_S:
        yield "every job that finished in both ended at the same time"
        return
    most = max(ended, key=lambda pair: abs(pair.later_s or 0.0))
    yield (
        f"half of them ended within {seconds_text(middle.median)} of each"
        f" other; {most.job_id} ended {later_text(most)} with"
        f" {short_names(comparison)[1]}"
    )


def difference(comparison: PolicyComparison, metric: str) -> str:
    """The run with the larger value: ``dcloud 12.3 points more``."""
    first, second = comparison.both(metric)
    if first is None or second is None:
        return "–"
    words = metric_words(metric)
    away = words.distance(abs(second - first))
    # As it is printed: sums of floats differ in their last digits.
    if away == words.distance(0.0):
        return "the same"
    name = short_names(comparison)[int(second > first)]
    return f"{name} {away} more"
