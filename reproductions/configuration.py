"""What a reproduction computes: cells, of whatever kind a paper needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Measures = Mapping[str, float]
"""What a run came to, by name, in plain units (shares, seconds, dollars)."""


class Cell(Protocol):
    """One run: a point of an evaluation's grid, for one series and one seed.

    An implementation is a frozen dataclass of plain values, so that it can be hashed, pickled and
    written down. ``run`` is pure but for stopwatches: equal cells give equal results. What it
    computes with is found by following the imports of the module that defines the class
    (:mod:`reproductions.sources`).
    """

    def run(self) -> Measures:
        """Play it and measure. Always the same names."""
        ...

    def cost(self) -> float:
        """Roughly how long it takes, in any unit that all cells of its kind share."""
        ...

    def to_json(self) -> dict[str, Any]:
        """All that goes in, as JSON."""
        ...

    def __hash__(self) -> int: ...
