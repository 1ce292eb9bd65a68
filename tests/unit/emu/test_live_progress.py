"""Progress events of live jobs: none of one that is frozen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jobs.live.agent_protocol import Progress
from jobs.live.compute import ComputePlan
from testbed import events
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.live_job import LiveJob
from testbed.spec.experiment import Scale
from tests.unit.emu.test_live_job import a_job


def running() -> LiveJob:
    live = a_job()
    live.plans = (ComputePlan(0, 1.0, 1.0),)
    live.agents, live.volume_bytes = ("job.0",), 1000
    live.begin(0, 0)
    return live


def heard(live: LiveJob) -> list[events.Event]:
    """Events recorded when an agent of a running or preempted job reports its progress."""
    emulation: Any = SimpleNamespace(plan=SimpleNamespace(slots_of_server={}))
    recorded: list[events.Event] = []
    backend = LiveBackend(emulation, Scale(), 1, recorded.append)
    backend._jobs["job"] = backend._owner["job.0"] = live
    backend._emitting = True  # while others are brought in, too
    backend._receive("job.0", Progress(0, 1, 500, 500, 0.0))
    return recorded


def test_a_job_that_runs_is_heard_of() -> None:
    live = running()
    (recorded,) = heard(live)
    assert isinstance(recorded, events.JobProgress)
    assert (recorded.job_id, recorded.received_bytes, recorded.share) == ("job", 500, 0.5)


def test_progress_before_a_preemption_is_counted_and_not_reported() -> None:
    live = running()
    live.pause(1)
    assert heard(live) == []
    assert live.received_bytes == 500
