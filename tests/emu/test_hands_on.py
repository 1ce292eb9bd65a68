"""A network that stays up, by hand: Mininet's prompt, open networks, Python, a notebook."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import runpy
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.backends.emu.cleanup_journal import STATE_VARIABLE
from testbed.errors import BadInput
from testbed.standing import vm_measurement
from tests.emu.test_run import REPOSITORY
from tests.emu.test_up import Standing, machine, standing  # noqa: F401 - a fixture
from tests.support.own_addresses import free_port

pytestmark = [
    pytest.mark.needs("mininet"),
    pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning"),
    # Mininet leaves its nodes' pipes for Python to close.
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]
EXAMPLES = REPOSITORY / "examples"

SIXTEEN = "{kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 1}"
FOUR = "{kind: tree, fanout: [2, 1], links: 1 Gbit/s, slots_per_server: 2}"
# Until an answer has come: the switch sees a moment later that a link is up.
PING = "ping -c1 -w30"
FAT_TREE = f"""
name: standing
topology: {SIXTEEN}
scale: {{rate: 0.05}}
policies: [vc]
workload: {{kind: jobs, jobs: [{{id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 5 s}}]}}
"""


def prompt(up: Standing, *lines: str) -> str:
    """The output of the prompt for lines on its standard input."""
    done = subprocess.run(
        up.command("mininet"), env=up.environment, input="".join(f"{line}\n" for line in lines),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


# --------------------------------------------------------------------------------- the prompt


def test_mininets_walkthrough_among_a_tenants_hosts(
    standing: Standing,  # noqa: F811
    prefix: str,
) -> None:
    assert standing.run("mininet").returncode == 2
    assert standing.up().returncode == 0
    # What is up is asked of its keeper: the file may have become another.
    standing.file.write_text(FAT_TREE, encoding="utf-8")
    by_hand = ("--at", "0:2", "--at", "1:1")
    standing.good(
        "tenant", "add", "a", "--bandwidth", "200 Mbit/s", *by_hand
    )
    before, built = standing.status(), machine(prefix)

    nodes = "c0 h1 h2 h3 h4 h5 h6 h7 h8"
    shown = prompt(
        standing, "# by hand", "nodes", "net", "links", "dump",
        "pingall", "h1 ping -c1 h2", "a.0 ping -c1 a.2", "h1 ping -c1 a.2",
    )  # fmt: skip
    assert f"available nodes are: \n{nodes} {prefix}-" in shown
    assert f"\nh1 eth0:{prefix}-s0v0\n" in shown
    assert shown.count(" (OK OK) \n") == 8 + 6
    assert "<AttachedHost h1: eth0:10.0.4.1 pid=None> \n" in shown
    assert "<AttachedHost h8: eth0:None pid=None> \n" in shown

    assert "5 hosts without a tenant's VM" in shown
    assert "*** Results: 0% dropped (6/6 received)\n" in shown
    assert shown.count("1 packets transmitted, 1 received") == 3

    shown = prompt(
        standing,
        "frobnicate", "py 6 * 7", "py net['a.1'].name", "sh cat; echo shell", "h1 cat /proc/1/comm",
        "link s1 h1 down", "h1 ping -c1 -W1 h2", "link s1 h1 up", f"h1 {PING} h2",
        "iperf a.0 a.2", "iperf h1 h8", "exit", "py 43",
    )  # fmt: skip
    assert "*** Unknown command: frobnicate\n42\nh2\nshell\n" in shown
    assert (shown.count(" 0 received"), shown.count(" 1 received")) == (
        1,
        1,
    )
    assert "\n43" not in shown
    received, _ = re.findall(r"'([\d.]+) Mbits/sec'", shown)
    assert 0 < float(received) <= 10 * 1.05
    assert "*** no iperf: h8 has no tenant's VM" in shown
    assert (standing.status(), machine(prefix)) == (before, built)


def test_two_prompts_at_once_and_tenants_come_meanwhile(
    standing: Standing,  # noqa: F811
) -> None:
    assert standing.up().returncode == 0
    standing.good(
        "tenant", "add", "a", "--vms", "2", "--bandwidth", "200 Mbit/s"
    )
    with subprocess.Popen(
        standing.command("mininet"), env=standing.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write("a.0 echo first\n")
        first.stdin.flush()
        assert first.stdout.readline() == "first\n"
        standing.good(
            "tenant", "add", "b", "--vms", "2", "--bandwidth", "200 Mbit/s"
        )
        assert "0% dropped (2/2 received)" in prompt(standing, "pingpair")
        assert "1 received" in prompt(standing, "b.0 ping -c1 b.1")
        first.stdin.write("b.1 echo second\n")
        first.stdin.flush()
        assert first.stdout.readline() == "second\n"
        standing.good("down")
        said, _ = first.communicate("a.0 echo third\nexit\n", timeout=60)
    assert first.returncode == 0
    assert "*** no network is up\n" in said


def test_at_a_terminal_interrupts_and_the_end_leave_the_network(
    standing: Standing,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert standing.up().returncode == 0
    standing.good(
        "tenant", "add", "a", "--vms", "2", "--bandwidth", "200 Mbit/s"
    )
    before = standing.status()
    pid, terminal = pty.fork()
    if pid == 0:
        command = standing.command("mininet")
        environment = {
            **standing.environment,
            "TERM": "dumb",
            "HOME": str(tmp_path),
        }
        os.execvpe(command[0], command, environment)  # noqa: S606
    shown = b""

    def seen(text: bytes, within_s: float) -> bool:
        nonlocal shown
        while text not in shown:
            if not select.select([terminal], [], [], within_s)[0]:
                return False
            shown += os.read(terminal, 65_536)
        shown = shown.partition(text)[2]
        return True

    def until(text: bytes) -> None:
        assert seen(text, 60), shown

    try:
        until(b"mininet> ")
        # Between Python's prompt and its wait for a key a signal is answered at the next key only.
        for _ in range(30):
            os.write(terminal, b"\x03")
            if seen(b"Interrupt", 2):
                break
        else:
            pytest.fail(f"no interrupt is answered: {shown!r}")
        until(b"mininet> ")
        os.write(terminal, b"a.0 ping -i 0.2 a.1\n")
        until(b"icmp_seq=2")
        os.write(terminal, b"\x03")
        until(b"packets transmitted")
        until(b"mininet> ")
        os.write(terminal, b"\x04")
        until(b"\r\n")
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert standing.status() == before


# ------------------------------------------------------------------------------- open to all


def test_open_all_hosts_reach_each_other(standing: Standing) -> None:  # noqa: F811
    # Few hosts: each pair of them is asked.
    file = standing.file
    file.write_text(FAT_TREE.replace(SIXTEEN, FOUR), encoding="utf-8")
    came = standing.up("--open")
    assert came.returncode == 0, came.stderr
    assert "next: sudo testbed mininet" in came.stderr
    assert (
        "open: no reservations, VM slots are hosts h1 to h4"
        in standing.good("status")
    )
    (tenant,) = standing.status()["tenants"]
    assert tenant["name"] == "open"
    shown = prompt(
        standing, "pingall", "h4 ping -c1 h2", "py net.iperf(seconds=1)"
    )
    assert "*** Results: 0% dropped (12/12 received)\n" in shown
    received, *_ = re.findall(r"'([\d.]+) Mbits/sec'", shown)
    # A link has 50 Mbit/s on the wire, and nothing else limits one that is alone.
    assert 1 < float(received) <= 50 * 1.05
    assert " 1 received" in shown

    refused = standing.run(
        "tenant", "add", "a", "--vms", "1", "--bandwidth", "1 Mbit/s"
    )
    assert refused.returncode == 2
    assert (
        "the network is open: all its slots are one tenant's"
        in refused.stderr
    )
    assert standing.inside("h1", "ping", "-c1", "h4").returncode == 0
    names = standing.inside(
        "open", "sh", "-c", "echo $HOSENET_VM"
    ).stdout.splitlines()
    assert sorted(names) == sorted(f"h{i}: h{i}" for i in range(1, 5))
    measured = standing.run("measure", "open", "--seconds", "1", "--json")
    assert measured.returncode in (0, 1), measured.stderr
    pairs = json.loads(measured.stdout)["pairs"]
    assert {one["reserved_bps"] for one in pairs} == {0}
    assert all(0 < one["measured_bps"] <= 1.05e9 for one in pairs)


# ------------------------------------------------------------------------------- from Python


@pytest.fixture
def up(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """``testbed.up`` with names, ports and a state folder of the test's own."""
    own = Standing(prefix, tmp_path)
    monkeypatch.setenv(STATE_VARIABLE, str(own.state))
    ports = {"openflow_port": free_port(), "api_port": free_port()}
    monkeypatch.setattr(
        vm_measurement, "PINGS", 2
    )  # the measurements' 2 s of them are no subject
    made = partial(testbed.up, prefix=prefix, **ports)
    monkeypatch.setattr(testbed, "up", made, raising=False)
    yield made
    own.remove_left()


def used_until_interrupted(net: Any) -> None:
    assert net.state.slots == 2
    net.tenants.add("a", vms=2, bandwidth="100 Mbit/s")
    assert net.mininet.ping(net.mininet.get("a.0", "a.1")) == 0
    signal.raise_signal(signal.SIGINT)


def test_interrupted_the_block_leaves_no_network(
    up: Any, prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(FAT_TREE, encoding="utf-8")
    before = machine(prefix)
    with (
        pytest.raises(KeyboardInterrupt),
        up(file, settings={"topology.k": 2}) as net,
    ):
        used_until_interrupted(net)
    assert machine(prefix) == before


def test_a_bad_file_is_said_as_the_command_says_it(
    up: Any, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(
        FAT_TREE.replace("fat-tree", "fat-treee"), encoding="utf-8"
    )
    with pytest.raises(
        BadInput, match=r"file\.yaml:3:.*did you mean 'fat-tree'"
    ):
        up(file)


def test_the_example_runs(up: Any, prefix: str) -> None:
    before, printed = machine(prefix), io.StringIO()
    with redirect_stdout(printed):
        runpy.run_path(str(EXAMPLES / "up_from_python.py"))
    said = printed.getvalue()
    assert "2 packets transmitted, 2 received" in said
    assert (
        len(
            re.findall(
                r"^a\.\d to a\.\d: [\d.]+ of 100 Mbit/s$",
                said,
                re.MULTILINE,
            )
        )
        == 3
    )
    assert machine(prefix) == before


@pytest.mark.long
def test_the_notebook_runs(
    up: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    before = machine(prefix)
    monkeypatch.chdir(EXAMPLES)
    notebook = json.loads(
        (EXAMPLES / "bandwidth-by-hand.ipynb").read_text(encoding="utf-8")
    )
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), cell["id"], "exec")
            exec(code, names)  # noqa: S102 - our own
    for rate, measured in zip(
        names["rates_mbps"], names["measured_mbps"], strict=True
    ):
        assert len(measured) == 3
        assert all(0 < one <= rate * 1.05 for one in measured)
    (axes,) = names["figure"].axes
    assert len(axes.lines) == 1 + 3 + 1
    plt.close(names["figure"])
    assert machine(prefix) == before
