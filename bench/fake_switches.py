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
    """One switch: its rules, how it reports them, and the changes it has not
    looked at.
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
                reply = _FEATURES_REPLY.pack(self.dpid, 0, 254, 0, 0, 0)
                return openflow13.message(
                    openflow13.OFPT_FEATURES_REPLY, xid, reply
                )
            case openflow13.OFPT_ECHO_REQUEST:
                return openflow13.message(
                    openflow13.OFPT_ECHO_REPLY, xid, body
                )
            case openflow13.OFPT_BARRIER_REQUEST:
                return openflow13.message(
                    openflow13.OFPT_BARRIER_REPLY, xid
                )
            case openflow13.OFPT_MULTIPART_REQUEST:
                # The library's handshake asks for the ports, too.
                asked, _ = openflow13.MULTIPART.unpack_from(body)
                empty = openflow13.MULTIPART.pack(asked, 0)
                nothing = [
                    openflow13.message(
                        openflow13.OFPT_MULTIPART_REPLY, 0, empty
                    )
                ]
                parts = (
                    self.report
                    if asked == openflow13.OFPMP_FLOW
                    else nothing
                )
                number = xid.to_bytes(4, "big")
                return b"".join(
                    part[: _XID.start] + number + part[_XID.stop :]
                    for part in parts
                )
            case openflow13.OFPT_FLOW_MOD:
                self.changes.append(data)
            case openflow13.OFPT_EXPERIMENTER:
                return self._bundle(xid, body)
        return b""

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
        """Carry out what came, and be ready to report it; how many changes it
        was.
        """
        count = len(self.changes)
        for data in self.changes:
            change = decode_change(data)
            if isinstance(change, AddFlow):
                self.rules[change.flow.key] = change.flow
            elif isinstance(change, RemoveFlow):
                self.rules.pop(change.flow.key, None)
            else:
                self.rules = {
                    key: flow
                    for key, flow in self.rules.items()
                    if (flow.cookie ^ change.cookie) & change.mask
                }
        self.changes.clear()
        self.report = list(encode_flow_stats_reply(self.rules.values(), 0))
        return count


class FakeSwitches:
    """Switches with these rules, by dpid."""

    def __init__(self, rules: Mapping[int, Iterable[Flow]]) -> None:
        self._switches = {
            dpid: _Switch(dpid, {flow.key: flow for flow in flows})
            for dpid, flows in rules.items()
        }
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
        """Carry out all that came; how many changes it was. Not while they are
        being sent any.
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
    for.
    """
    cookie, mask, table, command, _, _, priority, *_ = (
        openflow13.FLOW_MOD.unpack_from(flow_mod, openflow13.HEADER.size)
    )
    match, rest = openflow13.decode_match(
        flow_mod[openflow13.HEADER.size + openflow13.FLOW_MOD.size :]
    )
    if command == openflow13.OFPFC_DELETE:
        if match != Match() or table != openflow13.OFPTT_ALL:
            raise ValueError("a delete by match")
        return RemoveByCookie(cookie, mask)
    flow = Flow(
        table=table,
        priority=priority,
        match=match,
        action=openflow13.decode_action(rest),
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
        tail = openflow13.encode_match(
            flow.match
        ) + openflow13.encode_action(flow.action)
        if len(entries) > 60_000:
            yield _flow_stats_part(
                entries, openflow13.OFPMPF_REPLY_MORE, xid
            )
            entries = b""
        entries += (
            openflow13.FLOW_STATS.pack(
                openflow13.FLOW_STATS.size + len(tail), flow.table, 0, 0, flow.priority, 0, 0, 0,
                flow.cookie, 0, 0,
            )
            + tail
        )  # fmt: skip
    yield _flow_stats_part(entries, 0, xid)


def _flow_stats_part(entries: bytes, flags: int, xid: int) -> bytes:
    return openflow13.message(
        openflow13.OFPT_MULTIPART_REPLY,
        xid,
        openflow13.MULTIPART.pack(openflow13.OFPMP_FLOW, flags) + entries,
    )
