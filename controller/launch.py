"""Start the controller: `python -m controller.launch`.

One launcher for both libraries. It puts green threads in place if the library
needs them, imports everything, gives up root, opens its two sockets on
loopback, writes on the ready descriptor that they listen, and serves until
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
    """A failed start.

    `error` is a fixed word for the parent process, and the message is for
    people. `port` is the one that could not be opened, if any.
    """

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
    """Runs the controller until a signal ends the process.

    Returns only if the start fails, with the exit code.
    """
    parsed = _parser().parse_args()
    try:
        _check(parsed)
        # From here on, a signal ends the process with EXIT_OK.
        signal.signal(signal.SIGTERM, _exit_on_signal)
        signal.signal(signal.SIGINT, _exit_on_signal)
        _serve(parsed)
    except CannotStart as reason:
        _report_failure(parsed.ready_fd, reason)
        return reason.exit_code


def _report_failure(ready: int, reason: CannotStart) -> None:
    record = {
        "ready": False,
        "error": reason.error,
        "port": reason.port,
        "message": str(reason),
    }
    _report(ready, record)
    print(f"hosenet controller: {reason}", file=sys.stderr)


def _serve(options: argparse.Namespace) -> NoReturn:
    if options.remote is not None:
        _relay(options)
    # Everything is imported before root is given up: the user that this process
    # becomes may have no access to the files.
    app = _openflow_application(options.library)
    if options.app is not None:
        options.app.import_library(app)
        _offer_to_oom_killer()
    _import_rest()
    _start_log(verbose=options.verbose or options.app is not None)
    # As many open files as allowed: a network has hundreds of switches.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    # Imported here: every program that enters a VM imports this module, and
    # few need the version.
    from importlib.metadata import version

    # Read before root is given up, for the same reason as the imports.
    library_version = version(options.library)
    plane, user_name = _unprivileged_plane(options)
    listeners = _listeners(options)
    facts = _process_facts(listeners, user_name)
    facts["library"] = options.library
    facts["library_version"] = library_version
    if options.app is not None:
        _run_applications(options, app, facts, listeners)
    _run(
        options=options,
        app=app,
        facts=facts,
        listeners=listeners,
        plane=plane,
    )


def _listeners(options: argparse.Namespace) -> list[socket.socket]:
    """Sockets that listen for switches: the TCP socket, then the unix ones."""
    listeners = [
        _listener(options.listen_fd, options.openflow_port, "OpenFlow")
    ]
    for descriptor in options.openflow_fd:
        listeners.append(socket.socket(fileno=descriptor))
    return listeners


def _process_facts(
    listeners: Sequence[socket.socket], user_name: str
) -> dict[str, object]:
    """Facts on this process, for the ready descriptor and the API."""
    return {
        "pid": os.getpid(),
        "library": "",
        "library_version": "",
        "user": user_name,
        "openflow_port": listeners[0].getsockname()[1],
        "api_port": 0,
    }


def _relay(options: argparse.Namespace) -> NoReturn:
    """Carries switches' connections to the controller at `--remote`."""
    from controller import relay

    _start_log(verbose=True)
    try:
        host, port = relay.parsed(options.remote)
    except ValueError:
        raise CannotStart(
            EXIT_BAD_INPUT,
            "usage",
            f"--remote {options.remote} is not tcp:HOST:PORT",
        ) from None
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
    _report(
        options.ready_fd,
        {"ready": True, **_process_facts(listeners, user_name)},
    )
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
    # The socket module imports it only when it first resolves a name.
    import encodings.idna  # noqa: F401

    from controller import api, values

    values.load_adapters(
        values.NetworkSwitches, values.Tenant, api.WaitRequest
    )


def _offer_to_oom_killer() -> None:
    """Makes this process the first to be killed when memory runs short.

    Has to be called as root: once a process has changed its user, its files
    in /proc belong to root.
    """
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(
            "1000", encoding="ascii"
        )


def _run(
    *,
    options: argparse.Namespace,
    app: ModuleType,
    facts: dict[str, object],
    listeners: Sequence[socket.socket],
    plane: ControlPlane,
) -> NoReturn:
    """Serves switches and the API."""
    # Imported here, after green threads are in place.
    import threading

    from controller import api

    listener = _listener(options.api_fd, options.api_port, "API")
    facts["api_port"] = listener.getsockname()[1]
    app.start_serving(plane, listeners, _switch_users(options))
    serving = threading.Thread(
        target=api.serve,
        args=(listener, api.Api(plane, facts), options.token),
        daemon=True,
    )
    serving.start()
    _start_counting_passes(options, app)
    _report(options.ready_fd, {"ready": True, **facts})
    serving.join()
    # The API's thread has logged why it ended. `sys.exit` would wait for native
    # threads of the library.
    os._exit(EXIT_FAILED)


def _run_applications(
    options: argparse.Namespace,
    app: ModuleType,
    facts: dict[str, object],
    listeners: Sequence[socket.socket],
) -> NoReturn:
    """Runs the applications of `--app`; this process is unprivileged by now.

    Exceptions of their start are printed in full. Raises CannotStart, which
    names the line.
    """
    applications: OwnApps = options.app
    # After this line, applications may write to the descriptor too.
    _report(options.ready_fd, {"executes_app": True, **facts})

    def end_start(why: str, stack: traceback.StackSummary) -> NoReturn:
        sys.stderr.writelines(stack.format())
        reason = CannotStart(EXIT_BAD_INPUT, "app", why)
        _report_failure(options.ready_fd, reason)
        # `sys.exit` would wait for native threads of the library.
        os._exit(reason.exit_code)

    def refuse_waiting(stack: traceback.StackSummary) -> NoReturn:
        end_start(applications.explained_wait(stack), stack)

    def refuse_busy(stack: traceback.StackSummary) -> NoReturn:
        why = applications.explained_work(stack, options.app_start_s)
        end_start(why, stack)

    def report_line(stack: traceback.StackSummary) -> None:
        line = applications.explained_start(stack)
        _report(options.ready_fd, {"starting": line})

    try:
        applications.find_packages()
        with start_watch.watched_start(
            options.app_start_s, refuse_waiting, refuse_busy, report_line
        ):
            pages_port = applications.start(
                app, listeners, _switch_users(options)
            )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code
        traceback.print_exc()
        raise CannotStart(
            EXIT_BAD_INPUT, "app", applications.explained(error)
        ) from None
    facts["pages_port"] = pages_port
    _start_counting_passes(options, app)
    _report(options.ready_fd, {"ready": True, **facts})
    # With Ryu, green threads run while the main one sleeps.
    while True:
        app.hub.sleep(3600)


def _start_counting_passes(
    options: argparse.Namespace, app: ModuleType
) -> None:
    """Counts passes of the library's loop from now on, if asked to.

    Has to be called after all that may raise: the library's thread would keep
    the process alive.
    """
    if options.passes_fd is not None:
        app.hub.spawn(pass_for_ever, options.passes_fd, app.hub.sleep)


def _switch_users(options: argparse.Namespace) -> set[int]:
    """User ids whose processes may connect as switches, this process's too."""
    return {0, os.getuid(), options.switch_uid}


def _unprivileged_plane(
    options: argparse.Namespace,
) -> tuple[ControlPlane, str]:
    """Gives up root and loads the saved state.

    Returns the control plane and the name of the user that this process has
    become.
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
            # As root: the user may have no access to the directories above.
            options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            store = StateStore.at(options.state_dir)
            if user:
                _give_state_directory(
                    store.descriptor, options.state_dir, user
                )
        _give_up_root(options, user)
        return ControlPlane(store), user_name
    except (InvalidValues, OSError) as error:
        raise CannotStart(
            EXIT_BAD_INPUT, "bad-state", f"saved state: {error}"
        ) from None


def _give_up_root(options: argparse.Namespace, user: User | None) -> None:
    """Becomes ``user``, without a way back, and refuses system calls."""
    try:
        if user:
            drop_inherited_settings()
            become(user)
        linux.set_no_new_privileges()
        # In this order: from an unprivileged process the kernel accepts a
        # filter only once no exec can give it privileges.
        refuse_calls()
        if options.exit_with_parent is not None:
            end_with_parent(options.exit_with_parent)
    except OSError as error:
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "privileges",
            f"privileges cannot be given up: {error}",
        ) from None


def _openflow_application(library: LibraryName) -> ModuleType:
    """Prepares the library and imports `controller.app` on it."""
    try:
        prepare(library)
        return importlib.import_module("controller.app")
    except (ImportError, AttributeError) as error:
        # The library is installed but broken, for example by the version of
        # its eventlet.
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "library-missing",
            f"{library} is installed but cannot be imported ({error}): "
            "sudo ./provision.sh install in a checkout, "
            "or choose the other with --library",
        ) from None


def _exit_on_signal(signal_number: int, frame: object) -> NoReturn:
    """Ends the process at once.

    Nothing is left half written, as state files are replaced in one step. The
    libraries' native threads cannot be stopped in another way.
    """
    del signal_number, frame
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # In any case: the disk of a log may be full.
        os._exit(EXIT_OK)


def _give_state_directory(
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
    # Closed to others first and given to the user last, so that nobody but root
    # can exchange a file in between.
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
    """The inherited socket; without a descriptor, a new one at the port.

    Raises CannotStart if the port is taken or reserved for root.
    """
    if descriptor is not None:
        listener = socket.socket(fileno=descriptor)
        # An earlier controller may have left the shared socket non-blocking.
        listener.settimeout(None)
        return listener
    try:
        return socket.create_server((LOOPBACK, port), backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = "is taken"
        elif error.errno == errno.EACCES:
            reason = "is reserved for root"
        else:
            # No other error concerns the port.
            raise
        raise CannotStart(
            EXIT_MACHINE_CANNOT,
            "port-taken",
            f"port {port} on {LOOPBACK}, wanted for {purpose}, {reason}; "
            f"`ss -ltnp sport = :{port}` shows by whom, "
            f"--{purpose.lower()}-port chooses another",
            port,
        ) from None


def _report(
    descriptor: int,
    message: dict[str, object],
) -> None:
    """Writes one line of JSON for the parent process."""
    line = (json.dumps(message) + "\n").encode()
    try:
        # Not by `os`: under Ryu its functions switch green threads, which a
        # signal's handler must not do.
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
    """Checks the command line; sets its library, applications and token."""
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
    """Sets the library; with `--app`, by the applications' imports.

    Replaces the names in `options.app` by the applications.
    """
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
        # Removed, as child processes inherit the environment.
        token = os.environ.pop(TOKEN_VARIABLE, "")
        origin = TOKEN_VARIABLE
    else:
        token = _token_in(path)
        origin = str(path)
    printable = token.isascii() and token.isprintable()
    if len(token) < TOKEN_LENGTH_MIN or not printable:
        raise _unusable_token(
            f"{origin} has no token of at least {TOKEN_LENGTH_MIN} "
            "printable characters"
        )
    return token


def _token_in(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            # By the open file, as the path may lead to another file by now.
            status = os.fstat(file.fileno())
            # In a shared folder another user can make the file first, with a
            # token of his choice.
            if status.st_uid not in _own_uids():
                raise _unusable_token(
                    f"{path} belongs to {_user_name(status.st_uid)}, who knows"
                    " the token: name a file of your own"
                )
            if status.st_mode & 0o077:
                raise _unusable_token(
                    f"{path} is open to others: chmod 600 {path}"
                )
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable_token(f"token file: {error}") from None


def _own_uids() -> set[int]:
    """This process's user, and the one who called sudo if that is root."""
    uids = {os.geteuid()}
    if os.geteuid() == 0:
        with suppress(KeyError, ValueError):
            uids.add(int(os.environ["SUDO_UID"]))
    return uids


def _unusable_token(message: str) -> CannotStart:
    return CannotStart(EXIT_BAD_INPUT, "token", message)


# -- privileges


@dataclass(frozen=True)
class User:
    """An unprivileged user."""

    name: str
    uid: int
    gid: int


def unprivileged_user(environment: Mapping[str, str]) -> User:
    """The user who called sudo; `nobody` without sudo or if root called it."""
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
    """Changes the user of this process, which is root, for good.

    Sets the real, effective and saved ids and drops all other groups. Raises
    PermissionError if the kernel has not done so.
    """
    # Groups first, as only root may change them.
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if (
        os.getresuid() != (user.uid,) * 3
        or os.getresgid() != (user.gid,) * 3
    ):
        raise PermissionError(f"could not become {user.name}")


def end_with_parent(parent_pid: int) -> None:
    """Has SIGTERM sent to this process when its parent ends.

    Has to be called after `become`, as the kernel drops the request when the
    user changes. To the kernel, the parent is the *thread* that started this
    process, which therefore has to live as long as the controller.
    """
    # Request first, then check: a parent that ended before the request is no
    # longer the parent.
    linux.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run_controller())
