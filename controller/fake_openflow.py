"""Fake switches that really connect: OpenFlow 1.3 over TCP, for tests of the whole controller.

Speaks as much of the protocol as a controller of ours needs to hear: handshake, flow statistics,
bundles, barriers, echoes and errors.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType

from controller import wire
from controller.fake_switch import FakeSwitch, TableFull
from controller.state import Change

_FEATURES_REPLY = struct.Struct("!QIBB2xII")
_ERROR = struct.Struct("!HH")
_FLOW_MOD_FAILED, _TABLE_FULL = 5, 1


class FakeConnection:
    """A fake switch's connection to a controller on loopback, served by a thread of its own."""

    def __init__(self, switch: FakeSwitch, port: int) -> None:
        """Connects at once. Clear `answering` to make the switch fall silent until it is set.

        `heard` has the kind and the transaction id of every message that came.
        """
        self.switch = switch
        self.answering = threading.Event()
        self.answering.set()
        self.batches = 0
        self.heard: list[tuple[int, int]] = []
        self._open: dict[int, list[Change]] = {}
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._socket.sendall(wire.message(wire.OFPT_HELLO, 1))
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        self.answering.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    @property
    def alive(self) -> bool:
        """Whether the connection is still served."""
        return self._thread.is_alive()

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, xid, data = self._read()
                self.heard.append((kind, xid))
                self.answering.wait()
                for reply in self._replies(kind, xid, data):
                    self._socket.sendall(reply)

    def _read(self) -> tuple[int, int, bytes]:
        """The next message: its kind, its transaction id, all its bytes."""
        head = self._exactly(wire.HEADER.size)
        _, kind, length, xid = wire.HEADER.unpack(head)
        return kind, xid, head + self._exactly(length - len(head))

    def _exactly(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            part = self._socket.recv(size_bytes - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def _replies(self, kind: int, xid: int, data: bytes) -> Iterator[bytes]:
        if kind == wire.OFPT_FEATURES_REQUEST:
            body = _FEATURES_REPLY.pack(self.switch.dpid, 0, 254, 0, 0, 0)
            yield wire.message(wire.OFPT_FEATURES_REPLY, xid, body)
        elif kind == wire.OFPT_ECHO_REQUEST:
            yield wire.message(wire.OFPT_ECHO_REPLY, xid, data[wire.HEADER.size :])
        elif kind == wire.OFPT_BARRIER_REQUEST:
            yield wire.message(wire.OFPT_BARRIER_REPLY, xid)
        elif kind == wire.OFPT_MULTIPART_REQUEST:
            yield from self._statistics(xid, data)
        elif kind == wire.OFPT_FLOW_MOD:
            yield from self._apply([wire.decode_change(data)], xid, data)
        elif kind == wire.OFPT_EXPERIMENTER:
            yield from self._bundle(xid, data)

    def _statistics(self, xid: int, data: bytes) -> Iterator[bytes]:
        asked, _ = wire.MULTIPART.unpack_from(data, wire.HEADER.size)
        if asked == wire.OFPMP_FLOW:
            flows = sorted(self.switch.flows, key=lambda flow: flow.text())
            yield from wire.encode_flow_stats_reply(flows, xid)
        else:
            yield wire.message(wire.OFPT_MULTIPART_REPLY, xid, wire.MULTIPART.pack(asked, 0))

    def _bundle(self, xid: int, data: bytes) -> Iterator[bytes]:
        _, kind, bundle_id, request, _ = wire.BUNDLE_CONTROL.unpack_from(data, wire.HEADER.size)
        if kind == wire.ONF_ET_BUNDLE_ADD_MESSAGE:
            inner = data[wire.HEADER.size + wire.BUNDLE_ADD.size :]
            self._open[bundle_id].append(wire.decode_change(inner))
            return
        if request == wire.ONF_BCT_OPEN_REQUEST:
            self._open[bundle_id] = []
        elif request == wire.ONF_BCT_COMMIT_REQUEST:
            errors = list(self._apply(self._open.pop(bundle_id), xid, data))
            if errors:
                yield from errors
                return
        body = wire.BUNDLE_CONTROL.pack(
            wire.ONF_EXPERIMENTER_ID, kind, bundle_id, request + 1, wire.BUNDLE_ATOMIC_ORDERED
        )
        yield wire.message(wire.OFPT_EXPERIMENTER, xid, body)

    def _apply(self, changes: list[Change], xid: int, data: bytes) -> Iterator[bytes]:
        try:
            self.switch.apply(changes)
            self.batches += 1
        except TableFull:
            error = _ERROR.pack(_FLOW_MOD_FAILED, _TABLE_FULL) + data[:64]
            yield wire.message(wire.OFPT_ERROR, xid, error)
