"""``vmplace`` for jobs of 100 VMs, in data centres that JSA has filled, 1,600
and 8,000 machines.

A state is what was free when a round of a JSA run began, where that were 100
slots or more: fewer are refused at a glance. The job asks for 10 to 200 Mbit/s
per VM.
"""

from __future__ import annotations

import math
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.embed_states import best_ms, timings_row
from bench.own_process import measured
from bench.samples import Result
from reproductions.configuration import Variant, settings
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Placement, Residual
from testbed.engine.engine import Engine
from testbed.schedulers.actions import Action, PolicyEvent, Woken
from testbed.schedulers.jsa import JSA
from testbed.schedulers.policy import View
from testbed.spec.experiment import Experiment
from topologies.datacentre import IntArray

SIZES = {1_600: ((2, 20, 40), 1.0), 8_000: ((2, 100, 40), 5.0)}
"""Machines; fan-out and limit in ms."""

N_VMS = 100
RATES_BPS = (10_000_000, 25_000_000, 50_000_000, 100_000_000, 200_000_000)
MOST_STATES = 200


class _Noted(JSA):
    """JSA whose residual at the beginning of each round is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[IntArray, IntArray]] = []

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        free = view.residual(view.now_s, None)
        roomy = int(free.free_slots.sum()) >= N_VMS
        if isinstance(event, Woken) and view.running() and roomy:
            self.seen.append((free.free_slots.copy(), free.free_bps.copy()))
        return super().decide(view, event)


def _experiment(fanout: tuple[int, int, int], jobs: int) -> Experiment:
    """JSA's simulations with another fan-out."""
    values = (("topology.fanout", str(list(fanout))), *settings(jobs=jobs))
    return Variant("jsa/jsa-simulations.yaml", "jsa", values).experiment(1)


def take(machines: int, path: str) -> int:
    """Play a run of as many jobs as fill the data centre, and save the states
    it met.
    """
    fanout = SIZES[machines][0]
    experiment = _experiment(fanout, jobs=2500 * machines // 1600)
    noted = _Noted()
    Engine(
        datacentre=experiment.datacentre,
        jobs=experiment.jobs,
        policy=noted,
        backend=SimulatedBackend(),
        sink=lambda _: None,
    ).run()
    # Evenly over the run: the data centre fills up in its course.
    step = math.ceil(len(noted.seen) / MOST_STATES)
    slots, bps = zip(*noted.seen[::step], strict=True)
    np.savez(path, slots=np.stack(slots), bps=np.stack(bps))
    return len(slots)


def embed_all(machines: int, path: str, repeats: int) -> dict[str, Any]:
    """Milliseconds in every state, the best of ``repeats``."""
    saved = np.load(path)
    datacentre = _experiment(SIZES[machines][0], jobs=2500).datacentre
    chosen = embedder("vmplace")
    took_ms = []
    placed = 0
    for slots, bps, rate_bps in zip(
        saved["slots"], saved["bps"], cycle(RATES_BPS), strict=False
    ):
        asked = (datacentre, Residual(slots, bps), N_VMS, rate_bps)
        took_ms.append(best_ms(chosen, asked, repeats))
        placed += isinstance(chosen.embed(*asked), Placement)
    free_slots = float(saved["slots"].sum(axis=1).mean())
    used = 1.0 - free_slots / datacentre.total_slots
    return {"ms": took_ms, "placed": placed, "slots_used": round(used, 3)}


def run(quick: bool) -> list[Result]:
    """Both sizes; ``quick`` the smaller one alone, once in every state."""
    sizes = list(SIZES)
    repeats = 3
    if quick:
        sizes = [1_600]
        repeats = 1
    rows = []
    with TemporaryDirectory() as folder:
        for machines in sizes:
            path = str(Path(folder, f"{machines}.npz"))
            measured(take, {"machines": machines, "path": path})
            asking = {
                "machines": machines,
                "path": path,
                "repeats": repeats,
            }
            timings = measured(embed_all, asking).returned
            name = f"{machines:,} machines, N={N_VMS}"
            rows.append(timings_row(name, timings, SIZES[machines][1]))
    return rows
