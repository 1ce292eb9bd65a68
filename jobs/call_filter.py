"""A filter of system calls for programs in VMs: a seccomp program in plain BPF.

Refused is what a program needs to reach into other processes, keys or the
kernel, and no application of a job does: ptrace and its relatives, keyrings,
bpf, mounts and namespaces, modules, io_uring, and typing into a terminal
(TIOCSTI), which would be read by whoever reads that terminal next. A refused
call fails with EPERM. 32-bit programs, whose calls have other numbers, do not
run.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from functools import cache

from jobs import linux

# Numbers of system calls: on x86-64, on 64-bit ARM.
REFUSED: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
}
CLONE = (56, 220)
CLONE3 = (435, 435)
IOCTL = (16, 29)
SECCOMP = (317, 277)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Place in the pairs above, and the kernel's name of it (AUDIT_ARCH)."""
FOREIGN_CALLS = 0x40000000
"""From here on numbers are those of x32 programs."""
NEW_NAMESPACES = 0x7E020000
"""All flags of clone that make a namespace."""
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
# Fields of seccomp_data; of arguments the lower half.
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW = 0x7FFF0000
FAIL = 0x00050000
SET_FILTER = 1
# Programs in VMs compute for hours: no slower branches on account of a filter.
SPECULATE = 4

INSTRUCTION = "=HBBI"
Instruction = tuple[int, int, int, int]
Program = Callable[[str], list[Instruction]]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def filter_program(machine: str) -> list[Instruction]:
    """Instructions (code, jumps if true and if false, operand) for a kind of
    machine. Raises KeyError for one that is not known.
    """
    place, _ = ARCHITECTURES[machine]
    program = _beginning(machine)
    for numbers in REFUSED.values():
        program += [(EQUAL, 0, 1, numbers[place]), _fail(errno.EPERM)]
    # Its flags are in memory, where no filter looks: libraries then use clone.
    program += [(EQUAL, 0, 1, CLONE3[place]), _fail(errno.ENOSYS)]
    program += [
        (EQUAL, 0, 4, CLONE[place]),
        (LOAD, 0, 0, FIRST),
        (ANY_BIT, 0, 1, NEW_NAMESPACES),
        _fail(errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    return program + _terminal_end(place)


def terminal_program(machine: str) -> list[Instruction]:
    """The part for terminals alone, as :func:`filter_program`."""
    place, _ = ARCHITECTURES[machine]
    return _beginning(machine) + _terminal_end(place)


def _beginning(machine: str) -> list[Instruction]:
    """Loads a call's number; calls of other numbering fail."""
    return [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, ARCHITECTURES[machine][1]),
        _fail(errno.ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, FOREIGN_CALLS),
        _fail(errno.ENOSYS),
    ]


def _terminal_end(place: int) -> list[Instruction]:
    """Refuses to type into a terminal, allows what is left."""
    return [
        (EQUAL, 0, 4, IOCTL[place]),
        (LOAD, 0, 0, SECOND),
        (EQUAL, 1, 0, TIOCSTI),
        (EQUAL, 0, 1, TIOCLINUX),
        _fail(errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def _fail(number: int) -> Instruction:
    return RETURN, 0, 0, FAIL | number


@cache
def _packed(machine: str, program: Program) -> bytes:
    """The program as the kernel takes it; a fork server makes it once."""
    instructions = program(machine)
    return b"".join(struct.pack(INSTRUCTION, *each) for each in instructions)


def refuse_calls(program: Program = filter_program) -> bool:
    """Apply a filter to this process and its descendants, for good.

    It needs no_new_privs, or root. False on a kind of machine whose calls are
    not known, or a kernel without filters.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return False
    code = _packed(machine, program)
    number = SECCOMP[ARCHITECTURES[machine][0]]
    length = len(code) // struct.calcsize(INSTRUCTION)
    given = ctypes.byref(_Program(length, code))
    try:
        linux.system_call(number, SET_FILTER, SPECULATE, given)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL):
            return False
        raise
    return True
