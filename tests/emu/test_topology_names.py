"""An open network over a Mininet file has the file's names and addresses; links change capacity."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.emu.test_up import (  # `standing` is a fixture
    TRIES,
    Standing,
    measured_ratios,
    standing,  # noqa: F401
)

pytestmark = pytest.mark.needs("mininet")

TOPO = """\
from mininet.topo import Topo


class Mixed(Topo):
    def build(self):
        left, right = self.addSwitch("left"), self.addSwitch("s1")
        self.addLink(left, right, bw=20)
        for name, at, options in (
            ("web", right, {"ip": "192.168.7.9/24"}),
            ("h2", left, {"ip": "10.0.0.2", "mac": "00:00:00:00:00:0a"}),
            ("h1", left, {}),
        ):
            self.addLink(self.addHost(name, **options), at, bw=50)
"""
FILE = """\
topology: {kind: mininet, path: mixed.py, topo: Mixed}
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""


def said(network: Standing, lines: str) -> str:
    """The prompt's output for lines of a script."""
    done = subprocess.run(
        network.command("mininet"),
        env=network.environment,
        input=lines,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout


def test_the_files_names_and_addresses_are_the_networks(
    standing: Standing,  # noqa: F811
) -> None:
    standing.file.with_name("mixed.py").write_text(TOPO)
    standing.file.write_text(FILE)
    assert standing.up("--open").returncode == 0
    # Between three networks, one of them ours.
    assert "0% dropped" in said(standing, "pingall\n")
    shown = said(standing, "h2 ip -brief link show eth0\nweb hostname -I\n")
    assert "00:00:00:00:00:0a" in shown
    assert "192.168.7.9" in shown
    inside = standing.good("exec", "h1", "--", "ping", "-c1", "-w30", "web")
    assert "192.168.7.9" in inside
    cut = said(standing, "link left s1 down\nh1 ping -c1 -w30 h2\n")
    assert "1 received" in cut
    assert "0 received" in said(standing, "web ping -c1 -W1 h1\n")
    said(standing, "link left s1 up\n")
    assert "0 received" in said(
        standing, "switch left stop\nh1 ping -c1 -W1 h2\n"
    )
    assert "1 received" in said(
        standing, "switch left start\nh1 ping -c1 -w30 h2\n"
    )
    assert standing.run("verify").returncode == 0


def test_a_links_capacity_is_changed_under_its_tenants(
    standing: Standing,  # noqa: F811
) -> None:
    assert standing.up().returncode == 0
    for name, mode in (("a", "strict"), ("b", "work-conserving")):
        at = ("--at", "0:1", "--at", "2:1", "--enforcement", mode)
        standing.good(
            "tenant", "add", name, "--bandwidth", "100 Mbit/s", *at
        )
    below = standing.run("link", "set", "rack 0", "core 0", "199 Mbit/s")
    assert below.returncode == 1
    assert "200 Mbit/s that tenants reserve" in below.stderr
    for rate in ("200 Mbit/s", "3 Gbit/s"):
        words = ("link", "set", "core 0 - rack 0", *rate.split())
        state = json.loads(standing.good(*words, "--json"))
        assert state["reserved_bps"] == 200 * 10**6
        # By tc and ovs-ofctl, with a reader that shares no code with the writer.
        assert standing.run("verify").returncode == 0


UNLIKE = """\
from mininet.topo import Topo


class Unlike(Topo):
    def build(self):
        s1 = self.addSwitch("s1")
        # h1 sends 10 Mbit/s and receives 20.
        self.addLink(
            self.addHost("h1"), s1, params1={"bw": 10}, params2={"bw": 20}
        )
        self.addLink(s1, self.addHost("h2"), bw=50)
"""


def rate_between(network: Standing, sender: str, receiver: str) -> float:
    """Mbit/s from one host to another, by iperf3; acknowledgements alone go back.

    With data both ways at once the faster direction's acknowledgements would wait behind the
    slower one's data, and what TCP reaches then says little of the link.
    """
    listening = subprocess.Popen(
        network.command(
            "exec", receiver, "--", "iperf3", "-s", "-1", "--forceflush"
        ),
        env=network.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert listening.stdout is not None
    for line in listening.stdout:
        if "listening" in line:
            break
    sending = ("iperf3", "-c", receiver, "--time", "5", "--omit", "1", "-J")
    done = network.good("exec", sender, "--", *sending)
    listening.communicate(timeout=60)
    received = json.loads(done)["end"]["sum_received"]
    rate: float = received["bits_per_second"] / 10**6
    return rate


def assert_rate(
    network: Standing, sender: str, receiver: str, least: float, most: float
) -> None:
    """One of three measurements is within bounds, in Mbit/s.

    Other programs only take away; where they hold up the receiver as it begins
    to count, it counts what had arrived before.
    """
    found: list[float] = []
    while len(found) < TRIES and not any(
        least < rate < most for rate in found
    ):
        found.append(rate_between(network, sender, receiver))
    assert least < found[-1] < most, found


def test_each_direction_of_a_link_has_its_capacity(
    standing: Standing,  # noqa: F811
) -> None:
    standing.file.with_name("unlike.py").write_text(UNLIKE)
    standing.file.write_text(
        FILE.replace("mixed", "unlike").replace("Mixed", "Unlike")
    )
    assert standing.up("--open").returncode == 0
    assert_rate(standing, "h1", "h2", 7.0, 10.3)
    assert_rate(standing, "h2", "h1", 14.0, 20.6)
    below = standing.run("verify")
    assert below.returncode == 0, below.stdout
    # What h1 sends from now on: half, by the prompt and by the command.
    prompt = "py net['h1'].defaultIntf().config(bw=5)\n"
    assert "carries 5 Mbit/s up, 20 Mbit/s down" in said(standing, prompt)
    words = ("link", "set", "h1", "s1", "8 Mbit/s", "--down", "--json")
    state = json.loads(standing.good(*words))
    assert (state["capacity_bps"], state["capacity_down_bps"]) == (
        5 * 10**6,
        8 * 10**6,
    )
    shown = standing.good("link", "show")
    assert "5 Mbit/s up, 8 Mbit/s down" in " ".join(shown.split())
    assert_rate(standing, "h1", "h2", 3.5, 5.2)
    assert_rate(standing, "h2", "h1", 5.6, 8.3)
    assert standing.run("verify").returncode == 0


def test_a_reservation_fits_the_narrower_direction(
    standing: Standing,  # noqa: F811
) -> None:
    topology = (
        "{kind: tree, fanout: [2, 1], slots_per_server: 4,"
        " links: [{up: 200 Mbit/s, down: 400 Mbit/s}, 1 Gbit/s]}"
    )
    whole = (
        "{kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}"
    )
    standing.file.write_text(
        standing.file.read_text().replace(whole, topology)
    )
    assert standing.up().returncode == 0
    at = ("--at", "0:1", "--at", "1:1")
    add = ("tenant", "add", "a", *at, "--bandwidth")
    refused = standing.run(*add, "201 Mbit/s")
    assert refused.returncode == 1
    assert "rack 0 -> core 0" in refused.stderr
    standing.good(*add, "150 Mbit/s")
    below = standing.run(
        "link", "set", "rack 0", "core 0", "149Mbit/s", "--up"
    )
    assert below.returncode == 1
    assert "reserve on rack 0 -> core 0" in below.stderr
    standing.good("link", "set", "rack 0", "core 0", "150Mbit/s", "--down")
    assert standing.run("verify").returncode == 0
    slowest: list[float] = []
    while len(slowest) < TRIES and max(slowest, default=0.0) <= 0.9:
        ratios = measured_ratios(standing, "a").values()
        assert len(ratios) == 2
        assert max(ratios) < 1.03
        slowest.append(min(ratios))
    assert max(slowest) > 0.9, slowest
