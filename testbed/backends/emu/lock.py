"""One testbed a machine: a lock with its holder's name, given back by the kernel if it dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType

from testbed.backends.emu.ledger import start_ticks, state_dir
from testbed.errors import MachineCannot

GRACE_S = 3.0


class MachineLock:
    """The right to change this machine's network. Close-on-exec: no child keeps it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, name: str, state: Path | None = None) -> MachineLock:
        """Raises MachineCannot, naming the holder, if another testbed runs here."""
        path = (state or state_dir()) / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + GRACE_S
        while not _locked(descriptor):
            holder = _holder(path)
            if holder is not None or time.monotonic() > deadline:
                os.close(descriptor)
                raise MachineCannot(
                    f"another testbed runs on this machine: {holder or 'one without a name'}",
                    "wait until it is done, or end it with Ctrl-C",
                )
            time.sleep(0.01)
        pid = os.getpid()
        record = {"name": name, "pid": pid, "start_ticks": start_ticks(pid)}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)
        return cls(descriptor)

    def give_back(self) -> None:
        """Let others take it. A second call does nothing."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> MachineLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str | None:
    """The living holder; None if it has not said its name yet, or has died.

    A dead one may hold the lock for a moment more: a child it was just forking has the lock's
    descriptor until it becomes another program.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if start_ticks(record["pid"]) != record["start_ticks"]:
            return None
        return f"{record['name']!r} (process {record['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return None
