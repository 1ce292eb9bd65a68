"""What is said to an agent and what it says: frozen values, one JSON object per line.

An agent is given one plan (:class:`TransferPlan`, :class:`ComputePlan`, :class:`CommandPlan`).
Over its channel it says :class:`Ready` once, :class:`Progress` now and then, and
:class:`AgentReport` at the end; it is told :class:`Begin` where the plan names no start. All
instants are CLOCK_MONOTONIC nanoseconds
of the machine, which every network namespace shares.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import asdict, dataclass
from typing import Any


class ProtocolError(ValueError):
    """A line or a request that does not say what it must; the text names the field."""


@dataclass(frozen=True)
class Outgoing:
    """``size_bytes`` of payload to send to VM ``peer``, which listens at ``ip``:``port``."""

    peer: int
    ip: str
    port: int
    size_bytes: int


@dataclass(frozen=True)
class Incoming:
    """``size_bytes`` of payload to expect from VM ``peer``."""

    peer: int
    size_bytes: int


@dataclass(frozen=True)
class TransferPlan:
    """What the agent of VM ``index`` does in a transfer: ``sends`` in this order, one by one.

    ``demand`` is the demand curve c(x) (DCloud, Eq. 1) as ``(progress_end, rate_bps)`` with the
    *payload* rate that the application of this VM can produce up to that progress; empty means
    that it is never the application that limits. ``cpu_share`` is the share of a core it burns
    while it produces. Without ``start_at_ns`` the agent waits for :class:`Begin`.

    ``connect_timeout_s`` runs until all connections stand, ``timeout_s`` from the start to the
    last acknowledgement, ``stall_timeout_s`` while a peer acknowledges nothing at all.
    """

    index: int
    ip: str
    port: int
    sends: tuple[Outgoing, ...]
    receives: tuple[Incoming, ...]
    demand: tuple[tuple[float, int], ...] = ()
    cpu_share: float = 0.0
    start_at_ns: int | None = None
    congestion_control: str = "cubic"
    connect_timeout_s: float = 60.0
    stall_timeout_s: float = 30.0
    timeout_s: float = 3600.0
    progress_every_s: float = 0.2


@dataclass(frozen=True)
class ComputePlan:
    """The agent of VM ``index`` burns ``cpu_s`` seconds of CPU at ``share`` of a core."""

    index: int
    cpu_s: float
    share: float = 1.0
    start_at_ns: int | None = None
    timeout_s: float = 3600.0
    progress_every_s: float = 0.2


@dataclass(frozen=True)
class CommandPlan:
    """The agent of VM ``index`` runs an application: ``argv``, one process tree per VM.

    ``ip`` is the VM's address, ``peers`` are those of all VMs by rank, its own included.
    ``environment`` is added to what every command gets (:mod:`jobs.live.command`). ``grace_s`` is
    how long the command may go on after SIGTERM before it is killed.
    """

    index: int
    ip: str
    peers: tuple[str, ...]
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    start_at_ns: int | None = None
    grace_s: float = 2.0
    progress_every_s: float = 0.2


Plan = TransferPlan | ComputePlan | CommandPlan


@dataclass(frozen=True)
class Ready:
    """All connections of VM ``index`` stand; it waits for the start."""

    index: int
    at_ns: int


@dataclass(frozen=True)
class Begin:
    """To the agent: start at ``at_ns``."""

    at_ns: int


@dataclass(frozen=True)
class Progress:
    """Payload received by and handed to the network by VM ``index`` so far, and its CPU time."""

    index: int
    at_ns: int
    received_bytes: int
    sent_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Received:
    """Payload that arrived from ``peer``, with the instants of its first and last byte."""

    peer: int
    size_bytes: int
    first_ns: int | None
    last_ns: int | None


@dataclass(frozen=True)
class Sent:
    """Payload sent to ``peer``; the receiver's own count comes back as acknowledged."""

    peer: int
    size_bytes: int
    acknowledged_bytes: int
    acknowledged_ns: int | None
    retransmits: int


@dataclass(frozen=True)
class AgentReport:
    """The end of one agent. ``error`` is None when all was sent, received and acknowledged.

    ``start_ns`` is when it really started (None if it never did), ``cpu_s`` what it burnt from
    then on (user and system time), ``congestion_control`` what its sockets really use.
    """

    index: int
    start_ns: int | None
    end_ns: int
    received: tuple[Received, ...]
    sent: tuple[Sent, ...]
    cpu_s: float
    congestion_control: str | None
    error: str | None

    @property
    def last_byte_ns(self) -> int | None:
        """When the last byte of all peers had arrived; None while one is missing."""
        stamps = [flow.last_ns for flow in self.received]
        known = [stamp for stamp in stamps if stamp is not None]
        return max(known) if known and len(known) == len(stamps) else None


AgentMessage = Ready | Progress | AgentReport


def encode(value: Plan | AgentMessage | Begin) -> bytes:
    """One line of JSON, newline included."""
    return json.dumps(to_object(value), separators=(",", ":")).encode() + b"\n"


def to_object(value: Plan | AgentMessage | Begin) -> dict[str, Any]:
    """A JSON object with the value's kind under ``kind``."""
    return {"kind": _KINDS[type(value)], **asdict(value)}


def decode_message(line: bytes) -> AgentMessage | Begin:
    """The inverse of :func:`encode` for what travels on an agent's channel."""
    fields = Fields.parse(line)
    kind = fields.text("kind")
    if kind == "ready":
        return Ready(fields.integer("index"), fields.integer("at_ns"))
    if kind == "begin":
        return Begin(fields.integer("at_ns"))
    if kind == "progress":
        return Progress(
            fields.integer("index"),
            fields.integer("at_ns"),
            fields.integer("received_bytes"),
            fields.integer("sent_bytes"),
            fields.number("cpu_s"),
        )
    if kind == "report":
        return _report(fields)
    raise ProtocolError(f"kind: {kind!r} is not a message of an agent")


def plan_from_object(value: object) -> Plan:
    """A plan from its JSON object; raises ProtocolError naming the first wrong field."""
    fields = Fields(value)
    kind = fields.text("kind")
    if kind == "transfer":
        return _transfer_plan(fields)
    if kind == "compute":
        return ComputePlan(
            index=fields.count("index"),
            cpu_s=fields.above_zero("cpu_s"),
            share=fields.share("share", zero=False),
            start_at_ns=fields.optional_integer("start_at_ns"),
            timeout_s=fields.above_zero("timeout_s"),
            progress_every_s=fields.above_zero("progress_every_s"),
        )
    if kind == "command":
        return CommandPlan(
            index=fields.count("index"),
            ip=fields.text("ip"),
            peers=fields.texts("peers"),
            argv=fields.texts("argv", least=1),
            environment=fields.pairs("environment"),
            start_at_ns=fields.optional_integer("start_at_ns"),
            grace_s=fields.above_zero("grace_s"),
            progress_every_s=fields.above_zero("progress_every_s"),
        )
    raise ProtocolError(f"kind: {kind!r} is not a plan (transfer, compute, command)")


def _transfer_plan(fields: Fields) -> TransferPlan:
    return TransferPlan(
        index=fields.count("index"),
        ip=fields.text("ip"),
        port=fields.port("port"),
        sends=tuple(
            Outgoing(f.count("peer"), f.text("ip"), f.port("port"), f.size("size_bytes"))
            for f in fields.objects("sends")
        ),
        receives=tuple(
            Incoming(f.count("peer"), f.size("size_bytes")) for f in fields.objects("receives")
        ),
        demand=fields.curve("demand"),
        cpu_share=fields.share("cpu_share", zero=True),
        start_at_ns=fields.optional_integer("start_at_ns"),
        congestion_control=fields.text("congestion_control"),
        connect_timeout_s=fields.above_zero("connect_timeout_s"),
        stall_timeout_s=fields.above_zero("stall_timeout_s"),
        timeout_s=fields.above_zero("timeout_s"),
        progress_every_s=fields.above_zero("progress_every_s"),
    )


def _report(fields: Fields) -> AgentReport:
    return AgentReport(
        index=fields.integer("index"),
        start_ns=fields.optional_integer("start_ns"),
        end_ns=fields.integer("end_ns"),
        received=tuple(
            Received(
                f.integer("peer"),
                f.integer("size_bytes"),
                f.optional_integer("first_ns"),
                f.optional_integer("last_ns"),
            )
            for f in fields.objects("received")
        ),
        sent=tuple(
            Sent(
                f.integer("peer"),
                f.integer("size_bytes"),
                f.integer("acknowledged_bytes"),
                f.optional_integer("acknowledged_ns"),
                f.integer("retransmits"),
            )
            for f in fields.objects("sent")
        ),
        cpu_s=fields.number("cpu_s"),
        congestion_control=fields.optional_text("congestion_control"),
        error=fields.optional_text("error"),
    )


_KINDS: dict[type, str] = {
    TransferPlan: "transfer",
    ComputePlan: "compute",
    CommandPlan: "command",
    Ready: "ready",
    Begin: "begin",
    Progress: "progress",
    AgentReport: "report",
}


class Fields:
    """Typed reading of one JSON object: nothing is coerced, every refusal names the field."""

    def __init__(self, value: object, where: str = "") -> None:
        if not isinstance(value, dict):
            raise ProtocolError(f"{where or 'message'}: an object is expected")
        self._value: dict[str, object] = value
        self._where = where

    @classmethod
    def parse(cls, line: bytes) -> Fields:
        """The fields of one line or packet."""
        try:
            return cls(json.loads(line))
        except (ValueError, RecursionError) as error:
            if isinstance(error, ProtocolError):
                raise
            raise ProtocolError(f"not JSON: {error}") from None

    def value(self, name: str) -> object:
        if name not in self._value:
            raise ProtocolError(f"{self._where}{name}: missing")
        return self._value[name]

    def _wrong(self, name: str, expected: str) -> ProtocolError:
        return ProtocolError(f"{self._where}{name}: {expected} is expected")

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str) or not value or "\0" in value:
            raise self._wrong(name, "a text")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.value(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number")
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self.value(name) is None else self.integer(name)

    def count(self, name: str) -> int:
        value = self.integer(name)
        if not 0 <= value < 1 << 63:
            raise self._wrong(name, "a whole number from 0")
        return value

    def size(self, name: str) -> int:
        value = self.count(name)
        if value == 0:
            raise self._wrong(name, "a size of at least 1 byte")
        return value

    def port(self, name: str) -> int:
        value = self.integer(name)
        if not 0 < value < 65536:
            raise self._wrong(name, "a port from 1 to 65535")
        return value

    def number(self, name: str) -> float:
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        if not abs(value) < 1e18:  # also refuses NaN and the infinities
            raise self._wrong(name, "a finite number")
        return float(value)

    def above_zero(self, name: str) -> float:
        value = self.number(name)
        if value <= 0:
            raise self._wrong(name, "a number above 0")
        return value

    def share(self, name: str, *, zero: bool) -> float:
        value = self.number(name)
        if not 0 <= value <= 1 or (value == 0 and not zero):
            raise self._wrong(name, "a share of a core, at most 1,")
        return value

    def items(self, name: str) -> list[object]:
        value = self.value(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def texts(self, name: str, *, least: int = 0) -> tuple[str, ...]:
        items = self.items(name)
        if len(items) < least or not all(isinstance(x, str) and "\0" not in x for x in items):
            raise self._wrong(name, f"a list of at least {least} texts")
        return tuple(str(item) for item in items)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        pairs = []
        for item in self.items(name):
            if not isinstance(item, list) or len(item) != 2:
                raise self._wrong(name, "a list of pairs of texts")
            key, value = item
            if not isinstance(key, str) or not isinstance(value, str) or "\0" in key + value:
                raise self._wrong(name, "a list of pairs of texts")
            pairs.append((key, value))
        return tuple(pairs)

    def objects(self, name: str) -> list[Fields]:
        return [
            Fields(item, f"{self._where}{name}[{i}].") for i, item in enumerate(self.items(name))
        ]

    def curve(self, name: str) -> tuple[tuple[float, int], ...]:
        steps: list[tuple[float, int]] = []
        for i, item in enumerate(self.items(name)):
            if not isinstance(item, list) or len(item) != 2:
                raise self._wrong(f"{name}[{i}]", "a pair (progress_end, rate_bps)")
            step = Fields(
                {"progress_end": item[0], "rate_bps": item[1]}, f"{self._where}{name}[{i}]."
            )
            end, rate_bps = step.number("progress_end"), step.count("rate_bps")
            if not (steps[-1][0] if steps else 0.0) < end <= 1.0:
                raise self._wrong(f"{name}[{i}]", "a progress that rises to 1")
            steps.append((end, rate_bps))
        if steps and (steps[-1][0] != 1.0 or not any(rate for _, rate in steps)):
            raise self._wrong(name, "a curve up to progress 1 with a rate above 0 in it")
        return tuple(steps)


# ------------------------------------------------------------------------------------ requests


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
