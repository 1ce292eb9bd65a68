"""What CMBF's figures have in common: models, policies, measures, sizes."""

from __future__ import annotations

from dataclasses import dataclass

from reproductions.cmbf.cell import JOBS, NODES, ModelName
from reproductions.quantities import Grid, Measure, Quantity, Values

FCFS, EASY, CMBF, AMBF, CMCBF, AMCBF = "FCFS", "EASY", "CMBF", "AMBF", "CMCBF", "AMCBF"
POLICIES = {name: name.lower() for name in (FCFS, EASY, CMBF, AMBF, CMCBF, AMCBF)}
SIX = tuple(POLICIES)

LABELS: dict[ModelName, str] = {"feitelson": "FWorkload", "jann": "JWorkload"}
QUICK_SHARE = 10

RESPONSE = Measure("response_s", "mean response time", "s", 1.0, 0)
SLOWDOWN = Measure("slowdown", "mean bounded slowdown", digits=2)
MIGRATIONS = Measure("migrations", "migrations a job", digits=3)
USE = Measure("utilisation", "CPU use by the jobs' own work", "%", 100.0)
BUSY = Measure("busy", "CPU use, what is lost behind others included", "%", 100.0)
CPU = Measure("cpu_s", "processor time of a run", "s", 1.0, 1)


def jobs_of(model: ModelName, *, quick: bool) -> int:
    """How many jobs a run has."""
    return JOBS[model] // QUICK_SHARE if quick else JOBS[model]


def size_words(*models: ModelName, quick: bool) -> str:
    """What is simulated, in words."""
    counts = ", ".join(f"{jobs_of(m, quick=quick):,} jobs of {LABELS[m]}" for m in models)
    return f"{NODES} nodes; {counts}"


@dataclass(frozen=True)
class Largest(Quantity):
    """The largest of several quantities, seed by seed."""

    of: tuple[Quantity, ...]

    def values(self, grid: Grid) -> Values:
        return tuple(max(each) for each in zip(*(q.values(grid) for q in self.of), strict=True))

    @property
    def unit(self) -> str:
        return self.of[0].unit

    @property
    def digits(self) -> int:
        return self.of[0].digits

    @property
    def subject(self) -> str:
        return f"the largest {self.of[0].subject}"

    @property
    def place(self) -> str:
        return f"{self.of[0].place} … {self.of[-1].place}"
