"""Values that the backend, the fork server and its agents exchange: one JSON object a line.

An agent is given one :class:`Plan`. Over its channel it sends :class:`Ready` once,
:class:`Progress` now and then, and :class:`AgentReport` at the end; it receives :class:`Begin`
where the plan names no start. The fork server takes requests and answers them. All instants are
CLOCK_MONOTONIC nanoseconds of the machine, which every network namespace shares.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from jobs.live.json_decoding import Check, Count, ProtocolError, Text, decode, from_object

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

Arrived = Mapping[tuple[int, int], int]
"""(sender, receiver) -> payload bytes that the receiver has counted."""


# ---------------------------------------------------------------------------------------- plans


@dataclass(frozen=True)
class Plan:
    """The work of the agent of VM ``index``. A kind of agent derives its own plan from this one.

    Its module also holds the agent; :data:`jobs.live.forkserver.AGENTS` registers the two. Without
    ``start_at_ns`` the agent waits for :class:`Begin`.
    """

    kind: ClassVar[str]
    pinned: ClassVar[bool] = False
    """Its process keeps to one processor: weights of VMs count only where they meet on one."""

    index: Count

    @classmethod
    def decode(cls, value: object, where: str = "") -> Plan:
        """A plan of any kind from its JSON object. Raises ProtocolError."""
        return from_object(value, Plan.__subclasses__(), where)

    @property
    def receives_bytes(self) -> int:
        """Payload that this VM is to receive."""
        return 0

    def done_share(self, progress: Progress) -> float | None:  # noqa: ARG002
        """Share of the work that is done; None where nobody knows its end."""
        return None

    def readdressed(self, ips: Sequence[str]) -> Self:  # noqa: ARG002
        """The same plan where the job's VMs have these addresses, by index."""
        return self

    def remaining(self, report: AgentReport | None, arrived: Arrived) -> Self:  # noqa: ARG002
        """The rest of a plan that was stopped; what cannot be divided is done again."""
        return self


# ------------------------------------------------------------------------------------- messages


@dataclass(frozen=True)
class Ready:
    """All connections of VM ``index`` are established; it waits for the start."""

    kind: ClassVar[str] = "ready"
    index: int
    at_ns: int


@dataclass(frozen=True)
class Begin:
    """To the agent: start at ``at_ns``."""

    kind: ClassVar[str] = "begin"
    at_ns: int


@dataclass(frozen=True)
class Progress:
    """Payload received by and handed to the network by VM ``index`` so far, and its CPU time."""

    kind: ClassVar[str] = "progress"
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

    ``start_ns`` is when it really started (None if it never did), ``cpu_s`` what it used from
    then on (user and system time), ``congestion_control`` what its sockets really use.
    """

    kind: ClassVar[str] = "report"
    index: int
    start_ns: int | None
    end_ns: int
    received: tuple[Received, ...] = ()
    sent: tuple[Sent, ...] = ()
    cpu_s: float = 0.0
    congestion_control: Text | None = None
    error: Text | None = None

    @property
    def last_byte_ns(self) -> int | None:
        """When the last byte of all peers had arrived; None while one is missing."""
        stamps = [flow.last_ns for flow in self.received]
        known = [stamp for stamp in stamps if stamp is not None]
        return max(known) if known and len(known) == len(stamps) else None


AgentMessage = Ready | Progress | AgentReport


def decode_message(line: bytes) -> AgentMessage | Begin:
    """A message on an agent's channel. Raises ProtocolError."""
    kinds: tuple[type[Any], ...] = (Ready, Begin, Progress, AgentReport)
    message: AgentMessage | Begin = decode(line, kinds)
    return message


# ----------------------------------------------------------------------------------- fork server


def _is_cgroup(path: str) -> bool:
    return bool(_CGROUP.match(path)) and "/../" not in path


def _check_cgroup(path: str, _: str) -> None:
    if not _is_cgroup(path):
        raise ProtocolError(f"cgroups: {path!r} is not a cgroup.procs below /sys/fs/cgroup")


def _check_account(number: int, where: str) -> None:
    if number >= (1 << 32) - 1:
        raise ProtocolError(f"{where}: {number} is not the number of an account")


def _check_signal(number: int, where: str) -> None:
    if number not in SIGNALS:
        raise ProtocolError(f"{where}: {number} is not a signal that agents are sent")


AgentId = Annotated[Text, Check("letters, digits and . _ : -, at most 128,", _ID.match)]
Account = Annotated[Count, _check_account]
AbsolutePath = Annotated[Text, Check("an absolute path", lambda text: text.startswith("/"))]
Cpu = Annotated[int, Check("the number of a processor", lambda number: 0 <= number < 1 << 16)]


@dataclass(frozen=True)
class SpawnRequest:
    """Start agent ``id``; the packet also carries the agent's end of its channel.

    ``netns`` is the path of a network namespace (None: the server's own), ``cgroups`` the
    ``cgroup.procs`` files to join, ``uid`` and ``gid`` whom it runs as, ``log`` the file for its
    output, made with mode 0600 for ``log_uid`` and ``log_gid`` (None: no output is kept). ``cpus``
    are the processors it keeps to (none named: any).
    """

    kind: ClassVar[str] = "spawn"
    id: AgentId
    plan: Plan
    netns: AbsolutePath | None
    cgroups: tuple[Annotated[str, _check_cgroup], ...]
    uid: Account
    gid: Account
    log: AbsolutePath | None
    log_uid: Account
    log_gid: Account
    cpus: tuple[Cpu, ...] = ()


@dataclass(frozen=True)
class SignalRequest:
    """Send ``signum`` to agent ``id``."""

    kind: ClassVar[str] = "signal"
    id: AgentId
    signum: Annotated[int, _check_signal]


@dataclass(frozen=True)
class CloseRequest:
    """End all agents and the server."""

    kind: ClassVar[str] = "close"


Request = SpawnRequest | SignalRequest | CloseRequest


def decode_request(packet: bytes) -> Request:
    """A request to the fork server. Raises ProtocolError naming what is wrong."""
    kinds: tuple[type[Any], ...] = (SpawnRequest, SignalRequest, CloseRequest)
    request: Request = decode(packet, kinds)
    return request


@dataclass(frozen=True)
class AgentStarted:
    """Agent ``agent_id`` runs as process ``pid``."""

    kind: ClassVar[str] = "started"
    agent_id: Text
    pid: int


@dataclass(frozen=True)
class AgentExited:
    """The agent's last message: its exit ``code``, or the ``signum`` that ended it."""

    kind: ClassVar[str] = "exited"
    agent_id: Text
    pid: int
    code: int | None
    signum: int | None


@dataclass(frozen=True)
class AgentRefused:
    """A request that was not carried out. A refused ``spawn`` has no other message.

    ``agent_id`` is None where the request could not even be read.
    """

    kind: ClassVar[str] = "refused"
    agent_id: Text | None
    reason: Text


Answer = AgentStarted | AgentExited | AgentRefused


def decode_answer(packet: bytes) -> Answer:
    """An answer of the fork server. Raises ProtocolError."""
    kinds: tuple[type[Any], ...] = (AgentStarted, AgentExited, AgentRefused)
    answer: Answer = decode(packet, kinds)
    return answer
