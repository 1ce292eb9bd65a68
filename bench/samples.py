"""Samples into the figures every benchmark prints, and the machine they were
taken on.
"""

from __future__ import annotations

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
    """One row of a benchmark: ``samples`` of ``unit``; ``extra`` is what else
    belongs to it.

    ``meets`` says whether a stated target was met (None where there is none)
    and ``target`` which.
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
    return ordered[
        max(0, min(len(ordered) - 1, -int(-q * len(ordered) // 1) - 1))
    ]


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
    try:
        out = subprocess.run(
            argv, capture_output=True, text=True, timeout=10, check=False
        )
    except OSError:
        return None
    lines = (out.stdout or out.stderr).splitlines()
    return lines[0].strip() if lines else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """Processor, memory, kernel, versions and load: what a figure means nothing
    without.
    """
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(pages * page / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "numba": _version("numba"),
        "open_vswitch": _first_line("ovs-vswitchd", "--version"),
        "iproute2": _first_line("tc", "-V"),
        "datapath": "kernel"
        if Path("/sys/module/openvswitch").exists()
        else "userspace",
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }
