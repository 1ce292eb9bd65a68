"""Programs in VMs that want their caller's terminal: other ways than to type."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.backends.emu.vm_process import VmPlace
from tests.netns.test_enter_vm import place  # noqa: F401 - a fixture
from tests.support.vm_ids import OUTSIDE_RANGES
from tests.unit.emu.test_programs_in_vms import (
    TIMEOUT_S,
    on_a_terminal,
    read_until,
)

USER = OUTSIDE_RANGES + 2
PYTHON = "/usr/bin/python3"
# `testbed exec` into a namespace without a network.
EXEC = """
import sys
from controller.launch import User
from testbed.backends.emu.vm_process import VmPlace, run_program
netns, hosts, uid, *argv = sys.argv[1:]
user = User("vm", int(uid), int(uid))
place = VmPlace("a.0", "s1", "10.0.0.1", netns, (), hosts, user)
sys.exit(run_program(place, argv))
"""
# Types the letter X by all calls that may do so, into all terminals that it
# gets hold of, among them its caller's by its name. Not into others by their
# names: on a target without guard it is root.
TYPE = """
import ctypes, mmap, os, platform, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
TIOCSTI, TIOCLINUX, TIOCSCTTY = 0x5412, 0x541C, 0x540E
IOCTL = 16 if platform.machine() == "x86_64" else 29
TEXT = b"X\\n"

def terminals(callers):
    opened = [0, 1, 2]
    names = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", callers)
    for name in names:
        for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY):
            try:
                opened.append(os.open(name, flags | os.O_NOCTTY))
                break
            except OSError:
                pass
    return opened

def ioctl(terminal, request, argument):
    libc.syscall(IOCTL, ctypes.c_long(terminal), ctypes.c_ulong(request), argument)

def plainly(terminal, letter):
    ioctl(terminal, TIOCSTI, letter)

def by_force(terminal, letter):
    ioctl(terminal, TIOCSCTTY, ctypes.c_long(1))
    ioctl(terminal, TIOCSTI, letter)

def beyond_32_bits(terminal, letter):
    # The kernel takes the lower half of a request, a filter may take all.
    ioctl(terminal, TIOCSTI | 1 << 32, letter)
    ioctl(terminal, TIOCSTI | 0xFFFFFFFF << 32, letter)

def by_the_console(terminal, letter):
    for code in (2, 3, 15):
        ioctl(terminal, TIOCLINUX, ctypes.create_string_buffer(bytes([code]) + letter))

def by_a_32_bit_call(terminal, letter):
    if IOCTL != 16:
        return
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        low = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)
        at = ctypes.addressof(ctypes.c_char.from_buffer(low))
        low[2048:2049] = letter
        # push rbx; eax = 54 (ioctl); ebx, ecx, edx = arguments; int 0x80
        code = b"\\x53\\xb8" + struct.pack("=I", 54)
        for register, value in ((0xBB, terminal), (0xB9, TIOCSTI), (0xBA, at + 2048)):
            code += bytes([register]) + struct.pack("=I", value)
        low[: len(code) + 4] = code + b"\\xcd\\x80\\x5b\\xc3"
        ctypes.CFUNCTYPE(ctypes.c_long)(at)()
        os._exit(0)
    os.waitpid(child, 0)

WAYS = (plainly, by_force, beyond_32_bits, by_the_console, by_a_32_bit_call)

def type_into(callers):
    tried = 0
    for terminal in terminals(callers):
        for way in WAYS:
            for letter in TEXT:
                way(terminal, bytes([letter]))
                tried += 1
    return tried

callers, wait_for, says = sys.argv[1:4]
tried = type_into(callers)
if wait_for:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for own_session in (False, True):
        if os.fork() == 0:
            if own_session:
                os.setsid()
            import time
            while not os.path.exists(wait_for):
                time.sleep(0.01)
            tried = type_into(callers)
            with open(says, "a") as file:
                file.write(f"{tried}\\n")
            os._exit(0)
print("tried", tried, "done", flush=True)
"""
# Says which of its descriptors, and /dev/tty, are its caller's terminal.
OWN = """
import os, sys
callers = os.stat(sys.argv[1]).st_rdev
numbers = {int(name) for name in os.listdir("/proc/self/fd")}
try:
    numbers.add(os.open("/dev/tty", os.O_RDWR))
except OSError:
    pass
def is_callers(number):
    try:
        return os.fstat(number).st_rdev == callers
    except OSError:
        return False
with open(sys.argv[2], "a") as file:
    file.write(f"{len(numbers)} {sum(map(is_callers, numbers))}\\n")
"""
STREAMS = ("stdin", "stdout", "stderr")
LEFT_BEHIND = 2
LEAST_TRIES = 20


@contextmanager
def public_folder() -> Iterator[Path]:
    """One that VMs' users find, and where everybody writes."""
    with TemporaryDirectory(dir="/var/lib") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def typed(caller: str, *start: str) -> tuple[int, int]:
    """Tries of a program that a caller runs, and letters that are then in its
    terminal.
    """
    program = (PYTHON, "-c", TYPE, "TERMINAL", "", "")
    with on_a_terminal(caller, *start, *program) as (
        process,
        master,
        slave,
    ):
        shown = read_until(master, b"done")
        process.wait(TIMEOUT_S)
        return int(shown.split(b"tried ")[-1].split()[0]), letters(slave)


def typed_afterwards(
    folder: Path, caller: str, *start: str
) -> tuple[int, int]:
    """The same of programs that it leaves behind, which try once their caller
    has ended. ``folder``: one where everybody writes.
    """
    begin, says = folder / "begin", folder / "says"
    says.touch()
    says.chmod(0o666)
    program = (PYTHON, "-c", TYPE, "TERMINAL", str(begin), str(says))
    with on_a_terminal(caller, *start, *program) as (
        process,
        master,
        slave,
    ):
        read_until(master, b"done")
        process.wait(TIMEOUT_S)
        before = letters(slave)
        begin.touch()
        for _ in range(100 * TIMEOUT_S):
            lines = says.read_text().splitlines()
            if len(lines) == LEFT_BEHIND:
                return sum(map(int, lines)), before + letters(slave)
            time.sleep(0.01)
    raise AssertionError("what was left behind has not tried")


def handed_down(folder: Path, caller: str, *start: str) -> tuple[int, int]:
    """Descriptors of programs, and those of them that are their callers'
    terminals, in all combinations of streams that are one.
    """
    says = folder / "streams"
    says.touch()
    says.chmod(0o666)
    for chosen in product((True, False), repeat=len(STREAMS)):
        with (folder / "file").open("w+b") as file:
            others = {}
            for name, on_terminal in zip(STREAMS, chosen, strict=True):
                if not on_terminal:
                    others[name] = file.fileno()
            program = (PYTHON, "-c", OWN, "TERMINAL", str(says))
            with on_a_terminal(caller, *start, *program, **others) as (
                process,
                *_,
            ):
                process.wait(TIMEOUT_S)
    counts = [line.split() for line in says.read_text().splitlines()]
    assert len(counts) == 2 ** len(STREAMS)
    return (
        sum(int(tried) for tried, _ in counts),
        sum(int(callers) for _, callers in counts),
    )


def letters(terminal: int) -> int:
    text = b""
    while select.select([terminal], [], [], 0)[0]:
        text += os.read(terminal, 4096)
    return text.count(b"X")


def entering(place: VmPlace) -> tuple[str, ...]:  # noqa: F811
    """A caller that enters a VM, and its arguments."""
    return EXEC, place.netns, place.hosts, str(USER)


def test_no_other_call_types_into_its_callers_terminal(
    place: VmPlace,  # noqa: F811
) -> None:
    tried, through = typed(*entering(place))
    assert tried >= LEAST_TRIES
    assert through == 0


def test_what_is_left_behind_types_into_no_terminal_either(
    place: VmPlace,  # noqa: F811
) -> None:
    with public_folder() as folder:
        tried, through = typed_afterwards(folder, *entering(place))
    assert tried >= LEAST_TRIES
    assert through == 0


def test_no_descriptor_is_its_callers_terminal(
    place: VmPlace,  # noqa: F811
) -> None:
    with public_folder() as folder:
        tried, callers = handed_down(folder, *entering(place))
    assert tried >= 2 ** len(STREAMS)
    assert callers == 0
