"""Times of the labs' checks, and live marks repeated beside a process that
takes half a processor, or with ``--busy`` one that never stops.

Each lab's solution is checked whole, as ``testbed lab check`` does it, with a
fresh network. Then its live checks run several times on one network. Marks have
to be the same each time; the margin is the least distance of a measured value
to the end of its band, as a share of the band's half width. Then each wrong
answer that only a live check can find: it has to be found there.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.headroom import busy_loop
from bench.progress import Progress, Step
from bench.samples import Result
from testbed.labs.checked_folder import live_network
from testbed.labs.checking import (
    LIVE,
    Check,
    CheckOutcome,
    run_check,
    run_checks,
)
from testbed.labs.lab_catalogue import Lab, WrongAnswer, labs, wrong_answers
from testbed.labs.submission import Submission
from testbed.standing.standing_network import StandingNetwork, up

REPETITIONS = 5
# In stretches of 50 ms: what disturbs most is a process that comes and is gone.
NOISE = """
import time
while True:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass
    time.sleep(0.05)
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lab",
        type=int,
        action="append",
        help="one lab; several times for more",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=REPETITIONS,
        help=f"default {REPETITIONS}",
    )
    parser.add_argument(
        "--busy",
        action="store_true",
        help="beside a process that never stops",
    )
    parser.add_argument(
        "--live-alone",
        action="store_true",
        help="the solution's live marks alone: no times, no wrong answers",
    )


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """Rows per lab: times of its checks, live marks, the least margin, wrong
    answers.
    """
    times = args.repetitions
    if quick:
        times = 2
    beside = noise
    if args.busy:
        beside = busy_loop
    chosen = _chosen(args.lab)
    progress = Progress([Step(f"lab {lab.number}", 60.0) for lab in chosen])
    results = []
    for lab in chosen:
        with progress.step():
            wrong_ones = []
            if not args.live_alone:
                results += times_of(lab)
                wrong_ones = live_wrong_answers(lab)
            with beside():
                rounds, found_wrong = live_rounds(lab, times, wrong_ones)
        results += _rows(lab, rounds, found_wrong)
        for text in _remarks(rounds, found_wrong):
            progress.say(f"lab {lab.number}: {text}")
    return results


def _chosen(numbers: Sequence[int] | None) -> list[Lab]:
    """Labs with live checks; of these numbers, if there are any."""
    chosen = []
    for lab in labs():
        is_asked_for = not numbers or lab.number in numbers
        if is_asked_for and live_checks(lab):
            chosen.append(lab)
    return chosen


def _remarks(
    rounds: Sequence[Sequence[CheckOutcome]],
    found_wrong: Sequence[tuple[WrongAnswer, CheckOutcome]],
) -> Iterator[str]:
    """Live checks that the solution did not pass, and all wrong answers."""
    for outcomes in rounds:
        for outcome in outcomes:
            if outcome.verdict != "passed":
                yield f"{outcome.check}: {outcome.sentence}"
    for wrong, outcome in found_wrong:
        yield f"{wrong.name}: {outcome.verdict}: {outcome.sentence}"


def times_of(lab: Lab) -> list[Result]:
    """Times of the solution's checks: of those without a network, and of all
    with a fresh one.
    """
    submission = Submission(lab.path("solution"), lab.files)
    rows = []
    for what, network, most_s in (
        ("functions and text", "left out", 10),
        ("whole check", live_network(lab), 180),
    ):
        since = time.monotonic()
        outcomes = list(run_checks(lab.checks, submission, network=network))
        took_s = time.monotonic() - since
        n_passed = sum(outcome.verdict == "passed" for outcome in outcomes)
        rows.append(
            Result(
                f"{_title(lab)}: {what}",
                "s",
                samples=(took_s,),
                target=f"at most {most_s} s",
                meets=took_s <= most_s,
                extra={"checks": n_passed},
            )
        )
    return rows


def live_rounds(
    lab: Lab, times: int, wrong_ones: Sequence[WrongAnswer]
) -> tuple[
    list[list[CheckOutcome]], list[tuple[WrongAnswer, CheckOutcome]]
]:
    """Outcomes of the solution's live checks, ``times`` over; wrong answers'
    first failures.

    Of a wrong answer that no live check finds the outcome is the last check's,
    which it passed.
    """
    with (
        TemporaryDirectory(prefix="hosenet-labs-") as name,
        network_of(lab) as network,
    ):
        folder = Path(name)
        rounds = []
        for k in range(times):
            handed_in = answered(lab, folder / f"solution-{k}")
            due = live_checks(lab)
            rounds.append(list(live_checked(lab, handed_in, network, due)))
        found_wrong = []
        for k, wrong in enumerate(wrong_ones):
            handed_in = answered(lab, folder / f"wrong-{k}", wrong)
            outcome = _first_failure(lab, handed_in, network, wrong)
            found_wrong.append((wrong, outcome))
    return rounds, found_wrong


def _first_failure(
    lab: Lab,
    folder: Path,
    network: StandingNetwork | None,
    wrong: WrongAnswer,
) -> CheckOutcome:
    """The first failed check; where none fails, the last."""
    due = checks_up_to(lab, wrong)
    outcomes = []
    for outcome in live_checked(lab, folder, network, due):
        outcomes.append(outcome)
        if outcome.verdict == "failed":
            break
    return outcomes[-1]


def live_checked(
    lab: Lab,
    folder: Path,
    network: StandingNetwork | None,
    due: Sequence[Check],
) -> Iterator[CheckOutcome]:
    """Checks, one after the other, on a network that is up."""
    for check in due:
        yield run_check(check, Submission(folder, lab.files), network)


def live_checks(lab: Lab) -> list[Check]:
    return [check for check in lab.checks if check.layer in LIVE]


def checks_up_to(lab: Lab, wrong: WrongAnswer) -> list[Check]:
    """The live checks of layers before the one that is to find a wrong answer,
    and that one.
    """
    (finder,) = [check for check in lab.checks if check.name == wrong.fails]
    layers_before = LIVE[: LIVE.index(finder.layer)]
    before = [check for check in lab.checks if check.layer in layers_before]
    return [*before, finder]


def answered(
    lab: Lab, folder: Path, wrong: WrongAnswer | None = None
) -> Path:
    """A folder with the lab's solution, or with a wrong answer. Raises
    ValueError.
    """
    shutil.copytree(lab.path("solution"), folder)
    if wrong is not None:
        file = folder / wrong.file
        text = file.read_text("utf-8")
        # A solution that was changed would leave it a right answer.
        if text.count(wrong.replace) != 1:
            raise ValueError(
                f"lab {lab.number}, {wrong.name}: its text occurs not once in {file}"
            )
        file.write_text(text.replace(wrong.replace, wrong.by), "utf-8")
    return folder


def live_wrong_answers(lab: Lab) -> list[WrongAnswer]:
    """Those that are to be found in a live layer."""
    live = {check.name for check in live_checks(lab)}
    return [wrong for wrong in wrong_answers(lab) if wrong.fails in live]


def network_of(lab: Lab) -> StandingNetwork | nullcontext[None]:
    """The lab's network, up; None for a lab whose checks build their own."""
    if lab.network is None:
        return nullcontext()
    return up(lab.path(lab.network))


def least_margin(rounds: list[list[CheckOutcome]]) -> float | None:
    """The least margin of all outcomes, as a share of its band's half width;
    None without any.
    """
    shares = []
    for outcomes in rounds:
        for outcome in outcomes:
            shares += [margin.share for margin in outcome.margins]
    return min(shares, default=None)


def noise() -> AbstractContextManager[None]:
    """Half a processor is busy meanwhile."""
    return busy_loop(NOISE)


def _title(lab: Lab) -> str:
    return f"lab {lab.number}, {lab.title}"


def _rows(
    lab: Lab,
    rounds: list[list[CheckOutcome]],
    found_wrong: list[tuple[WrongAnswer, CheckOutcome]],
) -> list[Result]:
    title = _title(lab)
    rows = [_points_row(title, rounds)]
    if (margin := least_margin(rounds)) is not None:
        rows.append(
            Result(
                f"{title}: least margin",
                "",
                samples=(margin,),
                target="above 0",
                meets=margin > 0,
            )
        )
    rows.append(_wrong_answers_row(title, found_wrong))
    return rows


def _points_row(title: str, rounds: list[list[CheckOutcome]]) -> Result:
    """The solution's points, which are to be full each time."""
    earned = []
    for outcomes in rounds:
        points = sum(outcome.earned for outcome in outcomes)
        earned.append(float(points))
    full = float(sum(outcome.points for outcome in rounds[0]))
    return Result(
        f"{title}: live points",
        "",
        samples=tuple(earned),
        target=f"{full:g} each time",
        meets={full} == set(earned),
    )


def _wrong_answers_row(
    title: str, found_wrong: list[tuple[WrongAnswer, CheckOutcome]]
) -> Result:
    missed = []
    for wrong, outcome in found_wrong:
        # A check before the one that is to find it is no right finder.
        if outcome.verdict != "failed" or outcome.check != wrong.fails:
            missed.append(wrong.name)
    extra = {}
    if missed:
        extra = {"missed": missed}
    return Result(
        f"{title}: wrong answers not found where they should",
        "",
        samples=(float(len(missed)),),
        target=f"0 of {len(found_wrong)}",
        meets=not missed,
        extra=extra,
    )
