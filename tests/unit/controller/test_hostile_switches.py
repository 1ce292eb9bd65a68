"""Whoever connects to the OpenFlow port: one line in the log, and nothing of the others' time."""

from __future__ import annotations

import contextlib
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from controller import api_client, openflow13
from controller.flow_rules import COOKIE_TAG
from controller.process import ControllerProcess, start_controller
from controller.rate_limit import LINE_LENGTH_MAX, LINES_MAX
from controller.values import Switch
from tests.support import fuzz_controller
from tests.support.fuzz_controller import (
    HELLO,
    OFPMP_PORT_DESC,
    echo,
    features,
    fuzz,
)
from tests.support.watching_client import WatchingClient

# Each test starts a process, and some wait for a deadline of ten seconds.
pytestmark = pytest.mark.slow

LIBRARIES = [
    pytest.param("ryu", marks=pytest.mark.needs("ryu")),
    pytest.param("os-ken", marks=pytest.mark.needs("os-ken")),
]
NETWORK = [Switch(dpid, f"s{dpid}", "server", (1, 2)) for dpid in (1, 2)]


# A controller on a busy machine may need more than that of a fuzzer's probe.
connected = partial(fuzz_controller.connected, timeout_s=60.0)


@dataclass
class Running:
    """A controller, and what it has written."""

    process: ControllerProcess
    file: IO[bytes]

    @property
    def port(self) -> int:
        return self.process.openflow_port

    def log(self) -> str:
        self.file.seek(0)
        return self.file.read().decode()

    def status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.process.pid}/status").read_text()
        return next(
            int(x.split()[1])
            for x in text.splitlines()
            if x.startswith(f"{name}:")
        )

    def send(self, data: bytes) -> tuple[socket.socket, str]:
        """A new connection with these bytes on it, and its address as the log has it."""
        connection = socket.create_connection(
            ("127.0.0.1", self.port), timeout=60
        )
        connection.sendall(data)
        host, port = connection.getsockname()
        return connection, f"{host}:{port}"


@pytest.fixture(params=LIBRARIES)
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    options = (
        "--openflow-port",
        "0",
        "--api-port",
        "0",
        "--library",
        request.param,
    )
    with (
        tempfile.TemporaryFile() as log,
        start_controller(log, *options) as process,
    ):
        yield Running(process, log)


def until(condition: object, timeout_s: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def ended(connection: socket.socket) -> bool:
    """True at the end of what comes."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def port_description(more: int = 0, ports: int = 0) -> bytes:
    head = openflow13.MULTIPART.pack(OFPMP_PORT_DESC, more)
    return openflow13.message(
        openflow13.OFPT_MULTIPART_REPLY, 3, head + bytes(64 * ports)
    )


def statistics(entries: bytes, xid: int) -> bytes:
    head = openflow13.MULTIPART.pack(openflow13.OFPMP_FLOW, 0)
    return openflow13.message(
        openflow13.OFPT_MULTIPART_REPLY, xid, head + entries
    )


ENDLESS_HELLO = openflow13.message(
    openflow13.OFPT_HELLO, 1, b"\0\1\0\0" * 4
)
LONG_HELLO = openflow13.message(
    openflow13.OFPT_HELLO, 1, b"\0\1\xfd\xe8" + b"\xff" * 64_996
)
OLD_HELLO = b"\x01" + HELLO[1:]
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "zeros": bytes(64),
    "an unknown version": b"\x09" + HELLO[1:],
    "a length below the header's": b"\x04\x00\x00\x07" + bytes(4),
    "an unknown type": HELLO + b"\x04\x63\x00\x08" + bytes(4) + b"\xff" * 8,
    "an old version": OLD_HELLO,
    "half a features reply": HELLO + openflow13.message(6, 2, bytes(5)),
    "no datapath id": HELLO + features(0) + port_description(),
    "ports before features": HELLO + port_description(ports=3),
    "rules before ports, of no length": HELLO
    + features(77)
    + statistics(bytes(560), 5)
    + bytes(8),
    "an error without a code": HELLO
    + openflow13.message(openflow13.OFPT_ERROR, 1),
}


@pytest.mark.short("ryu")
@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_one_line_with_its_address(
    running: Running, data: bytes
) -> None:
    with running.send(data)[0] as connection:
        assert ended(connection)
        host, port = connection.getsockname()
    until(lambda: f"{host}:{port}: closed: " in running.log())
    (line,) = running.log().splitlines()
    assert "WARNING" in line
    assert len(line) < LINE_LENGTH_MAX + 100
    with connected(running.port, 1) as switch:
        echo(switch)


@pytest.mark.short("ryu")
@pytest.mark.parametrize(
    "hello", [ENDLESS_HELLO, LONG_HELLO], ids=["endless", "long"]
)
def test_what_a_hello_lists_is_not_read(
    running: Running, hello: bytes
) -> None:
    """The libraries' readers continue for ever at an element of length 0."""
    connection, _ = running.send(hello + features(5) + port_description())
    with connection:
        echo(connection)
    assert running.log() == ""


@pytest.mark.short("ryu")
def test_what_repeats_is_counted_and_nothing_grows(
    running: Running,
) -> None:
    def rush(count: int) -> None:
        for number in range(count):
            data = list(GARBAGE.values())[number % 7]
            with running.send(data)[0] as connection:
                assert ended(connection)

    rush(200)
    threads, resident_kb = (
        running.status("Threads"),
        running.status("VmRSS"),
    )
    rush(600)
    until(lambda: running.status("Threads") <= threads + 2)
    assert running.status("VmRSS") < resident_kb + 8 * 1024
    log = running.log()
    assert "Traceback" not in log
    assert len(log.splitlines()) <= LINES_MAX + 20
    assert "512 such lines, most left out" in log


@pytest.mark.short("ryu")
def test_who_does_not_come_to_an_end_is_cut_off(running: Running) -> None:
    """A handshake has a deadline, and later a message; between messages a switch may be silent."""
    with ExitStack() as stack:
        switch = stack.enter_context(connected(running.port, 1))
        echo(switch)
        hanging = [
            stack.enter_context(running.send(data)[0])
            for data in (
                b"",
                HELLO,
                HELLO + features(5),
                HELLO + b"\x04\x06\xff\xff" + bytes(4),
                HELLO
                + features(6)
                + port_description()
                + b"\x04\x13\xff\xff"
                + bytes(40),
            )
        ]
        dripping = stack.enter_context(running.send(HELLO)[0])
        dripping.settimeout(0.3)
        start_s = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < start_s + 60:
                with contextlib.suppress(TimeoutError):
                    dripping.sendall(b"\x04")
                    if not dripping.recv(65536):
                        break
        assert time.monotonic() < start_s + 60
        assert all(map(ended, hanging))
        echo(switch)
    # A connection is closed first, and the line written then.
    until(
        lambda: (
            running.log().count(
                "more than 10 s for a handshake or a message"
            )
            == 6
        )
    )


@pytest.mark.short("ryu")
def test_a_true_switch_gets_in_beside_two_thousand_silent_ones(
    running: Running,
) -> None:
    with ExitStack() as stack, WatchingClient.of(running.process) as client:
        client.put_network(NETWORK)
        for _ in range(2000):
            stack.enter_context(running.send(b"")[0])
        with connected(running.port, 1) as switch:
            until(lambda: client.state().switches[0].connected)
            echo(switch)
    assert running.status("Threads") < 2500


@pytest.mark.short("ryu")
def test_whoever_says_to_be_a_switch_takes_its_place_and_it_is_said(
    running: Running,
) -> None:
    with WatchingClient.of(running.process) as client:
        client.put_network(NETWORK)
        with connected(running.port, 1) as first:
            echo(first)
            host, port = first.getsockname()
            with connected(running.port, 1) as second:
                echo(second)
                assert ended(first)
                assert client.state().switches[0].connected
    assert (
        f"switch 0x1 at {host}:{port}: closed: another connection takes its place"
        in running.log()
    )


@pytest.mark.short("ryu")
def test_rules_that_could_not_be_written_again_harm_nobody(
    running: Running,
) -> None:
    """They bear our mark, and a port number of 255 bytes: removing them failed."""
    field = bytes([0x80, 0, 0, 255]) + b"\xff" * 255
    match = struct.pack("!HH", 1, 4 + len(field)) + field
    match += bytes(-len(match) % 8)
    entry = openflow13.FLOW_STATS.pack(
        openflow13.FLOW_STATS.size + len(match),
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        COOKIE_TAG | 1,
        0,
        0,
    )
    with WatchingClient.of(running.process) as client:
        client.put_network(NETWORK)
        with connected(running.port, 1) as switch:
            xid = asked(switch)
            switch.sendall(statistics(entry + match, xid))
            echo(switch)
            until(lambda: client.state().switches[0].foreign_flows == 0)
        with connected(running.port, 2) as switch:
            asked(switch)
            echo(switch)
    assert "Traceback" not in running.log()


def asked(switch: socket.socket) -> int:
    """The number of the request for its rules, which comes after the handshake."""
    heard = b""
    while True:
        heard += switch.recv(65536)
        rest = heard
        while len(rest) >= openflow13.HEADER.size:
            _, kind, length, xid = openflow13.HEADER.unpack_from(rest)
            if (
                kind == openflow13.OFPT_MULTIPART_REQUEST
                and rest[8:10] == b"\0\1"
            ):
                return int(xid)
            rest = rest[length:]


@pytest.mark.short("ryu")
def test_malformed_rules_and_errors_are_lines_too(running: Running) -> None:
    with WatchingClient.of(running.process) as client:
        client.put_network(NETWORK)
        with connected(running.port, 1) as switch:
            xid = asked(switch)
            for _ in range(500):
                switch.sendall(
                    openflow13.message(
                        openflow13.OFPT_ERROR, 7, b"\xff\xff\0\1abcd"
                    )
                )
                switch.sendall(
                    openflow13.message(
                        openflow13.OFPT_ERROR, 7, b"\0\0\0\1\xff"
                    )
                )
            echo(switch)
            switch.sendall(statistics(bytes(560), xid))
            assert ended(switch)
    log = running.log()
    assert "Traceback" not in log
    assert len(log.splitlines()) <= LINES_MAX + 20


@pytest.mark.short("ryu")
def test_echo_requests_whose_replies_nobody_reads_take_no_memory(
    running: Running,
) -> None:
    flood = openflow13.message(
        openflow13.OFPT_ECHO_REQUEST, 1, bytes(60_000)
    )
    with connected(running.port, 1) as switch:
        echo(switch)
        before_kb = running.status("VmHWM")
        # Nothing more is taken, in the end.
        switch.settimeout(5.0)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(20_000):
                switch.sendall(flood)
    assert running.status("VmHWM") < before_kb + 128 * 1024
    with connected(running.port, 1) as switch:
        echo(switch)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_few_hundred_seeded_inputs(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m tests.support.fuzz` sends more of them, and waits for less long."""
    for name in ("END_TIMEOUT_S", "PROBE_TIMEOUT_S"):
        monkeypatch.setattr(fuzz_controller, name, 60.0)
    monkeypatch.setattr(api_client, "ANSWER_TIMEOUT_S", 60.0)
    for kind, inputs in (("api", 200), ("openflow", 300)):
        result = fuzz(kind, range(inputs), seed=1, library=library)
        assert result.sound, result.text()
        assert result.peak < 200 << 20
        assert result.threads_after <= result.threads_before + 3
