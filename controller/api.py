"""The controller's HTTP API: JSON over HTTP/1.1 on loopback, bearer token.

docs/controller.md describes it. One thread (or green thread) per connection;
the same code runs under both. Everything is decided by the control plane; here
requests are read strictly, limited in size, time and number, and answers
written in one piece. ``openapi.json`` describes all of it.

A connection counts as a stranger's until it has carried a request with the
token, and as the owner's from then on. Both kinds are limited in number: beyond
the limit, the kind's oldest connection is closed for a new one.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

from controller.control_plane import ChangeOutcome, ControlPlane
from controller.flow_rules import desired_flows, tenant_flows
from controller.rate_limit import Places, TokenBucket
from controller.values import (
    PROBLEM_LENGTH_MAX,
    Conflict,
    InvalidValues,
    NetworkSwitches,
    Strict,
    Tenant,
    UnknownTenant,
    from_json,
    shortened,
    to_json,
)

LOG = logging.getLogger(__name__)

# The API's description, an OpenAPI document.
OPENAPI: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("openapi.json").read_bytes()
)

# Three times the largest tenant, of 1,021 VMs each on a switch of its own.
BODY_SIZE_MAX_BYTES = 1 << 20
HEAD_SIZE_MAX_BYTES = 1 << 17
# Connections of the token's owner.
CONNECTIONS_MAX = 64
# Connections that have shown no token (yet).
STRANGERS_MAX = 256
IDLE_TIMEOUT_S = 120.0
# From a request's first byte to its last, and the same for its answer: a peer
# that sends or reads byte by byte would else keep a connection. The clock of a
# connection's first request starts with the connection.
REQUEST_TIMEOUT_S = 10.0
LINGER_S = 1.0
# Requests with the token. A live tenant takes two, of some 10 ms each.
RATE_PER_S = 500.0
BURST = 1000
# Requests without the token; they use up nothing of the rate above.
STRANGERS_RATE_PER_S = 20.0
STRANGERS_BURST = 40
CONFIRM_TIMEOUT_S = 30.0
CONFIRM_TIMEOUT_MAX_S = 300.0


@dataclass(frozen=True)
class Answer:
    """An HTTP status, the body's values, and headers of this answer alone."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class ApiRefusal(Exception):
    """A request that cannot be served, and its answer.

    Raised anywhere below, answered in one place.
    """

    def __init__(
        self,
        status: int,
        error: str,
        headers: Mapping[str, str] | None = None,
        **details: object,
    ) -> None:
        body = {"error": error, **details}
        self.answer = Answer(status, body, headers or {})
        super().__init__(error)


@dataclass(frozen=True)
class WaitRequest(Strict):
    """The body of POST /v1/wait: switches (all if absent) and a time limit."""

    dpids: tuple[int, ...] | None = None
    timeout_s: float = CONFIRM_TIMEOUT_S


@dataclass(frozen=True)
class ApiRequest:
    """A request as the endpoints see it."""

    query: Mapping[str, str]
    body: bytes
    path_id: int = 0


@dataclass(frozen=True)
class Api:
    """The endpoints; `about` is the part of /v1/state about the process."""

    plane: ControlPlane
    about: Mapping[str, Any]

    def answer(
        self,
        method: str,
        target: str,
        body: bytes,
    ) -> Answer:
        """Serves one request that has been let in."""
        try:
            return self._route(method, target, body)
        except ApiRefusal as refusal:
            return refusal.answer
        except InvalidValues as error:
            return _problems(400, "not well-formed", error.problems)
        except Conflict as error:
            return _problems(409, "conflict", error.problems)
        except UnknownTenant as error:
            return Answer(404, {"error": str(error)})
        except Exception as error:
            # A defect costs its request, and not the controller.
            LOG.exception("%s %r", method, target)
            why = "the controller failed, see its log"
            # The control plane saves first: a call that raises this has changed
            # nothing.
            if isinstance(error, OSError):
                why = f"the state cannot be saved, nothing changed: {error}"
            return Answer(500, {"error": why})

    def _route(
        self,
        method: str,
        target: str,
        body: bytes,
    ) -> Answer:
        url = _url(target)
        for pattern, verbs in _ROUTES:
            match = pattern.fullmatch(url.path)
            if match is None:
                continue
            if method not in verbs:
                raise ApiRefusal(
                    405,
                    f"{method} is not for {url.path}",
                    {"Allow": ", ".join(verbs)},
                )
            # At most one number is in a path: the tenant's id.
            ids = map(int, match.groups())
            endpoint = verbs[method]
            known = ("timeout_s",) if endpoint in _TIMED else ()
            request = ApiRequest(_query(url.query, known), body, *ids)
            return endpoint(self, request)
        path = shortened(url.path, PROBLEM_LENGTH_MAX)
        raise ApiRefusal(404, f"there is no {path}")

    def openapi(self, _: ApiRequest) -> Answer:
        """The API's description: the same for everybody, so it needs no token."""
        return Answer(200, OPENAPI)

    def health(self, _: ApiRequest) -> Answer:
        """Liveness check; reveals nothing else, as it requires no token."""
        return Answer(200, {"status": "ok"})

    def state(self, _: ApiRequest) -> Answer:
        """Switches and tenants, and what is missing."""
        return Answer(200, {**self.about, **self.plane.view()})

    def put_network(self, request: ApiRequest) -> Answer:
        """Replaces the network."""
        network = from_json(NetworkSwitches, request.body)
        self.plane.put_network(network.switches)
        return Answer(200, {"switches": len(network.switches)})

    def wait(self, request: ApiRequest) -> Answer:
        """Waits until switches have their rules."""
        wanted = from_json(WaitRequest, request.body or b"{}")
        timeout_s = _bounded(wanted.timeout_s)
        outcome = self.plane.wait_connected(wanted.dpids, timeout_s)
        return _confirmed(outcome, {"missing": []})

    def add_tenant(self, request: ApiRequest) -> Answer:
        """Brings a tenant in."""
        tenant = from_json(Tenant, request.body)
        outcome = self.plane.add_tenant(tenant, _timeout_s(request))
        n_flows = sum(map(len, tenant_flows(tenant).values()))
        body = {
            "id": tenant.id,
            "switches": len(tenant.dpids),
            "flows": n_flows,
        }
        return _confirmed(outcome, body, status=201)

    def move_tenant(self, request: ApiRequest) -> Answer:
        """Brings a tenant to another tree."""
        tenant = from_json(Tenant, request.body)
        if tenant.id != request.path_id:
            raise InvalidValues(
                [
                    f"id: {tenant.id} is not that of the path, {request.path_id}"
                ]
            )
        outcome = self.plane.move_tenant(tenant, _timeout_s(request))
        return _confirmed(outcome, {"id": tenant.id})

    def remove_tenant(self, request: ApiRequest) -> Answer:
        """Takes a tenant out."""
        timeout_s = _timeout_s(request)
        outcome = self.plane.remove_tenant(request.path_id, timeout_s)
        return _confirmed(outcome, {"id": request.path_id})

    def tenant(self, request: ApiRequest) -> Answer:
        """A tenant as it was given."""
        tenant = self.plane.state.tenant(request.path_id)
        return Answer(200, json.loads(to_json(tenant)))

    def flows(self, _: ApiRequest) -> Answer:
        """The intended rules as text, per switch."""
        state = self.plane.state
        flows = desired_flows(state)
        switches = []
        for switch in state.switches:
            record = {
                "dpid": switch.dpid,
                "name": switch.name,
                "flows": [flow.text() for flow in flows[switch.dpid]],
            }
            switches.append(record)
        return Answer(200, {"switches": switches})

    def reconcile(self, request: ApiRequest) -> Answer:
        """Compares every switch with its desired rules, and repairs it."""
        outcome, repaired = self.plane.reconcile(_timeout_s(request))
        return _confirmed(outcome, {"repaired": repaired})


_Endpoint = Callable[[Api, ApiRequest], Answer]
_ROUTES: tuple[tuple[re.Pattern[str], dict[str, _Endpoint]], ...] = (
    (re.compile(r"/openapi\.json"), {"GET": Api.openapi}),
    (re.compile(r"/v1/health"), {"GET": Api.health}),
    (re.compile(r"/v1/state"), {"GET": Api.state}),
    (re.compile(r"/v1/network"), {"PUT": Api.put_network}),
    (re.compile(r"/v1/wait"), {"POST": Api.wait}),
    (re.compile(r"/v1/tenants"), {"POST": Api.add_tenant}),
    (
        re.compile(r"/v1/tenants/([0-9]{1,9})"),
        {
            "GET": Api.tenant,
            "PUT": Api.move_tenant,
            "DELETE": Api.remove_tenant,
        },
    ),
    (re.compile(r"/v1/flows"), {"GET": Api.flows}),
    (re.compile(r"/v1/reconcile"), {"POST": Api.reconcile}),
)
# Endpoints that wait for switches, for as long as their query says.
_TIMED = (
    Api.add_tenant,
    Api.move_tenant,
    Api.remove_tenant,
    Api.reconcile,
)
# Paths that need no token.
_OPEN = ("/openapi.json", "/v1/health")


def _problems(
    status: int,
    error: str,
    problems: tuple[str, ...],
) -> Answer:
    return Answer(status, {"error": error, "problems": list(problems)})


def _confirmed(
    outcome: ChangeOutcome,
    body: Mapping[str, Any],
    status: int = 200,
) -> Answer:
    """The answer to a change that switches have confirmed. Raises ApiRefusal."""
    # A refusal says more than a missing answer: it comes first.
    if outcome.refused:
        refused = []
        for name, reason in outcome.refused:
            refused.append({"switch": name, "reason": reason})
        raise ApiRefusal(502, "a switch refused the rules", refused=refused)
    if outcome.missing:
        raise ApiRefusal(
            504, "not confirmed in time", missing=list(outcome.missing)
        )
    return Answer(status, body)


def _url(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError as error:
        raise ApiRefusal(
            400, "not well-formed", problems=[f"the target: {error}"]
        ) from None


def _query(text: str, known: Sequence[str]) -> dict[str, str]:
    values_of = parse_qs(text, keep_blank_values=True)
    problems = []
    for key in sorted(values_of):
        if len(values_of[key]) > 1:
            problems.append(f"?{key} is given twice")
    for key in sorted(values_of):
        if key not in known:
            names = ", ".join(known) or "none here"
            problems.append(f"?{key} is not a parameter (known: {names})")
    if problems:
        raise InvalidValues(problems)
    return {key: values[0] for key, values in values_of.items()}


# A number as JSON has it; Python reads more, such as digits of other scripts.
_SECONDS = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def _timeout_s(request: ApiRequest) -> float:
    text = request.query.get("timeout_s", str(CONFIRM_TIMEOUT_S))
    if not _SECONDS.fullmatch(text):
        raise InvalidValues(
            [f"?timeout_s={text} is not a number of seconds"]
        )
    return _bounded(float(text))


def _bounded(timeout_s: float) -> float:
    if not 0 <= timeout_s <= CONFIRM_TIMEOUT_MAX_S:
        raise InvalidValues(
            [
                f"timeout_s {timeout_s} is not within 0..{CONFIRM_TIMEOUT_MAX_S:g}"
            ]
        )
    return timeout_s


# -- serving


def serve(
    listener: socket.socket,
    api: Api,
    token: str,
    bucket: TokenBucket | None = None,
) -> None:
    """Serves a listener's connections, each in a thread, until it fails.

    ``bucket`` limits requests with the token, in place of RATE_PER_S.
    """

    # http.server makes a handler from its class for each connection: what all
    # of them share is the class's.
    class BoundHandler(_Handler):
        strangers = Places(STRANGERS_MAX)
        owners = Places(CONNECTIONS_MAX)
        strangers_bucket = TokenBucket(
            STRANGERS_RATE_PER_S, STRANGERS_BURST
        )

    BoundHandler.api = api
    BoundHandler.authorization = f"Bearer {token}".encode()
    BoundHandler.bucket = bucket or TokenBucket(RATE_PER_S, BURST)
    for connection, address in connections(listener):
        # Not in its thread: connections count as they come, however late
        # their threads run.
        BoundHandler.strangers.enter(connection)
        thread = threading.Thread(
            target=_converse,
            args=(BoundHandler, connection, address),
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            # As in `connections`: where threads are short, this one is lost.
            LOG.warning("a connection could not be served: %s", error)
            BoundHandler.strangers.leave(connection)
            connection.close()
            time.sleep(_PAUSE_S)


def _converse(
    handler: type[_Handler],
    connection: socket.socket,
    address: tuple[str, int],
) -> None:
    """Serves one connection to its end."""
    try:
        # An answer is one write: there is nothing to wait for and join.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handler(connection, address, cast(Any, None))
        _linger(connection)
    except OSError as error:
        LOG.debug("API connection from %s: %s", address, error)
    finally:
        # It is in one of the two, or was shut down to make room: leaving a
        # place that is not held does nothing.
        handler.strangers.leave(connection)
        handler.owners.leave(connection)
        connection.close()


def _linger(connection: socket.socket) -> None:
    """Takes in, for a moment, what is still sent.

    Closing over it would lose the answer: the kernel resets such a connection.
    """
    until_s = time.monotonic() + LINGER_S
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(LINGER_S)
        while connection.recv(1 << 16) and time.monotonic() < until_s:
            pass


class _Timed(io.RawIOBase):
    """A connection's bytes, read and written until `until_s`.

    Before a request `until_s` is None: then the limit is IDLE_TIMEOUT_S. The
    socket's own time-outs would begin anew with each byte. `head_bytes`: how
    many more bytes a request's head may have.
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
        """Starts the clock of a request, or of its answer."""
        self.until_s = time.monotonic() + REQUEST_TIMEOUT_S

    def readinto(self, buffer: Any) -> int:
        """Receives into a buffer. Raises TimeoutError, ConnectionError.

        The latter for a request that is cut off or whose head has no end.
        """
        if self.head_bytes <= 0:
            raise ConnectionError(
                f"a head of more than {HEAD_SIZE_MAX_BYTES} bytes"
            )
        size = self._in_time().recv_into(buffer)
        self.head_bytes -= size
        if self.until_s is None:
            self.begin()
        elif not size:
            # The base class would take half a head for a whole one.
            raise ConnectionError("the request ends in its middle")
        return size

    def write(self, data: Any) -> int:
        """Sends some of the data. Raises TimeoutError."""
        return self._in_time().send(data)

    def _in_time(self) -> socket.socket:
        left_s = IDLE_TIMEOUT_S
        if self.until_s is not None:
            left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection


class _Handler(BaseHTTPRequestHandler):
    """One connection; `serve` makes a subclass with what all of them share."""

    api: Api
    authorization: bytes
    bucket: TokenBucket
    strangers_bucket: TokenBucket
    strangers: Places
    owners: Places

    # A request line without a version would else be HTTP/0.9's, whose answers
    # have no head.
    protocol_version = default_request_version = "HTTP/1.1"
    server_version = "hosenet"
    # Which Python this is, is nobody's business.
    sys_version = ""

    def setup(self) -> None:
        """Puts the limits under reader and writer."""
        super().setup()
        self._timed = _Timed(self.connection)
        self.rfile = io.BufferedReader(self._timed)
        # An answer leaves in one piece: its parts would wait for each other's
        # acknowledgement.
        self.wfile = io.BufferedWriter(self._timed, 1 << 16)

    def handle_one_request(self) -> None:
        """Serves a request as the base class does; the next has new limits."""
        super().handle_one_request()
        self._timed.until_s = None
        self._timed.head_bytes = HEAD_SIZE_MAX_BYTES

    def handle_expect_100(self) -> bool:
        """Tells a client that waits for it to send its body."""
        continues = super().handle_expect_100()
        # The writer would keep it until the answer, for which it is needed.
        self.wfile.flush()
        return continues

    def send_error(
        self,
        code: int,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """Sends the base class's refusals, as JSON whatever they quote."""
        del explain
        self.close_connection = True
        error = shortened(
            message or HTTPStatus(code).phrase, PROBLEM_LENGTH_MAX
        )
        self._write(Answer(int(code), {"error": error}))

    def _serve(self) -> None:
        # A request that came together with the one before is in the reader's
        # buffer: none of its bytes has started the clock.
        if self._timed.until_s is None:
            self._timed.begin()
        credentials = self.headers.get("Authorization", "")
        # In constant time: the time to a first difference would tell the token.
        is_owner = hmac.compare_digest(
            credentials.encode("utf-8", "surrogateescape"),
            self.authorization,
        )
        serve = self._answer_stranger
        if is_owner:
            serve = self._answer_owner
        try:
            answer = serve()
        except ApiRefusal as refusal:
            answer = refusal.answer
        self._write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names
    do_HEAD = do_OPTIONS = do_PATCH = do_TRACE = _serve  # noqa: N815 - answered with 405

    def _answer_owner(self) -> Answer:
        connection = self.connection
        was_stranger = self.strangers.leave(connection)
        if not was_stranger and not self.owners.leave(connection):
            raise ConnectionError("closed to make room for another")
        # At the end of the line: the one that is idle longest makes room.
        self.owners.enter(connection)
        # The body is taken in first: the connection is kept after a 429,
        # and what is left unread would pass for the next request.
        body = self._body()
        _admit(self.bucket)
        return self.api.answer(self.command, self.path, body)

    def _answer_stranger(self) -> Answer:
        self.close_connection = True  # Its body, if any, stays unread.
        _admit(self.strangers_bucket)
        if _url(self.path).path not in _OPEN:
            raise ApiRefusal(
                401,
                "the bearer token is missing or wrong",
                {"WWW-Authenticate": "Bearer"},
            )
        return self.api.answer(self.command, self.path, b"")

    def _body(self) -> bytes:
        try:
            size_bytes = self._body_size_bytes()
            # The limit was the head's; a body's is its Content-Length.
            self._timed.head_bytes = math.inf
            return self.rfile.read(size_bytes)
        except TimeoutError:
            self.close_connection = True
            raise ApiRefusal(
                408, f"the request took more than {REQUEST_TIMEOUT_S:g} s"
            ) from None
        except ApiRefusal:
            self.close_connection = True
            raise

    def _body_size_bytes(self) -> int:
        # http.server decodes no chunks: they would pass for the next
        # request.
        if self.headers.get("Transfer-Encoding"):
            raise ApiRefusal(
                501, "send a Content-Length, not a Transfer-Encoding"
            )
        # Python's int reads signs, spaces and digits of other scripts.
        text = self.headers.get("Content-Length", "0")
        if not re.fullmatch(r"[0-9]{1,12}", text):
            shown = shortened(text, PROBLEM_LENGTH_MAX)
            raise ApiRefusal(
                400, f"Content-Length {shown!r} is not a number"
            )
        if int(text) > BODY_SIZE_MAX_BYTES:
            raise ApiRefusal(
                413,
                f"the body has {text} bytes, at most {BODY_SIZE_MAX_BYTES} go",
            )
        return int(text)

    def _write(self, answer: Answer) -> None:
        # ASCII, whatever text of a peer it quotes.
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
        # No body may follow here: the client would read it as the beginning
        # of the next answer.
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    # The parameter's name is http.server's.
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        LOG.debug("API: %s", format % args)


def _admit(bucket: TokenBucket) -> None:
    wait_s = bucket.take()
    if wait_s:
        raise ApiRefusal(
            429,
            "too many requests: wait, then ask again",
            {"Retry-After": str(math.ceil(wait_s))},
        )


# Errors about this moment or this peer, and not about the listener.
_PASSING = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.ECONNABORTED,
)
_PAUSE_S = 0.1


def connections(
    listener: socket.socket,
) -> Iterator[tuple[socket.socket, tuple[str, int]]]:
    """Every connection that comes, with its peer's address.

    Ends with the listener's own error.
    """
    while True:
        try:
            connection, address = listener.accept()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            # Where resources are short, this one is lost and the listener
            # stays; without a pause this would be a busy loop.
            LOG.warning("a connection could not be accepted: %s", error)
            time.sleep(_PAUSE_S)
            continue
        yield connection, address
