"""A job's own traffic and programs decide; the state of the machine does not."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from testbed.plan.direct_evidence import (
    INDIRECT,
    JobEvidence,
    Kind,
    controller_finding,
    job_findings,
    lateness,
    weighed,
)
from testbed.plan.fidelity import Finding

GOOD = JobEvidence("a", "ring", 6.0, watched_s=5.0, missing_s=0.01)
BUSY = Finding("invalid", "processor idle", "idle for at most 0%")


def levels(*jobs: JobEvidence) -> dict[str, str]:
    return {finding.check: finding.level for finding in job_findings(jobs)}


def of_busy(*jobs: JobEvidence) -> Finding:
    return weighed([BUSY], jobs)[0]


def test_full_processors_beside_jobs_that_lacked_nothing_are_ok() -> None:
    found = of_busy(GOOD, replace(GOOD, job_id="b", missing_s=0.02))
    assert found.level == "ok"
    assert "idle for at most 0%" in found.reason
    assert "nothing was seen to lack: at most +0.3% (job b)" in found.reason


@pytest.mark.parametrize("check", sorted(INDIRECT))
def test_each_check_of_the_machine_is_weighed(check: str) -> None:
    (found, *_) = weighed([Finding("invalid", check, "x")], [GOOD])
    assert found.level == "ok"


@pytest.mark.parametrize(
    "check", ["starved class", "drops", "unshaped packets"]
)
def test_a_check_of_the_traffic_stays_as_it_is(check: str) -> None:
    (found, *_) = weighed([Finding("invalid", check, "x")], [GOOD])
    assert found == Finding("invalid", check, "x")


@pytest.mark.parametrize("kind", ["command", "compute", "best effort"])
def test_idleness_counts_where_a_job_has_no_evidence(kind: Kind) -> None:
    found = of_busy(GOOD, JobEvidence("c", kind, 6.0))
    assert found.level == "invalid"
    assert found.reason.startswith(
        f"{BUSY.reason}; not all was seen of job c"
    )


@pytest.mark.parametrize(
    ("job", "unseen"),
    [
        (JobEvidence("c", "command", 6.0), "its pace is its own"),
        (
            JobEvidence("c", "command", 6.0, held_s=0.3),
            "it waited 0.30 s for a processor",
        ),
        (
            JobEvidence("c", "ring", 6.0, watched_s=1.5),
            "its traffic was counted for 25% of its time",
        ),
        (
            JobEvidence("c", "best effort", 6.0, watched_s=6.0, held_s=0.3),
            "0.30 s of its traffic lack, and its links may have been full",
        ),
    ],
)
def test_a_reason_names_the_jobs_of_which_not_all_was_seen(
    job: JobEvidence, unseen: str
) -> None:
    assert of_busy(GOOD, job).reason == (
        f"{BUSY.reason}; not all was seen of job c: {unseen}"
    )
    # Once, whatever else counts.
    waits = Finding("invalid", "starved switch", "waited")
    assert weighed([BUSY, waits], [GOOD, job])[1] == waits
    others = [replace(job, job_id=f"d{number}") for number in range(4)]
    assert of_busy(GOOD, *others).reason.endswith("; and 1 more")


def test_a_demand_curve_leaves_a_doubt() -> None:
    curve = JobEvidence("d", "demand curve", 6.0, lost_s=0.0)
    assert of_busy(curve).level == "suspect"
    later = replace(curve, began_s=100.0)
    assert of_busy(GOOD, later).level == "suspect"


def test_counted_traffic_beside_a_demand_curve_speaks_for_its_switch() -> (
    None
):
    curve = JobEvidence("d", "demand curve", 6.0, began_s=2.0, lost_s=0.0)
    assert of_busy(GOOD, curve).level == "ok"
    assert of_busy(GOOD, replace(curve, lost_s=0.2)).level == "suspect"


def test_a_demand_curve_whose_traffic_was_counted_leaves_none() -> None:
    curve = JobEvidence("d", "demand curve", 6.0, watched_s=5.0)
    assert of_busy(curve).level == "ok"
    behind = replace(curve, missing_s=0.3)
    (found, *_) = job_findings([behind])
    assert found.level == "invalid"
    assert "job d fell behind its demand curve by 5.0%" in found.reason
    assert behind.possible_error == "at most +5.0% from lack of processor"


def test_traffic_that_was_hardly_counted_is_no_evidence() -> None:
    found = of_busy(replace(GOOD, watched_s=2.0))
    assert found.level == "invalid"
    assert of_busy() == BUSY


@pytest.mark.parametrize(
    ("missing_s", "level"),
    [(0.06, "ok"), (0.11, "suspect"), (0.13, "invalid")],
)
def test_traffic_that_did_not_arrive(missing_s: float, level: str) -> None:
    job = replace(GOOD, missing_s=missing_s)
    assert levels(job, GOOD)["missing traffic"] == level
    assert of_busy(job).level == ("ok" if level == "ok" else "suspect")


@pytest.mark.parametrize(
    ("stood_s", "level"), [(0.0, "ok"), (0.2, "invalid"), (5.0, "invalid")]
)
def test_a_switch_that_stood_still(stood_s: float, level: str) -> None:
    assert levels(replace(GOOD, stood_s=stood_s))["standstill"] == level


def test_a_standstill_is_measured_by_the_shortest_job_that_it_hit() -> None:
    long = JobEvidence("l", "ring", 60.0, watched_s=55.0, stood_s=0.2)
    assert levels(long)["standstill"] == "ok"
    assert (
        levels(long, replace(GOOD, stood_s=0.2))["standstill"] == "invalid"
    )


@pytest.mark.parametrize(
    ("moving_s", "missing_s", "level"),
    [
        (0.02, 0.0, "ok"),
        (0.3, 0.0, "invalid"),
        # Neither is much; both together are.
        (0.06, 0.04, "suspect"),
        (0.0, 0.11, "ok"),
    ],
)
def test_what_moving_took_counts_with_what_lacks_besides(
    moving_s: float, missing_s: float, level: str
) -> None:
    job = replace(GOOD, moving_s=moving_s, missing_s=missing_s)
    assert levels(GOOD, job)["move"] == level


def test_a_job_that_began_too_late_for_its_reservation() -> None:
    late = JobEvidence("b", "compute", 3.0, short_s=0.5, held_s=0.0)
    assert levels(GOOD, late)["late start"] == "invalid"
    (reason,) = (
        finding.reason
        for finding in job_findings([GOOD, late])
        if finding.check == "late start"
    )
    assert reason == (
        "job b began so late that its reservation's end left it 0.50 s, "
        "16.7%, less than the time it takes"
    )
    assert levels(GOOD)["late start"] == "ok"


@pytest.mark.parametrize(
    ("short_s", "why"),
    [
        (0.3, "it began late, and 0.30 s, 0.6% of its time, were left"),
        (0.0, "its report came late"),
    ],
)
def test_a_lease_that_was_to_end_in_its_reservation_and_was_stopped_by_it(
    short_s: float, why: str
) -> None:
    """However little was left: no expectation judges it, as it does transfers."""
    lease = JobEvidence("l", "compute", 50.0, short_s=short_s, held_s=0.0)
    assert levels(GOOD, lease)["late start"] == "ok"
    cut_off = replace(lease, cut_off=True)
    (found,) = (
        finding
        for finding in job_findings([GOOD, cut_off])
        if finding.check == "late start"
    )
    assert found.level == "invalid"
    assert found.reason == (
        f"job l was to end in its reservation, whose end stopped it: {why}"
    )
    # A transfer that lacks more beside it does not hide it.
    later = JobEvidence("b", "ring", 3.0, short_s=0.5)
    found = next(
        finding
        for finding in job_findings([later, cut_off])
        if finding.check == "late start"
    )
    assert "job l was to end" in found.reason


def test_a_limit_that_let_too_much_through() -> None:
    job = replace(GOOD, excess=0.2)
    assert levels(job)["outrun limit"] == "invalid"
    assert (
        job.possible_error == "at most -20.0% from limits that did not hold"
    )


def test_an_agent_that_caught_up_what_it_waited_is_not_late() -> None:
    curve = JobEvidence("d", "demand curve", 6.0, waited_s=3.0)
    assert levels(curve)["late agent"] == "ok"
    behind = replace(curve, lost_s=0.3)
    assert levels(behind)["late agent"] == "invalid"
    assert behind.possible_error.startswith("at most +5.0% from lack of")


@pytest.mark.parametrize("kind", ["compute", "command"])
def test_programs_that_hardly_waited_leave_no_doubt_of_the_machine(
    kind: Kind,
) -> None:
    job = JobEvidence("c", kind, 6.0, held_s=0.01)
    assert of_busy(GOOD, job).level == "ok"
    # Those that did may have done so by design.
    assert of_busy(GOOD, replace(job, held_s=1.0)).level == "invalid"
    assert levels(replace(job, held_s=1.0))["late agent"] == "ok"


def test_a_command_alone_leaves_a_doubt_of_its_traffic() -> None:
    command = JobEvidence("c", "command", 6.0, held_s=0.01)
    assert of_busy(command).level == "suspect"
    assert command.possible_error.endswith("its traffic apart")
    compute = replace(command, kind="compute")
    assert of_busy(compute).level == "ok"


def test_the_possible_error_in_words() -> None:
    assert GOOD.possible_error == "at most +0.2% from lack of processor"
    assert GOOD.record()["possible_error"] == GOOD.possible_error
    assert not JobEvidence("c", "command", 6.0).possible_error
    lone = JobEvidence("d", "one VM", 12.0, lost_s=0.0)
    assert lone.possible_error == "at most +0.0% from lack of processor"


@pytest.mark.parametrize(
    ("stood_s", "held_up_s", "level"),
    [
        (0.0, 0.0, "ok"),
        (2.0, 0.0, "ok"),
        (2.0, 0.05, "ok"),
        (2.0, 0.1, "suspect"),
        (2.0, 1.5, "invalid"),
    ],
)
def test_a_controller_s_standstill_counts_where_something_waited(
    stood_s: float, held_up_s: float, level: str
) -> None:
    long = replace(GOOD, length_s=60.0)
    found = controller_finding(stood_s, held_up_s, [long, GOOD])
    assert found.level == level
    assert f"no progress for {stood_s:.2f} s" in found.reason
    assert ("nothing waited" in found.reason) == (stood_s > held_up_s == 0)
    assert found.metrics == {"stood_s": stood_s, "held_up_s": held_up_s}


def test_of_a_person_s_controller_nobody_knows_what_waited() -> None:
    found = controller_finding(2.0, 0.0, [GOOD], is_ours=False)
    assert found.level == "suspect"
    assert "not known" in found.reason
    found = controller_finding(0.0, 0.0, [GOOD], is_ours=False)
    assert found.level == "ok"


@pytest.mark.parametrize("is_ours", [True, False])
def test_without_a_job_a_controller_held_up_nobody(is_ours: bool) -> None:
    found = controller_finding(0.03, 0.01, [], is_ours=is_ours)
    assert found.level == "ok"
    assert "%" not in found.reason


def of_lateness(*jobs: JobEvidence) -> Finding:
    """A sleeping process woke up a second late now and then."""
    (found,) = lateness([0.001] * 90 + [1.0] * 10, jobs)
    return found


@pytest.mark.parametrize(
    ("length_s", "band", "level"),
    [
        (60.0, 0.05, "ok"),
        (30.0, 0.05, "suspect"),
        (10.0, 0.05, "invalid"),
        (10.0, 0.5, "ok"),
    ],
)
def test_wake_ups_are_late_by_what_a_job_s_band_allows(
    length_s: float, band: float, level: str
) -> None:
    command = JobEvidence(
        "c", "command", length_s, late_wake_s=1.0, band=band
    )
    found = of_lateness(command)
    assert found.level == level
    assert "up to 1000 ms late (p99), 1000 ms while job c ran: " in (
        found.reason
    )
    assert found.metrics["max_s"] == 1.0
    # Where all was seen of a job it is no lack of it.
    assert weighed([found], [command])[0].level == level
    held = replace(command, held_s=0.0)
    counted = replace(GOOD, length_s=length_s, watched_s=length_s)
    assert weighed([found], [counted, held])[0].level == "ok"


def test_late_wake_ups_bear_on_a_job_of_which_not_all_was_seen() -> None:
    late = replace(GOOD, late_wake_s=1.0)
    unseen = JobEvidence("c", "command", 100.0, late_wake_s=1.0)
    found = of_lateness(late, unseen)
    assert (found.level, found.metrics["share"]) == ("ok", 0.2)
    assert of_lateness(late).level == "invalid"
    assert lateness([], [late]) == []
    assert of_lateness().level == "ok"


DROPS = Finding("suspect", "drops", "9 packets were dropped at x")


@pytest.mark.parametrize(
    ("job", "level"),
    [
        (replace(GOOD, drops=9), "suspect"),
        (replace(GOOD, drops=9, resent_s=3.0), "suspect"),
        # Of those that it has by its reservation none is one of the nine.
        (JobEvidence("c", "command", 6.0, full_drops=90), "suspect"),
        (replace(GOOD, drops=9, missing_s=0.15), "invalid"),
        (replace(GOOD, missing_s=0.15), "suspect"),
        (JobEvidence("c", "command", 6.0, drops=9), "suspect"),
        (
            JobEvidence("c", "command", 6.0, drops=9, resent_s=0.15),
            "invalid",
        ),
        (
            replace(GOOD, watched_s=1.0, drops=9, resent_s=0.15),
            "invalid",
        ),
    ],
)
def test_drops_count_by_what_they_cost_the_job(
    job: JobEvidence, level: str
) -> None:
    """Counted traffic tells; else what may have been sent again."""
    (found, *_) = weighed([DROPS], [GOOD, job])
    assert found.level == level
    if job.drops:
        cost = f"they cost job {job.job_id} at most {job.dropped:.1%}"
        assert cost in found.reason
    none = Finding("ok", "drops", "no packet was dropped")
    assert weighed([none], [job])[0] == none


COUNTED = {"watched_s": 5.0}
IN_PACE = {"lost_s": 0.0}
UNHINDERED = {"held_s": 0.01}
# The table of evidence in docs/runs-and-fidelity.md: of a job by itself full
# processors are so where it lacked nothing, and beside counted traffic so.
EVIDENCE: tuple[tuple[Kind, dict[str, float], str, str], ...] = (
    ("ring", COUNTED, "ok", "ok"),
    ("shuffle", COUNTED, "ok", "ok"),
    ("iperf3", COUNTED, "ok", "ok"),
    ("one VM", IN_PACE, "ok", "ok"),
    # One that was preempted or migrated.
    ("one VM", {}, "invalid", "invalid"),
    ("demand curve", COUNTED, "ok", "ok"),
    ("demand curve", IN_PACE, "suspect", "ok"),
    ("demand curve", {}, "invalid", "invalid"),
    ("compute", UNHINDERED, "ok", "ok"),
    ("compute", {"held_s": 0.1}, "suspect", "suspect"),
    ("compute", {"held_s": 0.13}, "invalid", "invalid"),
    ("compute", {}, "invalid", "invalid"),
    ("command", UNHINDERED, "suspect", "ok"),
    ("command", {}, "invalid", "invalid"),
    ("best effort", {**COUNTED, **UNHINDERED}, "ok", "ok"),
    ("best effort", UNHINDERED, "invalid", "invalid"),
    ("best effort", {}, "invalid", "invalid"),
    # A transfer that migrated.
    ("ring", {}, "invalid", "invalid"),
)


@pytest.mark.parametrize(("kind", "seen", "alone", "beside"), EVIDENCE)
def test_each_kind_of_job_has_the_evidence_of_the_table(
    kind: Kind, seen: dict[str, float], alone: str, beside: str
) -> None:
    job = replace(JobEvidence("k", kind, 6.0), **seen)  # type: ignore[arg-type]
    assert of_busy(job).level == alone
    assert of_busy(GOOD, job).level == beside


def test_every_kind_of_job_is_in_the_table() -> None:
    assert {kind for kind, *_ in EVIDENCE} == set(get_args(Kind))
