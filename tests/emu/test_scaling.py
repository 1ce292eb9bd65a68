"""``testbed scaling`` from outside: p measured, the ratio of real bytes, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.units import number_of
from tests.emu.test_run import Testbed

# Other programs only take away: what one try in three shows can be had.
TRIES = 3
# On the wire 4 and 2 Mbit/s, so that a slow machine carries it too.
FILE = """
name: move
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}
scale: {rate: 0.02}
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - {id: move, vms: 2, bandwidth: 200 Mbit/s, duration: 2 s}
# On a busy machine too: the assertions say how far off the times may be.
expect: {fidelity: invalid}
"""


@pytest.fixture
def testbed(prefix: str, tmp_path: Path) -> Iterator[Testbed]:
    own = Testbed(prefix, tmp_path)
    own.file.write_text(FILE, encoding="utf-8")
    yield own
    own.remove_left()


def scaled(testbed: Testbed, repetitions: int) -> tuple[str, ...]:
    return (
        str(testbed.file),
        "--bandwidths",
        "100 Mbit/s",
        "--repetitions",
        str(repetitions),
        "--out",
        str(testbed.out),
        "--json",
    )


@pytest.mark.parametrize(
    "repetitions", [1, pytest.param(2, marks=pytest.mark.long)]
)
def test_half_the_bandwidth_takes_twice_the_measured_time_and_once_only(
    testbed: Testbed, repetitions: int
) -> None:
    measured: list[tuple[float, float]] = []
    top = testbed.out
    while len(measured) < TRIES and not any(map(is_in_time, measured)):
        # Another folder: what one has measured is kept there.
        testbed.out = top / str(len(measured))
        done = testbed.run("scaling", *scaled(testbed, repetitions))
        assert done.returncode == 0, done.stderr
        assert number_of(repetitions, "repetition") in done.stderr
        scaled_runs = json.loads(done.stdout)
        (move,) = scaled_runs["applications"]
        assert len(scaled_runs["fidelity"]) == repetitions
        (point,) = move["points"]
        measured.append((move["profiled_s"], point["measured_s"]))
        # Of what half the bandwidth takes by the measured profile; a mean of
        # ratios is nearly the ratio of means.
        ratio = point["measured_s"] / (2 * move["profiled_s"])
        assert point["ratio"] == pytest.approx(ratio, rel=0.1)
    assert any(map(is_in_time, measured)), measured
    folder = Path(scaled_runs["folder"])
    assert (folder / "scaling.png").read_bytes().startswith(b"\x89PNG")
    again = testbed.run("scaling", *scaled(testbed, repetitions))
    assert again.returncode == 0, again.stderr
    counted = json.loads(
        (
            Path(json.loads(again.stdout)["folder"]) / "sweep.json"
        ).read_text()
    )["cells"]
    assert (counted["computed"], counted["kept"]) == (0, repetitions)


def is_in_time(measured: tuple[float, float]) -> bool:
    """True for times that are twice one another, and what they have to be.

    Loose for machines that are busy; twice the time must show for what it is
    all the same.
    """
    profiled_s, half_s = measured
    assert profiled_s > 0.8 * 2.0
    assert half_s > 0.8 * 4.0
    is_twice = half_s / profiled_s == pytest.approx(2.0, rel=0.2)
    return is_twice and profiled_s <= 1.2 * 2.0 and half_s <= 1.2 * 4.0


def test_ctrl_c_ends_it_and_leaves_nothing(testbed: Testbed) -> None:
    running = subprocess.Popen(
        testbed.command("scaling", *scaled(testbed, 1)),
        env=testbed.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    give_up_s = time.monotonic() + 300
    while not testbed.marks and time.monotonic() < give_up_s:
        time.sleep(0.05)
    assert testbed.marks
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert testbed.marks == []
