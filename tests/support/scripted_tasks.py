"""Tasks of a sweep that do as they are told, for tests of executors."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import BadInput
from testbed.sweeps.child_process import run_child
from testbed.sweeps.tasks import Context, FileRef

DONE_AGAIN = re.compile(
    r" (is|was) lost: (1 task is|\d+ tasks are) done again\b"
)
"""What a sweep says of a worker or a process that held tasks."""

# Four workers of Dask compute for ten seconds to start.
WAIT_S = 240.0


@dataclass(frozen=True)
class Square:
    """Computes a square; waits for a file ``gate`` first, if there is one."""

    number: int
    gate: Path | None = None
    live: bool = False
    files: Mapping[str, FileRef] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"square-{self.number}"

    def run(self, context: Context) -> Mapping[str, Any]:
        if self.gate is not None:
            wait_for(self.gate)
        texts = {
            name: context.path(ref).read_text("utf-8")
            for name, ref in self.files.items()
        }
        return {"result": {"square": self.number**2, **texts}}


@dataclass(frozen=True)
class Deadly(Square):
    """Kills its worker."""

    def run(self, context: Context) -> Mapping[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


@dataclass(frozen=True)
class Wrong(Square):
    """Raises an error of the product, or another."""

    planned: bool = True

    def run(self, context: Context) -> Mapping[str, Any]:
        if self.planned:
            raise BadInput("the cell is bad", "make it good")
        raise ZeroDivisionError("a fault")


@dataclass(frozen=True)
class Unpicklable(Square):
    """Has a result that cannot be sent."""

    def run(self, context: Context) -> Mapping[str, Any]:
        return {"result": {"square": lambda: self.number}}


@dataclass(frozen=True)
class LiveRun(Square):
    """Says where it ran and when, in lines of ``log``; invalid on workers of a name in ``bad``."""

    live: bool = True
    log: Path = Path("/nonexistent")
    bad: tuple[str, ...] = ()
    accepted: bool = False

    def run(self, context: Context) -> Mapping[str, Any]:
        from distributed import get_worker

        name = str(get_worker().name)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"begin {self.number} {name}\n")
        if self.gate is not None:
            wait_for(self.gate)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"end {self.number} {name}\n")
        verdict = "invalid" if name in self.bad else "ok"
        summary = {
            "fidelity": {"verdict": verdict, "reasons": ["as scripted"]}
        }
        result = {
            "square": self.number**2,
            "summary": summary,
            "met": self.accepted,
        }
        return {"result": result}


@dataclass(frozen=True)
class LiveChild(Square):
    """Runs a program until that is interrupted; it writes its number when it starts and ends."""

    live: bool = True
    log: Path = Path("/nonexistent")

    def run(self, context: Context) -> Mapping[str, Any]:
        script = (
            'trap \'echo "cleaned" >> "$0"; exit 130\' INT; echo "started $$" >> "$0";'
            " while :; do sleep 0.05; done"
        )
        done = run_child(["sh", "-c", script, str(self.log)])
        return {"result": {"code": done.returncode}}


def wait_for(path: Path) -> None:
    """Return when the file is there. Raises TimeoutError."""
    wait_until(path.exists, str(path))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds. Raises TimeoutError."""
    until_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(f"waited for {what}")
        time.sleep(0.01)
