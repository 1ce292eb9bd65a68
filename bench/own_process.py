"""Measurements in a process of their own, with its peak memory.

``python -m bench.own_process MODULE FUNCTION ARGUMENTS`` is what such a process
runs: it prints what ``FUNCTION(**ARGUMENTS)`` returns, and the most memory it
had, as JSON.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Measured:
    """Value that a measurement returned, and its process's peak resident
    memory.
    """

    returned: Any
    peak_mib: float


def measured(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> Measured:
    """Call ``function`` in a new process."""
    argv = [
        sys.executable,
        "-m",
        __name__,
        function.__module__,
        function.__name__,
    ]
    # Peak memory is a process's for good: a new one begins at nothing.
    answer = subprocess.run(
        [*argv, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    # What is measured may print lines before.
    return Measured(**json.loads(answer.stdout.splitlines()[-1]))


def peak_mib() -> float:
    """Peak resident memory of this process (without that of its parent)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel does not tell a process's peak memory")


def main(argv: list[str]) -> None:
    """Measure, and print the answer as the last line."""
    module, function, arguments = argv
    returned = getattr(importlib.import_module(module), function)(
        **json.loads(arguments)
    )
    sys.stdout.write(
        json.dumps({"returned": returned, "peak_mib": peak_mib()}) + "\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
