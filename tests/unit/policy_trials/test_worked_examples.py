"""The examples of the papers as files: simulated, they decide as the papers tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import events
from testbed.play.playing import dry_run
from testbed.record.comparison import decisions
from testbed.spec.experiment_file import load_experiment
from tests.unit.workload.traces import skip_without_traces_of

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
REPRODUCTIONS = ROOT / "reproductions" / "cmbf"
MIN = 60.0
MOVES = ("started", "preempted", "migrated", "resumed", "tier_switched")


def simulated(
    name: str, policy: int, folder: Path = EXAMPLES
) -> list[events.Event]:
    experiment = load_experiment(folder / f"{name}.yaml")
    return dry_run(experiment, experiment.policies[policy])


def ends(history: list[events.Event]) -> dict[str, float]:
    """When each job ended, in minutes."""
    return {
        e.job_id: round(e.t / MIN, 6)
        for e in history
        if isinstance(e, events.JobEnded)
    }


def moves(history: list[events.Event]) -> list[str]:
    """Every decision but reservations, with its minute."""
    found = [d for d in decisions(history) if d.name in MOVES]
    return [f"{d.at_s / MIN:g} {d.job_id} {d.name}" for d in found]


def tiers(history: list[events.Event], at_min: float) -> tuple[str, str]:
    """Jobs in the foreground and in the background at a moment."""
    where: dict[str, str] = {}
    for event in history:
        if event.t > at_min * MIN:
            break
        match event:
            case (
                events.JobStarted()
                | events.JobMigrated()
                | events.JobTierSwitched()
            ):
                where[event.job_id] = event.tier
            case events.JobPreempted() | events.JobEnded():
                where.pop(event.job_id, None)
            case _:
                pass
    foreground, background = (
        " ".join(sorted(k for k, v in where.items() if v == tier))
        for tier in ("foreground", "background")
    )
    return foreground, background


def test_cmbf_fig1_evicts_j5_alone_and_ends_as_the_paper_says() -> None:
    history = simulated("cmbf-fig1", 0)
    assert moves(history) == [
        "0 J1 started", "0 J2 started", "0 J5 started", "0 J6 started",
        "5 J5 preempted", "5 J4 started", "10 J5 migrated", "20 J3 started",
    ]  # fmt: skip
    assert ends(history) == {
        "J2": 5,
        "J4": 10,
        "J6": 10,
        "J1": 20,
        "J5": 20,
        "J3": 25,
    }


def test_ambf_fig1_preempts_nobody() -> None:
    history = simulated("cmbf-fig1", 1)
    assert moves(history)[4:] == ["15 J4 started", "20 J3 started"]
    assert ends(history) == {
        "J2": 5,
        "J6": 10,
        "J5": 15,
        "J1": 20,
        "J4": 20,
        "J3": 25,
    }


def test_cmcbf_fig2_has_the_papers_tiers_over_time() -> None:
    history = simulated("cmcbf-fig2", 0)
    assert {at: tiers(history, at) for at in (0, 5, 10, 15, 20, 25)} == {
        0: ("J01 J02 J03", "J04 J05"),
        5: ("J01 J03 J05 J06", "J07"),
        10: ("J04 J05 J06", "J07 J10"),
        15: ("J05 J06 J10", ""),
        20: ("J05 J09", "J10"),
        25: ("J08", ""),
    }
    assert [m for m in moves(history) if "started" not in m] == [
        "5 J04 preempted", "5 J05 migrated", "10 J04 migrated",
        "15 J10 tier_switched", "20 J10 tier_switched",
    ]  # fmt: skip


def test_in_amcbf_fig2_j9_waits_for_j10_while_j8_is_the_head() -> None:
    history = simulated("cmcbf-fig2", 1)
    assert [tiers(history, at) for at in (15, 20, 21.5)] == [
        ("J05 J06 J10", ""), ("J05 J10", ""), ("J05 J09", ""),
    ]  # fmt: skip


def test_the_interference_experiment_is_the_published_model() -> None:
    history = simulated("cmbf-interference", 0, folder=REPRODUCTIONS)
    took = {
        e.job_id: e.measured_s
        for e in history
        if isinstance(e, events.JobEnded)
    }
    work = 7.5 * MIN
    assert took["alone"] == work
    assert work <= (took["front"] or 0) <= work * 1.04
    # Behind a process of 50 % one gets 40 to 50 % of a CPU meanwhile.
    assert 1.5 * work <= (took["rear"] or 0) <= 1.64 * work


def test_leases_live_preempts_no_best_effort_lease_twice_and_keeps_every_advance_start() -> (
    None
):
    experiment = load_experiment(EXAMPLES / "leases-live.yaml")
    history = dry_run(experiment, experiment.policies[0])
    given_way = [
        e.job_id for e in history if isinstance(e, events.JobPreempted)
    ]
    assert len(given_way) == len(set(given_way)) > 0
    wanted = {
        job.id: job.demand.wanted_s
        for job in experiment.jobs
        if job.demand.lease_type == "advance"
    }
    started = {
        e.job_id: e.t for e in history if isinstance(e, events.JobStarted)
    }
    assert {k: started[k] for k in wanted if k in started} == {
        k: at for k, at in wanted.items() if k in started
    }
    assert not [
        e
        for e in history
        if isinstance(e, events.JobEnded) and e.outcome == "killed"
    ]


@pytest.mark.parametrize("policy", [0, 1])
def test_bgmbf_live_evicts_and_restores(policy: int) -> None:
    skip_without_traces_of(
        (EXAMPLES / "bgmbf-live.yaml").read_text("utf-8")
    )
    history = simulated("bgmbf-live", policy)
    gone = [e.job_id for e in history if isinstance(e, events.JobPreempted)]
    back = [
        e.job_id
        for e in history
        if isinstance(e, events.JobResumed | events.JobMigrated)
    ]
    assert sorted(gone) == sorted(back)
    assert gone
    longest_s = max(
        e.measured_s or 0.0
        for e in history
        if isinstance(e, events.JobEnded)
    )
    assert longest_s <= 6 * 3600.0 + 600.0
