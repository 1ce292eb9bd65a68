"""The list of checks, and the audit of a folder with all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed import events
from testbed.audit import (
    capacity_check,
    event_order,
    failures_check,
    summary_check,
    tables_check,
)
from testbed.audit.history import (
    Audit,
    History,
    Invariant,
    Place,
    Result,
    Status,
    Violation,
    needs_file,
    needs_mode,
    parsed,
)
from testbed.audit.policy_claims import (
    CLAIM_CHECKS,
    lease_starts,
    needs_leases,
)
from testbed.errors import BadInput
from testbed.record.folder import EVENTS, JOBS, LINKS, SUMMARY
from testbed.record.metrics import Recording
from testbed.record.reading import policy_folders, read_recording
from testbed.record.stored_json import read_json

FILE_CHECKS = ("jobs.csv", "links.csv", "summary", "expectations")
"""Checks of a run folder's other files against its events."""
TOPOLOGY_CHECKS = ("stream", "topology")
"""Checks that can be made where the topology's arrays are damaged: all others
look nodes and links up in them.
"""
MAX_FINDINGS = 20
"""The most findings kept per check: one broken invariant tends to break in a
thousand places.
"""


def _needs_samples(history: History) -> str | None:
    if history.of_kind(events.LinkSample):
        return None
    return "no link was sampled"


CHECKS = (
    Invariant(
        "stream",
        "one beginning, one end, time never runs backwards",
        event_order.stream,
    ),
    Invariant(
        "ending",
        "the run's status is a known one and fits its jobs",
        event_order.ending,
    ),
    Invariant(
        "notes",
        "every note on fidelity is of a known level",
        event_order.notes,
    ),
    Invariant(
        "experiment",
        "the resolved experiment is the one that was run",
        summary_check.experiment,
    ),
    Invariant(
        "flows",
        "flows that are not the testbed's are noted as such",
        summary_check.foreign_flows,
        summary_check.needs_foreign_flows,
    ),
    Invariant(
        "topology",
        "the arrays describe a data centre",
        event_order.topology,
    ),
    Invariant(
        "lives",
        "each job's events are in order and end in one outcome",
        event_order.lives,
    ),
    Invariant(
        "outcomes",
        "each outcome is a known one and fits what came before",
        event_order.outcomes,
    ),
    Invariant(
        "accounts",
        "submitted = finished + rejected + killed + unfinished",
        event_order.accounts,
    ),
    Invariant(
        "arrivals",
        "nothing is reserved or started before its time",
        event_order.arrivals,
    ),
    Invariant(
        "overstays",
        "no job runs on after its reservation",
        event_order.overstays,
    ),
    Invariant(
        "placements",
        "every VM asked for is on a server of one tree",
        capacity_check.placements,
    ),
    Invariant(
        "hoses",
        "every link has min(X, N-X)·B reserved, no more, no less",
        capacity_check.hoses,
    ),
    Invariant(
        "slots",
        "VM slots within capacity at every instant",
        capacity_check.slots,
    ),
    Invariant(
        "memory",
        "memory within capacity at every instant",
        capacity_check.memory,
        capacity_check.needs_memory,
    ),
    Invariant(
        "links",
        "every directed link within capacity at every instant",
        capacity_check.links,
    ),
    Invariant(
        "returned",
        "all capacity is back at the end",
        capacity_check.returned,
    ),
    Invariant(
        "estimates",
        "every estimate is p·b/b', or the profile's",
        capacity_check.estimates,
    ),
    Invariant(
        "measured",
        "measured times fit into the jobs' stays",
        event_order.measured,
    ),
    Invariant(
        "samples",
        "no sample above its link's capacity",
        capacity_check.samples,
        _needs_samples,
    ),
    Invariant(
        "strict",
        "no link carries more of tenants than they reserve",
        capacity_check.strict,
        needs_mode("strict"),
    ),
    Invariant(
        "work-conserving",
        "bandwidth is lent, and every reservation is kept",
        summary_check.work_conserving,
        needs_mode("work-conserving"),
    ),
    Invariant(
        "jobs.csv",
        "the table says what the events say",
        tables_check.jobs_csv,
        needs_file(JOBS),
    ),
    Invariant(
        "links.csv",
        "rates over time are what was sampled or reserved",
        tables_check.links_csv,
        needs_file(LINKS),
    ),
    Invariant(
        "summary",
        "the summary says what the events say",
        summary_check.summary,
        needs_file(SUMMARY),
    ),
    Invariant(
        "expectations",
        "every verdict follows from the events and the file",
        summary_check.verdicts,
        needs_file(SUMMARY),
    ),
    Invariant(
        "failures",
        "no job is placed on failed parts, and each job hit is handled",
        failures_check.failures,
        failures_check.needs_failures,
    ),
    Invariant(
        "lease-starts",
        "timed leases start at their time or are rejected",
        lease_starts,
        needs_leases,
    ),
    *CLAIM_CHECKS,
)


def audit(path: Path, file: Recording | None = None) -> Audit:
    """Audits one run folder (of one policy).

    ``file``: its ``events.jsonl``, where it has just been read from the disk.
    Raises BadInput where the folder is none or damaged.
    """
    if file is None:
        file = read_recording(path)
    return _audited(History(path, file), CHECKS)


def audit_played(
    played: list[events.Event], resolved: dict[str, Any]
) -> Audit:
    """Audits a run that has no folder, by its events and its resolved
    experiment; checks of other files are left out.
    """
    file = Recording(Path(), played)
    history = History(file.path, file, declared=resolved)
    checks = [check for check in CHECKS if check.name not in FILE_CHECKS]
    return _audited(history, checks)


def _audited(history: History, checks: Sequence[Invariant]) -> Audit:
    if history.topology.problems():
        checks = [
            check for check in checks if check.name in TOPOLOGY_CHECKS
        ]
    return Audit(
        path=str(history.folder),
        run=history.started.run,
        policy=history.started.policy,
        n_events=len(history.events),
        results=tuple(_result(check, history) for check in checks),
    )


def _result(check: Invariant, history: History) -> Result:
    why_not = check.why_not(history)
    if why_not is not None:
        return Result(check.name, check.says, "not applicable", why_not)
    findings = []
    for place, message in check.find(history):
        findings.append(_finding(history, place, message))
    return _judged(check.name, check.says, findings)


def _finding(history: History, place: Place, message: str) -> Violation:
    # A place is a file and its line, or an event, which has a line in
    # events.jsonl.
    if isinstance(place, tuple):
        file, line = place
        return Violation(file, line, message)
    return Violation(EVENTS, history.lines[id(place)], message)


def _judged(name: str, says: str, findings: list[Violation]) -> Result:
    status: Status = "failed" if findings else "passed"
    return Result(
        name,
        says,
        status,
        n_findings=len(findings),
        findings=tuple(findings[:MAX_FINDINGS]),
    )


def audit_all(path: Path) -> list[Audit]:
    """Audits every policy's run in ``path``.

    Where the policies have a folder each, the list of their summaries above
    them is audited too.
    """
    folders = policy_folders(path)
    audits = list(map(audit, folders))
    if folders == [path]:
        return audits
    findings = []
    for message in _list_faults(path, folders):
        findings.append(Violation(SUMMARY, None, message))
    says = "the list says what each policy's summary says"
    above = Audit(
        path=str(path),
        run=path.name,
        policy="all policies",
        n_events=0,
        results=(_judged("summary-list", says, findings),),
    )
    return [*audits, above]


def _list_faults(path: Path, folders: list[Path]) -> Iterator[str]:
    """Faults of the list of the policies' summaries."""
    entries: dict[str, Any] = {}
    try:
        for entry in read_json(path / SUMMARY):
            folder_name = str(entry.pop("folder", None))
            if folder_name in entries:
                yield f"names {folder_name!r} twice"
            entries[folder_name] = entry
    except (BadInput, AttributeError, TypeError):
        yield "is missing, damaged or not a list with one entry a policy"
        return
    for folder in folders:
        summary = parsed(folder / SUMMARY)
        entry = entries.pop(folder.name, None)
        # Of a damaged file ``parsed`` returns the fault.
        if isinstance(summary, str) or entry != summary:
            yield f"does not hold what {folder.name}/{SUMMARY} says"
    for name in entries:
        yield f"names {name!r}, which has no folder"
