"""The filter of system calls: each refused call fails, and what jobs need works."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys

import pytest

from jobs.call_filter import (
    ARCHITECTURES,
    CLONE,
    CLONE3,
    FAMILIES,
    IOCTL,
    REFUSED,
    SOCKET,
    filter_program,
)

ALLOWED = 0x7FFF0000
MACHINE = os.uname().machine
FILTERED = """
import ctypes, errno, os
from jobs import linux
from jobs.call_filter import ARCHITECTURES, REFUSED, refuse_calls
linux.set_no_new_privileges()
if not refuse_calls():
    print("no filter")
    raise SystemExit
libc = ctypes.CDLL(None, use_errno=True)
"""


def filtered(code: str, before: str = FILTERED) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", before + code],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if done.stdout == "no filter\n":
        pytest.skip("this kernel has no filters")
    return done.stdout.splitlines()


def verdict(
    machine: str, number: int, *arguments: int, architecture: int = 0
) -> int:
    """The kernel's steps through the program, for one call."""
    known = architecture or ARCHITECTURES[machine][1]
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, known, 0, *padded)
    at, value = 0, 0
    program = filter_program(machine)
    while True:
        code, true, false, operand = program[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == 0x06:
            return operand
        else:
            holds = {
                0x15: value == operand,
                0x35: value >= operand,
                0x45: bool(value & operand),
            }
            at += true if holds[code] else false


def failure(number: int) -> int:
    return 0x50000 | number


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_each_call_gets_its_verdict(machine: str) -> None:
    place = ARCHITECTURES[machine][0]
    for numbers in REFUSED.values():
        assert verdict(machine, numbers[place]) == failure(errno.EPERM)
    refused = {numbers[place] for numbers in REFUSED.values()}
    special = {CLONE3[place], SOCKET[place]}
    for family in range(64):
        expected = failure(errno.EAFNOSUPPORT)
        if family in FAMILIES:
            expected = ALLOWED
        assert verdict(machine, SOCKET[place], family) == expected
    for number in set(range(460)) - refused - special:
        assert verdict(machine, number) == ALLOWED, number
    assert verdict(machine, CLONE3[place]) == failure(errno.ENOSYS)
    thread, user_namespace = 0x3D0F00, 0x10000000
    assert verdict(machine, CLONE[place], thread) == ALLOWED
    for flags in (user_namespace, thread | 0x20000):
        assert verdict(machine, CLONE[place], flags) == failure(errno.EPERM)
    # The upper half of a request is no part of it to the kernel.
    for request in (0x5412, 0x541C, 0xDEAD00005412):
        assert verdict(machine, IOCTL[place], 0, request) == failure(
            errno.EPERM
        )
    assert verdict(machine, IOCTL[place], 0, 0x5413) == ALLOWED
    assert verdict(machine, 0x40000000) == failure(errno.ENOSYS)
    foreign = verdict(machine, 1, architecture=0x40000003)
    assert foreign == failure(errno.ENOSYS)


def test_the_kernel_refuses_what_is_listed() -> None:
    said = filtered(
        """
place = ARCHITECTURES[os.uname().machine][0]
for name, numbers in REFUSED.items():
    result = libc.syscall(numbers[place], 0, 0, 0, 0, 0)
    print(name, result, errno.errorcode[ctypes.get_errno()])
"""
    )
    assert said == [f"{name} -1 EPERM" for name in REFUSED]


def test_no_socket_reaches_beyond_the_network_namespace() -> None:
    """By AF_VSOCK programs of two VMs could speak past all limits."""
    said = filtered(
        """
import socket
for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_UNIX, socket.AF_INET):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print("made")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    )
    assert said == ["EAFNOSUPPORT", "EAFNOSUPPORT", "made", "made"]


def test_no_program_types_into_a_terminal() -> None:
    said = filtered(
        """
import fcntl, termios
master, slave = os.openpty()
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    try:
        fcntl.ioctl(slave, termios.TIOCSTI, b"x")
    except PermissionError:
        os._exit(9)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    )
    assert said == ["9"]


def test_a_shell_of_root_is_kept_from_typing_alone() -> None:
    typing = FILTERED.replace(
        "refuse_calls():", "refuse_calls(call_filter.terminal_program):"
    ).replace(
        "import ctypes", "from jobs import call_filter\nimport ctypes"
    )
    said = filtered(
        """
import fcntl, termios
master, slave = os.openpty()
try:
    fcntl.ioctl(slave, termios.TIOCSTI, b"x")
except PermissionError:
    print("refused")
fcntl.ioctl(slave, termios.FIONREAD, b"1234")
number = REFUSED["pidfd_getfd"][0]
libc.syscall(number, -1, -1, 0)
print(errno.errorcode[ctypes.get_errno()])
""",
        typing,
    )
    assert said == ["refused", "EBADF"]


def test_processes_threads_and_sockets_are_as_ever() -> None:
    said = filtered(
        """
import socket, subprocess, threading
thread = threading.Thread(target=lambda: print("thread", flush=True))
thread.start()
thread.join()
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
a, b = socket.socketpair()
a.send(b"socket")
print(b.recv(9).decode())
print(os.waitstatus_to_exitcode(os.system("exit 3")))
"""
    )
    assert said == ["thread", "child", "socket", "3"]
