"""Many cells on several processors, each at most once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from reproductions.cell import Cell, Measures
from reproductions.store import Store


@dataclass(frozen=True)
class Progress:
    """How far a sweep is: cells, and their cost, of which what was found stored is ``kept``."""

    done: int
    of: int
    cost: float
    of_cost: float
    kept: int


Report = Callable[[Progress], None]


def sweep(
    cells: Iterable[Cell], store: Store, processes: int, report: Report
) -> dict[Cell, Measures]:
    """Measures of all cells: from the store where they are there, computed and stored otherwise.

    Whatever stops it, what was finished is stored whole; called again it computes the rest. The
    costliest cells go first, so that the processors end together.
    """
    wanted = list(dict.fromkeys(cells))
    found = {cell: measures for cell in wanted if (measures := store.get(cell)) is not None}
    missing = [cell for cell in wanted if cell not in found]
    missing.sort(key=lambda cell: cell.cost(), reverse=True)
    kept, total = len(found), sum(cell.cost() for cell in missing)
    done = 0.0
    report(Progress(kept, len(wanted), done, total, kept))
    for cell, measures in _computed(missing, processes):
        store.put(cell, measures)
        found[cell] = measures
        done += cell.cost()
        report(Progress(len(found), len(wanted), done, total, kept))
    return found


def _computed(cells: list[Cell], processes: int) -> Iterator[tuple[Cell, Measures]]:
    if processes == 1 or len(cells) < 2:
        for cell in cells:
            yield cell, cell.run()
        return
    import joblib

    # One at a time: whoever stops the sweep loses no cell that waits behind another.
    run = joblib.Parallel(n_jobs=processes, return_as="generator_unordered", batch_size=1)
    results = run(joblib.delayed(_run)(cell) for cell in cells)
    try:
        yield from results
    finally:
        results.close()


def _run(cell: Cell) -> tuple[Cell, Measures]:
    return cell, cell.run()
