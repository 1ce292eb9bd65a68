"""One testbed a machine: a lock with its holder's name, given back by the kernel if it dies."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType

from testbed.backends.emu.ledger import start_ticks, state_dir
from testbed.errors import MachineCannot


class MachineLock:
    """The right to change this machine's network. Close-on-exec: no child keeps it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, name: str, state: Path | None = None) -> MachineLock:
        """Raises MachineCannot, naming the holder, if another testbed runs here."""
        path = (state or state_dir()) / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise MachineCannot(
                f"another testbed runs on this machine: {_holder(path)}",
                "wait until it is done, or end it with Ctrl-C",
            ) from None
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


def _holder(path: Path) -> str:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return f"{record['name']!r} (process {record['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "one that is just starting"
