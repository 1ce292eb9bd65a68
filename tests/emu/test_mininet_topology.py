"""Plain Mininet starts the topology, and it is the network of the plan."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.plan.network_plan import network_plan
from testbed.spec.experiment_file import load_experiment
from topologies.mininet_topo import mininet_topo
from topologies.tree import tree

REPOSITORY = Path(__file__).parents[2]
# At an exception mn deletes all bridges of the machine and ends processes: not in a test.
MN = """
import mininet.clean, runpy, sys
mininet.clean.cleanup = lambda: None
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""

pytestmark = [
    pytest.mark.needs("mininet"),
    # Mininet 2.3.0 compares versions with distutils, and leaves its shells for Python to reap.
    pytest.mark.filterwarnings("ignore:distutils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

DATAPATH = "kernel" if Path("/sys/module/openvswitch").exists() else "user"


def vsctl(*arguments: str) -> str:
    done = subprocess.run(
        ["ovs-vsctl", "--timeout=60", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@contextmanager
def plain_mininet(plan: Any) -> Iterator[Any]:
    from mininet.link import TCLink
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    setLogLevel("error")
    switch = partial(OVSSwitch, failMode="standalone", datapath=DATAPATH)
    net = Mininet(
        topo=mininet_topo(plan), switch=switch, link=TCLink, controller=None
    )
    try:
        net.start()
        yield net
    finally:
        net.stop()
        setLogLevel(
            "output"
        )  # Mininet's own, which the tests after this one expect


def neighbour_of(host: Any, address: str) -> str | None:
    """The MAC that answers for ``address``: a question and an answer across the whole tree."""
    for _ in range(300):
        # Any datagram makes the kernel ask; this needs no ping, which minimal machines lack.
        host.cmd(f"echo > /dev/udp/{address}/9")
        words = host.cmd(
            "ip", "-color=never", "neighbour", "show", address
        ).split()
        if "lladdr" in words:
            return str(words[words.index("lladdr") + 1])
        time.sleep(0.1)
    return None


def test_plain_mininet_runs_it(prefix: str) -> None:
    plan = network_plan(tree([2, 2], 50_000_000, 1), prefix)
    with plain_mininet(plan) as net:
        for bridge in plan.bridges:
            assert bridge.name in vsctl("list-br").split()
            dpid = (
                vsctl("get", "bridge", bridge.name, "datapath_id")
                .strip()
                .strip('"')
            )
            assert int(dpid, 16) == bridge.dpid
        ports = [
            end for link in plan.links for end in (link.lower, link.upper)
        ]
        for port in (*ports, *(slot.port for slot in plan.slots)):
            assert vsctl(
                "get", "interface", port.name, "ofport"
            ).strip() == str(port.number)
        hosts = [net.get(slot.netns) for slot in plan.slots]
        assert [host.MAC() for host in hosts] == [
            slot.mac for slot in plan.slots
        ]
        assert neighbour_of(hosts[0], hosts[-1].IP()) == hosts[-1].MAC()


def test_mn_starts_an_experiment_file(prefix: str, tmp_path: Path) -> None:
    """The command line of docs/live-network.md; while it is up a script looks at it."""
    mn = shutil.which("mn")
    assert mn is not None
    script = tmp_path / "while-up"
    script.write_text(
        "sh ovs-vsctl list-br\nnodes\nsh ovs-vsctl --columns=name list interface\n"
    )
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-W",
                "ignore",
                "-c",
                MN,
                mn,
                "--verbosity",
                "output",
            ),
            *(
                "--custom",
                str(REPOSITORY / "testbed" / "plan" / "mininet_custom.py"),
            ),
            *(
                "--topo",
                f"hosenet,{REPOSITORY / 'examples/custom-topology.yaml'},prefix={prefix}",
            ),
            *(
                "--link",
                "tc",
                "--switch",
                f"ovs,failMode=standalone,datapath={DATAPATH}",
            ),
            *(
                "--controller",
                "none",
                "--test",
                "none",
                "--post",
                str(script),
            ),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Caught exception" not in done.stdout, done.stdout
    plan = network_plan(
        load_experiment(
            REPOSITORY / "examples/custom-topology.yaml"
        ).datacentre,
        prefix,
    )
    words = set(done.stdout.replace(":", " ").split())
    assert {bridge.name for bridge in plan.bridges} <= words
    assert {slot.netns for slot in plan.slots} <= words
    assert {port.name for port in plan.ports} <= words
    assert not {bridge.name for bridge in plan.bridges} & set(
        vsctl("list-br").split()
    )
