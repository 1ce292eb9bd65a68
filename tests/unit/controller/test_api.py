"""The HTTP API over a real socket, with fake switches behind the control plane."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.api import BODY_SIZE_MAX_BYTES, Api, serve
from controller.api_client import (
    ControllerRefused,
    ControllerUnreachable,
    SwitchesMissing,
    SwitchesRefused,
)
from controller.control_plane import ControlPlane
from controller.flow_rules import Change, desired_flows
from controller.rate_limit import TokenBucket
from controller.values import NetworkSwitches, Tenant, to_json
from tests.support.fake_datacentre import tree_datacentre
from tests.support.fake_switch import FakeSwitch
from tests.support.watching_client import WatchingClient

TOKEN = "a-token-for-tests-only"  # noqa: S105
DATACENTRE = tree_datacentre([2, 2], slots_per_server=2)
ABOUT = {
    "pid": 1,
    "library": "fake",
    "library_version": "1.0",
    "user": "nobody",
    "openflow_port": 6653,
    "api_port": 8653,
}


@dataclass(eq=False)
class PromptChannel:
    """A switch that answers before the sender has gone on."""

    switch: FakeSwitch
    plane: ControlPlane

    @property
    def dpid(self) -> int:
        return self.switch.dpid

    def request_flows(self, ticket: int) -> None:
        self.plane.reported(
            self, ticket, self.switch.report(), partial=False
        )

    def send_batch(self, changes: Any, ticket: int) -> None:
        todo: tuple[Change, ...] = tuple(changes)
        try:
            self.switch.apply(todo)
        except ValueError as error:
            self.plane.refused(self, ticket, str(error))
        self.plane.confirmed(self, ticket)

    def hang_up(self) -> None:
        pass


@dataclass
class Service:
    port: int
    plane: ControlPlane
    switches: dict[int, FakeSwitch] = field(default_factory=dict)

    def client(self, token: str = TOKEN) -> WatchingClient:
        return WatchingClient(self.port, token)

    def connect_all(self) -> None:
        for switch in DATACENTRE.switches:
            self.switches[switch.dpid] = FakeSwitch(
                switch.dpid, switch.ports
            )
            self.plane.connected(
                PromptChannel(self.switches[switch.dpid], self.plane)
            )

    def raw(self, text: bytes) -> bytes:
        """Send bytes as they are; everything that comes back before the end."""
        with socket.create_connection(
            ("127.0.0.1", self.port), timeout=60
        ) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65536):
                answer += part
            return answer

    def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        token: str | None = TOKEN,
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=60
        )
        headers = (
            {} if token is None else {"Authorization": f"Bearer {token}"}
        )
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        status, answer = response.status, json.loads(response.read())
        connection.close()
        return status, answer


@contextmanager
def serving(bucket: TokenBucket | None = None) -> Iterator[Service]:
    """The API on a port of its own, over an empty control plane."""
    plane = ControlPlane()
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        try:
            serve(listener, Api(plane, ABOUT), TOKEN, bucket)
        except OSError:
            return  # The listener has been closed below.

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield Service(listener.getsockname()[1], plane)
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    listener.close()


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


def a_tenant(tenant_id: int = 3, first: int = 0, count: int = 4) -> Tenant:
    slots = DATACENTRE.slots[first : first + count]
    return DATACENTRE.tenant(tenant_id, slots, lambda _count: 0)


# --------------------------------------------------------------------------------- the client


def test_the_whole_way(service: Service) -> None:
    service.connect_all()
    with service.client() as client:
        assert client.health()
        client.put_network(DATACENTRE.switches)
        client.wait_connected()
        tenant = a_tenant()
        client.add_tenant(tenant)
        client.add_tenant(tenant)
        assert client.tenant(3) == tenant
        state = client.state()
        assert (state.library, state.user, state.pid) == (
            "fake",
            "nobody",
            1,
        )
        assert [(t.id, t.name, t.prefix, t.vms) for t in state.tenants] == [
            (3, "tenant-3", "10.0.12.0/22", 4)
        ]
        assert state.missing == []
        assert all(
            switch.connected and switch.confirmed
            for switch in state.switches
        )
        wanted = desired_flows(service.plane.state)
        assert state.flows == sum(map(len, wanted.values()))
        assert client.flows() == {
            switch.name: tuple(flow.text() for flow in wanted[switch.dpid])
            for switch in DATACENTRE.switches
        }
        for dpid, switch in service.switches.items():
            assert switch.flows == set(wanted[dpid])
        service.switches[1]._flows.clear()
        assert [(m.dpid, m.removed) for m in client.reconcile()] == [(1, 0)]
        client.remove_tenant(3)
        assert client.state().tenants == []


def test_one_connection_serves_many_calls(service: Service) -> None:
    with service.client() as client:
        client.put_network(DATACENTRE.switches)
        first = client._connection
        for _ in range(5):
            client.state()
        assert client._connection is first


def test_missing_switches_are_named(service: Service) -> None:
    names = tuple(switch.name for switch in DATACENTRE.switches)
    with service.client() as client:
        client.put_network(DATACENTRE.switches)
        with pytest.raises(SwitchesMissing) as caught:
            client.wait_connected(timeout_s=0.01)
        assert caught.value.missing == names
        with pytest.raises(SwitchesMissing) as caught:
            client.wait_connected([2, 1], timeout_s=0)
        assert caught.value.missing == names[:2]
        with pytest.raises(SwitchesMissing):
            client.add_tenant(a_tenant(), timeout_s=0)
        service.connect_all()
        client.wait_connected()
        client.add_tenant(a_tenant(), timeout_s=0)


def test_a_refusing_switch_is_named(service: Service) -> None:
    service.connect_all()
    with service.client() as client:
        client.put_network(DATACENTRE.switches)
        service.switches[1].capacity = 3
        with pytest.raises(
            SwitchesRefused,
            match=f"{DATACENTRE.switches[0].name}: .* room for 3",
        ):
            client.add_tenant(a_tenant())
        assert client.state().tenants == []


def test_refusals_say_all_that_is_wrong(service: Service) -> None:
    with service.client() as client:
        client.put_network(DATACENTRE.switches)
        with pytest.raises(SwitchesMissing):
            client.add_tenant(a_tenant(), timeout_s=0)
        with pytest.raises(ControllerRefused) as caught:
            client.add_tenant(a_tenant(3, 1))
        assert caught.value.status == 409
        assert (
            caught.value.problems[0]
            == "id 3 is taken by tenant 3 (tenant-3)"
        )
        assert len(caught.value.problems) > 2
        with pytest.raises(
            ControllerRefused, match="there is no tenant 9"
        ) as caught:
            client.remove_tenant(9)
        assert caught.value.status == 404
        with pytest.raises(ControllerRefused, match="there is no tenant 9"):
            client.tenant(9)


def test_a_wrong_token(service: Service) -> None:
    with service.client("b" * 20) as client:
        assert client.health()
        for call in (
            client.state,
            client.flows,
            lambda: client.put_network(DATACENTRE.switches),
        ):
            with pytest.raises(ControllerRefused, match="token") as caught:
                call()
            assert caught.value.status == 401
    assert service.plane.state.switches == ()


def test_nobody_there() -> None:
    # Held, but nobody listens there.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        client = WatchingClient(port, TOKEN)
        assert not client.health()
        with pytest.raises(
            ControllerUnreachable, match=f"127.0.0.1:{port}"
        ):
            client.state()


def _answer_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}",
    ],
)
def test_somebody_else_there(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(
            target=_answer_once, args=(listener, answer), daemon=True
        )
        thread.start()
        with (
            WatchingClient(port, TOKEN) as client,
            pytest.raises(ControllerUnreachable),
        ):
            client.state()
        thread.join(10)


# ---------------------------------------------------------------------------------- the wire


def test_health_needs_no_token_and_tells_nothing(service: Service) -> None:
    assert service.ask("GET", "/v1/health", token=None) == (
        200,
        {"status": "ok"},
    )


@pytest.mark.parametrize(
    "token", [None, "", "a-token-for-tests-onl", TOKEN + "x", "ä"]
)
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v1/state"),
        ("PUT", "/v1/network"),
        ("POST", "/v1/tenants"),
        ("GET", "/nowhere"),
    ],
)
def test_all_else_needs_the_token(
    service: Service, token: str | None, method: str, target: str
) -> None:
    if token is not None:
        token = token.encode().decode("latin-1")
    assert service.ask(method, target, b"{}", token)[0] == 401


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/state", 404),
        ("GET", "/v1/state/", 404),
        ("GET", "/v1/tenants/1", 404),
        ("DELETE", "/v1/tenants/1", 404),
        ("GET", "/v1/tenants/x", 404),
        ("POST", "/v1/state", 405),
        ("DELETE", "/v1/network", 405),
        ("GET", "/v1/tenants", 405),
        ("POST", "/v1/tenants?timeout_s=abc", 400),
        ("GET", "/v1/state?verbose=1", 400),
        ("GET", "/v1/state?timeout_s=1", 400),
        ("POST", "/v1/wait?timeout_s=1", 400),
        ("POST", "/v1/reconcile?timeout_s=-1", 400),
        ("POST", "/v1/reconcile?timeout_s=nan", 400),
        ("POST", "/v1/reconcile?timeout_s=1e9", 400),
        ("POST", "/v1/reconcile?timeout_s=1&timeout_s=2", 400),
    ],
)
def test_what_is_not_there(
    service: Service, method: str, target: str, status: int
) -> None:
    answered, body = service.ask(method, target, to_json(a_tenant()))
    assert answered == status
    assert body["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"timeout_s": "1"}',
        b'{"dpids": 1}',
        b'{"dpid": []}',
        b'{"timeout_s": 1000}',
    ],
)
def test_a_bad_body_is_explained(service: Service, body: bytes) -> None:
    if body:
        status, answer = service.ask("POST", "/v1/wait", body)
        assert status == 400
        assert answer["problems"]
    status, answer = service.ask("PUT", "/v1/network", body)
    assert status == 400
    assert answer["problems"]


def _request(head: str, body: bytes = b"") -> bytes:
    lines = f"{head}\r\nHost: x\r\nAuthorization: Bearer {TOKEN}"
    return lines.replace("\n ", "\n").encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (
            f"PUT /v1/network HTTP/1.1\r\nContent-Length: {BODY_SIZE_MAX_BYTES + 1}",
            413,
        ),
        ("PUT /v1/network HTTP/1.1\r\nContent-Length: -1", 400),
        ("PUT /v1/network HTTP/1.1\r\nContent-Length: 1e3", 400),
        ("PUT /v1/network HTTP/1.1\r\nTransfer-Encoding: chunked", 501),
        ("BREW /v1/network HTTP/1.1", 501),
        ("GET /v1/" + "x" * 70_000 + " HTTP/1.1", 414),
        (
            "GET /v1/state HTTP/1.1\r\n"
            + "\r\n".join(f"X-{n}: y" for n in range(200)),
            431,
        ),
    ],
)
def test_what_no_client_of_ours_would_send(
    service: Service, head: str, status: int
) -> None:
    answer = service.raw(_request(head))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    _, _, body = answer.partition(b"\r\n\r\n")
    assert json.loads(body)["error"]


def test_two_requests_in_one_packet_get_two_answers(
    service: Service,
) -> None:
    answer = service.raw(_request("GET /v1/health HTTP/1.1") * 2)
    assert answer.count(b"HTTP/1.1 200 OK") == 2


def test_a_body_that_ends_early_is_not_acted_on(service: Service) -> None:
    body = to_json(NetworkSwitches(DATACENTRE.switches))
    head = f"PUT /v1/network HTTP/1.1\r\nContent-Length: {len(body) + 1}"
    assert service.raw(_request(head, body)) == b""
    assert service.plane.state.switches == ()


def test_a_failure_inside_is_a_500_and_not_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: object) -> None:
        raise RuntimeError("broken")

    def full(_self: object, _switches: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ControlPlane, "view", fail)
    monkeypatch.setattr(ControlPlane, "put_network", full)
    status, body = service.ask("GET", "/v1/state")
    assert (status, body) == (
        500,
        {"error": "the controller failed, see its log"},
    )
    status, body = service.ask(
        "PUT", "/v1/network", to_json(NetworkSwitches(DATACENTRE.switches))
    )
    assert status == 500
    assert "No space left on device" in body["error"]
    assert service.ask("GET", "/v1/health")[0] == 200
