"""Progress of many runs on standard error: a bar with the time left; lines
without a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from testbed.cli import console
from testbed.cli.run_progress import clock
from testbed.sweeps.result_store import Report, SweepProgress

SAY_EVERY_S = 30.0
EXPECTED_S = 60.0
"""Where costs are expected seconds, they weigh as much as so many observed ones:
the time that a first run needs to begin says nothing about all runs.
"""


@contextmanager
def shown_progress(
    name: str, things: str = "runs"
) -> Generator[Report, None, None]:
    """A bar with the time left; without a terminal a line every half minute.

    If it is interrupted, says how many of the ``things`` are kept.
    """
    began_s = shown_s = time.monotonic()
    last: SweepProgress | None = None
    with console.progress(name, total=None) as bars:
        task = bars.task_ids[0]

        def report(now: SweepProgress) -> None:
            nonlocal began_s, last, shown_s
            if now.kept and (last is None or last.stage):
                console.say(
                    f"{name}: {now.kept} of {now.of} {things} are there already"
                )
            # A further round of seeds begins anew, too: its costs are those
            # of the runs that it adds.
            if (
                last is None
                or now.stage != last.stage
                or now.cost < last.cost
            ):
                began_s = time.monotonic()
                bars.reset(task)
            last = now
            text = f"{name} {now.done}/{now.of}"
            if now.stage:
                text = f"{name}, {now.stage}: {now.done}/{now.of}"
            # The bar follows expected costs: a cell of 500 jobs takes
            # longer than one of 50.
            bars.update(
                task,
                description=text,
                total=now.of_cost or 1.0,
                completed=now.cost,
            )
            if bars.disable and time.monotonic() - shown_s >= SAY_EVERY_S:
                shown_s = time.monotonic()
                left = clock(_left_s(now, shown_s - began_s))
                console.say(f"{text} {things}, about {left} left")

        try:
            yield report
        except KeyboardInterrupt:
            if last is not None and not last.stage:
                console.say(
                    f"{name}: {last.done} of {last.of} {things} are kept;"
                    " the same command continues"
                )
            raise


def _left_s(now: SweepProgress, elapsed_s: float) -> float:
    """Time left at the pace so far; where costs are seconds, that pace corrects
    them step by step.
    """
    weight_s = 0.0
    if now.in_seconds:
        weight_s = EXPECTED_S
    observed = now.cost + weight_s
    if not observed:
        return 0.0
    return (elapsed_s + weight_s) * (now.of_cost - now.cost) / observed
