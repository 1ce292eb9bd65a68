"""The plan of a transfer, and the pace of its application. Pure.

:class:`Production` is a discrete producer for the demand curve of DCloud's Eq.
1; the caller supplies all instants and CPU times. At progress x the application
can produce c(x) bit/s, and its VM can send b(t); by Eq. 1 it advances at the
smaller of the two. Here the curve is cut into chunks of a few milliseconds. A
chunk is produced while earlier ones are sent, as far as a small buffer allows:

* where c(x) < b, the buffer is nearly empty, and chunks follow at their own pace;
* where c(x) > b, the buffer is full, and a chunk begins when the network has made
  room.

Time in which the buffer was full is not made up for: the application never
produces more than c(x).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from jobs.live.agent_protocol import (
    AgentProgress,
    AgentReport,
    Arrived,
    Plan,
)

Curve = tuple[tuple[float, int], ...]
"""c(x) as ``(progress_end, rate_bps)``."""


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
    """The part of VM ``index`` in a transfer.

    - ``sends``: one after the other in this order. ``at_once``: all side by
      side, each at an equal share of ``rate_bps``, the payload rate of the VM.
    - ``demand``: the demand curve c(x) (DCloud, Eq. 1) in payload rates of this
      VM; empty if the application never limits.
    - ``cpu_share``: share of a core that the application uses while it
      produces.
    - ``connect_timeout_s``: for establishing all connections.
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
        return sum(order.size_bytes for order in self.sends)

    def done_share(self, progress: AgentProgress) -> float | None:
        if not self.receives:
            return None
        return progress.received_bytes / self.receives_bytes

    def readdressed(self, ips: Sequence[str]) -> TransferPlan:
        sends = tuple(
            replace(order, ip=ips[order.peer]) for order in self.sends
        )
        return replace(self, ip=ips[self.index], sends=sends)

    def remaining(
        self,
        report: AgentReport | None,  # noqa: ARG002
        arrived: Arrived,
    ) -> TransferPlan:
        """The plan for the payload that has not arrived.

        Progress is known by bytes alone: a step of the demand curve in which
        nothing is sent is repeated from its beginning.
        """
        sends = []
        for order in self.sends:
            counted_bytes = arrived.get((self.index, order.peer), 0)
            sends += _left_of(order, counted_bytes)
        receives = []
        for flow in self.receives:
            counted_bytes = arrived.get((flow.peer, self.index), 0)
            receives += _left_of(flow, counted_bytes)
        rest = replace(
            self,
            sends=tuple(sends),
            receives=tuple(receives),
            demand=(),
        )
        if not self.demand or not sends:
            return rest
        total_bytes = self.sends_bytes
        demand = curve_after(
            self.demand, total_bytes, total_bytes - rest.sends_bytes
        )
        return replace(rest, demand=demand)


def _left_of(flow: Flow, counted_bytes: int) -> list[Flow]:
    """A list of the rest of a flow; empty if all of it has arrived."""
    left_bytes = flow.size_bytes - counted_bytes
    if left_bytes <= 0:
        return []
    return [replace(flow, size_bytes=left_bytes)]


def curve_after(curve: Curve, total_bytes: int, sent_bytes: int) -> Curve:
    """The rest of a demand curve, stretched to progress 0..1.

    ``sent_bytes``: of the total, fewer than all. From progress x0 the rest has
    the τ (1 - x0)·τ, so that each of its steps takes as long as it would have.
    """
    x0 = _progress_at(curve, total_bytes, sent_bytes)
    rest = [
        ((end - x0) / (1.0 - x0), rate) for end, rate in curve if end > x0
    ]
    # Exactly 1, which a quotient of floats may miss.
    return (*rest[:-1], (1.0, rest[-1][1]))


def _progress_at(curve: Curve, total_bytes: int, sent_bytes: int) -> float:
    """The least progress at which so many bytes have been sent."""
    start = 0.0
    left_bytes = sent_bytes
    # In whole bytes, as they are produced: half a byte more than a step's
    # area would lead past a pause after it.
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


# ------------------------------------------------------------------------------------ production

NS_PER_S = 1_000_000_000

# A buffer of a few chunks is small beside any transfer that is worth measuring,
# and 32 agents on two cores still spend their time on bytes and not on waking up.
CHUNK_S = 0.005
CHUNK_LIMIT_BYTES = 65536
BUFFER_S = 0.020
BUFFER_LIMIT_BYTES = 131_072

# So much may be caught up by an agent that the machine wakes late. The rest is
# lost, as in a pause.
LATENESS_LIMIT_NS = 20_000_000


@dataclass(frozen=True)
class Phase:
    """Bytes that are produced evenly in ``duration_ns`` if nothing blocks."""

    size_bytes: int
    duration_ns: int


@dataclass(frozen=True)
class Chunk:
    """The unit of production.

    It begins once unsent bytes, its own included, are at most ``buffer_bytes``.
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
        widths.append(end - start)
        areas_bps.append((end - start) * rate_bps)
        start = end
    integral_bps = sum(areas_bps)
    tau_s = 8 * total_bytes / integral_bps
    # Sums of sizes are rounded: errors of rounded sizes would add up.
    ends_bytes = [
        round(total_bytes * area_bps / integral_bps)
        for area_bps in accumulate(areas_bps)
    ]
    # Of large totals the quotient may miss the last byte.
    ends_bytes[-1] = total_bytes
    out = []
    done_bytes = 0
    for width, end_bytes in zip(widths, ends_bytes, strict=True):
        phase = Phase(
            size_bytes=end_bytes - done_bytes,
            duration_ns=round(width * tau_s * NS_PER_S),
        )
        out.append(phase)
        done_bytes = end_bytes
    return tuple(out)


def chunks(total_bytes: int, curve: Curve) -> Iterator[Chunk]:
    """The phases cut into chunks, with exactly their sizes and durations."""
    for phase in phases(total_bytes, curve):
        # By time or by size, whichever makes more chunks: in 5 ms a fast phase
        # may yield megabytes.
        n = max(
            1,
            -(-phase.duration_ns // round(CHUNK_S * NS_PER_S)),
            -(-phase.size_bytes // CHUNK_LIMIT_BYTES),
        )
        buffer_bytes = _buffer_bytes(phase, n)
        for i in range(n):
            yield Chunk(
                size_bytes=_part(phase.size_bytes, i, n),
                duration_ns=_part(phase.duration_ns, i, n),
                buffer_bytes=buffer_bytes,
            )


def _part(total: int, i: int, n: int) -> int:
    """The i-th of n nearly equal parts, whose sum is the total."""
    return total * (i + 1) // n - total * i // n


def _buffer_bytes(phase: Phase, n_chunks: int) -> int:
    """Room for what a phase yields in BUFFER_S, up to BUFFER_LIMIT_BYTES.

    In any case for two chunks, one of which is produced while the other is sent.
    """
    largest = -(-phase.size_bytes // n_chunks)
    duration_ns = max(1, phase.duration_ns)
    in_time = round(phase.size_bytes * BUFFER_S * NS_PER_S / duration_ns)
    return max(2 * largest, min(in_time, BUFFER_LIMIT_BYTES))


class Production:
    """The application's production up to the last call of :meth:`advance`.

    A chunk is finished when its duration has passed and ``cpu_share`` of it has
    been used as CPU time: a VM that gets less CPU produces more slowly.

    - ``produced_bytes``: of finished chunks.
    - ``due_ns``: end of the present chunk; None while the buffer is full.
    - ``cpu_due_ns``: CPU time at which the present chunk has used its share.
    - ``lost_ns``: lateness that is not caught up.
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

        ``cpu_ns``: the agent's CPU time so far. ``sent_bytes``: handed to the
        network so far.
        """
        while self._chunk is not None:
            due_ns = self.due_ns
            if due_ns is None:
                if not self._room(self._chunk, sent_bytes):
                    return
                # Production was blocked until now, and that time is lost.
                due_ns = self._begin(self._chunk, now_ns, cpu_ns)
            if now_ns < due_ns or cpu_ns < self.cpu_due_ns:
                return
            self.produced_bytes += self._chunk.size_bytes
            self._chunk = next(self._chunks, None)
            self.due_ns = None
            if self._chunk is not None and self._room(
                self._chunk, sent_bytes
            ):
                # It begins when the one before was due, and not now, so that a
                # small lateness is caught up.
                begun_ns = max(due_ns, now_ns - LATENESS_LIMIT_NS)
                begun_cpu_ns = max(
                    self.cpu_due_ns, cpu_ns - LATENESS_LIMIT_NS
                )
                self.lost_ns += begun_ns - due_ns
                self._begin(self._chunk, begun_ns, begun_cpu_ns)

    def _room(self, chunk: Chunk, sent_bytes: int) -> bool:
        waiting_bytes = self.produced_bytes - sent_bytes
        # A chunk that is larger than its buffer begins in an empty one.
        if waiting_bytes == 0:
            return True
        return waiting_bytes + chunk.size_bytes <= chunk.buffer_bytes

    def _begin(self, chunk: Chunk, now_ns: int, cpu_ns: int) -> int:
        """Begins a chunk; returns the instant at which it is due."""
        due_ns = now_ns + chunk.duration_ns
        self.due_ns = due_ns
        self.cpu_due_ns = cpu_ns + round(
            chunk.duration_ns * self._cpu_share
        )
        return due_ns
