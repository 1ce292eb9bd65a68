"""The headline is as good as the run's worst part, and says each thing once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.audit import Audit, Result
from testbed.expectations import (
    ApplicationExpectation,
    Band,
    Expectation,
)
from testbed.record.conclusion import Results
from testbed.record.failure_times import Outage
from testbed.record.metrics import Fidelity, Recording, tally
from testbed.record.verdicts import evaluate
from testbed.report.headline import Headline, headline
from testbed.report.labels import granted_text, reason_text, seconds_text
from testbed.report.run_sentences import (
    failures_clause,
    outcome_clause,
)
from tests.unit.record import failing, sample
from tests.unit.record.written import FIG10

TAKEN = tally(sample.main_example())
BAD = tally(sample.main_example(worst_ratio=1.043))
PASSED = Audit(
    "x", "x", "x", 9, (Result("slots", "fit", "passed", "", 0, ()),)
)
FAILED = Audit(
    "x", "x", "x", 9, (Result("slots", "fit", "failed", "", 1, ()),)
)


def message(
    expect: Expectation = FIG10,
    fidelity: Fidelity = Fidelity("ok"),  # noqa: B008
    audit: Audit = PASSED,
    status: str = "completed",
    taken: object = TAKEN,
) -> Headline:
    assert isinstance(taken, type(TAKEN))
    summary = replace(taken.summary(), fidelity=fidelity, status=status)
    rows = tuple(taken.rows())
    verdicts = evaluate(expect, rows, fidelity)
    results = Results(Path(), tuple(rows), summary, verdicts, (), expect)
    return headline(results, audit)


def moods(found: Headline) -> list[str]:
    return [badge.mood for badge in found.badges]


def test_all_is_well() -> None:
    found = message()
    assert (found.mood, moods(found)) == ("good", ["good"] * 4)
    assert found.sentence.startswith(
        "All 10 jobs finished; measured times are "
    )
    assert (
        "All 10 jobs kept to what the file expects (measured/estimate"
        " sort 0.98–1.01, index at most 1.01 and below 0.97 when scaled"
        " down)." in found.sentence
    )
    assert found.sentence.endswith(
        "The machine kept up with the emulation."
    )


def test_a_job_outside() -> None:
    found = message(taken=BAD)
    assert found.mood == "bad"
    assert found.sentence.startswith(
        "1 of 10 jobs was outside what was expected. All 10 jobs finished;"
    )
    assert "kept to" not in found.sentence


def test_a_suspect_machine_is_a_doubt_where_it_was_accepted() -> None:
    expect = replace(FIG10, fidelity="suspect")
    reasons = ("busy; not all was seen of job a", "late")
    found = message(expect, Fidelity("suspect", reasons))
    assert found.mood == "doubt"
    assert found.sentence.startswith("The emulation is suspect: busy. All")
    # The tile repeats nothing of it.
    assert "busy" not in found.badges[2].says


def test_an_invalid_machine_is_bad_whatever_was_expected() -> None:
    assert (
        message(Expectation(), Fidelity("invalid", ("busy",))).mood == "bad"
    )


def test_a_refused_fidelity_is_reported_once() -> None:
    found = message(FIG10, Fidelity("suspect", ("busy",)))
    assert found.mood == "bad"
    assert found.sentence.count("suspect") == 1
    assert found.sentence.startswith(
        "The emulation is suspect, which the file does not accept: busy."
    )


def test_a_failed_audit_and_an_interrupted_run() -> None:
    found = message(audit=FAILED, status="interrupted")
    assert found.mood == "bad"
    assert found.sentence.startswith(
        "The run was interrupted. The audit found violations (slots)."
        " All 10 jobs finished;"
    )


def test_nothing_expected_is_nothing_shown() -> None:
    found = message(Expectation(), Fidelity(None))
    assert (found.mood, moods(found)) == (
        "open",
        ["good", "open", "open", "good"],
    )
    assert "states no expectations" in found.sentence


def test_live_reservations_are_judged_without_expectations() -> None:
    found = message(Expectation())
    assert (found.mood, moods(found)) == ("good", ["good"] * 4)
    late = message(
        Expectation(), taken=tally(sample.main_example(worst_ratio=1.3))
    )
    assert late.mood == "bad"
    assert late.sentence.startswith("1 of 10 jobs was late. ")


def test_late_jobs_that_the_file_accepts_are_a_doubt() -> None:
    late = tally(sample.main_example(worst_ratio=1.3))
    found = message(Expectation(fidelity="invalid"), taken=late)
    assert found.mood == "doubt"
    assert found.sentence.startswith(
        "1 of 10 jobs was late, which the file accepts. All 10 jobs"
    )


def test_what_the_file_does_not_accept_is_named_alone() -> None:
    late = tally(sample.main_example(worst_ratio=1.3))
    expect = Expectation(
        fidelity="invalid",
        applications={"grep": ApplicationExpectation()},
    )
    found = message(expect, taken=late)
    assert found.mood == "bad"
    assert found.sentence.startswith(
        "Not as expected: application 'grep' is expected, but no job has"
        " that name. All 10 jobs"
    )
    outside = ApplicationExpectation(estimate_ratio=Band(None, 0.5))
    expect = replace(expect, applications={"sort": outside})
    found = message(expect, taken=late)
    assert "outside what was expected" in found.badges[1].says
    assert "late" not in found.badges[1].says


def test_a_sentence_ends_with_one_full_stop() -> None:
    rows = []
    for row in TAKEN.rows():
        rejected = replace(
            row, outcome="rejected", reason="full", ratio=None
        )
        rows.append(rejected)
    expect = Expectation(estimate_ratio=Band(None, 1.12))
    verdicts = evaluate(expect, rows, Fidelity("ok"))
    assert not verdicts.met
    results = Results(
        Path(), tuple(rows), TAKEN.summary(rows=rows), verdicts, (), expect
    )
    found = headline(results, PASSED)
    assert "so there is no ratio to check. " in found.sentence
    assert ".." not in found.sentence


def test_a_simulated_run() -> None:
    found = message(fidelity=Fidelity(None))
    assert (found.mood, moods(found)[2]) == ("good", "open")


def test_a_bound_is_named_beside_the_longest_time() -> None:
    slow = tally(sample.main_example(worst_ratio=1.476))
    expect = Expectation(estimate_ratio=Band(0.4, None))
    found = message(expect, taken=slow)
    assert found.mood == "good"
    assert " to 1.4760 times the estimates. " in found.sentence
    bound = "measured/estimate at least 0.4, the only bound"
    assert f"kept to what the file expects ({bound})." in found.sentence
    assert found.badges[1].says == f"10 jobs judged: {bound}"


def test_live_bounds_are_named_where_the_file_states_none() -> None:
    found = message(Expectation())
    bound = "measured/estimate 0.95–1.05"
    assert f"bounds of live reservations ({bound})." in found.sentence


def test_the_audits_tile_names_kinds_of_checks() -> None:
    results = []
    for name in ("lives", "links", "stream"):
        results.append(Result(name, "x", "passed", "", 0, ()))
    found = message(audit=Audit("x", "x", "x", 9, tuple(results)))
    assert found.badges[3].says == (
        "3 checks on every event passed: order, capacity and others"
    )


def _simulated(finished: int, *reasons: str) -> str:
    """The clause of a simulated run whose other jobs were rejected for these
    reasons.
    """
    rows = []
    for row in list(TAKEN.rows())[:finished]:
        rows.append(replace(row, ratio=1.0))
    for reason in reasons:
        rejected = replace(
            rows[0], outcome="rejected", reason=reason, ratio=None
        )
        rows.append(rejected)
    summary = replace(TAKEN.summary(rows=rows), backend="sim")
    verdicts = evaluate(Expectation(), rows, Fidelity(None))
    results = Results(
        Path(), tuple(rows), summary, verdicts, (), Expectation()
    )
    return outcome_clause(results)


def test_the_outcome_counts_jobs_and_has_the_commonest_reason() -> None:
    few = "not enough slots: 32 asked, 22 free"
    assert _simulated(2, f"{few}; nor does it fit later") == (
        "2 of 3 jobs finished, 1 was rejected (not enough VM slots: 32"
        " asked, 22 free); simulated times equal the estimates"
    )
    other = "a -> b: 9 Mbit/s asked, 8 Mbit/s free"
    again = other.replace("9", "7")
    assert "3 were rejected (most often such as: a -> b: 9" in _simulated(
        1, few, other, again
    )
    assert "2 were rejected (such as: a -> b: 9" in _simulated(
        1, other, again
    )
    assert _simulated(1) == (
        "the job finished; simulated times equal the estimates"
    )


def test_killed_and_unfinished_jobs_are_counted() -> None:
    file = Recording(Path("events.jsonl"), failing.moving())
    verdicts = evaluate(Expectation(), file.rows, Fidelity(None))
    results = Results(
        file.path,
        file.rows,
        file.summary(),
        verdicts,
        file.failures,
        Expectation(),
    )
    assert outcome_clause(results).startswith(
        "2 of 3 jobs finished, 1 was killed (stopped by a failure:"
    )
    # Five failures: their numbers.
    found = headline(results, PASSED)
    assert (
        "2 links lost, 1 switch restarted, 1 controller killed, 1 server"
        " lost; 3 of 3 lost parts came back." in found.sentence
    )


def test_few_failures_are_named_and_whether_they_ended() -> None:
    lost = Outage("link lost", "a – b", 2.0, 9.0)
    assert failures_clause([lost]) == (
        "the link a – b was lost at 2.00 s and did not come back"
    )
    back = replace(lost, restored=True)
    server = Outage("server lost", "server 1", 0.0, 4000.0, restored=True)
    assert failures_clause([back, server]) == (
        "the link a – b was lost from 2.00 s to 9.00 s,"
        " server 1 was lost from 0 s to 1 h 07 min"
    )


def test_expectations_that_judge_no_job_are_not_missing() -> None:
    rows = []
    for row in TAKEN.rows():
        rows.append(replace(row, estimate_s=None, ratio=None))
    summary = replace(
        TAKEN.summary(rows=rows), backend="sim", fidelity=Fidelity(None)
    )
    expect = Expectation(estimate_ratio=Band(None, 1.12))
    verdicts = evaluate(expect, rows, Fidelity(None))
    results = Results(Path(), tuple(rows), summary, verdicts, (), expect)
    found = headline(results, PASSED)
    assert (found.mood, found.word) == ("open", "not judged")
    assert "none of them had an estimate" in found.sentence
    assert "states no expectations" not in found.sentence
    assert message(Expectation(), Fidelity(None)).word == "no expectations"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "0.25 s"), (40.0, "40.00 s"), (4000, "1 h 07 min")],
)
def test_times_have_one_form(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_no_bandwidth_is_a_dash() -> None:
    assert granted_text(0) == granted_text(None) == "–"
    assert granted_text(400_000_000) == "400 Mbit/s"


def test_slots_are_those_of_vms() -> None:
    assert (
        reason_text("4 slots asked, 2 free") == "4 VM slots asked, 2 free"
    )
    assert reason_text("not enough VM slots") == "not enough VM slots"
    assert reason_text("3 time slots") == "3 time slots"
