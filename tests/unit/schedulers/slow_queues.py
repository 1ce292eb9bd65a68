"""FCFS, SBF, SDF, BgMBF and BgMBF-SDF once more: slow, obvious, and with an event loop of its own.

Nothing is shared with the engine or the policies but the embedder that is handed in. What is free
is added up anew each time from who runs where. Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.request import JobRequest
from testbed.embedding.exact import Exact
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Residual,
    empty_residual,
    hose_bps,
    tree_of,
)
from topologies.datacentre import DataCentre


@dataclass
class Run:
    """One job's life: when it got nodes and left them, and how it ended."""

    left_s: int
    placement: Placement | None = None
    since: int = 0
    stints: list[tuple[int, int]] = field(default_factory=list)
    rejected: bool = False


class Slow:
    """One run; ``play`` plays it."""

    def __init__(
        self, dc: DataCentre, policy: str, embedder: Embedder, *, skip: bool
    ) -> None:
        self.dc, self.policy, self.embedder, self.skip = (
            dc,
            policy,
            embedder,
            skip,
        )
        self.queue: list[JobRequest] = []
        self.arrived: list[JobRequest] = []
        self.runs: dict[str, Run] = {}

    def running(self) -> list[JobRequest]:
        return [
            job
            for job in self.arrived
            if self.runs[job.id].placement is not None
        ]

    def end_of(self, job: JobRequest) -> int:
        return self.runs[job.id].since + self.runs[job.id].left_s

    def free(self, without: list[JobRequest]) -> Residual:
        residual = empty_residual(self.dc)
        for job in self.running():
            placement = self.runs[job.id].placement
            if job in without or placement is None:
                continue
            for server, count in placement.vms_on:
                residual.free_slots[server] -= count
            need = hose_bps(
                tree_of(self.dc, placement.root),
                placement,
                job.bandwidth_bps,
            )
            for link, bps in need.items():
                residual.free_bps[link] -= bps
        return residual

    def embed(
        self, job: JobRequest, residual: Residual
    ) -> Placement | None:
        largest = max(each.bandwidth_bps for each in self.arrived)
        answer = self.embedder.embed(
            self.dc,
            residual,
            job.n_vms,
            job.bandwidth_bps,
            largest_bps=largest,
        )
        return answer if isinstance(answer, Placement) else None

    def place(self, job: JobRequest) -> Placement | None:
        placement = self.embed(job, self.free([]))
        if placement is None and not self.running():
            # AdaBa's order may change while a job waits; alone, any placement serves.
            least = Exact().embed(
                self.dc, self.free([]), job.n_vms, job.bandwidth_bps
            )
            assert isinstance(least, Placement)
            return least
        return placement

    def start(
        self, job: JobRequest, placement: Placement, now: int
    ) -> None:
        self.runs[job.id].placement, self.runs[job.id].since = (
            placement,
            now,
        )
        self.queue.remove(job)

    def stop(self, job: JobRequest, now: int) -> None:
        run = self.runs[job.id]
        run.stints.append((run.since, now))
        run.left_s -= now - run.since
        run.placement = None

    def one_pass(self, now: int) -> None:
        rank: dict[str, Callable[[JobRequest], float]] = {
            "fcfs": lambda _: 0.0,
            "sbf": lambda job: job.bandwidth_bps,
            "sdf": lambda job: job.duration_s,
        }
        if self.policy in rank:
            self.blocking(now, rank[self.policy])
        else:
            self.algorithm_2(now)

    def blocking(
        self, now: int, rank: Callable[[JobRequest], float]
    ) -> None:
        for job in sorted(
            self.queue, key=lambda j: (rank(j), self.arrived.index(j))
        ):
            placement = self.place(job)
            if placement is not None:
                self.start(job, placement, now)
            elif not self.skip:
                return

    def algorithm_2(self, now: int) -> None:
        arrival = self.arrived.index
        head = None
        while self.queue:
            self.queue.sort(key=arrival)
            head = self.queue[0]
            placement = self.place(head)
            if placement is None:
                later = [
                    job
                    for job in self.running()
                    if arrival(job) > arrival(head)
                ]
                placement = self.embed(head, self.free(later))
                if placement is None:
                    break
                for job in later:
                    self.stop(job, now)
                    self.queue.append(job)
            self.start(head, placement, now)
        behind = [job for job in self.queue if job is not head]
        if self.policy == "bgmbf-sdf":
            behind.sort(key=lambda job: (job.duration_s, arrival(job)))
        for job in behind:
            placement = self.place(job)
            if placement is not None:
                self.start(job, placement, now)

    def play(self, jobs: list[JobRequest]) -> dict[str, Run]:
        coming = sorted(jobs, key=lambda job: (job.submit_s, job.id))
        while coming or self.running():
            ends = [self.end_of(job) for job in self.running()]
            now = min([*ends, *(int(job.submit_s) for job in coming[:1])])
            over = [
                job for job in self.running() if self.end_of(job) == now
            ]
            for job in over:
                self.stop(job, now)
            if over:
                self.one_pass(now)
            while coming and coming[0].submit_s == now:
                self.arrive(coming.pop(0), now)
        return self.runs

    def arrive(self, job: JobRequest, now: int) -> None:
        self.arrived.append(job)
        self.runs[job.id] = Run(int(job.duration_s))
        if self.embed(job, empty_residual(self.dc)) is None:
            self.runs[job.id].rejected = True
        else:
            self.queue.append(job)
            self.one_pass(now)
