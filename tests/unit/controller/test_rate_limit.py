"""The API's limits: requests a second, their size, the time that they may take to come.

And those of the log: lines that anybody can cause.
"""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import api as api_module
from controller import api_client
from controller.api import BODY_SIZE_MAX_BYTES, STRANGERS_BURST
from controller.api_client import ControllerRefused
from controller.rate_limit import (
    LINE_LENGTH_MAX,
    LINES_MAX,
    PAUSE_S,
    SparseLog,
    TokenBucket,
)
from controller.values import NetworkSwitches, to_json
from tests.unit.controller.test_api import (
    DATACENTRE,
    TOKEN,
    Service,
    serving,
)


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


steps = st.lists(st.floats(0, 10), max_size=60)


def bucket_at(
    clock: list[float], rate_per_s: float, burst: int
) -> TokenBucket:
    return TokenBucket(rate_per_s, burst, lambda: clock[0])


@given(st.floats(0.1, 100), st.integers(1, 20), steps)
def test_in_any_span_no_more_than_the_burst_and_the_rate(
    rate_per_s: float, burst: int, waits: list[float]
) -> None:
    clock, admitted = [0.0], []
    bucket = bucket_at(clock, rate_per_s, burst)
    for wait_s in waits:
        clock[0] += wait_s
        while bucket.take() == 0.0:
            admitted.append(clock[0])
    for first, start_s in enumerate(admitted):
        for last in range(first, len(admitted)):
            most = burst + rate_per_s * (admitted[last] - start_s)
            assert last - first + 1 <= most + 1e-6


@given(st.floats(0.1, 100), st.integers(1, 20), st.integers(0, 40))
def test_who_waits_as_long_as_told_is_admitted(
    rate_per_s: float, burst: int, before: int
) -> None:
    clock = [0.0]
    bucket = bucket_at(clock, rate_per_s, burst)
    for _ in range(before):
        bucket.take()
    clock[0] += bucket.take() * (1 + 1e-9)
    assert bucket.take() == 0.0 or before < burst


def test_too_many_are_told_when_to_come_again() -> None:
    clock = [0.0]
    with serving(bucket_at(clock, 0.5, 2)) as service:
        connection = http.client.HTTPConnection(
            "127.0.0.1", service.port, timeout=60
        )
        replies = []
        for at_s in (0.0, 0.0, 0.0, 1.9, 2.1):
            clock[0] = at_s
            body = to_json(NetworkSwitches(DATACENTRE.switches))
            connection.request(
                "PUT",
                "/v1/network",
                body,
                {"Authorization": f"Bearer {TOKEN}"},
            )
            response = connection.getresponse()
            response.read()
            replies.append(
                (response.status, response.headers["Retry-After"])
            )
        connection.close()
    # The connection is kept: each body was read.
    assert replies == [
        (200, None),
        (200, None),
        (429, "2"),
        (429, "1"),
        (200, None),
    ]


def test_our_client_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(
        api_client,
        "time",
        type("Clock", (), {"sleep": staticmethod(sleep)}),
    )
    with (
        serving(bucket_at(clock, 0.5, 1)) as service,
        service.client() as client,
    ):
        client.put_network(DATACENTRE.switches)
        client.put_network([])
        assert clock[0] == 2.0
        assert client.state().switches == []


def test_our_client_does_not_ask_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(
        api_client,
        "time",
        type("Clock", (), {"sleep": staticmethod(waits.append)}),
    )
    with (
        serving(bucket_at([0.0], 1.0, 0)) as service,
        service.client() as client,
        pytest.raises(
            ControllerRefused, match="too many requests"
        ) as caught,
    ):
        client.state()
    assert caught.value.status == 429
    assert waits == [1.0] * 9


def test_strangers_use_up_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of a clock that stands still: on a slow machine their requests take as
    # long as the next may take to be admitted.
    still = partial(TokenBucket, clock=lambda: 0.0)
    monkeypatch.setattr(api_module, "TokenBucket", still)
    with serving(bucket_at([0.0], 1.0, 3)) as service:
        statuses = [
            service.ask("GET", path, token=None)[0]
            for path in ("/v1/health", "/v1/state", "/openapi.json")
            * STRANGERS_BURST
        ]
        assert 429 in statuses
        assert statuses[:2] == [200, 401]
        assert service.ask("GET", "/v1/state")[0] == 200


def test_a_body_above_the_limit_is_refused_while_it_still_comes(
    service: Service,
) -> None:
    connection = http.client.HTTPConnection(
        "127.0.0.1", service.port, timeout=60
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connection.request(
        "PUT", "/v1/network", bytes(BODY_SIZE_MAX_BYTES + 1), headers
    )
    response = connection.getresponse()
    assert (response.status, response.headers["Connection"]) == (
        413,
        "close",
    )
    connection.close()


def test_the_largest_tenant_is_far_below_the_limit() -> None:
    """1,021 VMs, each on a switch of its own."""
    vm = len(
        '{"index":1000,"ip":"10.255.255.255","mac":"02:00:00:00:00:01","dpid":,"port":65279},'
    )
    edge = len(
        '{"child_dpid":,"child_port":65279,"parent_dpid":,"parent_port":65279},'
    )
    assert 1021 * (vm + edge + 3 * 20) * 3 < BODY_SIZE_MAX_BYTES


def drip(service: Service, text: bytes) -> bytes:
    """Send a byte at a time until the other side hangs up; what it has said."""
    said = b""
    with socket.create_connection(
        ("127.0.0.1", service.port), timeout=60
    ) as connection:
        connection.settimeout(0.01)
        try:
            for at in range(len(text)):
                connection.sendall(text[at : at + 1])
                try:
                    part = connection.recv(65536)
                except TimeoutError:
                    continue
                said += part
                if not part:
                    return said
        except ConnectionError:
            return said
    pytest.fail("it listens for ever")


def test_one_that_sends_byte_by_byte_is_cut_off(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "REQUEST_TIMEOUT_S", 0.2)
    endless = b"GET /v1/health HTTP/1.1\r\nX: " + b"x" * 20_000
    assert drip(service, endless) == b""


@pytest.mark.slow
def test_one_whose_body_does_not_come_is_told(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Enough for its head, which the thread that reads it may wait to do.
    monkeypatch.setattr(api_module, "REQUEST_TIMEOUT_S", 2.0)
    head = f"PUT /v1/network HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    with socket.create_connection(
        ("127.0.0.1", service.port), timeout=60
    ) as connection:
        connection.sendall(
            head.encode() + b"Content-Length: 20000\r\n\r\n{"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_requests_on_a_kept_connection_have_each_their_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=0.0, sleep=time.sleep)
    clock.monotonic = lambda: clock.now_s
    monkeypatch.setattr(api_module, "time", clock)
    with service.client() as client:
        assert client.health()
        first = client._connection
        assert first is not None
        sock = first.sock
        for _ in range(2):
            clock.now_s += 0.8 * api_module.REQUEST_TIMEOUT_S
            assert client.health()
        assert client._connection is first
        assert first.sock is sock


# --------------------------------------------------------------------------------------- the log


def test_lines_that_repeat_are_counted_in_place_of_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [0.0]
    log = SparseLog(logging.getLogger("sparse"), lambda: clock[0])
    for number in range(10_000):
        clock[0] += PAUSE_S / 2
        log.warning(f"line {number}")
    clock[0] += PAUSE_S
    log.warning("late")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:LINES_MAX] == [
        f"line {number}" for number in range(LINES_MAX)
    ]
    assert lines[LINES_MAX:-1] == [
        f"line {count - 1} ({count} such lines, most left out)"
        for count in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    ]
    assert lines[-1] == "late"


def test_a_line_has_an_end(caplog: pytest.LogCaptureFixture) -> None:
    SparseLog(logging.getLogger("sparse")).warning("x" * 100_000)
    assert len(caplog.records[0].getMessage()) == LINE_LENGTH_MAX


def test_an_interrupted_call_is_not_the_end_of_the_next(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with service.client() as client:
        client.put_network(DATACENTRE.switches)
        with monkeypatch.context() as patched:
            patched.setattr(
                http.client.HTTPConnection, "getresponse", interrupted
            )
            with pytest.raises(KeyboardInterrupt):
                client.put_network([])
        client.put_network(DATACENTRE.switches)


@pytest.mark.parametrize("when", ["", "Retry-After: soon\r\n"])
def test_too_many_for_another_program_is_an_error_of_the_controllers(
    when: str,
) -> None:
    answer = f"HTTP/1.1 429 No\r\n{when}Content-Length: 2\r\n\r\n{{}}"

    def other(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer.encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=other, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        with (
            api_client.ControllerClient(port, TOKEN) as client,
            pytest.raises(ControllerRefused, match="status 429"),
        ):
            client.remove_tenant(1)
        thread.join()
