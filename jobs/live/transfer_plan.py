"""The plan of a transfer, and the pace of its application. Pure.

By DCloud's Eq. 1 a job at progress x advances at the smaller of two rates: its
application can produce c(x) bit/s, and its VM can send b(t) bit/s at time t.
:class:`Production` applies the first limit, the network applies the second. The
demand curve c(x) is cut into chunks of a few milliseconds. A chunk is produced
while earlier ones are sent, as far as a small buffer allows:

* where c(x) < b, the buffer is nearly empty, and a chunk begins when the chunk
  before it ends;
* where c(x) > b, the buffer is full, and a chunk begins when the network has
  made room.

Time in which the buffer was full is not made up for: the application never
produces more than c(x). The caller supplies all instants and CPU times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from jobs.live.agent_protocol import (
    AgentProgress,
    AgentReport,
    ArrivedBytes,
    Plan,
)

Curve = tuple[tuple[float, int], ...]
"""Steps of c(x) as ``(progress_end, rate_bps)``; the last one ends at 1."""


@dataclass(frozen=True)
class Outgoing:
    """Payload to send to VM ``peer``, which listens at ``ip``:``port``."""

    peer: int
    ip: str
    port: int
    size_bytes: int

    def __str__(self) -> str:
        return f"VM {self.peer} at {self.ip}:{self.port}"


@dataclass(frozen=True)
class Incoming:
    """Payload to expect from VM ``peer``."""

    peer: int
    size_bytes: int

    def __str__(self) -> str:
        return f"VM {self.peer}"


Flow = TypeVar("Flow", Outgoing, Incoming)


@dataclass(frozen=True)
class TransferPlan(Plan):
    """The part of VM ``index`` in a transfer; it listens at ``ip``:``port``.

    - ``sends``: payload to send, to one VM after the other in this order.
    - ``at_once``: True if the VM sends to all of them at the same time, to each
      at an equal share of ``rate_bps``.
    - ``rate_bps``: payload rate of the VM.
    - ``demand``: the demand curve c(x) (DCloud, Eq. 1) in payload rates of this
      VM; empty if the application never limits.
    - ``cpu_share``: share of a core that the application uses while it
      produces.
    - ``connect_timeout_s``: time limit for establishing all connections.
    """

    ip: str
    port: int
    sends: tuple[Outgoing, ...]
    receives: tuple[Incoming, ...]
    demand: Curve = ()
    cpu_share: float = 0.0
    congestion_control: str = "cubic"
    connect_timeout_s: float = 60.0
    at_once: bool = False
    rate_bps: int = 0

    @property
    def receives_bytes(self) -> int:
        return sum(flow.size_bytes for flow in self.receives)

    @property
    def sends_bytes(self) -> int:
        return sum(flow.size_bytes for flow in self.sends)

    def done_share(self, progress: AgentProgress) -> float | None:
        if not self.receives:
            return None
        return progress.received_bytes / self.receives_bytes

    def readdressed(self, ips: Sequence[str]) -> TransferPlan:
        sends = tuple(
            replace(flow, ip=ips[flow.peer]) for flow in self.sends
        )
        return replace(self, ip=ips[self.index], sends=sends)

    def remaining(
        self,
        report: AgentReport | None,  # noqa: ARG002
        arrived: ArrivedBytes,
    ) -> TransferPlan:
        """The plan for the payload that has not arrived.

        Bytes alone show the progress, and a step of the demand curve without
        demand has none: if the transfer stopped in it, the step is repeated
        from its beginning.
        """
        sends = []
        for outgoing in self.sends:
            arrived_bytes = arrived.get((self.index, outgoing.peer), 0)
            sends += _rest_of(outgoing, arrived_bytes)
        receives = []
        for incoming in self.receives:
            arrived_bytes = arrived.get((incoming.peer, self.index), 0)
            receives += _rest_of(incoming, arrived_bytes)
        demand: Curve = ()
        if self.demand and sends:
            left_bytes = sum(flow.size_bytes for flow in sends)
            total_bytes = self.sends_bytes
            demand = curve_after(
                self.demand, total_bytes, total_bytes - left_bytes
            )
        return replace(
            self,
            sends=tuple(sends),
            receives=tuple(receives),
            demand=demand,
        )


def _rest_of(flow: Flow, arrived_bytes: int) -> list[Flow]:
    """The rest of a flow as a list, which is empty if all has arrived."""
    left_bytes = flow.size_bytes - arrived_bytes
    if left_bytes <= 0:
        return []
    return [replace(flow, size_bytes=left_bytes)]


def curve_after(curve: Curve, total_bytes: int, sent_bytes: int) -> Curve:
    """The rest of a demand curve, stretched to progress 0..1.

    ``sent_bytes`` is less than ``total_bytes`` and is reached at progress x0.
    The curve's time at infinite bandwidth is τ, that of its rest (1 - x0)·τ:
    stretching makes no step of the rest longer or shorter.
    """
    x0 = _progress_at(curve, total_bytes, sent_bytes)
    rest = [
        ((end - x0) / (1.0 - x0), rate) for end, rate in curve if end > x0
    ]
    # The end is exactly 1: the quotient of floats may miss it.
    return (*rest[:-1], (1.0, rest[-1][1]))


def _progress_at(curve: Curve, total_bytes: int, sent_bytes: int) -> float:
    """The least progress at which ``sent_bytes`` have been sent."""
    start = 0.0
    left_bytes = sent_bytes
    # Steps are compared by the whole bytes that they produce. The exact area of
    # a step may be half a byte less: when all its bytes are sent, the progress
    # would already lie behind a pause that follows it.
    for (end, _), phase in zip(
        curve, phases(total_bytes, curve), strict=True
    ):
        if left_bytes == 0:
            break
        if left_bytes < phase.size_bytes:
            return start + (end - start) * left_bytes / phase.size_bytes
        left_bytes -= phase.size_bytes
        start = end
    return start


# -- production

NS_PER_S = 1_000_000_000

# Limits of a chunk and of the buffer. A buffer of a few chunks is small beside
# any transfer that is worth measuring. Shorter chunks would wake agents too
# often: 32 of them on two cores are to spend their time on bytes.
CHUNK_S = 0.005
CHUNK_LIMIT_BYTES = 65536
BUFFER_S = 0.020
BUFFER_LIMIT_BYTES = 131_072

# An agent that the machine wakes late catches up at most so much time. The rest
# of its lateness is lost.
LATENESS_LIMIT_NS = 20_000_000


@dataclass(frozen=True)
class Phase:
    """A step of c(x): bytes produced evenly in ``duration_ns`` if not blocked."""

    size_bytes: int
    duration_ns: int


@dataclass(frozen=True)
class Chunk:
    """The unit of production.

    It begins when the buffer of ``buffer_bytes`` has room for it beside the
    bytes that are produced and not yet sent.
    """

    size_bytes: int
    duration_ns: int
    buffer_bytes: int


def phases(total_bytes: int, curve: Curve) -> tuple[Phase, ...]:
    """The steps of c(x) as phases, whose sizes sum to the total.

    Progress is a share of the job's time τ at infinite bandwidth, not of its
    bytes: with τ = 8·total / ∫c(x)dx, a step of width w lasts w·τ and yields
    w·τ·c bits, perhaps none.
    """
    widths = []
    areas_bps = []
    start = 0.0
    for end, rate_bps in curve:
        width = end - start
        widths.append(width)
        areas_bps.append(width * rate_bps)
        start = end
    integral_bps = sum(areas_bps)
    tau_s = 8 * total_bytes / integral_bps
    # The sums are rounded, as errors of rounded sizes would add up.
    ends_bytes = [
        round(total_bytes * area_bps / integral_bps)
        for area_bps in accumulate(areas_bps)
    ]
    # The quotient of floats may miss the last byte of a large total.
    ends_bytes[-1] = total_bytes
    steps = []
    start_bytes = 0
    for width, end_bytes in zip(widths, ends_bytes, strict=True):
        phase = Phase(
            size_bytes=end_bytes - start_bytes,
            duration_ns=round(width * tau_s * NS_PER_S),
        )
        steps.append(phase)
        start_bytes = end_bytes
    return tuple(steps)


def chunks(total_bytes: int, curve: Curve) -> Iterator[Chunk]:
    """The phases cut into chunks, with exactly their sizes and durations."""
    limit_ns = round(CHUNK_S * NS_PER_S)
    for phase in phases(total_bytes, curve):
        # A chunk has limits of time and size: in 5 ms a fast phase may yield
        # megabytes.
        n = max(
            1,
            _rounded_up(phase.duration_ns, limit_ns),
            _rounded_up(phase.size_bytes, CHUNK_LIMIT_BYTES),
        )
        buffer_bytes = _buffer_bytes(phase, n)
        for i in range(n):
            yield Chunk(
                size_bytes=_part(phase.size_bytes, i, n),
                duration_ns=_part(phase.duration_ns, i, n),
                buffer_bytes=buffer_bytes,
            )


def _rounded_up(total: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-total // divisor)


def _part(total: int, i: int, n: int) -> int:
    """The i-th of n nearly equal parts, whose sum is the total."""
    return total * (i + 1) // n - total * i // n


def _buffer_bytes(phase: Phase, n_chunks: int) -> int:
    """Size of the buffer during a phase.

    It holds the yield of BUFFER_S, but at most BUFFER_LIMIT_BYTES. It always
    holds two chunks: one is produced while the other is sent.
    """
    chunk_bytes = _rounded_up(phase.size_bytes, n_chunks)
    duration_ns = max(1, phase.duration_ns)
    yield_bytes = round(
        phase.size_bytes * BUFFER_S * NS_PER_S / duration_ns
    )
    return max(2 * chunk_bytes, min(yield_bytes, BUFFER_LIMIT_BYTES))


class Production:
    """The application's production up to the last call of :meth:`advance`.

    A chunk is finished when its duration has passed and the agent has used the
    share ``cpu_share`` of that duration as CPU time: a VM that gets less CPU
    produces more slowly.

    - ``produced_bytes``: sum of the finished chunks.
    - ``due_ns``: earliest end of the present chunk; None if none has begun.
    - ``cpu_due_ns``: the agent's CPU time that the present chunk needs to end.
    - ``lost_ns``: lateness of the agent that is not caught up; time in which
      the buffer was full does not count.
    """

    def __init__(
        self,
        total_bytes: int,
        curve: Curve,
        cpu_share: float,
    ) -> None:
        self.produced_bytes = 0
        self.due_ns: int | None = None
        self.lost_ns = 0
        self.cpu_due_ns = 0
        self._chunks = chunks(total_bytes, curve)
        self._cpu_share = cpu_share
        self._chunk: Chunk | None = next(self._chunks)

    @property
    def finished(self) -> bool:
        return self._chunk is None

    def cpu_missing_ns(self, cpu_ns: int) -> int:
        """CPU time that the present chunk still has to use.

        ``cpu_ns``: the agent's CPU time so far.
        """
        if self.due_ns is None:
            return 0
        return max(0, self.cpu_due_ns - cpu_ns)

    def advance(self, now_ns: int, cpu_ns: int, sent_bytes: int) -> None:
        """Finishes and begins chunks up to ``now_ns``.

        ``cpu_ns``: the agent's CPU time so far. ``sent_bytes``: bytes handed to
        the network so far.
        """
        while self._chunk is not None:
            due_ns = self.due_ns
            if due_ns is None:
                if not self._has_room(self._chunk, sent_bytes):
                    return
                # The buffer was full until now: that time is not made up for.
                due_ns = self._begin(self._chunk, now_ns, cpu_ns)
            if now_ns < due_ns or cpu_ns < self.cpu_due_ns:
                return
            self.produced_bytes += self._chunk.size_bytes
            self._chunk = next(self._chunks, None)
            self.due_ns = None
            if self._chunk is not None and self._has_room(
                self._chunk, sent_bytes
            ):
                # The next chunk begins when the last one was due, which may be
                # a little earlier than now: so a small lateness is caught up.
                begun_ns = max(due_ns, now_ns - LATENESS_LIMIT_NS)
                begun_cpu_ns = max(
                    self.cpu_due_ns, cpu_ns - LATENESS_LIMIT_NS
                )
                self.lost_ns += begun_ns - due_ns
                self._begin(self._chunk, begun_ns, begun_cpu_ns)

    def _has_room(self, chunk: Chunk, sent_bytes: int) -> bool:
        waiting_bytes = self.produced_bytes - sent_bytes
        # A chunk that is larger than its buffer begins in an empty one.
        if waiting_bytes == 0:
            return True
        return waiting_bytes + chunk.size_bytes <= chunk.buffer_bytes

    def _begin(self, chunk: Chunk, begun_ns: int, cpu_ns: int) -> int:
        """Begins a chunk; returns the instant at which it is due."""
        due_ns = begun_ns + chunk.duration_ns
        self.due_ns = due_ns
        self.cpu_due_ns = cpu_ns + round(
            chunk.duration_ns * self._cpu_share
        )
        return due_ns
