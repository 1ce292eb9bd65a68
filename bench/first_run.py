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
    cold, warm = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "day.yaml")
        path.write_text(
            EXPERIMENT.replace("POLICY", "dcloud").replace(
                "HOURS", f"{HOURS:g}"
            )
        )
        installed = Path(folder, "installed")
        _timed(["-m", "testbed.play.precompile"], installed)
        simulate = [
            "-m",
            "testbed.cli.main",
            "simulate",
            str(path),
            "--out",
            folder,
            "--json",
        ]
        for number in range(1 if quick else 3):
            cold.append(_timed(simulate, Path(folder, f"empty-{number}")))
            warm.append(_timed(simulate, installed))
    (first, first_cpu), (second, second_cpu) = (
        zip(*cold, strict=True),
        zip(*warm, strict=True),
    )
    return [
        _row("nothing compiled", first, first_cpu),
        _row("as installed", second, second_cpu),
    ]


def _timed(arguments: list[str], kept: Path) -> tuple[float, float]:
    """Seconds on the clock, and of the processor, with compiled loops kept in a
    folder.
    """
    before, began = (
        resource.getrusage(resource.RUSAGE_CHILDREN),
        time.perf_counter(),
    )
    subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "NUMBA_CACHE_DIR": str(kept)},
        stdout=subprocess.DEVNULL,
        timeout=600,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime - before.ru_utime


def _row(
    name: str, wall_s: tuple[float, ...], cpu_s: tuple[float, ...]
) -> Result:
    return Result(
        name,
        "s",
        cpu_s,
        extra={"on the clock, in s": [round(s, 2) for s in wall_s]},
    )
