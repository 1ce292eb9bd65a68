"""Programs in VMs that reach for each other's, and for all the machine has."""

from __future__ import annotations

import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from controller.launch import User
from testbed.backends.emu.cgroups import (
    RunCgroup,
    lives,
    probe_layout,
    remove_groups,
)
from testbed.backends.emu.pseudo_terminal import ProgramStreams
from testbed.backends.emu.vm_process import VmPlace, start_process
from testbed.backends.emu.vm_users import FIRST_ID
from tests.adversary.attack import Attack, Tries

VICTIM, ATTACKER = FIRST_ID + 65_000, FIRST_ID + 65_001
PROCESSES, MORE_PROCESSES = 64, 256
MEMORY_MIB, MORE_MEMORY_MIB = 64, 256
SHARED_MIB, MORE_SHARED_MIB = 64, 96
# A bomb beside which the machine's others keep their processor and numbers.
BOMB_CPUS, BOMB_PROCESSES = 0.3, 1_500
SHARED_FILE = Path("/dev/shm/adversary")  # noqa: S108 - the target
GROWTH_TIMEOUT_S = 400.0

# Says what it can do to the process that is its argument. The numbers of calls
# are the machine's: pidfd_open and pidfd_getfd are the same on all.
REACH = """
import ctypes, os, platform, signal, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
reads, ptrace = {"x86_64": (310, 101)}.get(platform.machine(), (270, 117))

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

def take_a_socket():
    call(438, os.pidfd_open(pid), 3, 0)

def read_memory():
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    with open(f"/proc/{pid}/maps") as maps:
        at = int(maps.readline().split("-")[0], 16)
    remote = (ctypes.c_void_p * 2)(at, 8)
    call(reads, pid, vector, 1, remote, 1, 0)

def trace():
    call(ptrace, 0x4206, pid, 0, 0)

tries = {
    "signal": lambda: os.kill(pid, signal.SIGCONT),
    "socket": take_a_socket,
    "memory": read_memory,
    "trace": trace,
    "mem": lambda: open(f"/proc/{pid}/mem", "rb"),
    "files": lambda: os.listdir(f"/proc/{pid}/fd"),
    "environ": lambda: open(f"/proc/{pid}/environ", "rb").read(),
    "root": lambda: os.listdir(f"/proc/{pid}/root/"),
    "cwd": lambda: os.readlink(f"/proc/{pid}/cwd"),
    "shared memory": lambda: open("/dev/shm/of-the-victim"),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "limits": lambda: __import__("resource").prlimit(pid, 7),
}
for name, attempt in tries.items():
    try:
        attempt()
    except OSError:
        print("refused", name)
    else:
        print("through", name)
"""
# Tells what it has, or can get, above a user's.
ABOVE = """
import os, resource
def can(action):
    try:
        action()
    except (OSError, ValueError):
        return False
    return True
limit = resource.getrlimit(resource.RLIMIT_CORE)[0]
above = [
    os.getpriority(os.PRIO_PROCESS, 0) < 0,
    can(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)),
    can(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))),
    limit not in (0, 1),
    can(lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))),
]
for one in above:
    print("through" if one else "refused")
"""
VICTIMS = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
open("/dev/shm/of-the-victim", "w").close()
print("up", flush=True)
time.sleep(600)
"""
FORKS = """
import os, sys, time
born = 0
for _ in range(int(sys.argv[1])):
    try:
        child = os.fork()
    except OSError:
        continue
    if child == 0:
        time.sleep(600)
    born += 1
print(born, flush=True)
"""
HUNGRY = """
import sys
block = bytearray(int(sys.argv[1]) << 20)
print(len(block) >> 20, flush=True)
"""
FILLS = """
import sys
written = 0
try:
    with open("/dev/shm/adversary", "wb") as file:
        for _ in range(int(sys.argv[1])):
            file.write(bytes(1 << 20))
            file.flush()
            written += 1
except OSError:
    pass
print(written, flush=True)
"""
# Sends to itself what nobody reads, until a connection takes next to nothing.
SOCKETS = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
held, waiting, last = [], 0, 1 << 20
while waiting < int(sys.argv[1]) << 20 and last > 1 << 17:
    last = 0
    try:
        sender = socket.create_connection(listener.getsockname(), timeout=2)
        held += [sender, listener.accept()[0]]
        sender.setblocking(False)
        while True:
            last += sender.send(bytes(1 << 16))
    except (BlockingIOError, TimeoutError):
        waiting += last
print(waiting >> 20, flush=True)
"""
BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def attacks() -> list[Attack]:
    return [
        Attack(
            "neighbours",
            "a program in a VM reaches into a process of another VM",
            _reach_from_another_vm,
            _reach_as_root,
        ),
        Attack(
            "priorities",
            "a program in a VM has a priority and limits of root's",
            lambda: _priorities(_ends_in_a_vm),
            lambda: _priorities(_ends_outside),
        ),
        Attack(
            "process numbers",
            "a program in a VM takes more processes than it may",
            lambda: _forks(limited=True),
            lambda: _forks(limited=False),
        ),
        Attack(
            "memory",
            "a program in a VM takes more memory than it may",
            lambda: _memory(limited=True),
            lambda: _memory(limited=False),
        ),
        Attack(
            "memory of sockets",
            "a program in a VM holds more in sockets than it may have",
            lambda: _sockets(limited=True),
            lambda: _sockets(limited=False),
        ),
        Attack(
            "shared memory",
            "a program in a VM fills the machine's /dev/shm",
            _fill_from_a_vm,
            _fill_from_outside,
        ),
        Attack(
            "fork bomb",
            "a VM that forks without end cannot be ended",
            _bomb_is_ended,
            _bomb_one_by_one,
            expected_s=15,
        ),
    ]


@contextmanager
def vm() -> Iterator[VmPlace]:
    """A namespace without a network, control groups or a tenant."""
    name = f"hn-adversary-{secrets.token_hex(3)}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            hosts = Path(folder, "hosts")
            hosts.write_text("127.0.0.1 localhost\n")
            path = f"/run/netns/{name}"
            yield VmPlace("a.0", "s", "10.0.0.7", path, (), str(hosts))
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def _started(place: VmPlace, *argv: str) -> subprocess.Popen[bytes]:
    streams = ProgramStreams(
        subprocess.DEVNULL, subprocess.PIPE, subprocess.DEVNULL
    )
    return start_process(place, argv, streams)


@contextmanager
def _victim(place: VmPlace) -> Iterator[int]:
    """A process with a listening socket in another VM; its number."""
    user = User("victim", VICTIM, VICTIM)
    python = ("/usr/bin/python3", "-c", VICTIMS)
    with _started(replace(place, user=user), *python) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        try:
            yield child.pid
        finally:
            child.kill()


def _reach_from_another_vm() -> Tries:
    user = User("attacker", ATTACKER, ATTACKER)
    with vm() as place, _victim(place) as pid:
        argv = ("/usr/bin/python3", "-c", REACH, str(pid))
        with _started(replace(place, user=user), *argv) as attacker:
            assert attacker.stdout is not None
            return _counted(attacker.stdout.read().decode())


def _reach_as_root() -> Tries:
    with vm() as place, _victim(place) as pid:
        argv = ("/usr/bin/python3", "-c", REACH, str(pid))
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False
        )
        return _counted(done.stdout)


def _counted(said: str) -> Tries:
    words = [line.split()[0] for line in said.splitlines()]
    if not words:
        raise RuntimeError("the attacker's program did not run")
    return Tries(len(words), words.count("through"))


@contextmanager
def _group() -> Iterator[tuple[RunCgroup, tuple[Path, ...]]]:
    """A VM's control group."""
    group = RunCgroup(probe_layout(), secrets.token_hex(4))
    group.create()
    try:
        yield group, group.add_vm(0, 0)
    finally:
        remove_groups(group.paths)


def _in_group(
    files: tuple[Path, ...], code: str, argument: int
) -> subprocess.Popen[bytes]:
    """A Python that joins the group first, as an agent does."""
    join = "import os, sys\nfor file in sys.argv[2:]: open(file, 'w').write('0')\n"
    command = [sys.executable, "-S", "-c", join + code, str(argument)]
    return subprocess.Popen(
        [*command, *map(str, files)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _number(process: subprocess.Popen[bytes]) -> int:
    """The first line of its output; 0 if it ends without."""
    assert process.stdout is not None
    return int(process.stdout.readline() or 0)


def _priorities(said: Callable[[Sequence[str]], str]) -> Tries:
    """Of a caller with a high priority, who has core dumps."""
    dumps = resource.getrlimit(resource.RLIMIT_CORE)
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    resource.setrlimit(resource.RLIMIT_CORE, (dumps[1], dumps[1]))
    try:
        return _counted(said(("/usr/bin/python3", "-c", ABOVE)))
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, dumps)


def _ends_in_a_vm(argv: Sequence[str]) -> str:
    user = User("attacker", ATTACKER, ATTACKER)
    with (
        vm() as place,
        _started(replace(place, user=user), *argv) as child,
    ):
        assert child.stdout is not None
        return child.stdout.read().decode()


def _ends_outside(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout


def _forks(*, limited: bool) -> Tries:
    with _group() as (group, files):
        if limited and not group.set_processes(0, 0, PROCESSES):
            raise RuntimeError("this machine's control groups have no pids")
        with _in_group(files, FORKS, MORE_PROCESSES) as process:
            born = _number(process)
            group.end_vm(0, 0)
    return Tries(MORE_PROCESSES, max(0, born + 1 - PROCESSES))


def _memory(*, limited: bool) -> Tries:
    with _group() as (group, files):
        if limited and not group.set_memory(0, MEMORY_MIB << 20, 0):
            raise RuntimeError(
                "this machine's control groups have no memory"
            )
        with _in_group(files, HUNGRY, MORE_MEMORY_MIB) as process:
            taken_mib = _number(process)
    return Tries(MORE_MEMORY_MIB, max(0, taken_mib - MEMORY_MIB))


def _sockets(*, limited: bool) -> Tries:
    """On version 1 beside its memory, on version 2 within."""
    with _group() as (group, files):
        if limited:
            group.set_memory(0, MEMORY_MIB << 20, 0)
        with _in_group(files, SOCKETS, MORE_MEMORY_MIB) as process:
            held_mib = _number(process)
    return Tries(MORE_MEMORY_MIB, max(0, held_mib - MEMORY_MIB))


def _fill_from_a_vm() -> Tries:
    with vm() as place:
        argv = ("/usr/bin/python3", "-c", FILLS, str(MORE_SHARED_MIB))
        with _started(place, *argv) as process:
            written = _number(process)
    through = (
        max(0, written - SHARED_MIB)
        + MORE_SHARED_MIB * SHARED_FILE.exists()
    )
    return Tries(MORE_SHARED_MIB, through)


def _fill_from_outside() -> Tries:
    argv = (sys.executable, "-c", FILLS, str(MORE_SHARED_MIB))
    try:
        subprocess.run(argv, capture_output=True, check=True)
        return Tries(MORE_SHARED_MIB, SHARED_FILE.stat().st_size >> 20)
    finally:
        SHARED_FILE.unlink(missing_ok=True)


@contextmanager
def _bomb() -> Iterator[tuple[RunCgroup, Path]]:
    """A bomb that has grown, and the file with its processes' numbers."""
    limit = f"({BOMB_PROCESSES}, {BOMB_PROCESSES})"
    bound = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NPROC, {limit})\n"
        f"os.setgid({ATTACKER})\nos.setuid({ATTACKER})\n"
    )
    with _group() as (group, files):
        group.set_quota(0, BOMB_CPUS)
        process = _in_group(files, bound + BOMB, 0)
        try:
            give_up = time.monotonic() + GROWTH_TIMEOUT_S
            while len(_members(files[-1])) < BOMB_PROCESSES // 2:
                if time.monotonic() > give_up:
                    raise RuntimeError("the bomb does not grow")
                time.sleep(0.05)
            yield group, files[-1]
        finally:
            group.end_vm(0, 0)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _members(procs: Path) -> list[int]:
    return [int(number) for number in procs.read_text().split()]


def _bomb_is_ended() -> Tries:
    with _bomb() as (group, procs):
        members = _members(procs)
        with suppress(TimeoutError):
            group.end_vm(0, 0)
        left = len(_members(procs))
    return Tries(len(members), left)


def _bomb_one_by_one() -> Tries:
    """Each process is killed as it is found: others have been forked by then."""
    with _bomb() as (_, procs):
        found = _members(procs)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)
        left = [pid for pid in _members(procs) if lives(pid)]
    return Tries(len(found), len(left))
