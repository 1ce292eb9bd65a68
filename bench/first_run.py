"""First ``testbed simulate`` of DCloud at 8,000 servers: as installed, and with
nothing compiled.

The whole command in a process of its own, a few arrivals of the default day.
Where nothing is compiled, as after ``pip install`` alone, the run compiles the
loops; ``provision.sh install`` has that done already (``python -m
testbed.play.precompile``), and then only the imports remain.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.dcloud_day import EXPERIMENT
from bench.samples import Result

HOURS = 0.1


def run(quick: bool) -> list[Result]:
    """Each several times in turn; ``quick``: once."""
    repeats = 3
    if quick:
        repeats = 1
    cold = []
    warm = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "day.yaml"
        text = EXPERIMENT.replace("POLICY", "dcloud")
        file.write_text(text.replace("HOURS", f"{HOURS:g}"))
        command = ("simulate", str(file), "--out", name, "--json")
        simulate = ["-m", "testbed.cli.main", *command]
        # Compiled once, as an installation does it.
        installed = folder / "installed"
        _timed(["-m", "testbed.play.precompile"], installed)
        for number in range(repeats):
            cold.append(_timed(simulate, folder / f"empty-{number}"))
            warm.append(_timed(simulate, installed))
    return [_row("nothing compiled", cold), _row("as installed", warm)]


def _timed(arguments: list[str], kept: Path) -> tuple[float, float]:
    """Seconds on the clock, and of the processor, with compiled loops kept in a
    folder.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "NUMBA_CACHE_DIR": str(kept)},
        stdout=subprocess.DEVNULL,
        timeout=600,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime - before.ru_utime


def _row(name: str, times: list[tuple[float, float]]) -> Result:
    """The processor's time, and beside it the time on the clock."""
    cpu_s = []
    wall_s = []
    for on_clock_s, of_processor_s in times:
        wall_s.append(round(on_clock_s, 2))
        cpu_s.append(of_processor_s)
    extra = {"on the clock, in s": wall_s}
    return Result(name, "s", tuple(cpu_s), extra=extra)
