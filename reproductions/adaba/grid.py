"""What AdaBa's and BgMBF's figures have in common: sizes, logs, measures."""

from __future__ import annotations

from dataclasses import dataclass

from reproductions.adaba.workloads import Log
from reproductions.quantities import Measure

JOBS = 1000
QUICK_JOBS = 300


@dataclass(frozen=True)
class OfLog:
    """A log by the name that people know it by; cells measure both logs at once."""

    name: Log
    label: str

    def measure(
        self, name: str, label: str, unit: str = "", factor: float = 1.0, digits: int = 1
    ) -> Measure:
        """A cell's measure of this log."""
        return Measure(f"{self.name}_{name}", f"{label}, {self.label}", unit, factor, digits)


KTH, NASA = OfLog("kth", "KTH"), OfLog("nasa", "NASA")

ACCEPTED = Measure("acceptance", "accepted jobs", "%", 100.0)
CPU = Measure("cpu_s", "processor time of a run", "s", 1.0, 1)


def jobs_of(*, quick: bool) -> int:
    """How many jobs a run has."""
    return QUICK_JOBS if quick else JOBS


def size_words(*, quick: bool) -> str:
    """What is simulated, in words."""
    return f"fat-tree of 54 servers × 8 slots, links pooled; {jobs_of(quick=quick):,} jobs"


FULL = f"{size_words(quick=False)} from the beginning of each log"
QUICK = f"{size_words(quick=True)} from the beginning of each log"
