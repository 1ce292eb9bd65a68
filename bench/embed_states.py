"""Loaded data centres to embed in: what was free when jobs arrived in default
runs.

Every state is one that a run came to: the residual in which an arriving job was
to be placed, and that job's ⟨n, b⟩. Under VC that is what is free for good,
under DCloud what is free as long as the job would run if it started at once.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from bench.dcloud_setting import Setting
from bench.own_process import measured
from bench.samples import Result, summary
from jobs.request import JobRequest
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Embedder, Placement, Residual
from testbed.engine.engine import Engine
from testbed.schedulers.actions import Action, Arrived, PolicyEvent
from testbed.schedulers.dcloud import DCloud
from testbed.schedulers.policy import Policy, View
from testbed.schedulers.vc import VirtualCluster
from topologies.datacentre import DataCentre, IntArray

RUNS = {
    "8,000 servers, VC's states": ("vc", 8_000, 6.0, 4.0),
    "8,000 servers, DCloud's states": ("dcloud", 8_000, 6.0, 4.0),
    "100,000 servers, VC's states": ("vc", 100_000, 4.0, 3.9),
}
"""Policy, servers, hours to play, and the hour from which on states are taken.
"""

QUICK_HOURS = {"hours": 0.5, "since_hours": 0.4}
"""Of the large run with ``quick``."""

MOST_STATES = 200


class States(NamedTuple):
    """Free slots, shape (states, servers); free bandwidth, shape (states,
    links); and ⟨n, b⟩ of the job, shape (states,) each.
    """

    slots: IntArray
    bps: IntArray
    n_vms: IntArray
    rate_bps: IntArray


class _Noted:
    """A policy whose residual at each arrival is written down."""

    def __init__(self, policy: Policy, since_s: float) -> None:
        self.name = policy.name
        self._policy = policy
        self._since_s = since_s
        self.seen: list[tuple[IntArray, IntArray, int, int]] = []

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Arrived) and view.now_s >= self._since_s:
            self._note(view, view.job(event.job_id))
        return self._policy.decide(view, event)

    def _note(self, view: View, job: JobRequest) -> None:
        # VC reserves for good; DCloud for the job's time, and some more.
        end_s = None
        if self.name == "dcloud":
            end_s = view.now_s + 1.12 * job.duration_s
        free = view.residual(view.now_s, end_s)
        # Upward alone: in these trees both directions are alike.
        links = free.free_bps[::2].copy()
        self.seen.append(
            (free.free_slots.copy(), links, job.n_vms, job.bandwidth_bps)
        )


def take(
    policy: str, servers: int, hours: float, since_hours: float, path: str
) -> int:
    """Play a default run and save the states it met; how many."""
    kinds = {"vc": VirtualCluster, "dcloud": DCloud}
    chosen = kinds[policy](embedder("oktopus"))
    noted = _Noted(chosen, 3600.0 * since_hours)
    setting = Setting(servers, hours)
    Engine(
        datacentre=setting.datacentre(),
        jobs=setting.jobs(),
        policy=noted,
        backend=SimulatedBackend(),
        sink=lambda _: None,
    ).run()
    # Evenly over the run: the data centre fills up in its course.
    step = math.ceil(len(noted.seen) / MOST_STATES)
    slots, bps, n_vms, rate = zip(*noted.seen[::step], strict=True)
    np.savez(
        path,
        slots=np.stack(slots),
        bps=np.stack(bps),
        n_vms=n_vms,
        rate_bps=rate,
    )
    return len(slots)


Question = tuple[DataCentre, Residual, int, int]


def best_ms(chosen: Embedder, asked: Question, repeats: int) -> float:
    """The shortest time of some embeddings, in ms: other processes only add to
    it.
    """
    took_s = []
    for _ in range(repeats):
        began = time.perf_counter()
        chosen.embed(*asked)
        took_s.append(time.perf_counter() - began)
    return 1e3 * min(took_s)


def embed_all(
    name: str, servers: int, path: str, repeats: int
) -> dict[str, object]:
    """Times of the named embedder in every state, in ms, the best of
    ``repeats``.
    """
    saved = np.load(path)
    states = States(*(saved[key] for key in States._fields))
    datacentre = Setting(servers).datacentre()
    chosen = embedder(name)
    took_ms: list[float] = []
    placed = 0
    for slots, bps, n_vms, rate in zip(*states, strict=True):
        residual = Residual(slots, np.repeat(bps, 2))
        asked = (datacentre, residual, int(n_vms), int(rate))
        # Not timed: the first call may find caches cold.
        placed += isinstance(chosen.embed(*asked), Placement)
        took_ms.append(best_ms(chosen, asked, repeats))
    free_slots = float(states.slots.sum(axis=1).mean())
    used = 1.0 - free_slots / datacentre.total_slots
    return {"ms": took_ms, "placed": placed, "slots_used": round(used, 3)}


def run(
    name: str, limits_ms: dict[int, float], *, quick: bool
) -> list[Result]:
    """The embedder in every run's states."""
    repeats = 3
    if quick:
        repeats = 1
    rows: list[Result] = []
    with TemporaryDirectory() as folder:
        for title, (policy, servers, hours, since_hours) in RUNS.items():
            path = str(Path(folder, f"{policy}-{servers}.npz"))
            taking: dict[str, Any] = {
                "policy": policy,
                "servers": servers,
                "hours": hours,
                "since_hours": since_hours,
                "path": path,
            }
            if quick and servers > 8_000:
                taking |= QUICK_HOURS
            measured(take, taking)
            asking = {
                "name": name,
                "servers": servers,
                "path": path,
                "repeats": repeats,
            }
            timings = measured(embed_all, asking).returned
            rows.append(timings_row(title, timings, limits_ms[servers]))
    return rows


def timings_row(
    name: str, timings: dict[str, object], limit_ms: float
) -> Result:
    """A row of times in ms, with the jobs placed and the slots in use beside
    it. Raises TypeError.
    """
    samples = timings["ms"]
    if not isinstance(samples, list):
        raise TypeError("a measurement returned no list")
    return Result(
        name,
        "ms",
        samples=tuple(samples),
        target=f"median at most {limit_ms:g} ms",
        meets=summary(samples)["median"] <= limit_ms,
        extra={
            "placed": timings["placed"],
            "slots_used": timings["slots_used"],
        },
    )
