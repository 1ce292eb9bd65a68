"""Libraries of a userspace switch: allocator and compiled switch_preload.c.

The library is loaded from a file in memory: folders of root's that do not
outlive the machine are often mounted without the right to execute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.backends.emu.commands import CommandFailed, run
from testbed.private_folders import private_folder

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("tcc", "cc")
FILE_NAME = "switch_preload"
BEGUN = "paced"
PACE_BEGINS = "HOSENET_PASS_FILE"
# Of a packet socket: what the one to send by holds for all ports, and what a
# port holds while the switch's thread waits for a processor.
SEND_BUFFER_BYTES = 32 << 20
RECEIVE_BUFFER_BYTES = 4 << 20
BUFFERS = {
    "HOSENET_SEND_BYTES": str(SEND_BUFFER_BYTES),
    "HOSENET_RECEIVE_BYTES": str(RECEIVE_BUFFER_BYTES),
}

# A port receives into 32 buffers of 64 KiB; a large packet is sent on in the
# one it came in, and that is replaced. Out of the C library's heap each is
# sooner or later another one's page, resident for good; this allocator gives
# what is freed back within a second (at once costs half again as much processor
# time a byte). In every pass each port takes 32 buffers and gives them back: as
# many have to fit into the thread's own cache. Where it is not installed, the
# loader goes on without it.
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
        """Environment of a daemon with a pass in ``interval_s`` on average.

        That is the most it makes once there is a file :data:`BEGUN` in
        ``folder``.
        """
        # Without the library nobody would read the variables, and
        # :func:`is_paced` goes by them.
        if not self.files:
            return self.environment
        interval_us = max(1, round(interval_s * 1e6))
        return {
            **self.environment,
            "HOSENET_PASS_US": str(interval_us),
            PACE_BEGINS: str(folder / BEGUN),
        }


@contextmanager
def preload() -> Iterator[Preload]:
    """For daemons started in the block; without a compiler the allocator alone."""
    with private_folder("preload-") as folder:
        compiled = _compiled(folder / SOURCE.stem)
    if compiled is None:
        yield Preload()
        return
    file = os.memfd_create(FILE_NAME)
    with os.fdopen(file, "wb", buffering=0) as memory:
        memory.write(compiled)
        libraries = [f"/proc/self/fd/{file}"]
        if "LD_PRELOAD" in ALLOCATOR:
            libraries.append(ALLOCATOR["LD_PRELOAD"])
        loaded = {"LD_PRELOAD": ":".join(libraries)}
        environment = {**ALLOCATOR, **BUFFERS, **loaded}
        yield Preload(environment, (file,))


def _compiled(library: Path) -> bytes | None:
    compiler = next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        return None
    options = ["-nostdlib", "-shared", "-fPIC", "-o"]
    try:
        run([compiler, *options, str(library), str(SOURCE)])
    except CommandFailed:
        return None
    return library.read_bytes()


def is_preloaded(pid: int) -> bool:
    """True if the library is in a process."""
    return FILE_NAME in _process_file(pid, "maps")


def is_paced(pid: int) -> bool:
    """True if a process, with the library, may be paced."""
    return is_preloaded(pid) and PACE_BEGINS in _process_file(
        pid, "environ"
    )


def _process_file(pid: int, name: str) -> str:
    """A file of a process below /proc; empty where it may not be read."""
    path = Path(f"/proc/{pid}/{name}")
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
