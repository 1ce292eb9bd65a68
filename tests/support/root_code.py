"""``python -m tests.support.root_code``: the code that needs root, in lines.

Code lines, as density counts them: without comments and docstrings. The rest of
a live run (files, policies, engine, records) is in the same process, but needs
no root.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tests.support.density import density

PROJECT = Path(__file__).parents[2]
PRODUCT = ("testbed", "controller", "jobs", "topologies")
ROOT_CODE: dict[str, tuple[str, ...]] = {
    "kernel and switch: namespaces, devices, limits, control groups": (
        "testbed/backends/emu/*.py",
    ),
    "keeper of a network that stays up": ("testbed/standing/*.py",),
    "system calls, and giving up root for good": (
        "jobs/linux.py",
        "jobs/vm_folders.py",
        "jobs/vm_names.py",
        "jobs/vm_processes.py",
        "jobs/mapped_folders.py",
        "jobs/call_filter.py",
        "jobs/inherited_settings.py",
        "jobs/live/forkserver.py",
        "jobs/live/agent_pool.py",
        "controller/launch.py",
        "controller/confinement.py",
        # It asks the kernel whose a connection is, which needs no root.
        "controller/switch_peers.py",
    ),
    "files of callers, and temporary folders": (
        "testbed/owned_files.py",
        "testbed/private_folders.py",
        "testbed/labs/student_folder.py",
    ),
}
"""What needs root -> its files, as patterns below the project."""
ROOT_CALLS = frozenset(
    [
        *(
            "setns",
            "unshare",
            "mount",
            "chown",
            "fchown",
            "lchown",
            "chroot",
        ),
        *("setuid", "setgid", "setresuid", "setresgid", "setgroups"),
        *("AF_PACKET", "SOCK_RAW", "AF_NETLINK"),
    ]
)
"""Calls and sockets that a process without privileges has no use of."""


NEEDS_NO_ROOT = frozenset(
    (
        "ended_with_parent",
        "hides_processes",
        "set_no_new_privileges",
        "set_parent_death_signal",
        "signal_name",
        "system_call",
    )
)
"""Functions of ``jobs.linux`` that any process may call."""


def code_lines(patterns: tuple[str, ...]) -> int:
    """Code lines of the files of some patterns."""
    paths = [path for pattern in patterns for path in PROJECT.glob(pattern)]
    return density(path.read_text("utf-8") for path in paths).code_lines


def product_lines() -> int:
    return code_lines(tuple(f"{room}/**/*.py" for room in PRODUCT))


def beyond() -> list[str]:
    """Files of the product that make root's system calls and are not listed."""
    listed = {
        path
        for patterns in ROOT_CODE.values()
        for pattern in patterns
        for path in PROJECT.glob(pattern)
    }
    others = []
    for room in PRODUCT:
        for path in sorted(PROJECT.glob(f"{room}/**/*.py")):
            if path not in listed and _calls_as_root(
                path.read_text("utf-8")
            ):
                others.append(str(path.relative_to(PROJECT)))
    return others


def _calls_as_root(source: str) -> bool:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        module = node.value
        by_wrapper = isinstance(module, ast.Name) and module.id == "linux"
        if node.attr in ROOT_CALLS:
            return True
        if by_wrapper and node.attr not in NEEDS_NO_ROOT:
            return True
    return False


def main() -> int:
    lines_of = {
        what: code_lines(files) for what, files in ROOT_CODE.items()
    }
    for what, lines in lines_of.items():
        sys.stdout.write(f"{lines:7,}  {what}\n")
    together, whole = sum(lines_of.values()), product_lines()
    percent = round(100 * together / whole)
    sys.stdout.write(f"{together:7,}  together, {percent} % of {whole:,}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
