"""The error rates of the verdict, from runs whose truth is known."""

from argparse import ArgumentParser
from pathlib import Path

import pytest

from bench import fidelity_verdicts
from bench.fidelity_verdicts import (
    QUICK,
    RATE,
    WORKLOADS,
    Batch,
    Played,
    add_options,
    planned,
    results,
    run,
)
from bench.samples import Result
from bench.spoiling import GRADED, MILD, NOTHING, SEVERE
from testbed.spec.experiment_file import load_experiment


def played(name: str, ratio: float, verdict: str) -> Played:
    ratios = {"ring": ratio, "lone": 1.0}
    return Played("transfers", name, ratios, verdict, ())


def rates(*runs: Played) -> dict[str, Result]:
    calm = played("none", 1.004, "ok")
    return {result.name: result for result in results([calm, *runs])}


def test_the_truth_is_the_distance_from_the_undisturbed_median() -> None:
    rows = rates(played("pause", 1.0542, "invalid"))
    assert round(rows["pause"].samples[0], 6) == 5.0
    assert rows["pause"].extra == {"verdicts": "invalid", "off": "5.0"}
    # Too early is as wrong as too late.
    early = rates(played("wide", 0.502, "invalid"))["wide"]
    assert round(early.samples[0], 6) == 50.0


def test_a_job_that_moved_is_held_against_those_that_moved_too() -> None:
    """Being resumed elsewhere takes its time; a lease may be rejected."""
    calm = [
        Played("leases", "none", ratios, "ok", ())
        for ratios in (
            {"a": 1.0, "b": 1.0, "c": 1.0},
            {"a moved 2": 1.1, "b": 1.0},
        )
    ]

    def off(ratios: dict[str, float]) -> float:
        run_ = Played("leases", "load", ratios, "ok", ())
        found = {result.name: result for result in results([*calm, run_])}
        return round(found["load"].samples[0], 6)

    assert off({"a moved 2": 1.1, "b": 1.0}) == 0
    assert off({"a moved 4": 1.3, "b": 1.0, "d": 2.0}) == 0
    assert off({"a": 1.1, "b": 1.0}) == 10.0
    assert off({"a": 1.0}) == 100.0


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


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_half_of_the_disturbances_of_a_set_are_mild(seed: int) -> None:
    batches = planned(seed)
    runs = [run_ for batch in batches for run_ in batch.runs]
    assert [number for number, _ in runs] == list(range(len(runs)))
    assert len(runs) >= 60
    kinds = [disturbance.kind for _, disturbance in runs]
    mild = [kind for kind in kinds if kind in MILD]
    severe = [kind for kind in kinds if kind in SEVERE]
    assert len(mild) == len(severe)
    assert {*mild, *severe} == {*MILD, *SEVERE}
    assert {batch.workload for batch in batches} == set(WORKLOADS)
    most_s = sum(batch.expected_s for batch in batches)
    assert most_s < 35 * 60
    # Others wait for the lock meanwhile.
    assert max(batch.expected_s for batch in batches) < 180
    for batch in batches:
        names = [disturbance.name for _, disturbance in batch.runs]
        assert NOTHING.name in names or "too much rate" in names


def test_a_seed_is_a_set_of_runs() -> None:
    assert names(1) == names(1)
    assert names(1) != names(2)


def names(seed: int) -> list[str]:
    return [
        f"{batch.workload} {number} {disturbance.name}"
        for batch in planned(seed)
        for number, disturbance in batch.runs
    ]


def test_a_later_call_plays_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []

    def play(batch: Batch, to: Path) -> list[Played]:
        done = []
        for number, disturbance in batch.runs:
            name = disturbance.name
            made = Played(
                batch.workload, name, {"a": 1.0}, "ok", (), number
            )
            fidelity_verdicts.write(made, to)
            numbers.append(number)
            done.append(made)
        return done

    monkeypatch.setattr(fidelity_verdicts, "_play", play)
    parser = ArgumentParser()
    add_options(parser)
    lock = tmp_path / "lock"
    first = f"--to {tmp_path / 'runs'} --most 2 --lock {lock}".split()
    run(quick=False, options=parser.parse_args(first))
    assert 0 < len(numbers) < 30
    # A call that was stopped in the middle of a network.
    lines = (tmp_path / "runs").read_text().splitlines(keepends=True)
    (tmp_path / "runs").write_text("".join(lines[:-1]))
    again = numbers.pop()
    run(quick=False, options=parser.parse_args(first[:2]))
    assert again in numbers
    assert sorted(numbers) == list(range(len(names(1))))


def test_a_job_without_an_estimate_is_held_against_its_usual_time() -> None:
    rows = rates()
    assert rows["none"].meets is None
    times = [
        Played("best effort", name, {"ring": seconds}, "ok", ())
        for name, seconds in (("none", 6.0), ("load", 6.6))
    ]
    (load, *_) = results(times)
    assert round(load.samples[0], 6) == 10.0


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_every_workload_is_an_experiment(
    workload: str, tmp_path: Path
) -> None:
    file = tmp_path / "verdicts.yaml"
    file.write_text(WORKLOADS[workload], encoding="utf-8")
    assert load_experiment(file, {"scale.rate": RATE}).jobs
