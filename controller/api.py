"""The controller's HTTP API: JSON over HTTP/1.1 on loopback, with a bearer token.

docs/controller.md describes it. One thread (or green thread) per connection; the same code runs
under both. Everything is decided by the control plane; here requests are read strictly and
answers written in one piece.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from controller.control_plane import ControlPlane, Outcome
from controller.flow_rules import desired_flows, tenant_flows
from controller.values import (
    Conflict,
    InvalidValues,
    Network,
    Strict,
    Tenant,
    UnknownTenant,
    from_json,
    to_json,
)

LOG = logging.getLogger(__name__)

BODY_SIZE_MAX_BYTES = 8 << 20
CONNECTIONS_MAX = 64
IDLE_TIMEOUT_S = 120.0
CONFIRM_TIMEOUT_S = 30.0
CONFIRM_TIMEOUT_MAX_S = 300.0


@dataclass(frozen=True)
class Answer:
    """An HTTP status and the body's values."""

    status: int
    body: Mapping[str, Any]


class Refusal(Exception):
    """The request cannot be served. Raised anywhere below, answered in one place."""

    def __init__(self, status: int, error: str, **more: object) -> None:
        self.answer = Answer(status, {"error": error, **more})
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
        """Serve one request whose token has been checked."""
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
        except OSError as error:
            LOG.exception("%s %s", method, target)
            return Answer(500, {"error": f"the state cannot be saved, nothing changed: {error}"})

    def _route(self, method: str, target: str, body: bytes) -> Answer:
        url = urlsplit(target)
        for pattern, verbs in _ROUTES:
            if match := pattern.fullmatch(url.path):
                if method not in verbs:
                    raise Refusal(405, f"{method} is not for {url.path}")
                request = Request(_query(url.query), body, *map(int, match.groups()))
                return verbs[method](self, request)
        raise Refusal(404, f"there is no {url.path}")

    def health(self, request: Request) -> Answer:
        """Liveness check; reveals nothing else, as it requires no token."""
        del request
        return Answer(200, {"status": "ok"})

    def state(self, request: Request) -> Answer:
        """Switches and tenants, and what is missing."""
        del request
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

    def remove_tenant(self, request: Request) -> Answer:
        """Take a tenant out."""
        outcome = self.plane.remove_tenant(request.path_id, _timeout(request))
        return _confirmed(outcome, Answer(200, {"id": request.path_id}))

    def tenant(self, request: Request) -> Answer:
        """A tenant as it was given."""
        return Answer(200, json.loads(to_json(self.plane.state.tenant(request.path_id))))

    def flows(self, request: Request) -> Answer:
        """The intended rules as text, per switch."""
        del request
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
    (re.compile(r"/v1/health"), {"GET": Api.health}),
    (re.compile(r"/v1/state"), {"GET": Api.state}),
    (re.compile(r"/v1/network"), {"PUT": Api.put_network}),
    (re.compile(r"/v1/wait"), {"POST": Api.wait}),
    (re.compile(r"/v1/tenants"), {"POST": Api.add_tenant}),
    (re.compile(r"/v1/tenants/([0-9]{1,9})"), {"GET": Api.tenant, "DELETE": Api.remove_tenant}),
    (re.compile(r"/v1/flows"), {"GET": Api.flows}),
    (re.compile(r"/v1/reconcile"), {"POST": Api.reconcile}),
)
_OPEN = "/v1/health"


def _confirmed(outcome: Outcome, answer: Answer) -> Answer:
    if outcome.refused:
        refused = [{"switch": name, "reason": why} for name, why in outcome.refused]
        raise Refusal(502, "a switch refused the rules", refused=refused)
    if outcome.missing:
        raise Refusal(504, "not confirmed in time", missing=list(outcome.missing))
    return answer


def _query(text: str) -> dict[str, str]:
    pairs = parse_qs(text, keep_blank_values=True)
    repeated = sorted(key for key, values in pairs.items() if len(values) > 1)
    unknown = sorted(pairs.keys() - {"timeout_s"})
    problems = [f"?{key} is given twice" for key in repeated]
    problems += [f"?{key} is not a parameter (known: timeout_s)" for key in unknown]
    if problems:
        raise InvalidValues(problems)
    return {key: values[0] for key, values in pairs.items()}


def _timeout(request: Request) -> float:
    text = request.query.get("timeout_s", str(CONFIRM_TIMEOUT_S))
    try:
        return _bounded(float(text))
    except ValueError:
        raise InvalidValues([f"?timeout_s={text} is not a number of seconds"]) from None


def _bounded(timeout_s: float) -> float:
    if not 0 <= timeout_s <= CONFIRM_TIMEOUT_MAX_S:
        raise InvalidValues([f"timeout_s {timeout_s} is not within 0..{CONFIRM_TIMEOUT_MAX_S:g}"])
    return timeout_s


# ----------------------------------------------------------------------------------- serving


def serve(listener: socket.socket, api: Api, token: str) -> None:
    """Serve connections of `listener`, each in a thread of its own, until it fails."""
    authorization = f"Bearer {token}".encode()
    handler = type("_BoundHandler", (_Handler,), {"api": api, "authorization": authorization})
    free = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def converse(connection: socket.socket, address: tuple[str, int]) -> None:
        try:
            handler(connection, address, None)
        except OSError as error:
            LOG.debug("API connection from %s: %s", address, error)
        finally:
            connection.close()
            free.release()

    for connection, address in connections(listener):
        if not free.acquire(blocking=False):
            LOG.warning("API: more than %d connections, one turned away", CONNECTIONS_MAX)
            connection.close()
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=converse, args=(connection, address), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    """One connection. `api` and `authorization` come with the subclass that `serve` makes."""

    api: Api
    authorization: bytes

    protocol_version = "HTTP/1.1"
    server_version = "hosenet"
    sys_version = ""
    timeout = IDLE_TIMEOUT_S
    # An answer leaves in one piece: its head and body would wait for each other's acknowledgement.
    wbufsize = 1 << 16
    error_content_type = "application/json"
    error_message_format = '{"error": "%(message)s"}\n'

    def _serve(self) -> None:
        try:
            self._check_token()
            answer = self.api.answer(self.command, self.path, self._body())
        except Refusal as refusal:
            answer = refusal.answer
        except OSError:
            raise
        except Exception:
            LOG.exception("%s %s", self.command, self.path)
            answer = Answer(500, {"error": "the controller failed, see its log"})
        self._write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names

    def _check_token(self) -> None:
        given = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        right = hmac.compare_digest(given, self.authorization)
        if not right and urlsplit(self.path).path != _OPEN:
            self.close_connection = True  # Its body, if any, stays unread.
            raise Refusal(401, "the bearer token is missing or wrong")

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "0")
        problem: Refusal | None = None
        if self.headers.get("Transfer-Encoding"):
            problem = Refusal(501, "send a Content-Length, not a Transfer-Encoding")
        elif not re.fullmatch(r"[0-9]{1,12}", text):
            problem = Refusal(400, f"Content-Length {text!r} is not a number")
        elif int(text) > BODY_SIZE_MAX_BYTES:
            problem = Refusal(413, f"the body has {text} bytes, at most {BODY_SIZE_MAX_BYTES} go")
        if problem is not None:
            self.close_connection = True
            raise problem
        body = self.rfile.read(int(text))
        if len(body) < int(text):
            raise ConnectionError("the request ends in the middle of its body")
        return body

    def _write(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode() + b"\n"
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if answer.status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        LOG.debug("API: %s", format % args)


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
