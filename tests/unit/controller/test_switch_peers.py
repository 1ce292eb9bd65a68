"""Users whose processes may be switches: root, and the controller's own."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.switch_peers import switch_connections, tcp_peer_uid

NOBODY = 65534
# Connects as another user, says so, and stays until its input ends.
CONNECT = """
import os, socket, sys
uid, kind, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if uid != os.getuid():
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
if kind == "unix":
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(target)
else:
    peer = socket.create_connection(("127.0.0.1", int(target)))
print(os.getpid(), flush=True)
if sys.argv[4:] == ["close"]:
    peer.close()
sys.stdin.read()
"""
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="another user's process needs root"
)


@pytest.fixture(params=["unix", "tcp"])
def listener(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[socket.socket]:
    if request.param == "tcp":
        made = socket.create_server(("127.0.0.1", 0))
    else:
        made = socket.socket(socket.AF_UNIX)
        # Relative: a temporary folder's name may be too long for a socket.
        monkeypatch.chdir(tmp_path)
        made.bind("s")
        made.listen()
    with made:
        yield made


def target_of(listener: socket.socket) -> list[str]:
    name = listener.getsockname()
    if isinstance(name, str):
        return ["unix", name]
    return ["tcp", str(name[1])]


def connected(listener: socket.socket, uid: int, *more: str) -> Any:
    command = [
        sys.executable,
        "-c",
        CONNECT,
        str(uid),
        *target_of(listener),
    ]
    peer = subprocess.Popen(
        [*command, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert peer.stdout is not None
    assert peer.stdout.readline().strip() == str(peer.pid)
    return peer


def test_the_controllers_own_user_may_be_a_switch(
    listener: socket.socket,
) -> None:
    with connected(listener, os.getuid()) as peer:
        connection, address = next(
            switch_connections(listener, {os.getuid()})
        )
        # Both libraries set it, on whatever socket.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(5.0)
        assert connection.gettimeout() == 5.0
        if target_of(listener)[0] == "unix":
            assert address == ("unix", peer.pid)
        else:
            assert address == connection.getpeername()
        peer.communicate("")
        assert connection.recv(1) == b""
        connection.close()


@needs_root
def test_another_users_connection_is_closed_and_the_next_is_served(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    if target_of(listener)[0] == "unix":
        for folder in (Path.cwd(), *Path.cwd().parents):
            folder.chmod(folder.stat().st_mode | 0o001)
        Path("s").chmod(0o777)
    with (
        connected(listener, NOBODY) as stranger,
        connected(listener, 0) as switch,
    ):
        connection, _ = next(switch_connections(listener, {0}))
        assert f"of user {NOBODY} refused" in caplog.text
        switch.communicate("")
        assert connection.recv(1) == b""
        stranger.communicate("")
        connection.close()


def test_the_next_is_served_after_one_that_could_not_be_checked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uids: list[OSError | int] = [
        OSError(errno.EMFILE, "Too many open files"),
        os.getuid(),
    ]

    def answered(*_: object) -> int:
        outcome = uids.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    monkeypatch.setattr("controller.switch_peers.tcp_peer_uid", answered)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as first,
        socket.create_connection(listener.getsockname()) as second,
    ):
        connection, address = next(
            switch_connections(listener, {os.getuid()})
        )
        assert address == second.getsockname()
        assert "not checked: [Errno 24]" in caplog.text
        assert first.recv(1) == b""
        connection.close()


@needs_root
def test_a_connection_that_its_user_has_closed_is_not_roots() -> None:
    """The kernel shows sockets of nobody as root's: user 0."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connected(listener, NOBODY, "close") as peer,
    ):
        connection, address = listener.accept()
        give_up_s = time.monotonic() + 60
        while tcp_peer_uid(connection, address) is not None:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
        peer.communicate("")
        connection.close()


def test_a_socket_file_with_a_mode_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's process needs root")
    from testbed.backends.emu.switch_sockets import _listening

    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o001)
    with _listening(Path("c")):
        command = [sys.executable, "-c", CONNECT, str(NOBODY), "unix", "c"]
        refused = subprocess.run(
            command, capture_output=True, text=True, check=False
        )
        assert "PermissionError" in refused.stderr
