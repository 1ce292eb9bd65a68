"""Dask in a job's VMs: a scheduler, workers in all VMs, and the client. A script.

``dask-head REMOTE-SHELL VM,VM… WORKERS WORD…``: the workers of each VM are
started by the remote shell. When all of them are there, ``WORD…``, the client's
start, is run; it finds the scheduler in ``DASK_SCHEDULER_ADDRESS``. Everything
ends with it, with its exit code.
"""

import os
import subprocess
import sys
from importlib import import_module
from typing import Any

PORT = 8786
PATIENCE_S = 50.0
GRACE_S = 5.0


def main(words: list[str]) -> int:
    """Runs the client ``words[3:]``; its exit code."""
    # Half of its functions are typed.
    distributed: Any = import_module("distributed")
    shell, names, workers = words[:3]
    vms = names.split(",")
    address = f"tcp://{vms[0]}:{PORT}"
    children = [subprocess.Popen(_scheduler_words(vms[0]))]
    try:
        for vm in vms:
            worker = _worker_words(address, vm, workers)
            children.append(subprocess.Popen([shell, vm, *worker]))
        # Before the client: its time is not to include the workers' start.
        with distributed.Client(address, timeout=PATIENCE_S) as client:
            client.wait_for_workers(len(vms) * int(workers), PATIENCE_S)
        environment = dict(os.environ, HOSENET_RANK="0")
        environment["DASK_SCHEDULER_ADDRESS"] = address
        return subprocess.call(words[3:], env=environment)
    finally:
        _end(children)


def _scheduler_words(vm: str) -> list[str]:
    module = "distributed.cli.dask_scheduler"
    words = [sys.executable, "-m", module, "--host", vm]
    return [*words, "--port", str(PORT), "--no-dashboard"]


def _worker_words(
    address: str,
    vm: str,
    workers: str,
) -> list[str]:
    words = ["exec", sys.executable, "-m", "distributed.cli.dask_worker"]
    words += [address, "--host", vm, "--name", vm, "--no-dashboard"]
    words += ["--nthreads", "1", "--nworkers", workers]
    # A nanny would be a second process for each worker.
    if workers == "1":
        words.append("--no-nanny")
    return words


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    """Ends all; a worker ends with its remote shell."""
    for child in reversed(children):
        child.terminate()
    for child in children:
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
