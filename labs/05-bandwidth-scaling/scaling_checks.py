"""Checks of lab 5: DCloud's estimate of a scaled job, Eq. 1, and what the wire says of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from testbed.labs.checking import Check, Margin, Wrong, as_call, for_all, list_of, number_of
from testbed.labs.live_runs import played
from testbed.labs.submission import Submission
from testbed.record.metrics import JobRow
from testbed.record.reading import RecordedRun

FILE = "scaling.py"
PROGRAM = Path(__file__).parent / "start" / "index.py"
Piece = tuple[float, float]
Demand = Sequence[Piece]
Steps = Sequence[Piece]

# -- Eq. 1 in small steps, of which it is the limit


STEP_S = 0.01


def integrated(demand: Demand, steps: Steps) -> float:
    """Seconds until an application is through that in each step does what its bandwidth allows."""
    now_s, piece, done_s, at = 0.0, 0, 0.0, 0
    while piece < len(demand):
        if at + 1 < len(steps) and steps[at + 1][0] <= now_s:
            at += 1
        seconds, rate = demand[piece]
        sent = min(rate, steps[at][1])
        done_s += STEP_S * (sent / rate if rate else 1.0)
        now_s += STEP_S
        if done_s >= seconds:
            # What is too much of the step is given back.
            now_s -= (done_s - seconds) * (rate / sent if rate else 1.0)
            piece, done_s = piece + 1, 0.0
    return now_s


def takes_s(demand: Demand, mbps: float) -> float:
    """Eq. 1 at a constant bandwidth, as a sum."""
    return sum(max(seconds, seconds * rate / mbps) for seconds, rate in demand)


def near(got: float, expected: float, share: float = 1e-6) -> bool:
    return abs(got - expected) <= share * max(1.0, abs(expected))


SECONDS = st.integers(1, 8)
RATES = st.sampled_from((4, 5, 8, 10, 20, 25, 40))
BANDWIDTHS = st.sampled_from((5, 8, 10, 16, 20, 40, 50))
PIECES = st.tuples(SECONDS, RATES | st.just(0))
DEMANDS = st.lists(PIECES, min_size=1, max_size=4)
SENDING = st.lists(st.tuples(SECONDS, RATES), min_size=1, max_size=4)
STEPS = st.lists(st.tuples(st.integers(1, 12), BANDWIDTHS), min_size=1, max_size=4).map(
    lambda parts: [(sum(s for s, _ in parts[:i]), rate) for i, (_, rate) in enumerate(parts)]
)

# -- pure


def _number(submission: Submission, look: str, function: str, *arguments: Any) -> float:
    call = as_call(function, *arguments)
    return number_of(submission.call(FILE, function, *arguments), call, look)


def estimate_is_p_b_over_b(submission: Submission) -> None:
    look = "README.md, 'The estimate'"

    def holds(example: tuple[int, int, int]) -> None:
        got = _number(submission, look, "estimate", *example)
        p, b, granted = example
        # Seconds at b move as much as the estimate's at b'.
        if not near(got * granted, p * b):
            call = as_call("estimate", *example)
            raise Wrong(f"{call} returned {got:g}", f"{p * b / granted:g}", look)

    for_all(st.tuples(st.integers(1, 600), BANDWIDTHS, BANDWIDTHS), holds)


SHARES = st.sampled_from((0.0, 0.05, 0.12, 0.5))
ROUNDING_S = 1e-9


def relaxing_ends_at_the_deadline(submission: Submission) -> None:
    look = "README.md, 'Room for errors'"

    def holds(example: tuple[int, int, float]) -> None:
        p, more, gamma = example
        deadline = p + more
        got = _number(submission, look, "relaxed", p, deadline, gamma)
        expected = p + gamma * p if gamma * p < more else deadline
        if not near(got, expected):
            call = as_call("relaxed", p, deadline, gamma)
            raise Wrong(f"{call} returned {got:g}", f"{expected:g}", look)

    for_all(st.tuples(st.integers(1, 100), st.integers(0, 100), SHARES), holds)


def least_bandwidth_is_just_in_time(submission: Submission) -> None:
    look = "README.md, 'The least bandwidth'"

    def holds(example: tuple[int, int, int, float, int]) -> None:
        p, b, more, gamma, start = example
        deadline = p + more
        arguments = (p, b, deadline, gamma, start)
        call, got = as_call("least_bandwidth", *arguments), None
        answer = submission.call(FILE, "least_bandwidth", *arguments)
        # Relaxed, the job fits before the deadline at all if it does at b.
        relaxed_s = p + gamma * p
        # (1 + gamma) p is the same up to rounding, which must not decide.
        if gamma and abs(start + relaxed_s - deadline) < ROUNDING_S:
            return
        needs_s = min(relaxed_s, deadline)
        if start + needs_s > deadline:
            if answer is not None:
                seen = f"{call} returned {answer!r}"
                raise Wrong(seen, f"None, as {needs_s:g} s from {start} s on end too late", look)
            return
        got = number_of(answer, call, look) if answer is not None else None
        if got is None or got <= 0:
            raise Wrong(f"{call} returned {answer!r}", "a bandwidth", look)
        ends_s = start + needs_s * b / got
        if not near(ends_s, deadline):
            seen = f"{call} returned {got:g}, with which the relaxed job ends at {ends_s:.4g} s"
            raise Wrong(seen, f"an end at its deadline, {deadline} s", look)

    numbers = (st.integers(1, 60), BANDWIDTHS, st.integers(0, 200), SHARES, st.integers(0, 60))
    for_all(st.tuples(*numbers), holds, number=300)


def _ends_as_integrated(
    submission: Submission, look: str, demand: Demand, steps: Steps, function: str, given: object
) -> None:
    got = _number(submission, look, function, demand, given)
    expected = integrated(demand, steps)
    if abs(got - expected) > 0.03 + 0.004 * expected:
        seen = f"{as_call(function, demand, given)} returned {got:.5g}"
        raise Wrong(seen, f"{expected:.4g}, as small steps of Eq. 1 add up", look)


def duration_is_eq_1(submission: Submission) -> None:
    look = "README.md, 'Eq. 1'"

    def holds(example: tuple[Demand, int]) -> None:
        demand, granted = example
        _ends_as_integrated(submission, look, demand, [(0, granted)], "duration", granted)

    for_all(st.tuples(DEMANDS, BANDWIDTHS), holds)


def ends_is_eq_1(submission: Submission) -> None:
    look = "README.md, 'Where the bandwidth changes'"

    def holds(example: tuple[Demand, Steps]) -> None:
        demand, steps = example
        _ends_as_integrated(submission, look, demand, steps, "ends", steps)

    for_all(st.tuples(DEMANDS, STEPS), holds)


def least_known_is_just_in_time(submission: Submission) -> None:
    look = "README.md, 'With the curve known'"

    def holds(example: tuple[Demand, int]) -> None:
        demand, more = example
        # The time without a network, and up to eight times as much.
        shortest = sum(seconds for seconds, _ in demand)
        deadline = shortest * more / 4
        call = as_call("least_known", demand, deadline)
        answer = submission.call(FILE, "least_known", demand, deadline)
        if deadline < shortest:
            if answer is not None:
                why = f"None, as it takes {shortest} s without any limit"
                raise Wrong(f"{call} returned {answer!r}", why, look)
            return
        if answer is None:
            raise Wrong(f"{call} returned None", "a bandwidth", look)
        got = number_of(answer, call, look)
        least = _least(demand, deadline)
        if not near(got, least, 1e-4):
            raise Wrong(f"{call} returned {got:.5g}", f"{least:.5g}", look)

    for_all(st.tuples(SENDING, st.integers(3, 32)), holds)


def _least(demand: Demand, deadline: float) -> float:
    """By halving: more bandwidth never takes longer."""
    low, high = 0.0, max(rate for _, rate in demand)
    for _ in range(50):
        middle = (low + high) / 2
        late = takes_s(demand, middle) > deadline
        low, high = (middle, high) if late else (low, middle)
    return high


WIDTHS = (5, 8, 10, 16, 20, 40, 50)


def profile_finds_the_limit(submission: Submission) -> None:
    look = "README.md, 'What a sweep says'"

    def holds(example: tuple[Demand, list[int], float]) -> None:
        demand, widths, tolerance = example
        measured = [(rate, round(integrated(demand, [(0, rate)]), 4)) for rate in widths]
        call = as_call("profile", measured, tolerance)
        got = submission.call(FILE, "profile", measured, tolerance)
        if not isinstance(got, dict) or set(got) != {"threshold", "between"}:
            raise Wrong(f"{call} returned {got!r}", "a dict with threshold and between", look)
        highest = max(rate for _, rate in demand)
        # Beyond what any piece asks for nothing is gained; a short last piece may be within 2 %.
        expected = _threshold(measured, tolerance)
        if got["threshold"] != expected:
            seen = f"{call} returned the threshold {got['threshold']!r}"
            raise Wrong(seen, f"{expected}, for a demand of up to {highest}", look)
        pairs = list_of(got["between"], str, call, look)
        limits = _limits(sorted(measured), tolerance)
        if pairs != limits:
            raise Wrong(f"{call} returned the limits {pairs}", f"{limits}", look)

    widths = st.lists(st.sampled_from(WIDTHS), min_size=2, max_size=5, unique=True)
    for_all(st.tuples(SENDING, widths, st.sampled_from((0.02, 0.05))), holds, number=100)


def _threshold(measured: Sequence[Piece], tolerance: float) -> float:
    """The bandwidth below which every one that was measured is slower than the best."""
    within = [rate for rate, seconds in measured
              if all(seconds <= other * (1 + tolerance) for _, other in measured)]  # fmt: skip
    return sorted(within)[0]


def _limits(ordered: Sequence[Piece], tolerance: float) -> list[str]:
    """By the gain from a bandwidth to the next: none, all that there is to be had, or some."""
    found = []
    for i in range(len(ordered) - 1):
        gained = ordered[i][1] / ordered[i + 1][1]
        possible = ordered[i + 1][0] / ordered[i][0]
        if gained <= 1 + tolerance:
            found.append("application")
        else:
            found.append("network" if possible / gained <= 1 + tolerance else "both")
    return found


WIDE = 0.2
MOST_PIECES, MOST_NUMBER = 6, 1000


def estimates_that_fail(submission: Submission) -> None:
    look = "README.md, 'Where the estimate fails'"
    answer = submission.call(FILE, "counterexamples")
    early, late = _counterexamples(answer, look)
    for name, (demand, b, granted), at_most in (("early", early, True), ("late", late, False)):
        estimated = takes_s(demand, b) * b / granted
        actual = takes_s(demand, granted)
        ratio = actual / estimated
        if at_most and granted >= b:
            seen = f"{name} of counterexamples() is granted {granted:g} of {b:g}"
            raise Wrong(seen, "an application that is scaled down", look)
        if (ratio > 1 - WIDE) if at_most else (ratio < 1 + WIDE):
            seen = f"{name} of counterexamples() takes {actual:.3g} s, estimated {estimated:.3g} s"
            bound = f"at most {1 - WIDE:g}" if at_most else f"at least {1 + WIDE:g}"
            raise Wrong(seen, f"{bound} of the estimate", look)


Case = tuple[Demand, float, float]


def _counterexamples(answer: object, look: str) -> tuple[Case, Case]:
    if not isinstance(answer, dict) or set(answer) != {"early", "late"}:
        raise Wrong(f"counterexamples() returned {answer!r}", "early and late", look)
    case = {name: _case(answer[name], f"{name} of counterexamples()", look) for name in answer}
    return case["early"], case["late"]


def _case(value: object, name: str, look: str) -> Case:
    if not isinstance(value, list) or len(value) != 3:
        raise Wrong(f"{name} is {value!r}", "[demand, b, granted]", look)
    b, granted = (number_of(one, name, look) for one in value[1:])
    if not (1 <= b <= MOST_NUMBER and 1 <= granted <= MOST_NUMBER):
        raise Wrong(f"{name} has the bandwidths {b:g} and {granted:g}", "1 to 1000 Mbit/s", look)
    return _demand(value[0], name, look), b, granted


def _demand(value: object, name: str, look: str) -> Demand:
    """A student's demand, if it is one that can be played. Raises Wrong."""
    pieces = list_of(value, list, name, look)
    if not 1 <= len(pieces) <= MOST_PIECES or any(len(piece) != 2 for piece in pieces):
        raise Wrong(f"{name} has a demand that is none", "one to six pieces [seconds, rate]", look)
    demand = [(number_of(one[0], name, look), number_of(one[1], name, look)) for one in pieces]
    if any(not 0.05 <= s <= 100 or not 0 <= rate <= MOST_NUMBER for s, rate in demand):
        expected = "pieces of 0.05 to 100 s at 0 to 1000 Mbit/s"
        raise Wrong(f"{name} has the demand {demand}", expected, look)
    return demand


# -- on the wire


NETWORK = """
topology: {kind: tree, fanout: [2, 3], links: 100 Mbit/s, slots_per_server: 1}
policies: [scripted]
expect: {fidelity: invalid}
workload:
  kind: jobs
  jobs:
"""
"""What is measured is judged here: a late job is no fault of the run."""
B_MBPS, SORT_S, SORT_MBPS, EARLY_S = 30.0, 2.5, 12.0, 5.0
LEAST_MBPS, MOST_MBPS = 3.0, 60.0


def job(name: str, p: float, mbps: float, granted: float, more: str = "") -> str:
    rates = f"bandwidth: {round(mbps * 1e6)} bit/s, granted: {round(granted * 1e6)} bit/s"
    return f"    - {{id: {name}, vms: 2, {rates}, duration: {p:.6f} s{more}}}\n"


def row_of(runs: Sequence[RecordedRun], name: str) -> JobRow:
    (run,) = runs
    return next(row for row in run.rows if row.job_id == name)


def measured_s(runs: Sequence[RecordedRun], name: str) -> float:
    row = row_of(runs, name)
    if row.measured_s is None:
        look = "README.md, 'On the wire'"
        raise Wrong(f"the job {name} did not finish: {row.reason}", "an end", look)
    return row.measured_s


def scaled(case: Case, look: str) -> tuple[Demand, float]:
    """A counterexample at b = 30 Mbit/s that lasts 5 s as granted, and what it is granted."""
    demand, b, granted = case
    slower = EARLY_S / takes_s(demand, granted)
    rates = [(seconds * slower, rate * B_MBPS / b) for seconds, rate in demand]
    given = granted * B_MBPS / b
    least = min([given, *(rate for _, rate in rates)])
    if least < LEAST_MBPS or max(rate for _, rate in rates) > MOST_MBPS:
        seen = f"early of counterexamples() is {demand}, with {granted:g} of {b:g}"
        raise Wrong(seen, "bandwidths from a tenth of b to twice b, to be played", look)
    return rates, given


def curve(demand: Demand) -> str:
    """The keys of a job's demand curve, whose steps are shares of the time without a network."""
    whole, until, steps = sum(seconds for seconds, _ in demand), 0.0, []
    for i, (seconds, rate) in enumerate(demand):
        until += seconds / whole * 100
        share = 100 if i == len(demand) - 1 else f"{until:.6f}"
        steps.append(f"{{until: {share} %, at: {round(rate * 1e6)} bit/s}}")
    return f", demand: [{', '.join(steps)}]"


def _time(submission: Submission, look: str, function: str, *arguments: Any) -> float:
    got = _number(submission, look, function, *arguments)
    if got <= 0:
        raise Wrong(f"{as_call(function, *arguments)} returned {got:g}", "a time", look)
    return got


def estimates_on_the_wire(submission: Submission, _: None) -> list[Margin]:
    look = "README.md, 'On the wire'"
    case, _late = _counterexamples(submission.call(FILE, "counterexamples"), look)
    demand, granted = scaled(case, look)
    p = takes_s(demand, B_MBPS)
    sort = _time(submission, look, "estimate", SORT_S, B_MBPS, SORT_MBPS)
    expected = _time(submission, look, "duration", demand, granted)
    early = _time(submission, look, "estimate", p, B_MBPS, granted)
    jobs = [
        job("sort", SORT_S, B_MBPS, B_MBPS),
        job("sort-scaled", SORT_S, B_MBPS, SORT_MBPS),
        job("early", p, B_MBPS, granted, curve(demand)),
    ]
    with played(NETWORK + "".join(jobs)) as runs:
        took = {name: measured_s(runs, name) for name in ("sort", "sort-scaled", "early")}
    return [
        Margin("sort at b takes, of p,", took["sort"] / SORT_S, 0.94, 1.06),
        Margin("sort scaled takes, of your estimate,", took["sort-scaled"] / sort, 0.94, 1.06),
        Margin(
            "your counterexample takes, of your duration,", took["early"] / expected, 0.94, 1.06
        ),
        Margin("and of your estimate", took["early"] / early, 0.05, 0.9),
    ]


def application_on_the_wire(submission: Submission, _: None) -> list[Margin]:
    look = "README.md, 'Your own application'"
    demand = _demand(submission.call(FILE, "application"), "application()", look)
    at = (10, 16)
    expected = [_time(submission, look, "duration", demand, mbps) for mbps in at]
    command = f", command: [python3, ./{PROGRAM.name}]"
    jobs = "".join(job(f"index-{mbps}", 2.5, B_MBPS, mbps, command) for mbps in at)
    with played(NETWORK + jobs, files=[PROGRAM]) as runs:
        took = [measured_s(runs, f"index-{mbps}") for mbps in at]
    return [
        Margin(
            f"index.py at {mbps} Mbit/s takes, of your prediction,", took_s / predicted, 0.88, 1.12
        )
        for mbps, took_s, predicted in zip(at, took, expected, strict=True)
    ]


CHECKS = (
    Check("the estimate is p b / b'", "pure", estimate_is_p_b_over_b),
    Check("the relaxed time ends with the deadline", "pure", relaxing_ends_at_the_deadline),
    Check("least_bandwidth() is just in time", "pure", least_bandwidth_is_just_in_time),
    Check("duration() follows Eq. 1", "pure", duration_is_eq_1, 2),
    Check("ends() follows Eq. 1 where the bandwidth changes", "pure", ends_is_eq_1, 2),
    Check("least_known() is just in time", "pure", least_known_is_just_in_time, 2),
    Check("profile() finds the threshold and the limits", "pure", profile_finds_the_limit, 2),
    Check("the estimate fails for counterexamples()", "pure", estimates_that_fail),
    Check(
        "measured times are as estimated, or shorter as predicted", "wire", estimates_on_the_wire, 2
    ),
    Check(
        "application() predicts index.py at other bandwidths", "wire", application_on_the_wire, 2
    ),
)
