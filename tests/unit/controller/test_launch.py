"""The whole controller as a process, on each library, with fake switches that really connect."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from controller import openflow13
from controller import process as process_module
from controller.api_client import ControllerUnreachable, SwitchesMissing
from controller.flow_rules import (
    COOKIE_TAG,
    AddFlow,
    Drop,
    Flow,
    Match,
    desired_flows,
)
from controller.launch import (
    EXIT_MACHINE_CANNOT,
    TOKEN_VARIABLE,
    CannotStart,
    User,
    _exit_on_signal,
    _give_up_root,
    _token,
    unprivileged_user,
)
from controller.library import (
    LIBRARY_VARIABLE,
    LibraryMissing,
    choose_library,
)
from controller.process import (
    ControllerNotStarted,
    ControllerProcess,
    _next_line,
    start_controller,
)
from controller.values import DesiredState, NetworkSwitches, to_json
from tests.support.fake_datacentre import (
    fat_tree_datacentre,
    tree_datacentre,
)
from tests.support.fake_openflow import FakeConnection
from tests.support.fake_switch import FakeSwitch
from tests.support.watching_client import WatchingClient

# Each test starts processes; together they take half a minute.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "controller.launch")
DATACENTRE = tree_datacentre([2, 2], slots_per_server=2)
TOKEN = "a-token-for-tests-only"  # noqa: S105
LIBRARIES = [
    pytest.param("ryu", marks=pytest.mark.needs("ryu")),
    pytest.param("os-ken", marks=pytest.mark.needs("os-ken")),
]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ports(openflow: int = 0, api: int = 0) -> list[str]:
    return ["--openflow-port", str(openflow), "--api-port", str(api)]


def controlled(library: str, *more: str) -> ControllerProcess:
    """A controller at any free ports, or at those that `more` names."""
    with tempfile.TemporaryFile() as log:
        return start_controller(log, *ports(), "--library", library, *more)


def _running(library: str) -> Iterator[ControllerProcess]:
    with controlled(library) as process:
        yield process


@pytest.fixture(scope="module")
def running_ryu() -> Iterator[ControllerProcess]:
    yield from _running("ryu")


@pytest.fixture(scope="module")
def running_os_ken() -> Iterator[ControllerProcess]:
    yield from _running("os-ken")


@pytest.fixture
def controller(
    library: str, request: pytest.FixtureRequest
) -> Iterator[ControllerProcess]:
    """A controller that several tests share, empty at the start of each."""
    process: ControllerProcess = request.getfixturevalue(
        f"running_{library.replace('-', '_')}"
    )
    yield process
    with WatchingClient.of(process) as client:
        for tenant in client.state().tenants:
            with suppress(SwitchesMissing):
                client.remove_tenant(tenant.id, timeout_s=0)
        client.put_network([])


@pytest.fixture
def client(controller: ControllerProcess) -> Iterator[WatchingClient]:
    with WatchingClient.of(controller) as client:
        yield client


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def any_library() -> str:
    """For tests of what has nothing to do with the library: the one that starts faster."""
    for name in ("os-ken", "ryu"):
        with suppress(LibraryMissing):
            return choose_library(name)
    pytest.skip(
        "no OpenFlow library is installed (sudo ./provision.sh install)"
    )


def started(
    stack: ExitStack, library: str, folder: Path, *more: str
) -> tuple[ControllerProcess, WatchingClient]:
    """A controller with the token TOKEN, and a client of it."""
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    process = stack.enter_context(
        controlled(library, "--token-file", str(token), *more)
    )
    return process, stack.enter_context(
        WatchingClient(process.api_port, TOKEN)
    )


def connect(
    stack: ExitStack, port: int, switches: dict[int, FakeSwitch]
) -> list[FakeConnection]:
    return [
        stack.enter_context(FakeConnection(switch, port))
        for switch in switches.values()
    ]


def fakes() -> dict[int, FakeSwitch]:
    return {
        s.dpid: FakeSwitch(s.dpid, s.ports) for s in DATACENTRE.switches
    }


def flows_of(switches: dict[int, FakeSwitch]) -> dict[int, frozenset[Flow]]:
    return {dpid: switch.flows for dpid, switch in switches.items()}


def wanted(state: DesiredState) -> dict[int, frozenset[Flow]]:
    return {
        dpid: frozenset(flows)
        for dpid, flows in desired_flows(state).items()
    }


STATE = (
    DesiredState()
    .with_network(DATACENTRE.switches)
    .with_tenant(
        DATACENTRE.tenant(3, DATACENTRE.slots[:4], lambda _count: 0)
    )
    .with_tenant(
        DATACENTRE.tenant(4, DATACENTRE.slots[4:], lambda _count: 0)
    )
)
EMPTY = DesiredState().with_network(DATACENTRE.switches)


def test_tenants_reach_the_switches(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    switches = fakes()
    connect(stack, controller.openflow_port, switches)
    client.put_network(DATACENTRE.switches)
    client.wait_connected()
    assert flows_of(switches) == wanted(EMPTY)
    for tenant in STATE.tenants:
        client.add_tenant(tenant)
    assert flows_of(switches) == wanted(STATE)
    for tenant in STATE.tenants:
        client.remove_tenant(tenant.id)
    assert flows_of(switches) == wanted(EMPTY)
    state = client.state()
    assert (state.library, state.missing, state.pid) == (
        controller.library,
        [],
        controller.process.pid,
    )


def test_our_transactions_are_not_taken_for_the_librarys(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    """The library counts from anywhere; were its numbers among ours, an error of one of its own
    messages could be taken for the refusal of a tenant.
    """
    client.put_network(DATACENTRE.switches)
    connections = connect(stack, controller.openflow_port, fakes())
    client.wait_connected()
    ours = (
        openflow13.OFPT_BARRIER_REQUEST,
        openflow13.OFPT_EXPERIMENTER,
        openflow13.OFPT_FLOW_MOD,
    )
    for connection in connections:
        kinds = {kind for kind, _ in connection.heard}
        assert openflow13.OFPT_BARRIER_REQUEST in kinds
        assert openflow13.OFPT_FEATURES_REQUEST in kinds
        for kind, xid in connection.heard:
            if kind != openflow13.OFPT_MULTIPART_REQUEST:
                assert (xid >= 1 << 31) is (kind in ours)


def test_a_whole_fat_tree_connects_at_once(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    datacentre = fat_tree_datacentre(4, slots_per_server=2)
    client.put_network(datacentre.switches)
    switches = {
        s.dpid: FakeSwitch(s.dpid, s.ports) for s in datacentre.switches
    }
    connect(stack, controller.openflow_port, switches)
    client.wait_connected()
    tenant = datacentre.tenant(9, datacentre.slots, lambda _count: 2)
    client.add_tenant(tenant)
    state = (
        DesiredState().with_network(datacentre.switches).with_tenant(tenant)
    )
    assert flows_of(switches) == wanted(state)


def test_a_tables_worth_of_rules_is_reconciled(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    """More rules than fit into one message, ours and others'."""
    client.put_network(DATACENTRE.switches)
    switches = fakes()
    ours = [
        Flow(0, 9, Match(in_port=n), Drop(), COOKIE_TAG | 99)
        for n in range(1, 2001)
    ]
    foreign = [
        Flow(0, 8, Match(in_port=n), Drop(), 5) for n in range(1, 2001)
    ]
    switches[1].apply([AddFlow(flow) for flow in ours + foreign])
    connect(stack, controller.openflow_port, switches)
    client.wait_connected()
    assert switches[1].flows == {*wanted(EMPTY)[1]}
    assert client.state().switches[0].foreign_flows == len(foreign)


@pytest.mark.short("ryu")
def test_a_silent_switch_is_named_and_holds_up_nobody(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    client.put_network(DATACENTRE.switches)
    switches = fakes()
    connections = connect(stack, controller.openflow_port, switches)
    client.wait_connected()
    first = STATE.tenants[0]
    silent = next(
        c for c in connections if c.switch.dpid == first.dpids[-1]
    )
    silent.answering.clear()
    with pytest.raises(SwitchesMissing) as caught:
        client.add_tenant(
            first, timeout_s=10.0
        )  # in which all others have answered
    assert caught.value.missing == (
        DATACENTRE.switches[silent.switch.dpid - 1].name,
    )
    aside = DATACENTRE.tenant(
        4, DATACENTRE.slots[6:], lambda count: count - 1
    )
    assert silent.switch.dpid not in aside.dpids
    client.add_tenant(aside)
    silent.answering.set()
    client.add_tenant(first)
    state = EMPTY.with_tenant(first).with_tenant(aside)
    assert flows_of(switches) == wanted(state)


def test_a_full_switch_refuses_and_the_tenant_is_out(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    client.put_network(DATACENTRE.switches)
    switches = fakes()
    connect(stack, controller.openflow_port, switches)
    client.wait_connected()
    switches[1].capacity = 4
    with pytest.raises(
        Exception, match=r"refused the rules: .*type 5, code 1"
    ):
        client.add_tenant(STATE.tenants[0])
    assert flows_of(switches) == wanted(EMPTY)
    assert client.state().tenants == []


def test_a_switch_that_comes_back(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    """Also shows that a connection's end is noticed: it is missing in between."""
    client.put_network(DATACENTRE.switches)
    switches = fakes()
    connections = connect(stack, controller.openflow_port, switches)
    client.wait_connected()
    for tenant in STATE.tenants:
        client.add_tenant(tenant)
    connections[0].close()
    gone = connections[0].switch.dpid
    until(lambda: not client.state().switches[gone - 1].connected)
    switches[gone] = FakeSwitch(gone, DATACENTRE.switches[gone - 1].ports)
    (again,) = connect(
        stack, controller.openflow_port, {gone: switches[gone]}
    )
    client.wait_connected()
    assert flows_of(switches) == wanted(STATE)
    assert again.batches == 1


def test_connections_that_come_and_go_leave_no_threads(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    client.put_network(DATACENTRE.switches)

    def threads() -> int:
        return len(
            list(Path(f"/proc/{controller.process.pid}/task").iterdir())
        )

    counts: list[int] = []
    for _ in range(3):
        with ExitStack() as once:
            connect(once, controller.openflow_port, fakes())
            client.wait_connected()
        until(lambda: not any(s.connected for s in client.state().switches))
        until(lambda: not counts or threads() <= counts[0])
        counts.append(threads())
    assert len(counts) == 3


@pytest.mark.short("ryu")
def test_the_controller_restarts_under_its_switches(
    stack: ExitStack, library: str, tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    with ExitStack() as life:
        process, client = started(
            life, library, tmp_path, "--state-dir", str(state_dir)
        )
        client.put_network(DATACENTRE.switches)
        switches = fakes()
        connect(life, process.openflow_port, switches)
        client.wait_connected()
        for tenant in STATE.tenants:
            client.add_tenant(tenant)
        os.kill(process.process.pid, signal.SIGKILL)
        process.process.wait(60)
    assert flows_of(switches) == wanted(STATE), (
        "without a controller the rules stay"
    )
    # As if it had been killed between telling the switches and forgetting.
    (state_dir / "tenant-3.json").unlink()
    state = STATE.without_tenant(3)
    process, client = started(
        stack, library, tmp_path, "--state-dir", str(state_dir)
    )
    connections = connect(stack, process.openflow_port, switches)
    client.wait_connected()
    assert flows_of(switches) == wanted(state)
    assert [t.id for t in client.state().tenants] == [
        t.id for t in state.tenants
    ]
    changed = {d for d in switches if wanted(state)[d] != wanted(STATE)[d]}
    assert {c.switch.dpid for c in connections if c.batches} == changed
    assert {
        stat.S_IMODE(p.stat().st_mode) for p in state_dir.iterdir()
    } == {0o600}
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700


def test_the_client_finds_the_restarted_controller_again(
    stack: ExitStack, any_library: str, tmp_path: Path
) -> None:
    with ExitStack() as life:
        process, _ = started(life, any_library, tmp_path)
        same = ports(process.openflow_port, process.api_port)
        client = stack.enter_context(
            WatchingClient(process.api_port, TOKEN)
        )
        client.put_network(DATACENTRE.switches)
    with pytest.raises(ControllerUnreachable):
        client.state()
    process, _ = started(stack, any_library, tmp_path, *same)
    assert client.state().switches == []


def test_garbage_on_the_openflow_port_costs_only_its_connection(
    stack: ExitStack, controller: ControllerProcess, client: WatchingClient
) -> None:
    client.put_network(DATACENTRE.switches)
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x04\x05\xff\xff" + b"x" * 5000,
        bytes(64),
    ):
        with socket.create_connection(
            ("127.0.0.1", controller.openflow_port)
        ) as connection:
            connection.sendall(garbage)
    switches = fakes()
    connect(stack, controller.openflow_port, switches)
    client.wait_connected()
    assert flows_of(switches) == wanted(EMPTY)


# -------------------------------------------------------------------------- starting and ending


def until(condition: object, timeout_s: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


@pytest.mark.short("ryu-15", "os-ken-2")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(
    stack: ExitStack, library: str, how: signal.Signals, tmp_path: Path
) -> None:
    process, client = started(stack, library, tmp_path)
    connect(stack, process.openflow_port, fakes())
    client.put_network(DATACENTRE.switches)
    client.wait_connected()
    process.process.send_signal(how)
    assert process.process.wait(60) == 0
    for port in (process.openflow_port, process.api_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


class FullDisk(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_signal_ends_it_where_its_log_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr("sys.stdout", FullDisk())
    with pytest.raises(SystemExit) as ended:
        _exit_on_signal(signal.SIGTERM, None)
    assert ended.value.code == 0


def test_it_may_have_as_many_connections_as_the_machine_allows(
    stack: ExitStack, any_library: str, tmp_path: Path
) -> None:
    process, _ = started(stack, any_library, tmp_path)
    limits = (
        Path(f"/proc/{process.process.pid}/limits").read_text().splitlines()
    )
    soft, hard = next(
        line for line in limits if line.startswith("Max open files")
    ).split()[3:5]
    assert soft == hard


@pytest.mark.timeout(20)
def test_a_line_without_an_end_is_waited_for_no_longer_than_a_line() -> (
    None
):
    reader, writer = os.pipe()
    with (
        os.fdopen(reader, "rb", buffering=0) as ready,
        os.fdopen(writer, "wb", buffering=0) as app,
    ):
        app.write(b'{"starting": "half')
        assert _next_line(ready, 0.1) == {}
        app.write(b'{"ready": true}\n{"next": 1}\n')
        assert _next_line(ready) == {"ready": True}
        assert _next_line(ready) == {"next": 1}


def test_an_interrupted_start_leaves_no_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(*_: object) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(("sleep", "20")))
        return started[0]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process_module, "_started", start)
    monkeypatch.setattr(process_module, "_next_line", interrupted)
    with (
        tempfile.TemporaryFile() as log,
        pytest.raises(KeyboardInterrupt),
    ):
        start_controller(log, *ports())
    assert started[0].poll() == -signal.SIGKILL


@pytest.mark.usefixtures("slow_ends")
@pytest.mark.parametrize("which", ["OpenFlow", "API"])
def test_a_taken_port_is_exit_3_and_named(
    any_library: str, which: str
) -> None:
    option = {"OpenFlow": "--openflow-port", "API": "--api-port"}[which]
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(ControllerNotStarted) as caught:
            controlled(any_library, option, str(port))
    error = caught.value
    assert (error.exit_code, error.error, error.port) == (
        3,
        "port-taken",
        port,
    )
    assert f"port {port} on 127.0.0.1, wanted for {which}, is taken" in str(
        error
    )
    assert f"{option} chooses another" in str(error)


@pytest.mark.short("ryu")
def test_the_sockets_of_the_process_that_starts_it_outlive_it(
    stack: ExitStack, library: str, tmp_path: Path
) -> None:
    """A switch that connects while no controller is there waits for the next."""
    names = ("--listen-fd", "--api-fd")
    sockets = {
        name: stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for name in names
    }
    held = {name: each.fileno() for name, each in sockets.items()}
    openflow, api = (each.getsockname()[1] for each in sockets.values())
    options = ["--library", library, "--state-dir", str(tmp_path / "state")]
    with tempfile.TemporaryFile() as log:
        if os.geteuid() == 0:
            options += ["--uid", "61444"]
        first = start_controller(log, *options, held=held)
        assert (first.openflow_port, first.api_port) == (openflow, api)
        with first.client() as client:
            client.put_network(DATACENTRE.switches)
        first.process.kill()
        first.process.wait()
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", openflow))
        switches = fakes()
        connect(stack, openflow, switches)
        second = start_controller(log, *options, held=held)
        stack.callback(second.stop)
        with second.client() as client:
            client.wait_connected(timeout_s=60)
    assert all(switch.flows for switch in switches.values())


def test_it_listens_on_loopback_only(
    stack: ExitStack, any_library: str, tmp_path: Path
) -> None:
    process, _ = started(stack, any_library, tmp_path)
    listening = {
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{process.process.pid}/net/{table}")
        .read_text()
        .splitlines()[1:]
        if line.split()[3] == "0A"
    }
    for port in (process.openflow_port, process.api_port):
        holders = [
            place for place in listening if place.endswith(f":{port:04X}")
        ]
        assert holders == [f"0100007F:{port:04X}"]


def launch(
    arguments: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={
            **os.environ,
            **(
                {TOKEN_VARIABLE: TOKEN}
                if environment is None
                else environment
            ),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (
            ["--openflow-port", "70000"],
            None,
            2,
            "--openflow-port is not within 0..65535",
        ),
        (["--openflow-port", "x"], None, 2, "invalid int value"),
        (["--library", "pox"], None, 2, "invalid choice"),
        ([], {LIBRARY_VARIABLE: "pox"}, 3, "'pox' is no OpenFlow library"),
        (
            [],
            {TOKEN_VARIABLE: ""},
            2,
            f"{TOKEN_VARIABLE} has no token of at least 16",
        ),
        ([], {TOKEN_VARIABLE: "short"}, 2, "has no token of at least 16"),
        ([], {TOKEN_VARIABLE: "with a\tcontrol character"}, 2, "printable"),
        (["--token-file", "/nonexistent/token"], None, 2, "token file: "),
        (["--remote", "tcp:host"], None, 2, "is not tcp:HOST:PORT"),
        (["--remote", "tcp:host:70000"], None, 2, "is not tcp:HOST:PORT"),
        (
            ["--remote", f"tcp:{'a' * 64}:6653"],
            None,
            3,
            "is no host's name",
        ),
    ],
)
@pytest.mark.usefixtures("any_library")
def test_bad_input(
    arguments: list[str],
    environment: dict[str, str] | None,
    code: int,
    message: str,
) -> None:
    ended = launch(arguments, environment)
    assert ended.returncode == code
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.usefixtures("any_library")
def test_a_token_file_that_others_can_read_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o644)
    ended = launch(["--token-file", str(path)])
    assert ended.returncode == 2
    assert f"{path} is open to others: chmod 600 {path}" in ended.stderr
    answer = json.loads(ended.stdout)
    assert answer.pop("message") in ended.stderr
    assert answer == {"ready": False, "error": "token", "port": None}


@pytest.mark.needs("root")
def test_a_token_file_is_this_users_or_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared folder somebody else may make it first."""
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    os.chown(path, 54_321, 54_321)
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(CannotStart, match="belongs to 54321, who knows"):
        _token(path)
    monkeypatch.setenv("SUDO_UID", "54321")
    assert _token(path) == TOKEN
    os.chown(path, 0, 0)
    assert _token(path) == TOKEN


def test_privileges_that_cannot_be_given_up_are_no_fault_of_a_saved_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("jobs.linux.set_no_new_privileges", refused)
    options = argparse.Namespace(exit_with_parent=None)
    with pytest.raises(CannotStart, match="cannot be given up") as failed:
        _give_up_root(options, user=None)
    assert failed.value.error == "privileges"
    assert failed.value.exit_code == EXIT_MACHINE_CANNOT


@pytest.mark.usefixtures("any_library")
def test_saved_state_that_makes_no_sense_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text("{")
    ended = launch(
        [
            "--state-dir",
            str(tmp_path),
            "--openflow-port",
            "0",
            "--api-port",
            "0",
        ]
    )
    assert ended.returncode == 2
    assert "network.json: not JSON" in ended.stderr
    assert "remove the file" in ended.stderr


def test_a_library_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    for wanted_library in (None, "ryu", "os-ken"):
        monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
        with pytest.raises(LibraryMissing, match=r"provision\.sh"):
            choose_library(wanted_library)


@pytest.mark.parametrize(
    "complaint", ["ImportError('no eventlet')", "AttributeError('no name')"]
)
def test_a_library_that_is_there_and_broken(
    tmp_path: Path, complaint: str
) -> None:
    (tmp_path / "os_ken").mkdir()
    (tmp_path / "os_ken" / "__init__.py").write_text(f"raise {complaint}")
    environment = {TOKEN_VARIABLE: TOKEN, "PYTHONPATH": str(tmp_path)}
    ended = launch(["--library", "os-ken"], environment)
    assert ended.returncode == 3
    assert "os-ken is installed but cannot be imported (no " in ended.stderr
    assert json.loads(ended.stdout)["error"] == "library-missing"


def test_a_token_file_serves_as_well(
    stack: ExitStack, any_library: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    arguments = [
        *ports(),
        "--library",
        any_library,
        "--token-file",
        str(path),
    ]
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE
    )
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    output = json.loads(process.stdout.readline())
    assert output["ready"] is True
    with WatchingClient(output["api_port"], TOKEN) as client:
        assert client.state().pid == process.pid == output["pid"]


PARENT = """
import os, signal, sys
from controller.process import start_controller
with open(os.devnull, "ab") as log:
    child = start_controller(log, *sys.argv[1:])
print(child.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.short("ryu")
def test_it_does_not_outlive_who_started_it(library: str) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, *ports(), "--library", library],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL
    child = Path(f"/proc/{int(parent.stdout)}")
    until(
        lambda: (
            not child.exists()
            or "State:\tZ" in (child / "status").read_text()
        )
    )


# ------------------------------------------------------------------------------------ privileges


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SUDO_UID": "0", "SUDO_GID": "0"},
        {"SUDO_UID": "1000", "SUDO_GID": "0"},
        {"SUDO_UID": "x", "SUDO_GID": "1"},
    ],
)
def test_without_a_caller_that_is_no_root_it_is_nobody(
    environment: dict[str, str],
) -> None:
    assert unprivileged_user(environment).name == "nobody"


def test_the_caller_of_sudo_it_is_otherwise() -> None:
    assert unprivileged_user({"SUDO_UID": "1", "SUDO_GID": "2"}) == User(
        "daemon", 1, 2
    )


def without_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(key, raising=False)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        key: value.strip()
        for key, _, value in (line.partition(":") for line in lines)
    }


@pytest.mark.short("ryu")
@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("environment", "user", "uid", "gid"),
    [
        ({}, "nobody", 65534, 65534),
        ({"SUDO_UID": "54321", "SUDO_GID": "54322"}, "54321", 54321, 54322),
    ],
)
def test_root_is_given_up(
    stack: ExitStack,
    library: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    user: str,
    uid: int,
    gid: int,
) -> None:
    without_sudo(monkeypatch)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o755)
    network = state_dir / "network.json"
    network.write_bytes(to_json(NetworkSwitches(DATACENTRE.switches)))
    network.chmod(0o600)
    process = stack.enter_context(
        controlled(library, "--state-dir", str(state_dir))
    )
    status = status_of(process.process.pid)
    assert process.user == user
    assert status["Uid"].split() == [str(uid)] * 4
    assert status["Gid"].split() == [str(gid)] * 4
    assert status["Groups"] == ""
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    for capabilities in ("CapPrm", "CapEff", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    # The kernel gives root what is in /proc of a process that no other of its
    # user may read: it is not dumpable.
    assert Path(f"/proc/{process.process.pid}/environ").stat().st_uid == 0
    with WatchingClient.of(process) as client:
        assert len(client.state().switches) == len(DATACENTRE.switches)
        assert network.stat().st_uid == uid
        client.put_network(DATACENTRE.switches)
    for path in (state_dir, network):
        assert (path.stat().st_uid, path.stat().st_gid) == (uid, gid)
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700


@pytest.mark.short("ryu")
@pytest.mark.needs("root")
def test_nothing_is_imported_after_root_is_given_up(
    stack: ExitStack, library: str, tmp_path: Path
) -> None:
    """The packages lie where only root can read them, and everything still works."""
    for package in ("controller", "jobs"):
        shutil.copytree(ROOT / package, tmp_path / "hidden" / package)
    (tmp_path / "hidden").chmod(0o700)
    tmp_path.chmod(0o700)
    reader, writer = os.pipe()
    stack.callback(os.close, reader)
    process = subprocess.Popen(
        [
            *COMMAND,
            *ports(),
            "--library",
            library,
            "--ready-fd",
            str(writer),
        ],
        cwd=tmp_path / "hidden",
        env={**os.environ, TOKEN_VARIABLE: TOKEN},
        pass_fds=[writer],
        extra_groups=[54323],
    )
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)
    os.close(writer)
    output = json.loads(os.read(reader, 4096))
    assert status_of(process.pid)["Groups"] == ""
    switches = fakes()
    connect(stack, output["openflow_port"], switches)
    with WatchingClient(output["api_port"], TOKEN) as client:
        client.put_network(DATACENTRE.switches)
        client.wait_connected()
        client.add_tenant(STATE.tenants[0])
        client.reconcile()
        client.flows()
        client.remove_tenant(3)
    assert flows_of(switches) == wanted(EMPTY)


@pytest.mark.usefixtures("slow_ends")
@pytest.mark.needs("root")
def test_a_state_directory_of_somebody_else_is_refused(
    tmp_path: Path, any_library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sudo(monkeypatch)
    tmp_path.chmod(0o777)
    os.chown(tmp_path, 54321, 54321)
    with pytest.raises(
        ControllerNotStarted, match="belongs to neither root nor nobody"
    ) as caught:
        controlled(any_library, "--state-dir", str(tmp_path))
    assert caught.value.exit_code == 2
