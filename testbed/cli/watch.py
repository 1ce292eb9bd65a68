"""``testbed watch [RUN|latest|up]``: the live page, on loopback, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from socket import AF_INET, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import IO, TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import psutil
import typer

from jobs.python_child import python_command
from testbed.cli import console
from testbed.cli.name_completion import watched_names
from testbed.cli.options import Json, require_root, run_path
from testbed.errors import BadInput, MachineCannot
from testbed.owned_files import caller, new_file, user_name
from testbed.record.folder import DEFAULT_OUT
from testbed.record.stored_json import open_regular

if TYPE_CHECKING:
    from testbed.web.followed_network import FollowedNetwork
    from testbed.web.page_server import PageServer

PORT = 8910
"""Taken where no --port says otherwise, if it is free."""
UP = "up"
SWEEP = "sweep"
SSH_PORT = "22"
TOKEN_MODE = 0o600
SHORTEST_TOKEN = 16
TOKEN = re.compile(f"[!-~]{{{SHORTEST_TOKEN},}}")
"""Characters that a link and a header of HTTP hold as they are."""
LAST_LOOK_S = 2.0
"""For so long a page outlives the process that it was started with."""
NICE = 10
"""Priority of the page's process, which must not slow down the run it shows."""

Watched = Annotated[
    str,
    typer.Argument(
        metavar="[RUN|latest|up|sweep]",
        autocompletion=watched_names,
        help="A run or sweep by folder, name or latest; up: the network that is up;"
        " sweep: the one on its way.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=1024,
        max=65535,
        help=f"Default {PORT}, or a free one.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Read the token there, or write a new one: for Prometheus.",
    ),
]
StarterPid = Annotated[
    int | None,
    typer.Option("--beside", hidden=True, help="End with this process."),
]


def watch(
    watched: Watched = "latest",
    port: Port = None,
    token_file: TokenFile = None,
    beside: StarterPid = None,
    as_json: Json = False,
) -> None:
    """Show a run, or the network that is up, on a page in the browser, until
    Ctrl-C.

    The page is served on loopback alone, to whoever has the printed link; its
    process gives up root first. /metrics beside it has the state as
    OpenMetrics.

    Exit codes: 2 no such run, 3 the port is taken, or root is needed.
    """
    from testbed.web.page_server import PageServer

    token = _token(token_file)
    page = PageServer(token)
    # Before the page has its socket, which the forked reader of the network's
    # counters would inherit and keep open.
    if watched == UP:
        require_root("testbed watch up")
        page.sources.append(_network())
    with _listening(port) as listening:
        if watched != UP:
            # The process that starts a page is the one whose run it shows.
            _follow(page, watched, growing=beside is not None)
        os.nice(NICE)
        number = listening.getsockname()[1]
        # The kernel queues connections from now on: the link works before the
        # server does.
        _print_link(number, token, as_json=as_json)
        asyncio.run(_served(page, listening, beside))


def _network() -> FollowedNetwork:
    """The network that is up. This process gives up root; a child process,
    which reads the counters, stays root.
    """
    from testbed.web.followed_network import FollowedNetwork
    from testbed.web.network_feed import started_feed

    lines = os.fdopen(started_feed(), encoding="utf-8")
    _drop_root(None)
    return FollowedNetwork(lines)


def _follow(page: PageServer, watched: str, *, growing: bool) -> None:
    """Has the page show a run or sweep; root is given up.

    ``growing``: the run is known to be in progress. Raises BadInput where there
    is no such run or sweep.
    """
    from testbed.sweeps.sweep_comparison import is_sweep
    from testbed.web.followed_run import FollowedFolder
    from testbed.web.followed_sweep import FollowedSweep

    if watched == SWEEP:
        page.sources.append(FollowedSweep(_sweep_in_progress()))
        return
    folder = run_path(watched)
    _drop_root(folder)
    # A sweep in progress keeps its table in a file of such a name.
    if is_sweep(folder) or folder.name.startswith(".sweep-"):
        page.sources.append(FollowedSweep(folder))
        return
    page.folder = FollowedFolder(folder, growing=growing)
    # Many events take a while to be read, with nothing to be seen.
    if not page.folder.is_small:
        console.say(f"reading {folder}")
    page.follow()


def _sweep_in_progress() -> Path:
    """The file with the table of the latest sweep in progress.

    Root is given up. Raises BadInput where there is no such sweep.
    """
    from testbed.sweeps.table_so_far import tables_below

    files = tables_below(DEFAULT_OUT)
    if not files:
        raise BadInput(
            f"no sweep is on its way into {DEFAULT_OUT}",
            "testbed sweep FILE --watch shows one wherever its results go",
        )
    _drop_root(DEFAULT_OUT)
    return files[-1]


def _print_link(port: int, token: str, *, as_json: bool) -> None:
    address = f"http://127.0.0.1:{port}"
    link = f"{address}/#{token}"
    if as_json:
        console.print_json({"link": link, "metrics": f"{address}/metrics"})
    else:
        console.print_text(link)
    # Python buffers what it prints into a pipe, and this process continues.
    sys.stdout.flush()
    for line in tunnel_hint(port):
        console.say(line)


async def _served(
    page: PageServer, listening: socket, beside: int | None
) -> None:
    """Serves until Ctrl-C, SIGTERM, or the end of the process ``beside``."""
    from testbed.web.page_server import serve_page

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    watching = None
    if beside is not None:
        watching = asyncio.create_task(_wait_for_end(beside, stop))
    await serve_page(page, listening, stop)
    if watching is not None:
        watching.cancel()


async def _wait_for_end(pid: int, stop: asyncio.Event) -> None:
    """Sets ``stop`` a while after a process has ended, so that the page shows
    its end.
    """
    while psutil.pid_exists(pid):
        await asyncio.sleep(1)
    await asyncio.sleep(LAST_LOOK_S)
    stop.set()


def _token(file: Path | None) -> str:
    """A new token, or the one in a file; a missing file is written.

    Raises BadInput where the file is another user's or can be read by others,
    or it holds no token.
    """
    # A new one at each start, so that earlier links no longer open the page.
    new = secrets.token_urlsafe(32)
    if file is None:
        return new
    try:
        descriptor = new_file(file, TOKEN_MODE, caller())
    except FileExistsError:
        with open_regular(file) as opened:
            return _read_token(file, opened)
    with os.fdopen(descriptor, "w", encoding="ascii") as made:
        made.write(f"{new}\n")
    return new


def _read_token(file: Path, opened: IO[bytes]) -> str:
    status = os.fstat(opened.fileno())
    owner = caller()
    owners = {os.geteuid()}
    if owner is not None:
        owners.add(owner.uid)
    # In a shared folder another user can make the file first, with a token of
    # his choice.
    if status.st_uid not in owners:
        raise BadInput(
            f"{file} belongs to {user_name(status.st_uid)}, who knows the token",
            "name a file of your own, or one that does not exist yet",
        )
    if status.st_mode & 0o077:
        raise BadInput(
            f"{file} can be read by other users", f"chmod 600 {file}"
        )
    # Bounded: somebody may name a file of any size.
    token = opened.read(1_000).decode("ascii", "replace").strip()
    if TOKEN.fullmatch(token) is None:
        raise BadInput(
            f"{file} holds no token of {SHORTEST_TOKEN} characters or more,"
            " in ASCII without spaces",
            "remove it: testbed watch then writes a new one",
        )
    return token


def _listening(port: int | None) -> socket:
    """A listening socket on loopback. Raises MachineCannot where its port is
    taken.
    """
    # Port 0: any that is free.
    wanted = [PORT, 0] if port is None else [port]
    for number in wanted:
        listening = socket(AF_INET, SOCK_STREAM)
        # Tornado accepts connections until none is left; on a socket that
        # blocks it would wait for the next one, and serve nobody.
        listening.settimeout(0)
        # Connections of an earlier page would otherwise keep its port for a
        # minute after its end.
        listening.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", number))
            listening.listen(128)
        except OSError:
            listening.close()
            continue
        return listening
    raise MachineCannot(
        f"port {port} is taken by another program",
        "choose another one with --port, or leave it out",
    )


def _drop_root(folder: Path | None) -> None:
    """Becomes the user who called sudo, or nobody, if this process is root's.

    Raises BadInput where that user cannot read the run's folder.
    """
    from controller.launch import User, become
    from testbed.backends.emu.vm_process import NOBODY

    if os.geteuid() != 0:
        return
    owner = caller()
    user = NOBODY
    if owner is not None and owner.uid != 0:
        user = User(user_name(owner.uid), owner.uid, owner.gid)
    # Found out as root: to a user who may not look into the folder above it, it
    # does not exist.
    exists = folder is not None and folder.exists()
    become(user)
    if folder is None or not exists:
        return
    if not os.access(folder, os.R_OK | os.X_OK):
        raise BadInput(
            f"{folder} cannot be read by the user {user.name}, as whom"
            " root serves the page",
            "put runs where that user may read them, or call testbed watch"
            " as their owner",
        )


def start_page(watched: str, pid: int) -> None:
    """Starts a page of a run or of the network in a process; says its link.

    It ends after the process ``pid``. Where there can be no page, says so and
    continues: a run does not need its page.
    """
    command = python_command(
        "testbed.cli.main", "watch", watched, "--beside", str(pid), "--json"
    )
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C ends the run, whose end the page then shows.
        start_new_session=True,
        text=True,
    )
    answer = {}
    if process.stdout is not None:
        # Closed after the link, as nobody reads what the server may print
        # later.
        with process.stdout as lines:
            answer = _json_value(lines)
    link = answer.get("link")
    if link is None:
        console.say(f"no live page: {answer.get('error', 'it ended')}")
        return
    console.say(f"live page: {link}")
    for line in tunnel_hint(urlsplit(link).port or PORT):
        console.say(line)


def _json_value(lines: Iterable[str]) -> dict[str, Any]:
    """The JSON object that a verb prints; empty where it prints none."""
    text = ""
    for line in lines:
        text += line
        # The process stays as the page's server, and its output has no end
        # to wait for.
        if line == "}\n":
            value: dict[str, Any] = json.loads(text)
            return value
    return {}


def tunnel_hint(port: int) -> Sequence[str]:
    """Lines on how to reach the page from another machine; none outside of an
    SSH session.
    """
    # sudo drops SSH's variable, but the shell that called sudo has it.
    process: psutil.Process | None = psutil.Process()
    while process is not None:
        try:
            connection = process.environ().get("SSH_CONNECTION", "")
            process = process.parent()
        except psutil.Error:
            return ()
        # Address and port of the client, address and port of this machine.
        ends = connection.split()
        if len(ends) == 4:
            _, _, address, ssh_port = ends
            tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {address}"
            if ssh_port != SSH_PORT:
                tunnel += f" -p {ssh_port}"
            return (f"from elsewhere: {tunnel}, then open the link there",)
    return ()
