"""``testbed watch``: its link, its user, its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobs.python_child import python_command
from testbed.cli import watch
from testbed.cli.main import run
from testbed.errors import BadInput
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Of root's, the page is served by another user.
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o055)
    return write_run(tmp_path, sample.main_example(), FIG10)[0].path


@contextmanager
def watching(*arguments: str) -> Iterator[tuple[str, int]]:
    """The link and the process of a command, ended as by Ctrl-C."""
    process = subprocess.Popen(
        python_command("testbed.cli.main", "watch", *arguments),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as out:
        try:
            yield out.readline().strip(), process.pid
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


def code_of(url: str, token: str | None = None) -> int:
    address = urlsplit(url)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = HTTPConnection(address.netloc, timeout=60)
    with closing(connection):
        connection.request("GET", address.path, headers=headers)
        return connection.getresponse().status


@pytest.mark.slow
def test_its_link_opens_the_page(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with watching(str(folder), "--token-file", str(file)) as (link, pid):
        address, _, token = link.partition("/#")
        assert address.startswith("http://127.0.0.1:")
        assert token == file.read_text().strip()
        assert file.stat().st_mode & 0o777 == 0o600
        assert code_of(f"{address}/") == 200
        assert code_of(f"{address}/metrics") == 401
        assert code_of(f"{address}/metrics", token) == 200
        status = Path(f"/proc/{pid}/status").read_text()
        users = status.split("Uid:")[1].split()[:4]
        if os.geteuid() == 0:
            assert "0" not in users
            assert "CapEff:\t0000000000000000" in status


def test_a_taken_port_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["watch", str(folder), "--port", port]) == 3
    assert f"port {port} is taken" in capsys.readouterr().err


def test_the_port_of_a_page_that_has_ended_is_free() -> None:
    with watch._listening(None) as earlier:
        address = earlier.getsockname()
        viewer = socket.create_connection(address)
        earlier.settimeout(60)
        # Closed here first, the connection waits on this side.
        earlier.accept()[0].close()
        viewer.close()
    with watch._listening(address[1]) as listening:
        assert listening.getsockname() == address


def test_no_such_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_drop_root", lambda _: None)
    assert run(["watch", str(tmp_path / "none"), "--json"]) == 2
    assert "is not a folder" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    ("mode", "text", "says"),
    [
        (0o644, "a" * 40, "can be read by other users"),
        (0o600, "short", "holds no token of 16 characters"),
    ],
)
def test_a_bad_token_file_is_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    mode: int,
    text: str,
    says: str,
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    assert run(["watch", str(folder), "--token-file", str(file)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.needs("root")
def test_a_token_file_is_this_users_or_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared folder somebody else may make it first."""
    file = tmp_path / "token"
    file.write_text("a" * 40)
    file.chmod(0o600)
    os.chown(file, 54_321, 54_321)
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(BadInput, match="belongs to 54321, who knows"):
        watch._token(file)
    monkeypatch.setenv("SUDO_UID", "54321")
    monkeypatch.setenv("SUDO_GID", "54321")
    assert watch._token(file) == "a" * 40
    os.chown(file, 0, 0)
    assert watch._token(file) == "a" * 40


@pytest.mark.parametrize("text", ["é" * 40, "two words " * 4, "a\n" * 20])
def test_a_token_that_no_header_holds_is_refused(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(BadInput, match="in ASCII without spaces"):
        watch._token(file)


@pytest.mark.parametrize(
    ("ssh_port", "ends_in"),
    [("22", "192.0.2.7,"), ("2222", "192.0.2.7 -p 2222,")],
)
def test_a_terminal_of_ssh_gets_the_tunnel(
    monkeypatch: pytest.MonkeyPatch, ssh_port: str, ends_in: str
) -> None:
    class Process:
        def environ(self) -> dict[str, str]:
            ends = f"192.0.2.9 51234 192.0.2.7 {ssh_port}"
            return {"SSH_CONNECTION": ends}

        def parent(self) -> None:
            return None

    monkeypatch.setattr(watch.psutil, "Process", Process)
    (line,) = watch.tunnel_hint(8910)
    assert f"ssh -N -L 8910:127.0.0.1:8910 {ends_in}" in line
