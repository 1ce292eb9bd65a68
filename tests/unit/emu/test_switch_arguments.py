"""Arguments of ovs-vsctl: every bridge, port and number of the plan, with the run's tag."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.backends.emu import open_vswitch
from testbed.backends.emu.emulated_network import up_lines
from testbed.backends.emu.open_vswitch import (
    SwitchDaemons,
    SwitchSockets,
    connection_arguments,
    deletion_arguments,
    detached,
    read_sockets,
    up_arguments,
)
from testbed.errors import MachineCannot, RunFailed
from testbed.plan.network_plan import NetworkPlan, network_plan
from topologies.fat_tree import fat_tree
from topologies.tree import tree

MARK = "external_ids:hosenet-run=0000beef"


def plan() -> NetworkPlan:
    return network_plan(fat_tree(4, 10**9, 2), "hn")


def commands(arguments: list[str]) -> Iterator[list[str]]:
    """The single commands of a transaction."""
    command: list[str] = []
    for argument in arguments:
        if argument == "--":
            if command:
                yield command
            command = []
        else:
            command.append(argument)
    yield command


def rows_of(table: str, arguments: list[str]) -> dict[str, dict[str, str]]:
    """Row id -> column -> value, of one table's ``create`` commands."""
    out = {}
    for command in commands(arguments):
        if command[1:3] == ["create", table]:
            pairs = (argument.partition("=") for argument in command[3:])
            out[command[0].removeprefix("--id=")] = {
                key: value for key, _, value in pairs
            }
    return out


def test_every_port_has_its_number_and_survives_the_limits() -> None:
    network = plan()
    arguments = up_arguments(network, network.bridges, "0000beef", "netdev")
    interfaces = rows_of("Interface", arguments)
    ports = rows_of("Port", arguments)
    bridges = rows_of("Bridge", arguments)
    number_of = {
        row["name"]: int(row["ofport_request"])
        for row in interfaces.values()
        if "ofport_request" in row
    }
    expected = {s.port.name: s.port.number for s in network.slots}
    expected |= {
        p.name: p.number for k in network.links for p in (k.lower, k.upper)
    }
    assert number_of == expected
    bridge_of = {
        port: row["name"]
        for row in bridges.values()
        for port in row["ports"].split(",")
    }
    plan_bridge = {s.port.name: s.port.bridge for s in network.slots}
    plan_bridge |= {
        p.name: p.bridge for k in network.links for p in (k.lower, k.upper)
    }
    for row, port in ports.items():
        # linux-noop: with any other discipline the switch wipes what tc has set.
        if port["name"] in expected:
            assert port["qos"] == "@noop"
            assert bridge_of[row] == plan_bridge[port["name"]]
            assert interfaces[port["interfaces"]]["name"] == port["name"]
        else:
            assert bridge_of[row] == port["name"]
            assert interfaces[port["interfaces"]]["type"] == "internal"


def test_bridges_of_a_foreign_controller_are_connected_later() -> None:
    network = plan()
    arguments = up_arguments(
        network, network.bridges, "0000beef", "system", connected=False
    )
    assert rows_of("Controller", arguments) == {}
    for row in rows_of("Bridge", arguments).values():
        assert "controller" not in row
    later = connection_arguments(network.bridges, "0000beef")
    controllers = rows_of("Controller", later)
    assert len(controllers) == len(network.bridges)
    connected = {}
    for command in commands(later):
        if command[0] == "set":
            connected[command[2]] = command[3].removeprefix("controller=")
    assert connected.keys() == {b.name for b in network.bridges}
    assert sorted(connected.values()) == sorted(controllers)


def test_bridges_are_secure_marked_and_connected() -> None:
    network = plan()
    arguments = up_arguments(network, network.bridges, "0000beef", "system")
    bridges = rows_of("Bridge", arguments)
    controllers = rows_of("Controller", arguments)
    assert sorted(b["name"] for b in bridges.values()) == sorted(
        bridge.name for bridge in network.bridges
    )
    dpid_of = {bridge.name: bridge.dpid for bridge in network.bridges}
    for row in bridges.values():
        assert row["fail_mode"] == "secure"
        # Probed less often than by default: all switches ask at the same moment.
        assert (
            int(controllers[row["controller"]]["inactivity_probe"])
            == 60_000
        )
        assert row["protocols"] == "OpenFlow13"
        assert row["datapath_type"] == "system"
        assert row["external_ids:hosenet-run"] == "0000beef"
        assert (
            int(row["other_config:datapath-id"], 16) == dpid_of[row["name"]]
        )
        assert len(row["other_config:datapath-id"]) == 16
        assert (
            controllers[row["controller"]]["target"]
            == '"unix:hosenet-0000beef.sock"'
        )
    last = list(commands(arguments))[-1]
    assert last[:4] == ["add", "Open_vSwitch", ".", "bridges"]
    assert sorted(last[4:]) == sorted(bridges)


def test_all_that_outlives_a_bridge_is_marked() -> None:
    arguments = up_arguments(plan(), plan().bridges, "0000beef", "netdev")
    for command in commands(arguments):
        if command[1:3] in (["create", "QoS"], ["create", "Bridge"]):
            assert MARK in command


def test_no_argument_is_longer_than_the_kernel_takes() -> None:
    network = network_plan(tree([1, 400], 10**9, 30), "hn")
    arguments = up_arguments(network, network.bridges, "0000beef", "netdev")
    assert max(len(argument) for argument in arguments) < 128 * 1024


def test_deletion_forgives_what_is_gone() -> None:
    assert deletion_arguments(["del-br"], ["a", "b"]) == [
        "--", "--if-exists", "del-br", "a", "--", "--if-exists", "del-br", "b",
    ]  # fmt: skip
    assert deletion_arguments(["destroy", "QoS"], ["u"]) == [
        "--", "--if-exists", "destroy", "QoS", "u",
    ]  # fmt: skip


def test_devices_are_made_in_the_runs_group_and_in_their_namespaces() -> (
    None
):
    network = plan()
    namespaces, links = up_lines(network, 77, {})
    assert namespaces == [f"netns add {s.netns}" for s in network.slots]
    assert all(line.startswith("link add") for line in links)
    assert len(links) == len(network.slots) + len(network.links)
    # Both ends carry the group: that is how the kernel removes them all at once.
    assert all(line.count("group 77") == 2 for line in links)
    slot = network.slots[3]
    line = next(
        line for line in links if f" name {slot.port.name} mtu" in line
    )
    assert line.endswith(f"netns {slot.netns}")
    assert f"address {slot.mac}" in line
    assert len({port.name for port in network.ports}) == len(
        network.slots
    ) + 2 * len(network.links)


SS = """\
Netid State  Recv-Q Send-Q Local Address:Port Peer Address:Port
p_raw UNCONN 0 0 *:hn-s0v0 * users:(("ovs-vswitchd",pid=9,fd=41)) ino:38074 sk:1 vnethdr
\t skmem:(r0,rb212992,t0,tb212992,f0,w0,o176,bl0,d0)
p_raw UNCONN 0 0 [0]:* * users:(("ovs-vswitchd",pid=9,fd=45)) ino:3 sk:2 vnethdr
\t skmem:(r0,rb212992,t0,tb33554432,f0,w0,o0,bl0,d0)
p_raw UNCONN 0 0 *:eth0 * users:(("tcpdump",pid=10,fd=4)) ino:4 sk:3
\t skmem:(r0,rb212992,t0,tb9,f0,w0,o0,bl0,d0)
"""


def test_the_switchs_send_buffer_is_that_of_its_unbound_socket() -> None:
    sockets = read_sockets(SS, 9)
    assert sockets.send_buffer_bytes == 33_554_432
    assert sockets.offload is True


def test_before_the_first_packet_there_is_no_send_buffer() -> None:
    lines = SS.splitlines(keepends=True)
    sockets = read_sockets("".join(lines[:3] + lines[5:]), 9)
    assert sockets.send_buffer_bytes == 0
    assert sockets.offload is True


def test_a_switch_without_ports_tells_nothing_of_offload() -> None:
    lines = SS.splitlines(keepends=True)
    assert read_sockets("".join(lines[:1] + lines[5:]), 9).offload is None
    assert read_sockets(lines[0], None).offload is None
    assert read_sockets(SS.replace(" vnethdr", ""), 9).offload is False


def test_another_switch_on_the_machine_is_not_this_one() -> None:
    assert read_sockets(SS, None) == read_sockets(SS, 9)
    assert read_sockets(SS, 99) == SwitchSockets(
        offload=None, send_buffer_bytes=0
    )


def test_a_port_that_gets_no_number_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = plan().ports[0]

    def rows(*_: object) -> list[list[Any]]:
        return [[port.name, ["set", []], ["set", []]]]

    switch = SwitchDaemons(tmp_path)
    monkeypatch.setattr(switch, "rows", rows)
    monkeypatch.setattr(open_vswitch, "NUMBERS_TIMEOUT_S", -1)
    with pytest.raises(RunFailed, match=r": it has no number yet$"):
        switch.check_ports([port])


def test_a_daemons_command_that_is_missing_is_the_machines_fault() -> None:
    with pytest.raises(
        MachineCannot, match="cannot run no-such-daemon: No"
    ):
        detached(["no-such-daemon", "--detach"])


def test_a_switch_that_has_died_does_not_run_though_nobody_waits_for_it(
    tmp_path: Path,
) -> None:
    program = tmp_path / "ovs-vswitchd"
    shutil.copy(shutil.which("cat") or "/bin/cat", program)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([program], **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b".")
        process.stdin.flush()
        process.stdout.read(1)  # it is the program now, and has its name
        (tmp_path / "ovs-vswitchd.pid").write_text(f"{process.pid}\n")
        switch = SwitchDaemons(tmp_path)
        assert switch.pid == process.pid
        process.kill()
        os.waitid(
            os.P_PID, process.pid, os.WEXITED | os.WNOWAIT
        )  # a zombie from now on
        assert (
            Path(f"/proc/{process.pid}/comm").read_text()
            == "ovs-vswitchd\n"
        )
        assert switch.pid is None
