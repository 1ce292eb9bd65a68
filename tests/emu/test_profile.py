"""``testbed profile`` from outside: a profile of real bytes, and what interrupts it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.job_profile import Profile
from testbed.spec.job_entries import read_profile
from tests.emu.test_run import REPOSITORY, Testbed

# Other programs only take away: what one try in three shows can be had.
TRIES = 3
# A transfer that halves its time with twice the bandwidth, up to the rate of its curve, and no
# further: on the wire 1, 2 and 4 Mbit/s, so that a slow machine carries it too.
APPLICATION = """
name: count
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}
scale: {rate: 0.02}
workload:
  kind: ladder
  application:
    {id: count, vms: 2, bandwidth: 100 Mbit/s, duration: 2 s,
     demand: [{until: 100 %, at: 100 Mbit/s}]}
  bandwidths: [50 Mbit/s, 100 Mbit/s, 200 Mbit/s]
  repetitions: 1
  tolerance: 25 %
# On a busy machine too: the assertions say how far off the times may be.
expect: {fidelity: invalid}
"""


# A real program: 1 MB from a disk of 5 Mbit/s, 1.6 s, to the other rank. At 2 Mbit/s on the wire it
# takes 2.6 times as long, at 8 and 16 no longer than the disk gives it. Its text is on the command
# line, because it runs as somebody who may not read the repository.
EXCHANGE = json.dumps(
    (REPOSITORY / "examples/apps/exchange.py").read_text("utf-8")
)
PROGRAM = f"""
name: exchange
topology: {{kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}}
scale: {{rate: 0.02}}
workload:
  kind: ladder
  application:
    id: exchange
    vms: 2
    bandwidth: 400 Mbit/s
    duration: 1.6 s
    command: [python3, -c, {EXCHANGE}, "1", "5"]
  bandwidths: [100 Mbit/s, 400 Mbit/s, 800 Mbit/s]
  repetitions: 1
  tolerance: 25 %
expect: {{fidelity: invalid}}
"""


@pytest.fixture
def testbed(prefix: str, tmp_path: Path) -> Iterator[Testbed]:
    own = Testbed(prefix, tmp_path)
    own.file.write_text(APPLICATION, encoding="utf-8")
    yield own
    own.remove_left()


def test_it_finds_the_rate_of_the_application_and_writes_a_profile(
    testbed: Testbed,
) -> None:
    lateness: list[str] = []
    to = testbed.file.with_name("profile.yaml")
    while len(lateness) < TRIES and "" not in lateness:
        for old in (testbed.out, to):
            if old.exists():
                old.rename(old.with_name(f"{old.name}-{len(lateness)}"))
        done = testbed.run(
            "profile",
            str(testbed.file),
            *testbed.options,
            "--to",
            str(to),
            "--json",
        )
        assert done.returncode == 0, done.stderr
        profiled = json.loads(done.stdout)
        assert profiled["run"]["audit_passed"]
        times = {
            point["bandwidth_bps"]: point["median_s"]
            for point in profiled["rungs"]
        }
        lateness.append(late(profiled, times))
    assert "" in lateness, lateness
    profile, document = read_profile(to)
    assert document.problems == []
    assert profile == Profile(
        ((50_000_000, times[50_000_000]), (100_000_000, times[100_000_000]))
    )
    assert (testbed.folder / "profile.yaml").read_text(
        "utf-8"
    ) == to.read_text("utf-8")


def late(profiled: dict[str, Any], times: dict[int, float]) -> str:
    """Whatever a busy machine has made of the times; empty: nothing.

    Loose for machines that are busy; half the bandwidth must show for what it
    is all the same.
    """
    expected = {100_000_000: 2.0, 50_000_000: 4.0}
    for bandwidth_bps, expected_s in expected.items():
        assert times[bandwidth_bps] > 0.8 * expected_s
        if times[bandwidth_bps] > 1.2 * expected_s:
            return f"{times}"
    if profiled["threshold_bps"] != 100_000_000:
        return f"threshold {profiled['threshold_bps']} of {times}"
    if not profiled["threshold_found"]:
        return f"no threshold of {times}"
    return ""


@pytest.mark.long
def test_a_programs_profile_is_measured_without_knowing_it(
    testbed: Testbed,
) -> None:
    testbed.file.write_text(PROGRAM, encoding="utf-8")
    done = testbed.run(
        "profile", str(testbed.file), *testbed.options, "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["run"]["audit_passed"]
    assert found["model_threshold_bps"] is None
    times = {
        point["bandwidth_bps"]: point["median_s"]
        for point in found["rungs"]
    }
    # Whatever a busy machine adds to each run, the network is what makes the first long.
    assert times[100_000_000] > 1.4 * max(
        times[400_000_000], times[800_000_000]
    )
    assert found["threshold_bps"] > 100_000_000
    profile, document = read_profile(Path(found["profile"]))
    assert document.problems == []
    assert profile.options[0] == (100_000_000, times[100_000_000])
    assert profile.threshold_bps == found["threshold_bps"]
    logs = [
        path.read_text("utf-8")
        for path in (testbed.folder / "logs").glob("agent-exchange-*.log")
    ]
    assert sorted(logs) == [
        f"rank {rank} heard 1000000 bytes\n" for rank in (0, 0, 0, 1, 1, 1)
    ]


def test_ctrl_c_leaves_a_folder_no_profile_and_nothing_else(
    testbed: Testbed,
) -> None:
    running = testbed.start("--json", verb="profile")
    testbed.until("job_started", running)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130, stderr
    assert testbed.marks == []
    assert testbed.events()[-1]["status"] == "interrupted"
    assert not (testbed.folder / "profile.yaml").exists()
