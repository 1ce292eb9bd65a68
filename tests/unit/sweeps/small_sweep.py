"""A sweep of cells that take milliseconds, and what runs it without a command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from testbed.spec.sweep_section import read_option
from testbed.sweeps.result_store import SweepProgress
from testbed.sweeps.sweep_folder import Sweep, SweepOptions, run_sweep
from testbed.sweeps.sweep_plan import PlanOptions, SweepPlan, plan_sweep
from testbed.sweeps.tasks import InProcess, Outcome, Task

FILE = """\
name: queue
topology: {kind: flat, nodes: 16}
policies: [fcfs, easy]
workload: {kind: exponential, jobs: 12, mean_vms: 4, load: 0.7}
"""


def planned(
    *options: str,
    text: str = FILE,
    path: Path = Path("queue.yaml"),
    **asked: Any,
) -> SweepPlan:
    over = tuple(map(read_option, options))
    return plan_sweep(path, text, PlanOptions(over, **asked))


def done(plan: SweepPlan, out: Path, **options: Any) -> Sweep:
    return run_sweep(plan, SweepOptions(out, **options), silent, print)


def silent(_: SweepProgress) -> None:
    pass


class Watched(InProcess):
    """An executor that notes the keys of what it runs, and can be as wide as is wished."""

    def __init__(self, width: int = 1, backwards: bool = False) -> None:
        self.width = width  # type: ignore[misc]
        self.keys: list[str] = []
        self._backwards = backwards

    def results(
        self, tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Outcome]]:
        found = list(tasks)[::-1] if self._backwards else tasks
        for task, outcome in super().results(found):
            self.keys.append(task.key)
            yield task, outcome
