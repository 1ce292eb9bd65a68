"""Own programs beside the network: nohup, closed streams, background programs."""

from __future__ import annotations

import json
import signal
import subprocess

from tests.emu.test_run import Testbed, computing, testbed  # noqa: F401 - fixtures
from tests.emu.test_up import Standing, standing  # noqa: F401 - a fixture


def test_a_run_under_nohup_outlives_its_terminal(
    computing: Testbed,  # noqa: F811
) -> None:
    command = computing.command(
        "run", str(computing.file), *computing.options
    )
    # As nohup leaves it: ignored before the start.
    run = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command],
        env=computing.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    computing.until("job_started", run)
    run.send_signal(signal.SIGHUP)
    _, said = run.communicate(timeout=100)
    assert run.returncode == 0, said
    assert computing.events()[-1]["status"] == "completed"


def test_own_programs_run_beside_ours(
    standing: Standing,  # noqa: F811
) -> None:
    up = standing.command("up", str(standing.file), *standing.options[:6])
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *up]
    done = subprocess.run(
        closed, env=standing.environment, timeout=100, check=False
    )
    assert done.returncode == 0
    rate = ("--bandwidth", "100 Mbit/s")
    standing.good("tenant", "add", "a", "--vms", "3", *rate)

    left = standing.inside("a", "sh", "-c", "sleep 600 & echo started")
    assert left.returncode == 0
    assert sorted(left.stdout.splitlines()) == [
        f"a.{number}: started" for number in range(3)
    ]
    # They continue, as what `exec` in one VM leaves behind.
    going_on = standing.inside("a", "pgrep", "-xf", "sleep 600")
    assert going_on.returncode == 0

    # A server of one's own at iperf3's port, at any address and at the VM's.
    assert standing.inside("a", "iperf3", "-s", "-D").returncode == 0
    done = standing.run("measure", "a", "--seconds", "2", "--json")
    assert done.returncode in (0, 1), done.stderr
    pairs = json.loads(done.stdout)["pairs"]
    assert [pair["sender"] for pair in pairs] == ["a.0", "a.1", "a.2"]
    assert all(pair["ratio"] > 0 for pair in pairs)
    assert standing.inside("a", "pgrep", "iperf3").returncode == 0
    standing.good("tenant", "remove", "a")
