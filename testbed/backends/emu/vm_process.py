"""Processes in the VMs of a network that stays up, started by whoever asks for
them.

A process joins its VM's control group and network namespace, finds the VMs'
names in its own ``/etc/hosts``, and gives up root for good, as agents do. The
network's keeper knows nothing of it: removing the tenant ends whatever is in
its control groups.
"""

from __future__ import annotations

import os
import pwd
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from controller.launch import User, become, unprivileged_user
from jobs import linux
from testbed.backends.emu.interrupts import uninterrupted
from testbed.errors import BadInput, RunFailed

HOSTS = Path("/etc/hosts")
# Of a namespace: who may ping without privileges, by group.
PINGING = Path("/proc/sys/net/ipv4/ping_group_range")
SIGNAL_EXIT = 128
"""Plus the number of the signal, as shells count."""


@dataclass(frozen=True)
class VmPlace:
    """A tenant's VM by name (``a.0``), and all that a process needs to get into
    it.

    ``netns`` is a path, ``cgroups`` are the files to join its control group by,
    ``hosts`` is the file that it finds at ``/etc/hosts``.
    """

    name: str
    server: str
    ip: str
    netns: str
    cgroups: tuple[str, ...]
    hosts: str


Command = tuple[VmPlace, Sequence[str]]


def enter(place: VmPlace, user: User, *, tied: bool = False) -> None:
    """Turn this process into one of a VM's. ``tied``: it ends with its parent.
    Raises OSError.
    """
    for group in place.cgroups:
        Path(group).write_text("0", encoding="ascii")
    linux.enter_network_namespace(place.netns)
    PINGING.write_text("0 2147483647", encoding="ascii")
    if HOSTS.exists():
        linux.replace_file_for_this_process(str(HOSTS), place.hosts)
    become(user)
    linux.set_no_new_privileges()
    if tied:
        linux.set_parent_death_signal(signal.SIGKILL)
    if not os.access(".", os.X_OK):
        os.chdir("/")


def _environment(place: VmPlace, user: User) -> dict[str, str]:
    """The caller's environment, with the user's home and the VM's name and
    address.
    """
    home = "/"
    with suppress(KeyError):
        home = pwd.getpwuid(user.uid).pw_dir
    own = {"HOME": home, "USER": user.name, "LOGNAME": user.name}
    vm = {"HOSENET_VM": place.name, "HOSENET_IP": place.ip}
    return (
        {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        | own
        | vm
    )


def become_process(
    place: VmPlace, argv: Sequence[str], **variables: str
) -> NoReturn:
    """This process continues as ``argv`` in the VM. Raises RunFailed, BadInput."""
    user = unprivileged_user(os.environ)
    environment = _environment(place, user) | variables
    try:
        enter(place, user)
    except OSError as error:
        raise _cannot_enter(place, error) from error
    # Python ignores it, and what is ignored stays so in the next program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], list(argv), environment)  # noqa: S606 - no shell is meant
    except OSError as error:
        raise BadInput(f"cannot run {argv[0]!r}: {error.strerror}") from error


def start_process(
    place: VmPlace, argv: Sequence[str], stderr: int
) -> subprocess.Popen[bytes]:
    """A process in a VM, without input, which ends with this one. Raises
    RunFailed, BadInput.
    """
    user = unprivileged_user(os.environ)
    try:
        with (
            uninterrupted()
        ):  # with a preexec_fn Python would lose a Ctrl-C while it forks
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(place, user),
                # No thread of this program has a lock that it needs.
                preexec_fn=partial(enter, place, user, tied=True),  # noqa: PLW1509
            )
    except subprocess.SubprocessError as error:
        raise _cannot_enter(place, error) from error
    except OSError as error:
        raise BadInput(f"cannot run {argv[0]!r}: {error.strerror}") from error


def _cannot_enter(place: VmPlace, error: Exception) -> RunFailed:
    return RunFailed(
        f"VM {place.name} cannot be entered: {error}",
        "sudo testbed tenant list",
    )


@contextmanager
def started(
    commands: Iterable[Command], stderr: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs in VMs, their output to be read, which end with the block."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        children.extend(start_process(*each, stderr) for each in commands)
        yield children
    finally:
        for child in children:
            child.kill()
        for child in children:
            with child:  # closes what is read from it, and waits
                pass


def run_in_each(
    places: Sequence[VmPlace],
    argv: Sequence[str],
    say: Callable[[str, bytes], object],
) -> int:
    """Run a command in every VM at once; returns the worst exit code.

    ``say`` is called with ``stdout`` or ``stderr`` and each line of output,
    which begins with the VM's name. Raises as :func:`start_process` does, and
    ends those that have begun.
    """
    commands = [(place, argv) for place in places]
    with (
        started(commands, subprocess.PIPE) as children,
        selectors.DefaultSelector() as selector,
    ):
        for place, child in zip(places, children, strict=True):
            for name, stream in (
                ("stdout", child.stdout),
                ("stderr", child.stderr),
            ):
                assert stream is not None  # noqa: S101 - both are pipes
                about = name, f"{place.name}: ".encode(), bytearray()
                selector.register(stream, selectors.EVENT_READ, about)
        while selector.get_map():
            for key, _ in selector.select():
                if not _pass_on(key, say):
                    selector.unregister(key.fileobj)
        codes = [child.wait() for child in children]
        return max(SIGNAL_EXIT - code if code < 0 else code for code in codes)


def _pass_on(
    key: selectors.SelectorKey, say: Callable[[str, bytes], object]
) -> bool:
    """Whole lines of one stream; at its end the rest, and False."""
    name, label, rest = key.data
    data = os.read(key.fd, 65_536)
    *lines, left = bytes(rest + data).split(b"\n")
    rest[:] = left
    if not data and left:
        lines.append(left)
    for line in lines:
        say(name, label + line + b"\n")
    return bool(data)
