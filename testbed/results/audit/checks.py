"""The list of checks, and the audit of a folder with all of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from testbed import events
from testbed.errors import BadInput
from testbed.results.audit import (
    capacity_check,
    event_order,
    policy_claims,
    summary_check,
    tables_check,
)
from testbed.results.audit.history import Audit, Check, Finding, History, Result
from testbed.results.folder import SUMMARY
from testbed.results.reading import policy_folders, read_events

SHOWN = 20
"""Findings kept per check: one broken invariant tends to break in a thousand places."""


def _is_sampled(history: History) -> str | None:
    some = next(history.each(events.LinkSample), None)
    return None if some is not None else "no link was sampled"


CHECKS: tuple[Check, ...] = (
    Check("stream", "one beginning, one end, time never runs backwards", event_order.stream),
    Check("ending", "the run's status is a known one and fits its jobs", event_order.ending),
    Check("notes", "every note on validity is of a known level", event_order.notes),
    Check(
        "experiment", "the resolved experiment is the one that was run", summary_check.experiment
    ),
    Check("topology", "the arrays describe a data centre", event_order.topology),
    Check("lives", "each job's events are in order and end in one outcome", event_order.lives),
    Check(
        "outcomes", "each outcome is a known one and fits what came before", event_order.outcomes
    ),
    Check(
        "accounts", "submitted = finished + rejected + killed + unfinished", event_order.accounts
    ),
    Check("arrivals", "nothing is reserved or started before its time", event_order.arrivals),
    Check("overstays", "no job runs on after its reservation", event_order.overstays),
    Check("placements", "every VM asked for is on a server of one tree", capacity_check.placements),
    Check("hoses", "every link has min(X, N-X)·B reserved, no more, no less", capacity_check.hoses),
    Check("slots", "VM slots within capacity at every instant", capacity_check.slots),
    Check(
        "memory",
        "memory within capacity at every instant",
        capacity_check.memory,
        capacity_check.has_memory,
    ),
    Check("links", "every directed link within capacity at every instant", capacity_check.links),
    Check("returned", "all capacity is back at the end", capacity_check.returned),
    Check("estimates", "every estimate is p·b/b', or the profile's", capacity_check.estimates),
    Check("measured", "measured times fit into the jobs' stays", event_order.measured),
    Check("samples", "no sample above its link's capacity", capacity_check.samples, _is_sampled),
    Check(
        "jobs.csv",
        "the table says what the events say",
        tables_check.jobs_csv,
        tables_check.has_jobs_csv,
    ),
    Check(
        "links.csv",
        "rates over time are what was sampled or reserved",
        tables_check.links_csv,
        tables_check.has_links_csv,
    ),
    Check(
        "summary",
        "the summary says what the events say",
        summary_check.summary,
        summary_check.has_summary,
    ),
    Check(
        "expectations",
        "every verdict is the one that is due",
        summary_check.verdicts,
        summary_check.has_summary,
    ),
    Check(
        "dcloud-deadline",
        "t' + p' ≤ d for all admitted",
        policy_claims.within_deadline,
        policy_claims.is_dcloud,
    ),
    Check(
        "jsa-options",
        "JSA gives options that meet the deadline",
        policy_claims.options_in_time,
        policy_claims.is_jsa,
    ),
    Check(
        "vc-rate",
        "VC grants what is asked for",
        policy_claims.asked_is_granted,
        policy_claims.is_vc,
    ),
    Check(
        "lease-starts",
        "advance and immediate leases start at their time or are rejected",
        policy_claims.starts,
        policy_claims.has_leases,
    ),
    Check(
        "lease-preemptions",
        "MBFCBS preempts best effort alone, and none of it twice",
        policy_claims.preemptions,
        policy_claims.is_mbfcbs,
    ),
    Check(
        "fcfs-order",
        "jobs start as they came",
        policy_claims.first_come_first_served,
        policy_claims.is_fcfs,
    ),
    Check(
        "easy-head",
        "no head of the queue starts later than was due",
        policy_claims.head_in_time,
        policy_claims.is_easy,
    ),
)


def audit(path: Path) -> Audit:
    """Audit one run folder (of one policy). Raises BadInput where it is none or damaged."""
    file = read_events(path / "events.jsonl")
    if not file.lines or not isinstance(file.lines[0].event, events.RunStarted):
        raise BadInput(f"{file.path}:1: damaged: a run begins with run_started")
    history = History(path, file, file.lines[0].event)
    # Everything else looks nodes and links up in these arrays.
    usable = not history.world.problems()
    results = tuple(
        _result(check, history)
        for check in CHECKS
        if usable or check.name in ("stream", "topology")
    )
    started = history.started
    return Audit(str(path), started.run, started.policy, len(file.lines), results)


def _result(check: Check, history: History) -> Result:
    why_not = check.applies(history)
    if why_not is not None:
        return Result(check.name, check.says, "not applicable", why_not, 0, ())
    found = check.find(history)
    shown = tuple(itertools.islice(found, SHOWN))
    n = len(shown) + sum(1 for _ in found)
    return Result(check.name, check.says, "failed" if n else "passed", "", n, shown)


def audit_all(path: Path) -> list[Audit]:
    """Every policy's run in ``path``, and the list above them where there is one."""
    folders = policy_folders(path)
    audits = [audit(folder) for folder in folders]
    if folders == [path]:
        return audits
    found = tuple(_list_findings(path, folders))
    above = Result(
        "summary-list", "the list says what each policy's summary says",
        "failed" if found else "passed", "", len(found), found,
    )  # fmt: skip
    return [*audits, Audit(str(path), path.name, "all policies", 0, (above,))]


def _list_findings(path: Path, folders: list[Path]) -> Iterator[Finding]:
    try:
        listed = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        entries = {str(entry.pop("folder", None)): entry for entry in listed}
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        yield Finding(SUMMARY, None, "is missing, damaged or not a list with one entry a policy")
        return
    for folder in folders:
        try:
            own = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            own = None
        if own is None or entries.pop(folder.name, None) != own:
            yield Finding(SUMMARY, None, f"does not hold what {folder.name}/{SUMMARY} says")
    for name in entries:
        yield Finding(SUMMARY, None, f"names {name!r}, which has no folder")
