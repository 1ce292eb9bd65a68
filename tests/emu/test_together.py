"""Nodes without a network, live: what ends together, and what VMs of several cores burn."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.demand import Lease
from jobs.request import JobRequest
from testbed.schedulers.actions import Start
from testbed.spec.experiment import Scale
from tests.support.scripted_run import (
    ScriptedPolicy,
    ended,
    on,
    play,
    small_emulation,
)
from topologies.flat import flat

CLUSTER = 2  # the notional switch of two servers


def burner(name: str, duration_s: float, cores: int = 1) -> JobRequest:
    return JobRequest(
        name, 0.0, 1, 0, duration_s, demand=Lease(cores=cores)
    )


def test_jobs_that_end_within_an_instant_have_ended_together(
    prefix: str, tmp_path: Path
) -> None:
    scale = Scale(cpu=0.1, instant_s=2.0)
    where = {"one": 0, "other": 1, "long": 1}
    scripted = ScriptedPolicy(
        {
            name: lambda _, name=name, server=server: [
                Start(name, on(CLUSTER, (server, 1)), 0)
            ]
            for name, server in where.items()
        }  # type: ignore[misc]
    )
    jobs = [
        burner("one", 1.5),
        burner("other", 2.0),
        burner("long", 8.0, cores=2),
    ]
    with small_emulation(flat(2, 3), prefix, tmp_path, scale) as emulation:
        histories = play(emulation, jobs, scripted, scale)
    one, other, long = (ended(histories[job.id]) for job in jobs)
    assert one.outcome == other.outcome == long.outcome == "finished"
    # Half a second apart they are told as one end, at the time of the later; the third is not.
    assert one.t == other.t < long.t
    assert (one.measured_s or 0.0) < (other.measured_s or 0.0)
    burnt = [end.detail["cpu_s_raw"] for end in (one, other, long)]
    assert burnt == pytest.approx([0.15, 0.2, 1.6], rel=0.1)
