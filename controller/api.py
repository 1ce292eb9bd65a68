"""The controller's HTTP API: JSON over HTTP/1.1 on loopback, with a bearer token.

docs/controller.md describes it. One thread (or green thread) per connection; the same code runs
under both. Everything is decided by the control plane; here requests are read strictly, limited
in size, time and number, and answers written in one piece. ``openapi.json`` describes all of it.

A connection is a stranger's until a request with the token has come by it. Of strangers' and of
owners' there is a number each, in which the one that is there longest makes room for a new one.
"""

from __future__ import annotations

import errno
import hmac
import io
import json
import logging
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from controller.control_plane import ControlPlane, Outcome
from controller.flow_rules import desired_flows, tenant_flows
from controller.rate_limit import Places, TokenBucket
from controller.values import (
    PROBLEM_LENGTH_MAX,
    Conflict,
    InvalidValues,
    Network,
    Strict,
    Tenant,
    UnknownTenant,
    from_json,
    shortened,
    to_json,
)

LOG = logging.getLogger(__name__)

OPENAPI: Mapping[str, Any] = json.loads(Path(__file__).with_name("openapi.json").read_bytes())
"""The API's description, an OpenAPI document."""

# Four times the largest tenant, of 1,021 VMs each on a switch of its own.
BODY_SIZE_MAX_BYTES = 1 << 20
HEAD_SIZE_MAX_BYTES = 1 << 17
CONNECTIONS_MAX = 64
"""Of the token's owner."""
STRANGERS_MAX = 256
"""Connections that have shown no token (yet)."""
IDLE_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 10.0
"""From a request's first byte to its last, and the same for its answer: whoever sends or reads
byte by byte would keep a connection. A connection's first request has it from the start."""
LINGER_S = 1.0
RATE_PER_S, BURST = 500.0, 1000
"""Requests with the token. A live tenant takes two, of some 10 ms each."""
STRANGERS_RATE_PER_S, STRANGERS_BURST = 20.0, 40
"""Requests without: they can use up nothing of those with the token."""
CONFIRM_TIMEOUT_S = 30.0
CONFIRM_TIMEOUT_MAX_S = 300.0


@dataclass(frozen=True)
class Answer:
    """An HTTP status, the body's values, and headers of this answer alone."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """The request cannot be served. Raised anywhere below, answered in one place."""

    def __init__(
        self, status: int, error: str, headers: tuple[str, str] | None = None, **more: object
    ) -> None:
        self.answer = Answer(status, {"error": error, **more}, dict([headers] if headers else ()))
        super().__init__(error)


@dataclass(frozen=True)
class WaitRequest(Strict):
    """The body of POST /v1/wait: which switches (all if absent) and for how long."""

    dpids: tuple[int, ...] | None = None
    timeout_s: float = CONFIRM_TIMEOUT_S


@dataclass(frozen=True)
class Request:
    """A request as the endpoints see it."""

    query: Mapping[str, str]
    body: bytes
    path_id: int = 0


@dataclass(frozen=True)
class Api:
    """The endpoints. `about` is what /v1/state says of the process itself."""

    plane: ControlPlane
    about: Mapping[str, Any]

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        """Serve one request that has been let in."""
        try:
            return self._route(method, target, body)
        except Refusal as refusal:
            return refusal.answer
        except InvalidValues as error:
            return Answer(400, {"error": "not well-formed", "problems": list(error.problems)})
        except Conflict as error:
            return Answer(409, {"error": "conflict", "problems": list(error.problems)})
        except UnknownTenant as error:
            return Answer(404, {"error": str(error)})
        except Exception as error:
            LOG.exception("%s %r", method, target)
            why = "the controller failed, see its log"
            if isinstance(error, OSError):
                why = f"the state cannot be saved, nothing changed: {error}"
            return Answer(500, {"error": why})

    def _route(self, method: str, target: str, body: bytes) -> Answer:
        url = _url(target)
        for pattern, verbs in _ROUTES:
            if match := pattern.fullmatch(url.path):
                if method not in verbs:
                    allowed = ", ".join(verbs)
                    raise Refusal(405, f"{method} is not for {url.path}", ("Allow", allowed))
                request = Request(_query(url.query), body, *map(int, match.groups()))
                return verbs[method](self, request)
        raise Refusal(404, f"there is no {shortened(url.path, PROBLEM_LENGTH_MAX)}")

    def openapi(self, _: Request) -> Answer:
        """The API's description: the same for everybody, so it needs no token."""
        return Answer(200, OPENAPI)

    def health(self, _: Request) -> Answer:
        """Liveness check; reveals nothing else, as it requires no token."""
        return Answer(200, {"status": "ok"})

    def state(self, _: Request) -> Answer:
        """Switches and tenants, and what is missing."""
        return Answer(200, {**self.about, **self.plane.view()})

    def put_network(self, request: Request) -> Answer:
        """Replace the network."""
        network = from_json(Network, request.body)
        self.plane.put_network(network.switches)
        return Answer(200, {"switches": len(network.switches)})

    def wait(self, request: Request) -> Answer:
        """Wait until switches have their rules."""
        asked = from_json(WaitRequest, request.body or b"{}")
        outcome = self.plane.wait_connected(asked.dpids, _bounded(asked.timeout_s))
        return _confirmed(outcome, Answer(200, {"missing": []}))

    def add_tenant(self, request: Request) -> Answer:
        """Bring a tenant in."""
        tenant = from_json(Tenant, request.body)
        outcome = self.plane.add_tenant(tenant, _timeout(request))
        count = sum(len(flows) for flows in tenant_flows(tenant).values())
        body = {"id": tenant.id, "switches": len(tenant.dpids), "flows": count}
        return _confirmed(outcome, Answer(201, body))

    def move_tenant(self, request: Request) -> Answer:
        """Bring a tenant to another tree."""
        tenant = from_json(Tenant, request.body)
        if tenant.id != request.path_id:
            raise InvalidValues([f"id: {tenant.id} is not that of the path, {request.path_id}"])
        outcome = self.plane.move_tenant(tenant, _timeout(request))
        return _confirmed(outcome, Answer(200, {"id": tenant.id}))

    def remove_tenant(self, request: Request) -> Answer:
        """Take a tenant out."""
        outcome = self.plane.remove_tenant(request.path_id, _timeout(request))
        return _confirmed(outcome, Answer(200, {"id": request.path_id}))

    def tenant(self, request: Request) -> Answer:
        """A tenant as it was given."""
        return Answer(200, json.loads(to_json(self.plane.state.tenant(request.path_id))))

    def flows(self, _: Request) -> Answer:
        """The intended rules as text, per switch."""
        state = self.plane.state
        texts = {dpid: [flow.text() for flow in own] for dpid, own in desired_flows(state).items()}
        switches = [
            {"dpid": switch.dpid, "name": switch.name, "flows": texts[switch.dpid]}
            for switch in state.switches
        ]
        return Answer(200, {"switches": switches})

    def reconcile(self, request: Request) -> Answer:
        """Compare every switch with what it ought to have, and repair it."""
        outcome, repaired = self.plane.reconcile(_timeout(request))
        return _confirmed(outcome, Answer(200, {"repaired": repaired}))


_Endpoint = Callable[[Api, Request], Answer]
_ROUTES: tuple[tuple[re.Pattern[str], dict[str, _Endpoint]], ...] = (
    (re.compile(r"/openapi\.json"), {"GET": Api.openapi}),
    (re.compile(r"/v1/health"), {"GET": Api.health}),
    (re.compile(r"/v1/state"), {"GET": Api.state}),
    (re.compile(r"/v1/network"), {"PUT": Api.put_network}),
    (re.compile(r"/v1/wait"), {"POST": Api.wait}),
    (re.compile(r"/v1/tenants"), {"POST": Api.add_tenant}),
    (
        re.compile(r"/v1/tenants/([0-9]{1,9})"),
        {"GET": Api.tenant, "PUT": Api.move_tenant, "DELETE": Api.remove_tenant},
    ),
    (re.compile(r"/v1/flows"), {"GET": Api.flows}),
    (re.compile(r"/v1/reconcile"), {"POST": Api.reconcile}),
)
_OPEN = ("/openapi.json", "/v1/health")


def _confirmed(outcome: Outcome, answer: Answer) -> Answer:
    if outcome.refused:
        refused = [{"switch": name, "reason": why} for name, why in outcome.refused]
        raise Refusal(502, "a switch refused the rules", refused=refused)
    if outcome.missing:
        raise Refusal(504, "not confirmed in time", missing=list(outcome.missing))
    return answer


def _url(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError as error:
        raise Refusal(400, "not well-formed", problems=[f"the target: {error}"]) from None


def _query(text: str) -> dict[str, str]:
    pairs = parse_qs(text, keep_blank_values=True)
    repeated = sorted(key for key, values in pairs.items() if len(values) > 1)
    unknown = sorted(pairs.keys() - {"timeout_s"})
    problems = [f"?{key} is given twice" for key in repeated]
    problems += [f"?{key} is not a parameter (known: timeout_s)" for key in unknown]
    if problems:
        raise InvalidValues(problems)
    return {key: values[0] for key, values in pairs.items()}


# A number as JSON has it; Python reads more, such as digits of other scripts.
_SECONDS = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def _timeout(request: Request) -> float:
    text = request.query.get("timeout_s", str(CONFIRM_TIMEOUT_S))
    if not _SECONDS.fullmatch(text):
        raise InvalidValues([f"?timeout_s={text} is not a number of seconds"])
    return _bounded(float(text))


def _bounded(timeout_s: float) -> float:
    if not 0 <= timeout_s <= CONFIRM_TIMEOUT_MAX_S:
        raise InvalidValues([f"timeout_s {timeout_s} is not within 0..{CONFIRM_TIMEOUT_MAX_S:g}"])
    return timeout_s


# ----------------------------------------------------------------------------------- serving


def serve(listener: socket.socket, api: Api, token: str, bucket: TokenBucket | None = None) -> None:
    """Serve connections of `listener`, each in a thread of its own, until it fails.

    ``bucket`` limits requests with the token, in place of RATE_PER_S.
    """
    unknown, owners = Places(STRANGERS_MAX), Places(CONNECTIONS_MAX)
    bound = {
        "api": api,
        "authorization": f"Bearer {token}".encode(),
        "bucket": bucket or TokenBucket(RATE_PER_S, BURST),
        "strangers": TokenBucket(STRANGERS_RATE_PER_S, STRANGERS_BURST),
        "unknown": unknown,
        "owners": owners,
    }
    handler = type("_BoundHandler", (_Handler,), bound)

    def converse(connection: socket.socket, address: tuple[str, int]) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handler(connection, address, None)
            _linger(connection)
        except OSError as error:
            LOG.debug("API connection from %s: %s", address, error)
        finally:
            unknown.leave(connection)
            owners.leave(connection)
            connection.close()

    for connection, address in connections(listener):
        unknown.enter(connection)
        threading.Thread(target=converse, args=(connection, address), daemon=True).start()


def _linger(connection: socket.socket) -> None:
    """Take in, for a moment, what is still sent: closing over it would lose the answer."""
    until_s = time.monotonic() + LINGER_S
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(LINGER_S)
        while connection.recv(1 << 16) and time.monotonic() < until_s:
            pass


class _Timed(io.RawIOBase):
    """A connection's bytes, in and out until `until_s` or, before a request, for IDLE_TIMEOUT_S.

    The socket's own time-outs would begin anew with each byte. `head_bytes` may still be a head's.
    """

    until_s: float | None

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self.head_bytes: float = HEAD_SIZE_MAX_BYTES
        self.begin()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def begin(self) -> None:
        """Start the clock of a request, or of its answer."""
        self.until_s = time.monotonic() + REQUEST_TIMEOUT_S

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError, and ConnectionError of a request that is cut off or has no end."""
        if self.head_bytes <= 0:
            raise ConnectionError(f"a head of more than {HEAD_SIZE_MAX_BYTES} bytes")
        size = self._in_time().recv_into(buffer)
        self.head_bytes -= size
        if self.until_s is None:
            self.begin()
        elif not size:
            # The base class would take half a head for a whole one.
            raise ConnectionError("the request ends in its middle")
        return size

    def write(self, data: Any) -> int:
        """Raises TimeoutError."""
        return self._in_time().send(data)

    def _in_time(self) -> socket.socket:
        left_s = self.until_s - time.monotonic() if self.until_s else IDLE_TIMEOUT_S
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection


class _Handler(BaseHTTPRequestHandler):
    """One connection. What is the same for all comes with the subclass that `serve` makes."""

    api: Api
    authorization: bytes
    bucket: TokenBucket
    strangers: TokenBucket
    unknown: Places
    owners: Places

    protocol_version = default_request_version = "HTTP/1.1"
    server_version = "hosenet"
    sys_version = ""

    def setup(self) -> None:
        """Put the limits under reader and writer."""
        super().setup()
        self._timed = _Timed(self.connection)
        self.rfile = io.BufferedReader(self._timed)
        # An answer leaves in one piece: its parts would wait for each other's acknowledgement.
        self.wfile = io.BufferedWriter(self._timed, 1 << 16)

    def handle_one_request(self) -> None:
        """As the base class does; the next request has its own limits."""
        super().handle_one_request()
        self._timed.until_s, self._timed.head_bytes = None, HEAD_SIZE_MAX_BYTES

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The base class's refusals, as JSON whatever they quote."""
        del explain
        self.close_connection = True
        error = shortened(message or HTTPStatus(code).phrase, PROBLEM_LENGTH_MAX)
        self._write(Answer(int(code), {"error": error}))

    def _serve(self) -> None:
        if self._timed.until_s is None:  # It had come with the request before.
            self._timed.begin()
        given = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        known = hmac.compare_digest(given, self.authorization)
        try:
            answer = self._owner() if known else self._stranger()
        except Refusal as refusal:
            answer = refusal.answer
        self._write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names
    do_HEAD = do_OPTIONS = do_PATCH = do_TRACE = _serve  # noqa: N815 - answered with 405

    def _owner(self) -> Answer:
        if not (self.unknown.leave(self.connection) or self.owners.leave(self.connection)):
            raise ConnectionError("closed to make room for another")
        self.owners.enter(self.connection)
        body = self._body()
        _admit(self.bucket)
        return self.api.answer(self.command, self.path, body)

    def _stranger(self) -> Answer:
        self.close_connection = True  # Its body, if any, stays unread.
        _admit(self.strangers)
        if _url(self.path).path not in _OPEN:
            why = "the bearer token is missing or wrong"
            raise Refusal(401, why, ("WWW-Authenticate", "Bearer"))
        return self.api.answer(self.command, self.path, b"")

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "0")
        problem: Refusal | None = None
        if self.headers.get("Transfer-Encoding"):
            problem = Refusal(501, "send a Content-Length, not a Transfer-Encoding")
        elif not re.fullmatch(r"[0-9]{1,12}", text):
            shown = shortened(text, PROBLEM_LENGTH_MAX)
            problem = Refusal(400, f"Content-Length {shown!r} is not a number")
        elif int(text) > BODY_SIZE_MAX_BYTES:
            problem = Refusal(413, f"the body has {text} bytes, at most {BODY_SIZE_MAX_BYTES} go")
        if problem is not None:
            self.close_connection = True
            raise problem
        try:
            self._timed.head_bytes = math.inf
            return self.rfile.read(int(text))
        except TimeoutError:
            self.close_connection = True
            raise Refusal(408, f"the request took more than {REQUEST_TIMEOUT_S:g} s") from None

    def _write(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode() + b"\n"
        self._timed.begin()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        LOG.debug("API: %s", format % args)


def _admit(bucket: TokenBucket) -> None:
    wait_s = bucket.take()
    if wait_s:
        again = ("Retry-After", str(math.ceil(wait_s)))
        raise Refusal(429, "too many requests: wait, then ask again", again)


_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
"""Errors that say something about this moment or this peer and nothing about the listener."""
_PAUSE_S = 0.1


def connections(listener: socket.socket) -> Iterator[tuple[socket.socket, tuple[str, int]]]:
    """Every connection that comes, with its peer's address. Ends with the listener's own error."""
    while True:
        try:
            connection, address = listener.accept()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            LOG.warning("a connection could not be accepted: %s", error)
            time.sleep(_PAUSE_S)
            continue
        yield connection, address
