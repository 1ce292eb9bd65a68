"""Processes under a network that stays up are killed: traffic lasts, and all is as planned again.

``verify`` judges, which reads by other tools than those that wrote.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.backends.emu.cgroups import lives
from tests.emu.test_links_and_verify import PARTS, connection, verified
from tests.emu.test_up import Standing, standing, wait_for  # noqa: F401 - a fixture

SEED = 20
KILLS = 4
LONGEST_S = 0.5
"""Somewhat longer than an admission takes, from the command's start to its end."""
FOREIGN = "cookie=0x7,table=0,priority=7,in_port=60000,actions=drop"


def controller_of(network: Standing) -> psutil.Process | None:
    children = psutil.Process(network.status()["pid"]).children()
    found = [
        each
        for each in children
        if "controller.launch" in " ".join(each.cmdline())
    ]
    return found[0] if found else None


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not lives(pid))


def ofctl(network: Standing, verb: str, bridge: str, *more: str) -> str:
    (target,) = Path("/run/hosenet").glob(
        f"*/{network.options[1]}-part*/{bridge}.mgmt"
    )
    command = (
        "ovs-ofctl",
        "-O",
        "OpenFlow13",
        verb,
        f"unix:{target}",
        *more,
    )
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout


def packets(dump: str) -> dict[str, int]:
    """Flows -> packets that they have counted."""
    return {
        line.partition("priority=")[2]: int(
            line.partition("n_packets=")[2].split(",")[0]
        )
        for line in dump.splitlines()
        if "n_packets=" in line
    }


def parts(network: Standing) -> list[dict[str, Any]]:
    return list(json.loads(network.good("switch", "show", "--json")))


@pytest.mark.needs("userspace-datapath")
def test_parts_and_controller_are_killed_and_all_is_as_planned_again(
    standing: Standing,  # noqa: F811
) -> None:
    standing.file.write_text(PARTS, encoding="utf-8")
    assert "2 switch parts" in standing.up().stderr
    where = [f"--at={server}:1" for server in (0, 5, 10, 15)]
    standing.good("tenant", "add", "a", "--bandwidth", "100 Mbit/s", *where)
    before = parts(standing)
    assert sum(len(part["bridges"]) for part in before) == 36
    bridge = f"{standing.options[1]}-s0"
    with connection(standing, "a.0", "a.3") as carry:
        with carry():
            said = standing.good("switch", "restart", "server 0")
        assert "of its limits were missing" in said
        with carry():
            killed(parts(standing)[1]["pid"])
            wait_for(
                lambda: (
                    parts(standing)[1]["pid"]
                    not in (None, before[1]["pid"])
                )
            )
        assert verified(standing)[0] == 0

        # The controller: what the switches have, and count, is left as it is;
        # rules of others are removed.
        assert standing.status()["removed"] == ""
        counted = packets(ofctl(standing, "dump-flows", bridge))
        ofctl(standing, "add-flow", bridge, FOREIGN)
        first = controller_of(standing)
        assert first is not None
        with carry():
            killed(first.pid)
            wait_for(lambda: controller_of(standing) not in (None, first))
        standing.good(
            "tenant", "add", "b", "--bandwidth", "100 Mbit/s", *where
        )
        standing.good("tenant", "remove", "b")
        again = packets(ofctl(standing, "dump-flows", bridge))
        assert again.keys() == counted.keys()
        assert all(again[flow] >= n for flow, n in counted.items())
        assert standing.status()["removed"].startswith(
            "1 flow rules of others"
        )
    assert verified(standing)[0] == 0


def test_a_stopped_controller_is_named_and_nothing_is_left_when_it_continues(
    standing: Standing,  # noqa: F811
) -> None:
    standing.up()
    add = ("tenant", "add", "b", "--vms", "2", "--bandwidth", "10 Mbit/s")
    standing.good("tenant", "add", "a", *add[3:])
    controller = controller_of(standing)
    assert controller is not None
    controller.suspend()
    try:
        wait_for(lambda: controller.status() == psutil.STATUS_STOPPED)
        done = standing.run(*add)
        assert done.returncode == 4
        assert (
            f"(process {controller.pid}) is stopped by a signal"
            in done.stderr
        )
        assert "Timeout" not in done.stdout + done.stderr
        told = standing.status()
        assert [tenant["name"] for tenant in told["tenants"]] == ["a"]
        assert f"kill -CONT {controller.pid}" in told["trouble"]
        assert "tenant b is not in" in told["trouble"]
    finally:
        controller.resume()
    wait_for(lambda: standing.status()["trouble"] == "")
    assert verified(standing)[0] == 0
    standing.good(*add)
    assert verified(standing)[0] == 0


@pytest.mark.parametrize(
    "kills", [2, pytest.param(KILLS, marks=pytest.mark.long)]
)
@pytest.mark.needs("userspace-datapath")
def test_whenever_it_dies_during_an_admission_the_tenant_is_in_or_out(
    standing: Standing,  # noqa: F811
    kills: int,
) -> None:
    """The controller, and a part of the switch, at seeded moments: the command says which."""
    standing.file.write_text(PARTS, encoding="utf-8")
    assert standing.up().returncode == 0
    draw, there = random.Random(SEED), set[str]()
    for number in range(kills):
        name = f"t{number}"
        wait_for(lambda: controller_of(standing) is not None)
        controller = controller_of(standing)
        assert controller is not None
        victim = (
            controller.pid if number % 2 == 0 else parts(standing)[0]["pid"]
        )
        add = (
            "tenant",
            "add",
            name,
            "--vms",
            "8",
            "--bandwidth",
            "10 Mbit/s",
        )
        adding = subprocess.Popen(
            standing.command(*add), env=standing.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(draw.uniform(0.15, LONGEST_S))  # any moment will do
        killed(victim)
        _, said = adding.communicate(timeout=100)
        assert adding.returncode in (0, 4), said
        there |= {name} if adding.returncode == 0 else set()
        wait_for(lambda: standing.status()["trouble"] == "")
        wait_for(lambda: verified(standing)[0] == 0)
        assert {
            each["name"] for each in standing.status()["tenants"]
        } == there
    # Where each victim died before the command came to it, this one is the
    # first.
    standing.good(*("tenant", "add", "last"), *add[3:])
    assert verified(standing)[0] == 0
