"""The search of Algorithm 1: where a job fits on the grid, and what each place does to U.

Two ways to the same decision. On any data centre with any embedder, in numpy: a residual, an
embedding and a difference of U for every point. On a single tree with Oktopus, where Numba is
installed: the loops of ``place_loop`` and ``dru_loop`` (docs/decisions/0322).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from testbed.compiled import numba_available
from testbed.embedding.base import Embedder
from testbed.embedding.oktopus import Oktopus
from testbed.embedding.placement import Placement, Refusal
from testbed.reservation.ledger import Ledger, footprint
from testbed.schedulers.dru import Candidate, FloatArray, Utilisation, increases, less
from testbed.schedulers.reshaping import Shape
from testbed.schedulers.tree_arrays import TreeArrays, is_one_tree, tree_arrays
from topologies.datacentre import DataCentre

Grid = Sequence[Sequence[Shape]]


@dataclass(frozen=True)
class Choice:
    """A point of the grid at which the job fits, and the increase of U there, by level."""

    shape: Shape
    placement: Placement
    increase: tuple[float, ...]


def place(
    ledger: Ledger, embedder: Embedder, now_s: float, n_vms: int, shape: Shape
) -> Placement | Refusal:
    """Place of Algorithm 1: embed in the least that is free while the job would run."""
    start_s = now_s + shape.delay_s
    free = ledger.residual(start_s, start_s + shape.duration_s)
    return embedder.embed(ledger.datacentre, free, n_vms, shape.rate_bps)


class Search:
    """Finds the best point; one for a data centre and an embedder.

    ``compile_loops`` False keeps it in numpy.
    """

    def __init__(
        self, datacentre: DataCentre, embedder: Embedder, *, compile_loops: bool = True
    ) -> None:
        self._utilisation = Utilisation(datacentre)
        self._embedder = embedder
        fast = compile_loops and numba_available() and is_one_tree(datacentre)
        self._loops = _Loops(self._utilisation) if fast and isinstance(embedder, Oktopus) else None

    @property
    def datacentre(self) -> DataCentre:
        return self._utilisation.datacentre

    def best(self, ledger: Ledger, now_s: float, n_vms: int, grid: Grid) -> Choice | None:
        """The point that raises U least; the first of equals in the grid's order; None: none."""
        if self._loops is not None:
            return self._loops.best(ledger, self._embedder, now_s, n_vms, grid)
        placed: list[tuple[Shape, Placement]] = []
        for row in grid:
            # A row's points start together and end one after another.
            start_s = now_s + row[0].delay_s
            windows = ledger.residuals(start_s, [start_s + shape.duration_s for shape in row])
            for shape, free in zip(row, windows, strict=True):
                answer = self._embedder.embed(self.datacentre, free, n_vms, shape.rate_bps)
                if isinstance(answer, Placement):
                    placed.append((shape, answer))
        raised = self._increases(ledger, now_s, placed)
        at = _least(raised)
        return None if at is None else Choice(*placed[at], tuple(raised[at].tolist()))

    def _increases(
        self, ledger: Ledger, now_s: float, placed: Sequence[tuple[Shape, Placement]]
    ) -> FloatArray:
        candidates = [
            Candidate(
                footprint(self.datacentre, placement, shape.rate_bps),
                now_s + shape.delay_s,
                now_s + shape.delay_s + shape.duration_s,
            )
            for shape, placement in placed
        ]
        ledger.timeline.seek(now_s)
        return increases(self._utilisation, ledger.timeline, candidates)


def _least(raised: FloatArray) -> int | None:
    """The first row that no later one is less than."""
    best: int | None = None
    rows = raised.tolist()
    for k, row in enumerate(rows):
        if best is None or less(row, rows[best]):
            best = k
    return best


class _Loops:
    """The compiled search on a single tree with Oktopus."""

    def __init__(self, utilisation: Utilisation) -> None:
        self._utilisation = utilisation

    @cached_property
    def _tree(self) -> TreeArrays:
        return tree_arrays(self._utilisation)

    def best(
        self, ledger: Ledger, embedder: Embedder, now_s: float, n_vms: int, grid: Grid
    ) -> Choice | None:
        # Imported here: marking their parts imports Numba.
        from testbed.compiled import compiled
        from testbed.schedulers import dru_loop, place_loop

        place_all = compiled(place_loop.place_loop)
        increase_all = compiled(dru_loop.increases_loop)
        if place_all is None or increase_all is None:
            raise RuntimeError("Numba was there a moment ago")
        shapes = [shape for row in grid for shape in row]
        delay = np.array([shape.delay_s for shape in shapes])
        begin = now_s + delay
        end = begin + np.array([shape.duration_s for shape in shapes])
        rate = np.array([shape.rate_bps for shape in shapes], dtype=np.int64)
        rows = np.concatenate(([0], np.cumsum([len(row) for row in grid])))
        timeline = ledger.timeline
        timeline.seek(now_s)
        changes = timeline.upcoming(float(end.max()))
        record, tree = timeline.record(), self._tree
        room = min(n_vms, tree.n_servers)
        status, width, servers, counts = place_all(
            tree,
            record,
            timeline.free,
            changes,
            (n_vms, room),
            place_loop.Grid(rows, begin[rows[:-1]], rate, end),
        )
        offset = np.arange(len(shapes), dtype=np.int64) * room
        repaired: dict[int, Placement] = {}
        for k in np.flatnonzero(status == place_loop.UNSOUND).tolist():
            answer = place(ledger, embedder, now_s, n_vms, shapes[k])
            if isinstance(answer, Placement):
                repaired[k] = answer
                width[k] = len(answer.vms_on)
                lo = int(offset[k])
                servers[lo : lo + width[k]] = [server for server, _ in answer.vms_on]
                counts[lo : lo + width[k]] = [count for _, count in answer.vms_on]
        found = np.flatnonzero(width)
        if not len(found):
            return None
        timeline.seek(now_s)
        points = dru_loop.Points(
            n_vms,
            offset[found],
            width[found],
            servers,
            counts,
            rate[found],
            begin[found],
            end[found],
        )
        raised = increase_all(tree, record, timeline.free, changes, now_s, points)
        least = _least(raised)
        if least is None:
            return None
        at = int(found[least])
        placement = repaired.get(at)
        if placement is None:
            lo, hi = int(offset[at]), int(offset[at] + width[at])
            placement = self._placement(servers[lo:hi], counts[lo:hi])
        return Choice(shapes[at], placement, tuple(raised[least].tolist()))

    def _placement(self, servers: FloatArray, counts: FloatArray) -> Placement:
        order = np.argsort(servers, kind="stable")
        pairs = zip(servers[order].tolist(), counts[order].tolist(), strict=True)
        return Placement(self._utilisation.datacentre.trees[0].root, tuple(pairs))
