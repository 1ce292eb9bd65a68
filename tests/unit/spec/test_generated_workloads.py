"""Workloads of requests that are generated: keys with units, and distributions by their mapping."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment
from tests.support.schema import schema_validator

TOPOLOGY = "topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 4}\n"


def parse(workload: str) -> Experiment:
    return parse_experiment(
        f"{TOPOLOGY}workload: {{{workload}}}\n", Path("x.yaml")
    )


def errors(workload: str) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        parse(workload)
    return [
        f"{problem.path}: {problem.message}"
        for problem in caught.value.problems
    ]


@pytest.mark.parametrize(
    ("with_units", "bare"),
    [
        ("hours: 6 h, per_hour: 40/h", "hours: 6, per_hour: 40"),
        ("hours: 90 min, per_hour: 2 /min", "hours: 1.5, per_hour: 120"),
        ("hours: 2 d, per_hour: 24 /d", "hours: 48, per_hour: 1"),
    ],
)
def test_a_bare_number_has_the_unit_of_its_key(
    with_units: str, bare: str
) -> None:
    ours, theirs = (
        parse(f"kind: poisson, {keys}").jobs for keys in (with_units, bare)
    )
    assert ours == theirs
    assert ours


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "hours: 6 hours",
            "hours: unknown unit 'hours' of time (did you mean 6 h?)",
        ),
        ("hours: 0 s", "hours: must be above 0 s, not the text '0 s'"),
        (
            "hours: '6'",
            "hours: 6 is a bare number: write 6 s (or us, ms, min, h, d)",
        ),
        (
            "hours: yesterday",
            "hours: 'yesterday' is not a time: write a number and a unit, as 5 s",
        ),
        ("hours: [6]", "hours: must be a number, not a list"),
        (
            "per_hour: 40/w",
            "per_hour: unknown unit '/w' of rate (write one of /h, /min, /s, /d)",
        ),
        (
            "per_hour: 40 per hour",
            "per_hour: unknown unit 'per hour' of rate (did you mean 40 /h?)",
        ),
        ("per_hour: -1/h", "per_hour: -1/h is negative"),
        (
            "per_hour: 1000/s",
            "per_hour: must be at most 1000000, not the text '1000/s'",
        ),
    ],
)
def test_what_is_no_time_or_rate_is_reported(
    keys: str, message: str
) -> None:
    assert errors(f"kind: poisson, {keys}") == [f"workload.{message}"]


@pytest.mark.parametrize("kind", ["kind: poisson", "kind: batch, jobs: 3"])
@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("vms", "8", "not 8 (write {mean: 8})"),
        (
            "bandwidth",
            "250 Mbit/s",
            "not the text '250 Mbit/s' (write {mean: 250 Mbit/s})",
        ),
        ("duration", "1 h", "not the text '1 h' (write {mean: 1 h})"),
        ("deadline_ratio", "10", "not 10 (write {mean: 10})"),
        # What the mean cannot be either gets no hint.
        ("vms", "0", "not 0"),
        ("bandwidth", "250", "not 250"),
        ("duration", "[1 h]", "not a list"),
    ],
)
def test_a_bare_mean_is_answered_with_the_mapping_to_write(
    kind: str, key: str, value: str, hint: str
) -> None:
    message = f"workload.{key}: must be a mapping with the keys mean, sigma, rule, {hint}"
    assert errors(f"{kind}, {key}: {value}") == [message]


def test_the_hint_works() -> None:
    experiment = parse(
        "kind: batch, jobs: 3, vms: {mean: 8}, deadline_ratio: {mean: 10}"
    )
    assert len(experiment.jobs) == 3


@pytest.mark.parametrize(
    ("hours", "per_hour", "valid"),
    [("6 h", "40/h", True), (6, 40, True), (0.5, "2 /min", True), ("6", 40, False),
     (6, "40", False), (0, 40, False), (6, -1, False)],
)  # fmt: skip
def test_the_schema_takes_both_forms(
    hours: object, per_hour: object, valid: bool
) -> None:
    workload = {"kind": "poisson", "hours": hours, "per_hour": per_hour}
    topology = {"kind": "flat", "nodes": 2}
    assert (
        schema_validator().is_valid(
            {"topology": topology, "workload": workload}
        )
        is valid
    )


def test_a_mean_far_below_the_floor_is_reported_with_the_deviation_that_goes_with_it() -> (
    None
):
    message = (
        "workload.duration: a mean of 1 with deviation 2 hardly ever reaches 60:"
        " draws below that are drawn again"
    )
    assert errors("kind: batch, jobs: 4, duration: {mean: 1 s}") == [
        message
    ]
    assert parse(
        "kind: batch, jobs: 4, reading: literal-clamped, duration: {mean: 1 s}"
    ).jobs
