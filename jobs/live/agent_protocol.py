"""Values that the backend, the fork server and its agents exchange.

An agent carries out one :class:`Plan`. Over its channel it sends :class:`Ready`
once, :class:`AgentProgress` periodically, and :class:`AgentReport` at the end,
each as a line of JSON. It receives a line with the instant of its start, and a
line for each change of its VM's rate. The backend starts the fork server. The
two trust each other, and exchange requests and replies as pickles. All instants
are nanoseconds of the machine's CLOCK_MONOTONIC, which all network namespaces
share.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

PACKET_LIMIT_BYTES = 1 << 20
RATE_PREFIX = b"rate "
"""Start of a line to an agent; the new payload rate of its VM, in bit/s, follows."""

ArrivedBytes = Mapping[tuple[int, int], int]
"""Payload bytes that receivers have counted, by the indices of the VMs (sender,
receiver).
"""


# ---------------------------------------------------------------------------------------- plans


@dataclass(frozen=True)
class Plan:
    """The work of the agent of VM ``index``; base class of all plans.

    :data:`jobs.live.forkserver.AGENTS` has the agent for each class of plan.
    """

    pinned: ClassVar[bool] = False
    """True if the agent is pinned to one processor. CPU weights of VMs count only
    between VMs on the same processor.
    """

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
        """Share of the work that is done, 0 to 1; None if its amount is unknown."""
        return None

    def readdressed(self, ips: Sequence[str]) -> Self:  # noqa: ARG002
        """The plan with new addresses; ``ips``: of the job's VMs, by index."""
        return self

    def remaining(
        self,
        report: AgentReport | None,  # noqa: ARG002
        arrived: ArrivedBytes,  # noqa: ARG002
    ) -> Self:
        """The plan for the work that is left after this plan was stopped.

        Work that cannot be divided is repeated. ``report``: the agent's, None
        if there is none.
        """
        return self


# ------------------------------------------------------------------------------------- messages


class _Checked:
    """Base class of messages whose fields are validated strictly.

    An agent runs beside the programs of its job, which may tamper with it.
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
    """Payload that VM ``index`` has received and sent, and the CPU time that it
    has used, from the start to ``at_ns``.
    """

    index: int
    at_ns: int
    received_bytes: int
    sent_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class ReceivedPayload(_Checked):
    """Payload from ``peer``, with the instants of its first and last byte.

    ``reported_bps``: the rate that the receiving program reports; None if it
    reports no rate.
    """

    peer: int
    size_bytes: int
    first_ns: int | None
    last_ns: int | None
    reported_bps: float | None = None


@dataclass(frozen=True)
class SentPayload(_Checked):
    """Payload sent to ``peer``.

    ``acknowledged_bytes``: the receiver's count, which arrived at
    ``acknowledged_ns``. ``retransmits``: TCP segments.
    """

    peer: int
    size_bytes: int
    acknowledged_bytes: int
    acknowledged_ns: int | None
    retransmits: int


@dataclass(frozen=True)
class RankEnd(_Checked):
    """The end of one rank of a launched program.

    ``code``: the exit code, or the negative number of the signal that ended
    the rank.
    """

    rank: int
    code: int
    end_ns: int


@dataclass(frozen=True)
class VmTraffic(_Checked):
    """Counters of a VM: its network interface, and its TCP.

    - ``sent_bytes``, ``received_bytes``: frames on the interface, headers
      included.
    - ``packets_sent``, ``packets_received``: packets between the kernel and
      the interface. With segmentation offload, one packet holds several TCP
      segments.
    - ``segments``, ``resent``: TCP segments sent for the first time, and sent
      again, on all interfaces. ``timeouts``: retransmission timeouts.
    """

    sent_bytes: int
    packets_sent: int
    received_bytes: int
    packets_received: int
    segments: int
    resent: int
    timeouts: int

    def since(self, earlier: VmTraffic) -> VmTraffic:
        """The counts since an earlier reading of the same VM's counters."""
        before = vars(earlier)
        differences = {
            name: count - before[name] for name, count in vars(self).items()
        }
        return VmTraffic(**differences)


@dataclass(frozen=True)
class AgentReport(_Checked):
    """An agent's last message.

    - ``start_ns``: the actual start; None if the agent never started.
    - ``cpu_s``: user and system time since the start. For an agent with a pace
      of its own, the time of its work without that of pacing.
    - ``congestion_control``: the algorithm, as read back from its sockets.
    - ``error``: None if all payload was sent, received and acknowledged.
    - ``lost_s``: the time by which an agent with a pace of its own fell behind
      for good.

    For a launched program:

    - ``ranks``: the ranks of this VM that have ended.
    - ``printed``: indices of the plan's expected texts that are in their
      output.
    - ``traffic``: of the VM, from the start to the end of its last rank.
    """

    index: int
    start_ns: int | None
    end_ns: int
    received: tuple[ReceivedPayload, ...] = ()
    sent: tuple[SentPayload, ...] = ()
    cpu_s: float = 0.0
    congestion_control: str | None = None
    error: str | None = None
    lost_s: float = 0.0
    ranks: tuple[RankEnd, ...] = ()
    printed: tuple[int, ...] = ()
    traffic: VmTraffic | None = None

    @property
    def last_byte_ns(self) -> int | None:
        """Instant at which the payload of all peers had arrived.

        None if nothing was received, or while a peer's last byte is missing.
        """
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
    """Start agent ``id``. The packet also carries the agent's end of the channel.

    - ``uid``, ``gid``: the agent's user and group.
    - ``netns``: path of its network namespace; None: that of the fork server.
    - ``cgroups``: the ``cgroup.procs`` files of the control groups to join.
    - ``log``: file for its output, made with mode 0600; None: output is
      dropped.
    - ``cpus``: processors to which it is pinned; empty: not pinned.
    - ``folder``: mount point of the VM's folders (:mod:`jobs.vm_folders`);
      empty: the agent uses the machine's /tmp and /run.
    - ``shared_bytes``: size of the VM's folders, or of a private ``/dev/shm``
      if ``folder`` is empty; 0: the machine's ``/dev/shm``.
    - ``shown``: the machine's paths that stay visible if ``folder`` is set.
    - ``caller``: id of the user who called sudo. The files of this user below
      ``shown`` appear as the agent's; None: all files keep their owners.
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
    """The end of an agent: its exit ``code``, or else the signal that ended it.

    No message about the agent follows.
    """

    code: int | None = None
    signum: int | None = None


@dataclass(frozen=True)
class AgentRefused:
    """A request that failed. No message follows about an agent that was not
    spawned.
    """

    reason: str


ForkServerReply = AgentStarted | AgentExited | AgentRefused
