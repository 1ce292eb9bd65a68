"""VM slots of servers over time, by job and CPU tier, from a run's events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from testbed import events
from testbed.record.job_lives import JobLife, JobLives, Links

MAX_JOBS = 5_000
"""More jobs would be bars that nobody can tell apart."""
MAX_SERVERS = 40
MAX_BARS = 1_500
MAX_ROWS = 64
"""Rows of a job on a server; more could not be told apart."""
UseEnd = Literal["ended", "preempted", "moved", "tier", "failed", "open"]
"""Why a job leaves a server's slots. ``tier``: it stays there in another tier;
``open``: it is there at the last event.
"""
_ENDS: dict[type[events.Event], UseEnd] = {
    events.JobEnded: "ended",
    events.JobPreempted: "preempted",
    events.JobMigrated: "moved",
    events.JobTierSwitched: "tier",
    events.JobRequeued: "failed",
}


class ServerUse(NamedTuple):
    """Slots of one server that a job's VMs take without a break."""

    job_id: str
    server: int
    n_slots: int
    tier: str
    start_s: float
    end_s: float
    end: UseEnd


class _Placed(NamedTuple):
    """VMs of a running job: since when, where, in which tier."""

    since_s: float
    vms_on: Links
    tier: str
    cores: int


class ServerUses:
    """Takes a run's events one by one. O(servers of the job) for those that
    place one.
    """

    def __init__(self) -> None:
        self.closed: list[ServerUse] = []
        self._placed: dict[str, _Placed] = {}

    def follow(self, event: events.Event, life: JobLife) -> None:
        """Takes in an event of the job whose life is as of after it."""
        placed = self._placed.get(life.job_id)
        holds = life.hold is not None
        same = (
            holds
            and placed is not None
            and placed.vms_on == life.vms_on
            and placed.tier == life.tier
        )
        # Most of a job's events move no VM.
        if same:
            return
        if placed is not None:
            del self._placed[life.job_id]
            end = _ENDS.get(type(event), "ended")
            self.closed += _uses(life.job_id, placed, event.t, end)
        if holds:
            cores = int(life.request.get("cores", 1))
            self._placed[life.job_id] = _Placed(
                event.t, life.vms_on, life.tier, cores
            )

    def until(self, now_s: float) -> list[ServerUse]:
        """All of them; open ones end now."""
        uses = list(self.closed)
        for job_id, placed in self._placed.items():
            uses += _uses(job_id, placed, now_s, "open")
        return uses


def _uses(
    job_id: str, placed: _Placed, end_s: float, end: UseEnd
) -> Iterable[ServerUse]:
    # A job that leaves at the instant at which it came would be a bar
    # without a width.
    if end_s <= placed.since_s:
        return
    for server, n_vms in placed.vms_on:
        yield ServerUse(
            job_id,
            server,
            n_vms * placed.cores,
            placed.tier,
            placed.since_s,
            end_s,
            end,
        )


def server_uses(stream: Iterable[events.Event]) -> list[ServerUse]:
    """The uses of a whole stream."""
    lives = JobLives()
    uses = ServerUses()
    for event in stream:
        life = lives.follow(event)
        if life is not None:
            uses.follow(event, life)
    return uses.until(lives.now_s)


class SlotRows(NamedTuple):
    """A use in the rows of its server, ``n_rows`` of them together from
    ``first`` on.
    """

    use: ServerUse
    first: int
    n_rows: int


def in_rows(uses: Iterable[ServerUse]) -> tuple[list[SlotRows], int]:
    """Uses of one server in rows of a slot each, the lowest free ones first;
    how many rows there are.

    Jobs of the background tier stand in rows of their own, though they take no
    slot.
    """
    free_from_s: list[float] = []
    placed = []
    for use in sorted(uses, key=_by_start):
        rows: list[int] = []
        n_wanted = min(use.n_slots, MAX_ROWS)
        for row, free_s in enumerate(free_from_s):
            # Free at the very instant at which its use ends: the next one
            # may begin then.
            if free_s <= use.start_s and len(rows) < n_wanted:
                rows.append(row)
        while len(rows) < n_wanted:
            rows.append(len(free_from_s))
            free_from_s.append(0.0)
        for row in rows:
            free_from_s[row] = use.end_s
        placed += _together(use, rows)
    return placed, len(free_from_s)


def _by_start(use: ServerUse) -> tuple[float, str]:
    return use.start_s, use.job_id


def _together(use: ServerUse, rows: list[int]) -> list[SlotRows]:
    """Rows that lie beside each other as one."""
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
        uses: dict[ServerUse, None] = {}
        for placed, _ in self.lanes.values():
            for part in placed:
                uses[part.use] = None
        return list(uses)


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
