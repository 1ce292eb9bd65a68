"""The library that paces the passes of a busy userspace switch: ``paced_poll.c``, compiled.

It is loaded from a file in memory: folders of root's that do not outlive the machine are often
mounted without the right to execute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.backends.emu.commands import CommandFailed, run
from testbed.backends.emu.open_vswitch import ALLOCATOR

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("tcc", "cc")
FILE_NAME = "paced_poll"
BEGUN = "paced"


@dataclass(frozen=True)
class Pace:
    """Environment and open files that a daemon is started with; empty without a compiler."""

    environment: dict[str, str] = field(default_factory=dict)
    files: tuple[int, ...] = ()

    def of(self, folder: Path) -> dict[str, str]:
        """The environment of a daemon whose files are in ``folder``."""
        return self.environment and {**self.environment, "HOSENET_PASS_FILE": str(folder / BEGUN)}


@contextmanager
def pace(interval_s: float, folder: Path) -> Iterator[Pace]:
    """At most one pass in ``interval_s`` on average, of daemons started in the block.

    Each keeps to it once there is a file :data:`BEGUN` in its folder. ``folder``: for the
    compiler's output.
    """
    compiled = _compiled(folder / SOURCE.stem)
    if compiled is None:
        yield Pace()
        return
    file = os.memfd_create(FILE_NAME)
    with os.fdopen(file, "wb", buffering=0) as memory:
        memory.write(compiled)
        interval_us = max(1, round(interval_s * 1e6))
        libraries = f"/proc/self/fd/{file}:{ALLOCATOR['LD_PRELOAD']}"
        yield Pace({"LD_PRELOAD": libraries, "HOSENET_PASS_US": str(interval_us)}, (file,))


def _compiled(library: Path) -> bytes | None:
    compiler = next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        return None
    try:
        run([compiler, "-nostdlib", "-shared", "-fPIC", "-o", str(library), str(SOURCE)])
    except CommandFailed:
        return None
    return library.read_bytes()


def is_paced(pid: int) -> bool:
    """True if the library is in a process."""
    try:
        return FILE_NAME in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    except OSError:
        return False
