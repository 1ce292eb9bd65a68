"""The headline is as good as the run's worst part, and says each thing once."""

from __future__ import annotations

from dataclasses import replace

from testbed.audit import Audit, Result
from testbed.expectations import Expectation
from testbed.record.metrics import Fidelity, tally
from testbed.record.verdicts import evaluate
from testbed.report.labels import Headline, headline
from tests.unit.record import sample
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
    return headline(
        summary, evaluate(expect, taken.rows(), fidelity), audit
    )


def moods(found: Headline) -> list[str]:
    return [badge.mood for badge in found.badges]


def test_all_is_well() -> None:
    found = message()
    assert (found.mood, moods(found)) == ("good", ["good"] * 4)
    assert found.sentence.startswith(
        "The estimates held: all 10 jobs judged"
    )


def test_a_job_outside() -> None:
    found = message(taken=BAD)
    assert found.mood == "bad"
    assert found.sentence == "1 of 10 jobs outside what was expected."


def test_a_suspect_machine_is_a_doubt_where_it_was_accepted() -> None:
    expect = replace(FIG10, fidelity="suspect")
    found = message(expect, Fidelity("suspect", ("busy",)))
    assert found.mood == "doubt"
    assert found.sentence.endswith("The emulation is suspect: busy.")


def test_an_invalid_machine_is_bad_whatever_was_expected() -> None:
    assert (
        message(Expectation(), Fidelity("invalid", ("busy",))).mood == "bad"
    )


def test_a_refused_fidelity_is_reported_once() -> None:
    found = message(FIG10, Fidelity("suspect", ("busy",)))
    assert found.mood == "bad"
    assert found.sentence.count("suspect") == 1


def test_a_failed_audit_and_an_interrupted_run() -> None:
    found = message(audit=FAILED, status="interrupted")
    assert found.mood == "bad"
    assert found.sentence == (
        "The run was interrupted: 10 finished. The audit found violations (slots)."
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
    assert (late.mood, late.sentence) == ("bad", "1 of 10 jobs late.")


def test_late_jobs_that_the_file_accepts_are_a_doubt() -> None:
    late = tally(sample.main_example(worst_ratio=1.3))
    found = message(Expectation(fidelity="invalid"), taken=late)
    assert found.mood == "doubt"
    assert (
        found.sentence
        == "The run is complete. 1 of 10 jobs late, which the file accepts."
    )


def test_a_simulated_run() -> None:
    found = message(fidelity=Fidelity(None))
    assert (found.mood, moods(found)[2]) == ("good", "open")
