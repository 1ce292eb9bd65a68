"""Switches in one thread that connect to a controller on loopback, keep its
rules, and forward nothing: what is measured is the controller.

They answer with bytes that are made before the clock starts, and read what they
are sent after it has stopped, so that their own time is small beside the
controller's.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller import openflow13
from controller.flow_rules import (
    AddFlow,
    Change,
    Flow,
    Match,
    RemoveByCookie,
    RemoveFlow,
)

_FEATURES_REPLY = struct.Struct("!QIBB2xII")
_XID = slice(4, 8)


@dataclass
class _Switch:
    """One switch: its rules, its report of them, and changes not yet carried
    out.
    """

    dpid: int
    rules: dict[tuple[int, int, Match], Flow]
    report: list[bytes] = field(default_factory=list)
    changes: list[bytes] = field(default_factory=list)
    begun: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> bytes:
        """Whatever the messages in ``data`` are to be answered with."""
        self.begun += data
        replies = []
        at = 0
        while len(self.begun) - at >= openflow13.HEADER.size:
            _, kind, length, xid = openflow13.HEADER.unpack_from(
                self.begun, at
            )
            # The rest of this message comes with the next read.
            if len(self.begun) - at < length:
                break
            replies.append(
                self._answer(kind, xid, bytes(self.begun[at : at + length]))
            )
            at += length
        del self.begun[:at]
        return b"".join(replies)

    def _answer(self, kind: int, xid: int, data: bytes) -> bytes:
        body = data[openflow13.HEADER.size :]
        match kind:
            case openflow13.OFPT_FEATURES_REQUEST:
                # Its id, no buffers, 254 tables, and no capabilities.
                body = _FEATURES_REPLY.pack(self.dpid, 0, 254, 0, 0, 0)
                kind = openflow13.OFPT_FEATURES_REPLY
                return openflow13.message(kind, xid, body)
            case openflow13.OFPT_ECHO_REQUEST:
                kind = openflow13.OFPT_ECHO_REPLY
                return openflow13.message(kind, xid, body)
            case openflow13.OFPT_BARRIER_REQUEST:
                kind = openflow13.OFPT_BARRIER_REPLY
                return openflow13.message(kind, xid)
            case openflow13.OFPT_MULTIPART_REQUEST:
                return self._multipart(xid, body)
            case openflow13.OFPT_FLOW_MOD:
                self.changes.append(data)
            case openflow13.OFPT_EXPERIMENTER:
                return self._bundle(xid, body)
        return b""

    def _multipart(self, xid: int, body: bytes) -> bytes:
        """Reports the rules; the reply to any other request, as that for the
        ports, is empty.
        """
        asked, _ = openflow13.MULTIPART.unpack_from(body)
        if asked != openflow13.OFPMP_FLOW:
            empty = openflow13.MULTIPART.pack(asked, 0)
            kind = openflow13.OFPT_MULTIPART_REPLY
            return openflow13.message(kind, xid, empty)
        number = xid.to_bytes(4, "big")
        parts = []
        for part in self.report:
            parts.append(part[: _XID.start] + number + part[_XID.stop :])
        return b"".join(parts)

    def _bundle(self, xid: int, body: bytes) -> bytes:
        _, kind, bundle_id, request, flags = (
            openflow13.BUNDLE_CONTROL.unpack_from(body)
        )
        if kind == openflow13.ONF_ET_BUNDLE_ADD_MESSAGE:
            self.changes.append(body[openflow13.BUNDLE_ADD.size :])
            return b""
        reply = openflow13.BUNDLE_CONTROL.pack(
            openflow13.ONF_EXPERIMENTER_ID,
            kind,
            bundle_id,
            request + 1,
            flags,
        )
        return openflow13.message(openflow13.OFPT_EXPERIMENTER, xid, reply)

    def settle(self) -> int:
        """Carries out received changes and updates the report; returns their
        number.
        """
        count = len(self.changes)
        for data in self.changes:
            change = decode_change(data)
            if isinstance(change, AddFlow):
                self.rules[change.flow.key] = change.flow
            elif isinstance(change, RemoveFlow):
                self.rules.pop(change.flow.key, None)
            else:
                self._remove(change)
        self.changes.clear()
        self.report = list(encode_flow_stats_reply(self.rules.values(), 0))
        return count

    def _remove(self, change: RemoveByCookie) -> None:
        """Keep the rules whose cookie differs in a bit of the mask."""
        for key, flow in list(self.rules.items()):
            if (flow.cookie ^ change.cookie) & change.mask == 0:
                del self.rules[key]


class FakeSwitches:
    """Switches with these rules, by dpid."""

    def __init__(self, rules: Mapping[int, Iterable[Flow]]) -> None:
        self._switches: dict[int, _Switch] = {}
        for dpid, flows in rules.items():
            by_key = {flow.key: flow for flow in flows}
            self._switches[dpid] = _Switch(dpid, by_key)
        self._sockets: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self.settle()

    @property
    def rules(self) -> dict[int, frozenset[Flow]]:
        """The rules that each has, of what was carried out."""
        return {
            dpid: frozenset(switch.rules.values())
            for dpid, switch in self._switches.items()
        }

    def settle(self) -> int:
        """Carries out all received changes; returns their number. Must not be
        called while the controller sends.
        """
        return sum(switch.settle() for switch in self._switches.values())

    def forget(self, dpids: Iterable[int]) -> None:
        """These switches lose all their rules."""
        for dpid in dpids:
            self._switches[dpid].rules.clear()
        self.settle()

    def connect(self, port: int, dpids: Iterable[int]) -> None:
        """Connect these and say hello; a thread serves them from then on."""
        selector = selectors.DefaultSelector()
        for switch in map(self._switches.__getitem__, dpids):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(connection)
            switch.begun.clear()
            selector.register(connection, selectors.EVENT_READ, switch)
            connection.sendall(openflow13.message(openflow13.OFPT_HELLO, 1))
        self._thread = threading.Thread(
            target=_serve, args=(selector,), daemon=True
        )
        self._thread.start()

    def disconnect(self) -> None:
        """Hang up, all of them, if the controller has not."""
        for connection in self._sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        if self._thread is not None:
            self._thread.join()
        self._sockets.clear()


def _serve(selector: selectors.BaseSelector) -> None:
    """Answer until all connections have ended."""
    with selector:
        while selector.get_map():
            for key, _ in selector.select():
                connection: socket.socket = key.fileobj  # type: ignore[assignment]
                try:
                    data = connection.recv(1 << 20)
                    if data:
                        connection.sendall(key.data.take(data))
                except OSError:
                    data = b""
                if not data:
                    selector.unregister(connection)
                    connection.close()


# ------------------------------------------------------------------------------------- bytes


def decode_change(flow_mod: bytes) -> Change:
    """The change that a flow-mod (header included) of `encode_change` stands
    for. Raises ValueError.
    """
    start = openflow13.HEADER.size
    cookie, mask, table, command, _, _, priority, *_ = (
        openflow13.FLOW_MOD.unpack_from(flow_mod, start)
    )
    match, actions = openflow13.decode_match(
        flow_mod[start + openflow13.FLOW_MOD.size :]
    )
    if command == openflow13.OFPFC_DELETE:
        if match != Match() or table != openflow13.OFPTT_ALL:
            raise ValueError("a delete by match")
        return RemoveByCookie(cookie, mask)
    flow = Flow(
        table=table,
        priority=priority,
        match=match,
        action=openflow13.decode_action(actions),
        cookie=cookie,
    )
    if command == openflow13.OFPFC_ADD:
        return AddFlow(flow)
    if command == openflow13.OFPFC_DELETE_STRICT:
        return RemoveFlow(flow)
    raise ValueError(f"flow-mod command {command}")


def encode_flow_stats_reply(
    flows: Iterable[Flow], xid: int
) -> Iterator[bytes]:
    """The messages by which a switch reports these rules, at most some 60 kB
    each.
    """
    entries = b""
    for flow in flows:
        if len(entries) > 60_000:
            more = openflow13.OFPMPF_REPLY_MORE
            yield _flow_stats_part(entries, more, xid)
            entries = b""
        entries += _flow_stats(flow)
    yield _flow_stats_part(entries, 0, xid)


def _flow_stats(flow: Flow) -> bytes:
    """A rule's entry, with all times and counters 0."""
    match = openflow13.encode_match(flow.match)
    tail = match + openflow13.encode_action(flow.action)
    length = openflow13.FLOW_STATS.size + len(tail)
    no_duration = (0, 0)
    no_timeouts_and_flags = (0, 0, 0)
    no_counters = (0, 0)
    head = openflow13.FLOW_STATS.pack(
        length,
        flow.table,
        *no_duration,
        flow.priority,
        *no_timeouts_and_flags,
        flow.cookie,
        *no_counters,
    )
    return head + tail


def _flow_stats_part(entries: bytes, flags: int, xid: int) -> bytes:
    return openflow13.message(
        openflow13.OFPT_MULTIPART_REPLY,
        xid,
        openflow13.MULTIPART.pack(openflow13.OFPMP_FLOW, flags) + entries,
    )
