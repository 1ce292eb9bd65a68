"""The list of checks, and the audit of a folder with all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed import events
from testbed.audit import capacity_check as capacity
from testbed.audit import event_order as order
from testbed.audit import failures_check as lost
from testbed.audit import summary_check as stored
from testbed.audit import tables_check as tables
from testbed.audit.history import (
    Audit,
    History,
    Invariant,
    Place,
    Result,
    Status,
    Violation,
    has_file,
    is_enforced,
    parsed,
)
from testbed.audit.policy_claims import (
    CLAIM_CHECKS,
    has_leases,
    lease_starts,
)
from testbed.errors import BadInput
from testbed.record.folder import EVENTS, JOBS, LINKS, SUMMARY
from testbed.record.metrics import Recording
from testbed.record.reading import policy_folders, read_recording
from testbed.record.stored_json import read_json

OF_FILES = ("jobs.csv", "links.csv", "summary", "expectations")
"""Checks of what a run folder says beside its events."""
SHOWN = 20
"""Findings kept per check: one broken invariant tends to break in a thousand
places.
"""


def _is_sampled(history: History) -> str | None:
    if history.of_kind(events.LinkSample):
        return None
    return "no link was sampled"


CHECKS = (
    Invariant(
        "stream",
        "one beginning, one end, time never runs backwards",
        order.stream,
    ),
    Invariant(
        "ending",
        "the run's status is a known one and fits its jobs",
        order.ending,
    ),
    Invariant(
        "notes", "every note on fidelity is of a known level", order.notes
    ),
    Invariant(
        "experiment",
        "the resolved experiment is the one that was run",
        stored.experiment,
    ),
    Invariant(
        "flows",
        "flows that are not the testbed's are noted as such",
        stored.foreign_flows,
        stored.has_foreign_flows,
    ),
    Invariant(
        "topology", "the arrays describe a data centre", order.topology
    ),
    Invariant(
        "lives",
        "each job's events are in order and end in one outcome",
        order.lives,
    ),
    Invariant(
        "outcomes",
        "each outcome is a known one and fits what came before",
        order.outcomes,
    ),
    Invariant(
        "accounts",
        "submitted = finished + rejected + killed + unfinished",
        order.accounts,
    ),
    Invariant(
        "arrivals",
        "nothing is reserved or started before its time",
        order.arrivals,
    ),
    Invariant(
        "overstays", "no job runs on after its reservation", order.overstays
    ),
    Invariant(
        "placements",
        "every VM asked for is on a server of one tree",
        capacity.placements,
    ),
    Invariant(
        "hoses",
        "every link has min(X, N-X)·B reserved, no more, no less",
        capacity.hoses,
    ),
    Invariant(
        "slots", "VM slots within capacity at every instant", capacity.slots
    ),
    Invariant(
        "memory",
        "memory within capacity at every instant",
        capacity.memory,
        capacity.has_memory,
    ),
    Invariant(
        "links",
        "every directed link within capacity at every instant",
        capacity.links,
    ),
    Invariant(
        "returned", "all capacity is back at the end", capacity.returned
    ),
    Invariant(
        "estimates",
        "every estimate is p·b/b', or the profile's",
        capacity.estimates,
    ),
    Invariant(
        "measured",
        "measured times fit into the jobs' stays",
        order.measured,
    ),
    Invariant(
        "samples",
        "no sample above its link's capacity",
        capacity.samples,
        _is_sampled,
    ),
    Invariant(
        "strict",
        "no link carries more of tenants than they reserve",
        capacity.strict,
        is_enforced("strict"),
    ),
    Invariant(
        "work-conserving",
        "bandwidth is lent, and every reservation is kept",
        stored.work_conserving,
        is_enforced("work-conserving"),
    ),
    Invariant(
        "jobs.csv",
        "the table says what the events say",
        tables.jobs_csv,
        has_file(JOBS),
    ),
    Invariant(
        "links.csv",
        "rates over time are what was sampled or reserved",
        tables.links_csv,
        has_file(LINKS),
    ),
    Invariant(
        "summary",
        "the summary says what the events say",
        stored.summary,
        has_file(SUMMARY),
    ),
    Invariant(
        "expectations",
        "every verdict is the one that is due",
        stored.verdicts,
        has_file(SUMMARY),
    ),
    Invariant(
        "failures",
        "nobody is put on what is lost, or left there unseen",
        lost.failures,
        lost.has_failures,
    ),
    Invariant(
        "lease-starts",
        "timed leases start at their time or are rejected",
        lease_starts,
        has_leases,
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
    return _audited(History(path, file, file.started), CHECKS)


def audit_played(
    played: list[events.Event], resolved: dict[str, Any]
) -> Audit:
    """Audits a run without a folder by all checks that need none but its
    resolved experiment.
    """
    file = Recording(Path(), played)
    history = History(file.path, file, file.started, declared=resolved)
    checks = [check for check in CHECKS if check.name not in OF_FILES]
    return _audited(history, checks)


def _audited(history: History, checks: Sequence[Invariant]) -> Audit:
    # Everything else looks nodes and links up in these arrays.
    if history.topology.problems():
        checks = [
            check for check in checks if check.name in _ON_NO_TOPOLOGY
        ]
    started = history.started
    return Audit(
        str(history.folder),
        started.run,
        started.policy,
        len(history.events),
        tuple(_result(check, history) for check in checks),
    )


_ON_NO_TOPOLOGY = ("stream", "topology")


def _result(check: Invariant, history: History) -> Result:
    why_not = check.why_not(history)
    if why_not is not None:
        return Result(
            check.name, check.says, "not applicable", why_not, 0, ()
        )
    findings = []
    for place, message in check.find(history):
        findings.append(_finding(history, place, message))
    return _judged(check.name, check.says, findings)


def _finding(history: History, place: Place, message: str) -> Violation:
    if isinstance(place, tuple):
        file, line = place
        return Violation(file, line, message)
    return Violation(EVENTS, history.lines[id(place)], message)


def _judged(name: str, says: str, violations: list[Violation]) -> Result:
    status: Status = "failed" if violations else "passed"
    return Result(
        name,
        says,
        status,
        why="",
        n_findings=len(violations),
        findings=tuple(violations[:SHOWN]),
    )


def audit_all(path: Path) -> list[Audit]:
    """Every policy's run in ``path``, and the list above them where there is
    one.
    """
    folders = policy_folders(path)
    audits = list(map(audit, folders))
    if folders == [path]:
        return audits
    findings = []
    for message in _list_faults(path, folders):
        findings.append(Violation(SUMMARY, None, message))
    says = "the list says what each policy's summary says"
    above = _judged("summary-list", says, findings)
    return [
        *audits,
        Audit(str(path), path.name, "all policies", 0, (above,)),
    ]


def _list_faults(path: Path, folders: list[Path]) -> Iterator[str]:
    entries: dict[str, Any] = {}
    try:
        for entry in read_json(path / SUMMARY):
            folder_name = str(entry.pop("folder", None))
            entries[folder_name] = entry
    except (BadInput, AttributeError, TypeError):
        yield "is missing, damaged or not a list with one entry a policy"
        return
    for folder in folders:
        stored = parsed(folder / SUMMARY)
        entry = entries.pop(folder.name, None)
        if isinstance(stored, str) or entry != stored:
            yield f"does not hold what {folder.name}/{SUMMARY} says"
    for name in entries:
        yield f"names {name!r}, which has no folder"
