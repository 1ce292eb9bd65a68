"""An open network over a Mininet file has the file's names and addresses; links change capacity."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.emu.test_up import Standing, standing  # noqa: F401 - a fixture

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
    inside = standing.good("exec", "h1", "--", "ping", "-c1", "-W1", "web")
    assert "192.168.7.9" in inside
    cut = said(standing, "link left s1 down\nh1 ping -c1 -W1 h2\n")
    assert "1 received" in cut
    assert "0 received" in said(standing, "web ping -c1 -W1 h1\n")
    said(standing, "link left s1 up\n")
    assert "0 received" in said(
        standing, "switch left stop\nh1 ping -c1 -W1 h2\n"
    )
    assert "1 received" in said(
        standing, "switch left start\nh1 ping -c1 -W1 h2\n"
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
