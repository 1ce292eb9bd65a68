"""A published figure that is measured on the live network, with the simulator's beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reproductions.cell import Measures
from reproductions.figure import Exhibit, Panel
from reproductions.live.trial import Trial
from testbed.results.compare import Comparison
from testbed.results.read import Run


@dataclass(frozen=True)
class Outcome:
    """One trial: its live run, the simulated one, and the live one's decisions made again.

    ``comparison`` is of live and simulated. ``replay_differs``: where the replay's decisions part
    from the live run's, in words; empty where they do not. ``accepted_differ``: the jobs that only
    one of live run and replay accepted. ``audit_failed``: the checks that the live run's audit
    found violated.
    """

    live: Run
    simulated: Run
    comparison: Comparison
    replay_differs: str
    accepted_differ: tuple[str, ...]
    audit_failed: tuple[str, ...]
    attempts: int


Curve = Sequence[tuple[float, float]]
"""Points of a line; between two of them it stays at the former (a step function)."""


@dataclass(frozen=True)
class Curves:
    """A panel with a line per series and world, at one x, of the first repetition."""

    title: str
    x_label: str
    curve: Callable[[Run], Curve]
    x: float = 0.0
    limits: tuple[float, float] | None = None
    """The ends of the x axis."""


@dataclass(frozen=True, kw_only=True)
class LiveFigure(Exhibit):
    """``trial(series, x, quick)`` is what is played for a point.

    Its measures are those of :mod:`reproductions.live.measures` and what ``own`` adds: it is
    given a run of either world, and the names it uses come in both (``name``, ``name_sim``).
    ``reduced`` says in words what is smaller than in the paper.
    """

    trial: Callable[[str, float, bool], Trial]
    own: Callable[[Run], Measures] | None = None
    curves: tuple[Curves, ...] = ()
    reduced: str = ""

    @property
    def tables(self) -> tuple[Panel, ...]:
        """With what the claims are about, so that they can be judged from what is written down."""
        shown = super().tables
        names = {panel.measure.name for panel in shown}
        asked = (check.quantity.measure for claim in self.claims for check in claim.checks)
        missing = dict.fromkeys(measure for measure in asked if measure.name not in names)
        return (*shown, *(Panel(measure) for measure in missing))
