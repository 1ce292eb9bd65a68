"""Connections of the page: strangers bound one another only, and the loop rests."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from testbed.record.folder import EVENTS, SUMMARY
from testbed.web import page_connections, page_server
from testbed.web.followed_run import FollowedFolder
from testbed.web.page_connections import STRANGERS_MAX
from testbed.web.page_server import PageServer
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run
from tests.unit.web.test_page_server import TOKEN, Client, message, serve

DESCRIPTORS = 8
ROUNDS = 1_000
"""Rounds of the loop in which one that spins would accept as often."""


class FewDescriptors(socket.socket):
    """A listener in a process with few descriptors for connections."""

    def __init__(self) -> None:
        super().__init__()
        self.bind(("127.0.0.1", 0))
        self.listen(STRANGERS_MAX)
        self.calls = 0
        self.failures = 0
        self._accepted: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls += 1
        opened = [each for each in self._accepted if each.fileno() != -1]
        if len(opened) >= DESCRIPTORS:
            self.failures += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        connection, address = super().accept()
        self._accepted = [*opened, connection]
        return connection, address


@pytest.fixture
def page(tmp_path: Path) -> PageServer:
    page = PageServer(TOKEN)
    folder = write_run(tmp_path, sample.main_example(), FIG10)[0].path
    assert (folder / EVENTS).exists()
    assert (folder / SUMMARY).exists()
    page.folder = FollowedFolder(folder)
    return page


class Idle:
    """Connections of others, which send nothing."""

    def __init__(self, client: Client) -> None:
        self._port = int(client.address.rpartition(":")[2])
        self._sockets: list[socket.socket] = []

    async def __aenter__(self) -> Idle:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()
        # The server has the same loop, and sees their ends.
        await rounds()

    async def come(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            each = socket.socket()
            self._sockets.append(each)
            each.settimeout(0)
            await loop.sock_connect(each, ("127.0.0.1", self._port))

    async def end(self, number: int) -> bytes:
        """The bytes that one was sent until its end."""
        loop = asyncio.get_running_loop()
        return await loop.sock_recv(self._sockets[number], 65_536)

    def open(self, number: int) -> bool:
        """True where one has not been closed by the server."""
        try:
            self._sockets[number].recv(1)
        except BlockingIOError:
            return True
        return False

    def count_closed(self) -> int:
        return sum(
            not self.open(number) for number in range(len(self._sockets))
        )


async def rounds() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


def test_the_owner_gets_in_beside_idle_connections_of_others(
    page: PageServer,
) -> None:
    """Page, metrics and WebSocket; and no later stranger closes the latter."""

    async def use(client: Client) -> None:
        connection, messages = await client.opened()
        assert messages[0]["kind"] == "sources"
        async with Idle(client) as strangers:
            await strangers.come(STRANGERS_MAX + 20)
            assert (await client.get("/")).code == 200
            owner = {"Authorization": f"Bearer {TOKEN}"}
            assert (await client.get("/metrics", **owner)).code == 200
            _, messages = await client.opened()
            assert messages[0]["kind"] == "sources"
            # Those that came first have made room for those that came later.
            for number in range(20):
                assert await strangers.end(number) == b""
            assert strangers.open(STRANGERS_MAX + 19)
            await strangers.come(STRANGERS_MAX)
            await connection.write_message('{"do": "live"}')
            assert await message(connection)

    serve(page, use)


def test_a_connection_that_sends_nothing_is_closed(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "IDLE_S", 0.01)

    async def use(client: Client) -> None:
        async with Idle(client) as strangers:
            await strangers.come(1)
            assert await strangers.end(0) == b""

    serve(page, use)


def test_where_descriptors_are_short_strangers_make_room(
    page: PageServer,
) -> None:
    listening = FewDescriptors()

    async def use(client: Client) -> None:
        async with Idle(client) as strangers:
            await strangers.come(10 * DESCRIPTORS)
            _, messages = await client.opened()
            assert messages[0]["kind"] == "sources"
            # Each beyond the limit fails once, and takes a stranger's place.
            closed = 9 * DESCRIPTORS + 1
            await rounds()
            assert listening.failures == closed
            assert strangers.count_closed() == closed

    serve(page, use, listening)


def test_where_no_stranger_can_make_room_the_loop_rests(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All descriptors are the owner's; somebody else waits for one."""
    # As good as for ever: what is tried until then is counted.
    monkeypatch.setattr(page_connections, "ACCEPT_PAUSE_S", 1e6)
    listening = FewDescriptors()

    async def use(client: Client) -> None:
        for _ in range(DESCRIPTORS):
            connection, _ = await client.opened()
        async with Idle(client) as strangers:
            await strangers.come(5)
            await rounds()
            assert listening.failures == 1
            assert listening.calls == DESCRIPTORS + 1
            # Its viewers are served meanwhile.
            await connection.write_message('{"do": "live"}')
            assert await message(connection)

    serve(page, use, listening)


def test_after_the_pause_the_next_one_gets_in(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_connections, "ACCEPT_PAUSE_S", 0.01)
    listening = FewDescriptors()

    async def use(client: Client) -> None:
        for _ in range(DESCRIPTORS):
            connection, _ = await client.opened()
        waiting = asyncio.create_task(client.opened())
        while not listening.failures:
            await asyncio.sleep(0)
        connection.close()
        _, messages = await waiting
        assert messages[0]["kind"] == "sources"

    serve(page, use, listening)
