"""Links of a network that is up go down and come back; verify finds what differs; top counts."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.backends.emu.open_vswitch import MACHINE
from tests.emu.test_up import FILE, Standing, standing, wait_for  # noqa: F401 - a fixture

PING = ("ping", "-c", "1", "-W", "1")
# Until an answer has come: the switch sees a moment later that a link is up.
REACHES = ("ping", "-c", "1", "-w", "30")
GONE = "table=1,priority=200,ip,nw_src=10.0.4.0/22"
# Too heavy for one part of the userspace switch.
PARTS = """
name: parts
topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 8}
scale: {rate: 0.05}
policies: [vc]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""


def up_with_tenants(network: Standing, b: str) -> None:
    """Tenant a is in both racks, b on one server."""
    assert network.up().returncode == 0
    network.good(
        "tenant",
        "add",
        "a",
        "--bandwidth",
        "200 Mbit/s",
        "--at",
        "0:2",
        "--at",
        "2:1",
    )
    network.good(
        "tenant", "add", "b", "--bandwidth", "100 Mbit/s", "--at", b
    )


@pytest.fixture(scope="module")
def lasting(
    make_prefix: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """A network with two tenants, for tests that leave it as they find it."""
    own = Standing(make_prefix(), tmp_path_factory.mktemp("lasting"))
    own.file.write_text(FILE, encoding="utf-8")
    up_with_tenants(own, "3:2")
    yield own
    own.remove_left()


def shown(network: Standing, *names: str) -> list[dict[str, Any]]:
    """Links as `link show` has them."""
    states = json.loads(network.good("link", "show", "--json"))
    return [
        state for state in states if not names or state["name"] in names
    ]


def verified(network: Standing) -> tuple[int, dict[str, list[str]]]:
    """The exit code of `verify`, and each check's problems."""
    done = network.run("verify", "--json")
    checks = json.loads(done.stdout)
    assert all(check["good"] == (not check["problems"]) for check in checks)
    return done.returncode, {
        check["name"]: check["problems"] for check in checks
    }


def limits_of(prefix: str) -> str:
    """Classes and queues of the first rack's uplink, without counters."""
    tc = [
        ["tc", "-d", kind, "show", "dev", f"{prefix}-r0-u0"]
        for kind in ("class", "qdisc")
    ]
    return "".join(
        subprocess.run(x, capture_output=True, text=True, check=True).stdout
        for x in tc
    )


def test_a_link_goes_down_says_whom_it_cuts_and_comes_back_with_its_limits(
    lasting: Standing,
) -> None:
    prefix = lasting.options[1]
    before = limits_of(prefix)
    (link,) = shown(lasting, "rack 0 - core 0")
    assert (link["up"], link["tenants"], link["reserved_bps"]) == (
        True,
        ["a"],
        200_000_000,
    )

    cut = "tenant a is cut: a.0 a.1 | a.2; 2 of 3 pairs; a tree has no other path"
    said = lasting.good("link", "down", "rack 0", "core 0")
    assert said == f"link rack 0 - core 0 is down\n{cut}\n"
    assert lasting.inside("a.0", *PING, "a.2").returncode == 1
    assert lasting.inside("b.0", *REACHES, "b.1").returncode == 0
    assert (
        f"trouble: link rack 0 - core 0 is down; {cut}\n"
        in lasting.good("status")
    )
    assert f"trouble: {cut}\n" in lasting.good("tenant", "show", "a")
    across = ("--bandwidth", "10 Mbit/s", "--at", "1:1", "--at", "2:1")
    refused = lasting.run("tenant", "add", "c", *across)
    assert refused.returncode == 1
    assert (
        "it would use the link rack 0 - core 0, which is down"
        in refused.stderr
    )
    code, problems = verified(lasting)
    assert code == 1
    assert problems["links"] == [
        f"{prefix}-r0-u0 (rack 0 -> core 0) is down"
    ]
    assert "a.0 to a.2: nothing arrives" in problems["reachability"]
    assert not any("b." in problem for problem in problems["reachability"])
    assert (
        problems["limits"]
        == problems["flows"]
        == problems["isolation"]
        == []
    )

    back = lasting.good("link", "up", "rack 0 - core 0")
    assert (
        back == "link rack 0 - core 0 is up\ntenant a has its links back\n"
    )
    assert lasting.inside("a.0", *REACHES, "a.2").returncode == 0
    assert limits_of(prefix) == before
    assert lasting.status()["trouble"] == ""

    # A VM's cable: by its switch's end, so that the VM still knows its neighbours afterwards.
    assert "a.0 a.1 | a.2" in lasting.good("link", "down", "a.2")
    assert lasting.inside("a.0", *PING, "a.2").returncode == 1
    lasting.good("link", "up", "a.2", "server 2")
    assert lasting.inside("a.2", *REACHES, "a.0").returncode == 0
    assert verified(lasting) == (0, {name: [] for name in problems})

    unknown = lasting.run("link", "down", "rak 0", "core 0")
    assert unknown.returncode == 2
    assert (
        "no link ends at 'rak 0' (did you mean 'rack 0'?)" in unknown.stderr
    )


def test_top_counts_what_vms_send_and_ends_by_ctrl_c(
    lasting: Standing,
) -> None:
    sender = subprocess.Popen(
        lasting.command("exec", "a.0", "--", "ping", "-q", "-s", "1400", "-i", "0.01", "a.2"),
        env=lasting.environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        sample = json.loads(lasting.good("top", "--json"))
        while not sample["tenants"][0]["sent_bps"]:  # it has not begun yet
            sample = json.loads(lasting.good("top", "--json"))
        # VMs' counters are read after the links'. A first packet between the
        # two is in one of them alone: only now it sends all the time.
        sample = json.loads(lasting.good("top", "--json"))
        a, b = sample["tenants"]
        assert (a["name"], a["reserved_bps"], b["name"], b["sent_bps"]) == (
            "a",
            6e8,
            "b",
            0,
        )
        core = next(
            link
            for link in sample["links"]
            if link["name"] == "rack 0 -> core 0"
        )
        assert (
            core["capacity_bps"],
            core["reserved_bps"],
            core["dropped"],
        ) == (1e9, 2e8, 0)
        assert 0 < core["sent_bps"] < 1e9

        pid, terminal = pty.fork()
        if pid == 0:
            command = lasting.command("top")
            # A dumb terminal, as a job runner's, has one sample.
            environment = lasting.environment | {"TERM": "xterm"}
            os.execvpe(command[0], command, environment)  # noqa: S606
        screen = b""
        while b"a.0" not in screen and b"rack 0 -> core 0" not in screen:
            assert select.select([terminal], [], [], 60)[0], screen
            screen += os.read(terminal, 65_536)
        os.write(terminal, b"\x03")
        with suppress(OSError):  # its end
            while select.select([terminal], [], [], 60)[0]:
                os.read(terminal, 65_536)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        sender.send_signal(signal.SIGKILL)
        sender.wait(30)


def test_verify_names_what_somebody_changed(
    standing: Standing,  # noqa: F811
    prefix: str,
) -> None:
    up_with_tenants(standing, "1:2")
    clean = standing.run("verify")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    sabotaged = (
        "tc class change dev {0}-r0-u0 parent 1:ffff classid 1:1 htb rate 5mbit burst 75000",
        f"ovs-ofctl -O OpenFlow13 --strict del-flows {{0}}-r1 {GONE},nw_dst=10.0.4.3",
        "ovs-ofctl -O OpenFlow13 add-flow {0}-s0 table=0,priority=300,actions=flood",
        "ovs-ofctl -O OpenFlow13 add-flow {0}-s1 table=0,priority=300,actions=flood",
        "ovs-ofctl -O OpenFlow13 add-flow {0}-r0 table=0,priority=300,actions=flood",
        "tc qdisc del dev {0}-s1v0 root",
    )
    for line in sabotaged:
        subprocess.run(line.format(prefix).split(), check=True)
    code, problems = verified(standing)
    assert code == 1
    place = f"{prefix}-r0-u0 (rack 0 -> core 0) class 1:1 of tenant a: "
    assert f"{place}rate 5 Mbit/s, expected 10 Mbit/s" in problems["limits"]
    assert (
        f"{prefix}-s1v0 (server 1 -> b.0) root: missing"
        in problems["limits"]
    )
    assert {text.split()[0] for text in problems["limits"]} == {
        f"{prefix}-r0-u0",
        f"{prefix}-s1v0",
    }
    (gone,) = [
        text for text in problems["flows"] if "priority=300" not in text
    ]
    flow = "table=1,priority=200,ip,nw_dst=10.0.4.3,nw_src=10.0.4.0/22"
    assert gone == f"{prefix}-r1 (rack 1) flow {flow}: missing"
    strange = (
        f"{prefix}-s0 (server 0) flow table=0,priority=300: not of the plan"
    )
    assert strange in problems["flows"]
    # What that means is seen by packets: some are lost, others leave the tenant.
    assert "a.0 to a.2: nothing arrives" in problems["reachability"]
    assert any(
        "a.0 to b.0: arrives at" in problem
        for problem in problems["isolation"]
    )
    assert any(
        "another MAC: arrives at" in problem
        for problem in problems["anti-spoofing"]
    )
    assert problems["links"] == []


@pytest.mark.needs("userspace-datapath")
def test_links_and_limits_in_parts_of_the_switch(
    standing: Standing,  # noqa: F811
) -> None:
    standing.file.write_text(PARTS, encoding="utf-8")
    came = standing.up()
    assert "2 switch parts" in came.stderr
    # None of them is the machine's own switch's.
    prefix = standing.options[1]
    names = [str(row[0]) for row in MACHINE.rows("Bridge", ["name"])]
    assert not [name for name in names if name.startswith(prefix)]
    where = [f"--at={server}:1" for server in (0, 5, 10, 15)]
    standing.good("tenant", "add", "a", "--bandwidth", "100 Mbit/s", *where)
    assert verified(standing)[0] == 0
    with connection(standing, "a.0", "a.3") as carry:
        # By the command; by anybody, in the namespace of a part.
        first = way_to_core(standing, "aggregation 6")
        with carry():
            said = standing.good("link", "down", first["name"])
        core, second = (
            first["ends"][1],
            way_to_core(standing, "aggregation 6"),
        )
        assert (
            f"tenant a has moved from {core} to {second['ends'][1]}\n"
            in said
        )
        assert "no tenant's VMs are cut" in said
        with carry():
            by_hand(standing, second["ports"][1], "down")
            wait_for(
                lambda: not shown(standing, second["name"])[0]["tenants"]
            )
    third = way_to_core(standing, "aggregation")
    assert standing.status()["tenants"][0]["trouble"] == ""
    assert len({each["ends"][1] for each in (first, second, third)}) == 3
    code, problems = verified(standing)
    assert code == 1
    assert len(problems.pop("links")) == 2
    assert not any(problems.values()), problems

    # Without any way it is cut, until one is back.
    way = next(
        s
        for s in shown(standing)
        if s["ends"][0] == "server 0" and s["capacity_bps"]
    )
    said = standing.good("link", "down", way["name"])
    assert (
        "is cut: a.0 | a.1 a.2 a.3; 3 of 6 pairs; no other root has a path"
        in said
    )
    for port in way["ports"]:
        by_hand(standing, port, "up")
    wait_for(lambda: not standing.status()["tenants"][0]["trouble"])
    assert standing.inside("a.0", *REACHES, "a.3").returncode == 0
    # By hand too, a tenant is pinned to a tree whose links carry.
    standing.good("tenant", "add", "b", "--bandwidth", "100 Mbit/s", *where)
    assert standing.inside("b.0", *REACHES, "b.3").returncode == 0
    standing.good("link", "up", first["name"])
    by_hand(standing, second["ports"][1], "up")
    assert verified(standing)[0] == 0


ECHO = """
import socket
with socket.create_server(("", 5000)) as listener:
    print("ready", flush=True)
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000)) as connection:
    print("connected", flush=True)
    for _ in sys.stdin:
        for _ in range(100):
            connection.sendall(bytes(10_000))
            left = 10_000
            while left:
                left -= len(connection.recv(left)) or sys.exit("the connection has ended")
        print("echoed", flush=True)
"""


@contextmanager
def connection(
    network: Standing, one: str, other: str
) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """A TCP connection between two VMs, and a block during which it carries 1 MB there and back."""

    def python(vm: str, code: str, *more: str) -> subprocess.Popen[str]:
        command = network.command(
            "exec", vm, "--", "python3", "-c", code, *more
        )
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(
            command, **pipes, text=True, env=network.environment
        )

    def said(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()

    @contextmanager
    def carry() -> Iterator[None]:
        assert asking.stdin is not None
        asking.stdin.write("on\n")
        asking.stdin.flush()
        yield
        assert said(asking) == "echoed\n"

    with python(other, ECHO) as echoing:
        assert said(echoing) == "ready\n"
        with python(one, ASK, other) as asking:
            assert said(asking) == "connected\n"
            yield carry


def way_to_core(network: Standing, lower: str) -> dict[str, Any]:
    """The link to a core that a tenant uses, from an aggregation switch of that name."""
    ends = [
        s
        for s in shown(network)
        if s["tenants"] and s["ends"][1].startswith("core")
    ]
    return next(s for s in ends if s["ends"][0].startswith(lower))


def by_hand(network: Standing, port: str, state: str) -> None:
    """Past the command: in whichever part of the switch the device is."""
    for part in Path("/run/netns").glob(f"{network.options[1]}-part*"):
        line = ("ip", "-n", part.name, "link", "set", port, state)
        if (
            subprocess.run(
                line, capture_output=True, check=False
            ).returncode
            == 0
        ):
            return
    raise AssertionError(f"no part has {port}")
