"""Requests to the keeper of a network that stays up, and its replies, over a unix socket.

One line of JSON a request, ``{"ShowTenant": {"name": "a"}}``, and one a reply, then the connection
ends. Only root can open the socket. Errors travel as message, hint and exit code, and are raised
again where the request was made.
"""

from __future__ import annotations

import json
import logging
import math
import select
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import TypeAdapter, ValidationError

from testbed.backends.emu.cleanup_journal import state_dir
from testbed.errors import BadInput, DoesNotFit, MachineCannot, RunFailed, TestbedError

REQUEST_LIMIT_BYTES = 65_536
# A request comes in one piece: who needs longer has stopped, and others wait.
REQUEST_TIMEOUT_S = 5.0
# A tenant of hundreds of VMs, and everybody who came before.
REPLY_TIMEOUT_S = 300.0

Reply = TypeVar("Reply")
Watched = Mapping[int, Callable[[], object]]
"""Open files, and what to do where one can be read."""


class NothingUp(BadInput):
    """There is no network to ask about."""


@dataclass(frozen=True)
class Request:
    """One verb; read strictly."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True)
class ShowNetwork(Request):
    """Asks for :class:`NetworkState`."""


@dataclass(frozen=True)
class ShowLinks(Request):
    """Asks for every cable as it is now."""


@dataclass(frozen=True)
class SetLink(Request):
    """``names``: those of both ends, or the link's."""

    names: tuple[str, ...]
    up: bool


@dataclass(frozen=True)
class ShowSwitches(Request):
    """Asks for every Open vSwitch as it is now."""


@dataclass(frozen=True)
class RestartSwitch(Request):
    """``name``: of one, or of a bridge or node in it; or ``all``."""

    name: str


@dataclass(frozen=True)
class TakeDown(Request):
    """Asks for the end of the network; the reply (None) follows when all is removed."""


@dataclass(frozen=True)
class ShowTenant(Request):
    name: str


@dataclass(frozen=True)
class AddTenant(Request):
    """``at``: servers and their numbers of VMs, in place of an embedder; ``policy``: whose embedder
    places it; ``enforcement``: in place of the file's.
    """

    name: str
    n_vms: int
    bandwidth_bps: int
    embedder: str | None = None
    at: tuple[tuple[str, int], ...] = ()
    enforcement: str | None = None
    policy: str | None = None


@dataclass(frozen=True)
class RerateTenant(Request):
    name: str
    bandwidth_bps: int


@dataclass(frozen=True)
class RemoveTenant(Request):
    name: str


# -- the one who asks


def standing_dir() -> Path:
    """The folder of the socket, the log and the hosts files: root's alone."""
    folder = state_dir() / "up"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def ask(request: Request, kind: type[Reply], path: Path | None = None) -> Reply:
    """The keeper's reply. Raises what the keeper says; NothingUp."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(REPLY_TIMEOUT_S)
        try:
            sock.connect(str(path or standing_dir() / "socket"))
            record = {type(request).__name__: asdict(request)}
            sock.sendall(json.dumps(record).encode() + b"\n")
            text = b"".join(iter(lambda: sock.recv(REQUEST_LIMIT_BYTES), b""))
        except FileNotFoundError:
            raise NothingUp("no network is up", "sudo testbed up FILE") from None
        except TimeoutError:
            raise RunFailed(f"no reply within {REPLY_TIMEOUT_S:.0f} s") from None
        except ConnectionError:
            text = b""
    if not text.endswith(b"\n"):
        gone = "the keeper of the network has ended without removing it: the network is still there"
        raise RunFailed(gone, "sudo testbed clean")
    return read_reply(text, kind)


def read_reply(text: bytes, kind: type[Reply]) -> Reply:
    """The value of a reply; raises the error that it carries."""
    record = json.loads(text)
    if "error" in record:
        raise error_of(record)
    return TypeAdapter(kind).validate_python(record["done"])


def error_of(record: dict[str, Any]) -> TestbedError:
    """An error by its exit code, as a reply or ``--json`` carries it."""
    kinds = {each.exit_code: each for each in (DoesNotFit, BadInput, MachineCannot)}
    return kinds.get(record["exit_code"], RunFailed)(record["error"], record.get("hint"))


# -- the keeper's side


def reply_line(value: object) -> bytes:
    """A reply: a dataclass or None, or the error that a request ended in."""
    record: dict[str, object] = {"done": value}
    if isinstance(value, TestbedError):
        record = {"error": value.message, "hint": value.hint, "exit_code": value.exit_code}
    return json.dumps(record, default=_plain).encode() + b"\n"


def _plain(value: Any) -> object:
    """The fields of a dataclass, without the properties that it has cached; an address's text."""
    if not is_dataclass(value):
        return str(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def serve(
    listener: socket.socket,
    handle: Callable[[Request], object],
    timeout_s: float = REQUEST_TIMEOUT_S,
    watched: Callable[[], Watched] = dict,
) -> socket.socket:
    """Serve one request after the other until one asks for the end: returns its connection, still
    without a reply. Nothing that a client sends, or leaves out, ends this loop.

    ``watched``: files, and what to do between requests where one can be read.
    """
    while True:
        _wait_for(listener, watched, math.inf)
        connection, _ = listener.accept()
        reply: object
        try:
            request = _received(connection, timeout_s, watched)
            if isinstance(request, TakeDown):
                return connection
            reply = _handled(handle, request)
        except TestbedError as error:
            reply = error
        except OSError as error:  # it hangs, or is gone
            reply = BadInput(f"no request within {timeout_s:g} s: {error}")
        send(connection, reply)


def send(connection: socket.socket, reply: object) -> None:
    """Reply and hang up; one that is gone has nothing to hear."""
    with connection, suppress(OSError):
        connection.settimeout(REQUEST_TIMEOUT_S)
        connection.sendall(reply_line(reply))


def _handled(handle: Callable[[Request], object], request: Request) -> object:
    try:
        return handle(request)
    except TestbedError:
        raise
    except Exception as error:
        # A defect of ours costs this request, and not the network and everybody's tenants.
        logging.exception("%s", request)
        raise RunFailed(f"{type(error).__name__}: {error}") from error


def _wait_for(sock: socket.socket, watched: Callable[[], Watched], until_s: float) -> None:
    """Until the socket can be read; meanwhile whatever else can be has its turn. TimeoutError."""
    while True:
        due, poll = watched(), select.poll()
        for descriptor in (sock.fileno(), *due):
            poll.register(descriptor, select.POLLIN)
        left_s = until_s - time.monotonic()
        ready = [each for each, _ in poll.poll(None if left_s == math.inf else left_s * 1000)]
        for descriptor in (each for each in due if each in ready):
            try:
                due[descriptor]()
            except Exception:
                logging.exception("between requests")
        if sock.fileno() in ready:
            return
        if time.monotonic() > until_s:
            raise TimeoutError("timed out")


def _received(
    connection: socket.socket, timeout_s: float, watched: Callable[[], Watched]
) -> Request:
    """One request. Raises BadInput for what is none, OSError for a client that hangs or is gone."""
    text, until_s = b"", time.monotonic() + timeout_s
    while not text.endswith(b"\n"):
        _wait_for(connection, watched, until_s)
        data = connection.recv(REQUEST_LIMIT_BYTES)
        text += data
        if not data or len(text) > REQUEST_LIMIT_BYTES:
            raise BadInput(f"a request is one line of at most {REQUEST_LIMIT_BYTES} bytes")
    try:
        # Whoever handles a kind has imported it; not all are of this module.
        kinds = {kind.__name__: kind for kind in Request.__subclasses__()}
        [(name, fields)] = json.loads(text).items()
        return TypeAdapter(kinds[name]).validate_json(json.dumps(fields))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "unknown form"
        raise BadInput(f"not a request: {why}") from None
