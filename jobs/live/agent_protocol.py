"""Values that the backend, the fork server and its agents exchange.

An agent is given one :class:`Plan`. Over its channel it sends :class:`Ready`
once, :class:`AgentProgress` now and then, and :class:`AgentReport` at the end, each
as one line of JSON; it receives the instant of its start, a line with a number.
The fork server and its caller, which started it, trust each other: they
exchange requests and answers as pickles. All instants are CLOCK_MONOTONIC
nanoseconds of the machine, which every network namespace shares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

PACKET_LIMIT_BYTES = 1 << 20

Arrived = Mapping[tuple[int, int], int]
"""(sender, receiver) -> payload bytes that the receiver has counted."""


# ---------------------------------------------------------------------------------------- plans


@dataclass(frozen=True)
class Plan:
    """The work of the agent of VM ``index``. A kind of agent derives its own
    plan from this one.

    Its module also holds the agent; :data:`jobs.live.forkserver.AGENTS`
    registers the two.
    """

    pinned: ClassVar[bool] = False
    """Its process keeps to one processor: weights of VMs count only where they
    meet on one.
    """

    index: int
    progress_every_s: float = field(default=0.2, kw_only=True)

    @property
    def receives_bytes(self) -> int:
        """Payload that this VM is to receive."""
        return 0

    def done_share(self, progress: AgentProgress) -> float | None:  # noqa: ARG002
        """Share of the work that is done; None where nobody knows its end."""
        return None

    def readdressed(self, ips: Sequence[str]) -> Self:  # noqa: ARG002
        """The same plan where the job's VMs have these addresses, by index."""
        return self

    def remaining(
        self,
        report: AgentReport | None,  # noqa: ARG002
        arrived: Arrived,  # noqa: ARG002
    ) -> Self:
        """The rest of a plan that was stopped; what cannot be divided is done
        again.
        """
        return self


# ------------------------------------------------------------------------------------- messages


class _Checked:
    """A message that is read strictly: its agent runs beside the job's own
    code.
    """

    __pydantic_config__: ClassVar[Any] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }


@dataclass(frozen=True)
class Ready(_Checked):
    """All connections of VM ``index`` are established; it waits for the start."""

    index: int
    at_ns: int


@dataclass(frozen=True)
class AgentProgress(_Checked):
    """Payload received by and handed to the network by VM ``index`` so far, and
    its CPU time.
    """

    index: int
    at_ns: int
    received_bytes: int
    sent_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class ReceivedPayload(_Checked):
    """Payload that arrived from ``peer``, with the instants of its first and
    last byte.

    ``reported_bps``: the payload's bandwidth by the program that received it,
    where one states it.
    """

    peer: int
    size_bytes: int
    first_ns: int | None
    last_ns: int | None
    reported_bps: float | None = None


@dataclass(frozen=True)
class Sent(_Checked):
    """Payload sent to ``peer``; the receiver's own count comes back as
    acknowledged.
    """

    peer: int
    size_bytes: int
    acknowledged_bytes: int
    acknowledged_ns: int | None
    retransmits: int


@dataclass(frozen=True)
class RankEnd(_Checked):
    """The end of a launched program's rank: its exit code, or the signal that
    ended it as a negative number, and the instant.
    """

    rank: int
    code: int
    end_ns: int


@dataclass(frozen=True)
class AgentReport(_Checked):
    """The end of one agent. ``error`` is None when all was sent, received and
    acknowledged.

    ``start_ns`` is when it really started (None if it never did), ``cpu_s``
    what it used from then on (user and system time; of a paced one its work
    alone), ``congestion_control`` what its sockets really use, ``lost_s`` the
    time by which its own pace fell behind for good, as it was late. ``ranks``
    have ended in its VM, ``printed`` are the numbers of the expected texts that
    were in their output.
    """

    index: int
    start_ns: int | None
    end_ns: int
    received: tuple[ReceivedPayload, ...] = ()
    sent: tuple[Sent, ...] = ()
    cpu_s: float = 0.0
    congestion_control: str | None = None
    error: str | None = None
    lost_s: float = 0.0
    ranks: tuple[RankEnd, ...] = ()
    printed: tuple[int, ...] = ()

    @property
    def last_byte_ns(self) -> int | None:
        """When the last byte of all peers had arrived; None while one is
        missing.
        """
        stamps = [flow.last_ns for flow in self.received]
        known = [stamp for stamp in stamps if stamp is not None]
        return max(known) if known and len(known) == len(stamps) else None


AgentMessage = Ready | AgentProgress | AgentReport


def encode(message: AgentMessage) -> bytes:
    """A message as one line of JSON, newline included."""
    return json.dumps(message, default=vars).encode() + b"\n"


# ----------------------------------------------------------------------------------- fork server


@dataclass(frozen=True)
class SpawnRequest:
    """Start agent ``id``; the packet also carries the agent's end of its
    channel.

    It runs as ``uid`` and ``gid``. ``netns`` is the path of a network namespace
    (None: the server's own), as ``/run/netns/NAME``, ``cgroups`` are the
    ``cgroup.procs`` files to join, ``log`` is the file for its output, made
    with mode 0600 (None: no output is kept), ``cpus`` are the processors it
    keeps to (none named: any), ``shared_bytes`` is the size of a ``/dev/shm``
    of its own (0: the machine's). ``folder`` is that of
    :mod:`jobs.vm_folders` (empty: the machine's /tmp and /run), in which
    ``shown`` are found; what ``caller``, a user id, owns of these is the
    agent's there (None: is whose it is).
    """

    id: str
    plan: Plan
    uid: int
    gid: int
    netns: str | None = None
    cgroups: tuple[str, ...] = ()
    log: str | None = None
    cpus: tuple[int, ...] = ()
    shared_bytes: int = 0
    folder: str = ""
    shown: tuple[str, ...] = ()
    caller: int | None = None


@dataclass(frozen=True)
class SignalRequest:
    """Send ``signum`` to agent ``id``."""

    id: str
    signum: int


@dataclass(frozen=True)
class AgentStarted:
    """The agent runs as process ``pid``."""

    pid: int


@dataclass(frozen=True)
class AgentExited:
    """The agent's last message: its exit ``code``, or the ``signum`` that ended
    it.
    """

    code: int | None
    signum: int | None


@dataclass(frozen=True)
class AgentRefused:
    """A request that was not carried out. A refused spawn has no other message."""

    reason: str


Answer = AgentStarted | AgentExited | AgentRefused
