"""Kinds of Ryu and os-ken applications on live networks, as people write them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emu.test_up import Standing
from tests.support.own_addresses import free_port

KINDS = Path(__file__).parents[1] / "support" / "kinds"
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "learning_switch.py"

FILE = """
name: kinds
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.05}
policies: [vc]
controller: CONTROLLER
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 1 s}]}
"""
LIBRARIES = {"ryu": "RyuApp", "os_ken": "OSKenApp"}
# A tenant comes meanwhile: links are limited, and looked for on.
TOPOLOGY = """
from PACKAGE.base.app_manager import KIND
from PACKAGE.controller.handler import set_ev_cls
from PACKAGE.lib import hub
from PACKAGE.topology import api, event

class Watcher(KIND):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.began = hub.spawn(self.count)
        self.links = set()

    @set_ev_cls(event.EventLinkAdd)
    def linked(self, event):
        self.links.add((event.link.src.dpid, event.link.dst.dpid))

    @set_ev_cls(event.EventLinkDelete)
    def unlinked(self, event):
        print("lost", event.link.src.dpid, event.link.dst.dpid)

    def count(self):
        while True:
            hub.sleep(0.5)
            switches, links = api.get_switch(self), api.get_link(self)
            print("counted", len(switches), len(links), len(self.links))
"""


PAGES_PORT = free_port()


def await_listener(port: int) -> None:
    until_s = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < until_s
            time.sleep(0.1)
        else:
            return


def asked(address: str, posted: object = None) -> str:
    data = None if posted is None else json.dumps(posted).encode()
    request = urllib.request.Request(address, data)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return str(answer.read().decode())


class OwnNetwork(Standing):
    """A network under somebody's applications, and their log."""

    def write(self, name: str, code: str, package: str = "ryu") -> None:
        text = code.replace("PACKAGE", package)
        text = text.replace("KIND", LIBRARIES[package])
        (self.file.parent / name).write_text(text, encoding="utf-8")

    def start(self, controller: str) -> str:
        self.file.write_text(FILE.replace("CONTROLLER", controller))
        done = self.up()
        assert done.returncode == 0, done.stderr
        return done.stderr

    @property
    def log(self) -> str:
        return (self.state / "up" / "controller.log").read_text()

    def logged(self, pattern: str, after: int = 0) -> re.Match[str]:
        until_s = time.monotonic() + 60
        while (match := re.search(pattern, self.log[after:])) is None:
            assert time.monotonic() < until_s, self.log
            time.sleep(0.1)
        return match


@pytest.fixture
def network(prefix: str, tmp_path: Path) -> Iterator[OwnNetwork]:
    own = OwnNetwork(prefix, tmp_path)
    yield own
    own.run("down")
    assert own.run("clean").returncode == 0


@pytest.mark.short("ryu")
@pytest.mark.parametrize(
    "package",
    [
        pytest.param("ryu", marks=pytest.mark.needs("ryu")),
        pytest.param("os_ken", marks=pytest.mark.needs("os-ken")),
    ],
)
def test_links_are_discovered_and_found_again_beside_reservations(
    network: OwnNetwork, package: str
) -> None:
    """Twelve directed links of six; a link that is down is lost, and comes back."""
    network.write("mine.py", TOPOLOGY, package)
    network.start("{app: mine.py, options: {observe-links: true}}")
    network.logged(r"counted 7 12 12\n")
    network.good(
        "tenant", "add", "a", "--vms", "3", "--bandwidth", "100 Mbit/s"
    )
    before = len(network.log)
    network.logged(r"counted 7 12 12\n(.*\n)*counted 7 12 12\n", before)
    assert "lost" not in network.log
    network.good("link", "down", "server 0", "rack 0")
    network.logged(r"lost \d+ \d+\n(.*\n)*counted 7 10 12\n", before)
    network.good("link", "up", "server 0", "rack 0")
    network.logged(r"lost(.*\n)*counted 7 12 12\n", before)


@pytest.mark.needs("ryu")
def test_a_firewall_by_rest_beside_the_librarys_learning_switch(
    network: OwnNetwork,
) -> None:
    """Three applications at once, two of them the library's modules."""
    shutil.copy(KINDS / "rest_firewall.py", network.file.parent)
    apps = (
        "[ryu.app.simple_switch_13, rest_firewall.py, ryu.app.ofctl_rest]"
    )
    told = network.start(
        f"{{app: {apps}, options: --wsapi-port={PAGES_PORT}}}"
    )
    address = f"http://127.0.0.1:{PAGES_PORT}/"
    assert f"pages of the application: {address}" in told
    assert network.status()["pages"] == address
    network.good(
        "tenant", "add", "a", "--vms", "3", "--bandwidth", "100 Mbit/s"
    )
    ping = ("ping", "-c", "1", "-w", "30", "a.2")
    assert network.inside("a.0", *ping).returncode == 0
    flows = json.loads(asked(f"{address}stats/flow/1"))["1"]
    assert any("dl_dst" in flow["match"] for flow in flows)
    (tenant,) = network.status()["tenants"]
    blocked = tenant["vms"][0]["ip"]
    answer = json.loads(asked(f"{address}rules", {"block": blocked}))
    assert answer["switches"] == list(range(1, 8))
    blocked_ping = ("ping", "-c", "1", "-W", "1", "a.2")
    assert network.inside("a.0", *blocked_ping).returncode != 0
    assert network.inside("a.1", *ping).returncode == 0


@pytest.mark.needs("os-ken")
def test_a_controller_that_runs_already_has_the_flows(
    network: OwnNetwork,
) -> None:
    """By the library's own server, which knows nothing of ours."""
    port = free_port()
    address = f"tcp:127.0.0.1:{port}"
    command = [sys.executable, "-m", "tests.support.their_controller"]
    command += [str(port), str(EXAMPLE)]
    with subprocess.Popen(command, cwd=ROOT) as theirs:
        await_listener(port)
        told = network.start(f"{{remote: {address}}}")
        assert f"flows: those of {address}, none of the testbed's" in told
        network.good(
            *(
                "tenant",
                "add",
                "a",
                "--vms",
                "3",
                "--bandwidth",
                "100 Mbit/s",
            )
        )
        ping = ("ping", "-c", "1", "-w", "30", "a.2")
        assert network.inside("a.0", *ping).returncode == 0
        # A learning switch reaches whom it should; of the rest the packets tell.
        checked = network.run("verify").stdout
        assert f"those of {address} are not compared" in checked
        assert network.status()["trouble"] == ""
        theirs.kill()
        until_s = time.monotonic() + 60
        while "bridge" not in network.status()["trouble"]:
            assert time.monotonic() < until_s
        assert f"not connected to {address}" in network.status()["trouble"]
    network.good("down")
    done = network.up()
    assert done.returncode == 3
    assert f"nobody listens at {address}: Connection refused" in done.stderr


def faucet_configuration() -> str:
    """Seven plain switches of three ports, in one VLAN."""
    lines = ["vlans: {office: {vid: 100}}", "dps:"]
    for number in range(1, 8):
        ports = ", ".join(
            f"{port}: {{native_vlan: office}}" for port in (1, 2, 3)
        )
        lines.append(
            f"  s{number}: {{dp_id: {number}, hardware: Open vSwitch,"
            f" interfaces: {{{ports}}}}}"
        )
    return "\n".join(lines)


def started_as(name: str, port: int, folder: Path) -> list[str]:
    """The command of a controller that is not the testbed's."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name} on this machine")
    if name == "ovs-testcontroller":
        return [program, f"ptcp:{port}:127.0.0.1"]
    written = folder / "faucet.yaml"
    written.write_text(faucet_configuration())
    return [
        *("env", f"PATH={Path(program).parent}:{os.defpath}"),
        f"FAUCET_CONFIG={written}",
        f"FAUCET_LOG={folder / 'faucet.log'}",
        f"FAUCET_EXCEPTION_LOG={folder / 'faucet-errors.log'}",
        *(program, "--ryu-ofp-tcp-listen-port", str(port)),
    ]


@pytest.mark.parametrize("name", ["faucet", "ovs-testcontroller"])
def test_controllers_of_this_machine(
    network: OwnNetwork, name: str, tmp_path: Path
) -> None:
    """All ports are up as their switch connects: Faucet hears of no later one."""
    port = free_port()
    with subprocess.Popen(started_as(name, port, tmp_path)) as theirs:
        try:
            await_listener(port)
            network.start(f"{{remote: tcp:127.0.0.1:{port}}}")
            rate = ("--bandwidth", "100 Mbit/s")
            network.good("tenant", "add", "a", "--vms", "3", *rate)
            network.good("tenant", "add", "b", "--vms", "5", *rate)
            checked = network.run("verify", "--json").stdout
            found = {check["name"]: check for check in json.loads(checked)}
            for check in ("links", "limits", "reachability"):
                assert found[check]["problems"] == []
        finally:
            theirs.terminate()
