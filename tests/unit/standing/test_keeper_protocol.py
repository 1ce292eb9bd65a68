"""The keeper's socket: nothing that a client sends stops it, and errors keep their kind."""

from __future__ import annotations

import errno
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import (
    BadInput,
    DoesNotFit,
    MachineCannot,
    RunFailed,
    TestbedError,
)
from testbed.plan.network_plan import network_plan
from testbed.standing import keeper_protocol
from testbed.standing.keeper_protocol import (
    REQUEST_LIMIT_BYTES,
    AddTenant,
    KeeperRequest,
    NothingUp,
    RemoveTenant,
    ShowNetwork,
    ShowTenant,
    TakeDown,
    Watched,
    ask,
    reply_line,
    send,
    serve,
)
from testbed.standing.network_layout import NetworkLayout, ShowLayout
from testbed.standing.network_state import TenantState
from topologies.fat_tree import fat_tree

PATIENCE_S = 60.0
SHORT_PATIENCE_S = 0.5
"""With a client that hangs on purpose; a slow machine's clients need more."""
STATE = TenantState("a", 10, 1, (), (("server 0 -> rack 0", 10),))


@contextmanager
def served(
    path: Path,
    handle: Callable[[KeeperRequest], object],
    watched: Callable[[], Watched] = dict,
) -> Iterator[Path]:
    """A keeper's loop at a socket, until the block asks for its end."""
    place = path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place))
        listener.listen(8)

        def keep() -> None:
            send(serve(listener, handle, PATIENCE_S, watched), None)

        thread = threading.Thread(target=keep)
        thread.start()
        try:
            yield place
        finally:
            ask(TakeDown(), type(None), place)
            thread.join(60)
            assert not thread.is_alive()


def test_between_requests_and_beside_a_client_that_hangs_files_have_their_turn(
    tmp_path: Path,
) -> None:
    reading, writing = os.pipe()
    heard: queue.Queue[bytes] = queue.Queue()

    broken, break_it = os.pipe()

    def watched() -> Watched:
        fail = lambda: os.read(broken, 1) and 1 / 0  # noqa: E731
        return {
            reading: lambda: heard.put(os.read(reading, 1)),
            broken: fail,
        }

    with served(tmp_path, lambda _: None, watched) as place:
        os.write(writing, b"1")
        assert heard.get(timeout=60) == b"1"
        os.write(break_it, b"x")  # what fails there ends nothing
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hanging:
            hanging.connect(str(place))
            os.write(writing, b"2")
            assert heard.get(timeout=60) == b"2"
        assert ask(ShowNetwork(), type(None), place) is None
    for descriptor in (reading, writing, broken, break_it):
        os.close(descriptor)


def test_a_full_table_of_files_does_not_end_the_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([errno.EMFILE, errno.ENFILE])
    accept = socket.socket.accept

    def full_at_first(
        listener: socket.socket,
    ) -> tuple[socket.socket, object]:
        for number in errors:
            raise OSError(number, os.strerror(number))
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", full_at_first)
    monkeypatch.setattr(keeper_protocol, "PAUSE_S", 0.0)
    with served(tmp_path, lambda _: None) as place:
        assert ask(ShowNetwork(), type(None), place) is None
    assert list(errors) == []


def test_a_client_waits_where_the_queue_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "socket"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first,
    ):
        listener.bind(str(place))
        listener.listen(0)
        first.connect(str(place))
        thread = threading.Thread(
            target=lambda: send(serve(listener, lambda _: 7), None)
        )
        waits = iter((first.close, thread.start))

        def sleep(seconds: float) -> None:
            next(waits, lambda: time.sleep(seconds))()

        clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
        monkeypatch.setattr(keeper_protocol, "time", clock)
        assert ask(ShowNetwork(), int, place) == 7
        ask(TakeDown(), type(None), place)
        thread.join(60)
        assert not thread.is_alive()


def raw(
    place: Path, data: bytes, *, ends: bool = True
) -> dict[str, object]:
    """The reply to some bytes; ``ends``: nothing more will come."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(60)
        sock.connect(str(place))
        with suppress(BrokenPipeError):
            sock.sendall(data)
        if ends:
            sock.shutdown(socket.SHUT_WR)
        text = b""
        try:
            while part := sock.recv(65_536):
                text += part
        except (
            ConnectionResetError
        ):  # it has not read all of what is too long
            pass
    return dict(json.loads(text)) if text else {}


def test_a_request_arrives_as_the_value_that_was_sent_and_so_does_its_reply(
    tmp_path: Path,
) -> None:
    seen: list[KeeperRequest] = []

    def handle(request: KeeperRequest) -> object:
        seen.append(request)
        return STATE

    wanted = AddTenant("a", 2, 10, "exact", (("server 0", 1), ("1", 1)))
    with served(tmp_path, handle) as place:
        assert ask(wanted, TenantState, place) == STATE
    assert seen == [wanted]


def test_a_plan_arrives_as_it_was_built_whatever_it_has_computed(
    tmp_path: Path,
) -> None:
    plan = network_plan(fat_tree(4, 10**9, 2), "tpn", 0.1)
    places = {bridge.name: ("/run/x", None) for bridge in plan.bridges}
    layout = NetworkLayout(
        plan, places | {"tpn-s0": ("/run/y", "tpn-part0")}, 6653, 7
    )
    line = reply_line(layout)
    assert plan.ports_of_bridge
    assert plan.bridge_of_node
    assert reply_line(layout) == line
    with served(tmp_path, lambda _: layout) as place:
        assert ask(ShowLayout(), NetworkLayout, place) == layout


@pytest.mark.parametrize(
    "kind", [DoesNotFit, BadInput, MachineCannot, RunFailed]
)
def test_errors_are_raised_again_as_what_they_were(
    tmp_path: Path, kind: type[TestbedError]
) -> None:
    def handle(_: KeeperRequest) -> object:
        raise kind("it is so", "do that")

    with served(tmp_path, handle) as place, pytest.raises(kind) as raised:
        ask(ShowTenant("a"), TenantState, place)
    assert (raised.value.message, raised.value.hint) == (
        "it is so",
        "do that",
    )
    assert type(raised.value) is kind


def test_a_defect_costs_one_request(tmp_path: Path) -> None:
    def handle(request: KeeperRequest) -> object:
        if isinstance(request, RemoveTenant):
            raise ZeroDivisionError("oh")
        return STATE

    with served(tmp_path, handle) as place:
        with pytest.raises(RunFailed, match="ZeroDivisionError: oh"):
            ask(RemoveTenant("a"), type(None), place)
        assert ask(ShowTenant("a"), TenantState, place) == STATE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[1]\n",
        b"null\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xfe\n",
        b'{"ShowTenant": {}}\n',
        b'{"ShowTenant": {"name": 7}}\n',
        b'{"ShowTenant": {"name": "a", "more": 1}}\n',
        b'{"ShowTenant": {"name": "a"}, "TakeDown": {}}\n',
        b'{"KeeperRequest": {}}\n',
        b'{"AddTenant": {"name": "a", "n_vms": 1.5, "bandwidth_bps": 1}}\n',
        b'{"ShowTenant": {"name": "a"}}',
        b"[" * 60_000 + b"\n",
    ],
)
def test_nonsense_is_refused_and_the_next_is_served(
    tmp_path: Path, data: bytes
) -> None:
    with served(tmp_path, lambda _: STATE) as place:
        assert raw(place, data)["exit_code"] == 2
        assert ask(ShowTenant("a"), TenantState, place) == STATE


@pytest.mark.slow
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    with served(tmp_path_factory.mktemp("s"), lambda _: STATE) as place:
        assert raw(place, data + b"\n")["exit_code"] == 2


def test_a_request_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, lambda _: STATE) as place:
        reply = raw(place, b"x" * (4 * REQUEST_LIMIT_BYTES))
        assert reply.get("exit_code", 2) == 2
        assert ask(ShowTenant("a"), TenantState, place) == STATE


def test_one_that_hangs_is_given_up_and_the_next_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = keeper_protocol._received
    # One after the other, as they connect below.
    patience_s = iter((SHORT_PATIENCE_S, PATIENCE_S, SHORT_PATIENCE_S))

    def received_within(
        connection: socket.socket,
        timeout_s: float,
        watched: Callable[[], Watched],
    ) -> KeeperRequest:
        own_s = next(patience_s, timeout_s)
        return received(connection, own_s, watched)

    monkeypatch.setattr(keeper_protocol, "_received", received_within)
    with served(tmp_path, lambda _: STATE) as place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hanging:
            hanging.connect(str(place))
            hanging.sendall(b'{"Show')
            assert ask(ShowTenant("a"), TenantState, place) == STATE
        assert raw(place, b'{"Show', ends=False)["exit_code"] == 2


def test_one_that_hangs_is_given_up_after_what_took_longer_than_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a restart of a switch, which is served between two pieces of a request.
    now_s = 0.0
    is_busy = True

    def watched() -> Watched:
        nonlocal now_s
        if is_busy:
            now_s += 2 * PATIENCE_S
        return {}

    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(keeper_protocol, "time", clock)
    with served(tmp_path, lambda _: None, watched) as place:
        assert "no request within" in str(raw(place, b"{", ends=False))
        is_busy = False
        assert ask(ShowNetwork(), type(None), place) is None


def test_two_at_once_are_served_in_turn(tmp_path: Path) -> None:
    inside: list[int] = []

    def handle(_: KeeperRequest) -> object:
        inside.append(threading.get_ident())
        return STATE

    with served(tmp_path, handle) as place:
        asking = [
            threading.Thread(
                target=ask, args=(ShowTenant("a"), TenantState, place)
            )
            for _ in range(6)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(60)
    assert len(inside) == 6
    assert len(set(inside)) == 1


def test_without_a_network_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NothingUp, match="no network is up") as raised:
        ask(ShowNetwork(), TenantState, tmp_path / "socket")
    assert raised.value.exit_code == 2


def test_a_keeper_that_was_killed_is_named_with_the_command_that_cleans(
    tmp_path: Path,
) -> None:
    place = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place))
        listener.listen(1)
    with pytest.raises(
        RunFailed, match="the network is still there"
    ) as raised:
        ask(ShowNetwork(), TenantState, place)
    assert raised.value.hint == "sudo testbed clean"
