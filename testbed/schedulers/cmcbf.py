"""CMCBF and AMCBF: CMBF in front, and whoever fits behind it (CMBF, Section 4.2, Algorithms 2–4).

Every node has a foreground and a background VM. In front jobs take nodes back from later ones as
in CMBF; AMCBF lets the first of all that are not in front alone do so. Jobs that have no place in
front run behind, where the foreground uses less than 96 % of the CPU, and come to the front when
they can. A job that must leave the front goes behind on the same nodes where their background VMs
are all idle (that costs nothing), and back into the queue otherwise.

Readings of the text are in docs/decisions/0422.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass

from testbed.schedulers.actions import (
    Action,
    Arrived,
    Ended,
    Migrate,
    PolicyEvent,
    Preempt,
    Reject,
    Start,
    SwitchTier,
    Tier,
    Wait,
)
from testbed.schedulers.cmbf import MIGRATION_COST_S, CmbfParameters, Entry, victims
from testbed.schedulers.policy import PolicyKind, View, parameter
from testbed.schedulers.slots import Slots
from testbed.schedulers.tiers import TwoTiers

THRESHOLD = 0.96
"""A foreground VM that uses as much leaves nothing for a background VM (Section 3)."""

CPU = ("known", "unknown")


class Cmcbf:
    """``head_only``: AMCBF. ``cpu``: ``unknown`` puts VMs behind any other, as if all were idle.

    ``cost_s``: what going on elsewhere costs a job, 20 s as published. The end of a foreground job
    costs O(waiting + running) and O(nodes) per job that moves; other events O(waiting + nodes).
    """

    def __init__(
        self,
        name: str = "cmcbf",
        *,
        head_only: bool = False,
        cpu: str = "known",
        cost_s: float = MIGRATION_COST_S,
    ) -> None:
        if cpu not in CPU:
            raise ValueError(f"cpu is one of {', '.join(CPU)}, not {cpu!r}")
        self.name = name
        self._head_only = head_only
        self._blind = cpu == "unknown"
        self._cost_s = cost_s
        self._nodes: TwoTiers | None = None
        # By order of arrival: who waits, who runs in front, who runs behind.
        self._queue: list[Entry] = []
        self._front: list[Entry] = []
        self._behind: list[Entry] = []
        self._entry: dict[str, Entry] = {}
        self._use: dict[str, tuple[float, ...]] = {}
        self._at: dict[str, list[int]] = {}
        self._began: set[str] = set()
        self._said: str | None = None
        # Who ended at this instant and where is known only when all of them are in.
        self._front_left = self._behind_left = False

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if self._nodes is None:
            self._nodes = TwoTiers(Slots(view.datacentre), THRESHOLD)
        if isinstance(event, Arrived):
            return self._arrive(view, self._nodes, event.job_id)
        if isinstance(event, Ended):
            self._leave(self._nodes, event.job_id)
            if not event.more_at_this_time:
                return self._after_ends(self._nodes)
        return []

    # -- events -------------------------------------------------------------------------------

    def _arrive(self, view: View, nodes: TwoTiers, job_id: str) -> list[Action]:
        """Algorithm 4."""
        job = view.job(job_id)
        wrong = nodes.slots.objection(job, any_bandwidth=True)
        if wrong is not None:
            return [Reject(job_id, wrong)]
        entry = (view.order(job_id), job_id, job.n_vms)
        self._entry[job_id] = entry
        self._use[job_id] = (0.0,) * job.n_vms if self._blind else job.cpu_uses
        out: list[Action] = []
        insort(self._queue, entry)
        if job.n_vms <= nodes.front.idle:
            self._to_front(nodes, entry, out)
        if self._behind_left:
            self._fill_behind(nodes, out, None)
        elif job_id not in self._at:
            self._fill_behind(nodes, out, entry)
        if job_id not in self._at:
            out.append(self._waits(nodes, entry))
        return out

    def _leave(self, nodes: TwoTiers, job_id: str) -> None:
        entry = self._entry.pop(job_id, None)
        if entry is None:
            return
        del self._use[job_id]
        self._began.discard(job_id)
        at = self._at.pop(job_id, None)
        if at is None:
            self._queue.remove(entry)
        elif _holds(self._front, entry):
            nodes.front.give_back(at)
            _remove(self._front, entry)
            self._front_left = True
        else:
            nodes.behind.give_back(at)
            _remove(self._behind, entry)
            self._behind_left = True

    def _after_ends(self, nodes: TwoTiers) -> list[Action]:
        out: list[Action] = []
        if self._front_left:
            self._front_left = False
            self._fill_front(nodes, out)
            # What came to the front or was sent away has left room behind.
            self._behind_left = True
        if self._behind_left:
            self._fill_behind(nodes, out, None)
        if self._queue and self._queue[0][1] != self._said:
            self._said = self._queue[0][1]
            out.append(self._waits(nodes, self._queue[0]))
        return out

    # -- Algorithm 2 --------------------------------------------------------------------------

    def _fill_front(self, nodes: TwoTiers, out: list[Action]) -> None:
        """Everybody who is not in front, in order of arrival: whoever can come to the front does.

        The order is looked up afresh at each step, as jobs go behind and into the queue meanwhile;
        they all arrived later than the one that sends them.
        """
        order, ahead, later = 0, 0, 0
        moved = True
        while (entry := self._next(order)) is not None:
            order, _, n = entry
            if moved:
                ahead, moved = bisect_right(self._front, entry), False
                later = sum(held for _, _, held in self._front[ahead:])
            while ahead < len(self._front) and self._front[ahead][0] < order:
                later -= self._front[ahead][2]
                ahead += 1
            may = not self._head_only or self._head() == entry
            idle = nodes.front.idle
            if idle + (later if may else 0) == 0:
                return
            if may and 0 < n - idle <= later:
                for victim in victims(self._front[ahead:], n - idle):
                    self._from_front(nodes, victim, entry, out)
            if n <= nodes.front.idle:
                self._to_front(nodes, entry, out)
                moved = True

    def _next(self, order: int) -> Entry | None:
        """The first of those who are not in front that arrived after number ``order``."""
        key: Entry = (order + 1, "", 0)
        a, b = bisect_left(self._queue, key), bisect_left(self._behind, key)
        left = [*self._queue[a : a + 1], *self._behind[b : b + 1]]
        return min(left, default=None)

    def _head(self) -> Entry | None:
        return min([*self._queue[:1], *self._behind[:1]], default=None)

    def _from_front(self, nodes: TwoTiers, entry: Entry, winner: Entry, out: list[Action]) -> None:
        """A job gives its nodes to one that arrived earlier: behind, or back into the queue."""
        job_id = entry[1]
        at = self._at[job_id]
        nodes.front.give_back(at)
        _remove(self._front, entry)
        if all(nodes.behind.who[slot] is None for slot in at):
            nodes.behind.take(job_id, at, self._use[job_id])
            insort(self._behind, entry)
            out.append(SwitchTier(job_id, "background"))
        else:
            del self._at[job_id]
            insort(self._queue, entry)
            out.append(
                Preempt(job_id, f"{winner[1]} arrived earlier and needs {winner[2]} nodes in front")
            )

    # -- dispatching --------------------------------------------------------------------------

    def _to_front(self, nodes: TwoTiers, entry: Entry, out: list[Action]) -> None:
        """``dispatch(FG, j)``, from the queue or from behind."""
        _, job_id, n = entry
        use = self._use[job_id]
        came_from = self._at.get(job_id)
        if came_from is None:
            _remove(self._queue, entry)
        else:
            nodes.behind.give_back(came_from)
            _remove(self._behind, entry)
            self._behind_left = True
        stays = came_from is not None and all(nodes.front.who[slot] is None for slot in came_from)
        if came_from is not None and stays:
            at = came_from
            out.append(SwitchTier(job_id, "foreground"))
        else:
            at = nodes.match(use, nodes.idle_in_front()[:n])
            self._clear_behind(nodes, entry, at, out)
            out.append(self._go_on(nodes, job_id, at, behind=False, why="comes to the front"))
        nodes.front.take(job_id, at, use)
        insort(self._front, entry)
        self._at[job_id] = at

    def _clear_behind(
        self, nodes: TwoTiers, entry: Entry, at: list[int], out: list[Action]
    ) -> None:
        """Whoever would be behind a process that leaves it nothing goes back into the queue."""
        use = self._use[entry[1]]
        for slot, share in zip(at, use, strict=True):
            loser = nodes.behind.who[slot]
            if loser is None or share < nodes.threshold:
                continue
            nodes.behind.give_back(self._at.pop(loser))
            _remove(self._behind, self._entry[loser])
            insort(self._queue, self._entry[loser])
            self._behind_left = True
            out.append(Preempt(loser, f"{entry[1]} in front of it uses {share:.0%} of a CPU"))

    def _fill_behind(self, nodes: TwoTiers, out: list[Action], only: Entry | None) -> None:
        """Algorithm 3: whoever waits and fits behind goes there; ``only``: nobody else can."""
        self._behind_left = False
        waiting = list(self._queue) if only is None else [only]
        room = nodes.open_behind() if waiting else []
        for entry in waiting:
            _, job_id, n = entry
            if not room:
                return
            if n > len(room) or job_id in self._at:
                continue
            at = nodes.match(self._use[job_id], room[:n])
            _remove(self._queue, entry)
            out.append(self._go_on(nodes, job_id, at, behind=True, why="fits behind others"))
            nodes.behind.take(job_id, at, self._use[job_id])
            insort(self._behind, entry)
            self._at[job_id] = at
            del room[:n]

    def _go_on(
        self, nodes: TwoTiers, job_id: str, at: list[int], *, behind: bool, why: str
    ) -> Action:
        placement = nodes.slots.placement_of(at)
        tier: Tier = "background" if behind else "foreground"
        if job_id in self._began:
            return Migrate(job_id, placement, why, self._cost_s, tier)
        self._began.add(job_id)
        return Start(job_id, placement, 0, tier=tier)

    # -- why others wait ----------------------------------------------------------------------

    def _waits(self, nodes: TwoTiers, entry: Entry) -> Wait:
        order, job_id, n = entry
        later = sum(m for at, _, m in self._front if at > order)
        reason = (
            f"{n} nodes asked; in front {nodes.front.idle} idle, {later} held by jobs that came"
            f" later; behind {len(nodes.open_behind())} to be had"
        )
        if entry == self._queue[0]:
            holders = tuple(name for at, name, _ in self._front if at < order)
            return Wait(job_id, f"first in the queue: {reason}", holders)
        return Wait(job_id, reason, (self._queue[0][1],))


def _holds(entries: list[Entry], entry: Entry) -> bool:
    place = bisect_left(entries, entry)
    return place < len(entries) and entries[place] == entry


def _remove(entries: list[Entry], entry: Entry) -> None:
    del entries[bisect_left(entries, entry)]


@dataclass(frozen=True)
class CmcbfParameters(CmbfParameters):
    cpu: str = parameter(CPU[0], "CPU use of the VMs, to match by", choices=CPU)


def _kind(name: str, summary: str, *, head_only: bool) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda _, given: Cmcbf(
            name, head_only=head_only, cpu=given.cpu, cost_s=given.migration_cost_s
        ),
        CmcbfParameters,
    )


POLICIES = (
    _kind("cmcbf", "CMCBF: CMBF with background VMs on every node", head_only=False),
    _kind("amcbf", "AMCBF: AMBF with background VMs on every node", head_only=True),
)
