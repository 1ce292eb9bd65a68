"""How much better one type of lease fares than another under the same policy."""

from __future__ import annotations

from dataclasses import dataclass

from reproductions.quantities import Grid, Measure, Quantity, Values


@dataclass(frozen=True)
class BetweenTypes(Quantity):
    """One measure less another, of the same series at the same x."""

    other: Measure
    series: str
    x: float

    def values(self, grid: Grid) -> Values:
        pairs = zip(
            grid.values(self.measure, self.series, self.x),
            grid.values(self.other, self.series, self.x),
            strict=True,
        )
        return tuple(a - b for a, b in pairs)

    @property
    def unit(self) -> str:
        return " points"

    @property
    def subject(self) -> str:
        return f"{self.measure} − {self.other}"

    @property
    def place(self) -> str:
        return f"{self.x:g}"
