"""A job of kind iperf3 on the live network: real processes, real traffic, measured bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.demand import Iperf3
from jobs.request import JobRequest
from jobs.wire import payload_bytes
from testbed.schedulers.actions import Start
from testbed.spec.experiment import Scale
from tests.support.scripted_run import ScriptedPolicy, ended, on, play, small_emulation
from topologies.tree import tree

MBIT = 10**6
SWITCH = 3


@pytest.mark.parametrize("pattern", ["ring", "all-to-all"])
def test_its_receivers_count_what_its_bandwidth_lets_through(
    prefix: str, tmp_path: Path, pattern: str
) -> None:
    scale, seconds = Scale(rate=0.02), 2.0
    job = JobRequest("m", 0.0, 3, 500 * MBIT, seconds, demand=Iperf3(pattern))  # type: ignore[arg-type]
    place = on(SWITCH, (0, 1), (1, 1), (2, 1))
    scripted = ScriptedPolicy({"m": lambda _: [Start("m", place, 500 * MBIT)]})
    with small_emulation(tree([3], [1000 * MBIT], 1), prefix, tmp_path) as emulation:
        end = ended(play(emulation, [job], scripted, scale)["m"])
    assert end.outcome == "finished", end.reason
    assert end.measured_s is not None
    assert end.measured_s >= seconds
    # Never more than the caps let through in its time; how much less is the machine's load.
    most = 3 * payload_bytes(500 * MBIT * scale.rate * end.measured_s)
    assert 0 < end.detail["received_bytes_raw"] <= 1.05 * most
    assert end.detail["acknowledged_bytes_raw"] == end.detail["received_bytes_raw"]
    assert end.detail["congestion_control"]
