"""The transfer agent: one VM's part in a job's communication pattern.

All senders start at the same instant, on established connections. A VM with
several receivers serves them one after the other, in the plan's order, so that
an all-to-all is a sequence of permutations. A receiver's turn begins when the
kernel has sent all data for the one before it: up to 256 kB that it only holds
would share the sender's cap. Where the plan wants all flows at once, several
senders meet at each receiver's cap.

A flow's time ends with the last byte at the receiver. The receiver then returns
its count and instants on the same connection, and the sender compares the
count: bytes that a report calls acknowledged have arrived.
"""

from __future__ import annotations

import mmap
import selectors
import socket
import struct
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace

from jobs.live.agent import (
    Agent,
    AgentFailure,
    Channel,
    Terminated,
    terminate,
)
from jobs.live.agent_protocol import (
    AgentReport,
    ReceivedPayload,
    SentPayload,
)
from jobs.live.compute import burn_until
from jobs.live.connections import (
    NOTSENT_BYTES,
    Connections,
    Receiving,
    Sending,
    congestion_control,
    pace,
    retransmits,
)
from jobs.live.transfer_plan import (
    BUFFER_LIMIT_BYTES,
    Production,
    TransferPlan,
)

# Bytes counted, and instants of the first and the last byte.
_ACK = struct.Struct("!QQQ")

# A receiver is woken by this many bytes or, for small flows, this part of a flow;
# its count lags by as much. Waking up for each packet would cost more than
# reading it.
WAKE_BYTES = 131_072
WAKES_PER_FLOW = 64

# Made once, by the fork server: an agent has it sooner than it could make it.
_PAYLOAD = memoryview(bytes(NOTSENT_BYTES))
_MOST_AT_ONCE_BYTES = 1 << 20

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE


class TransferAgent(Agent):
    """Runs one :class:`TransferPlan`."""

    _plan: TransferPlan

    def __init__(
        self,
        plan: TransferPlan,
        channel: Channel,
    ) -> None:
        super().__init__(plan, channel)
        self._connections = Connections(plan, channel)
        self._selector = selectors.DefaultSelector()
        # Memory that is first touched when something arrives.
        self._into = memoryview(mmap.mmap(-1, _MOST_AT_ONCE_BYTES))
        # Flows in the order of their turns; only the first one sends, unless the
        # plan wants all at once.
        self._unsent: deque[Sending] = deque()
        # Number of incomplete flows, in both directions.
        self._open = 0
        self._congestion_control: str | None = None
        total_bytes = plan.sends_bytes
        self._production: Production | None = None
        if plan.demand and total_bytes:
            self._production = Production(
                total_bytes, plan.demand, plan.cpu_share
            )

    def run(self) -> None:
        """Sends and receives all payload. Raises AgentFailure, OSError."""
        try:
            self._connections.establish()
            self._prepare()
            self._start_together()
            while self._open:
                self._turn()
            self._sample()
        except Terminated:
            self._take_in()
            raise
        finally:
            # Before the sockets are closed: the kernel's count goes with
            # them.
            for sending in self._connections.sendings:
                sending.retransmits = retransmits(sending.sock)
            self._connections.close()
            self._selector.close()

    def report(self, error: str | None) -> AgentReport:
        """The report, with the volumes moved so far."""
        lost_s = 0.0
        if self._production is not None:
            lost_s = self._production.lost_ns / 1e9
        return replace(
            super().report(error),
            received=tuple(map(_received, self._connections.receivings)),
            sent=tuple(map(_sent, self._connections.sendings)),
            congestion_control=self._congestion_control,
            lost_s=lost_s,
        )

    def _prepare(self) -> None:
        """Configure all flows' sockets, and register them for the loop."""
        sendings = self._connections.sendings
        receivings = self._connections.receivings
        self._selector.register(self._channel, _READ)
        for sending in sendings:
            self._configure(sending.sock)
            self._selector.register(sending.sock, _READ, sending)
            sending.watched = _READ
        self._unsent.extend(sendings)
        self._pace_flows()
        for receiving in receivings:
            part_bytes = receiving.order.size_bytes // WAKES_PER_FLOW
            receiving.wake_for(min(WAKE_BYTES, part_bytes))
            self._selector.register(receiving.sock, _READ, receiving)
        sockets = [flow.sock for flow in sendings]
        sockets += [flow.sock for flow in receivings]
        self._open = len(sockets)
        # Accepted sockets have the listener's. The report names those of all
        # connections.
        names = set(map(congestion_control, sockets))
        self._congestion_control = ",".join(sorted(names)) or None

    def _configure(self, sock: socket.socket) -> None:
        """Sets how much a sending socket holds back, and for how long."""
        notsent_bytes = NOTSENT_BYTES
        if self._production:
            notsent_bytes = BUFFER_LIMIT_BYTES
            # By default (Nagle) a chunk's last, short segment waits for the
            # acknowledgement of the one before, which the receiver may
            # delay by 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A small limit, so that "sent" means sent, not held by the kernel.
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, notsent_bytes
        )

    def _pace_flows(self) -> None:
        """Gives flows at once equal shares of the VM's rate.

        Left to themselves some are twice as fast as others, by chance, and end
        early: what is left of all VMs' flows then no longer fills every cap.
        """
        rate_bps = self._channel.rate_bps or self._plan.rate_bps
        if not (self._plan.at_once and rate_bps):
            return
        for sending in self._unsent:
            pace(sending.sock, rate_bps / len(self._unsent))

    def _turn(self) -> None:
        """One turn of the loop: produce, wait, then send and receive."""
        self._sample_when_due()
        wait_s = self._produce(time.monotonic_ns())
        self._watch_sending()
        for key, events in self._selector.select(wait_s):
            if isinstance(key.data, Receiving):
                self._receive(key.data)
            elif not isinstance(key.data, Sending):
                self._channel.heard()
                if self._channel.rate_bps:
                    self._pace_flows()
            # An acknowledgement first: its flow has nothing more to send.
            elif events & _READ:
                self._hear(key.data)
            elif events & _WRITE:
                self._send(key.data)

    def _produce(self, now_ns: int) -> float:
        """Advance the application; returns the longest wait of the loop in s."""
        wait_s = self._plan.progress_every_s
        production = self._production
        if production is None or production.finished:
            return wait_s
        cpu_ns = time.thread_time_ns()
        production.advance(now_ns, cpu_ns, self._sent_bytes)
        # A slice at a time: bytes come and go meanwhile.
        if production.cpu_missing_ns(cpu_ns):
            burn_until(production.cpu_due_ns)
            return 0.0
        if production.due_ns is not None:
            return min(wait_s, max(0, production.due_ns - now_ns) / 1e9)
        return wait_s

    def _allowed_bytes(self, sending: Sending) -> int:
        """Bytes of a flow that may be handed to the kernel now."""
        if self._production is None:
            return sending.left_bytes
        return min(
            sending.left_bytes,
            self._production.produced_bytes - self._sent_bytes,
        )

    def _watch_sending(self) -> None:
        """Watches the flow whose turn it is, for room to send.

        Only if it has something to send: otherwise the selector would return at
        once, again and again.
        """
        for sending in self._in_turn():
            events = _READ
            # A flow without bytes left waits until the kernel has sent them.
            if self._allowed_bytes(sending) > 0 or not sending.left_bytes:
                events |= _WRITE
            self._watch_for(sending, events)

    def _in_turn(self) -> list[Sending]:
        """Flows that send now: all that are left, or the first of them."""
        if self._plan.at_once:
            return list(self._unsent)
        return list(self._unsent)[:1]

    def _watch_for(
        self,
        sending: Sending,
        events: int,
    ) -> None:
        if sending.acknowledged_ns is None and events != sending.watched:
            self._selector.modify(sending.sock, events, sending)
            sending.watched = events

    def _send(self, sending: Sending) -> None:
        if not sending.left_bytes:
            # Room now means that the kernel has sent the flow's last byte.
            self._watch_for(sending, _READ)
            self._end_turn(sending)
            return
        try:
            n = sending.sock.send(_PAYLOAD[: self._allowed_bytes(sending)])
        except BlockingIOError:
            return
        except OSError as error:
            raise sending.failure(error.strerror) from None
        sending.sent_bytes += n
        self._sent_bytes += n
        # From here on writable means that no byte of the flow is unsent.
        if not sending.left_bytes:
            sending.sock.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 1
            )

    def _end_turn(self, sending: Sending) -> None:
        """Takes out a flow that has sent all; gives its share to the others."""
        self._unsent.remove(sending)
        self._pace_flows()

    def _hear(self, sending: Sending) -> None:
        """Reads the receiver's acknowledgement, and compares it with the volume."""
        try:
            data = sending.sock.recv(_ACK.size - len(sending.answer))
        except BlockingIOError:
            return
        except OSError as error:
            raise sending.failure(error.strerror) from None
        if not data:
            raise sending.failure("closed by the peer")
        sending.answer += data
        if len(sending.answer) == _ACK.size:
            self._conclude(sending)

    def _conclude(self, sending: Sending) -> None:
        """Compare a whole acknowledgement with the volume; the flow has ended."""
        size_bytes, _, at_ns = _ACK.unpack(sending.answer)
        sending.acknowledged_bytes = size_bytes
        sending.acknowledged_ns = at_ns
        self._selector.unregister(sending.sock)
        self._open -= 1
        # It may come before the kernel tells that all is sent.
        if sending in self._unsent:
            self._end_turn(sending)
        if size_bytes != sending.order.size_bytes:
            raise AgentFailure(
                f"VM {sending.order.peer} acknowledges {size_bytes} bytes"
                f" of {sending.order.size_bytes}"
            )

    def _take_in(self) -> None:
        """Counts payload that has arrived but not been read.

        Counted payload is not sent again when the job resumes elsewhere.
        """
        if self._start_ns is None:
            return
        for receiving in self._connections.receivings:
            with suppress(AgentFailure, OSError):
                while receiving.left_bytes and self._receive(receiving):
                    pass

    def _receive(self, receiving: Receiving) -> bool:
        """Reads once from a flow; False if nothing has arrived.

        A signal to end waits until what was read is counted.
        """
        terminate.hold()
        try:
            return self._read(receiving)
        finally:
            terminate.release()

    def _read(self, receiving: Receiving) -> bool:
        try:
            # No further than the flow's volume: with a count beyond it the
            # flow would never be found complete.
            n = receiving.sock.recv_into(self._into[: receiving.left_bytes])
        except BlockingIOError:
            return False
        except OSError as error:
            raise receiving.failure(error.strerror) from None
        # Before anything else: it may be the last byte's instant.
        now_ns = time.monotonic_ns()
        if n == 0:
            raise receiving.failure("closed by the peer")
        if receiving.first_ns is None:
            receiving.first_ns = now_ns
        receiving.received_bytes += n
        self._received_bytes += n
        # The last bytes may be fewer than those that wake the agent.
        if receiving.left_bytes < receiving.wake_bytes:
            receiving.wake_for(receiving.left_bytes)
        if receiving.left_bytes == 0:
            receiving.last_ns = now_ns
            self._acknowledge(receiving)
        return True

    def _acknowledge(self, receiving: Receiving) -> None:
        """Tells the sender the count and the instants; the flow has ended."""
        acknowledgement = _ACK.pack(
            receiving.received_bytes, receiving.first_ns, receiving.last_ns
        )
        # 24 bytes on a connection that has sent one: its buffer has room.
        receiving.sock.send(acknowledgement)
        self._selector.unregister(receiving.sock)
        self._open -= 1


def _received(flow: Receiving) -> ReceivedPayload:
    return ReceivedPayload(
        peer=flow.order.peer,
        size_bytes=flow.received_bytes,
        first_ns=flow.first_ns,
        last_ns=flow.last_ns,
    )


def _sent(flow: Sending) -> SentPayload:
    return SentPayload(
        peer=flow.order.peer,
        size_bytes=flow.sent_bytes,
        acknowledged_bytes=flow.acknowledged_bytes,
        acknowledged_ns=flow.acknowledged_ns,
        retransmits=flow.retransmits,
    )
