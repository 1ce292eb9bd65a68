"""The page's server: who gets what, and what is said to whom."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families,
)
from tornado.httpclient import AsyncHTTPClient, HTTPResponse
from tornado.websocket import (
    WebSocketClientConnection,
    websocket_connect,
)

from testbed.record.folder import EVENTS, SUMMARY
from testbed.web.followed_run import FollowedFolder
from testbed.web.page_server import BAD_TOKEN, PageServer, serve_page
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run

TOKEN = "a-token-of-the-tests"  # noqa: S105
Use = Callable[["Client"], Coroutine[Any, Any, None]]


class Client:
    """A server's address, and what a browser would do there."""

    def __init__(self, page: PageServer, port: int) -> None:
        self.page = page
        self.address = f"127.0.0.1:{port}"
        self._open: list[WebSocketClientConnection] = []

    async def get(self, path: str, **headers: str) -> HTTPResponse:
        return await AsyncHTTPClient().fetch(
            f"http://{self.address}{path}",
            headers=headers,
            raise_error=False,
        )

    async def connected(
        self, token: str = TOKEN
    ) -> WebSocketClientConnection:
        connection = await websocket_connect(f"ws://{self.address}/socket")
        self._open.append(connection)
        await connection.write_message(token)
        return connection

    async def close(self) -> None:
        for connection in self._open:
            ended = connection.close_code is not None
            connection.close()
            while not ended and await connection.read_message() is not None:
                pass
            # Its own half of the stream closes in the next round.
            await asyncio.sleep(0)

    async def opened(self) -> tuple[WebSocketClientConnection, list[Any]]:
        """A connection, and its first three messages."""
        connection = await self.connected()
        return connection, [await message(connection) for _ in range(3)]


async def message(connection: WebSocketClientConnection) -> Any:
    text = await connection.read_message()
    assert text is not None, connection.close_reason
    return json.loads(text)


async def asked(connection: WebSocketClientConnection, **what: Any) -> Any:
    await connection.write_message(json.dumps(what))
    return await message(connection)


def serve(
    page: PageServer, use: Use, listening: socket.socket | None = None
) -> None:
    if listening is None:
        listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0)
    asyncio.run(_served(page, use, listening))


async def _served(
    page: PageServer, use: Use, listening: socket.socket
) -> None:
    stop = asyncio.Event()
    client = Client(page, listening.getsockname()[1])
    serving = asyncio.create_task(serve_page(page, listening, stop))
    try:
        await use(client)
    finally:
        await client.close()
        stop.set()
        await serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path, sample.main_example(), FIG10)[0].path


@pytest.fixture
def page(folder: Path) -> PageServer:
    page = PageServer(TOKEN)
    page.folder = FollowedFolder(folder)
    return page


def test_the_page_is_there_without_a_token_and_holds_no_run(
    page: PageServer,
) -> None:
    async def use(client: Client) -> None:
        for path, kind in (
            ("/", "text/html"),
            ("/page.js", "text/javascript"),
            ("/page.css", "text/css"),
        ):
            answer = await client.get(path)
            assert answer.code == 200
            assert answer.headers["Content-Type"].startswith(kind)
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "Server" not in answer.headers
            assert b"bandwidth-scaling" not in answer.body
        assert (await client.get("/../cli/watch.py")).code == 404

    serve(page, use)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8910",
        "127.0.0.1.evil.example",
        "[::1",
        "a]b",
    ],
)
def test_a_foreign_host_is_refused_everywhere(
    page: PageServer, host: str
) -> None:
    async def use(client: Client) -> None:
        for path in ("/", "/page.js", "/metrics", "/socket"):
            answer = await client.get(
                path, Host=host, Authorization=f"Bearer {TOKEN}"
            )
            assert answer.code == 403
            assert b"127.0.0.1 and localhost alone" in answer.body

    serve(page, use)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "LOCALHOST:8910", "[::1]", "[::1]:8910"]
)
def test_each_name_of_loopback_is_served(
    page: PageServer, host: str
) -> None:
    async def use(client: Client) -> None:
        assert (await client.get("/", Host=host)).code == 200

    serve(page, use)


def test_a_foreign_origin_gets_no_socket(page: PageServer) -> None:
    async def use(client: Client) -> None:
        answer = await client.get(
            "/socket",
            Upgrade="websocket",
            Connection="Upgrade",
            Origin="http://evil.example",
            **{
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
        )
        assert answer.code == 403

    serve(page, use)


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "ä"])
def test_a_wrong_token_gets_a_sentence_and_no_run(
    page: PageServer, token: str
) -> None:
    async def use(client: Client) -> None:
        connection = await client.connected(token)
        said = await message(connection)
        assert said["kind"] == "error"
        assert "is not this server's" in said["says"]
        assert await connection.read_message() is None
        assert connection.close_code == BAD_TOKEN
        assert not client.page.viewers

    serve(page, use)


def test_a_viewer_gets_the_list_the_layout_and_the_state(
    page: PageServer,
) -> None:
    async def use(client: Client) -> None:
        _, (sources, layout, frame) = await client.opened()
        (listed,) = sources["sources"]
        assert listed["status"] == "finished"
        assert layout["name"] == "bandwidth-scaling"
        assert layout["curves"][-1]["running"] == 0
        assert frame["mode"] == "live"

    serve(page, use)


@pytest.mark.slow
def test_a_viewer_seeks_plays_and_comes_back(page: PageServer) -> None:
    async def use(client: Client) -> None:
        connection, (_, layout, _) = await client.opened()
        end_s = layout["end_s"]
        frame = await asked(connection, do="seek", at_s=end_s / 2)
        assert (frame["mode"], frame["at_s"]) == ("replay", end_s / 2)
        frame = await asked(connection, do="play", speed=end_s)
        assert frame["speed"] == end_s
        while frame["at_s"] < end_s:
            frame = await message(connection)
        assert frame["speed"] == 0
        layout = await asked(connection, do="live")
        assert layout["kind"] == "layout"

    serve(page, use)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"do": "nothing"}',
        '{"do": "seek"}',
        '{"do": "seek", "at_s": NaN}',
        '{"do": "play", "speed": -1}',
        '{"do": "source", "number": 0, "more": 1}',
        '{"do": "item", "of": "file", "name": "/etc/passwd"}',
        '{"do": "item", "of": "job", "name": "none"}',
        "[" * 5_000,
    ],
)
def test_nonsense_gets_a_sentence(page: PageServer, text: str) -> None:
    async def use(client: Client) -> None:
        connection, _ = await client.opened()
        await connection.write_message(text)
        assert (await message(connection))["kind"] == "error"
        item = await asked(connection, do="item", of="node", name="0")
        assert item["kind"] == "item"

    serve(page, use)


def test_frames_of_a_player_do_not_pile_up_for_a_slow_viewer(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(client: Client) -> None:
        connection, _ = await client.opened()
        await asked(connection, do="seek", at_s=0)
        await asked(connection, do="play", speed=1e-3)
        (viewer,) = page.viewers
        # What came before has arrived.
        assert viewer._sent is not None
        await viewer._sent
        written: list[dict[str, Any]] = []

        def write_message(text: str) -> asyncio.Future[None]:
            written.append(json.loads(text))
            # It does not arrive.
            return asyncio.Future()

        monkeypatch.setattr(viewer, "write_message", write_message)
        for _ in range(5):
            page.play()
        assert len(written) == 1
        # The last one, which says that nothing follows, is not left out.
        assert viewer.player is not None
        viewer.player.speed = 1e6
        page.play()
        assert [frame["speed"] for frame in written] == [1e-3, 0]

    serve(page, use)


@pytest.mark.slow
def test_events_that_come_later_are_sent(
    folder: Path, tmp_path: Path
) -> None:
    written = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    growing = tmp_path / "20261127T000000Z-grows-s1"
    growing.mkdir()
    file = growing / EVENTS
    file.write_bytes(b"".join(written[:4]))
    page = PageServer(TOKEN)
    page.folder = FollowedFolder(growing)

    async def use(client: Client) -> None:
        connection, (_, layout, _) = await client.opened()
        assert layout["status"] == "interrupted"
        file.write_bytes(b"".join(written))
        frame = await message(connection)
        assert frame["kind"] == "frame"
        assert frame["ended"]["finished"] > 0
        sources = await message(connection)
        assert sources["sources"][0]["status"] == "finished"
        file.write_bytes(b"")

    serve(page, use)


@pytest.mark.slow
def test_a_folder_that_is_damaged_meanwhile_is_told(
    folder: Path, tmp_path: Path
) -> None:
    written = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    growing = tmp_path / "20261127T000000Z-grows-s1"
    growing.mkdir()
    file = growing / EVENTS
    file.write_bytes(b"".join(written[:4]))
    page = PageServer(TOKEN)
    page.folder = FollowedFolder(growing)

    async def use(client: Client) -> None:
        connection, _ = await client.opened()
        file.write_bytes(b"".join(written[:4]) + b"{nonsense}\n")
        while (said := await message(connection))["kind"] != "sources":
            pass
        (source,) = said["sources"]
        assert source["status"] == "damaged"
        assert ":5: damaged" in source["trouble"]

    serve(page, use)


def test_a_list_of_policies_that_is_damaged_meanwhile_stops_no_page(
    folder: Path, tmp_path: Path
) -> None:
    written = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    growing = tmp_path / "20261127T000000Z-grows-s1"
    growing.mkdir()
    file = growing / EVENTS
    file.write_bytes(b"".join(written[:4]))
    page = PageServer(TOKEN)
    page.folder = FollowedFolder(growing, growing=True)
    page.follow()
    (growing / SUMMARY).write_text("{")
    file.write_bytes(b"".join(written))
    page.follow()
    (run,) = page.sources
    assert run.ended


def test_metrics_want_the_token_and_agree_with_the_run(
    page: PageServer,
) -> None:
    async def use(client: Client) -> None:
        for value in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}"):
            answer = await client.get("/metrics", Authorization=value)
            assert answer.code == 401
        answer = await client.get(
            "/metrics", Authorization=f"Bearer {TOKEN}"
        )
        assert answer.code == 200
        text = answer.body.decode()
        families = {
            family.name: family
            for family in text_string_to_metric_families(text)
        }
        jobs = {
            sample.labels["state"]: sample.value
            for sample in families["hosenet_jobs"].samples
        }
        (run,) = client.page.sources
        for outcome, n in run.state.ended.items():  # type: ignore[attr-defined]
            assert jobs[outcome] == n
        rates = families["hosenet_link_capacity_bits_per_second"]
        assert rates.unit == "bits_per_second"

    serve(page, use)


@pytest.mark.slow
def test_viewers_share_one_frame(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(client: Client) -> None:
        connections = [(await client.opened())[0] for _ in range(10)]
        (run,) = client.page.sources
        frames = []
        frame = run.frame
        monkeypatch.setattr(
            run, "frame", lambda: frames.append(1) or frame()
        )
        client.page._send_frames(0, run)
        for connection in connections:
            assert (await message(connection))["kind"] == "frame"
        assert len(frames) == 1

    serve(page, use)
