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

from bench.fake_switches import decode_change, encode_flow_stats_reply
from controller import openflow13
from controller.flow_rules import Change
from tests.support.fake_switch import FakeSwitch, TableFull

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
        self._socket.sendall(openflow13.message(openflow13.OFPT_HELLO, 1))
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        # A silent switch waits for it, and would not hear of the end.
        self.answering.set()
        with contextlib.suppress(OSError):
            # This wakes a thread that reads, which close() alone does not.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    @property
    def alive(self) -> bool:
        """True while the connection is served."""
        return self._thread.is_alive()

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
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
        head = self._exactly(openflow13.HEADER.size)
        _, kind, length, xid = openflow13.HEADER.unpack(head)
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
        if kind == openflow13.OFPT_FEATURES_REQUEST:
            body = _FEATURES_REPLY.pack(self.switch.dpid, 0, 254, 0, 0, 0)
            yield openflow13.message(
                openflow13.OFPT_FEATURES_REPLY, xid, body
            )
        elif kind == openflow13.OFPT_ECHO_REQUEST:
            yield openflow13.message(
                openflow13.OFPT_ECHO_REPLY,
                xid,
                data[openflow13.HEADER.size :],
            )
        elif kind == openflow13.OFPT_BARRIER_REQUEST:
            yield openflow13.message(openflow13.OFPT_BARRIER_REPLY, xid)
        elif kind == openflow13.OFPT_MULTIPART_REQUEST:
            yield from self._statistics(xid, data)
        elif kind == openflow13.OFPT_FLOW_MOD:
            yield from self._apply([decode_change(data)], xid, data)
        elif kind == openflow13.OFPT_EXPERIMENTER:
            yield from self._bundle(xid, data)

    def _statistics(self, xid: int, data: bytes) -> Iterator[bytes]:
        asked, _ = openflow13.MULTIPART.unpack_from(
            data, openflow13.HEADER.size
        )
        if asked == openflow13.OFPMP_FLOW:
            flows = sorted(self.switch.flows, key=lambda flow: flow.text())
            yield from encode_flow_stats_reply(flows, xid)
        else:
            yield openflow13.message(
                openflow13.OFPT_MULTIPART_REPLY,
                xid,
                openflow13.MULTIPART.pack(asked, 0),
            )

    def _bundle(self, xid: int, data: bytes) -> Iterator[bytes]:
        _, kind, bundle_id, request, _ = (
            openflow13.BUNDLE_CONTROL.unpack_from(
                data, openflow13.HEADER.size
            )
        )
        if kind == openflow13.ONF_ET_BUNDLE_ADD_MESSAGE:
            inner = data[
                openflow13.HEADER.size + openflow13.BUNDLE_ADD.size :
            ]
            self._open[bundle_id].append(decode_change(inner))
            return
        if request == openflow13.ONF_BCT_OPEN_REQUEST:
            self._open[bundle_id] = []
        elif request == openflow13.ONF_BCT_COMMIT_REQUEST:
            errors = list(self._apply(self._open.pop(bundle_id), xid, data))
            if errors:
                yield from errors
                return
        body = openflow13.BUNDLE_CONTROL.pack(
            openflow13.ONF_EXPERIMENTER_ID,
            kind,
            bundle_id,
            # In OpenFlow's numbers a reply follows its request.
            request + 1,
            openflow13.BUNDLE_ATOMIC_ORDERED,
        )
        yield openflow13.message(openflow13.OFPT_EXPERIMENTER, xid, body)

    def _apply(
        self, changes: list[Change], xid: int, data: bytes
    ) -> Iterator[bytes]:
        try:
            self.switch.apply(changes)
            self.batches += 1
        except TableFull:
            # OpenFlow asks for at least 64 bytes of the message that
            # failed.
            error = _ERROR.pack(_FLOW_MOD_FAILED, _TABLE_FULL) + data[:64]
            yield openflow13.message(openflow13.OFPT_ERROR, xid, error)
