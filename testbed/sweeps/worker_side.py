"""Functions that a sweep runs on a Dask worker: its facts, its files, its
tasks.

Every function here is sent by its name; the worker's own code runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from testbed.errors import MachineCannot
from testbed.private_folders import replaceable
from testbed.sweeps.child_process import interrupt
from testbed.sweeps.computing_sources import code_digest
from testbed.sweeps.content_store import (
    Content,
    ContentStore,
    standard_store,
)
from testbed.sweeps.tasks import FileRef, Outcome, Task, attempt, unchanged

LIVE = "testbed"
"""The resource of workers that run live tasks: ``dask worker … --resources
"testbed=1"``.
"""

# A worker with several threads has one task all the same: two would share a
# processor's time.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class WorkerFacts:
    """A worker as it describes itself; ``boot_id`` tells its machine from all
    others.
    """

    name: str
    host: str
    boot_id: str
    live: bool
    digest: str
    scratch: Path


async def facts(dask_worker: Any) -> WorkerFacts:
    """Describes the worker that this runs on. Raises MachineCannot where others
    could exchange its files.
    """
    folder = Path(dask_worker.local_directory)
    exposed = replaceable(folder)
    if exposed is not None:
        raise MachineCannot(
            f"works in {folder}, and others can write to {exposed}:"
            " start it with --local-directory in a folder of its own"
        )
    live = dask_worker.state.total_resources.get(LIVE, 0) >= 1
    return WorkerFacts(
        name=str(dask_worker.name),
        host=socket.gethostname(),
        # Of the running kernel: containers on one machine have it in
        # common.
        boot_id=Path("/proc/sys/kernel/random/boot_id")
        .read_text("ascii")
        .strip(),
        live=live,
        digest=await asyncio.to_thread(worker_digest, live=live),
        scratch=folder,
    )


@cache
def worker_digest(*, live: bool) -> str:
    """Digest of the code on which driver and worker must agree: what computes,
    and this package.
    """
    digest = hashlib.sha256(code_digest(live=live).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


# -- files


@cache
def _store() -> ContentStore:
    return standard_store()


async def has_content(content: Content) -> bool:
    """True if this machine has the content."""
    # In a thread: it reads the disk, and the worker has to reply meanwhile.
    return await asyncio.to_thread(_store().find, content) is not None


async def receive(
    content: Content, sender: str, offset: int, part: bytes
) -> None:
    """Takes one part of a content that is missing."""
    await asyncio.to_thread(_store().receive, content, sender, offset, part)


# -- tasks


@dataclass(frozen=True)
class WorkerContext:
    """The context of a task on a worker."""

    scratch: Path

    def path(self, ref: FileRef) -> Path:
        """Path of the file with that content. Raises RunFailed where it has
        changed meanwhile.
        """
        return unchanged(ref, _store()[ref.sha256], ref.path)


def run_batch(batch: bytes, scratch: str, limit_s: float) -> bytes:
    """Outcomes of pickled tasks, in order; the last ones are left undone if
    time is up.
    """
    tasks: tuple[Task, ...] = pickle.loads(batch)  # noqa: S301 - Dask runs what its client sends
    context = WorkerContext(Path(scratch))
    outcomes: list[Outcome] = []
    with _one_at_a_time:
        began_s = time.monotonic()
        for task in tasks:
            if outcomes and time.monotonic() - began_s > limit_s:
                break
            outcomes.append(attempt(task, context))
    return pickle.dumps(outcomes)


@cache
def examined() -> Mapping[str, Any]:
    """The doctor's verdict on this machine and the machine's properties, for the
    provenance of live tasks.
    """
    from testbed.backends.emu.machine_checks import examine, verdict
    from testbed.record.provenance import kernel, machine, tools

    checks = examine()
    able, sentence = verdict(checks)
    doctor = {
        "can_run": able,
        "verdict": sentence,
        "checks": [check.to_json() for check in checks],
    }
    return {
        "doctor": doctor,
        "machine": {**machine(), "kernel": kernel(), "tools": tools()},
    }


async def stop() -> None:
    """Interrupts the programs that tasks run on this worker."""
    interrupt()
