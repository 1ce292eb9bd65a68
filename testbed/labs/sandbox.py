"""Confinement of a student's code: no privileges, no network, little memory, few processes.

bubblewrap gives the process its own namespaces, in which nothing is but Python's standard library
and the submitted files, all read-only, and a scratch folder of a few MB. prlimit bounds memory,
processor time and processes. Everything in it ends with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("submission_process.py")
INSTALL = "sudo apt-get install bubblewrap"
NOBODY = 65534


@dataclass(frozen=True)
class Limits:
    """Bounds of one process tree; the address space is that of each process."""

    address_space_bytes: int = 400 << 20
    processes: int = 12
    processor_s: int = 60
    file_bytes: int = 4 << 20
    scratch_bytes: int = 8 << 20


@cache
def unavailable() -> str:
    """Why there is no confinement on this machine; empty where there is."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    tried = subprocess.run(
        [*_namespaces(Limits()), *_base_system(), "/usr/bin/true"],
        capture_output=True, text=True, timeout=20, check=False, **_user(),
    )  # fmt: skip
    return "" if tried.returncode == 0 else f"bubblewrap: {tried.stderr.strip()[:200]}"


def start(folder: Path, limits: Limits, *, confined: bool) -> subprocess.Popen[bytes]:
    """Starts the program that calls functions of the files in ``folder``.

    Not ``confined``, it has the limits alone: for one's own code on one's own machine. Both pipes
    are the caller's; the process leads a session of its own.
    """
    bounds = [
        *("prlimit", f"--as={limits.address_space_bytes}", f"--cpu={limits.processor_s}"),
        *(f"--fsize={limits.file_bytes}", "--core=0"),
    ]
    # Debian's, or the one that an environment was made with: what is in site-packages is not there.
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    run = [python, "-I", "-S", "-B"]
    if confined:
        argv = [
            *_namespaces(limits), *_base_system(), *_mounted(Path(sys.base_prefix)),
            *("--ro-bind", str(folder), "/submitted", "--ro-bind", str(PROGRAM), "/program.py"),
            *("--remount-ro", "/", "--chdir", "/tmp", "--"),
            *bounds, f"--nproc={limits.processes}", *run, "/program.py", "/submitted",
        ]  # fmt: skip
    else:
        argv = [*bounds, *run, str(PROGRAM), str(folder)]
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd="/", start_new_session=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        **_user(),
    )  # fmt: skip


def _user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _namespaces(limits: Limits) -> list[str]:
    scratch = [word for folder in ("/tmp", "/dev/shm") for word in (  # noqa: S108 - inside
        "--size", str(limits.scratch_bytes), "--tmpfs", folder)]  # fmt: skip
    return [
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
        *("--setenv", "LC_ALL", "C.UTF-8", "--setenv", "PATH", "/usr/bin:/bin"),
        *("--proc", "/proc", "--dev", "/dev"),
        *scratch,
    ]


def _base_system() -> list[str]:
    """/usr without what is installed beside Debian's own: this project may lie there."""
    links = [word for name in ("bin", "sbin", "lib", "lib32", "lib64") if Path(f"/{name}").is_symlink()
             for word in ("--symlink", f"usr/{name}", f"/{name}")]  # fmt: skip
    hidden = [word for folder in ("/usr/local", "/usr/lib/python3") if Path(folder).is_dir()
              for word in ("--tmpfs", folder)]  # fmt: skip
    return ["--ro-bind", "/usr", "/usr", *links, *hidden]


def _mounted(prefix: Path) -> list[str]:
    """A Python that is not the system's, without its site-packages."""
    if prefix == Path("/usr"):
        return []
    packages = [folder for folder in prefix.glob("lib/python3*/site-packages") if folder.is_dir()]
    hidden = [word for folder in packages for word in ("--tmpfs", str(folder))]
    return ["--ro-bind", str(prefix), str(prefix), *hidden]
