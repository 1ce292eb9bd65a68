"""Checks of a lab: layers, failures in one sentence, the smallest failing example.

A check is a function that raises :class:`Wrong` or returns its margins. Layers follow each other:
pure functions, text of flows and tc, packets on the wire, failures of links and switches. Where a
check of one layer fails, later layers are not reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from testbed.errors import BadInput, DoesNotFit, TestbedError
from testbed.labs.submission import CodeFailed, Submission, printable
from testbed.runs.example_search import same_examples

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from testbed.runs.standing_network import StandingNetwork

Layer = Literal["pure", "text", "wire", "resilience"]
LAYERS: tuple[Layer, ...] = ("pure", "text", "wire", "resilience")
LIVE: tuple[Layer, ...] = ("wire", "resilience")

Verdict = Literal["passed", "failed", "not reached", "not run"]
T = TypeVar("T")


class Wrong(Exception):
    """A failed check: ``seen`` in a clause, what was ``expected``, and where to ``look``."""

    def __init__(self, seen: str, expected: str, look: str) -> None:
        self.seen, self.expected, self.look = printable(seen), expected, look
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
        """Distance to the nearer end of the band, as a share of its half width: 1 in the middle."""
        half = (self.most - self.least) / 2
        return min(self.value - self.least, self.most - self.value) / half if half else 0.0

    def to_json(self) -> dict[str, Any]:
        """Null for a value that is no number."""
        return asdict(self) | {
            "value": self.value if math.isfinite(self.value) else None,
            "says": str(self),
        }

    def __str__(self) -> str:
        band = f"{self.least:.3g} to {self.most:.3g}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.what} {self.value:.3g}{unit}, band {band}, margin {self.share:.0%}"


Measures = Sequence[Margin] | None
Network = Callable[[], "AbstractContextManager[StandingNetwork | None]"]


@dataclass(frozen=True)
class Check:
    """One check: what it claims of the submission, its layer, its points, its function.

    ``run`` takes the submission; in the layers ``wire`` and ``resilience`` also the network that is
    up, or None in a lab without ``network``: its checks play runs (:mod:`testbed.labs.live_runs`).
    """

    name: str
    layer: Layer
    run: Callable[..., Measures]
    points: int = 1


@dataclass(frozen=True)
class Outcome:
    """Result of a check; ``sentence`` says why it failed or was not run."""

    check: str
    layer: Layer
    verdict: Verdict
    points: int
    sentence: str = ""
    margins: tuple[Margin, ...] = ()
    printed: str = ""

    @property
    def earned(self) -> int:
        return self.points if self.verdict == "passed" else 0

    def to_json(self) -> dict[str, Any]:
        margins = [one.to_json() for one in self.margins]
        return asdict(self) | {"earned": self.earned, "margins": margins}


def run_checks(
    checks: Sequence[Check],
    submission: Submission,
    *,
    network: Network | str,
) -> Iterator[Outcome]:
    """Runs checks layer after layer. Yields each outcome as soon as it is there.

    ``network`` brings up the network of the live layers, once, when it is needed, and it is taken
    down at the end; None for a lab whose checks build their own. A text says why the machine has no
    live network, and these checks are not run.
    """
    with ExitStack() as stack:
        failed = False
        up: StandingNetwork | None = None
        is_up = False
        for layer in LAYERS:
            reached = not failed
            for check in [one for one in checks if one.layer == layer]:
                if not reached:
                    yield _without(check, "not reached", "an earlier layer has failed")
                    continue
                if layer in LIVE and isinstance(network, str):
                    yield _without(check, "not run", network)
                    continue
                if layer in LIVE and not is_up and not isinstance(network, str):
                    up, is_up = stack.enter_context(network()), True
                outcome = run_check(check, submission, up)
                failed |= outcome.verdict == "failed"
                yield outcome


def run_check(check: Check, submission: Submission, network: StandingNetwork | None) -> Outcome:
    """One check, with a fresh process for the student's code.

    Raises MachineCannot and RunFailed: no fault of the submission's. What it asked of the network
    in vain (BadInput, DoesNotFit) and values that the check cannot work with fail the check.
    """
    try:
        with submission.process():
            arguments = (submission,) if check.layer not in LIVE else (submission, network)
            margins = tuple(check.run(*arguments) or ())
    except Wrong as wrong:
        return Outcome(check.name, check.layer, "failed", check.points, str(wrong))
    except CodeFailed as failed:
        sentence, printed = str(failed), failed.printed
        return Outcome(check.name, check.layer, "failed", check.points, sentence, (), printed)
    except (BadInput, DoesNotFit) as refused:
        return Outcome(check.name, check.layer, "failed", check.points, refused.message)
    except TestbedError:
        raise
    except Exception as error:  # noqa: BLE001 - of a value as no check expects it
        why = f"{type(error).__name__}: {error}"[:MOST_SHOWN]
        sentence = printable(f"returned a value that the check cannot use ({why})")
        return Outcome(check.name, check.layer, "failed", check.points, sentence)
    bad = [margin for margin in margins if not margin.good]
    sentence = "; ".join(map(str, bad))
    verdict: Verdict = "failed" if bad else "passed"
    return Outcome(check.name, check.layer, verdict, check.points, sentence, margins)


def _without(check: Check, verdict: Verdict, why: str) -> Outcome:
    return Outcome(check.name, check.layer, verdict, check.points, why)


# -- examples


class _Enough(BaseException):
    """Ends a search: hypothesis lets pass what is no Exception."""


MOST_SMALLER = 1_500
"""Examples tried after the first that fails: a number, not a time, so that sentences are the same
on every machine."""


def for_all(examples: SearchStrategy[T], holds: Callable[[T], None], *, number: int = 120) -> None:
    """Tries ``holds`` with random examples, the same ones every time.

    Raises Wrong or CodeFailed of the smallest example that fails. A program that hung or died is
    not asked for a smaller one.
    """
    import hypothesis

    found: list[Exception] = []
    smaller = 0

    def tried(example: T) -> None:
        nonlocal smaller
        smaller += bool(found)
        try:
            holds(example)
        except CodeFailed as failed:
            if not failed.ended:
                found.append(failed)
                raise
            # Its end, while a smaller example is looked for, says nothing of the one found.
            found.append(found[-1] if found else failed)
            raise _Enough from None
        except Wrong as wrong:
            found.append(wrong)
            raise
        finally:
            if smaller > MOST_SMALLER:
                raise _Enough

    settings = hypothesis.settings(
        max_examples=number, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck), report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        print_blob=False, verbosity=hypothesis.Verbosity.quiet,
    )  # fmt: skip
    search = settings(hypothesis.given(examples)(_named(tried)))
    try:
        with same_examples():
            search()
    except (_Enough, Wrong, CodeFailed, hypothesis.errors.Flaky):
        # The last that failed is the smallest so far; without one, hypothesis itself is at fault.
        raise found[-1] from None


def _named(tried: Callable[[T], None]) -> Callable[[T], None]:
    """A plain function, as hypothesis wants one."""

    def example(example: T) -> None:
        tried(example)

    return example


# -- values of a student's functions


def number_of(value: object, call: str, look: str) -> float:
    """``value`` as a finite number. Raises Wrong; ``call`` is the call as the student reads it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"{call} returned {shown(value)}", "a number", look)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Wrong(f"{call} returned {shown(value)}", "a finite number", look)
    return number


def list_of(value: object, kind: type | tuple[type, ...], call: str, look: str) -> list[Any]:
    """``value`` as a list of values of one kind. Raises Wrong."""
    if not isinstance(value, list):
        raise Wrong(f"{call} returned {shown(value)}", "a list", look)
    for item in value:
        if not isinstance(item, kind) or (isinstance(item, bool) and kind is not bool):
            raise Wrong(f"{call} returned a list with {shown(item)} in it", _kinds(kind), look)
    return value


def _kinds(kind: type | tuple[type, ...]) -> str:
    words = {int: "whole numbers", float: "numbers", str: "texts", list: "lists", dict: "dicts"}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(words.get(one, one.__name__) for one in kinds) + " alone"


MOST_SHOWN = 160


def shown(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"


def as_call(function: str, *arguments: object) -> str:
    """A call as a student would type it."""
    return f"{function}({', '.join(map(shown, arguments))})"
