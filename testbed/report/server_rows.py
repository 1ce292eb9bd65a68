"""Uses of servers' slots in rows, as lanes of the busiest servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from testbed.record.server_use import ServerUse

MAX_JOBS = 5_000
"""More jobs would be bars that nobody can tell apart."""
MAX_SERVERS = 40
MAX_BARS = 1_500
MAX_ROWS = 64
"""Rows of a job on a server; more could not be told apart."""


class SlotRows(NamedTuple):
    """A use in ``n_rows`` neighbouring rows of its server, from ``first`` on."""

    use: ServerUse
    first: int
    n_rows: int


def in_rows(uses: Iterable[ServerUse]) -> tuple[list[SlotRows], int]:
    """Uses of one server in rows of a slot each, lowest free rows first; the
    number of rows.

    Jobs of the background tier take no slot, and have rows all the same.
    """
    free_from_s: list[float] = []
    placed = []
    for use in sorted(uses, key=attrgetter("start_s", "job_id")):
        rows: list[int] = []
        n_wanted = min(use.n_slots, MAX_ROWS)
        for row, free_s in enumerate(free_from_s):
            # A row is free from the instant at which its use ends.
            if free_s <= use.start_s and len(rows) < n_wanted:
                rows.append(row)
        while len(rows) < n_wanted:
            rows.append(len(free_from_s))
            free_from_s.append(0.0)
        for row in rows:
            free_from_s[row] = use.end_s
        placed += _together(use, rows)
    return placed, len(free_from_s)


def _together(use: ServerUse, rows: list[int]) -> list[SlotRows]:
    """A use's rows, those beside each other as one part."""
    parts: list[SlotRows] = []
    for row in rows:
        if parts and parts[-1].first + parts[-1].n_rows == row:
            last = parts.pop()
            parts.append(last._replace(n_rows=last.n_rows + 1))
        else:
            parts.append(SlotRows(use, row, 1))
    return parts


@dataclass(frozen=True)
class ServerLanes:
    """The servers that are shown, by number, with their uses in rows.

    ``n_used``: servers that had a VM at all.
    """

    lanes: Mapping[int, tuple[Sequence[SlotRows], int]]
    n_used: int

    @property
    def uses(self) -> list[ServerUse]:
        """Uses of the servers that are shown, each once."""
        return list(
            dict.fromkeys(
                part.use
                for placed, _ in self.lanes.values()
                for part in placed
            )
        )


def server_lanes(uses: Sequence[ServerUse]) -> ServerLanes:
    """The busiest servers, as many as can be drawn; in the data centre's order."""
    by_server: dict[int, list[ServerUse]] = defaultdict(list)
    busy_s: dict[int, float] = defaultdict(float)
    for use in uses:
        by_server[use.server].append(use)
        busy_s[use.server] += use.n_slots * (use.end_s - use.start_s)
    lanes: dict[int, tuple[list[SlotRows], int]] = {}
    # The first that does not fit ends the choice: a smaller one behind it
    # is not the next busiest.
    n_bars = 0
    for server in sorted(by_server, key=lambda server: -busy_s[server]):
        placed, n_rows = in_rows(by_server[server])
        n_bars += len(placed)
        if len(lanes) == MAX_SERVERS or n_bars > MAX_BARS:
            break
        lanes[server] = (placed, n_rows)
    return ServerLanes(dict(sorted(lanes.items())), len(by_server))
