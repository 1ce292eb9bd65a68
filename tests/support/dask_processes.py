"""A Dask scheduler and workers as processes of their own, on the loopback device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from tests.support.scripted_tasks import wait_until

ROOT = Path(__file__).parents[2]
END_S = 30.0
# On a busy machine a scheduler may answer late.
ANSWER_S = 120.0


class DaskProcesses:
    """Started below ``folder``, on ports of the kernel's choosing; all are ended with the block.

    ``security``: further options of each, as for TLS.
    """

    def __init__(self, folder: Path, *security: str) -> None:
        self.folder = folder
        self._security = security
        self.address = ""
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> DaskProcesses:
        # Where the scheduler does not come up, all is ended here.
        with self._stack:
            self._stack.enter_context(
                mock.patch("testbed.sweeps.cluster.ANSWER_S", ANSWER_S)
            )
            self.address = self._scheduler()
            self._stack = self._stack.pop_all()
        return self

    def _scheduler(self) -> str:
        file = self.folder / "scheduler.json"
        options = (
            "--port",
            "0",
            "--dashboard-address",
            "127.0.0.1:0",
            "--scheduler-file",
            file,
        )
        self.scheduler = self._start(
            "scheduler", "dask_scheduler", "--host", "127.0.0.1", *options
        )
        # It is there before it is written.
        wait_until(
            lambda: (
                file.is_file() and file.read_text("utf-8").endswith("}")
            ),
            str(file),
        )
        return str(json.loads(file.read_text("utf-8"))["address"])

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def worker(
        self,
        name: str,
        *options: str,
        nanny: bool = False,
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        """A worker with one thread."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        fixed = (
            "--name",
            name,
            "--nthreads",
            "1",
            "--local-directory",
            place,
            "--no-dashboard",
        )
        kind = "--nanny" if nanny else "--no-nanny"
        started = self._start(
            name, "dask_worker", self.address, "--host", "127.0.0.1", kind, *fixed, *options,
            environment=environment,
        )  # fmt: skip
        self.workers[name] = started
        return started

    def wait_for_workers(self) -> None:
        """Return when every worker that was started has registered. Raises TimeoutError."""
        for name in self.workers:
            wait_until(
                lambda name=name: "Registered to" in self.log(name),
                f"{name} to register",
            )

    def kill(self, name: str) -> None:
        """SIGKILL a worker."""
        self.workers[name].kill()
        self.workers[name].wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(
            "utf-8", errors="replace"
        )

    def _start(
        self,
        name: str,
        program: str,
        *options: str | Path,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", f"distributed.cli.{program}")
        argv: Sequence[str | Path] = (*command, *self._security, *options)
        path = os.pathsep.join(
            (str(ROOT), os.environ.get("PYTHONPATH", ""))
        )
        env = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        log = self._stack.enter_context(
            (self.folder / f"{name}.log").open("wb")
        )
        process = subprocess.Popen(
            argv,
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self._stack.callback(_end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
