"""Measures of simulated runs, taken from the common metrics: table of jobs,
summary, occupancy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from jobs.workload.tenants import HOUR_S
from reproductions.configuration import Extractor, PlayedRun
from reproductions.grid_quantities import Measures
from reproductions.occupancy import Occupancy
from testbed.record.metrics import SLOWDOWN_BOUND_S, JobRow, Summary

DAY_S = 24 * HOUR_S
# Running times up to this multiple of the stated one count as the stated
# one.
UNDISTURBED = 1.001


def on_time(row: JobRow) -> bool:
    """True for a job that finished, by its deadline if it has one."""
    return row.outcome == "finished" and row.met_deadline is not False


def _over(part: float, whole: float) -> float:
    """A share; 0 of nothing."""
    if not whole:
        return 0.0
    return part / whole


# -- reservation in a data centre (DCloud) -------------------------------------


def _day(run: PlayedRun) -> Measures:
    """Success, use and revenue of a day of arrivals (DCloud, Section IV.A).

    ``success`` is the share of all jobs asked for that met their deadline;
    ``undisturbed`` of those that ran in the time they stated, as if nobody else
    were there. Uses are shares of all VM slots and of the capacity of all
    servers' uplinks over 24 hours: ``*_day`` count what ran within the first 24
    hours; the others all work, as if what runs later had run that day.
    ``traffic_day``: what VMs sent each other, over the capacity of those uplinks.
    """
    rows = run.rows
    held = run.occupancy
    datacentre = run.experiment.datacentre
    outcomes = dict.fromkeys(
        ("met", "late", "rejected", "killed", "unfinished"), 0
    )
    for row in rows:
        outcome: str = row.outcome
        if outcome == "finished":
            outcome = "met" if on_time(row) else "late"
        outcomes[outcome] += 1
    # All that the data centre offers in a day.
    slots_s = datacentre.total_slots * DAY_S
    uplink_bits = float(datacentre.nic_bps.sum()) * DAY_S
    jobs = len(rows)
    return {
        "jobs": jobs,
        **outcomes,
        "success": _over(outcomes["met"], jobs),
        "undisturbed": _over(sum(map(_undisturbed, rows)), jobs),
        "vm_use": held.slot_s() / slots_s,
        "vm_use_day": held.slot_s(DAY_S) / slots_s,
        "link_use": held.uplink_bits() / uplink_bits,
        "link_use_day": held.uplink_bits(DAY_S) / uplink_bits,
        "traffic_day": held.between_vms_bits(DAY_S) / uplink_bits,
        "revenue": run.summary.revenue,
        **_decision_times(run),
    }


def _undisturbed(row: JobRow) -> bool:
    if row.outcome != "finished":
        return False
    ran_s = row.measured_s or 0.0
    return ran_s <= UNDISTURBED * row.duration_s


def _decision_times(run: PlayedRun) -> dict[str, float]:
    """Processor seconds per arrival."""
    # A run without arrivals took no time for them.
    ordered = sorted(run.decisions_s) or [0.0]
    return {
        "allocation_mean_s": sum(ordered) / len(ordered),
        "allocation_p99_s": ordered[int(0.99 * (len(ordered) - 1))],
        "allocation_max_s": ordered[-1],
    }


def _bill(run: PlayedRun) -> Measures:
    """``price`` in dollars for all that was asked; ``end_s`` of the last job,
    infinite where one did not finish.
    """
    end_s = 0.0
    for row in run.rows:
        if row.outcome != "finished" or row.end_s is None:
            # A result that never comes is late for every deadline.
            end_s = math.inf
            break
        end_s = max(end_s, row.end_s)
    return {"price": run.summary.revenue, "end_s": end_s}


# -- rewards by deadline (JSA) -------------------------------------------------


def reward_share(rows: Iterable[JobRow]) -> float:
    """The share of all rewards that belongs to jobs on time (JSA, Section V.B)."""
    earned = 0.0
    total = 0.0
    for row in rows:
        total += row.value
        if on_time(row):
            earned += row.value
    return _over(earned, total)


def _rewards(run: PlayedRun) -> Measures:
    """``reward``: the system reward ratio; ``met``: the share of jobs on time,
    whatever their rewards; mean ``wait_s`` and ``ran_s`` of started jobs.
    """
    rows = run.rows
    waited_s = 0.0
    ran_s = 0.0
    started = 0
    for row in rows:
        if row.wait_s is not None:
            waited_s += row.wait_s
            started += 1
        if row.outcome == "finished":
            ran_s += row.measured_s or 0.0
    return {
        "jobs": len(rows),
        "reward": reward_share(rows),
        "met": _over(sum(map(on_time, rows)), len(rows)),
        "wait_s": _over(waited_s, started),
        "ran_s": _over(ran_s, started),
    }


# -- queues (AdaBa, BgMBF) -----------------------------------------------------

# The time of a migration by BgMBF's argument (Section 5.3.2).
RESTORING_S = 20.0


def _queue(run: PlayedRun) -> Measures:
    """Waiting, slowdown, use, migrations; a mean over nothing is NaN.

    ``wide_queued_s`` is the waiting of the half of the jobs with the larger
    bandwidths.
    """
    summary = run.summary
    if summary.unfinished or summary.killed:
        raise AssertionError(
            f"{summary.unfinished} unfinished and {summary.killed} killed jobs"
        )
    found = {
        "acceptance": summary.acceptance_rate,
        "wait_s": summary.wait_mean_s,
        "queued_s": summary.queued_mean_s,
        "response_s": summary.response_mean_s,
        "slowdown": summary.bounded_slowdown_mean,
        "utilisation": summary.vm_utilisation,
        "restoring_share": _restoring_share(summary),
        "preemptions": summary.preemptions,
        "migrations": summary.migrations,
        "migrated_jobs": sum(row.migrations > 0 for row in run.rows),
        "wide_queued_s": _wide_queued_s(run.rows),
    }
    measures = {}
    for name, value in found.items():
        measures[name] = math.nan
        if value is not None:
            measures[name] = float(value)
    return measures


def _wide_queued_s(rows: Sequence[JobRow]) -> float | None:
    """Mean waiting of the jobs that ask for more than the median bandwidth; None
    where none of them finished.
    """
    middle_bps = median(row.requested_bps for row in rows)
    queued = []
    for row in rows:
        if row.requested_bps > middle_bps and row.queued_s is not None:
            queued.append(row.queued_s)
    if not queued:
        return None
    return fmean(queued)


def _restoring_share(summary: Summary) -> float | None:
    """The time of all migrations over the mean waiting; None where jobs
    migrate, but none waits.
    """
    restoring_s = RESTORING_S * summary.migrations
    if summary.queued_mean_s:
        return restoring_s / summary.queued_mean_s
    if restoring_s:
        return None
    return 0.0


# -- consolidation (CMBF) ------------------------------------------------------


def _nodes(run: PlayedRun) -> Measures:
    """Response, slowdown, migrations a job, CPU use; the slowdown divides by
    max(Γ, t_e).

    ``utilisation``: the jobs' own work; ``busy``: with what is lost behind
    others.
    """
    rows = run.rows
    records = run.tally.requests
    jobs = len(rows)
    left = sum(row.outcome != "finished" for row in rows)
    # A mean over those that finished would praise a policy that starves
    # jobs.
    if left:
        raise AssertionError(f"{left} of {jobs} jobs did not finish")
    last_end_s = 0.0
    responses_s = 0.0
    slowdowns = 0.0
    migrations = 0
    work_s = 0.0
    for row in rows:
        response_s = row.response_s or 0.0
        last_end_s = max(last_end_s, row.end_s or 0.0)
        responses_s += response_s
        slowdowns += response_s / max(SLOWDOWN_BOUND_S, row.duration_s)
        migrations += row.migrations
        work_s += row.duration_s * _cpus(records[row.job_id])
    node_s = run.experiment.datacentre.total_slots * last_end_s
    return {
        "response_s": responses_s / jobs,
        "slowdown": slowdowns / jobs,
        "migrations": migrations / jobs,
        "utilisation": work_s / node_s,
        "busy": run.cpu_used_s / node_s,
    }


def _waits(run: PlayedRun) -> Measures:
    """Those of nodes, and ``beyond``: the share of all response times that is not
    the time that the jobs run for when alone.
    """
    alone_s = 0.0
    responses_s = 0.0
    for row in run.rows:
        alone_s += row.duration_s
        responses_s += row.response_s or 0.0
    return {**_nodes(run), "beyond": 1.0 - alone_s / responses_s}


def _cpus(record: Mapping[str, Any]) -> float:
    """The processors that a job keeps busy when alone."""
    use = record["cpu_use"]
    # One value for all VMs, or one for each.
    if isinstance(use, tuple | list):
        return float(sum(use))
    return float(use * record["n_vms"])


# -- leases (MBFCBS) -----------------------------------------------------------

LEASE_TYPES = {"advance": "ar", "immediate": "im", "best-effort": "be"}
"""Abbreviations of the paper by type of lease."""


def lease_measures(
    rows: Iterable[JobRow],
    records: Mapping[str, Mapping[str, Any]],
    held: Occupancy,
    cores: int,
) -> dict[str, float]:
    """Shares of leases, of core time up to the last end and the last arrival;
    times in hours.

    ``completion_h`` is counted from the wanted start of an advance reservation,
    and from the arrival of other leases.
    """
    rows = list(rows)
    accepted = 0
    preemptions = 0
    arrivals_s = 0.0
    makespan_s = 0.0
    completions_s = []
    # By type of lease, in the order of the leases.
    finished: defaultdict[str, list[bool]] = defaultdict(list)
    for row in rows:
        record = records[row.job_id]
        accepted += row.outcome not in ("rejected", "killed")
        preemptions += row.preemptions
        arrivals_s = max(arrivals_s, row.submit_s)
        end_s = row.end_s if row.outcome == "finished" else None
        finished[record["lease"]].append(bool(end_s))
        if end_s:
            completions_s.append(end_s - _counted_from_s(row, record))
            makespan_s = max(makespan_s, end_s)
    mean_s = _over(sum(completions_s), len(completions_s))
    return {
        "leases": len(rows),
        "accepted": accepted,
        "success": len(completions_s) / len(rows),
        **_success_by_type(finished),
        "preemptions": preemptions,
        "use": _over(held.slot_s(), cores * makespan_s),
        "use_early": _over(held.slot_s(arrivals_s), cores * arrivals_s),
        "makespan_h": makespan_s / HOUR_S,
        "completion_h": mean_s / HOUR_S,
    }


def _counted_from_s(row: JobRow, record: Mapping[str, Any]) -> float:
    """The wanted start of an advance reservation; the arrival of other leases."""
    wanted_s: float | None = record["wanted_s"]
    if wanted_s is None:
        return row.submit_s
    return wanted_s


def _success_by_type(
    finished: Mapping[str, Sequence[bool]],
) -> dict[str, float]:
    """The share of each type's leases that finished."""
    success = {}
    for kind, short in LEASE_TYPES.items():
        of_type = finished.get(kind)
        # Where there is no lease of a type, none of them has failed.
        success[f"success_{short}"] = 1.0
        if of_type:
            success[f"success_{short}"] = sum(of_type) / len(of_type)
    return success


def _leases(run: PlayedRun) -> Measures:
    cores = run.experiment.datacentre.total_slots
    return lease_measures(
        run.rows, run.tally.requests, run.occupancy, cores
    )


DAY_METRICS = Extractor(_day, occupancy=True, decisions=True)
BILL_METRICS = Extractor(_bill)
REWARD_METRICS = Extractor(_rewards)
QUEUE_METRICS = Extractor(_queue)
NODE_METRICS = Extractor(_nodes)
LEASE_METRICS = Extractor(_leases, occupancy=True)
WAIT_METRICS = Extractor(_waits)
