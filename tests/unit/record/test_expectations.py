from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.record import verdicts
from testbed.record.metrics import Fidelity, JobRow, tally
from testbed.record.verdicts import Verdicts, evaluate
from tests.unit.record import sample

ROWS = tuple(tally(sample.main_example()).rows())
OK = Fidelity("ok")


def row(
    ratio: float | None, granted: int = 300, **changed: object
) -> JobRow:
    """A job of ``sort`` that asked for 750 and was estimated at 10 s."""
    base = replace(
        ROWS[0],
        job_id="j",
        application="sort",
        requested_bps=750,
        granted_bps=granted,
        estimate_s=10.0,
        measured_s=None if ratio is None else 10.0 * ratio,
        ratio=ratio,
    )
    return replace(base, **changed)  # type: ignore[arg-type]


def verdicts_of(
    expect: Expectation, *rows: JobRow, claims: tuple[str, ...] = ()
) -> list[str]:
    return [
        verdict.verdict
        for verdict in evaluate(expect, rows, OK, claims).rows
    ]


@pytest.mark.parametrize(
    ("ratio", "answer"),
    [
        (0.9799, "outside"),
        (0.98, "ok"),
        (1.0, "ok"),
        (1.01, "ok"),
        (1.0101, "outside"),
    ],
)
def test_the_band_is_closed(ratio: float, answer: str) -> None:
    assert verdicts_of(Expectation(Band(0.98, 1.01)), row(ratio)) == [
        answer
    ]


def test_half_open_bands() -> None:
    assert verdicts_of(
        Expectation(Band(None, 1.01)), row(0.1), row(1.02)
    ) == [
        "ok",
        "outside",
    ]
    assert verdicts_of(Expectation(Band(0.98)), row(0.1), row(9.0)) == [
        "outside",
        "ok",
    ]


def test_an_applications_band_takes_the_place_of_the_global_one() -> None:
    expect = Expectation(
        Band(0.98, 1.01), {"sort": ApplicationExpectation(Band(0.4, 0.6))}
    )
    assert verdicts_of(
        expect, row(0.5), row(0.99), row(0.99, application="index")
    ) == [
        "ok",
        "outside",
        "ok",
    ]


@pytest.mark.parametrize(
    ("ratio", "granted", "answer"),
    [
        (0.89, 300, "ok"),
        (0.9, 300, "outside"),
        (0.95, 300, "outside"),
        (1.0, 750, "ok"),
    ],
)
def test_scaled_down_below(ratio: float, granted: int, answer: str) -> None:
    own = ApplicationExpectation(Band(None, 1.01), scaled_down_below=0.9)
    assert verdicts_of(
        Expectation(applications={"sort": own}), row(ratio, granted)
    ) == [answer]


def test_scaled_down_below_alone_says_nothing_of_full_bandwidth() -> None:
    own = ApplicationExpectation(scaled_down_below=0.9)
    expect = Expectation(applications={"sort": own})
    assert verdicts_of(expect, row(1.5, 750), row(0.5)) == ["late", "ok"]
    assert verdicts_of(expect, row(1.04, 750), row(0.5)) == ["held", "ok"]


def test_silence_proves_nothing() -> None:
    expect = Expectation(Band(0.98, 1.01))
    killed = row(None, outcome="killed", reason="too slow", policy="vc")
    found = evaluate(expect, [row(1.0), killed], OK)
    assert [verdict.verdict for verdict in found.rows] == ["ok", "outside"]
    assert found.rows[1].why == "no measured time: killed: too slow"
    assert not found.met


@pytest.mark.parametrize(
    ("expect", "claims", "answer"),
    [
        (Expectation(Band(0.98, 1.01)), ("no-preemption",), "open"),
        (
            Expectation(Band(0.98, 1.01)),
            ("every-job-starts", "no-preemption"),
            "outside",
        ),
        (
            Expectation(
                applications={"sort": ApplicationExpectation(Band(0.98))}
            ),
            (),
            "outside",
        ),
        (
            Expectation(
                applications={"sort": ApplicationExpectation(None, 0.9)}
            ),
            (),
            "outside",
        ),
    ],
)
def test_a_rejected_job(
    expect: Expectation, claims: tuple[str, ...], answer: str
) -> None:
    rejected = row(
        None, outcome="rejected", reason="no room", granted_bps=None
    )
    assert (
        verdicts_of(expect, row(0.985), rejected, claims=claims)[1]
        == answer
    )


def test_a_band_that_judged_nobody_is_not_met() -> None:
    expect = Expectation(Band(0.98, 1.01))
    assert not evaluate(expect, [], OK).met
    rejected = row(None, outcome="rejected", reason="no room", policy="vc")
    assert not evaluate(expect, [rejected], OK).met


def test_a_name_that_matches_no_job_is_not_met() -> None:
    expect = Expectation(
        applications={"sorted": ApplicationExpectation(Band(0.98))}
    )
    found = evaluate(expect, [row(1.0)], OK)
    assert found.complaints == (
        "application 'sorted' is expected, but no job has that name",
    )


@pytest.mark.parametrize(
    ("accepted", "verdict", "met"),
    [
        ("ok", "ok", True),
        ("ok", "suspect", False),
        ("ok", "invalid", False),
        ("suspect", "suspect", True),
        ("suspect", "invalid", False),
        (None, "invalid", True),
        ("ok", None, True),
        ("ok", "unheard-of", False),
    ],
)
def test_fidelity(
    accepted: str | None, verdict: str | None, met: bool
) -> None:
    expect = Expectation(fidelity=accepted)  # type: ignore[arg-type]
    assert (
        evaluate(expect, [row(1.0)], Fidelity(verdict, ("busy",))).met
        is met
    )


def test_nothing_expected_is_met_and_judges_nobody() -> None:
    found = evaluate(Expectation(), ROWS, Fidelity(None))
    assert found.met
    assert not found.judged
    assert {verdict.verdict for verdict in found.rows} == {"open"}


def test_json_there_and_back() -> None:
    expect = Expectation(
        Band(0.98, 1.01),
        {"sort": ApplicationExpectation(Band(None, 1.0), 0.9)},
        "ok",
    )
    assert verdicts.EXPECTATION.validate_python(asdict(expect)) == expect
    assert verdicts.EXPECTATION.validate_python({}) == Expectation()
    found = evaluate(expect, ROWS, OK)
    assert isinstance(found, Verdicts)
    assert verdicts._VERDICTS.validate_python(found.to_json()) == found


def test_best_effort_jobs_have_no_estimate() -> None:
    expect = Expectation(Band(None, 1.12))
    best_effort = row(
        None, granted=0, estimate_s=None, start_s=1.0, policy="bl"
    )
    assert verdicts_of(expect, best_effort) == ["open"]
    assert evaluate(expect, [best_effort], OK).met
    assert verdicts_of(expect, best_effort, row(1.3)) == ["open", "outside"]


def test_best_effort_is_no_excuse_where_the_application_is_named() -> None:
    expect = Expectation(
        None, {"sort": ApplicationExpectation(Band(None, 1.12))}
    )
    best_effort = row(
        None, granted=0, estimate_s=None, start_s=1.0, policy="bl"
    )
    assert verdicts_of(expect, best_effort) == ["outside"]
