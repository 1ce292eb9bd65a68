"""Measures of simulated runs, taken from the common metrics: table of jobs,
summary, occupancy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.workload.tenants import HOUR_S
from reproductions.configuration import Extractor, PlayedRun
from reproductions.grid_quantities import Measures
from reproductions.occupancy import Occupancy
from testbed.record.metrics import SLOWDOWN_BOUND_S, JobRow

DAY_S = 24 * HOUR_S
UNDISTURBED = 1.001
"""Running times up to this multiple of the stated one count as the stated one.
"""


def on_time(row: JobRow) -> bool:
    """True for a job that finished, by its deadline if it has one."""
    return row.outcome == "finished" and row.met_deadline is not False


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
    rows, held, datacentre = (
        run.rows,
        run.occupancy,
        run.experiment.datacentre,
    )
    outcomes = dict.fromkeys(
        ("met", "late", "rejected", "killed", "unfinished"), 0
    )
    for row in rows:
        late_or_met = "met" if on_time(row) else "late"
        outcomes[
            late_or_met if row.outcome == "finished" else row.outcome
        ] += 1
    slots_s = datacentre.total_slots * DAY_S
    uplink_bits = float(datacentre.nic_bps.sum()) * DAY_S
    jobs = len(rows)
    return {
        "jobs": jobs,
        **outcomes,
        "success": outcomes["met"] / jobs if jobs else 0.0,
        "undisturbed": sum(map(_undisturbed, rows)) / jobs if jobs else 0.0,
        "vm_use": held.slot_s() / slots_s,
        "vm_use_day": held.slot_s(DAY_S) / slots_s,
        "link_use": held.uplink_bits() / uplink_bits,
        "link_use_day": held.uplink_bits(DAY_S) / uplink_bits,
        "traffic_day": held.between_vms_bits(DAY_S) / uplink_bits,
        "revenue": run.summary.revenue,
        **_decision_times(run),
    }


def _undisturbed(row: JobRow) -> bool:
    ran_s = row.measured_s or 0.0
    return (
        row.outcome == "finished" and ran_s <= UNDISTURBED * row.duration_s
    )


def _decision_times(run: PlayedRun) -> dict[str, float]:
    """Processor seconds per arrival."""
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
    done = all(row.outcome == "finished" for row in run.rows)
    ends = [row.end_s for row in run.rows if row.end_s is not None]
    return {
        "price": run.summary.revenue,
        "end_s": max(ends) if done else math.inf,
    }


# -- rewards by deadline (JSA) -------------------------------------------------


def reward_share(rows: Iterable[JobRow]) -> float:
    """The share of all rewards that belongs to jobs on time (JSA, Section V.B)."""
    rows = list(rows)
    total = sum(row.value for row in rows)
    return (
        sum(row.value for row in rows if on_time(row)) / total
        if total
        else 0.0
    )


def _rewards(run: PlayedRun) -> Measures:
    """``reward``: the system reward ratio; ``met``: of jobs, unweighted; times
    of started jobs.
    """
    rows = run.rows
    finished = [row for row in rows if row.outcome == "finished"]
    waits = [row.wait_s for row in rows if row.wait_s is not None]
    started = max(1, len(waits))
    return {
        "jobs": len(rows),
        "reward": reward_share(rows),
        "met": sum(map(on_time, rows)) / max(1, len(rows)),
        "wait_s": sum(waits) / started,
        "ran_s": sum(row.measured_s or 0.0 for row in finished) / started,
    }


# -- queues (AdaBa, BgMBF) -----------------------------------------------------

RESTORING_S = 20.0
"""The time of a migration by BgMBF's argument (Section 5.3.2)."""


def _queue(run: PlayedRun) -> Measures:
    """Waiting, slowdown, use, migrations; a mean over nothing is NaN."""
    summary = run.summary
    if summary.unfinished or summary.killed:
        raise AssertionError(
            f"{summary.unfinished} unfinished and {summary.killed} killed jobs"
        )
    restoring_s, queued_s = (
        RESTORING_S * summary.migrations,
        summary.queued_mean_s,
    )
    found = {
        "acceptance": summary.acceptance_rate,
        "wait_s": summary.wait_mean_s,
        "queued_s": queued_s,
        "response_s": summary.response_mean_s,
        "slowdown": summary.bounded_slowdown_mean,
        "utilisation": summary.vm_utilisation,
        "restoring_share": restoring_s / queued_s
        if queued_s
        else None
        if restoring_s
        else 0.0,
        "preemptions": summary.preemptions,
        "migrations": summary.migrations,
    }
    return {
        name: math.nan if value is None else float(value)
        for name, value in found.items()
    }


# -- consolidation (CMBF) ------------------------------------------------------


def _nodes(run: PlayedRun) -> Measures:
    """Response, slowdown, migrations a job, CPU use; the slowdown divides by
    max(Γ, t_e).

    ``utilisation``: the jobs' own work; ``busy``: with what is lost behind
    others.
    """
    rows, records = run.rows, run.tally.requests
    jobs = len(rows)
    left = sum(row.outcome != "finished" for row in rows)
    if left:
        raise AssertionError(f"{left} of {jobs} jobs did not finish")
    node_s = run.experiment.datacentre.total_slots * max(
        row.end_s or 0.0 for row in rows
    )
    stays = [(row.response_s or 0.0, row.duration_s) for row in rows]
    work_s = sum(
        row.duration_s * _cpus(records[row.job_id]) for row in rows
    )
    return {
        "response_s": sum(stay_s for stay_s, _ in stays) / jobs,
        "slowdown": sum(
            stay_s / max(SLOWDOWN_BOUND_S, ran_s) for stay_s, ran_s in stays
        )
        / jobs,
        "migrations": sum(row.migrations for row in rows) / jobs,
        "utilisation": work_s / node_s,
        "busy": run.cpu_used_s / node_s,
    }


def _cpus(record: Mapping[str, Any]) -> float:
    """The processors that a job keeps busy when alone."""
    use = record["cpu_use"]
    return float(
        sum(use) if isinstance(use, tuple | list) else use * record["n_vms"]
    )


# -- leases (MBFCBS) -----------------------------------------------------------

LEASE_TYPES = {"ar": "advance", "im": "immediate", "be": "best-effort"}


def lease_measures(
    rows: Iterable[JobRow],
    records: Mapping[str, Mapping[str, Any]],
    held: Occupancy,
    cores: int,
) -> dict[str, float]:
    """Shares of leases, of core time up to the last end and the last arrival;
    times in hours.
    """
    rows = list(rows)
    ends = {
        row.job_id: row.end_s
        for row in rows
        if row.outcome == "finished" and row.end_s
    }
    makespan_s = max(ends.values(), default=0.0)
    arrivals_s = max((row.submit_s for row in rows), default=0.0)
    waits = []
    for row in rows:
        if row.job_id in ends:
            wanted_s = records[row.job_id]["wanted_s"]
            waits.append(
                ends[row.job_id]
                - (row.submit_s if wanted_s is None else wanted_s)
            )
    of_type = {
        short: [
            row.job_id in ends
            for row in rows
            if records[row.job_id]["lease"] == kind
        ]
        for short, kind in LEASE_TYPES.items()
    }
    return {
        "leases": len(rows),
        "accepted": sum(
            row.outcome not in ("rejected", "killed") for row in rows
        ),
        "success": len(ends) / len(rows),
        # 1 where there are none of a type
        **{
            f"success_{k}": sum(own) / len(own) if own else 1.0
            for k, own in of_type.items()
        },
        "preemptions": sum(row.preemptions for row in rows),
        "use": held.slot_s() / (cores * makespan_s) if makespan_s else 0.0,
        "use_early": held.slot_s(arrivals_s) / (cores * arrivals_s)
        if arrivals_s
        else 0.0,
        "makespan_h": makespan_s / HOUR_S,
        "completion_h": sum(waits) / len(waits) / HOUR_S if waits else 0.0,
    }


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
