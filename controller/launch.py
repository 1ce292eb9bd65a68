"""Start the controller: `python -m controller.launch`.

One launcher for both libraries. It puts green threads in place if the library
needs them, imports everything, gives up root, opens its two sockets on
loopback, says on the ready descriptor that it is there, and serves until
SIGTERM. docs/controller.md has the options and the exit codes.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
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

from controller import start_watch
from controller.library import (
    LibraryMissing,
    LibraryName,
    choose_library,
    prepare,
)
from controller.own_app import OwnApps
from controller.passes import pass_for_ever
from jobs import linux
from jobs.call_filter import refuse_calls
from jobs.inherited_settings import drop_inherited_settings

if TYPE_CHECKING:
    from controller.control_plane import ControlPlane

LOOPBACK = "127.0.0.1"
OPENFLOW_PORT = 6653
API_PORT = 8653
# The name of the variable, not a token.
TOKEN_VARIABLE = "HOSENET_CONTROLLER_TOKEN"  # noqa: S105
TOKEN_LENGTH_MIN = 16
# Hundreds of switches connect at once.
BACKLOG = 1024

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_MACHINE_CANNOT = 3
EXIT_FAILED = 4


class CannotStart(Exception):
    """Failed start: an exit code, a word for programs, words for people."""

    def __init__(
        self,
        exit_code: int,
        error: str,
        message: str,
        port: int | None = None,
    ) -> None:
        self.exit_code = exit_code
        self.error = error
        self.port = port
        super().__init__(message)


def run_controller() -> int:
    """Runs the controller until a signal.

    Returns only if it does not start: the exit code.
    """
    parsed = _parser().parse_args()
    try:
        _check(parsed)
        # From here on a signal may come.
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGINT, _end)
        _serve(parsed)
    except CannotStart as reason:
        _tell_failure(parsed.ready_fd, reason)
        return reason.exit_code


def _tell_failure(ready: int, reason: CannotStart) -> None:
    record = {
        "ready": False,
        "error": reason.error,
        "port": reason.port,
        "message": str(reason),
    }
    _tell(ready, record)
    print(f"hosenet controller: {reason}", file=sys.stderr)


def _serve(options: argparse.Namespace) -> NoReturn:
    if options.remote is not None:
        _relay(options)
    # Everything is imported before root is given up: afterwards the files may
    # be out of reach.
    app = _openflow_application(options.library)
    if options.app is not None:
        options.app.import_library(app)
        _offer_to_oom_killer()
    _import_rest()
    _start_log(verbose=options.verbose or options.app is not None)
    # As many open files as may be had: a network has hundreds of switches.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Imported here: every program that enters a VM imports this module, and
    # few need it.
    from importlib.metadata import version

    # Asked first: the user that the controller becomes may have no access to
    # the checkout.
    library_version = version(options.library)
    plane, user_name = _unprivileged_plane(options)
    listeners = _listeners(options)
    about = _about(listeners, user_name)
    about["library"] = options.library
    about["library_version"] = library_version
    if options.app is not None:
        _run_own(options, app, about, listeners)
    _run(
        options=options,
        app=app,
        about=about,
        listeners=listeners,
        plane=plane,
    )


def _listeners(options: argparse.Namespace) -> list[socket.socket]:
    """Sockets that listen for switches: the machine's, and in namespaces."""
    listeners = [
        _listener(options.listen_fd, options.openflow_port, "OpenFlow")
    ]
    for descriptor in options.openflow_fd:
        listeners.append(socket.socket(fileno=descriptor))
    return listeners


def _about(
    listeners: Sequence[socket.socket], user_name: str
) -> dict[str, object]:
    """This process, for the ready descriptor."""
    return {
        "pid": os.getpid(),
        "library": "",
        "library_version": "",
        "user": user_name,
        "openflow_port": listeners[0].getsockname()[1],
        "api_port": 0,
    }


def _relay(options: argparse.Namespace) -> NoReturn:
    """Carries switches' connections to a controller of somebody else's."""
    from controller import relay

    _start_log(verbose=True)
    host, port = relay.parsed(options.remote)
    _, user_name = _unprivileged_plane(options)
    try:
        relay.require_listener(host, port)
    except OSError as error:
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "remote",
            f"nobody listens at {options.remote}: {error.strerror or error}",
        ) from None
    listeners = _listeners(options)
    _tell(options.ready_fd, {"ready": True, **_about(listeners, user_name)})
    relay.serve(listeners, host, port)


def _start_log(*, verbose: bool) -> None:
    level = logging.WARNING
    if verbose:
        level = logging.INFO
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _import_rest() -> None:
    # Sockets look it up by name when they first need it.
    import encodings.idna  # noqa: F401

    from controller import api, values

    values.load_adapters(
        values.NetworkSwitches, values.Tenant, api.WaitRequest
    )


def _offer_to_oom_killer() -> None:
    """Makes this process the first to be killed where memory runs short.

    To be called as root: once a process has changed its user, its files in
    /proc are root's.
    """
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(
            "1000", encoding="ascii"
        )


def _run(
    *,
    options: argparse.Namespace,
    app: ModuleType,
    about: dict[str, object],
    listeners: Sequence[socket.socket],
    plane: ControlPlane,
) -> NoReturn:
    """Serves switches and the API."""
    import threading  # not before green threads are in place

    from controller import api

    listener = _listener(options.api_fd, options.api_port, "API")
    about["api_port"] = listener.getsockname()[1]
    app.start_serving(plane, listeners, _switch_users(options))
    serving = threading.Thread(
        target=api.serve,
        args=(listener, api.Api(plane, about), options.token),
        daemon=True,
    )
    serving.start()
    _count_passes(options, app)
    _tell(options.ready_fd, {"ready": True, **about})
    serving.join()
    # The thread has logged why. Native threads of the library would keep the
    # process alive.
    os._exit(EXIT_FAILED)


def _run_own(
    options: argparse.Namespace,
    app: ModuleType,
    about: dict[str, object],
    listeners: Sequence[socket.socket],
) -> NoReturn:
    """Runs a person's applications, unprivileged by now.

    The log has all of what it raises.
    """
    applications: OwnApps = options.app
    # The last line that is surely the launcher's.
    _tell(options.ready_fd, {"executes_app": True, **about})

    def refuse(stack: traceback.StackSummary) -> NoReturn:
        end_start(applications.explained_wait(stack), stack)

    def refuse_busy(stack: traceback.StackSummary) -> NoReturn:
        why = applications.explained_work(stack, options.app_start_s)
        end_start(why, stack)

    def tell(stack: traceback.StackSummary) -> None:
        line = applications.explained_start(stack)
        _tell(options.ready_fd, {"starting": line})

    def end_start(why: str, stack: traceback.StackSummary) -> NoReturn:
        sys.stderr.writelines(stack.format())
        reason = CannotStart(EXIT_BAD_INPUT, "app", why)
        _tell_failure(options.ready_fd, reason)
        # Native threads of the library would keep the process alive.
        os._exit(reason.exit_code)

    try:
        applications.find_packages()
        with start_watch.watched_start(
            options.app_start_s, refuse, refuse_busy, tell
        ):
            pages_port = applications.start(
                app, listeners, _switch_users(options)
            )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it raises what it likes
        traceback.print_exc()
        raise CannotStart(
            EXIT_BAD_INPUT, "app", applications.explained(error)
        ) from None
    about["pages_port"] = pages_port
    _count_passes(options, app)
    _tell(options.ready_fd, {"ready": True, **about})
    # With Ryu, green threads run while the main one sleeps.
    while True:
        app.hub.sleep(3600)


def _count_passes(options: argparse.Namespace, app: ModuleType) -> None:
    """Begins last of all: a thread of the library's would outlive an error."""
    if options.passes_fd is not None:
        app.hub.spawn(pass_for_ever, options.passes_fd, app.hub.sleep)


def _switch_users(options: argparse.Namespace) -> set[int]:
    """The users whose processes may be switches, to this process's own too."""
    return {0, os.getuid(), options.switch_uid}


def _unprivileged_plane(
    options: argparse.Namespace,
) -> tuple[ControlPlane, str]:
    """The control plane from what was saved, with root given up.

    And the name of the user that this process has become.
    """
    from controller.control_plane import ControlPlane
    from controller.saved_state import StateStore
    from controller.values import InvalidValues

    store = None
    user = None
    user_name = _user_name(os.getuid())
    try:
        if os.geteuid() == 0:
            user = unprivileged_user(os.environ)
            if options.uid is not None:
                user = User(str(options.uid), options.uid, options.uid)
            user_name = user.name
        if options.state_dir:
            # As root: the way to it may lead through places that the user
            # cannot enter.
            options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            store = StateStore.at(options.state_dir)
            if user:
                _hand_over(store.descriptor, options.state_dir, user)
        if user:
            drop_inherited_settings()
            become(user)
        # From here on there are no privileges to lose.
        linux.set_no_new_privileges()
        # After the line before: of an unprivileged process the kernel takes
        # a filter only if it can gain nothing by an exec any more.
        refuse_calls()
        if options.exit_with_parent is not None:
            end_with_parent(options.exit_with_parent)
        return ControlPlane(store), user_name
    except (InvalidValues, OSError) as error:
        raise CannotStart(
            EXIT_BAD_INPUT, "bad-state", f"saved state: {error}"
        ) from None


def _openflow_application(library: LibraryName) -> ModuleType:
    """The module `controller.app` on this library, green threads and all."""
    try:
        prepare(library)
        return importlib.import_module("controller.app")
    except (ImportError, AttributeError) as error:
        # The library is there and does not work: with the wrong eventlet, for
        # example.
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "library-missing",
            f"{library} is installed but cannot be imported ({error}): "
            "sudo ./provision.sh install in a checkout, "
            "or choose the other with --library",
        ) from None


def _end(signal_number: int, frame: object) -> NoReturn:
    """Ends at once: there is nothing to finish.

    State files are replaced in one step, and the libraries' native threads
    cannot be stopped.
    """
    del signal_number, frame
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_OK)


def _hand_over(
    descriptor: int,
    directory: Path,
    user: User,
) -> None:
    """Gives the state directory and its files to the user alone."""
    if os.fstat(descriptor).st_uid not in (0, user.uid):
        raise CannotStart(
            EXIT_BAD_INPUT,
            "state-dir",
            f"{directory} belongs to neither root nor {user.name}",
        )
    # First closed to others, last given away: in between nobody but root can
    # exchange a file.
    os.fchmod(descriptor, 0o700)
    for name in sorted(os.listdir(descriptor)):
        os.chown(
            name,
            user.uid,
            user.gid,
            dir_fd=descriptor,
            follow_symlinks=False,
        )
    os.fchown(descriptor, user.uid, user.gid)


def _listener(
    descriptor: int | None, port: int, purpose: str
) -> socket.socket:
    """The socket of the process that started this one; without one a new one.

    Raises CannotStart where the port is taken, or root's.
    """
    if descriptor is not None:
        listener = socket.socket(fileno=descriptor)
        # A controller before this one may have left it otherwise.
        listener.settimeout(None)
        return listener
    try:
        return socket.create_server((LOOPBACK, port), backlog=BACKLOG)
    except OSError as error:
        # Anything else is no matter of the port.
        if error.errno == errno.EADDRINUSE:
            reason = "is taken"
        elif error.errno == errno.EACCES:
            reason = "is reserved for root"
        else:
            raise
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "port-taken",
            f"port {port} on {LOOPBACK}, wanted for {purpose}, {reason}; "
            f"`ss -ltnp sport = :{port}` shows by whom, "
            f"--{purpose.lower()}-port chooses another",
            port,
        ) from None


def _tell(
    descriptor: int,
    message: dict[str, object],
) -> None:
    """Writes one line of JSON for the parent process."""
    line = (json.dumps(message) + "\n").encode()
    try:
        # Not by `os`, whose functions are green ones under Ryu: a signal's
        # handler writes here, too.
        with io.FileIO(descriptor, "wb", closefd=False) as ready:
            ready.write(line)
    except OSError as error:
        print(
            f"hosenet controller: nobody listens for its start: {error}",
            file=sys.stderr,
        )


# -- command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controller.launch",
        description="Hosenet's controller. It listens on loopback only and "
        "needs no privileges: started by root, it becomes the user who called "
        "sudo, or nobody.",
    )
    _add_listening_options(parser)
    _add_running_options(parser)
    return parser


def _add_listening_options(parser: argparse.ArgumentParser) -> None:
    any_port = "(default %(default)s; 0: any free port)"
    parser.add_argument(
        "--openflow-port",
        type=int,
        default=OPENFLOW_PORT,
        help=f"where switches connect {any_port}",
    )
    parser.add_argument(
        "--api-port",
        type=int,
        default=API_PORT,
        help=f"where the HTTP API listens {any_port}",
    )
    parser.add_argument(
        "--listen-fd",
        type=int,
        metavar="FD",
        help="an inherited socket that listens for switches, "
        "in place of --openflow-port",
    )
    parser.add_argument(
        "--api-fd",
        type=int,
        metavar="FD",
        help="an inherited socket that listens for the API, "
        "in place of --api-port",
    )
    parser.add_argument(
        "--openflow-fd",
        type=int,
        action="append",
        default=[],
        metavar="FD",
        help="an inherited unix socket that listens for switches too",
    )
    parser.add_argument(
        "--switch-uid",
        type=int,
        default=0,
        metavar="UID",
        help="the user of the machine's Open vSwitch (default: root)",
    )


def _add_running_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--library",
        default=None,
        choices=("auto", "ryu", "os-ken"),
        help="which OpenFlow library "
        "(default: HOSENET_CONTROLLER_LIBRARY, else what is there)",
    )
    parser.add_argument(
        "--app",
        action="append",
        metavar="FILE|MODULE",
        help="run this Ryu or os-ken application, a path with a slash or a "
        "module's name, in place of ours; may be repeated; there is no API then",
    )
    parser.add_argument(
        "--app-start-s",
        type=float,
        default=start_watch.MOST_S,
        metavar="SECONDS",
        help="refuse an application whose start takes more of a processor",
    )
    parser.add_argument(
        "--app-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="an argument for the library, such as "
        "--app-option=--observe-links; may be repeated",
    )
    parser.add_argument(
        "--app-python",
        metavar="FILE",
        help="a Python interpreter whose packages applications may import",
    )
    parser.add_argument(
        "--remote",
        metavar="tcp:HOST:PORT",
        help="carry switches' connections to the controller that listens "
        "there, in place of ours; there is no API then",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help="a file of mode 0600 with the API's token "
        f"(default: the variable {TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        help="a directory of its own where the desired state outlives a "
        "restart",
    )
    parser.add_argument(
        "--ready-fd",
        type=int,
        default=1,
        help="the descriptor that gets one line of JSON once both ports "
        "listen (default: stdout)",
    )
    parser.add_argument(
        "--passes-fd",
        type=int,
        metavar="FD",
        help="an inherited file in which passes of the loop are counted",
    )
    parser.add_argument(
        "--exit-with-parent",
        type=int,
        metavar="PID",
        help="end when the process PID that starts this one ends",
    )
    parser.add_argument(
        "--uid",
        type=int,
        help="started by root, become this user and group "
        "in place of the user who called sudo",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="log connections, too"
    )


def _check(options: argparse.Namespace) -> None:
    """Checks the command line; completes it with the library and the token."""
    for name in ("openflow_port", "api_port"):
        if not 0 <= getattr(options, name) <= 65535:
            option = "--" + name.replace("_", "-")
            raise CannotStart(
                EXIT_BAD_INPUT, "usage", f"{option} is not within 0..65535"
            )
    if options.remote is None:
        _choose_library(options)
    options.token = ""
    if options.app is None and options.remote is None:
        options.token = _token(options.token_file)


def _choose_library(options: argparse.Namespace) -> None:
    """Reads a person's application, which may import either library."""
    try:
        if options.app is None:
            options.library = choose_library(options.library)
        else:
            options.app = OwnApps.read(
                options.app, options.app_option, options.app_python
            )
            options.library = options.app.library(options.library)
    except LibraryMissing as error:
        raise CannotStart(
            EXIT_MACHINE_CANNOT, "library-missing", str(error)
        ) from None
    except (OSError, SyntaxError, ValueError) as error:
        raise CannotStart(EXIT_BAD_INPUT, "app", str(error)) from None


def _token(path: Path | None) -> str:
    if path is None:
        # Out of the environment, which child processes inherit.
        token = os.environ.pop(TOKEN_VARIABLE, "")
        origin = TOKEN_VARIABLE
    else:
        token = _token_in(path)
        origin = str(path)
    printable = token.isascii() and token.isprintable()
    if len(token) < TOKEN_LENGTH_MIN or not printable:
        raise _no_token(
            f"{origin} has no token of at least {TOKEN_LENGTH_MIN} "
            "printable characters"
        )
    return token


def _token_in(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            # Of the open file: the path may lead to another a moment later.
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise _no_token(
                    f"{path} is open to others: chmod 600 {path}"
                )
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _no_token(f"token file: {error}") from None


def _no_token(message: str) -> CannotStart:
    return CannotStart(EXIT_BAD_INPUT, "token", message)


# -- privileges


@dataclass(frozen=True)
class User:
    """An unprivileged user."""

    name: str
    uid: int
    gid: int


def unprivileged_user(environment: Mapping[str, str]) -> User:
    """The user who called sudo; `nobody` if that was root, or without sudo."""
    try:
        uid = int(environment.get("SUDO_UID", "0"))
        gid = int(environment.get("SUDO_GID", "0"))
    except ValueError:
        uid = gid = 0
    if uid > 0 and gid > 0:
        return User(_user_name(uid), uid, gid)
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "no-user",
            "there is no user 'nobody' to run the controller as; "
            "start it as a user other than root",
        ) from None
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def become(user: User) -> None:
    """Turns this process, which is root's, into `user`'s for good.

    All ids, no other groups, no way back.
    """
    # In this order: without root's uid, groups can no longer be changed.
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if (
        os.getresuid() != (user.uid,) * 3
        or os.getresgid() != (user.gid,) * 3
    ):
        raise PermissionError(f"could not become {user.name}")


def end_with_parent(parent_pid: int) -> None:
    """Has the kernel send SIGTERM when the parent ends, or has ended already.

    To be called after `become`, as the kernel forgets the request when the user
    changes. "Parent" is to the kernel the *thread* that started this process:
    start it from one that stays.
    """
    # In this order: a parent that ends in between is seen by its absence.
    linux.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run_controller())
