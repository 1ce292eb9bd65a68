"""What the fork server is asked and what it answers: one JSON object per packet."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import asdict, dataclass
from typing import Any

from jobs.live.protocol import Fields, Plan, ProtocolError, plan_from_object, to_object

PACKET_LIMIT_BYTES = 1 << 20

# Signals that may be sent to an agent; the others are the machine's business.
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCONT,
)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
_CGROUP = re.compile(r"/sys/fs/cgroup/(?:[^/]+/)+cgroup\.procs\Z")


@dataclass(frozen=True)
class SpawnRequest:
    """Start agent ``id``; the packet also carries the agent's end of its channel.

    ``netns`` is the path of a network namespace (None: the server's own), ``cgroups`` the
    ``cgroup.procs`` files to join, ``uid`` and ``gid`` whom it runs as, ``log`` the file for its
    output, made with mode 0600 for ``log_uid`` and ``log_gid`` (None: no output is kept). ``cpus``
    are the processors it keeps to (none named: any).
    """

    id: str
    plan: Plan
    netns: str | None
    cgroups: tuple[str, ...]
    uid: int
    gid: int
    log: str | None
    log_uid: int
    log_gid: int
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class SignalRequest:
    """Send ``signum`` to agent ``id``."""

    id: str
    signum: int


@dataclass(frozen=True)
class CloseRequest:
    """End all agents and the server."""


Request = SpawnRequest | SignalRequest | CloseRequest


@dataclass(frozen=True)
class StartedAnswer:
    """Agent ``id`` runs as process ``pid``."""

    id: str
    pid: int


@dataclass(frozen=True)
class ExitAnswer:
    """Agent ``id`` has ended: with exit ``code``, or by ``signum``; the other is None."""

    id: str
    pid: int
    code: int | None
    signum: int | None


@dataclass(frozen=True)
class RefusedAnswer:
    """A request was not carried out. ``id`` is None where it could not even be read."""

    id: str | None
    reason: str


Answer = StartedAnswer | ExitAnswer | RefusedAnswer


def encode_request(request: Request) -> bytes:
    """One packet."""
    value: dict[str, Any] = {"request": _REQUESTS[type(request)], **asdict(request)}
    if isinstance(request, SpawnRequest):
        value["plan"] = to_object(request.plan)
    return json.dumps(value, separators=(",", ":")).encode()


def decode_request(packet: bytes) -> Request:
    """The inverse of :func:`encode_request`; raises ProtocolError naming what is wrong."""
    fields = Fields.parse(packet)
    kind = fields.text("request")
    if kind == "spawn":
        return _spawn(fields)
    if kind == "signal":
        request = SignalRequest(_id(fields), fields.integer("signum"))
        if request.signum not in SIGNALS:
            raise ProtocolError(f"signum: {request.signum} is not a signal that agents are sent")
        return request
    if kind == "close":
        return CloseRequest()
    raise ProtocolError(f"request: {kind!r} is unknown (spawn, signal, close)")


def encode_answer(answer: Answer) -> bytes:
    """One packet."""
    value = {"answer": _ANSWERS[type(answer)], **asdict(answer)}
    return json.dumps(value, separators=(",", ":")).encode()


def decode_answer(packet: bytes) -> Answer:
    """The inverse of :func:`encode_answer`."""
    fields = Fields.parse(packet)
    kind = fields.text("answer")
    if kind == "started":
        return StartedAnswer(fields.text("id"), fields.integer("pid"))
    if kind == "exit":
        return ExitAnswer(
            fields.text("id"),
            fields.integer("pid"),
            fields.optional_integer("code"),
            fields.optional_integer("signum"),
        )
    if kind == "refused":
        return RefusedAnswer(fields.optional_text("id"), fields.text("reason"))
    raise ProtocolError(f"answer: {kind!r} is unknown")


_REQUESTS: dict[type, str] = {SpawnRequest: "spawn", SignalRequest: "signal", CloseRequest: "close"}
_ANSWERS: dict[type, str] = {StartedAnswer: "started", ExitAnswer: "exit", RefusedAnswer: "refused"}


def _spawn(fields: Fields) -> SpawnRequest:
    return SpawnRequest(
        id=_id(fields),
        plan=plan_from_object(fields.value("plan")),
        netns=_optional_path(fields, "netns"),
        cgroups=tuple(_cgroup(item) for item in fields.items("cgroups")),
        uid=_account(fields, "uid"),
        gid=_account(fields, "gid"),
        log=_optional_path(fields, "log"),
        log_uid=_account(fields, "log_uid"),
        log_gid=_account(fields, "log_gid"),
        cpus=tuple(_cpu(item) for item in fields.items("cpus")),
    )


def _cpu(item: object) -> int:
    if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < 1 << 16:
        raise ProtocolError(f"cpus: {item!r} is not the number of a processor")
    return item


def _id(fields: Fields) -> str:
    value = fields.text("id")
    if not _ID.match(value):
        raise ProtocolError("id: letters, digits and . _ : - are expected, at most 128")
    return value


def _account(fields: Fields, name: str) -> int:
    value = fields.count(name)
    if value >= (1 << 32) - 1:
        raise ProtocolError(f"{name}: {value} is not the number of an account")
    return value


def _optional_path(fields: Fields, name: str) -> str | None:
    value = fields.optional_text(name)
    if value is not None and not value.startswith("/"):
        raise ProtocolError(f"{name}: an absolute path is expected, not {value!r}")
    return value


def _cgroup(item: object) -> str:
    if not isinstance(item, str) or not _CGROUP.match(item) or "/../" in item or "\0" in item:
        raise ProtocolError(f"cgroups: {item!r} is not a cgroup.procs below /sys/fs/cgroup")
    return item
