"""JSA's job scheduling problem (Section III) as a mixed-integer programme, for small cases.

The paper's variables, with products taken apart: z[j,i,t] says that job j starts in slot t with
its option i, which only counts when it ends by its deadline (Eqs. 1, 2, 4, 5, 10). VMs of a job are
alike, so that p[j,i,m] becomes the number x[j,m] of its VMs on machine m (Eqs. 3, 6). A job that is
not on time earns nothing and need not run at all: Eq. 4's "=" becomes "≤". The bandwidth of a link
in a slot is at least B·min(X, N-X) while the job runs (Eqs. 8, 9), by a binary that says which of
the two sides is taken, and a constant that switches the constraint off (docs/decisions/0436).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topologies.datacentre import DataCentre


@dataclass(frozen=True)
class SmallJob:
    """A job in slots of time: ``options`` are (bandwidth, slots), it must end by slot ``due``."""

    n_vms: int
    options: tuple[tuple[int, int], ...]
    due: int
    value: float


def best_reward(datacentre: DataCentre, jobs: Sequence[SmallJob], limit_s: float = 1800.0) -> float:
    """The greatest reward that any schedule has, by HiGHS. RuntimeError where it gives up."""
    programme = _Programme(datacentre, jobs)
    return programme.solve(limit_s)


class _Programme:
    """Columns and rows as they are gathered; one tree, its first."""

    def __init__(self, datacentre: DataCentre, jobs: Sequence[SmallJob]) -> None:
        self._reward: list[float] = []
        self._high: list[float] = []
        self._rows: list[dict[int, float]] = []
        self._most: list[float] = []
        self._least: list[float] = []
        self._horizon = max((job.due for job in jobs), default=0)
        self._slots: list[list[dict[int, float]]] = [
            [{} for _ in range(self._horizon)] for _ in range(datacentre.n_servers)
        ]
        self._links: dict[int, list[dict[int, float]]] = {}
        self._dc = datacentre
        for job in jobs:
            self._add(job)
        for server, slots in enumerate(self._slots):
            for row in slots:
                self._at_most(row, float(datacentre.slots[server]))
        for link, times in self._links.items():
            for row in times:
                self._at_most(row, float(datacentre.link_capacity_bps[link]))

    def solve(self, limit_s: float) -> float:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        if not self._reward:
            return 0.0
        entries = [(r, c, v) for r, row in enumerate(self._rows) for c, v in row.items()]
        rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
        shape = (len(self._rows), len(self._reward))
        matrix = coo_array((values, (rows, columns)), shape=shape).tocsr()
        found = milp(
            -np.array(self._reward),
            constraints=LinearConstraint(matrix, np.array(self._least), np.array(self._most)),
            integrality=np.ones(len(self._reward)),
            bounds=Bounds(0, np.array(self._high)),
            options={"time_limit": limit_s, "mip_rel_gap": 0.0},
        )
        if found.status != 0:
            raise RuntimeError(f"HiGHS: {found.message}")
        return float(-found.fun)

    def _add(self, job: SmallJob) -> None:
        starts = {
            (option, at): self._column(1.0, job.value)
            for option, (_, took) in enumerate(job.options)
            for at in range(job.due - took + 1)
        }
        if not starts:
            return
        self._at_most(dict.fromkeys(starts.values(), 1.0), 1.0)
        on = [self._column(float(job.n_vms)) for _ in range(self._dc.n_servers)]
        self._rows.append(dict.fromkeys(on, 1.0))
        self._least.append(float(job.n_vms))
        self._most.append(float(job.n_vms))
        running = [
            {
                option: [
                    column
                    for (chosen, start), column in starts.items()
                    if chosen == option and start <= now < start + took
                ]
                for option, (_, took) in enumerate(job.options)
            }
            for now in range(self._horizon)
        ]
        self._hold_slots(job, on, running)
        self._hold_links(job, on, running)

    def _hold_slots(
        self, job: SmallJob, on: list[int], running: list[dict[int, list[int]]]
    ) -> None:
        for server, placed in enumerate(on):
            for now, by_option in enumerate(running):
                active = [column for columns in by_option.values() for column in columns]
                if active:
                    held = self._column(float(job.n_vms))
                    # held ≥ placed - N·(1 - runs)
                    row = {placed: 1.0, held: -1.0} | dict.fromkeys(active, float(job.n_vms))
                    self._at_most(row, float(job.n_vms))
                    self._slots[server][now][held] = 1.0

    def _hold_links(
        self, job: SmallJob, on: list[int], running: list[dict[int, list[int]]]
    ) -> None:
        n = float(job.n_vms)
        for link, below in self._below().items():
            crossing, far = self._column(n), self._column(1.0)
            # crossing ≥ X where the near side is taken, ≥ N - X where the far one is.
            self._at_most({crossing: -1.0, far: -n} | {on[s]: 1.0 for s in below}, 0.0)
            self._at_most({crossing: -1.0, far: n} | {on[s]: -1.0 for s in below}, 0.0)
            times = self._links.setdefault(link, [{} for _ in range(self._horizon)])
            for now, by_option in enumerate(running):
                if not any(by_option.values()):
                    continue
                widest = n * job.options[-1][0]
                held = self._column(widest)
                for option, columns in by_option.items():
                    if columns:
                        rate = float(job.options[option][0])
                        row = {crossing: rate, held: -1.0} | dict.fromkeys(columns, n * rate)
                        self._at_most(row, n * rate)
                times[now][held] = 1.0

    def _below(self) -> dict[int, list[int]]:
        """Link -> the servers below it."""
        tree = self._dc.trees[0]
        found: dict[int, list[int]] = {}
        for server in range(self._dc.n_servers):
            for node in tree.path_to_root(server):
                link = int(tree.uplink[node])
                if link >= 0:
                    found.setdefault(link, []).append(server)
        return found

    def _column(self, high: float, reward: float = 0.0) -> int:
        self._reward.append(reward)
        self._high.append(high)
        return len(self._reward) - 1

    def _at_most(self, row: dict[int, float], most: float) -> None:
        if row:
            self._rows.append(row)
            self._least.append(-np.inf)
            self._most.append(most)
