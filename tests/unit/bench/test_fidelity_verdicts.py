"""The error rates of the verdict, from runs whose truth is known."""

from bench.fidelity_verdicts import QUICK, Played, _results
from bench.samples import Result
from bench.spoiling import GRADED


def played(name: str, ratio: float, verdict: str) -> Played:
    ratios = {"ring": ratio, "lone": 1.0}
    return Played("transfers", name, ratios, verdict, ())


def rates(*runs: Played) -> dict[str, Result]:
    calm = played("none", 1.004, "ok")
    return {result.name: result for result in _results([calm, *runs])}


def test_the_truth_is_the_distance_from_the_undisturbed_median() -> None:
    rows = rates(played("pause", 1.0542, "invalid"))
    assert round(rows["pause"].samples[0], 6) == 5.0
    assert rows["pause"].extra == {"verdicts": "invalid"}
    # Too early is as wrong as too late.
    early = rates(played("wide", 0.502, "invalid"))["wide"]
    assert round(early.samples[0], 6) == 50.0


def test_a_run_that_is_off_and_ok_misses_the_target() -> None:
    rows = rates(played("pause", 1.054, "ok"))
    missed = rows["off by over 2 %, ok"]
    assert (missed.samples, missed.meets) == ((100.0,), False)
    assert rows["within 1 %, invalid"].meets


def test_doubt_of_runs_that_were_right_is_counted() -> None:
    doubts = [played("load", 1.004, "suspect") for _ in range(2)]
    rows = rates(*doubts, played("load", 1.004, "invalid"))
    assert rows["within 1 %, invalid"].samples == (25.0,)
    assert rows["within 1 %, suspect"].samples == (50.0,)


def test_the_quick_form_names_disturbances_that_there_are() -> None:
    assert set(QUICK) <= {each.name for each in GRADED}
