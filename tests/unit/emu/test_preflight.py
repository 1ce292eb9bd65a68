"""The preflight's decisions, over load tests that are made up."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu import preflight as emu
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.preflight import (
    Preflight,
    load_test,
    passed_load_test,
    processors_taken,
)
from testbed.backends.emu.sampling import Watch
from testbed.engine.backend import Completion
from testbed.plan.fidelity import Finding, preflight
from testbed.spec.experiment import Scale
from tests.support.fake_emulation import SCALE_RATE, FakeEmulation
from topologies.tree import tree

GBIT = 1_000_000_000


def reserved(
    job_id: str, server: int = 0, rate_bps: int = GBIT // 2
) -> events.JobReserved:
    return events.JobReserved(
        0.0, job_id, 0.0, 3.0, rate_bps, 3.0, 4, [[server, 1], [server + 1, 1]], [[0, rate_bps]],
        "foreground",
    )  # fmt: skip


PEAKS = [(reserved("a"),)]


class Machine:
    """A machine whose load is what ``cost`` says of the rate."""

    def __init__(self, cost: Callable[[float], float]) -> None:
        self.cost = cost
        self.rates: list[float] = []

    def __call__(self, _: object, scale: Scale, __: bool) -> Finding:
        self.rates.append(scale.rate)
        return preflight(
            1e9 * scale.rate, 1.0, self.cost(scale.rate), scale.rate
        )


def check(
    machine: Machine, scale: Scale, *, force: bool = False
) -> Preflight:
    return passed_load_test(
        machine, PEAKS, scale, lambda _: None, force=force
    )


def test_a_rate_that_fits_is_tested_once() -> None:
    machine = Machine(lambda _: 0.6)
    found = check(machine, Scale(0.1))
    assert (found.rate, found.refusal, machine.rates) == (0.1, None, [0.1])
    assert found.findings[0].level == "ok"


def test_a_plan_that_sends_nothing_has_no_share_of_the_machine() -> None:
    lines: list[str] = []
    nothing = Finding("ok", "preflight", "the plan asks nothing", {})
    peaks = [(reserved("a"),)]
    passed_load_test(
        lambda *_: nothing, peaks, Scale(1.0), lines.append, force=False
    )
    assert lines == ["preflight: the plan asks nothing"]


def test_of_an_overload_that_has_gone_at_a_second_test_nothing_is_left() -> (
    None
):
    loads = iter([1.5, 0.7])
    machine = Machine(lambda _: next(loads))
    found = check(machine, Scale(0.1))
    assert (found.rate, found.refusal, machine.rates) == (
        0.1,
        None,
        [0.1, 0.1],
    )
    assert found.findings[0].level == "ok"


def test_a_second_test_of_a_rate_is_told_as_one() -> None:
    loads = iter([1.01, 0.9])
    machine = Machine(lambda _: next(loads))
    lines: list[str] = []
    passed_load_test(machine, PEAKS, Scale(0.1), lines.append, force=False)
    steps = [line.split(": ")[0] for line in lines]
    assert steps == ["preflight", "preflight, tested once more"]


def test_far_beyond_the_limit_the_search_begins_far_below_without_a_second_test() -> (
    None
):
    machine = Machine(lambda rate: 2 * rate)
    found = check(machine, Scale(1000.0))
    assert found.refusal is not None
    assert machine.rates[0] == 1000.0
    assert max(machine.rates[1:]) <= 1.0
    assert machine.rates.count(1000.0) == 1


def test_a_rate_just_over_the_limit_is_tested_twice_and_the_better_test_counts() -> (
    None
):
    loads = iter([1.5, 1.5, 0.95, 0.85, *[1.05] * 20])
    machine = Machine(lambda _: next(loads))
    found = check(machine, Scale(0.1))
    assert machine.rates[:2] == [0.1, 0.1]
    assert machine.rates[2] == machine.rates[3] < 0.1
    assert (
        f"scale.rate: {machine.rates[2]:g} was tested and fits"
        in found.findings[0].reason
    )
    assert len(machine.rates[4:]) == len(
        set(machine.rates[4:])
    )  # above it: once


def test_too_much_is_refused_with_a_rate_that_was_tested() -> None:
    machine = Machine(lambda rate: rate / 0.05)
    found = check(machine, Scale(0.1))
    (finding,) = found.findings
    assert finding.level == "invalid"
    assert "; scale.rate: 0.042 was tested and fits" in finding.reason
    assert found.refusal is not None
    assert (
        "at scale.rate: 0.1 is 200% of what this machine can do"
        in found.refusal.message
    )
    assert (
        found.refusal.hint
        == "--set scale.rate=0.042 was tested and fits; --force runs all the same"
    )
    assert found.refusal.exit_code == 3
    assert 0.042 in machine.rates


def test_a_little_too_much_runs_with_the_rate_in_the_finding() -> None:
    found = check(Machine(lambda rate: rate / 0.1), Scale(0.1))
    assert found.refusal is None
    assert found.findings[0].level == "suspect"
    assert "was tested and fits" in found.findings[0].reason


def test_with_force_nothing_is_searched() -> None:
    machine = Machine(lambda _: 3.0)
    found = check(machine, Scale(0.1), force=True)
    assert (found.rate, found.refusal, machine.rates) == (
        0.1,
        None,
        [0.1, 0.1],
    )
    assert found.findings[0].level == "invalid"


def test_with_force_too_a_doubtful_load_test_is_repeated() -> None:
    loads = iter([1.5, 0.7])
    found = check(Machine(lambda _: next(loads)), Scale(0.1), force=True)
    assert found.findings[0].level == "ok"


def test_where_an_invalid_run_is_expected_a_load_test_is_not_repeated() -> (
    None
):
    machine = Machine(lambda _: 1.5)
    found = passed_load_test(
        machine,
        PEAKS,
        Scale(0.1),
        lambda _: None,
        force=True,
        repeat=False,
    )
    assert (found.refusal, machine.rates) == (None, [0.1])
    assert found.findings[0].level == "invalid"


def test_where_no_rate_fits_the_refusal_says_so() -> None:
    found = check(Machine(lambda _: 1.2), Scale(0.1))
    assert found.refusal is not None
    assert "; no scale.rate down to 0.002 fits" in found.findings[0].reason
    assert str(found.refusal.hint).startswith(
        "have fewer jobs at once: no scale.rate down to"
    )


def test_the_least_rate_that_is_tested_and_named_has_two_figures_and_no_exponent() -> (
    None
):
    peaks = [(reserved("a", rate_bps=30 * GBIT),)]
    found = passed_load_test(
        Machine(lambda _: 1.2),
        peaks,
        Scale(0.0005),
        lambda _: None,
        force=False,
    )
    assert "no scale.rate down to 0.000033 fits" in found.findings[0].reason


def test_auto_takes_the_first_rate_that_fits_one_at_most() -> None:
    machine = Machine(lambda rate: rate / 0.05)
    assert check(machine, Scale(auto=True)).rate == 0.04
    assert machine.rates == [0.96, 0.04]
    unhurried = Machine(lambda rate: rate / 2)
    assert check(unhurried, Scale(auto=True)).rate == 0.96


def test_largest_takes_the_largest_rate_that_fits_one_at_most() -> None:
    scale = Scale(auto=True, largest=True)
    assert check(Machine(lambda rate: rate / 0.05), scale).rate == 0.042
    assert check(Machine(lambda rate: rate / 2), scale).rate == 1.0


def test_where_no_rate_fits_auto_is_refused_unless_forced() -> None:
    assert (
        check(Machine(lambda _: 1.05), Scale(auto=True)).refusal is not None
    )
    found = check(Machine(lambda _: 1.05), Scale(auto=True), force=True)
    assert found.refusal is None
    assert found.rate < 0.01


def test_where_nothing_could_be_tested_auto_has_no_rate() -> None:
    found = passed_load_test(
        untested, PEAKS, Scale(auto=True), lambda _: None, force=False
    )
    assert found.refusal is not None
    assert found.refusal.message == "no connection"
    assert found.refusal.hint == "give scale.rate a number in place of auto"
    assert (
        passed_load_test(
            untested, PEAKS, Scale(auto=True), lambda _: None, force=True
        ).refusal
        is None
    )


def test_only_plans_that_are_too_much_have_the_rate_that_fits_in_their_finding() -> (
    None
):
    def test(peak: object, scale: Scale, long: bool) -> Finding:
        load = (5 if peak == PEAKS[0] else 20) * scale.rate
        return preflight(1e9 * scale.rate, 1.0, load, scale.rate)

    peaks = [*PEAKS, (reserved("b"),)]
    found = passed_load_test(
        test, peaks, Scale(0.1), lambda _: None, force=False
    )
    assert [
        "was tested and fits" in one.reason for one in found.findings
    ] == [
        False,
        True,
    ]
    assert found.worst is found.findings[1]


def untested(_: object, __: Scale, ___: bool) -> Finding:
    return Finding("invalid", "preflight", "no connection")


def test_what_could_not_be_tested_is_not_searched_and_runs() -> None:
    said: list[str] = []
    found = passed_load_test(
        untested, PEAKS, Scale(0.1), said.append, force=False
    )
    assert (found.refusal, found.findings[0].level) == (None, "invalid")
    assert said == ["preflight: no connection"]


def test_plans_with_the_same_instant_are_tested_once_and_the_worst_decides() -> (
    None
):
    seen: list[object] = []

    def test(peak: object, scale: Scale, long: bool) -> Finding:
        seen.append(peak)
        return preflight(1e9, 1.0, 0.1 * len(seen), scale.rate)

    peaks = [(reserved("a"),), (reserved("b"),), (reserved("a"),)]
    found = passed_load_test(
        test, peaks, Scale(), lambda _: None, force=False
    )
    assert [round(load, 3) for load in found.loads] == [0.1, 0.2, 0.1]
    assert len(seen) == 2


# ------------------------------------------------------------------------------ the load test


@pytest.fixture
def emulation(monkeypatch: pytest.MonkeyPatch) -> FakeEmulation:
    monkeypatch.setattr(emu, "LOAD_TEST_WALL_S", 0.2)
    fake = FakeEmulation(tree([4], [GBIT], 2))
    fake.agents.otherwise_s = 0.2
    return fake


def test_all_jobs_of_a_load_test_begin_at_one_instant(
    emulation: FakeEmulation,
) -> None:
    begun: list[int] = []
    begin = emulation.agents.begin

    def noting(names: tuple[str, ...], at_ns: int) -> None:
        begun.append(at_ns)
        begin(names, at_ns)

    emulation.agents.begin = noting  # type: ignore[method-assign]
    found = load_test(
        emulation,
        1,
        (),
        (reserved("a"), reserved("b", 2)),
        Scale(SCALE_RATE),
    )  # type: ignore[arg-type]
    assert len(begun) == 2
    assert len(set(begun)) == 1
    assert "load" in found.metrics
    assert not emulation.here
    assert not emulation.agents.alive


def test_a_ring_is_tested_by_a_ring_and_all_else_by_a_permutation(
    emulation: FakeEmulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: dict[str, str] = {}
    start = LiveBackend.start

    def noting(self: LiveBackend, job: JobRequest, *rest: Any) -> None:
        played[job.id] = job.demand.pattern
        start(self, job, *rest)

    monkeypatch.setattr(LiveBackend, "start", noting)
    jobs = reserved("a"), reserved("b", 2)
    load_test(emulation, 1, {"a"}, jobs, Scale(SCALE_RATE))  # type: ignore[arg-type]
    assert played == {"preflight.a": "ring", "preflight.b": "permutation"}


@pytest.mark.parametrize(
    ("length_s", "delivered"), [(1.5, 0.9), (5.0, 0.997), (10.0, 0.997)]
)
def test_in_a_long_test_what_arrived_at_its_rate_counts_not_the_last_packet(
    emulation: FakeEmulation,
    monkeypatch: pytest.MonkeyPatch,
    length_s: float,
    delivered: float,
) -> None:
    monkeypatch.setattr(emu, "_length_s", lambda *_, **__: length_s)
    monkeypatch.setattr(emu, "_play", lambda *_: (0.9, 1.0))
    monkeypatch.setattr(Watch, "received", 0.997)
    found = load_test(emulation, 1, (), (reserved("a"),), Scale(SCALE_RATE))  # type: ignore[arg-type]
    assert found.metrics["achieved_share"] == delivered


@pytest.mark.slow
def test_transfers_that_do_not_end_are_ended_and_count_by_what_arrived(
    emulation: FakeEmulation,
) -> None:
    emulation.agents.otherwise_s = None
    found = load_test(emulation, 1, (), (reserved("a"),), Scale(SCALE_RATE))  # type: ignore[arg-type]
    assert found.level == "invalid"
    assert found.metrics["achieved_share"] == 0.0
    assert not emulation.here
    assert not emulation.agents.alive


def test_the_processors_that_are_taken_are_given_back() -> None:
    own = psutil.Process()
    before = set(own.children())
    with processors_taken(0.1):
        takers = set(own.children()) - before
        assert len(takers) == len(os.sched_getaffinity(0))
    assert set(own.children()) == before
    with processors_taken(0.0):
        assert set(own.children()) == before


@pytest.mark.parametrize(
    ("measured_s", "detail", "share"),
    [
        (2.0, None, 1.0),
        (2.5, {"delay_s": [0.4, 0.5]}, 1.0),
        (4.5, {"delay_s": [0.4, 0.5]}, 0.5),
        (None, None, 0.0),
    ],
)
def test_what_links_delay_is_no_lack_of_processor(
    measured_s: float | None, detail: dict[str, Any] | None, share: float
) -> None:
    done = Completion("j", 9.0, "finished", "", measured_s, detail)
    assert emu._achieved_share(done, 2.0) == share
