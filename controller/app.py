"""The OpenFlow application: messages from switches to the control plane, and back.

A shim. It runs unchanged on Ryu (green threads) and on os-ken (native threads);
all decisions are the control plane's, all bytes of rules are `openflow13`'s.
Nothing else in the project imports either library: which one is decided by
`library.choose_library` when this module is imported, and a process that runs
Ryu calls `library.prepare` before that.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from controller import openflow13
from controller.control_plane import ControlPlane
from controller.flow_rules import Change
from controller.library import PACKAGES, choose_library
from controller.own_app import UnusableApps
from controller.rate_limit import Places, SparseLog, shut_down
from controller.switch_peers import switch_connections

LOG = logging.getLogger(__name__)
# A switch may send what it likes.
COMPLAINTS = SparseLog(LOG)

# For a connection's handshake, and later for a message from first byte to last.
HANDSHAKE_TIMEOUT_S = 10.0
# Connections in their handshake: the oldest makes room for a new one.
HANDSHAKES_MAX = 1024
# Messages that wait for a switch to read them.
OUTBOX_MAX = 1024

# Where ``ryu-manager`` serves pages, but on loopback alone.
PAGES_HOST = "127.0.0.1"
PAGES_PORT = 8080
# Names by which they are reached, with any port: a tunnel's may be another.
OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]+)?", re.IGNORECASE)
FOREIGN_REQUEST = (
    b"these pages are for 127.0.0.1 and localhost alone, and for no script of"
    b" another site\n"
)

LIBRARY = choose_library()
_PACKAGE = PACKAGES[LIBRARY]


def _module(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.{name}")


if LIBRARY == "ryu":
    # Ryu's application manager imports its own web server, which asks eventlet
    # for a name that eventlet gave up in 0.30.3. The server is never started.
    _wsgi: Any = importlib.import_module("eventlet.wsgi")
    if not hasattr(_wsgi, "ALREADY_HANDLED"):
        _wsgi.ALREADY_HANDLED = object()

# os-ken: the application manager has to come first, or its modules import each
# other in a circle.
app_manager = _module("base.app_manager")
configuration = _module("cfg").CONF
_Datapath: Any = _module("controller.controller").Datapath
handler = _module("controller.handler")
hub = _module("lib.hub")
if LIBRARY == "os-ken":
    # It takes any exception for a thread's wish to end: an application that
    # raises one would hear no more events, without a word. Nothing raises this.
    hub.TaskExit = type("TaskExit", (BaseException,), {})
    # Its own waits for ever, whatever its time-out: links would be looked for
    # once.
    hub.Event = threading.Event
ofp_event = _module("controller.ofp_event")
_Handshake: Any = _module("controller.ofp_handler").OFPHandler
ofproto = _module("ofproto.ofproto_v1_3")
_get_versions = _module("ofproto").get_ofp_modules

_OURS = "HELLO ERROR ECHO_REQUEST ECHO_REPLY FEATURES_REPLY MULTIPART_REPLY BARRIER_REPLY"
# Types that our application, and the handshake, need to hear.
OUR_MESSAGES = frozenset(
    getattr(ofproto, f"OFPT_{name}") for name in _OURS.split()
)

_BASES = {"ryu": "RyuApp", "os-ken": "OSKenApp"}
# The base class of an OpenFlow application.
Application: Any = getattr(app_manager, _BASES[LIBRARY])


class Unusable(Exception):
    """Input that is no OpenFlow we can use; the message says why."""


class SwitchConnection(_Datapath):  # type: ignore[misc]
    """One switch's connection: the library's, with its own outbox and reader.

    The library's outbox holds 16 messages, and sending a 17th blocks: one
    switch that does not read would stall the whole control plane. Here no send
    blocks. A switch that reads nothing for the library's send time-out (5 s),
    or leaves OUTBOX_MAX messages unread, is cut off.

    The library's reader waits for ever for the rest of a handshake or a
    message, and writes a traceback for each message that it cannot read.
    Messages made for that purpose, with lengths of zero inside, keep it busy
    for ever. Here only messages of the types in `only` are read (None: all
    are). Of hellos the library reads the head alone, and so it does of
    statistics if `only` is given.
    """

    def __init__(
        self,
        connection: socket.socket,
        address: tuple[str, int],
        only: Container[int] | None,
    ) -> None:
        self._outbox: Any = hub.Queue()
        self._bundles = 0
        self._only = only
        self._until_s: float | None = time.monotonic() + HANDSHAKE_TIMEOUT_S
        super().__init__(connection, address)
        # The library numbers its own messages from here; tickets have the
        # highest bit set.
        self.xid = 0

    @property
    def dpid(self) -> int:
        """The switch's datapath id, 0 before its features reply."""
        return int(self.id or 0)

    def request_flows(self, ticket: int) -> None:
        """See `control_plane.SwitchChannel`."""
        self.send(openflow13.encode_flow_stats_request(ticket))

    def send_batch(
        self,
        changes: Sequence[Change],
        ticket: int,
    ) -> None:
        """See `control_plane.SwitchChannel`."""
        self._bundles += 1
        self.send(openflow13.encode_batch(changes, self._bundles, ticket))

    def hang_up(self) -> None:
        """See `control_plane.SwitchChannel`."""
        self.give_up("another connection takes its place")

    def complain(self, why: str) -> None:
        """Writes a line about this connection, unless there are too many."""
        name = "OpenFlow connection"
        if self.dpid:
            name = f"switch {self.dpid:#x}"
        host, port = self.address[:2]
        COMPLAINTS.warning(f"{name} at {host}:{port}: {why}")

    def give_up(self, why: str) -> None:
        """Closes the connection, and says why in the log."""
        self.complain(f"closed: {why}")
        shut_down(self.socket)

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        """Puts a message into the outbox; the library's come this way, too."""
        if self._outbox.qsize() >= OUTBOX_MAX and not close_socket:
            self.give_up(f"it leaves {OUTBOX_MAX} messages unread")
            return False
        self._outbox.put((bytes(buf), close_socket))
        return True

    def serve(self, handshakes: Places) -> None:
        """Serves the connection until it ends, and reports its end.

        It has a place among `handshakes` until its handshake is done. The
        library's method kills its sending thread and waits for it, but native
        threads cannot be killed: here the sender ends by itself, on its last
        message. Raises `Unusable`.
        """
        sender = hub.spawn(self._send_loop)
        self.send_msg(self.ofproto_parser.OFPHello(self))
        try:
            while True:
                self._take_message()
                if self.state == handler.MAIN_DISPATCHER:
                    if not self.dpid:
                        raise Unusable("it has no datapath id")
                    self._until_s = None
                    handshakes.leave(self.socket)
                # Green threads run until they yield.
                hub.sleep(0)
        except (EOFError, OSError) as error:
            LOG.debug(
                "switch %#x at %s: %r", self.dpid, self.address, error
            )
        finally:
            self.is_active = False
            handshakes.leave(self.socket)
            # The sender ends on this message, and the socket is closed
            # after it: a descriptor that is free again may be the next
            # connection's by its next write.
            self.send(b"", close_socket=True)
            hub.joinall([sender])
            self.set_state(handler.DEAD_DISPATCHER)
            self.socket.close()

    def _exactly(self, size_bytes: int) -> bytearray:
        data = bytearray()
        while len(data) < size_bytes:
            # The socket's own time-out is the sender's, too.
            with contextlib.suppress(TimeoutError):
                part = self.socket.recv(size_bytes - len(data))
                if not part:
                    raise EOFError
                data += part
                if self._until_s is None:  # the first byte of a message
                    self._until_s = time.monotonic() + HANDSHAKE_TIMEOUT_S
            if (
                self._until_s is not None
                and time.monotonic() > self._until_s
            ):
                raise Unusable(
                    f"more than {HANDSHAKE_TIMEOUT_S:g} s "
                    "for a handshake or a message"
                )
        return data

    def _take_message(self) -> None:
        head = self._exactly(openflow13.HEADER.size)
        version, kind, length, xid = openflow13.HEADER.unpack(head)
        title = f"version {version:#x}, type {kind}, {length} bytes"
        if version not in _get_versions() or length < len(head):
            raise Unusable(f"{title} is no OpenFlow")
        data = head + self._exactly(length - len(head))
        if self._only is not None and kind not in self._only:
            return
        try:
            event = self._event(version, kind, xid, data)
        except Exception as error:  # noqa: BLE001 - the library's, of any kind
            if (
                self._only is not None
                or self.state != handler.MAIN_DISPATCHER
            ):
                raise Unusable(f"{title}: {error!r}") from None
            # The library does not know all that true switches say.
            self.complain(f"passed over: {title}: {error!r}")
        else:
            self._deliver(event)

    def _deliver(self, event: Any) -> None:
        # In the order of the library's reader: applications get the event
        # into their queues, the handshake's handlers run in this thread.
        self.ofp_brick.send_event_to_observers(event, self.state)
        for handle in self.ofp_brick.get_handlers(event, self.state):
            handle(event)

    def _event(
        self,
        version: int,
        kind: int,
        xid: int,
        data: bytearray,
    ) -> Any:
        """A message as the library's event.

        Raises whatever the library raises where it cannot read the message.
        """
        n_parsed = len(data)
        if kind == ofproto.OFPT_HELLO:
            n_parsed = openflow13.HEADER.size
        elif self._only is not None:
            if version != ofproto.OFP_VERSION:
                raise ValueError("another version than the handshake's")
            if kind == ofproto.OFPT_MULTIPART_REPLY:
                n_parsed = (
                    openflow13.HEADER.size + openflow13.MULTIPART.size
                )
        parsed = data[:n_parsed]
        parse = _get_versions()[version][1].msg_parser
        message = parse(
            datapath=self,
            version=version,
            msg_type=kind,
            msg_len=len(parsed),
            xid=xid,
            buf=parsed,
        )
        # Of a message that is parsed in part, the rest is read from here.
        message.set_buf(data)
        return ofp_event.ofp_msg_to_ev(message)

    def _send_loop(self) -> None:
        last = False
        try:
            while not last:
                buf, last = self._outbox.get()
                self.socket.sendall(buf)
        except OSError as error:
            LOG.debug(
                "switch %#x at %s: %s", self.dpid, self.address, error
            )
        finally:
            # Wakes the reader: a switch to which nothing can be sent is of
            # no use.
            shut_down(self.socket)


class Listener(_Handshake):  # type: ignore[misc]
    """The library's handshake, on sockets that are bound already.

    The library would bind one itself, to all addresses and with a backlog of
    50; a network of two hundred switches comes all at once. ``uids``: users
    whose processes may be switches; ``only`` is `SwitchConnection`'s.
    """

    # The library's handler logs what came, and fails where that is no text.
    error_msg_handler = None

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        uids: Container[int],
        only: Container[int] | None = None,
    ) -> None:
        super().__init__()
        self._listeners = listeners
        self._uids = uids
        self._only = only
        self._handshakes = Places(HANDSHAKES_MAX)
        self.logger.disabled = True  # It writes what comes, however often.

    def start(self) -> Any:
        """Starts accepting switches."""
        super(_Handshake, self).start()
        return [
            hub.spawn(self._accept_all, listener)
            for listener in self._listeners
        ]

    def _accept_all(self, listener: socket.socket) -> None:
        for connection, address in switch_connections(listener, self._uids):
            self._handshakes.enter(connection)
            hub.spawn(self._serve, connection, address)

    def _serve(
        self,
        connection: socket.socket,
        address: tuple[str, int],
    ) -> None:
        switch = SwitchConnection(connection, address, self._only)
        try:
            switch.serve(self._handshakes)
        except Unusable as error:
            switch.complain(f"closed: {error}")
        except Exception:
            # It costs the peer its connection and nobody else.
            LOG.exception(
                "switch %#x at %s: connection given up",
                switch.dpid,
                address,
            )

    def _hello_failed(self, datapath: Any, error_desc: str) -> None:
        super()._hello_failed(datapath, error_desc)
        # The library's reader keeps reading from a peer whose version it
        # does not speak.
        raise Unusable(error_desc)


class HosenetApplication(Application):  # type: ignore[misc]
    """Tells the control plane what the switches say."""

    OFP_VERSIONS = (ofproto.OFP_VERSION,)

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__()
        self._plane = plane

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPStateChange,
        [handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER],
    )
    def on_state_change(self, event: Any) -> None:
        """Handles a switch that has finished its handshake or disconnected."""
        if event.state == handler.MAIN_DISPATCHER:
            LOG.info("switch %#x connected", event.datapath.dpid)
            self._plane.connected(event.datapath)
        else:
            LOG.info("switch %#x disconnected", event.datapath.dpid)
            self._plane.disconnected(event.datapath)

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPFlowStatsReply, handler.MAIN_DISPATCHER
    )
    def on_flow_stats(self, event: Any) -> None:
        """Handles a switch's flow statistics reply."""
        message = event.msg
        partial = bool(message.flags & ofproto.OFPMPF_REPLY_MORE)
        try:
            report = openflow13.decode_flow_stats_reply(bytes(message.buf))
            self._plane.reported(
                message.datapath, message.xid, report, partial=partial
            )
        except ValueError as error:
            message.datapath.give_up(str(error))

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPBarrierReply, handler.MAIN_DISPATCHER
    )
    def on_barrier(self, event: Any) -> None:
        """Handles a barrier reply: all that came before is carried out."""
        self._plane.confirmed(event.msg.datapath, event.msg.xid)

    @handler.set_ev_cls(  # type: ignore[untyped-decorator]
        ofp_event.EventOFPErrorMsg,
        [handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER],
    )
    def on_error(self, event: Any) -> None:
        """Handles the refusal of something that a switch was sent."""
        message = event.msg
        reason = f"OpenFlow error type {message.type}, code {message.code}"
        message.datapath.complain(reason)
        self._plane.refused(message.datapath, message.xid, reason)


def import_options() -> None:
    """Imports modules that declare options: later the library refuses more."""
    for name in ("log", "topology.switches"):
        _module(name)


def configure(arguments: Sequence[str] = ()) -> None:
    """Completes the library's configuration: defaults and arguments.

    Raises UnusableApps for arguments that it does not know.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            configuration(
                list(arguments),
                project="hosenet",
                default_config_files=[],
                default_config_dirs=[],
            )
    except SystemExit:
        why = complaint.getvalue().rpartition("error: ")[2].strip()
        raise UnusableApps(f"options: {why}") from None
    if arguments:
        # This process has a log of its own already.
        configuration.set_default("use_stderr", False)  # noqa: FBT003
        _module("log").init_log()


def start_modules(
    names: Sequence[str],
    required: Sequence[str],
    listeners: Sequence[socket.socket],
    uids: Container[int],
) -> None:
    """Starts loaded modules' applications, and all that they require.

    Returns at once. Raises UnusableApps where a module has none for these
    switches, and whatever the applications raise.
    """
    # By name alone: the library's function tries a path of that name first.
    _module("utils").import_module = importlib.import_module
    library = app_manager.AppManager.get_instance()
    library.load_apps([*names, *required])
    # Ours has the sockets; the library's own handshake would bind one for
    # everybody.
    library.applications_cls.pop(_Handshake.__module__, None)
    # A module that another has as its context, such as `dpset`, is started as
    # that, and is no application of its own.
    contexts = {
        context.__module__ for context in library.contexts_cls.values()
    }
    for name in names:
        if name not in library.applications_cls and name not in contexts:
            raise UnusableApps(
                f"no class in {name} is a subclass of {Application.__name__}"
            )
    for application in library.applications_cls.values():
        _require_version(application)
    # Registered only: the next line starts all of them once the last is
    # constructed, so no switch comes before.
    library.instantiate(Listener, listeners, uids)
    library.instantiate_apps(**library.create_contexts())


def _require_version(application: Any) -> None:
    versions = application.OFP_VERSIONS or [ofproto.OFP_VERSION]
    if ofproto.OFP_VERSION not in versions:
        raise UnusableApps(
            f"{application.__name__}.OFP_VERSIONS lacks OpenFlow 1.3, "
            "which the bridges speak"
        )


def serve_pages() -> int | None:
    """Serves the web pages of started applications on loopback.

    Returns their port, 8080 or the one that the options name; where nobody has
    chosen and 8080 is taken, a free one. None without pages. Raises
    UnusableApps.
    """
    if LIBRARY != "ryu":
        return None
    kind = _module("app.wsgi").WSGIApplication
    library = app_manager.AppManager.get_instance()
    for context in library.contexts.values():
        if isinstance(context, kind):
            listener = _pages_listener()
            pages = OwnPages(context)
            hub.spawn(_wsgi.server, listener, pages, hub.LoggingWrapper())
            return int(listener.getsockname()[1])
    return None


class OwnPages:
    """A WSGI application without the requests that other sites have a browser
    send.

    A site's script can post to loopback, and it can read what it gets where the
    site's own name resolves to loopback. The former has the site as its Origin,
    the latter as its Host. Programs send no Origin.
    """

    def __init__(self, pages: Callable[..., Iterable[bytes]]) -> None:
        self._pages = pages

    def __call__(
        self,
        environ: dict[str, Any],
        start_response: Callable[..., Any],
    ) -> Iterable[bytes]:
        """Answers a request, as WSGI wants it."""
        # HTTP/1.0 needs no Host; browsers always send one.
        host = environ.get("HTTP_HOST", PAGES_HOST)
        own_origin = f"http://{host}"
        origin = environ.get("HTTP_ORIGIN", own_origin)
        is_own = OWN_HOST.fullmatch(host) is not None
        if is_own and origin.lower() == own_origin.lower():
            return self._pages(environ, start_response)
        length = str(len(FOREIGN_REQUEST))
        headers = [
            ("Content-Type", "text/plain"),
            ("Content-Length", length),
        ]
        start_response("403 Forbidden", headers)
        return [FOREIGN_REQUEST]


def _pages_listener() -> socket.socket:
    host, port = configuration.wsapi_host, configuration.wsapi_port
    # 0.0.0.0 is the library's default, which nobody need have chosen.
    if host not in (PAGES_HOST, "localhost", "0.0.0.0"):  # noqa: S104 - refused
        raise UnusableApps(
            f"options: pages are on {PAGES_HOST}, not on {host}"
        )
    try:
        # Not by the library, which shares a port that is taken with others of
        # the same user.
        return socket.create_server((PAGES_HOST, port))
    except OSError as error:
        is_chosen = port != PAGES_PORT
        if error.errno != errno.EADDRINUSE or is_chosen:
            raise UnusableApps(
                f"options: wsapi-port {port}: {error.strerror}"
            ) from None
        return socket.create_server((PAGES_HOST, 0))


def start_serving(
    plane: ControlPlane,
    listeners: Sequence[socket.socket],
    uids: Container[int],
) -> None:
    """Starts serving these users' switches on `listeners`; returns at once."""
    configure()
    library = app_manager.AppManager.get_instance()
    accepting = library.instantiate(Listener, listeners, uids, OUR_MESSAGES)
    application = library.instantiate(HosenetApplication, plane)
    application.start()
    accepting.start()
