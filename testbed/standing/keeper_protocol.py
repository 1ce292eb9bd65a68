"""Requests to the keeper of a standing network and its replies, over a socket.

A request is one line of JSON, ``{"ShowTenant": {"name": "a"}}``, and so is its
reply; then the connection ends. Only root can open the unix socket. Errors travel as
message, hint and exit code, and are raised again where the request was made.
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
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from testbed.backends.emu.cleanup_journal import state_dir
from testbed.errors import (
    BadInput,
    DoesNotFit,
    MachineCannot,
    RunFailed,
    TestbedError,
)

REQUEST_LIMIT_BYTES = 65_536
# A request comes in one piece: a client that needs longer has stopped, and the
# keeper, which serves one client at a time, would keep the others waiting.
REQUEST_TIMEOUT_S = 5.0
PAUSE_S = 1.0
"""Time from a connection that cannot be accepted to the next attempt."""
# A tenant of hundreds of VMs, after the requests of all clients before it.
REPLY_TIMEOUT_S = 300.0
ANOTHER_VERSION = (
    "after an update: sudo testbed down, then sudo testbed up FILE"
)
QUEUE_LOOK_S = 0.1
"""Time between attempts to join a full queue of clients."""

Reply = TypeVar("Reply")

# Kept, as ``testbed top`` reads a reply each second: a Ctrl-C that comes while
# pydantic builds an adapter is lost, or raised as a SchemaError.
_ADAPTERS: dict[object, TypeAdapter[Any]] = {}
# Descriptors of open files -> what to call when one becomes readable.
Watched = Mapping[int, Callable[[], object]]


class NothingUp(BadInput):
    """No standing network is up. ``run``: the run in progress, if any, which has
    a network of its own.
    """

    def __init__(self) -> None:
        # Types of events are a third of what a short command imports.
        from testbed.record.running import running_on_machine, sentences

        self.run = running_on_machine(state_dir())
        if self.run is None:
            super().__init__("no network is up", "sudo testbed up FILE")
            return
        super().__init__(
            f"no network is up for tenants: {sentences(self.run)[0]}",
            "wait until it is done, or end it with Ctrl-C there;"
            " testbed status says how far it is",
        )


@dataclass(frozen=True)
class KeeperRequest:
    """One request to the keeper, read strictly."""

    # A request changes a network: a key that is not known, or a value of
    # another type, is a mistake and not passed over.
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True)
class ShowNetwork(KeeperRequest):
    """Asks for :class:`NetworkState`."""


@dataclass(frozen=True)
class ShowLinks(KeeperRequest):
    """Asks for every cable as it is now."""


Way = Literal["both", "up", "down"]
"""Directions of a link: up is from the lower end, toward the root."""


@dataclass(frozen=True)
class SetLink(KeeperRequest):
    """Brings a cable up, or takes it down. ``names``: its two ends, or the name
    of the link alone.
    """

    names: tuple[str, ...]
    up: bool


@dataclass(frozen=True)
class SetCapacity(KeeperRequest):
    """Changes a link's capacity, in the experiment's bit/s; ``names`` as of
    :class:`SetLink`, ``way``: the directions that get it.
    """

    names: tuple[str, ...]
    capacity_bps: int
    way: Way = "both"


@dataclass(frozen=True)
class ShowSwitches(KeeperRequest):
    """Asks for every Open vSwitch as it is now."""


@dataclass(frozen=True)
class RestartSwitch(KeeperRequest):
    """Restarts the switch of this name, or that of a bridge or node of this
    name; ``all``: every one.
    """

    name: str


@dataclass(frozen=True)
class TakeDown(KeeperRequest):
    """Ends the network; the reply, None, follows when all is removed."""


@dataclass(frozen=True)
class ShowTenant(KeeperRequest):
    """Asks for :class:`TenantState`."""

    name: str


@dataclass(frozen=True)
class AddTenant(KeeperRequest):
    """A tenant to admit: ⟨n_vms, bandwidth_bps⟩ and how it is placed.

    ``at``: servers and their numbers of VMs, in place of an embedder;
    ``policy``: the policy whose embedder places it; ``enforcement``: in place
    of the file's.
    """

    name: str
    n_vms: int
    bandwidth_bps: int
    embedder: str | None = None
    at: tuple[tuple[str, int], ...] = ()
    enforcement: str | None = None
    policy: str | None = None


@dataclass(frozen=True)
class RerateTenant(KeeperRequest):
    """Changes the bandwidth of a tenant's VMs in place."""

    name: str
    bandwidth_bps: int


@dataclass(frozen=True)
class RemoveTenant(KeeperRequest):
    """Removes a tenant, and ends whatever runs in its VMs."""

    name: str


# -- the client's side


def standing_dir() -> Path:
    """The folder of the socket, the log and the hosts files: root's alone."""
    folder = state_dir() / "up"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def ask(
    request: KeeperRequest,
    kind: type[Reply],
    path: Path | None = None,
) -> Reply:
    """The keeper's reply. Raises the error in it, NothingUp without a network,
    or RunFailed.
    """
    try:
        text = _exchange(request, path or standing_dir() / "socket")
    except FileNotFoundError:
        raise NothingUp from None
    except TimeoutError:
        raise RunFailed(
            f"no reply within {REPLY_TIMEOUT_S:.0f} s"
        ) from None
    except ConnectionError:
        # As if it had hung up in the middle of a reply.
        text = b""
    if not text.endswith(b"\n"):
        raise RunFailed(
            "the keeper of the network has ended without removing it: "
            "the network is still there",
            "sudo testbed clean",
        )
    return read_reply(text, kind)


def _exchange(request: KeeperRequest, path: Path) -> bytes:
    """Sends a request, and receives until the keeper hangs up."""
    record = {type(request).__name__: asdict(request)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(REPLY_TIMEOUT_S)
        _connect(sock, path)
        sock.sendall(json.dumps(record).encode() + b"\n")
        reply = bytearray()
        # A reply has any length: its end is the end of the connection.
        while data := sock.recv(REQUEST_LIMIT_BYTES):
            reply += data
    return bytes(reply)


def _connect(sock: socket.socket, path: Path) -> None:
    """Connects to the keeper; raises OSError."""
    until_s = time.monotonic() + REPLY_TIMEOUT_S
    while True:
        try:
            sock.connect(str(path))
        except BlockingIOError:
            # As many clients wait as can: a unix socket refuses the next one
            # at once, whatever its time-out.
            if time.monotonic() > until_s:
                raise TimeoutError from None
            time.sleep(QUEUE_LOOK_S)
        else:
            return


def read_reply(text: bytes, kind: type[Reply]) -> Reply:
    """The value of a reply. Raises the error in it, and RunFailed where it is of
    another version.
    """
    record = json.loads(text)
    if "error" in record:
        raise error_of(record)
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    try:
        reply: Reply = _ADAPTERS[kind].validate_python(record["done"])
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise RunFailed(
            "the network was brought up by another version: "
            f"its reply differs at {place or 'its beginning'}",
            ANOTHER_VERSION,
        ) from error
    return reply


def error_of(record: dict[str, Any]) -> TestbedError:
    """The error in a reply or in the output of ``--json``; its exit code tells
    the class.
    """
    kind: type[TestbedError] = RunFailed
    for candidate in (DoesNotFit, BadInput, MachineCannot):
        if candidate.exit_code == record["exit_code"]:
            kind = candidate
    return kind(record["error"], record.get("hint"))


# -- the keeper's side


def reply_line(value: object) -> bytes:
    """A reply: a value in JSON, or the error that a request ended in."""
    record: dict[str, object] = {"done": value}
    if isinstance(value, TestbedError):
        record = {
            "error": value.message,
            "hint": value.hint,
            "exit_code": value.exit_code,
        }
    # The line end shows that the keeper's death did not cut the reply short.
    return json.dumps(record, default=_plain).encode() + b"\n"


def _plain(value: Any) -> object:
    """The fields of a dataclass; any other value, such as an address, as text.

    ``asdict`` would copy values in depth; ``vars`` would include the
    properties that a plan has cached.
    """
    if not is_dataclass(value):
        return str(value)
    return {
        field.name: getattr(value, field.name) for field in fields(value)
    }


def serve(
    listener: socket.socket,
    handle: Callable[[KeeperRequest], object],
    timeout_s: float = REQUEST_TIMEOUT_S,
    watched: Callable[[], Watched] = dict,
) -> socket.socket:
    """Serves one request after the other until a :class:`TakeDown`, whose
    connection it returns without a reply.

    Nothing else that a client sends, or leaves out, ends this loop. ``watched``
    gives files, and what to call when one becomes readable.
    """
    while True:
        # One client at a time: no two requests change the network at once.
        _wait_for(listener, watched, until_s=math.inf)
        try:
            connection, _ = listener.accept()
        except OSError:
            # No descriptor is free, here or on the machine: the client waits.
            logging.exception("a connection is not accepted")
            time.sleep(PAUSE_S)
            continue
        reply: object
        try:
            request = _received(connection, timeout_s, watched)
            # Replied to by the caller, who removes the network first.
            if isinstance(request, TakeDown):
                return connection
            reply = _handled(handle, request)
        except TestbedError as error:
            reply = error
        except OSError as error:  # the client hangs, or is gone
            reply = BadInput(f"no request within {timeout_s:g} s: {error}")
        send(connection, reply)


def send(connection: socket.socket, reply: object) -> None:
    """Replies and hangs up; a client that is gone is no error."""
    with connection, suppress(OSError):
        # A client that does not read holds up the others no longer than this.
        connection.settimeout(REQUEST_TIMEOUT_S)
        connection.sendall(reply_line(reply))


def _handled(
    handle: Callable[[KeeperRequest], object],
    request: KeeperRequest,
) -> object:
    try:
        return handle(request)
    except TestbedError:
        raise
    except Exception as error:
        # A defect of the keeper costs this request, and not the network with
        # the tenants of all users.
        logging.exception("%s", request)
        raise RunFailed(f"{type(error).__name__}: {error}") from error


def _wait_for(
    sock: socket.socket,
    watched: Callable[[], Watched],
    until_s: float,
) -> None:
    """Returns when the socket is readable; meanwhile serves watched files.

    Raises TimeoutError at ``until_s`` of the monotonic clock.
    """
    while True:
        # Asked anew in every round: a callback may close its file or add one.
        callbacks = watched()
        readable = _readable((sock.fileno(), *callbacks), until_s)
        for descriptor, callback in callbacks.items():
            if descriptor not in readable:
                continue
            try:
                callback()
            except Exception:
                logging.exception("a watched file's callback failed")
        if sock.fileno() in readable:
            return
        if time.monotonic() > until_s:
            raise TimeoutError("timed out")


def _readable(
    descriptors: tuple[int, ...],
    until_s: float,
) -> set[int]:
    # Not select: a network of hundreds of namespaces has descriptors above
    # 1023.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    timeout_ms = None
    if until_s != math.inf:
        # With a negative time-out it would wait for ever.
        timeout_ms = max(0.0, until_s - time.monotonic()) * 1000
    return {descriptor for descriptor, _ in poll.poll(timeout_ms)}


def _received(
    connection: socket.socket,
    timeout_s: float,
    watched: Callable[[], Watched],
) -> KeeperRequest:
    """One request.

    Raises BadInput for anything else, OSError for a client that hangs or is
    gone.
    """
    text = b""
    until_s = time.monotonic() + timeout_s
    while not text.endswith(b"\n"):
        _wait_for(connection, watched, until_s)
        data = connection.recv(REQUEST_LIMIT_BYTES)
        text += data
        # No data: the client has hung up in the middle of a line.
        if not data or len(text) > REQUEST_LIMIT_BYTES:
            raise BadInput(
                f"a request is one line of at most {REQUEST_LIMIT_BYTES} bytes"
            )
    return _parsed(text)


def _parsed(text: bytes) -> KeeperRequest:
    """A request from its line. Raises BadInput."""
    # No fixed list: network_layout, which the keeper imports, has more kinds.
    kinds = {kind.__name__: kind for kind in KeeperRequest.__subclasses__()}
    try:
        [(name, arguments)] = json.loads(text).items()
        # JSON again: strict pydantic takes a list for a tuple only from JSON.
        return TypeAdapter(kinds[name]).validate_json(json.dumps(arguments))
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
    except (
        ValueError,
        AttributeError,
        KeyError,
        TypeError,
        RecursionError,
    ):
        reason = "unknown form"
    raise BadInput(f"not a request: {reason}", ANOTHER_VERSION)
