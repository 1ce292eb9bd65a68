"""``spec.resolved.json``: whether it is the experiment that was run, and what it expects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from testbed import events
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import History, about
from testbed.results.audit.tables import is_number
from testbed.results.folder import EVENTS, RESOLVED


def resolved(history: History) -> dict[str, Any] | str:
    """The experiment with every default in place, or what is wrong with it."""
    # Several policies of an early run share what lies above them.
    for folder in (history.folder, history.folder.parent):
        try:
            value = json.loads((folder / RESOLVED).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            return f"damaged: {error}"
        return value if isinstance(value, dict) else "is not an object"
    return "is missing: what was asked for cannot be told"


def experiment(history: History) -> Iterator[Finding]:
    """Name, seed and policy are the run's, and jobs that it lists are those that came."""
    spec = resolved(history)
    if isinstance(spec, str):
        yield Finding(RESOLVED, None, spec)
        return
    started = history.started
    for key, ran in (("name", started.run), ("seed", started.seed), ("policy", started.policy)):
        if spec.get(key) != ran:
            yield Finding(RESOLVED, None, f"{key} is {spec.get(key)!r}, that of the run {ran!r}")
    listed = spec.get("jobs")
    if isinstance(listed, list) and all(isinstance(job, dict) for job in listed):
        # An empty list: a trace or a model decides, and is not repeated there.
        yield from _jobs(history, {str(job.get("id")): job for job in listed}) if listed else ()
    else:
        yield Finding(RESOLVED, None, "jobs is not a list of jobs")


def _jobs(history: History, listed: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """A job comes as it is written, but for when: with ``after``, and live, it may be later."""
    came: set[str] = set()
    for line, event in history.each(events.JobSubmitted):
        job_id = str(event.job["id"])
        say = partial(Finding, EVENTS, line)
        came.add(job_id)
        if job_id not in listed:
            yield say(f"{job_id} is none of the jobs of {RESOLVED}")
            continue
        for key, asked in listed[job_id].items():
            if key == "submit_s":
                if not about(asked, event.job["submit_s"]):
                    said = f"comes at {event.job['submit_s']:.6g} s, in {RESOLVED} at {asked:.6g} s"
                    yield say(f"{job_id} {said}")
            elif key not in event.job or event.job[key] != asked:
                yield say(f"{job_id}: {key} is {event.job.get(key)!r}, in {RESOLVED} {asked!r}")
    ends = list(history.each(events.RunEnded))
    if ends and ends[-1][1].status == "completed":
        for job_id in listed:
            if job_id not in came:
                yield Finding(EVENTS, ends[-1][0], f"{job_id} of {RESOLVED} never came")


def expected(history: History) -> Mapping[str, Any] | None:
    """The ``expect`` block of the resolved experiment; None where that cannot be told."""
    spec = resolved(history)
    block = spec.get("expect") if isinstance(spec, dict) else None
    return block if _is_expect(block) else None


def _is_expect(block: Any) -> bool:
    if not isinstance(block, dict) or not isinstance(block.get("applications"), dict):
        return False
    own = list(block["applications"].values())
    if not all(isinstance(each, dict) for each in own):
        return False
    bounds = [each.get("scaled_down_below") for each in own]
    for band in (each.get("estimate_ratio") for each in (block, *own)):
        if not isinstance(band, dict | None):
            return False
        bounds += [] if band is None else [band.get("min"), band.get("max")]
    return all(bound is None or is_number(bound) for bound in bounds)
