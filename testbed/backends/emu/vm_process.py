"""Processes in VMs of a network that stays up, started by a caller's command.

A process joins its VM's control group and network namespace, finds the VMs'
names in its own ``/etc/hosts``, and gives up root for good, as agents do. The
network's keeper knows nothing of it: removing the tenant ends whatever is in
its control groups.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import selectors
import signal
import subprocess
import termios
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from controller.launch import User, become
from jobs import linux
from jobs.call_filter import refuse_calls
from jobs.inherited_settings import drop_inherited_settings
from jobs.vm_folders import (
    enter_mounts,
    paths_in,
    replace_machines,
    working_directory,
)
from jobs.vm_names import HOSTS
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.pseudo_terminal import (
    ProgramStreams,
    end_program,
    run_apart,
)
from testbed.errors import BadInput, RunFailed

# Groups that may ping without privileges, a setting of each namespace.
PINGING = Path("/proc/sys/net/ipv4/ping_group_range")
# Variables of the caller that a program gets; docs/standing-network.md lists
# them.
HANDED_DOWN = re.compile(
    "PATH|TERM|COLORTERM|NO_COLOR|LANG|LANGUAGE|LC_.*|TZ"
)
NOBODY = User("nobody", 65534, 65534)
# The most that a user may give a pipe (fs.pipe-max-size).
LARGEST_PIPE_BYTES = 1 << 20
SIGNAL_EXIT = 128
"""Exit code of a program that a signal ended, less the signal's number."""


@dataclass(frozen=True)
class VmPlace:
    """A tenant's VM by name (``a.0``), and how a process gets into it.

    - ``netns``: path of its network namespace.
    - ``cgroups``: files by which a process joins its control groups.
    - ``hosts``: file that it finds at ``/etc/hosts``.
    - ``folder``, ``mounts``: those of :mod:`jobs.vm_folders`, which hold
      ``shared_bytes``. Empty: it has the machine's ``/tmp`` and ``/run``.
    - ``host``: the topology's name for its slot.
    """

    name: str
    server: str
    ip: str
    netns: str
    cgroups: tuple[str, ...]
    hosts: str
    user: User = NOBODY
    shared_bytes: int = 64 << 20
    host: str = ""
    folder: str = ""
    mounts: str = ""


Command = tuple[VmPlace, Sequence[str]]


def enter(place: VmPlace, shown: Sequence[str] = ()) -> None:
    """Turns this process into one of a VM's, which ends with its parent.

    ``shown``: the machine's paths that it is to see, beside its working
    directory. The order matters: joining groups and namespaces, and mounting,
    need root, which is given up last. Raises OSError.
    """
    for group in place.cgroups:
        Path(group).write_text("0", encoding="ascii")
    linux.enter_network_namespace(place.netns)
    # A new namespace's range is empty: nobody may ping.
    PINGING.write_text("0 2147483647", encoding="ascii")
    directory = working_directory()
    if place.folder:
        enter_mounts(place.folder, place.shared_bytes, place.mounts)
    else:
        linux.own_mounts()
    if HOSTS.exists():
        linux.bind(place.hosts, str(HOSTS))
    if place.folder:
        replace_machines(place.folder, [directory, *shown])
    else:
        linux.own_shared_memory(place.shared_bytes)
        linux.show_own_queues()
    if linux.hides_processes():
        # A container may not allow it, and has few processes to hide.
        with suppress(OSError):
            linux.hide_processes()
    drop_inherited_settings()
    # The capability bounding set stays: with an empty one the kernel refuses to
    # execute `ping`, whose file has capabilities. no_new_privs withholds them.
    become(place.user)
    linux.set_no_new_privileges()
    refuse_calls()
    linux.set_parent_death_signal(signal.SIGKILL)
    # The old working directory is on mounts that are no longer there; its name
    # leads to the new ones.
    os.chdir("/")
    if os.access(directory, os.X_OK):
        os.chdir(directory)


def program_environment(
    place: VmPlace, caller: Mapping[str, str]
) -> dict[str, str]:
    """Environment of a program in a VM.

    Variables of its user and VM, and those of the caller that HANDED_DOWN
    allows: none that may hold a secret.
    """
    names = [name for name in caller if HANDED_DOWN.fullmatch(name)]
    handed_down = {name: caller[name] for name in names}
    home = "/"
    user = place.user
    with suppress(KeyError):
        home = pwd.getpwuid(user.uid).pw_dir
    of_user = {"HOME": home, "USER": user.name, "LOGNAME": user.name}
    of_vm = {"HOSENET_VM": place.name, "HOSENET_IP": place.ip}
    return {"PATH": os.defpath} | handed_down | of_user | of_vm


def run_program(
    place: VmPlace,
    argv: Sequence[str],
    **variables: str,
) -> int:
    """Runs a program in a VM with this process's streams, but not its terminal.

    Returns its exit code, as shells count. Raises RunFailed, BadInput.
    """

    def start(streams: ProgramStreams) -> subprocess.Popen[bytes]:
        return start_process(place, argv, streams, **variables)

    return shell_code(run_apart(start))


def start_process(
    place: VmPlace,
    argv: Sequence[str],
    streams: ProgramStreams,
    **variables: str,
) -> subprocess.Popen[bytes]:
    """Starts a process in a VM, in a new session; it ends with this process.

    It inherits only the descriptors of ``streams``. Raises RunFailed, BadInput.
    """
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, errors="replace") as why,
        os.fdopen(writing, "w") as trouble,
    ):
        shown = paths_in(argv)
        begin = partial(
            _begin,
            place,
            shown=shown,
            terminal=streams.terminal,
            trouble=writing,
        )
        try:
            # With a preexec_fn Python would lose a Ctrl-C while it forks.
            with uninterrupted():
                return subprocess.Popen(
                    argv,
                    stdin=streams.stdin,
                    stdout=streams.stdout,
                    stderr=streams.stderr,
                    env=program_environment(place, os.environ) | variables,
                    start_new_session=True,
                    # No thread of this process holds a lock that begin needs.
                    preexec_fn=begin,  # noqa: PLW1509
                )
        except subprocess.SubprocessError as error:
            # The reading below ends only when no end for writing is open.
            trouble.close()
            raise RunFailed(
                f"VM {place.name} cannot be entered: {why.read() or error}",
                "sudo testbed tenant list",
            ) from error
        except OSError as error:
            raise BadInput(
                f"cannot run {argv[0]!r}: {error.strerror}"
            ) from error


def _begin(
    place: VmPlace,
    shown: Sequence[str],
    terminal: int | None,
    trouble: int,
) -> None:
    """In the child: take the terminal, and enter the VM.

    An error's text is also written to ``trouble``, since ``Popen`` reports only
    that preexec_fn failed.
    """
    try:
        if terminal is not None:
            # Only a session's leader may take a terminal, and only while the
            # session has none: so it is in this child (start_new_session).
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        enter(place, shown)
    except OSError as error:
        os.write(trouble, str(error).encode())
        raise


def shell_code(code: int) -> int:
    """A ``Popen`` return code as shells count it: 128 + N for signal N."""
    return SIGNAL_EXIT - code if code < 0 else code


@contextmanager
def started(
    commands: Iterable[Command], stderr: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts programs in VMs, with output by pipes; they end with the block."""
    children: list[subprocess.Popen[bytes]] = []
    streams = ProgramStreams(subprocess.DEVNULL, subprocess.PIPE, stderr)
    try:
        for place, argv in commands:
            children.append(start_process(place, argv, streams))
        yield children
    finally:
        for child in children:
            # In its own session it does not get the terminal's Ctrl-C.
            end_program(child)
        for child in children:
            # Closes the pipes.
            with child:
                pass


def run_in_each(
    places: Sequence[VmPlace],
    argv: Sequence[str],
    say: Callable[[str, bytes], object],
) -> int:
    """Runs a command in every VM at once; returns the worst exit code.

    ``say`` is called with ``stdout`` or ``stderr`` and each line of output,
    preceded by the VM's name. Programs that a command leaves in the background
    continue, but their output is no longer shown. Raises RunFailed and
    BadInput, after ending the commands that have started.
    """
    commands = [(place, argv) for place in places]
    with started(commands, subprocess.PIPE) as children:
        with ExitStack() as stack:
            outputs = _Outputs(stack, say)
            for place, child in zip(places, children, strict=True):
                outputs.add(place.name, child)
            outputs.pass_on()
        return max(shell_code(child.wait()) for child in children)


class _Outputs:
    """Output of several programs, line by line, until each has ended."""

    def __init__(
        self, stack: ExitStack, say: Callable[[str, bytes], object]
    ) -> None:
        self._stack = stack
        self._say = say
        self._selector = stack.enter_context(selectors.DefaultSelector())

    def add(self, name: str, child: subprocess.Popen[bytes]) -> None:
        """Follows the output of a program in the VM ``name``."""
        streams = []
        for kind, file in (
            ("stdout", child.stdout),
            ("stderr", child.stderr),
        ):
            assert file is not None  # noqa: S101 - both are pipes
            stream = _LabelledLines(
                file.fileno(), kind, f"{name}: ".encode()
            )
            self._watch(file.fileno(), partial(self._read, stream))
            streams.append(stream)
        ended = os.pidfd_open(child.pid)
        self._stack.callback(os.close, ended)
        self._watch(ended, partial(self._end, ended, streams))

    def pass_on(self) -> None:
        """Passes output on until all programs have ended."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                # The end of a program, handled just before, removes its streams.
                if key.fd in self._selector.get_map():
                    key.data()

    def _watch(self, number: int, act: Callable[[], object]) -> None:
        self._selector.register(number, selectors.EVENT_READ, act)

    def _read(self, stream: _LabelledLines) -> None:
        if not stream.pass_on(self._say):
            self._selector.unregister(stream.number)

    def _end(self, ended: int, streams: Sequence[_LabelledLines]) -> None:
        """Passes on the rest of an ended program's output.

        Without waiting for the pipe's end: programs left in the background may
        keep it open for ever.
        """
        self._selector.unregister(ended)
        for stream in streams:
            if stream.number in self._selector.get_map():
                self._selector.unregister(stream.number)
                os.set_blocking(stream.number, False)
                with suppress(BlockingIOError):
                    stream.pass_on(self._say)
                stream.finish(self._say)


class _LabelledLines:
    """A stream whose lines are passed on with a label."""

    def __init__(
        self,
        number: int,
        kind: str,
        label: bytes,
    ) -> None:
        self.number = number
        self._kind = kind
        self._label = label
        self._rest = b""

    def pass_on(self, say: Callable[[str, bytes], object]) -> bool:
        """Reads once and passes on whole lines; returns False at the stream's end."""
        data = os.read(self.number, LARGEST_PIPE_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            say(self._kind, self._label + line + b"\n")
        if not data:
            self.finish(say)
        return bool(data)

    def finish(self, say: Callable[[str, bytes], object]) -> None:
        """Passes on a last line that does not end with a newline."""
        if self._rest:
            say(self._kind, self._label + self._rest + b"\n")
            self._rest = b""
