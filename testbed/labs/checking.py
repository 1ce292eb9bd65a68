"""Checks of a lab: layers, failures in one sentence, smallest failing examples.

A check is a function that raises :class:`Wrong` or returns its margins. Layers
follow each other: pure functions, text of flows and tc, packets on the wire,
failures of links and switches. Where a check of one layer fails, later layers
are not reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from testbed.errors import BadInput, DoesNotFit, TestbedError
from testbed.labs.submission import CodeFailed, Submission, printable
from testbed.policy_trials.example_search import same_examples

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from testbed.standing.standing_network import StandingNetwork

Layer = Literal["pure", "text", "wire", "resilience"]
LAYERS: tuple[Layer, ...] = ("pure", "text", "wire", "resilience")
LIVE: tuple[Layer, ...] = ("wire", "resilience")

Verdict = Literal["passed", "failed", "not reached", "not run"]
T = TypeVar("T")


class Wrong(Exception):
    """A failed check: a clause on what was ``seen``, what was ``expected``, and
    where a student should ``look``.
    """

    def __init__(self, seen: str, expected: str, look: str) -> None:
        self.seen = printable(seen)
        self.expected = expected
        self.look = look
        super().__init__(f"{self.seen}; expected {expected} (see {look})")


@dataclass(frozen=True)
class Margin:
    """A measured value and the band it has to lie in; ``unit`` as printed."""

    what: str
    value: float
    least: float
    most: float
    unit: str = ""

    @property
    def good(self) -> bool:
        return self.least <= self.value <= self.most

    @property
    def share(self) -> float:
        """Distance to the nearer end, as a share of half the band's width.

        1 in the middle, 0 at an end.
        """
        half = (self.most - self.least) / 2
        if half == 0:
            return 0.0
        return min(self.value - self.least, self.most - self.value) / half

    def to_json(self) -> dict[str, Any]:
        """Its fields and its text; null for a value that is no number."""
        record = asdict(self)
        record["says"] = str(self)
        # JSON has no word for it.
        if not math.isfinite(self.value):
            record["value"] = None
        return record

    def __str__(self) -> str:
        value = f"{self.value:.3g}"
        if self.unit:
            value += f" {self.unit}"
        band = f"{self.least:.3g} to {self.most:.3g}"
        return f"{self.what} {value}, band {band}, margin {self.share:.0%}"


Measures = Sequence[Margin] | None
# Brings up the network of a lab's live checks, and takes it down at the end.
BringUp = Callable[[], "AbstractContextManager[StandingNetwork | None]"]


@dataclass(frozen=True)
class Check:
    """One check: its claim about the submission, its layer, function and points.

    ``run`` takes the submission; in the layers ``wire`` and ``resilience`` also
    the network that is up, or None in a lab without ``network``: its checks
    play runs (:mod:`testbed.labs.live_runs`). ``after``: an earlier check of the
    same layer, without which this one is not reached. It is set where a
    submission that does nothing would pass.
    """

    name: str
    layer: Layer
    run: Callable[..., Measures]
    points: int = 1
    after: str = ""

    def outcome(
        self,
        verdict: Verdict,
        sentence: str = "",
        margins: tuple[Margin, ...] = (),
        printed: str = "",
    ) -> CheckOutcome:
        return CheckOutcome(
            self.name,
            self.layer,
            verdict,
            self.points,
            sentence,
            margins,
            printed,
        )


@dataclass(frozen=True)
class CheckOutcome:
    """Result of a check; ``sentence`` says why it failed, was not reached or was
    not run.
    """

    check: str
    layer: Layer
    verdict: Verdict
    points: int
    sentence: str = ""
    margins: tuple[Margin, ...] = ()
    printed: str = ""

    @property
    def earned(self) -> int:
        if self.verdict == "passed":
            return self.points
        return 0

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        record["margins"] = [margin.to_json() for margin in self.margins]
        record["earned"] = self.earned
        return record


def run_checks(
    checks: Sequence[Check],
    submission: Submission,
    *,
    network: BringUp | str,
) -> Iterator[CheckOutcome]:
    """Runs checks layer after layer, and yields each outcome at once.

    ``network`` brings up the network of the live layers, once, when it is
    needed. A text in its place says why the machine has no live network; then
    the checks of these layers are not run, also after a failure: so the points
    of checks that were left out are the same for a whole class.
    """
    with ExitStack() as stack:
        up: StandingNetwork | None = None
        is_up = False
        failed = False
        passed: set[str] = set()
        for layer in LAYERS:
            # Within a layer all checks run: a student sees all of its failures.
            reached = not failed
            for check in checks:
                if check.layer != layer:
                    continue
                obstacle = ""
                if not reached:
                    obstacle = "an earlier layer has failed"
                elif check.after and check.after not in passed:
                    obstacle = f"first: {check.after}"
                if layer in LIVE:
                    if isinstance(network, str):
                        yield check.outcome("not run", network)
                        continue
                    # With the first check that needs it: it takes a while.
                    if not obstacle and not is_up:
                        up = stack.enter_context(network())
                        is_up = True
                if obstacle:
                    yield check.outcome("not reached", obstacle)
                    continue
                outcome = run_check(check, submission, up)
                failed |= outcome.verdict == "failed"
                if outcome.verdict == "passed":
                    passed.add(check.name)
                yield outcome


def run_check(
    check: Check,
    submission: Submission,
    network: StandingNetwork | None,
) -> CheckOutcome:
    """Runs one check, with a fresh process for the student's code.

    Raises MachineCannot and RunFailed: no fault of the submission's. What it
    asked of the network in vain (BadInput, DoesNotFit) and values that the
    check cannot work with fail the check.
    """
    try:
        with submission.process():
            margins = _margins(check, submission, network)
    except Wrong as wrong:
        return check.outcome("failed", str(wrong))
    except CodeFailed as error:
        return check.outcome("failed", str(error), printed=error.printed)
    except (BadInput, DoesNotFit) as refused:
        return check.outcome("failed", refused.message)
    # The machine is at fault: no mark can be given.
    except TestbedError:
        raise
    except Exception as error:  # noqa: BLE001 - of a value as no check expects it
        reason = f"{type(error).__name__}: {error}"[:MOST_SHOWN]
        sentence = f"returned a value that the check cannot use ({reason})"
        return check.outcome("failed", printable(sentence))
    return _judged(check, margins)


def _judged(check: Check, margins: tuple[Margin, ...]) -> CheckOutcome:
    bad = [str(margin) for margin in margins if not margin.good]
    if bad:
        return check.outcome("failed", "; ".join(bad), margins)
    return check.outcome("passed", margins=margins)


def _margins(
    check: Check,
    submission: Submission,
    network: StandingNetwork | None,
) -> tuple[Margin, ...]:
    arguments: tuple[object, ...] = (submission,)
    if check.layer in LIVE:
        arguments = (submission, network)
    return tuple(check.run(*arguments) or ())


# -- examples


class _Enough(BaseException):
    """Ends a search: hypothesis does not catch what is no ``Exception``."""


# Examples tried after the first that fails. A number, not a time, so that
# sentences are the same on every machine.
MOST_SMALLER = 1_500


class _Search:
    """A property and the failures of its examples, the smallest one last."""

    def __init__(self, holds: Callable[[Any], None]) -> None:
        self._holds = holds
        self.failures: list[Exception] = []
        self._n_smaller = 0

    def run(self, example: Any) -> None:
        """Tries one example. Raises its failure, or _Enough."""
        self._n_smaller += bool(self.failures)
        try:
            self._holds(example)
        except CodeFailed as failure:
            if failure.ended:
                self._add_end(failure)
                raise _Enough from None
            self.failures.append(failure)
            raise
        except Wrong as wrong:
            self.failures.append(wrong)
            raise
        finally:
            # In place of the example's own failure, after which hypothesis
            # would try a smaller one.
            if self._n_smaller > MOST_SMALLER:
                raise _Enough

    def _add_end(self, failure: CodeFailed) -> None:
        """Takes the end of a process for the failure, unless an example failed
        before: an end during the search for a smaller one says nothing of
        that.
        """
        if not self.failures:
            self.failures.append(failure)


def for_all(
    examples: SearchStrategy[T],
    holds: Callable[[T], None],
    *,
    number: int = 120,
) -> None:
    """Tries ``holds`` with random examples, the same ones every time.

    Raises Wrong or CodeFailed of the smallest example that fails. A program
    that hung or died is not asked for a smaller one.
    """
    import hypothesis

    search = _Search(holds)
    settings = hypothesis.settings(
        max_examples=number,
        # The same examples each time, without those of earlier runs.
        derandomize=True,
        database=None,
        # A slow machine, or a slow answer, is no failure: calls have limits.
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        # One sentence: several failures would be a group of exceptions.
        report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    run_all = settings(hypothesis.given(examples)(_named(search.run)))
    try:
        with same_examples():
            run_all()
    except (_Enough, Wrong, CodeFailed, hypothesis.errors.Flaky):
        # Flaky without one: an example raised another exception, but not when
        # it was tried again.
        if not search.failures:
            raise
        # The last that failed is the smallest so far.
        raise search.failures[-1] from None


def _named(tried: Callable[[T], None]) -> Callable[[T], None]:
    """A plain function, as hypothesis wants one."""

    # hypothesis draws its examples from a hash of this text: another name here,
    # and every lab is marked by other examples.
    def example(example: T) -> None:
        tried(example)

    return example


# -- values of a student's functions


def number_of(value: object, call: str, look: str) -> float:
    """``value`` as a finite number; ``call`` as the student reads it.

    Raises Wrong.
    """
    # To Python, True is an int.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"{call} returned {shown(value)}", "a number", look)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Wrong(
            f"{call} returned {shown(value)}", "a finite number", look
        )
    return number


def list_of(
    value: object,
    kind: type | tuple[type, ...],
    call: str,
    look: str,
) -> list[Any]:
    """``value`` as a list of values of one kind. Raises Wrong."""
    if not isinstance(value, list):
        raise Wrong(f"{call} returned {shown(value)}", "a list", look)
    for item in value:
        is_stray_bool = isinstance(item, bool) and kind is not bool
        if is_stray_bool or not isinstance(item, kind):
            seen = f"{call} returned a list with {shown(item)} in it"
            raise Wrong(seen, _kinds(kind), look)
    return value


_PLURALS: dict[type, str] = {
    int: "whole numbers",
    float: "numbers",
    str: "texts",
    list: "lists",
    dict: "dicts",
}


def _kinds(kind: type | tuple[type, ...]) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    words = [_PLURALS.get(item, item.__name__) for item in kinds]
    return " or ".join(words) + " alone"


MOST_SHOWN = 160


def shown(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    text = repr(value)
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]} …"


def as_call(function: str, *arguments: object) -> str:
    """A call as a student would type it."""
    return f"{function}({', '.join(map(shown, arguments))})"
