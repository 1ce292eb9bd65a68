"""Values that the backend, the fork server and its agents exchange.

An agent carries out one :class:`Plan`. Over its channel it sends :class:`Ready`
once, :class:`AgentProgress` periodically, and :class:`AgentReport` at the end,
each as a line of JSON. It receives a line with the instant of its start, and
another for each change of its VM's rate. The fork server and its caller, which
started it, trust each other: they exchange requests and replies as pickles. All
instants are nanoseconds of the machine's CLOCK_MONOTONIC, which all network
namespaces share.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

PACKET_LIMIT_BYTES = 1 << 20
RATE = b"rate "
"""Begins a line with the payload rate of an agent's VM in bit/s."""

Arrived = Mapping[tuple[int, int], int]
"""Payload bytes that receivers have counted, by (sender, receiver)."""


# ---------------------------------------------------------------------------------------- plans


@dataclass(frozen=True)
class Plan:
    """The work of the agent of VM ``index``; base of the plans of all kinds.

    :data:`jobs.live.forkserver.AGENTS` has the agent of each kind of plan.
    """

    pinned: ClassVar[bool] = False
    """True if its process is pinned to a processor, where weights of VMs count."""

    index: int
    progress_every_s: float = field(default=0.2, kw_only=True)

    @property
    def receives_bytes(self) -> int:
        """Payload bytes that this VM is to receive."""
        return 0

    @property
    def sends_bytes(self) -> int:
        """Payload bytes that this VM is to send."""
        return 0

    def done_share(self, progress: AgentProgress) -> float | None:  # noqa: ARG002
        """Share of the work that is done, 0 to 1; None if its end is unknown."""
        return None

    def readdressed(self, ips: Sequence[str]) -> Self:  # noqa: ARG002
        """The plan with other addresses of the job's VMs, by index."""
        return self

    def remaining(
        self,
        report: AgentReport | None,  # noqa: ARG002
        arrived: Arrived,  # noqa: ARG002
    ) -> Self:
        """The rest of a stopped plan; work that cannot be divided is repeated."""
        return self


# ------------------------------------------------------------------------------------- messages


class _Checked:
    """A message that is read strictly.

    An agent's process runs beside the job's own programs, which may tamper with
    it.
    """

    __pydantic_config__: ClassVar[Any] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }


@dataclass(frozen=True)
class Ready(_Checked):
    """VM ``index`` has established its connections and waits for the start."""

    index: int
    at_ns: int


@dataclass(frozen=True)
class AgentProgress(_Checked):
    """Payload that VM ``index`` has received and sent so far, and CPU time."""

    index: int
    at_ns: int
    received_bytes: int
    sent_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class ReceivedPayload(_Checked):
    """Payload from ``peer``, with the instants of its first and last byte.

    ``reported_bps``: its rate by the program that received it, if that reports
    one.
    """

    peer: int
    size_bytes: int
    first_ns: int | None
    last_ns: int | None
    reported_bps: float | None = None


@dataclass(frozen=True)
class Sent(_Checked):
    """Payload sent to ``peer``; ``acknowledged_bytes``: the receiver's count."""

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
class VmTraffic(_Checked):
    """Counters of a VM: its interface's bytes and packets, and its TCP's
    segments.

    ``sent_bytes``, ``received_bytes``: of frames; ``packets_sent``,
    ``packets_received``: as the kernel hands them over, so that a large one
    stands for several segments. ``segments``, ``resent``, ``timeouts``: those
    of TCP on all interfaces.
    """

    sent_bytes: int
    packets_sent: int
    received_bytes: int
    packets_received: int
    segments: int
    resent: int
    timeouts: int

    def since(self, earlier: VmTraffic) -> VmTraffic:
        """The difference to an earlier reading."""
        before = vars(earlier)
        differences = {
            name: count - before[name] for name, count in vars(self).items()
        }
        return VmTraffic(**differences)


@dataclass(frozen=True)
class AgentReport(_Checked):
    """An agent's report at its end.

    - ``start_ns``: its actual start, None if it never started.
    - ``cpu_s``: user and system time since then; of a paced agent that of its
      work alone.
    - ``congestion_control``: read back from its sockets.
    - ``error``: None if all was sent, received and acknowledged.
    - ``lost_s``: lateness of its own pace that was not caught up.
    - ``ranks``: those that have ended in its VM; ``printed``: numbers of the
      expected texts that were in their output; ``traffic``: of a launched
      program's VM, from the start to the end of its last rank.
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
    traffic: VmTraffic | None = None

    @property
    def last_byte_ns(self) -> int | None:
        """Instant of the last byte of all peers; None while one is missing."""
        last_ns = None
        for flow in self.received:
            if flow.last_ns is None:
                return None
            last_ns = max(flow.last_ns, last_ns or 0)
        return last_ns


AgentMessage = Ready | AgentProgress | AgentReport


def encode(message: AgentMessage) -> bytes:
    """A message as one line of JSON, newline included."""
    return json.dumps(message, default=vars).encode() + b"\n"


# ----------------------------------------------------------------------------------- fork server


@dataclass(frozen=True)
class SpawnRequest:
    """Start agent ``id``. The packet also carries its end of the channel.

    - ``uid``, ``gid``: its user and group.
    - ``netns``: path of a network namespace; None: the server's own.
    - ``cgroups``: the ``cgroup.procs`` files to join.
    - ``log``: file for its output, made with mode 0600; None: output is
      dropped.
    - ``cpus``: processors to which it is pinned; empty: any.
    - ``shared_bytes``: size of its own ``/dev/shm``; 0: the machine's.
    - ``folder``: that of :mod:`jobs.vm_folders`; empty: the machine's /tmp and
      /run. ``shown``: the machine's paths that it sees there.
    - ``caller``: user id whose files among these appear as the agent's; None:
      owners stay.
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
    """An agent's end, its last message: by exit ``code`` or by ``signum``."""

    code: int | None = None
    signum: int | None = None


@dataclass(frozen=True)
class AgentRefused:
    """A refused request. After a refused spawn no other message follows."""

    reason: str


Answer = AgentStarted | AgentExited | AgentRefused
