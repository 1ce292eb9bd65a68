"""Confinement of a student's code: no privileges, no network, little memory.

bubblewrap gives the process namespaces of its own. They hold Python's standard
library and the submitted files, all read-only, and scratch folders of a few MB.
prlimit bounds memory, processor time and processes. A seccomp filter refuses
the calls that programs in VMs are refused, and those whose memory no limit
counts. When bubblewrap ends, all processes in the namespaces end.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jobs.call_filter import (
    ALLOW,
    ARCHITECTURES,
    RETURN,
    filter_program,
    packed,
)
from testbed.labs.submission_process import READY
from testbed.private_folders import private_folder

PROJECT = Path(__file__).resolve().parents[2]
"""The checkout, or the folder of installed packages."""
PROGRAM = Path(__file__).with_name("submission_process.py")
PROGRAM_COPY = "program.py"
SUBMITTED = "submitted"
INSTALL = "sudo apt-get install bubblewrap"
NOBODY = 65534
"""User and group of submissions that root runs."""
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
}

UNCOUNTED = {
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}
"""Calls for memory that neither the address space nor a file's size bounds:
segments that nobody has attached, and anonymous files. Their numbers are those
on x86-64 and on 64-bit ARM, as in :data:`jobs.call_filter.REFUSED`.
"""


@dataclass(frozen=True)
class Limits:
    """Bounds of a submission's processes.

    Each holds for one process, except ``processes`` (all together) and
    ``scratch_bytes`` (one scratch folder). bubblewrap is one of the four
    processes: a submission has three times 256 MiB at most, and its scratch.
    """

    address_space_bytes: int = 256 << 20
    processes: int = 4
    open_files: int = 64
    processor_s: int = 60
    file_bytes: int = 4 << 20
    scratch_bytes: int = 8 << 20


@cache
def unavailable() -> str:
    """The reason why this machine cannot confine code; empty where it can."""
    for program in ("bwrap", "prlimit"):
        if shutil.which(program, path=ENVIRONMENT["PATH"]) is None:
            return f"{program} is not installed"
    # By a try: a kernel or a policy may forbid user namespaces in several
    # ways.
    with private_folder("lab-", entered=True) as folder:
        prepared(folder)
        process = start_program(folder, Limits(), confined=True)
        output, errors = process.communicate(timeout=20)
    if output == READY:
        return ""
    return f"bubblewrap: {errors.decode(errors='replace').strip()[:200]}"


def prepared(folder: Path) -> Path:
    """Prepares a folder for :func:`start_program`.

    Returns its folder for submitted files.
    """
    submitted = folder / SUBMITTED
    submitted.mkdir()
    program = folder / PROGRAM_COPY
    program.write_bytes(PROGRAM.read_bytes())
    # Root runs the program as `nobody`, whom root's umask may keep out.
    folder.chmod(0o755)
    submitted.chmod(0o755)
    program.chmod(0o644)
    return submitted


def start_program(
    folder: Path,
    limits: Limits,
    *,
    confined: bool,
) -> subprocess.Popen[bytes]:
    """Starts the program that calls functions of a :func:`prepared` folder.

    If not ``confined``, only the limits of each process hold: for one's own code
    on one's own machine. Its standard streams are pipes to the caller. The
    process leads a session of its own.
    """
    with tempfile.TemporaryFile() as rules:
        rules.write(_refused_calls())
        rules.seek(0)
        if confined:
            command = _confined_command(folder, limits, rules.fileno())
        else:
            command = _bounds(limits) + _python_command(
                str(folder / PROGRAM_COPY), str(folder / SUBMITTED)
            )
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
            env=ENVIRONMENT,
            pass_fds=[rules.fileno()],
            **_user(),
        )


def _bounds(limits: Limits) -> list[str]:
    return [
        "prlimit",
        f"--as={limits.address_space_bytes}",
        f"--nofile={limits.open_files}",
        # SIGXCPU at the first limit, SIGKILL at the second.
        f"--cpu={limits.processor_s}:{limits.processor_s + 1}",
        f"--fsize={limits.file_bytes}",
        "--core=0",
    ]


def _python_command(program: str, submitted: str) -> list[str]:
    return [
        str(_interpreter()),
        # Without packages of the folder, the user and the site, and without
        # writing compiled files.
        *("-P", "-s", "-S", "-B"),
        program,
        submitted,
    ]


def _confined_command(
    folder: Path,
    limits: Limits,
    rules_fd: int,
) -> list[str]:
    return [
        *_namespaces(limits, rules_fd),
        *_base_system(),
        *_mounted(_interpreter().parents[1]),
        *("--ro-bind", str(folder / SUBMITTED), "/submitted"),
        *("--ro-bind", str(folder / PROGRAM_COPY), "/program.py"),
        # After all mounts, which make their mount points below /. In a writable
        # /dev files would have no limit.
        *("--remount-ro", "/dev"),
        *("--remount-ro", "/"),
        *("--chdir", "/tmp"),  # noqa: S108 - inside
        "--",
        *_bounds(limits),
        # The kernel counts processes by user namespace: in this one nobody
        # else has any.
        f"--nproc={limits.processes}",
        *_python_command("/program.py", "/submitted"),
    ]


def _interpreter() -> Path:
    """The Python that this environment was made with.

    Root runs it as `nobody`: the system's Python, if `nobody` cannot reach that
    one.
    """
    # An environment's own executable is a link, with packages beside it.
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    system = Path("/usr/bin/python3").resolve()
    if os.geteuid() != 0 or not system.exists():
        return base
    for folder in base.parents:
        if folder.exists() and not folder.stat().st_mode & 0o001:
            return system
    return base


def _user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _refused_calls() -> bytes:
    """A seccomp filter: that of programs in VMs, and UNCOUNTED calls.

    On a machine that is none of ARCHITECTURES it allows all calls.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        return packed([(RETURN, 0, 0, ALLOW)])
    return packed(filter_program(machine, UNCOUNTED.values()))


def _namespaces(limits: Limits, rules_fd: int) -> list[str]:
    arguments = [
        "bwrap",
        # --unshare-all alone does without a user namespace where none can be
        # made; --disable-userns needs one.
        "--unshare-all",
        "--unshare-user",
        # In another user namespace the program would be root again.
        "--disable-userns",
        *("--seccomp", str(rules_fd)),
        "--die-with-parent",
        # Without a terminal, into which the program could type.
        "--new-session",
        "--clearenv",
    ]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    # --dev makes few devices: null, zero, full, random, urandom and terminals.
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    for scratch in ("/tmp", "/dev/shm"):  # noqa: S108 - inside
        arguments += [
            "--size",
            str(limits.scratch_bytes),
            "--tmpfs",
            scratch,
        ]
    return arguments


def _base_system() -> list[str]:
    """/usr with Python's standard library, without packages and this project."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        # On a system with a merged /usr they are links into it.
        if Path(f"/{name}").is_symlink():
            arguments += ["--symlink", f"usr/{name}", f"/{name}"]
    hidden = [Path("/usr/local"), Path("/usr/lib/python3")]
    return arguments + _hidden(_project_in(Path("/usr")) + hidden)


def _mounted(prefix: Path) -> list[str]:
    """Arguments for a Python that is not in /usr, without its packages."""
    if prefix == Path("/usr"):
        return []
    packages = list(prefix.glob("lib/python3*/site-packages"))
    return [
        *("--ro-bind", str(prefix), str(prefix)),
        *_hidden(_project_in(prefix) + packages),
    ]


def _hidden(folders: Iterable[Path]) -> list[str]:
    """Arguments that mount an empty folder over each of these that exists."""
    arguments = []
    for folder in folders:
        if folder.is_dir():
            # A remount is of one mount: that of / does not reach this one.
            arguments += ["--tmpfs", str(folder)]
            arguments += ["--remount-ro", str(folder)]
    return arguments


def _project_in(mounted: Path) -> list[Path]:
    """This checkout, which has the solutions, if it is in a mounted folder. To
    be hidden first: nothing can be mounted below a hidden folder.
    """
    if mounted in PROJECT.parents:
        return [PROJECT]
    return []
