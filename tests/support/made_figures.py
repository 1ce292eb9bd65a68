"""Configurations and figures made for tests: arithmetic in place of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from reproductions.claim_checks import Claim
from reproductions.grid_quantities import Grid, Measure
from reproductions.published_figure import Figure, Panel

YIELD = Measure("yield", "yield", "%", 100.0)


@dataclass(frozen=True)
class Sum:
    """Comes to ``a + b / 100``. ``computed`` notes every run; ``a`` of 666 cannot be computed."""

    a: float
    b: float

    computed: ClassVar[list[Sum]] = []

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cost(self) -> float:
        return self.a

    def run(self) -> dict[str, float]:
        if self.a == 666:
            raise KeyboardInterrupt
        self.computed.append(self)
        return {"yield": self.a + self.b / 100, "cpu_s": 0.5}


def grid(**series: Sequence[Sequence[float]]) -> Grid:
    """``grid(a=[(seed values at x = 0), (at x = 1)])``, in percent."""
    return Grid(
        {
            (name, float(x)): tuple({"yield": v / 100.0} for v in seeds)
            for name, points in series.items()
            for x, seeds in enumerate(points)
        }
    )


def figure(*claims: Claim, name: str = "made-fig1") -> Figure:
    """Series a and b over x = 1, 2; a comes to x + seed / 100, b to half an x more.

    The difference varies a little: of identical values few seeds decide nothing.
    """

    def configuration(series: str, x: float, seed: int, quick: bool) -> Sum:
        return Sum(
            x
            + (0.5 if series == "b" else 0.0)
            + (1000.0 if quick else 0.0),
            seed * (1.001 if series == "b" else 1.0),
        )

    return Figure(
        name=name,
        title="A sum",
        source="Nobody, Fig. 1",
        x_label="x",
        xs=(1.0, 2.0),
        series=("a", "b"),
        configuration=configuration,
        panels=(Panel(YIELD, {("a", 1.0): 100.0}),),
        claims=claims,
        size="large",
        quick_size="small",
    )
