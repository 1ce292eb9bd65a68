"""Provenance of a result: machine, tools, code. What is missing is null.

The host's name is left out: a run folder may be published.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pydantic import TypeAdapter, ValidationError

TIMEOUT_S = 10.0
_PROC = Path("/proc")


T = TypeVar("T")


def known(record: object, path: str, kind: type[T]) -> T | None:
    """The value at a dotted path of ``provenance.json``; None where it is
    missing or no ``kind``.

    Somebody may have changed the file: what has another type is unknown.
    """
    for key in path.split("."):
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    try:
        return TypeAdapter(kind).validate_python(record)
    except ValidationError:
        return None


# -- provenance.json, collected


def provenance(
    *,
    seeds: Mapping[str, int],
    command: Sequence[str],
    backend: str,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that ``provenance.json`` holds. Never raises for want of a
    tool.

    ``command`` is the command line as typed. ``extra`` is what only the backend
    knows (datapath, offloads, congestion control in the VMs, controller
    library) and goes in as it is, as ``live``.
    """
    return {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "backend": backend,
        "seeds": dict(seeds),
        "code": code(TREE),
        "machine": machine(),
        "kernel": kernel(),
        "tools": tools(),
        "python": python(),
        "live": dict(extra) if extra else None,
    }


# -- the code


def code(tree: Path) -> dict[str, Any]:
    """Version of this package, and the commit of its work tree where it is one."""
    dirty = None
    commit = _git(tree, "rev-parse", "HEAD")
    if commit is not None:
        # Run folders and other untracked files do not change the code.
        changes = _git(
            tree, "status", "--porcelain", "--untracked-files=no"
        )
        dirty = None if changes is None else changes != ""
    return {
        "hosenet": _version("hosenet"),
        "commit": commit,
        "dirty": dirty,
    }


TREE = Path(__file__).resolve().parents[2]
"""The work tree of this code, if it is in one."""


def commit_of(file: Path) -> str | None:
    """The last commit that changed a file of this work tree; None where it has
    none, or the file differs from it.
    """
    if _git(TREE, "status", "--porcelain", "--", str(file)):
        return None
    return _git(TREE, "log", "-1", "--format=%H", "--", str(file)) or None


def content_at(commit: str, file: Path) -> str | None:
    """A file of this work tree as it was at a commit; None where there is none."""
    inside = file.resolve().relative_to(TREE).as_posix()
    return _git(TREE, "show", f"{commit}:{inside}")


def unsound_commit(record: Mapping[str, Any]) -> str:
    """The reason why a result cannot be taken again from the commit that its
    ``code`` names; empty where it can.
    """
    commit = record.get("commit")
    if not commit:
        return "it names no commit"
    if record.get("dirty"):
        return "taken with uncommitted changes"
    if _git(TREE, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return "its commit is not in the repository"
    if _git(TREE, "merge-base", "--is-ancestor", commit, "HEAD") is None:
        return "its commit is no ancestor of the present one"
    return ""


def _git(tree: Path, *arguments: str) -> str | None:
    """Output of a git command in a work tree; None where it fails, or ``tree``
    is no work tree's top.
    """
    if not (tree / ".git").exists():
        return None
    # Under sudo the tree belongs to another user than root, which git refuses
    # without this setting.
    safe = f"safe.directory={tree}"
    settings = ("-c", safe, "-c", "core.fsmonitor=false")
    command = ("git", *settings, "-C", str(tree), *arguments)
    owner = tree.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return _output(command)
    # As the owner, so that root runs nothing that a user could put into the
    # tree.
    as_owner = _output(
        command, user=owner.st_uid, group=owner.st_gid, extra_groups=[]
    )
    if as_owner is not None:
        return as_owner
    return _output(command)


# -- the machine


def machine() -> dict[str, Any]:
    """Processor, memory and load."""
    memory = psutil.virtual_memory()
    return {
        "cpu_model": cpu_model(_read(_PROC / "cpuinfo")),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "load_average": list(os.getloadavg()),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        # It exits with 1 where it finds none, and says `none`.
        "virtualisation": _output(("systemd-detect-virt",), codes=(0, 1)),
        "architecture": platform.machine(),
    }


def cpu_model(cpuinfo: str | None) -> str | None:
    """The processor's name from the text of ``/proc/cpuinfo``; None where it
    has none.
    """
    if cpuinfo is None:
        return None
    # ARM's file has no "model name". Virtual machines may have an empty one: the
    # next line is not the name.
    line = r"^(?:model name|Model|Hardware)[ \t]*:[ \t]*(\S.*)$"
    match = re.search(line, cpuinfo, re.MULTILINE)
    if match:
        return match.group(1).strip()
    return None


def kernel() -> dict[str, Any]:
    """Kernel, distribution, and the settings that TCP depends on."""
    net = _PROC / "sys/net"
    controls = _read(net / "ipv4/tcp_available_congestion_control")
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return {
        "release": platform.release(),
        "version": platform.version(),
        "distribution": distribution(),
        "congestion_control": _read(net / "ipv4/tcp_congestion_control"),
        "congestion_controls": None
        if controls is None
        else controls.split(),
        "default_qdisc": _read(net / "core/default_qdisc"),
        "wmem_default": _read_number(net / "core/wmem_default"),
        "wmem_max": _read_number(net / "core/wmem_max"),
        "rmem_max": _read_number(net / "core/rmem_max"),
        "openvswitch_module": Path("/sys/module/openvswitch").exists(),
        "cgroup": "v2" if unified else "v1",
    }


def distribution() -> str | None:
    """``Debian GNU/Linux 12 (bookworm)``; None where ``/etc/os-release`` is
    missing.
    """
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


_VERSION_COMMANDS = {
    "ovs_vswitchd": ("ovs-vswitchd", "--version"),
    "ovs_running": ("ovs-appctl", "--timeout=3", "version"),
    "iproute2": ("tc", "-V"),
    "iperf3": ("iperf3", "--version"),
    "ethtool": ("ethtool", "--version"),
}


def tools() -> dict[str, str | None]:
    """Versions of the programs that make and limit the network."""
    versions: dict[str, str | None] = {}
    for name, command in _VERSION_COMMANDS.items():
        text = _output(command)
        versions[name] = first_version(text)
        # iproute2 counts kernels and libbpf on the same line: all of it tells.
        if name == "iproute2":
            versions[name] = text.splitlines()[0] if text else None
    return versions


def first_version(text: str | None) -> str | None:
    """The first dotted number in a program's own words, or ``version 6``; None
    without either.
    """
    if text is None:
        return None
    dotted = re.search(r"\d+(?:\.\d+)+[\w.+~-]*", text)
    match = dotted or re.search(r"(?<=\bversion )\d+", text)
    if match:
        return match.group(0)
    return None


# -- Python


def python() -> dict[str, Any]:
    """The interpreter, the controller libraries at hand, and every package it
    can import.
    """
    return {
        "version": platform.python_version(),
        "controller_libraries": {
            name: _version(name) for name in ("ryu", "os-ken")
        },
        "packages": packages(),
    }


# Read once a process: its packages are the same for each run that it plays.
@cache
def packages() -> dict[str, str]:
    """Version of every installed distribution by name, the first where there
    are several.
    """
    versions: dict[str, str] = {}
    for installed in metadata.distributions():
        # A half-removed package has metadata without a name.
        if installed.metadata and installed.metadata["Name"]:
            name = installed.metadata["Name"].lower()
            versions.setdefault(name, installed.version)
    return dict(sorted(versions.items()))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# -- commands and files


def _output(
    command: Sequence[str], codes: Sequence[int] = (0,), **run_as: Any
) -> str | None:
    """Output of a command; None where it is missing, fails or does not end in
    time.
    """
    environment = {
        # Versions are found among a program's English words.
        "LC_ALL": "C",
        # Looking at a work tree must not write to it.
        "GIT_OPTIONAL_LOCKS": "0",
    }
    for name in ("PATH", "HOME"):
        if name in os.environ:
            environment[name] = os.environ[name]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
            # By root's terminal, a tree's owner could otherwise type commands
            # into root's shell (TIOCSTI).
            start_new_session=True,
            **run_as,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode in codes else None


def _read_number(path: Path) -> int | None:
    text = _read(path)
    if text and text.isdecimal():
        return int(text)
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
