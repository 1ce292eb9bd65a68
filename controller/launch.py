"""Start the controller: `python -m controller.launch`.

One launcher for both libraries. It puts green threads in place if the library needs them, imports
everything, gives up root, opens its two sockets on loopback, says on the ready descriptor that it
is there, and serves until SIGTERM. docs/controller.md has the options and the exit codes.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.metadata
import json
import logging
import os
import pwd
import resource
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from controller.library import LibraryMissing, LibraryName, choose_library, prepare
from controller.own_app import OwnApp
from jobs import linux

if TYPE_CHECKING:
    from controller.control_plane import ControlPlane

LOOPBACK = "127.0.0.1"
OPENFLOW_PORT = 6653
API_PORT = 8653
TOKEN_VARIABLE = "HOSENET_CONTROLLER_TOKEN"  # noqa: S105 - the variable's name, not a token
TOKEN_LENGTH_MIN = 16
BACKLOG = 1024

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_MACHINE_CANNOT = 3
EXIT_FAILED = 4


class CannotStart(Exception):
    """Why the controller does not start: an exit code, a word for programs, words for people."""

    def __init__(self, exit_code: int, error: str, message: str, port: int | None = None) -> None:
        self.exit_code = exit_code
        self.error = error
        self.port = port
        super().__init__(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller until it is stopped. Returns the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        _check(parsed)
        # Here, because it is here that a signal may come from now on.
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGINT, _end)
        _serve(parsed)
    except CannotStart as reason:
        about = {"error": reason.error, "port": reason.port, "message": str(reason)}
        _tell(parsed.ready_fd, {"ready": False, **about})
        print(f"hosenet controller: {reason}", file=sys.stderr)
        return reason.exit_code
    return EXIT_OK


def _serve(options: argparse.Namespace) -> None:
    # Everything is imported before root is given up: afterwards the files may be out of reach.
    app = _openflow_application(options.library)
    if options.app is not None:
        options.app.import_library(options.library)
        # While this is root: where memory runs short, the first process to be killed.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    import encodings.idna  # noqa: F401 - sockets look it up by name when they first need it
    import threading

    from controller import api, values

    values.load_adapters(values.Network, values.Tenant, api.WaitRequest)
    logging.basicConfig(
        level=logging.INFO if options.verbose or options.app else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # As many open files as may be had: a network has hundreds of switches.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Asked first: whom the controller becomes may have no access to the checkout.
    library_version = importlib.metadata.version(options.library)
    plane, user_name = _plane_of_somebody_unprivileged(options)
    openflow_socket = _listen(options.openflow_port, "OpenFlow", "--openflow-port")
    about = {
        "pid": os.getpid(),
        "library": options.library,
        "library_version": library_version,
        "user": user_name,
        "openflow_port": openflow_socket.getsockname()[1],
        "api_port": 0,
    }
    elsewhere = [socket.socket(fileno=descriptor) for descriptor in options.openflow_fd]
    if options.app is not None:
        _start_own(options.app, app, [openflow_socket, *elsewhere])
        _tell(options.ready_fd, {"ready": True, **about})
        while True:
            app.hub.sleep(3600)
    api_socket = _listen(options.api_port, "API", "--api-port")
    about["api_port"] = api_socket.getsockname()[1]
    app.start(plane, [openflow_socket, *elsewhere])
    serving = threading.Thread(
        target=api.serve, args=(api_socket, api.Api(plane, about), options.token), daemon=True
    )
    serving.start()
    _tell(options.ready_fd, {"ready": True, **about})
    serving.join()
    # The thread has logged why. Native threads of the library would keep the process alive.
    os._exit(EXIT_FAILED)


def _start_own(own: OwnApp, app: ModuleType, listeners: Sequence[socket.socket]) -> None:
    """Start a person's application, unprivileged by now; what it raises is all in the log."""
    try:
        own.start(app, listeners)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it raises what it likes
        traceback.print_exc()
        raise CannotStart(EXIT_BAD_INPUT, "app", own.explained(error)) from None


def _plane_of_somebody_unprivileged(options: argparse.Namespace) -> tuple[ControlPlane, str]:
    """Open the state directory, give up root, and start from what was saved. The user's name."""
    from controller.control_plane import ControlPlane
    from controller.saved_state import StateStore
    from controller.values import InvalidValues

    store = None
    try:
        user = unprivileged_user(os.environ) if os.geteuid() == 0 else None
        if options.state_dir:
            options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            store = StateStore.at(options.state_dir)
            if user:
                _hand_over(store.descriptor, options.state_dir, user)
        if user:
            become(user)
        # From here on there are no privileges to lose.
        linux.set_no_new_privileges()
        if options.exit_with_parent is not None:
            end_with_parent(options.exit_with_parent)
        return ControlPlane(store), user.name if user else _user_name(os.getuid())
    except (InvalidValues, OSError) as error:
        raise CannotStart(EXIT_BAD_INPUT, "bad-state", f"saved state: {error}") from None


def _openflow_application(library: LibraryName) -> ModuleType:
    """The module `controller.app` on this library, green threads and all."""
    try:
        prepare(library)
        return importlib.import_module("controller.app")
    except (ImportError, AttributeError) as error:
        # The library is there and does not work: with the wrong eventlet, for example.
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "library-missing",
            f"{library} is installed but cannot be imported ({error}): "
            f"sudo ./provision.sh install in a checkout, or choose the other with --library",
        ) from None


def _end(signal_number: int, frame: object) -> NoReturn:
    """End at once. There is nothing to finish: state files are replaced in one step, and the
    libraries' native threads cannot be stopped.
    """
    del signal_number, frame
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_OK)


def _hand_over(descriptor: int, directory: Path, user: User) -> None:
    """Gives the state directory and its files to the user, without access for others."""
    if os.fstat(descriptor).st_uid not in (0, user.uid):
        raise CannotStart(
            EXIT_BAD_INPUT, "state-dir", f"{directory} belongs to neither root nor {user.name}"
        )
    os.fchmod(descriptor, 0o700)
    for name in sorted(os.listdir(descriptor)):
        os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)
    os.fchown(descriptor, user.uid, user.gid)


def _listen(port: int, what: str, option: str) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port), backlog=BACKLOG)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is taken" if error.errno == errno.EADDRINUSE else "is reserved for root"
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "port-taken",
            f"port {port} on {LOOPBACK}, wanted for {what}, {why}; "
            f"`ss -ltnp sport = :{port}` shows by whom, {option} chooses another",
            port,
        ) from None


def _tell(descriptor: int, message: dict[str, object]) -> None:
    """Writes one line of JSON for the parent process."""
    line = (json.dumps(message) + "\n").encode()
    try:
        os.write(descriptor, line)
    except OSError as error:
        print(f"hosenet controller: nobody listens for its start: {error}", file=sys.stderr)


# ------------------------------------------------------------------------------ command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controller.launch",
        description="Hosenet's controller. It listens on loopback only and needs no privileges: "
        "started by root, it becomes the user who called sudo, or nobody.",
    )
    for name, default, what in (
        ("--openflow-port", OPENFLOW_PORT, "switches connect"),
        ("--api-port", API_PORT, "the HTTP API listens"),
    ):
        explained = f"where {what} (default %(default)s; 0: any free port)"
        parser.add_argument(name, type=int, default=default, help=explained)
    parser.add_argument(
        "--openflow-fd",
        type=int,
        action="append",
        default=[],
        metavar="FD",
        help="an inherited socket that listens for switches too, as in another network namespace",
    )
    parser.add_argument(
        "--library",
        default=None,
        choices=("auto", "ryu", "os-ken"),
        help="which OpenFlow library (default: HOSENET_CONTROLLER_LIBRARY, else what is there)",
    )
    parser.add_argument(
        "--app",
        type=Path,
        metavar="FILE",
        help="run this Ryu or os-ken application in place of ours; there is no API then",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help=f"a file of mode 0600 with the API's token (default: the variable {TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        help="a directory of its own where the desired state outlives a restart",
    )
    parser.add_argument(
        "--ready-fd",
        type=int,
        default=1,
        help="the descriptor that gets one line of JSON once both ports listen (default: stdout)",
    )
    parser.add_argument(
        "--exit-with-parent",
        type=int,
        metavar="PID",
        help="end when the process PID that starts this one ends",
    )
    parser.add_argument("--verbose", action="store_true", help="log connections, too")
    return parser


def _check(options: argparse.Namespace) -> None:
    """Checks the command line, and completes it with the library and the token."""
    for name in ("openflow_port", "api_port"):
        if not 0 <= getattr(options, name) <= 65535:
            option = "--" + name.replace("_", "-")
            raise CannotStart(EXIT_BAD_INPUT, "usage", f"{option} is not within 0..65535")
    try:
        if options.app is not None:
            options.app = OwnApp.read(options.app)
        own = options.app
        choose = choose_library if own is None else own.library
        options.library = choose(options.library)
    except LibraryMissing as error:
        raise CannotStart(EXIT_MACHINE_CANNOT, "library-missing", str(error)) from None
    except (OSError, SyntaxError, ValueError) as error:
        raise CannotStart(EXIT_BAD_INPUT, "app", str(error)) from None
    options.token = _token(options.token_file) if own is None else ""


def _token(path: Path | None) -> str:
    if path is None:
        token, origin = os.environ.pop(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
    else:
        token, origin = _token_in(path), str(path)
    if len(token) < TOKEN_LENGTH_MIN or not (token.isascii() and token.isprintable()):
        raise CannotStart(
            EXIT_BAD_INPUT,
            "token",
            f"{origin} has no token of at least {TOKEN_LENGTH_MIN} printable characters",
        )
    return token


def _token_in(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise CannotStart(
                    EXIT_BAD_INPUT, "token", f"{path} is open to others: chmod 600 {path}"
                )
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(EXIT_BAD_INPUT, "token", f"token file: {error}") from None


# ---------------------------------------------------------------------------------- privileges


@dataclass(frozen=True)
class User:
    """An unprivileged user."""

    name: str
    uid: int
    gid: int


def unprivileged_user(environment: Mapping[str, str]) -> User:
    """The user who called sudo; `nobody` if that was root, or if there was no sudo."""
    try:
        uid, gid = int(environment.get("SUDO_UID", "0")), int(environment.get("SUDO_GID", "0"))
    except ValueError:
        uid = gid = 0
    if uid > 0 and gid > 0:
        return User(_user_name(uid), uid, gid)
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        why = (
            "there is no user 'nobody' to run the controller as; start it as a user other than root"
        )
        raise CannotStart(EXIT_MACHINE_CANNOT, "no-user", why) from None
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def become(user: User) -> None:
    """Turn this process, which is root's, into `user`'s: all ids, no other groups, no way back."""
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise PermissionError(f"could not become {user.name}")


def end_with_parent(parent_pid: int) -> None:
    """Have the kernel send SIGTERM when the parent ends; at once if it has ended already.

    To be called after `become`, as the kernel forgets the request when the user changes. "Parent"
    is to the kernel the *thread* that started this process: start it from one that stays.
    """
    linux.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
