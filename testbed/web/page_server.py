"""The server of the page: Tornado on loopback, one WebSocket a viewer.

The page's files are public and hold nothing of a run. What a run holds goes
over the WebSocket, whose first message is the token. The link has the token
behind ``#``, which browsers send to nobody. Metrics want it as a bearer token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import suppress
from importlib.resources import files
from socket import socket
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from tornado.httpserver import HTTPServer
from tornado.ioloop import PeriodicCallback
from tornado.web import Application, HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from testbed.errors import TestbedError
from testbed.web.followed_run import (
    FollowedFolder,
    FollowedRun,
    ItemKind,
    Player,
    Status,
)
from testbed.web.openmetrics import CONTENT_TYPE, Measured, metrics_text
from testbed.web.page_connections import (
    STRANGERS_MAX,
    Strangers,
    accept_all,
    stream_of,
)

LOOPBACK = "127.0.0.1"
HOSTS = frozenset((LOOPBACK, "localhost", "[::1]"))
"""Names by which the page is reached. A request with another name comes from a
site that has its own name resolve to loopback.
"""
FOLLOW_MS = 1_000.0
PLAY_MS = 100.0
LONGEST_MESSAGE_BYTES = 65_536
TOKEN_WITHIN_S = 10.0
IDLE_S = 30.0
"""Longest wait for a request's head; Tornado's own is an hour."""
BAD_TOKEN = 4401
"""Code of a closed WebSocket; from 4000 on codes are an application's own."""
WRONG_LINK = (
    "the token in the link is not this server's: open the link that"
    " testbed watch printed last"
)
FOREIGN_HOST = (
    "this page is served to 127.0.0.1 and localhost alone: open the link"
    " that testbed watch printed"
)
STATIC = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}
"""Name and type of the page's files, by path."""
HEADERS = {
    # Nothing that stands in the page itself or comes from elsewhere; `data:`
    # is for pictures within uPlot and the style sheet.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self';"
        " connect-src 'self'; img-src 'self' data:; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageSource(Measured, Protocol):
    """A run, a sweep, or the network that is up."""

    trouble: str

    def refresh(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def status(self) -> Status: ...

    def header(self) -> dict[str, Any]: ...

    def frame(self) -> dict[str, Any]: ...

    def item(self, kind: ItemKind, name: str) -> dict[str, Any]: ...


class _ViewerMessage(BaseModel, extra="forbid"):
    """A message of a viewer; keys that it does not have are refused."""


class Choose(_ViewerMessage):
    """Shows another policy, by its place in the list."""

    do: Literal["source"]
    number: int


class Seek(_ViewerMessage):
    """Moves the viewer's player to a moment."""

    do: Literal["seek"]
    at_s: Annotated[float, Field(allow_inf_nan=False)]


class Play(_ViewerMessage):
    """Sets the player's speed, in experiment seconds a second; 0: pause."""

    do: Literal["play"]
    speed: Annotated[float, Field(ge=0, le=1e6)]


class Follow(_ViewerMessage):
    """Leaves the player, for the latest state of the source."""

    do: Literal["live"]


class Ask(_ViewerMessage):
    """Asks for the history of an item."""

    do: Literal["item"]
    of: ItemKind
    name: Annotated[str, Field(max_length=1_000)]


class Lanes(_ViewerMessage):
    """Asks for the servers over time."""

    do: Literal["lanes"]


Message = Choose | Seek | Play | Follow | Ask | Lanes
_MESSAGE: TypeAdapter[Message] = TypeAdapter(
    Annotated[Message, Field(discriminator="do")]
)


def static_files() -> dict[str, tuple[bytes, str]]:
    """The page's files by path, with their types; read before root is dropped."""
    folder = files("testbed.web") / "static"
    return {
        path: ((folder / name).read_bytes(), f"{kind}; charset=utf-8")
        for path, (name, kind) in STATIC.items()
    }


class PageServer:
    """Sources, and the viewers that look at them.

    ``folder``: that of the run, which may get further sources.
    """

    def __init__(self, token: str) -> None:
        self.sources: list[PageSource] = []
        self.folder: FollowedFolder | None = None
        self.viewers: set[Viewer] = set()
        self.strangers = Strangers(STRANGERS_MAX)
        self._token = token.encode()
        self._files = static_files()
        self._statuses: list[Status] = []

    def allows(self, token: str) -> bool:
        """True for the server's token; compares in constant time."""
        return hmac.compare_digest(token.encode(), self._token)

    def application(self) -> Application:
        return Application(
            [
                (r"/socket", Viewer, {"page": self}),
                (r"/metrics", Metrics, {"page": self}),
                (r"/(.*)", StaticFile, {"contents": self._files}),
            ],
            websocket_max_message_size=LONGEST_MESSAGE_BYTES,
            # The connection of a browser that has vanished without closing
            # (asleep, its tunnel cut) is closed after a ping without a reply.
            websocket_ping_interval=30,
            log_function=_log_nothing,
        )

    def follow(self) -> None:
        """Reads what is new in the sources, and sends it to their viewers.

        All viewers get the list of sources where a status has changed.
        """
        if self.folder is not None:
            self.sources += self.folder.new_runs()
        for number, source in enumerate(self.sources):
            # A source that had ended was read to its end in an earlier
            # round. One that is new was never read, ended or not.
            if source.ended and number < len(self._statuses):
                continue
            if source.refresh():
                self._send_frames(number, source)
        statuses = [source.status for source in self.sources]
        if statuses != self._statuses:
            self._statuses = statuses
            # A copy: a viewer whose connection has ended leaves the set.
            for viewer in list(self.viewers):
                viewer.send(self.contents())

    def _send_frames(self, number: int, source: PageSource) -> None:
        """Sends the latest state to the source's viewers without a player."""
        viewers = [
            viewer
            for viewer in self.viewers
            if viewer.number == number and viewer.player is None
        ]
        if not viewers:
            return
        # Encoded once for all.
        text = _encoded(source.frame())
        for viewer in viewers:
            # The run had not begun when the viewer came.
            if not viewer.has_layout:
                viewer.show()
            else:
                viewer.send_text(text)

    def contents(self) -> dict[str, Any]:
        """The message with all sources, and the status of each."""
        listed = [
            {
                **source.label(),
                "status": source.status,
                "trouble": source.trouble,
            }
            for source in self.sources
        ]
        return {"kind": "sources", "sources": listed}

    def play(self) -> None:
        """Moves the players on, and sends what they show."""
        for viewer in list(self.viewers):
            player = viewer.player
            if player is not None and player.speed:
                player.step(PLAY_MS / 1000)
                # The last frame says that the player stands still.
                viewer.send(player.frame(), always=not player.speed)


def _log_nothing(_: object) -> None:
    """Logs no request: the line would repeat what the viewer sees."""


def _encoded(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


class _Guarded(RequestHandler):
    """A request whose Host header is checked, and whose errors are plain text."""

    def prepare(self) -> None:
        require_own_host(self.request.host_name)

    def set_default_headers(self) -> None:
        # Errors have these too: Tornado calls this method again after it has
        # cleared what the handler had set.
        for name, value in HEADERS.items():
            self.set_header(name, value)
        # Tornado's release is nobody's business.
        self.clear_header("Server")

    def write_error(self, status_code: int, **_: object) -> None:
        # Tornado's own page of HTML quotes the request.
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code}: {self._reason}\n")


def require_own_host(host_name: str) -> None:
    """Raises HTTPError 403 for a name in a Host header that is not loopback's."""
    # A site can have its own name resolve to 127.0.0.1, and its script then
    # counts as the page's. The header still has the site's name.
    if host_name not in HOSTS:
        raise HTTPError(403, reason=FOREIGN_HOST)


class StaticFile(_Guarded):
    """The page, its script and its style."""

    def initialize(self, contents: dict[str, tuple[bytes, str]]) -> None:
        self._contents = contents

    def get(self, path: str) -> None:
        known = self._contents.get(path)
        if known is None:
            raise HTTPError(404, reason="no such page")
        content, content_type = known
        self.set_header("Content-Type", content_type)
        self.finish(content)


class Metrics(_Guarded):
    """``/metrics``: the latest state of all sources."""

    def initialize(self, page: PageServer) -> None:
        self._page = page

    def get(self) -> None:
        authorization = self.request.headers.get("Authorization", "")
        scheme, _, token = authorization.partition(" ")
        # The name of a scheme has no case (RFC 9110, 11.1).
        if scheme.lower() != "bearer" or not self._page.allows(token):
            self.set_header("WWW-Authenticate", "Bearer")
            raise HTTPError(401, reason="the token is missing or wrong")
        self._page.strangers.leave(stream_of(self.request))
        # A scrape has what is there now, not what there was a second ago.
        self._page.follow()
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(metrics_text(self._page.sources))


class Viewer(_Guarded, WebSocketHandler):
    """A browser's page, which gets nothing before it has sent the token."""

    def initialize(self, page: PageServer) -> None:
        self._page = page
        self._sent: asyncio.Future[None] | None = None
        self._allowed = False
        self.number = 0
        self.player: Player | None = None
        self.has_layout = False

    def prepare(self) -> None:
        # Tornado itself only compares the Origin with the Host. Both are the
        # site's where a site has its name resolve to loopback.
        super().prepare()
        # Once it is a WebSocket the request has it no longer.
        self._stream = stream_of(self.request)

    def open(self, *_: str, **__: str) -> None:
        # The page's script sends the token at once. A connection that sends
        # nothing would hold memory.
        asyncio.get_running_loop().call_later(
            TOKEN_WITHIN_S, self._require_token
        )

    def _require_token(self) -> None:
        if not self._allowed:
            self.close(BAD_TOKEN, "no token")

    def on_close(self) -> None:
        self._page.viewers.discard(self)

    def on_message(self, message: str | bytes) -> None:
        if not self._allowed:
            self._take_token(message)
            return
        try:
            self._obey(_MESSAGE.validate_json(message))
        except ValidationError as error:
            fault = error.errors()[0]["msg"]
            self.send({"kind": "error", "says": f"not a message: {fault}"})
        except TestbedError as error:
            self.send({"kind": "error", "says": error.message})

    def _take_token(self, message: str | bytes) -> None:
        if isinstance(message, bytes) or not self._page.allows(message):
            self.send({"kind": "error", "says": WRONG_LINK})
            self.close(BAD_TOKEN, "wrong token")
            return
        self._allowed = True
        self._page.strangers.leave(self._stream)
        self._page.viewers.add(self)
        self._page.follow()
        # Of several policies the one that runs now is shown.
        for number, source in enumerate(self._page.sources):
            if source.status == "live":
                self.number = number
        self.send(self._page.contents())
        self.show()

    def _obey(self, message: Message) -> None:
        # A run that has just begun has no source yet.
        if self.number >= len(self._page.sources):
            return
        source = self._page.sources[self.number]
        match message:
            case Choose():
                last = len(self._page.sources) - 1
                self.number = max(0, min(last, message.number))
                self.show()
            case Seek() | Play():
                if isinstance(source, FollowedRun):
                    self._move(source, message)
            case Follow():
                self.show()
            case Lanes():
                if isinstance(source, FollowedRun):
                    self.send(source.lanes())
            case Ask():
                item = source.item(message.of, message.name)
                # The viewer may have chosen another item meanwhile: this one's
                # name is in the message.
                asked = {"of": message.of, "name": message.name}
                self.send({"kind": "item", **asked, **item})

    def _move(self, source: FollowedRun, message: Seek | Play) -> None:
        """Moves the viewer's player, which is made where there is none."""
        if self.player is None:
            self.player = Player(source)
        if isinstance(message, Seek):
            self.player.seek(message.at_s)
        else:
            self.player.speed = message.speed
        self.send(self.player.frame())

    def show(self) -> None:
        """Sends the source's header and latest state; no player from now on."""
        if self.number >= len(self._page.sources):
            self.send({"kind": "nothing yet"})
            return
        source = self._page.sources[self.number]
        self.player = None
        header = source.header()
        # Of a source that has not begun there is the header alone.
        # `_send_frames` calls this method again once it has.
        of_sweep = header["of"] == "sweep" and source.status != "waiting"
        self.has_layout = "layout" in header or of_sweep
        self.send({**header, "number": self.number})
        if self.has_layout:
            self.send(source.frame())

    def send(self, value: dict[str, Any], *, always: bool = True) -> None:
        self.send_text(_encoded(value), always=always)

    def send_text(self, text: str, *, always: bool = False) -> None:
        """Sends a message. Without ``always`` it is left out while the message
        before it is on its way.
        """
        # Frames for a slow viewer would wait in this process's memory. Each
        # of them has all that the one before it has.
        if not always and self._sent is not None and not self._sent.done():
            return
        try:
            self._sent = asyncio.ensure_future(
                _sending(self.write_message(text))
            )
        except WebSocketClosedError:
            self._page.viewers.discard(self)


async def _sending(written: Any) -> None:
    """Waits until a message is on its way, or its viewer has gone."""
    # asyncio logs the error of a future that nobody asks for it.
    try:
        await written
    except WebSocketClosedError:
        return


async def serve_page(
    page: PageServer, listening: socket, stop: asyncio.Event
) -> None:
    """Serves the page on a listening socket until ``stop`` is set."""
    # No request has a body.
    server = HTTPServer(
        page.application(),
        max_body_size=0,
        idle_connection_timeout=IDLE_S,
    )
    accepting = asyncio.create_task(
        accept_all(listening, server, page.strangers)
    )
    page.follow()
    following = PeriodicCallback(page.follow, FOLLOW_MS)
    playing = PeriodicCallback(page.play, PLAY_MS)
    following.start()
    playing.start()
    try:
        await stop.wait()
    finally:
        following.stop()
        playing.stop()
        accepting.cancel()
        with suppress(asyncio.CancelledError):
            await accepting
        listening.close()
        # 1001: the endpoint goes away (RFC 6455, 7.4.1); the page then says
        # that the server has ended.
        for viewer in list(page.viewers):
            viewer.close(1001, "the server ends")
