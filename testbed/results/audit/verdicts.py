"""The ``expectations`` of ``summary.json`` against what the resolved experiment expects.

The rules are those of docs/experiment-files.md and of decisions 0303 and 0305. Words are not
compared; a complaint only has to be about the thing that is to be complained of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from testbed.results.audit.asked import expected
from testbed.results.audit.figures import badness, fidelity, same, stored_summary
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import History
from testbed.results.audit.tables import Cells, facts
from testbed.results.folder import RESOLVED, SUMMARY

_FROM_TABLE = ("requested_bps", "granted_bps", "estimate_s", "measured_s", "ratio")
_ROW = {"job_id", "application", *_FROM_TABLE, "verdict", "why"}
_BLOCK = {"met", "complaints", "rows"}

_say = partial(Finding, SUMMARY, None)


def verdicts(history: History) -> Iterator[Finding]:
    """Every job has the verdict it is due, every complaint its cause, ``met`` says if any is."""
    stored = stored_summary(history)
    block = stored.get("expectations") if isinstance(stored, dict) else None
    if not isinstance(block, dict) or not _is_block(block):
        yield _say("expectations is missing or damaged")
        return
    expect = expected(history)
    if expect is None:
        yield Finding(RESOLVED, None, "has no expect: verdicts cannot be passed again")
        return
    jobs = facts(history)
    rows, complaints = block["rows"], block["complaints"]
    yield from _matched(rows, jobs)
    due = {job_id: _due(history, expect, job) for job_id, job in jobs.items()}
    for row in rows:
        if row["job_id"] in jobs:
            yield from _row(row, jobs[row["job_id"]], due[row["job_id"]])
    outside = [f"{row['job_id']}: {row['why']}" for row in rows if row["verdict"] == "outside"]
    yield from _complaints(complaints, outside, list(_others(history, expect, jobs, due)))
    if block["met"] is not (not complaints):
        yield _say(f"expectations.met is {block['met']}, with {len(complaints)} complaints")
    n_outside = sum(verdict == "outside" for verdict in due.values())
    if block["met"] is True and n_outside:
        yield _say(f"expectations.met is True, by the events {n_outside} jobs are outside")


def _is_block(block: dict[str, Any]) -> bool:
    rows, complaints = block.get("rows"), block.get("complaints")
    return (
        block.keys() == _BLOCK
        and isinstance(rows, list)
        and all(isinstance(row, dict) and row.keys() == _ROW for row in rows)
        and all(isinstance(row["job_id"], str) for row in rows)
        and isinstance(complaints, list)
        and all(isinstance(text, str) for text in complaints)
    )


def _matched(rows: Sequence[dict[str, Any]], jobs: Mapping[str, Cells]) -> Iterator[Finding]:
    """One row a job, one job a row."""
    times = Counter(row["job_id"] for row in rows)
    for job_id, n in times.items():
        if job_id not in jobs:
            yield _say(f"a verdict on {job_id!r}, never submitted")
        elif n > 1:
            yield _say(f"{n} verdicts on {job_id}")
    for job_id in jobs:
        if job_id not in times:
            yield _say(f"no verdict on {job_id}")


def _row(row: dict[str, Any], job: Cells, due: str) -> Iterator[Finding]:
    job_id = row["job_id"]
    if not same(row["ratio"], job["ratio"]):
        yield _say(f"{job_id}: judged at {row['ratio']}, by the events {job['ratio']}")
    for key in _FROM_TABLE[:-1]:
        if not same(row[key], job[key]):
            yield _say(f"{job_id}: judged with {key} {row[key]}, by the events {job[key]}")
    if row["application"] != _label(job):
        yield _say(f"{job_id}: judged as {row['application']!r}, it is of {_label(job)!r}")
    if row["verdict"] != due:
        yield _say(f"{job_id}: the verdict is {row['verdict']!r}, by the events {due!r}")
    if not isinstance(row["why"], str) or not row["why"]:
        yield _say(f"{job_id}: a verdict without a reason")


def _label(job: Cells) -> str:
    return str(job["application"] or job["job_id"])


def _best_effort(job: Cells) -> bool:
    """It ran without a promise."""
    return job["start_s"] is not None and job["estimate_s"] is None


def _due(history: History, expect: Mapping[str, Any], job: Cells) -> str:
    """The verdict that a job is due by its figures."""
    named = (expect.get("applications") or {}).get(job["application"] or "")
    own = named or {}
    band, below = own.get("estimate_ratio"), own.get("scaled_down_below")
    band = expect.get("estimate_ratio") if band is None else band
    # A policy may say no, and may promise nothing; a script is to run its jobs.
    free = named is None and history.policy != "scripted"
    if free and (job["outcome"] == "rejected" or _best_effort(job)):
        return "open"
    got = job["granted_bps"]
    less = got is None or float(got) < float(job["requested_bps"] or 0)
    bound = below if less else None
    if band is None and bound is None:
        return "open"
    if job["ratio"] is None:
        return "outside"
    ratio = float(job["ratio"])
    held = (bound is None or ratio < bound) and (band is None or _inside(ratio, band))
    return "ok" if held else "outside"


def _inside(ratio: float, band: Mapping[str, Any]) -> bool:
    low, high = band.get("min"), band.get("max")
    return (low is None or low <= ratio) and (high is None or ratio <= high)


def _others(
    history: History, expect: Mapping[str, Any], jobs: Mapping[str, Cells], due: Mapping[str, str]
) -> Iterator[str]:
    """What is to be complained of beside jobs: a word of each complaint, in their order."""
    verdict, accepted = fidelity(history)["verdict"], expect.get("fidelity")
    if accepted is not None and verdict is not None and badness(verdict) > badness(accepted):
        yield f"fidelity is {verdict}"
    seen = {_label(job) for job in jobs.values()}
    for name in expect.get("applications") or {}:
        if name not in seen:
            yield repr(name)
    none_judged = all(verdict == "open" for verdict in due.values())
    promised = not any(_best_effort(job) for job in jobs.values())
    if expect.get("estimate_ratio") is not None and none_judged and promised:
        yield "no job"


def _complaints(
    stored: Sequence[str], outside: Sequence[str], others: Sequence[str]
) -> Iterator[Finding]:
    """Those of the jobs outside, word for word as their rows say it, then the others."""
    jobs, rest = stored[: len(outside)], stored[len(outside) :]
    for said, row in zip(jobs, outside, strict=False):
        if said != row:
            yield _say(f"complains {said!r}, the row says {row!r}")
    for said, word in zip(rest, others, strict=False):
        if word not in said:
            yield _say(f"complains {said!r}, it is to be about {word}")
    wanted = len(outside) + len(others)
    if len(stored) != wanted:
        yield _say(f"complains of {len(stored)} things, there are {wanted}")
