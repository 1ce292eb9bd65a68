"""The list of checks, and the audit of a folder with all of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from testbed import events
from testbed.errors import BadInput
from testbed.results.audit.capacity_check import (
    estimates,
    has_memory,
    hoses,
    links,
    memory,
    placements,
    returned,
    samples,
    slots,
)
from testbed.results.audit.event_order import (
    accounts,
    arrivals,
    ending,
    lives,
    measured,
    notes,
    outcomes,
    overstays,
    stream,
    topology,
)
from testbed.results.audit.history import Audit, Check, Finding, History, Result, has_file
from testbed.results.audit.policy_claims import CLAIM_CHECKS, has_leases, lease_starts
from testbed.results.audit.summary_check import experiment, summary, verdicts
from testbed.results.audit.tables_check import jobs_csv, links_csv
from testbed.results.folder import EVENTS, JOBS, LINKS, SUMMARY
from testbed.results.reading import policy_folders, read_events

SHOWN = 20
"""Findings kept per check: one broken invariant tends to break in a thousand places."""


def _is_sampled(history: History) -> str | None:
    some = next(history.each(events.LinkSample), None)
    return None if some is not None else "no link was sampled"


CHECKS = (
    Check("stream", "one beginning, one end, time never runs backwards", stream),
    Check("ending", "the run's status is a known one and fits its jobs", ending),
    Check("notes", "every note on fidelity is of a known level", notes),
    Check("experiment", "the resolved experiment is the one that was run", experiment),
    Check("topology", "the arrays describe a data centre", topology),
    Check("lives", "each job's events are in order and end in one outcome", lives),
    Check("outcomes", "each outcome is a known one and fits what came before", outcomes),
    Check("accounts", "submitted = finished + rejected + killed + unfinished", accounts),
    Check("arrivals", "nothing is reserved or started before its time", arrivals),
    Check("overstays", "no job runs on after its reservation", overstays),
    Check("placements", "every VM asked for is on a server of one tree", placements),
    Check("hoses", "every link has min(X, N-X)·B reserved, no more, no less", hoses),
    Check("slots", "VM slots within capacity at every instant", slots),
    Check("memory", "memory within capacity at every instant", memory, has_memory),
    Check("links", "every directed link within capacity at every instant", links),
    Check("returned", "all capacity is back at the end", returned),
    Check("estimates", "every estimate is p·b/b', or the profile's", estimates),
    Check("measured", "measured times fit into the jobs' stays", measured),
    Check("samples", "no sample above its link's capacity", samples, _is_sampled),
    Check("jobs.csv", "the table says what the events say", jobs_csv, has_file(JOBS)),
    Check(
        "links.csv", "rates over time are what was sampled or reserved", links_csv, has_file(LINKS)
    ),
    Check("summary", "the summary says what the events say", summary, has_file(SUMMARY)),
    Check("expectations", "every verdict is the one that is due", verdicts, has_file(SUMMARY)),
    Check(
        "lease-starts", "timed leases start at their time or are rejected", lease_starts, has_leases
    ),
    *CLAIM_CHECKS,
)


def audit(path: Path) -> Audit:
    """Audit one run folder (of one policy). Raises BadInput where it is none or damaged."""
    file = read_events(path / EVENTS)
    if not file.lines or not isinstance(file.lines[0].event, events.RunStarted):
        raise BadInput(f"{file.path}:1: damaged: a run begins with run_started")
    history = History(path, file, file.lines[0].event)
    # Everything else looks nodes and links up in these arrays.
    usable = not history.topology.problems()
    results = tuple(
        _result(check, history)
        for check in CHECKS
        if usable or check.name in ("stream", "topology")
    )
    started = history.started
    return Audit(str(path), started.run, started.policy, len(file.lines), results)


def _result(check: Check, history: History) -> Result:
    why_not = check.why_not(history)
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
