"""Confinement of a student's code: no privileges, no network, little memory, few processes.

bubblewrap gives the process its own namespaces, in which nothing is but Python's standard library
and the submitted files, all read-only, and a scratch folder of a few MB. prlimit bounds memory,
processor time and processes; a seccomp filter refuses the calls whose memory no limit counts.
Everything in it ends with it.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from testbed.labs.submission_process import READY

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("submission_process.py")
PROGRAM_COPY, SUBMITTED = "program.py", "submitted"
INSTALL = "sudo apt-get install bubblewrap"
NOBODY = 65534
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}

# Memory that neither the address space nor a file's size bounds (segments that nobody has attached,
# anonymous files), by the machine's numbers: shmget, msgget, semget, memfd_create, memfd_secret and
# io_uring_setup. linux/audit.h, asm/unistd.h.
CALLS = {
    "x86_64": (0xC000003E, (29, 68, 64, 319, 447, 425)),
    "aarch64": (0xC00000B7, (194, 186, 190, 279, 447, 425)),
}


@dataclass(frozen=True)
class Limits:
    """Bounds of one process tree; the address space and the files' size are those of each process.

    Of the ``processes`` bubblewrap's own is one: all memory together is below 4 x 256 MiB.
    """

    address_space_bytes: int = 256 << 20
    processes: int = 4
    open_files: int = 64
    processor_s: int = 60
    file_bytes: int = 4 << 20
    scratch_bytes: int = 8 << 20


@cache
def unavailable() -> str:
    """Why there is no confinement on this machine; empty where there is."""
    for program in ("bwrap", "prlimit"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    with tempfile.TemporaryDirectory(prefix="hosenet-lab-") as name:
        prepared(Path(name))
        tried = start(Path(name), Limits(), confined=True)
        first, why = tried.communicate(timeout=20)
    return "" if first == READY else f"bubblewrap: {why.decode(errors='replace').strip()[:200]}"


def prepared(folder: Path) -> Path:
    """A folder as :func:`start` wants it, with the program in it; where submitted files go."""
    (folder / PROGRAM_COPY).write_bytes(PROGRAM.read_bytes())
    (folder / SUBMITTED).mkdir()
    # Whoever runs it: root's umask may keep others out.
    folder.chmod(0o755)
    (folder / SUBMITTED).chmod(0o755)
    (folder / PROGRAM_COPY).chmod(0o644)
    return folder / SUBMITTED


def start(folder: Path, limits: Limits, *, confined: bool) -> subprocess.Popen[bytes]:
    """Starts the program that calls functions of the files in a :func:`prepared` folder.

    Not ``confined``, it has the limits alone: for one's own code on one's own machine. The pipes
    are the caller's; the process leads a session of its own.
    """
    bounds = [
        *("prlimit", f"--as={limits.address_space_bytes}", f"--nofile={limits.open_files}"),
        f"--cpu={limits.processor_s}:{limits.processor_s + 1}",
        *(f"--fsize={limits.file_bytes}", "--core=0"),
    ]
    python = _interpreter()
    run = [str(python), "-P", "-s", "-S", "-B"]
    program, submitted = str(folder / PROGRAM_COPY), str(folder / SUBMITTED)
    with tempfile.TemporaryFile() as rules:
        rules.write(_refused_calls())
        rules.seek(0)
        if confined:
            argv = [
                *_namespaces(limits, rules.fileno()), *_base_system(),
                *_mounted(python.parents[1]), "--ro-bind", submitted, "/submitted",
                *("--ro-bind", program, "/program.py", "--remount-ro", "/dev"),
                *("--remount-ro", "/", "--chdir", "/tmp", "--"),  # noqa: S108 - inside
                *bounds, f"--nproc={limits.processes}", *run, "/program.py", "/submitted",
            ]  # fmt: skip
        else:
            argv = [*bounds, *run, program, submitted]
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd="/", start_new_session=True, env=ENVIRONMENT, pass_fds=[rules.fileno()], **_user(),
        )  # fmt: skip


def _interpreter() -> Path:
    """The Python that this environment was made with; the system's where `nobody` may not enter."""
    own = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    system = Path("/usr/bin/python3").resolve()
    closed = os.geteuid() == 0 and not all(
        path.stat().st_mode & 0o001 for path in own.parents if path.exists()
    )
    return system if closed and system.exists() else own


def _user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _refused_calls() -> bytes:
    """A seccomp filter (classic BPF): EPERM for CALLS, the end for calls of another machine's."""
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, refuse, end = 0x7FFF0000, 0x00050001, 0x80000000
    machine, numbers = CALLS.get(platform.machine(), (0, ()))
    if not numbers:
        return struct.pack("=HBBI", give, 0, 0, allow)
    left = len(numbers)
    steps = [(load, 0, 0, 4), (equal, 0, left + 4, machine), (load, 0, 0, 0)]
    # Numbers from 2**30: the x32 calls of x86-64.
    steps += [(at_least, left + 2, 0, 1 << 30)]
    steps += [(equal, left - n, 0, number) for n, number in enumerate(numbers)]
    steps += [(give, 0, 0, allow), (give, 0, 0, refuse), (give, 0, 0, end)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _namespaces(limits: Limits, rules: int) -> list[str]:
    scratch = [word for folder in ("/tmp", "/dev/shm") for word in (  # noqa: S108 - inside
        "--size", str(limits.scratch_bytes), "--tmpfs", folder)]  # fmt: skip
    return [
        *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--seccomp", str(rules)),
        *("--die-with-parent", "--new-session", "--clearenv"),
        *(word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)),
        *("--proc", "/proc", "--dev", "/dev"),
        *scratch,
    ]


def _base_system() -> list[str]:
    """/usr without what is installed beside Debian's own, and without this project."""
    every = ("bin", "sbin", "lib", "lib32", "lib64")
    names = [name for name in every if Path(f"/{name}").is_symlink()]
    links = [word for name in names for word in ("--symlink", f"usr/{name}", f"/{name}")]
    hidden = [word for folder in ("/usr/local", "/usr/lib/python3") if Path(folder).is_dir()
              for word in ("--tmpfs", folder)]  # fmt: skip
    return ["--ro-bind", "/usr", "/usr", *links, *hidden, *_without_the_project(Path("/usr"))]


def _mounted(prefix: Path) -> list[str]:
    """A Python that is not the system's, without its site-packages."""
    if prefix == Path("/usr"):
        return []
    packages = [folder for folder in prefix.glob("lib/python3*/site-packages") if folder.is_dir()]
    hidden = [word for folder in packages for word in ("--tmpfs", str(folder))]
    return ["--ro-bind", str(prefix), str(prefix), *hidden, *_without_the_project(prefix)]


def _without_the_project(mounted: Path) -> list[str]:
    """Hides this checkout, with the solutions, where it lies in what is mounted."""
    return ["--tmpfs", str(PROJECT)] if mounted in PROJECT.parents else []
