"""Two VMs on a node: what a foreground process loses to a background one, and
what that one gets.

The interference model of CMBF (Sections 3 and 5.1), with rates that stay the
same from one event to the next in place of time slices (docs/decisions/29):

- a foreground process beside a background VM advances at ``1 - loss``, with a ``loss`` uniform in
  0..3.7 %;
- a background process advances at ``eff · min(1, idle/need)``, where ``idle`` is what the
  foreground leaves of the node's CPU (at least 4 %) and ``need`` what it uses when alone; at full
  speed where the foreground VM is empty;
- a job advances with its slowest process.

``loss`` and ``eff`` are drawn once per process, from streams named after the
job: they are the same under every policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jobs.interference import Interference
from jobs.request import JobRequest
from testbed.embedding.placement import Placement
from testbed.schedulers.actions import Tier


@dataclass
class _Resident:
    """A job on the nodes: ``at[p]`` and ``use[p]`` are process p's server and
    CPU use.
    """

    job: JobRequest
    tier: Tier
    at: list[int]
    use: tuple[float, ...]
    cpus: float
    losses: list[float] | None = None
    effs: list[float] | None = None


@dataclass(slots=True)
class _Node:
    """The jobs on a server in each tier, and the sum of the CPU that each uses
    there when alone.

    ``share``: what background processes get of the CPU that they need, at most
    1.
    """

    cpus: int
    foreground: dict[str, float] = field(default_factory=dict)
    background: dict[str, float] = field(default_factory=dict)
    share: float = 1.0

    def share_out(self, idle_min: float) -> None:
        """Recomputes ``share`` after a job came or went."""
        if self.background:
            left = self.cpus - sum(self.foreground.values())
            idle = max(self.cpus * idle_min, left)
            self.share = min(1.0, idle / sum(self.background.values()))


class TwoTiers:
    """All jobs on their nodes, and the speed at which each of them advances."""

    def __init__(
        self,
        cpus: Iterable[int],
        interference: Interference,
        seed: int,
    ) -> None:
        self._interference = interference
        self._seed = seed
        self._residents: dict[str, _Resident] = {}
        self._nodes = list(map(_Node, cpus))

    def enter(
        self,
        job: JobRequest,
        placement: Placement,
        tier: Tier,
    ) -> set[str]:
        """Adds a job; returns the other jobs whose speed may change by it."""
        use = job.cpu_uses
        resident = _Resident(
            job,
            tier,
            at=servers_of_processes(placement),
            use=use,
            cpus=sum(use),
        )
        self._residents[job.id] = resident
        return self._change(resident, comes=True)

    def leave(self, job_id: str) -> set[str]:
        """Removes a job; returns the other jobs whose speed may change by it."""
        return self._change(self._residents.pop(job_id), comes=False)

    def _change(
        self,
        resident: _Resident,
        *,
        comes: bool,
    ) -> set[str]:
        job_id = resident.job.id
        background = resident.tier == "background"
        touched: set[str] = set()
        for server, share in zip(resident.at, resident.use, strict=True):
            node = self._nodes[server]
            tier = node.background if background else node.foreground
            if comes:
                tier[job_id] = tier.get(job_id, 0.0) + share
            else:
                # Its other processes on this node went with the first.
                tier.pop(job_id, None)
            node.share_out(self._interference.idle_min)
            # Those in the background share what the foreground leaves. A job
            # in the foreground loses only to those behind it.
            touched.update(node.background)
            if background:
                touched.update(node.foreground)
        touched.discard(job_id)
        return touched

    def pace(self, job_id: str) -> tuple[float, float]:
        """The share of its own speed at which a job advances, and the CPUs it
        keeps busy.
        """
        resident = self._residents[job_id]
        if resident.tier == "foreground":
            return self._foreground_speed(resident), resident.cpus
        if resident.effs is None:
            resident.effs = self._interference.effs(
                resident.job, self._seed
            )
        slowest = 1.0
        cpus = 0.0
        for server, use, eff in zip(
            resident.at, resident.use, resident.effs, strict=True
        ):
            node = self._nodes[server]
            # Without a foreground nothing interferes.
            speed = eff * node.share if node.foreground else node.share
            slowest = min(slowest, speed)
            cpus += use * node.share
        return slowest, cpus

    def _foreground_speed(self, resident: _Resident) -> float:
        """Share of its own speed that the background leaves to a job."""
        crowded = []
        for process, server in enumerate(resident.at):
            if self._nodes[server].background:
                crowded.append(process)
        if not crowded:
            return 1.0
        if resident.losses is None:
            resident.losses = self._interference.losses(
                resident.job, self._seed
            )
        losses = resident.losses
        return 1.0 - max([losses[process] for process in crowded])


def servers_of_processes(placement: Placement) -> list[int]:
    """The server of each process: in the order of the servers, or of the
    placement.
    """
    servers: list[int] = []
    for server, count in placement.vms_on:
        servers += [server] * count
    if not placement.processes:
        return servers
    at = [0] * len(servers)
    for server, process in zip(servers, placement.processes, strict=True):
        at[process] = server
    return at
