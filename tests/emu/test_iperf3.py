"""A job of kind iperf3 on the live network: real processes, real traffic, measured bytes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.demand import Iperf3
from jobs.live.iperf3 import OMITTED_S
from jobs.request import JobRequest
from jobs.wire import FRAME_BYTES, payload_bytes
from testbed.backends.emu.emulation import Emulation
from testbed.schedulers.actions import Start
from testbed.spec.experiment import Scale
from tests.emu.test_run import Testbed
from tests.support.scripted_run import (
    ScriptedPolicy,
    ended,
    on,
    play,
    small_emulation,
)
from topologies.tree import tree

MBIT = 10**6
SWITCH = 3
SCALE = Scale(rate=0.02)


@pytest.fixture(scope="module")
def emulation(
    make_prefix: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Emulation]:
    folder = tmp_path_factory.mktemp("logs")
    with small_emulation(
        tree([3], [1000 * MBIT], 1), make_prefix(), folder, SCALE
    ) as up:
        yield up


@pytest.mark.parametrize("pattern", ["ring", "all-to-all"])
def test_its_receivers_count_what_its_bandwidth_lets_through(
    emulation: Emulation, pattern: str
) -> None:
    seconds = 4.0
    job = JobRequest(
        "m", 0.0, 3, 500 * MBIT, seconds, demand=Iperf3(pattern)
    )  # type: ignore[arg-type]
    place = on(SWITCH, (0, 1), (1, 1), (2, 1))
    scripted = ScriptedPolicy(
        {"m": lambda _: [Start("m", place, 500 * MBIT)]}
    )
    end = ended(play(emulation, [job], scripted, SCALE)["m"])
    assert end.outcome == "finished", end.reason
    assert end.measured_s is not None
    assert end.measured_s >= seconds
    # Never more than the caps let through in its time; how much less is the machine's load.
    most = 3 * payload_bytes(500 * MBIT * SCALE.rate * end.measured_s)
    assert 0 < end.detail["received_bytes_raw"] <= 1.05 * most
    assert (
        end.detail["acknowledged_bytes_raw"]
        == end.detail["received_bytes_raw"]
    )
    assert end.detail["congestion_control"]
    found = end.detail["iperf3"]
    # Each sender's seconds lie somewhere in the job's time. Those of a single one are full at most;
    # of two, one may be alone while the other connects: together they have what passed meanwhile.
    room = (
        1.0
        if pattern == "ring"
        else (end.measured_s - OMITTED_S) / (seconds - OMITTED_S)
    )
    for measured, most_bps in (
        (found["received_bps"], 1.05 * room * 500 * MBIT),
        (found["counted_bps"], 1.05 * 500 * MBIT),
    ):
        assert len(measured) == 3
        assert all(0 < bps <= most_bps for bps in measured), (
            found,
            end.measured_s,
        )


# What a VM that receives at its full rate takes from its own cap at most (VM_SYSCTLS).
ACKNOWLEDGEMENTS = 66 / (2 * FRAME_BYTES)
DURATION_S = 5
FILE = """
name: iperf3
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 1}
scale: {rate: 0.02}
policies: [vc]
workload:
  kind: jobs
  jobs:
    - {id: ring, vms: 4, bandwidth: 500 Mbit/s, duration: 5 s, kind: iperf3}
    - {id: all, vms: 3, bandwidth: 400 Mbit/s, duration: 5 s, kind: iperf3, pattern: all-to-all,
       after: ring}
    - {id: moved, vms: 2, bandwidth: 300 Mbit/s, duration: 2 s, after: all}
"""


def figures_of(folder: Path) -> dict[str, dict[str, str]]:
    """The jobs' rows of a run folder's table, by their ids."""
    with (folder / "jobs.csv").open(encoding="utf-8") as file:
        return {row["job_id"]: row for row in csv.DictReader(file)}


@pytest.mark.long
@pytest.mark.slow
def test_what_iperf3_reports_is_the_reservation(
    prefix: str, tmp_path: Path
) -> None:
    """Within 1 % and the acknowledgements. Caps count over all of a job's time, also over the
    half second in which iperf3 exchanges results: what it says had arrived by its end was sent, and
    no cap let through more than it may.
    """
    testbed = Testbed(prefix, tmp_path)
    testbed.file.write_text(FILE, encoding="utf-8")
    least, most = 0.99 - ACKNOWLEDGEMENTS, 1.01
    for attempt in (
        "first",
        "second",
        "third",
        "last",
    ):  # other programs only take away
        done = testbed.live("--out", str(tmp_path / attempt))
        assert done.returncode == 0, done.stderr
        (folder,) = (tmp_path / attempt).iterdir()
        rows = figures_of(folder)
        measured = [rows["ring"], rows["all"]]
        shares = [
            float(row["iperf3_bps"]) / float(row["granted_bps"])
            for row in measured
        ]
        ratios = [float(row["iperf3_ratio"]) for row in measured]
        if all(least <= share <= most for share in (*shares, *ratios)):
            break
    figures = {
        name: {k: v for k, v in row.items() if "iperf3" in k}
        for name, row in rows.items()
    }
    assert set(figures["moved"].values()) == {""}
    assert all(least <= share <= most for share in (*shares, *ratios)), (
        figures
    )
    for row in measured:
        counted_bps = float(row["iperf3_counted_bps"])
        assert counted_bps <= 1.05 * float(row["granted_bps"]), figures
        counted = counted_bps * float(row["measured_s"])
        assert counted >= 0.95 * float(row["iperf3_bps"]) * DURATION_S, (
            figures
        )
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert summary["iperf3_ratio"]["min"] == min(ratios)
    assert "its worst VM received" in " ".join(done.stdout.split())
    audited = testbed.run("audit", str(folder))
    assert audited.returncode == 0, audited.stdout
