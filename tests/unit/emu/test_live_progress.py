"""Progress events of live jobs: none of one that is frozen."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.demand import Iperf3
from jobs.live.agent_protocol import (
    AgentProgress,
    AgentReport,
    ReceivedPayload,
)
from jobs.live.compute import ComputePlan
from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.live_job import LiveJob
from testbed.embedding.placement import Placement
from testbed.spec.experiment import Scale
from tests.support.fake_emulation import FakeEmulation
from tests.unit.emu.test_live_job import a_job
from topologies.tree import tree


def running() -> LiveJob:
    live = a_job()
    live.plans = (ComputePlan(0, 1.0, 1.0),)
    live.agents, live.volume_bytes = ("job.0",), 1000
    live.begin(0, 0)
    return live


def heard(live: LiveJob) -> list[events.Event]:
    """Events recorded when an agent of a running or preempted job reports its progress."""
    progress = AgentProgress(0, 1, 500, 500, 0.0)
    emulation: Any = SimpleNamespace(
        plan=SimpleNamespace(slots_of_server={}, slots=()),
        agents=SimpleNamespace(poll=lambda _: [("job.0", progress)]),
        check=lambda: None,
    )
    recorded: list[events.Event] = []
    backend = LiveBackend(emulation, Scale(), 1, recorded.append)
    backend._jobs["job"] = backend._owner["job.0"] = live
    backend._emitting = True  # while others are brought in, too
    backend._listen(0.0)
    return recorded


def test_a_job_that_runs_is_heard_of() -> None:
    live = running()
    (recorded,) = heard(live)
    assert isinstance(recorded, events.JobProgress)
    assert (recorded.job_id, recorded.received_bytes, recorded.share) == (
        "job",
        500,
        0.5,
    )


def test_progress_before_a_preemption_is_counted_and_not_reported() -> None:
    live = running()
    live.pause(1)
    assert heard(live) == []
    assert live.received_bytes == 500


def test_of_a_silent_job_nothing_is_recorded_again() -> None:
    live = running()
    live.begin(time.monotonic_ns(), time.monotonic_ns())
    emulation: Any = FakeEmulation(tree([4], [10**9], 2))
    recorded: list[events.Event] = []
    backend = LiveBackend(emulation, Scale(), 1, recorded.append)
    backend._jobs["job"] = backend._owner["job.0"] = live
    backend._emitting = True
    backend._listen(0.0)
    assert recorded == []  # it has begun, and said nothing yet


def progress_every_s(servers: int, slots: int, scale: Scale) -> float:
    """The interval at which the agents of a network are asked to report their progress."""
    fake = FakeEmulation(tree([servers], [10**9], slots))
    backend = LiveBackend(cast(Any, fake), scale, 1, lambda _: None)
    request = JobRequest("x", 0.0, 2, 10**8, 1.0)
    backend.start(
        request, Placement(servers, ((0, 1), (1, 1))), 10**8, "foreground"
    )
    (seconds,) = {
        plan.progress_every_s for _, plan in fake.agents.alive.values()
    }
    return seconds


def test_the_more_vms_a_network_has_the_less_often_each_agent_reports() -> (
    None
):
    assert progress_every_s(4, 2, Scale()) == 0.2
    assert progress_every_s(8, 16, Scale()) == pytest.approx(0.64)
    assert progress_every_s(128, 16, Scale()) == 5.0


def test_completion_windows_want_to_know_more() -> None:
    assert progress_every_s(8, 16, Scale(instant_s=1.0)) == 0.2


def test_what_iperf3_reports_is_recorded_as_frames_in_the_experiments_units() -> (
    None
):
    """Two VMs receive 1.448 Mbit/s of payload each, one from two senders; the rate is 0.1."""
    fake = FakeEmulation(tree([3], [10**9], 1))
    fake.network.vm_sent_bytes = lambda _: [750_000, 0, 187_500]
    scale = Scale(rate=0.1, time=2.0)
    backend = LiveBackend(cast(Any, fake), scale, 1, lambda _: None)
    request = JobRequest("m", 0.0, 3, 10**8, 8.0, demand=Iperf3("ring"))
    backend.start(
        request, Placement(3, ((0, 1), (1, 1), (2, 1))), 10**8, "foreground"
    )
    live = backend._jobs["m"]
    assert backend._iperf3(live, 8.0) == {}  # nothing is reported
    rates = {2: [1_448_000.0], 0: [724_000.0, 724_000.0], 1: []}
    for index, bps in rates.items():
        received = tuple(
            ReceivedPayload(i, 1, None, 1, each)
            for i, each in enumerate(bps)
        )
        live.reports[f"m.{index}"] = AgentReport(index, 0, 1, received)
    assert backend._iperf3(live, 8.0) == {
        "received_bps": [15_140_000, 15_140_000],
        "counted_bps": [
            15_000_000,
            0,
            3_750_000,
        ],  # 6 Mbit in 4 s of wall time
    }
    live.generation = 1
    assert backend._iperf3(live, 8.0) == {}
