"""Single checks of the labs, on answers that once had the wrong mark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import pytest

from testbed.labs.checking import Wrong
from testbed.labs.lab_catalogue import lab
from testbed.labs.submission import Submission


class Answer:
    """A submission whose every function is this one."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def call(self, _file: str, _name: str, *arguments: object) -> object:
        return self._function(*arguments)


def submission(function: Callable[..., object]) -> Submission:
    return cast(Submission, Answer(function))


def checks_of(number: int, module: str) -> ModuleType:
    # Loads them.
    assert lab(number).checks
    return sys.modules[module]


REQUEST = {
    "at": 1.0, "vms": 6, "bandwidth": 10.0, "duration": 2.0, "deadline": 6.0,
}  # fmt: skip
FOUND = {
    "start": 3.0, "end": 6.36, "bandwidth": 6.65, "placed": [4, 2, 0, 0],
}  # fmt: skip
JOB = {
    "at": 3.0, "vms": 6, "bandwidth": 10.0, "granted": 6.65, "duration": 2.0,
    "deadline": 4.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("slip", "seen"),
    [
        (
            {"deadline": 1.5},
            "has duration 2 and deadline 1.5; expected duration at most deadline",
        ),
        (
            {"bandwidth": 6.65, "granted": 10.0},
            "has granted 10 and bandwidth 6.65; expected granted at most bandwidth",
        ),
    ],
)
def test_a_job_that_no_experiment_takes_fails_with_a_sentence(
    slip: dict[str, float], seen: str
) -> None:
    checks = checks_of(6, "sliding_checks")
    with pytest.raises(Wrong) as wrong:
        checks.job_of(submission(lambda *_: JOB | slip), REQUEST, FOUND)
    assert seen in str(wrong.value)


def test_a_job_that_differs_by_rounding_alone_is_taken() -> None:
    checks = checks_of(6, "sliding_checks")
    job = JOB | {"granted": 10.0 + 1e-8, "deadline": 2.0 - 1e-6}
    assert checks.job_of(submission(lambda *_: job), REQUEST, FOUND) == job


def least_bandwidth(
    p: float, b: float, deadline: float, gamma: float, start: float
) -> float | None:
    longest = min((1 + gamma) * p, deadline)
    if start + longest > deadline:
        return None
    return longest * b / (deadline - start)


def never(*_: float) -> None:
    return None


# p, b, deadline - p, gamma, start.
BY_ROUNDING = (25, 10, 4, 0.12, 1)
TO_THE_DEADLINE = (25, 10, 4, 0.0, 4)


def test_rounding_does_not_decide_whether_a_job_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1.12 times 25 s is 28 s and a little, from second 1 to a deadline at 29 s."""
    checks = checks_of(5, "scaling_checks")

    def judge(
        answer: Callable[..., Any], example: tuple[float, ...]
    ) -> None:
        monkeypatch.setattr(
            checks, "for_all", lambda _, holds, **__: holds(example)
        )
        checks.least_bandwidth_is_just_in_time(submission(answer))

    assert least_bandwidth(25, 10, 29, 0.12, 1) is None
    judge(least_bandwidth, BY_ROUNDING)
    judge(least_bandwidth, TO_THE_DEADLINE)
    with pytest.raises(Wrong, match="expected a bandwidth"):
        judge(never, TO_THE_DEADLINE)
