"""Processes in the VMs of a network that stays up, started by whoever asks for
them.

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
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.pseudo_terminal import (
    ProgramStreams,
    end_program,
    run_apart,
)
from testbed.errors import BadInput, RunFailed

HOSTS = Path("/etc/hosts")
# Of a namespace: who may ping without privileges, by group.
PINGING = Path("/proc/sys/net/ipv4/ping_group_range")
# Of a caller's variables; docs/standing-network.md lists them.
HANDED_DOWN = re.compile(
    "PATH|TERM|COLORTERM|NO_COLOR|LANG|LANGUAGE|LC_.*|TZ"
)
NOBODY = User("nobody", 65534, 65534)
# Of a pipe that nobody has made larger than users may.
LARGEST_PIPE_BYTES = 1 << 20
SIGNAL_EXIT = 128
"""Plus the number of the signal, as shells count."""


@dataclass(frozen=True)
class VmPlace:
    """A tenant's VM by name (``a.0``), and all that a process needs to get into
    it.

    ``netns`` is a path, ``cgroups`` are the files to join its control group by,
    ``hosts`` is the file that it finds at ``/etc/hosts``, ``user`` its user.
    ``folder`` and ``mounts`` are those of :mod:`jobs.vm_folders`, which hold
    ``shared_bytes``; without, it has the machine's ``/tmp`` and ``/run``. ``host``:
    the name that the topology gives its slot.
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
    """Turn this process into one of a VM's, which ends with its parent. Raises
    OSError.

    ``shown``: paths of the machine that it is to find, beside its working
    directory.
    """
    for group in place.cgroups:
        Path(group).write_text("0", encoding="ascii")
    linux.enter_network_namespace(place.netns)
    PINGING.write_text("0 2147483647", encoding="ascii")
    here = working_directory()
    if place.folder:
        enter_mounts(place.folder, place.shared_bytes, place.mounts)
    else:
        linux.own_mounts()
    if HOSTS.exists():
        linux.bind(place.hosts, str(HOSTS))
    if place.folder:
        replace_machines(place.folder, [here, *shown])
    else:
        linux.own_shared_memory(place.shared_bytes)
        linux.show_own_queues()
    if linux.hides_processes():
        # A container may not allow it: its processes are few.
        with suppress(OSError):
            linux.hide_processes()
    drop_inherited_settings()
    # The bounding set stays: without it the kernel does not run `ping` at all,
    # whose file has capabilities. no_new_privs withholds them.
    become(place.user)
    linux.set_no_new_privileges()
    refuse_calls()
    linux.set_parent_death_signal(signal.SIGKILL)
    # By its name: the mounts are others than before.
    os.chdir("/")
    if os.access(here, os.X_OK):
        os.chdir(here)


def program_environment(
    place: VmPlace, caller: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a program in a VM: those of its user and VM, and the few
    of its caller's that are no secrets.
    """
    names = [name for name in caller if HANDED_DOWN.fullmatch(name)]
    handed_down = {name: caller[name] for name in names}
    home = "/"
    user = place.user
    with suppress(KeyError):
        home = pwd.getpwuid(user.uid).pw_dir
    own = {"HOME": home, "USER": user.name, "LOGNAME": user.name}
    vm = {"HOSENET_VM": place.name, "HOSENET_IP": place.ip}
    return {"PATH": os.defpath} | handed_down | own | vm


def run_program(
    place: VmPlace, argv: Sequence[str], **variables: str
) -> int:
    """Run a program in a VM with this process's streams, but never its
    terminal.

    Returns its exit code, as shells count. Raises as :func:`start_process`
    does.
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
    """A process in a VM and a session of its own, which ends with this one.

    Of this one's descriptors it has those of ``streams`` alone. Raises
    RunFailed, BadInput.
    """
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, errors="replace") as why,
        os.fdopen(writing, "w") as trouble,
    ):
        shown = paths_in(argv)
        begin = partial(_begin, place, shown, streams.terminal, writing)
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
                    # No thread of this program has a lock that it needs.
                    preexec_fn=begin,  # noqa: PLW1509
                )
        except subprocess.SubprocessError as error:
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
    place: VmPlace, shown: Sequence[str], terminal: int | None, trouble: int
) -> None:
    """In the child: its terminal, and its place. What fails is also written to
    ``trouble``: of an exception ``Popen`` tells no more than that there was one.
    """
    try:
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        enter(place, shown)
    except OSError as error:
        os.write(trouble, str(error).encode())
        raise


def shell_code(code: int) -> int:
    """An exit code as shells count it, of one as ``Popen`` has it."""
    return SIGNAL_EXIT - code if code < 0 else code


@contextmanager
def started(
    commands: Iterable[Command], stderr: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs in VMs, their output to be read, which end with the block."""
    children: list[subprocess.Popen[bytes]] = []
    streams = ProgramStreams(subprocess.DEVNULL, subprocess.PIPE, stderr)
    try:
        for place, argv in commands:
            children.append(start_process(place, argv, streams))
        yield children
    finally:
        for child in children:
            # Ctrl-C does not come to its session.
            end_program(child)
        for child in children:
            with child:  # closes what is read from it
                pass


def run_in_each(
    places: Sequence[VmPlace],
    argv: Sequence[str],
    say: Callable[[str, bytes], object],
) -> int:
    """Run a command in every VM at once; returns the worst exit code.

    ``say`` is called with ``stdout`` or ``stderr`` and each line of output,
    which begins with the VM's name. It ends with the command: what that leaves
    in the background continues, and its output is shown no longer. Raises as
    :func:`start_process` does, and ends those that have begun.
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
        """Returns when all programs have ended, with all that they have said."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                # Those of a program that has ended are gone meanwhile.
                if key.fd in self._selector.get_map():
                    key.data()

    def _watch(self, number: int, act: Callable[[], object]) -> None:
        self._selector.register(number, selectors.EVENT_READ, act)

    def _read(self, stream: _LabelledLines) -> None:
        if not stream.pass_on(self._say):
            self._selector.unregister(stream.number)

    def _end(self, ended: int, streams: Sequence[_LabelledLines]) -> None:
        """The rest of a program's output. What it has left in the background
        may hold the pipe open for ever.
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
    """A stream whose lines are said with a label."""

    def __init__(self, number: int, kind: str, label: bytes) -> None:
        self.number = number
        self._kind = kind
        self._label = label
        self._rest = b""

    def pass_on(self, say: Callable[[str, bytes], object]) -> bool:
        """Says whole lines of what is there; at the end the rest, and False."""
        data = os.read(self.number, LARGEST_PIPE_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            say(self._kind, self._label + line + b"\n")
        if not data:
            self.finish(say)
        return bool(data)

    def finish(self, say: Callable[[str, bytes], object]) -> None:
        """Says a last line that has no end."""
        if self._rest:
            say(self._kind, self._label + self._rest + b"\n")
            self._rest = b""
