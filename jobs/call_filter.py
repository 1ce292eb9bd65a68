"""A filter of system calls for programs in VMs: a seccomp program in plain BPF.

It refuses calls that reach into other processes, keys or the kernel, and that
no application of a job needs: ptrace and its relatives, keyrings, bpf, mounts
and namespaces, modules, io_uring. It also refuses to type into a terminal
(TIOCSTI): the next program that reads the terminal would take that for its
input. A refused call fails with EPERM; a socket that may reach beyond its
network namespace fails with EAFNOSUPPORT. 32-bit programs do not run: their
calls have other numbers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterable
from functools import cache

from jobs import linux

# A system call's two numbers: on x86-64, and on 64-bit ARM.
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
SOCKET = (41, 198)
FAMILIES = (1, 2, 10, 16, 17)
"""Address families that sockets may have: unix, IPv4, IPv6, netlink, packets.
Some others ignore network namespaces: by AF_VSOCK a program reaches any other
on the machine.
"""
IOCTL = (16, 29)
SECCOMP = (317, 277)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""By kind of machine: its index in the pairs above, its AUDIT_ARCH number."""
X32_CALLS = 0x40000000
"""The lowest number of an x32 program's calls."""
NEW_NAMESPACES = 0x7E020000
"""All flags of clone that make a namespace."""
TIOCSTI = 0x5412
TIOCLINUX = 0x541C
# Offsets in the kernel's struct seccomp_data. An argument's offset is that of
# its lower half.
NUMBER = 0
ARCHITECTURE = 4
FIRST_ARGUMENT = 16
SECOND_ARGUMENT = 24
# Codes of BPF: LD+W+ABS, JMP+JEQ, JMP+JGE, JMP+JSET, RET.
LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_BIT = 0x45
RETURN = 0x06
# SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO and SECCOMP_SET_MODE_FILTER.
ALLOW = 0x7FFF0000
FAIL = 0x00050000
SET_FILTER = 1
# SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it the kernel may slow down branches
# of a filtered program. Programs in VMs compute for hours.
SPECULATE = 4

# The kernel's struct sock_filter.
INSTRUCTION = "=HBBI"
Instruction = tuple[int, int, int, int]
"""A code, two distances and an operand.

The distances count instructions that are jumped over if the comparison holds,
and if it does not.
"""
# Makes a filter's instructions for a kind of machine.
MakeProgram = Callable[[str], list[Instruction]]


# The kernel's struct sock_fprog.
class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def filter_program(
    machine: str,
    more: Iterable[tuple[int, int]] = (),
) -> list[Instruction]:
    """Instructions of the whole filter for a kind of machine.

    ``more``: pairs of numbers of calls that are refused besides
    :data:`REFUSED`. Raises KeyError for an unknown machine.
    """
    index, _ = ARCHITECTURES[machine]
    program = _beginning(machine)
    for numbers in (*REFUSED.values(), *more):
        program += [(EQUAL, 0, 1, numbers[index]), _fail(errno.EPERM)]
    # The flags of clone3 are in memory, which a filter cannot read. On ENOSYS
    # libraries use clone.
    program += [(EQUAL, 0, 1, CLONE3[index]), _fail(errno.ENOSYS)]
    program += _no_new_namespaces(CLONE[index])
    program += _only_families(SOCKET[index])
    return program + _terminal_end(index)


def _no_new_namespaces(clone: int) -> list[Instruction]:
    """Instructions that refuse clone with a flag of NEW_NAMESPACES.

    Without these flags it makes the processes and threads that programs need.
    """
    return [
        (EQUAL, 0, 4, clone),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 0, 1, NEW_NAMESPACES),
        _fail(errno.EPERM),
        # Ends here: the flags have replaced the call's number, which later
        # checks would compare.
        (RETURN, 0, 0, ALLOW),
    ]


def _only_families(socket: int) -> list[Instruction]:
    """Instructions that refuse sockets of other families than FAMILIES."""
    known = len(FAMILIES)
    # Another call jumps over all of these: the load, the families, both
    # returns. A known family jumps to the last return.
    program = [(EQUAL, 0, known + 3, socket), (LOAD, 0, 0, FIRST_ARGUMENT)]
    for index, family in enumerate(FAMILIES):
        program.append((EQUAL, known - index, 0, family))
    return [*program, _fail(errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]


def terminal_program(machine: str) -> list[Instruction]:
    """Instructions of a filter that refuses nothing but to type into a terminal.

    Raises KeyError for an unknown machine.
    """
    index, _ = ARCHITECTURES[machine]
    return _beginning(machine) + _terminal_end(index)


def _beginning(machine: str) -> list[Instruction]:
    """Instructions that load a call's number; 32-bit and x32 calls fail."""
    return [
        # The architecture is checked first: a 32-bit program means another
        # call by the same number. An x32 program has the architecture of
        # x86-64, and a bit more in its numbers.
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, ARCHITECTURES[machine][1]),
        _fail(errno.ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, X32_CALLS),
        _fail(errno.ENOSYS),
    ]


def _terminal_end(index: int) -> list[Instruction]:
    """Instructions that refuse to type into a terminal and allow the rest.

    ``index``: a machine's in pairs of numbers.
    """
    return [
        (EQUAL, 0, 4, IOCTL[index]),
        # The lower half is enough: the kernel takes an unsigned int for the
        # request, whatever the upper half holds.
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (EQUAL, 1, 0, TIOCSTI),
        (EQUAL, 0, 1, TIOCLINUX),
        _fail(errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def _fail(error_number: int) -> Instruction:
    return RETURN, 0, 0, FAIL | error_number


@cache
def _code(machine: str, make_program: MakeProgram) -> bytes:
    return packed(make_program(machine))


def pack_filter() -> None:
    """Packs the filter for this process and those forked from it afterwards."""
    machine = os.uname().machine
    if machine in ARCHITECTURES:
        _code(machine, filter_program)


def packed(instructions: Iterable[Instruction]) -> bytes:
    """Instructions in the kernel's format."""
    code = b""
    for instruction in instructions:
        code += struct.pack(INSTRUCTION, *instruction)
    return code


def refuse_calls(make_program: MakeProgram = filter_program) -> bool:
    """Applies a filter to this process and its descendants, for good.

    The process must have no_new_privs or be root. Returns False on a machine
    that is not in :data:`ARCHITECTURES`, and on a kernel without filters.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return False
    code = _code(machine, make_program)
    number = SECCOMP[ARCHITECTURES[machine][0]]
    length = len(code) // struct.calcsize(INSTRUCTION)
    pointer = ctypes.byref(_SockFprog(length, code))
    try:
        linux.system_call(number, SET_FILTER, SPECULATE, pointer)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL):
            return False
        raise
    return True
