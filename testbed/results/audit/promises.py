"""What was reserved against what the hose needs, and what policies of a family promise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from testbed import events
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import Dossier, History, about
from testbed.results.audit.holding import Pairs
from testbed.results.folder import EVENTS

SAMPLE_SLACK = 0.05
"""A counter's interval and a limiter's burst are not exact: a sample may show 5 % too much."""


def placements(history: History) -> Iterator[Finding]:
    """Every VM asked for is on a server below the tree's root, each server named once."""
    for job in history.jobs.values():
        request = job.request
        if request is None:
            continue
        for entry in job.lines:
            event = entry.event
            if isinstance(event, events.JobReserved | events.JobMigrated):
                for wrong in history.world.misplaced(event.root, event.vms_on, request["n_vms"]):
                    yield Finding(EVENTS, entry.number, f"{job.job_id}: {wrong}")


def hoses(history: History) -> Iterator[Finding]:
    """On every link exactly min(X, N-X)·B is reserved: no less, no more, nowhere else."""
    for job in history.jobs.values():
        yield from _hose_findings(history, job)


def _hose_findings(history: History, job: Dossier) -> Iterator[Finding]:
    root, rate_bps = -1, 0
    vms: Pairs = ()
    for entry in job.lines:
        event = entry.event
        match event:
            case events.JobReserved():
                root, vms, rate_bps = event.root, event.vms_on, event.rate_bps
            case events.JobMigrated():
                root, vms = event.root, event.vms_on
            case events.JobRescaled():
                rate_bps = event.rate_bps
            case events.JobStarted():
                if event.rate_bps != rate_bps:
                    said = f"starts at {event.rate_bps} bit/s, reserved are {rate_bps}"
                    yield Finding(EVENTS, entry.number, f"{job.job_id} {said}")
                continue
            case _:
                continue
        # A placement that makes no sense has its own finding.
        request = job.request
        if request is None or history.world.misplaced(root, vms, request["n_vms"]):
            continue
        need = history.world.hose(root, vms, rate_bps)
        yield from _compare(history, job.job_id, entry.number, event.links, need)


def _compare(
    history: History, job_id: str, line: int, links: Pairs, need: dict[int, int]
) -> Iterator[Finding]:
    world = history.world
    given: dict[int, int] = {}
    for directed, bps in links:
        if directed in given:
            yield Finding(EVENTS, line, f"{job_id}: directed link {directed} is named twice")
        given[directed] = bps
    for directed in sorted({*given, *need}):
        has, wants = given.get(directed, 0), need.get(directed, 0)
        if has != wants:
            known = 0 <= directed < world.n_directed
            name = world.link(directed) if known else f"directed link {directed}"
            said = f"{has} bit/s reserved on {name}, its hose needs {wants}"
            yield Finding(EVENTS, line, f"{job_id}: {said}")


def estimates(history: History) -> Iterator[Finding]:
    """The estimate is p·b/b', p where nothing was scaled down, and none for best effort.

    A job with a profile is promised the time of the option it is given.
    """
    for job in history.jobs.values():
        request = job.request
        if request is None:
            continue
        for line, event in job.all(events.JobReserved):
            asked, granted = request["bandwidth_bps"], event.rate_bps
            best_effort = granted == 0 and asked > 0 and request["kind"] != "compute"
            if best_effort or event.estimate_s is None:
                if not (best_effort and event.estimate_s is None):
                    said = f"estimate {event.estimate_s} s at {granted} bit/s of {asked}"
                    yield Finding(EVENTS, line, f"{job.job_id}: {said}")
                continue
            factor = asked / granted if 0 < granted < asked else 1.0
            promise_s = request["duration_s"] * factor
            if request.get("profile"):
                promise_s = _of_profile(request["profile"]["options"], granted)
            if not (about(event.estimate_s, promise_s) and about(promise_s, event.estimate_s)):
                rule = "its profile's time" if request.get("profile") else "p·b/b'"
                said = f"estimate {event.estimate_s:.6g} s, {rule} is {promise_s:.6g} s"
                yield Finding(EVENTS, line, f"{job.job_id}: {said}")


def _of_profile(options: list[list[float]], granted: float) -> float:
    """The time of a profile's option; between two a straight line, below the least p·b/b'."""
    least_bps, longest_s = options[0]
    if granted < least_bps:
        return longest_s * least_bps / granted if granted else 0.0
    for (low, slow), (high, fast) in pairwise(options):
        if granted <= high:
            return slow - (slow - fast) * (granted - low) / (high - low)
    return options[-1][1]


def samples(history: History) -> Iterator[Finding]:
    """Every sample is of a link that exists and shows no more than the link can carry."""
    world = history.world
    for line, event in history.each(events.LinkSample):
        if event.interval_s <= 0:
            yield Finding(EVENTS, line, f"a sample over {event.interval_s} s")
        for directed, sent, reserved in event.links:
            number = int(directed)
            if not 0 <= number < world.n_directed:
                yield Finding(EVENTS, line, f"directed link {number} does not exist")
                continue
            capacity = world.capacity_bps[number // 2]
            if reserved > capacity or reserved < 0:
                said = f"{reserved:.0f} bit/s reserved on {world.link(number)}, capacity {capacity}"
                yield Finding(EVENTS, line, said)
            if not 0 <= sent <= capacity * (1 + SAMPLE_SLACK):
                said = f"{sent:.0f} bit/s sent on {world.link(number)}, capacity {capacity}"
                yield Finding(EVENTS, line, said)


# ------------------------------------------------------------------------------- by policy


def is_dcloud(history: History) -> str | None:
    # A label is the name, and the parameters after it.
    if history.policy.startswith("dcloud"):
        return None
    return f"the policy is {history.policy}, not of the dcloud family"


def is_vc(history: History) -> str | None:
    own = history.policy == "vc" or history.policy.startswith("vc-")
    return None if own else f"the policy is {history.policy}, not vc"


def is_fcfs(history: History) -> str | None:
    own = history.policy == "fcfs" or history.policy.startswith("fcfs-")
    return None if own else f"the policy is {history.policy}, not fcfs"


def is_jsa(history: History) -> str | None:
    own = history.policy in ("jsa", "simple-jsa")
    return None if own else f"the policy is {history.policy}, not jsa"


def options_in_time(history: History) -> Iterator[Finding]:
    """JSA gives a job an option of its profile, and one that ends by its deadline."""
    for job in history.jobs.values():
        request = job.request
        if request is None:
            continue
        profile = request.get("profile")
        offered = profile["options"] if profile else [[request["bandwidth_bps"], 0.0]]
        for line, event in job.all(events.JobReserved):
            if all(event.rate_bps != bandwidth_bps for bandwidth_bps, _ in offered):
                said = f"{event.rate_bps} bit/s is none of its options"
                yield Finding(EVENTS, line, f"{job.job_id}: {said}")
    yield from within_deadline(history)


def within_deadline(history: History) -> Iterator[Finding]:
    """Holds t' + p' ≤ d for whatever is admitted, counted from the job's arrival."""
    for job in history.jobs.values():
        request = job.request
        if request is None or request["deadline_s"] is None:
            continue
        due_s = request["submit_s"] + request["deadline_s"]
        for line, event in job.all(events.JobReserved):
            end_s = (
                event.start_s + (event.estimate_s or 0.0) if event.end_s is None else event.end_s
            )
            if not about(end_s, due_s):
                said = f"admitted until {end_s:.6g} s, its deadline is {due_s:.6g} s"
                yield Finding(EVENTS, line, f"{job.job_id}: {said}")


def asked_is_granted(history: History) -> Iterator[Finding]:
    """VC reserves what was asked for, from the arrival on, or rejects."""
    for job in history.jobs.values():
        request = job.request
        for line, event in job.all(events.JobReserved):
            if request is not None and event.rate_bps != request["bandwidth_bps"]:
                said = f"{event.rate_bps} bit/s granted, {request['bandwidth_bps']} asked for"
                yield Finding(EVENTS, line, f"{job.job_id}: {said}")


def first_come_first_served(history: History) -> Iterator[Finding]:
    """Jobs start in the order in which they were submitted."""
    order = {event.job["id"]: n for n, (_, event) in enumerate(history.each(events.JobSubmitted))}
    latest, by = -1, ""
    for line, event in history.each(events.JobStarted):
        place = order.get(event.job_id, -1)
        if 0 <= place < latest:
            said = f"{event.job_id} starts after {by}, which arrived later"
            yield Finding(EVENTS, line, said)
        elif place > latest:
            latest, by = place, event.job_id
