"""Connections of the API: strangers bound one another only, and nobody keeps one by being slow."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from controller import api as api_module
from controller import api_client
from controller.api import (
    CONNECTIONS_MAX,
    HEAD_SIZE_MAX_BYTES,
    STRANGERS_MAX,
)
from controller.control_plane import ControlPlane
from controller.rate_limit import Places, TokenBucket
from tests.unit.controller.test_api import (
    DATACENTRE,
    TOKEN,
    Service,
    a_tenant,
    serving,
)

HALF_A_HEAD = b"GET /v1/health HTTP/1.1\r\nX: "
OWNER = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(TokenBucket(1e9, 10**6)) as running:
        yield running


def unfinished(
    service: Service, text: bytes = HALF_A_HEAD
) -> socket.socket:
    """A connection with a request that has begun."""
    connection = socket.create_connection(
        ("127.0.0.1", service.port), timeout=60
    )
    connection.sendall(text)
    return connection


def ended(connection: socket.socket) -> bool:
    """True once the other side has hung up, without a word."""
    try:
        return connection.recv(65536) == b""
    except ConnectionError:
        return True


def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never came true")


# -------------------------------------------------------------------------------------- places


def test_the_one_that_has_been_there_longest_makes_room() -> None:
    places = Places(2)
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(4)]
        for pair in pairs:
            for each in pair:
                stack.enter_context(each)
        near = [pair[0] for pair in pairs]
        places.enter(near[0])
        places.enter(near[1])
        assert places.leave(near[0])
        places.enter(near[0])
        places.enter(near[2])
        assert ended(pairs[1][1])
        assert not places.leave(near[1])
        places.enter(near[3])
        assert ended(pairs[0][1])
        assert places.leave(near[2])
        assert places.leave(near[3])


# ------------------------------------------------------------------------------------ strangers


@pytest.mark.slow
def test_the_owner_gets_in_whoever_else_holds_connections(
    service: Service,
) -> None:
    with ExitStack() as stack:
        for _ in range(STRANGERS_MAX + 10):
            stack.enter_context(unfinished(service))
        with service.client() as client:
            for _ in range(3):
                client.state()
                client.close()


@pytest.mark.slow
def test_the_owner_gets_in_among_a_thousand_who_come_and_drip(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Strangers, owner and service share this process's turns.
    monkeypatch.setattr(api_client, "ANSWER_TIMEOUT_S", 120.0)
    over = threading.Event()
    tried = [0] * 4

    def come(number: int) -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            try:
                held.append(unfinished(service))
                for each in held[-30:]:
                    each.send(b"x")
            except OSError:
                pass
            tried[number] += 1
            if len(held) == 250:
                held.pop(0).close()
        for each in held:
            each.close()

    threads = [
        threading.Thread(target=come, args=(number,)) for number in range(4)
    ]
    for thread in threads:
        thread.start()
    try:
        until(lambda: sum(tried) > 1000)
        for _ in range(20):
            with service.client() as client:
                client.state()
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


def test_one_unfinished_request_makes_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_module, "STRANGERS_MAX", 3)
    with serving() as small, ExitStack() as stack:
        held = [stack.enter_context(unfinished(small)) for _ in range(4)]
        assert ended(held[0])
        held[1].sendall(b"\r\n\r\n")
        assert held[1].recv(65536).startswith(b"HTTP/1.1 200 ")


def test_who_says_nothing_is_not_kept_as_an_owner_is(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "REQUEST_TIMEOUT_S", 0.2)
    with unfinished(service, b"") as silent, unfinished(service) as half:
        assert ended(silent)
        assert ended(half)


def test_without_the_token_a_connection_is_for_one_request(
    service: Service,
) -> None:
    for path in ("/v1/health", "/openapi.json", "/v1/state"):
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        answer = service.raw(request * 2)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"\r\nConnection: close\r\n" in answer


def test_a_body_without_the_token_stays_unread(service: Service) -> None:
    """It would be waited for, and held."""
    with unfinished(
        service,
        b"GET /v1/health HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nx",
    ) as waiting:
        assert waiting.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_head_has_an_end(service: Service) -> None:
    line = b"X: " + b"y" * 60_000 + b"\r\n"
    with unfinished(service, b"GET /v1/health HTTP/1.1\r\n") as endless:
        with suppress(ConnectionError):
            for _ in range(2 * HEAD_SIZE_MAX_BYTES // len(line)):
                endless.sendall(line)
        assert ended(endless)


def test_half_a_head_is_not_taken_for_a_whole_one(service: Service) -> None:
    service.connect_all()
    with service.client() as client:
        client.put_network(DATACENTRE.switches)
        client.add_tenant(a_tenant())
        assert (
            service.raw(b"DELETE /v1/tenants/3 HTTP/1.1\r\n" + OWNER) == b""
        )
        assert client.tenant(3) == a_tenant()


# ------------------------------------------------------------------------------------ the owner


@pytest.mark.slow
def test_of_the_owners_connections_the_longest_idle_makes_room(
    service: Service,
) -> None:
    clients = [service.client() for _ in range(CONNECTIONS_MAX + 5)]
    for client in clients:
        assert client.health()
    connections = [client._connection for client in clients]
    for first in connections[:5]:
        assert first is not None
        assert first.sock is not None
        assert ended(first.sock)
    for client, connection in zip(
        clients[5:], connections[5:], strict=True
    ):
        assert client.health()
        assert client._connection is connection
    for client in clients:
        client.close()


# Enough for a head, which the thread that reads it may wait to do.
HEAD_S = 1.5
UNSENT_BODY = (
    b"PUT /v1/network HTTP/1.1\r\n"
    + OWNER
    + b"Content-Length: 100000\r\n\r\n"
)
"""The head of a request whose body does not come."""


@pytest.mark.slow
def test_a_body_that_drips_ends(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "REQUEST_TIMEOUT_S", HEAD_S)
    with unfinished(service, UNSENT_BODY) as dripping:
        dripping.settimeout(0.02)
        for _ in range(1000):
            try:
                dripping.sendall(b" ")
                answer = dripping.recv(65536)
            except TimeoutError:
                continue
            assert answer.startswith(b"HTTP/1.1 408 ")
            return
    pytest.fail("it listens for ever")


@pytest.mark.slow
def test_an_answer_that_is_read_byte_by_byte_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread ends, though each byte comes in time."""
    monkeypatch.setattr(api_module, "REQUEST_TIMEOUT_S", HEAD_S)
    monkeypatch.setattr(
        ControlPlane, "view", lambda _plane: {"x": "y" * (32 << 20)}
    )
    with serving() as small:
        before = set(threading.enumerate())
        slow = unfinished(
            small, b"GET /v1/state HTTP/1.1\r\n" + OWNER + b"\r\n"
        )
        # Of its own: one of an earlier test may end meanwhile.
        for _ in range(6000):
            if set(threading.enumerate()) <= before:
                break
            assert slow.recv(1)
            threading.Event().wait(0.01)
        assert set(threading.enumerate()) <= before
        slow.close()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET http://[ HTTP/1.1", 400),
        (b"GET http://x/v1/health HTTP/1.1", 200),
        (b"BR'\"\\\x00EW /v1/health HTTP/1.1", 501),
        (b"GET /v1/" + b"x" * 5000 + b" HTTP/1.1", 404),
        (b"GET /v1/health?" + b"a=1&" * 2000 + b" HTTP/1.1", 400),
        (b"GET /v1/health HTTP/'\"\\", 400),
        (b"GET", 400),
    ],
)
def test_whatever_is_quoted_answers_are_json_and_short(
    service: Service, line: bytes, status: int
) -> None:
    answer = service.raw(line + b"\r\n" + OWNER + b"\r\n")
    head, _, body = answer.rpartition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(body)
    assert len(body) < 10_000
    assert service.ask("GET", "/v1/health", token=None)[0] == 200


@pytest.mark.slow
def test_a_body_whose_head_came_with_the_request_before_has_its_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "REQUEST_TIMEOUT_S", HEAD_S)
    whole = b"GET /v1/health HTTP/1.1\r\n" + OWNER + b"\r\n"
    with unfinished(service, whole + UNSENT_BODY) as both:
        heard = b""
        while b"HTTP/1.1 408 " not in heard:
            part = both.recv(65536)
            assert part, heard
            heard += part


def test_who_waits_to_be_told_may_send_its_body(service: Service) -> None:
    head = (
        b"POST /v1/wait HTTP/1.1\r\n"
        + OWNER
        + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    with unfinished(service, head) as connection:
        connection.settimeout(60)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_without_a_thread_for_it_one_connection_is_lost_and_the_api_stays(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with unfinished(service) as connection:
            connection.settimeout(60)
            assert ended(connection)
    with service.client() as client:
        assert client.health()
