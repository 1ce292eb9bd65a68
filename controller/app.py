"""The OpenFlow application: hands what switches say to the control plane, and back.

A shim. It runs unchanged on Ryu (green threads) and on os-ken (native threads); all decisions are
the control plane's, all bytes of rules are `openflow13`'s. Nothing else in the project imports
either library: which one is decided by `library.choose_library` when this module is imported, and
a process that runs Ryu calls `library.prepare` before that.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import socket
from collections.abc import Sequence
from typing import Any

from controller import openflow13
from controller.api import connections
from controller.control_plane import ControlPlane
from controller.flow_rules import Change
from controller.library import PACKAGES, choose_library

LOG = logging.getLogger(__name__)


LIBRARY = choose_library()
_PACKAGE = PACKAGES[LIBRARY]


def _module(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.{name}")


if LIBRARY == "ryu":
    # Ryu's application manager imports its own web server, which asks eventlet for a name that
    # eventlet gave up in 0.30.3. The server is never started.
    _wsgi: Any = importlib.import_module("eventlet.wsgi")
    if not hasattr(_wsgi, "ALREADY_HANDLED"):
        _wsgi.ALREADY_HANDLED = object()

# os-ken: the application manager has to come first, or its modules import each other in a circle.
app_manager = _module("base.app_manager")
configuration = _module("cfg").CONF
_Datapath: Any = _module("controller.controller").Datapath
handler = _module("controller.handler")
hub = _module("lib.hub")
if LIBRARY == "os-ken":
    # It takes any exception for a thread's wish to end: an application that raises one would
    # hear no more events, without a word. Nothing raises this.
    hub.TaskExit = type("TaskExit", (BaseException,), {})
ofp_event = _module("controller.ofp_event")
_Handshake: Any = _module("controller.ofp_handler").OFPHandler
ofproto = _module("ofproto.ofproto_v1_3")

Application: Any = app_manager.RyuApp if LIBRARY == "ryu" else app_manager.OSKenApp
"""The base class of an OpenFlow application."""


class SwitchConnection(_Datapath):  # type: ignore[misc]
    """One switch's connection: the library's, with an outbox of its own.

    The library's outbox holds 16 messages, and sending a 17th blocks: one switch that does not
    read would stall the whole control plane. Here no send blocks. A switch that reads nothing for
    the library's send time-out (5 s) is cut off.
    """

    def __init__(self, connection: socket.socket, address: tuple[str, int]) -> None:
        self._outbox: Any = hub.Queue()
        self._bundles = 0
        super().__init__(connection, address)
        # The library numbers its own messages from here; tickets have the highest bit set.
        self.xid = 0

    @property
    def dpid(self) -> int:
        """The switch's datapath id, 0 before its features reply."""
        return int(self.id or 0)

    def request_flows(self, ticket: int) -> None:
        """See `control_plane.Channel`."""
        self.send(openflow13.encode_flow_stats_request(ticket))

    def send_batch(self, changes: Sequence[Change], ticket: int) -> None:
        """See `control_plane.Channel`."""
        self._bundles += 1
        self.send(openflow13.encode_batch(changes, self._bundles, ticket))

    def hang_up(self) -> None:
        """See `control_plane.Channel`."""
        self._shut_down()

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        """Put a message into the outbox. The library's messages come this way, too."""
        self._outbox.put((bytes(buf), close_socket))
        return True

    def serve(self) -> None:
        """Serve the connection until it ends, and tell that it has.

        The library's own waits for its sending thread after killing it, and native threads cannot
        be killed. This one ends on its last message.
        """
        sender = hub.spawn(self._send_loop)
        self.send_msg(self.ofproto_parser.OFPHello(self))
        try:
            self._recv_loop()
        finally:
            self.is_active = False
            self.send(b"", close_socket=True)
            hub.joinall([sender])
            self.set_state(handler.DEAD_DISPATCHER)

    def _send_loop(self) -> None:
        last = False
        try:
            while not last:
                buf, last = self._outbox.get()
                self.socket.sendall(buf)
        except OSError as error:
            LOG.debug("switch %#x at %s: %s", self.dpid, self.address, error)
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        """Shuts both directions down, which wakes blocked readers and writers."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Listener(_Handshake):  # type: ignore[misc]
    """The library's handshake, on sockets that are bound already.

    The library would bind one itself, to all addresses and with a backlog of 50; a network of two
    hundred switches comes all at once.
    """

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        super().__init__()
        self._listeners = listeners

    def start(self) -> Any:
        """Start accepting switches."""
        super(_Handshake, self).start()
        return [hub.spawn(self._accept_all, listener) for listener in self._listeners]

    def _accept_all(self, listener: socket.socket) -> None:
        for connection, address in connections(listener):
            hub.spawn(self._serve, connection, address)

    def _serve(self, connection: socket.socket, address: tuple[str, int]) -> None:
        switch = SwitchConnection(connection, address)
        try:
            switch.serve()
        except Exception:
            # The peer may have sent anything; it costs the peer its connection and nobody else.
            LOG.exception("switch %#x at %s: connection given up", switch.dpid, address)


class HosenetApplication(Application):  # type: ignore[misc]
    """Tells the control plane what the switches say."""

    OFP_VERSIONS = (ofproto.OFP_VERSION,)

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__()
        self._plane = plane

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPStateChange, [handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER]
    )
    def on_state_change(self, event: Any) -> None:
        """Handles a switch that has finished its handshake or disconnected."""
        if event.state == handler.MAIN_DISPATCHER:
            LOG.info("switch %#x connected", event.datapath.dpid)
            self._plane.connected(event.datapath)
        elif event.datapath.dpid:
            LOG.info("switch %#x disconnected", event.datapath.dpid)
            self._plane.disconnected(event.datapath)

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPFlowStatsReply, handler.MAIN_DISPATCHER
    )
    def on_flow_stats(self, event: Any) -> None:
        """Handles a switch's flow statistics reply."""
        message = event.msg
        report = openflow13.decode_flow_stats_reply(bytes(message.buf))
        more = bool(message.flags & ofproto.OFPMPF_REPLY_MORE)
        self._plane.reported(message.datapath, message.xid, report, more=more)

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPBarrierReply, handler.MAIN_DISPATCHER
    )
    def on_barrier(self, event: Any) -> None:
        """A switch has carried out all that came before."""
        self._plane.confirmed(event.msg.datapath, event.msg.xid)

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPErrorMsg, [handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER]
    )
    def on_error(self, event: Any) -> None:
        """A switch has refused something."""
        message = event.msg
        reason = f"OpenFlow error type {message.type}, code {message.code}"
        LOG.warning("switch %#x: %s", message.datapath.dpid, reason)
        self._plane.refused(message.datapath, message.xid, reason)


def configure() -> None:
    """Complete the library's configuration, from no file and no option: its defaults."""
    configuration([], project="hosenet", default_config_files=[], default_config_dirs=[])


def start_module(name: str, listeners: Sequence[socket.socket]) -> None:
    """Start a loaded module's application, with all that it requires, in place of ours.

    Returns at once. Raises ImportError where the module has none for these switches, and whatever
    the application raises.
    """
    library = app_manager.AppManager.get_instance()
    library.load_apps([name])
    found = library.applications_cls.get(name)
    if found is None:
        raise ImportError(f"no class in it is a subclass of {Application.__name__}")
    if ofproto.OFP_VERSION not in (found.OFP_VERSIONS or [ofproto.OFP_VERSION]):
        raise ImportError(
            f"{found.__name__}.OFP_VERSIONS lacks OpenFlow 1.3, which the bridges speak"
        )
    # Ours has the sockets; the library's own handshake would bind one for everybody.
    library.applications_cls.pop(f"{_PACKAGE}.controller.ofp_handler", None)
    library.instantiate(Listener, listeners)
    library.instantiate_apps(**library.create_contexts())


def start(plane: ControlPlane, listeners: Sequence[socket.socket]) -> None:
    """Start serving switches on `listeners`; returns at once."""
    configure()
    library = app_manager.AppManager.get_instance()
    accepting = library.instantiate(Listener, listeners)
    application = library.instantiate(HosenetApplication, plane)
    application.start()
    accepting.start()
