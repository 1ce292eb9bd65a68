"""Libraries that a userspace switch is started with: an allocator, and
switch_preload.c compiled.

The compiled library is loaded from a file in memory, since temporary folders of
root are often mounted noexec.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from jobs.linux import C_COMPILERS
from testbed.backends.emu.commands import CommandFailed, run
from testbed.private_folders import private_folder

SOURCE = Path(__file__).with_suffix(".c")
FILE_NAME = "switch_preload"
BEGUN = "paced"
PACE_FILE = "HOSENET_PASS_FILE"
# Buffers of packet sockets. One socket sends for all ports. Each port has its own
# to receive, whose buffer must hold all that arrives while the switch's thread
# waits for a processor.
SEND_BUFFER_BYTES = 32 << 20
RECEIVE_BUFFER_BYTES = 4 << 20
BUFFERS = {
    "HOSENET_SEND_BYTES": str(SEND_BUFFER_BYTES),
    "HOSENET_RECEIVE_BYTES": str(RECEIVE_BUFFER_BYTES),
}

# A port receives into 32 buffers of 64 KiB. A large packet is sent on in the
# buffer in which it came, and the port gets a new buffer. With the C library's
# heap, memory fragments and stays resident. jemalloc returns freed pages within
# a second; to return them at once would cost half as much processor time again
# per byte. In each pass each port takes and returns 32 buffers: the thread's
# cache has to hold as many. Where jemalloc is not installed, the loader continues
# without it.
ALLOCATOR = {
    "LD_PRELOAD": "libjemalloc.so.2",
    "MALLOC_CONF": "dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:1,tcache_nslots_small_min:128",
}


@dataclass(frozen=True)
class Preload:
    """Environment and open files that a daemon is started with."""

    environment: dict[str, str] = field(
        default_factory=lambda: dict(ALLOCATOR)
    )
    files: tuple[int, ...] = ()

    def paced(self, interval_s: float, folder: Path) -> dict[str, str]:
        """Environment of a daemon that makes at most one pass in ``interval_s``,
        on average.

        The limit holds as soon as there is a file :data:`BEGUN` in ``folder``.
        """
        # Without the library nothing reads the variables.
        if not self.files:
            return self.environment
        interval_us = max(1, round(interval_s * 1e6))
        return {
            **self.environment,
            "HOSENET_PASS_US": str(interval_us),
            PACE_FILE: str(folder / BEGUN),
        }


@contextmanager
def preload() -> Iterator[Preload]:
    """Environment for daemons that are started in the block.

    Without a C compiler, or files in memory, it has the allocator alone.
    """
    with private_folder("preload-") as folder:
        compiled = _compiled(folder / SOURCE.stem)
    file = None
    if compiled is not None:
        # A kernel may forbid such a file (vm.memfd_noexec=2).
        with suppress(OSError):
            file = os.memfd_create(FILE_NAME)
    if compiled is None or file is None:
        yield Preload()
        return
    with os.fdopen(file, "wb", buffering=0) as memory:
        memory.write(compiled)
        libraries = f"/proc/self/fd/{file}:{ALLOCATOR['LD_PRELOAD']}"
        environment = {**ALLOCATOR, **BUFFERS, "LD_PRELOAD": libraries}
        yield Preload(environment, (file,))


def _compiled(library: Path) -> bytes | None:
    compiler = next(filter(shutil.which, C_COMPILERS), None)
    if compiler is None:
        return None
    options = ["-nostdlib", "-shared", "-fPIC", "-o"]
    try:
        run([compiler, *options, str(library), str(SOURCE)])
    except CommandFailed:
        return None
    return library.read_bytes()


def is_preloaded(pid: int) -> bool:
    """True if a process has loaded the library."""
    return FILE_NAME in _process_file(pid, "maps")


def is_paced(pid: int) -> bool:
    """True if a process has the library and was started with a pace."""
    return is_preloaded(pid) and PACE_FILE in _process_file(pid, "environ")


def _process_file(pid: int, name: str) -> str:
    """The text of a process's file in /proc; empty where it cannot be read."""
    path = Path(f"/proc/{pid}/{name}")
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
