"""Samples into the figures every benchmark prints, and the machine they were
taken on.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, median
from typing import Any


@dataclass(frozen=True)
class Result:
    """One row of a benchmark: ``samples`` in ``unit``, and further facts in
    ``extra``.

    ``target``: the stated target in words, if any; ``meets``: whether it was
    met, None without one.
    """

    name: str
    unit: str
    samples: tuple[float, ...]
    target: str = ""
    meets: bool | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            **summary(self.samples),
            "target": self.target,
            "meets": self.meets,
            **self.extra,
        }


def quantile(samples: Sequence[float], q: float) -> float:
    """The smallest sample that is at least as large as a share ``q`` of them."""
    ordered = sorted(samples)
    rank = math.ceil(q * len(ordered))
    # From the first on, for q = 0; rounding may exceed the last.
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def summary(samples: Sequence[float]) -> dict[str, float | int]:
    """n, median, mean, p99, min, max."""
    return {
        "n": len(samples),
        "median": median(samples),
        "mean": fmean(samples),
        "p99": quantile(samples, 0.99),
        "min": min(samples),
        "max": max(samples),
    }


def _first_line(*argv: str) -> str | None:
    """The first line that a program prints; None where it is not installed."""
    try:
        out = subprocess.run(
            argv, capture_output=True, text=True, timeout=10, check=False
        )
    except OSError:
        return None
    for line in (out.stdout or out.stderr).splitlines():
        return line.strip()
    return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """Facts without which a figure means nothing: processor, memory, kernel,
    versions, load.
    """
    n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(n_bytes / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "numba": _version("numba"),
        "open_vswitch": _first_line("ovs-vswitchd", "--version"),
        "iproute2": _first_line("tc", "-V"),
        "datapath": _datapath(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    """The model's name, or the architecture where the kernel names none."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _datapath() -> str:
    """The datapath that Open vSwitch uses on this machine."""
    if Path("/sys/module/openvswitch").exists():
        return "kernel"
    return "userspace"
