"""Parallel programs behind parallel programs: what a foreground program loses to
one in the background, and what that gets of the idle cycles (CMBF, Section 3).

Two nodes of a processor each, two ranks of Open MPI a program, a rank a node;
the control groups are those of live runs, weights 10,000 to 1. A pair is a
foreground and a background program of :mod:`bench.mpi_steps`, each of a share of
the processor of its own. Each pair is measured three ways for the same time:
both alone, and both together. The order of pairs, and of the three within a
pair, is drawn.

*Efficiency*, by the paper's formula (Section 5.1): what a background program
does of what it does alone, over the share that the foreground leaves idle of
what it wants, or over 1 where more is left.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.progress import Progress, Step
from bench.samples import Result
from jobs.live import rank_waits
from testbed.backends.emu.cgroups import (
    MAX_WEIGHT,
    RunCgroup,
    probe_layout,
    remove_groups,
)
from testbed.errors import MachineCannot
from testbed.sweeps.intervals import estimate

PYTHON = "/usr/bin/python3"
PROGRAM = Path(__file__).with_name("mpi_steps.py")
NODES = range(2)
FOREGROUND = 0
BACKGROUND = 1
"""The VMs of a node."""
BURST_MS = 10.0
FOREGROUND_USES = (0.3, 0.5, 0.7, 0.9)
BACKGROUND_USES = (0.2, 0.4, 0.6, 0.8, 1.0)
START_S = 2.5
MEASURED_S = 4.0
QUICK_S = 1.5
TIMEOUT_S = 60.0
SEED = 3
PAPER_MEAN = 0.428
PAPER_SIGMA = 0.144


@dataclass(frozen=True)
class Measured:
    """Steps a second of a program, and the share of a processor of its ranks."""

    steps_per_s: float
    use: float


@dataclass(frozen=True)
class Pair:
    """A pair's programs, alone and together."""

    foreground_alone: Measured
    background_alone: Measured
    foreground: Measured
    background: Measured

    @property
    def loss(self) -> float:
        """The foreground program's loss, as a share of its time alone."""
        return (
            self.foreground_alone.steps_per_s / self.foreground.steps_per_s
            - 1.0
        )

    @property
    def idle(self) -> float:
        """The share of the processors that the foreground leaves."""
        return 1.0 - self.foreground.use

    @property
    def efficiency(self) -> float:
        progress = (
            self.background.steps_per_s / self.background_alone.steps_per_s
        )
        return progress / min(1.0, self.idle / self.background_alone.use)


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--seed``."""
    parser.add_argument(
        "--seed",
        type=int,
        default=SEED,
        help="draws the order (default %(default)s)",
    )


def run(quick: bool, options: argparse.Namespace) -> list[Result]:
    """Rows: efficiency beside the paper's, and the foreground's loss."""
    _check_machine()
    draw = random.Random(options.seed)  # noqa: S311 - an order
    pairs = list(product(FOREGROUND_USES, BACKGROUND_USES))
    draw.shuffle(pairs)
    seconds = MEASURED_S
    if quick:
        seconds = QUICK_S
        pairs = pairs[:4]
    # Each pair has three runs: both programs alone, and together.
    expected_s = 3 * (START_S + seconds + 0.5)
    progress = Progress([Step(_named(*pair), expected_s) for pair in pairs])
    measured = []
    with ExitStack() as stack:
        folder = TemporaryDirectory(prefix="hosenet-bench-")
        library = _library(Path(stack.enter_context(folder)))
        files = stack.enter_context(_groups())
        runs = _Runs(files, library, seconds, draw)
        for foreground, background in pairs:
            with progress.step():
                measured.append(runs.pair(foreground, background))
    return _rows(pairs, measured)


def _check_machine() -> None:
    """Raises MachineCannot where the programs cannot run."""
    if os.geteuid() or (os.cpu_count() or 1) < len(NODES):
        raise MachineCannot(
            "control groups need root, and two nodes two processors",
            "sudo python -m bench mpi-behind",
        )
    if shutil.which("mpirun") is None:
        raise MachineCannot(
            "there is no mpirun", "Debian: openmpi-bin python3-mpi4py"
        )


def _named(foreground: float, background: float) -> str:
    return f"{foreground:.0%} before {background:.0%}"


def _rows(
    pairs: Sequence[tuple[float, float]], measured: Sequence[Pair]
) -> list[Result]:
    efficiencies = []
    losses = []
    lines = []
    for uses, pair in zip(pairs, measured, strict=True):
        efficiencies.append(pair.efficiency)
        losses.append(100.0 * pair.loss)
        lines.append(
            f"{_named(*uses)}: idle {pair.idle:.3f}, "
            f"loss {pair.loss:+.3f}, efficiency {pair.efficiency:.3f}"
        )
    return [
        Result(
            "efficiency of parallel programs behind parallel ones",
            "",
            tuple(efficiencies),
            extra={
                "mean with its interval": estimate(efficiencies).show(3),
                "the paper's": f"mean {PAPER_MEAN}, sigma {PAPER_SIGMA}",
                "pairs": lines,
            },
        ),
        Result(
            "the foreground program's loss",
            "%",
            tuple(losses),
            extra={"the paper's": "0.0 to 3.7 %"},
        ),
    ]


class _Runs:
    """Runs of programs in the groups of two nodes."""

    def __init__(
        self,
        files: dict[int, list[str]],
        library: Path,
        seconds: float,
        draw: random.Random,
    ) -> None:
        self._files = files
        self._library = library
        self._seconds = seconds
        self._draw = draw

    def pair(self, foreground: float, background: float) -> Pair:
        """Both alone and both together, in an order that is drawn."""
        wanted = {
            "foreground": {FOREGROUND: foreground},
            "background": {BACKGROUND: background},
            "both": {FOREGROUND: foreground, BACKGROUND: background},
        }
        names = list(wanted)
        self._draw.shuffle(names)
        runs = {name: self._together(wanted[name]) for name in names}
        return Pair(
            foreground_alone=runs["foreground"][FOREGROUND],
            background_alone=runs["background"][BACKGROUND],
            foreground=runs["both"][FOREGROUND],
            background=runs["both"][BACKGROUND],
        )

    def _together(self, uses: dict[int, float]) -> dict[int, Measured]:
        """Programs of these shares of a processor, by VM, all at once."""
        begin_s = time.monotonic() + START_S
        started = {}
        for vm, use in uses.items():
            started[vm] = self._start(vm, use, begin_s)
        return {vm: _measured(process) for vm, process in started.items()}

    def _start(
        self, vm: int, use: float, begin_s: float
    ) -> subprocess.Popen[str]:
        wait_ms = BURST_MS * (1.0 - use) / use
        program = [
            PYTHON,
            str(PROGRAM),
            f"{BURST_MS:g}",
            f"{wait_ms:g}",
            f"{begin_s:.6f}",
            f"{self._seconds:g}",
            *self._files[vm],
        ]
        launcher = [
            "mpirun",
            "--allow-run-as-root",
            "--oversubscribe",
            *("--bind-to", "none"),
            *("-np", str(len(NODES))),
            *("--mca", "mpi_yield_when_idle", "1"),
            *("-x", f"LD_PRELOAD={self._library}"),
        ]
        return subprocess.Popen(
            [*launcher, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _measured(process: subprocess.Popen[str]) -> Measured:
    """Reads the line that a program printed. Raises RuntimeError where it failed."""
    try:
        printed, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError(f"mpirun: {errors.strip()[-300:]}")
    steps, took_s, used_s = map(float, printed.split())
    return Measured(steps / took_s, used_s / took_s)


@contextmanager
def _groups() -> Iterator[dict[int, list[str]]]:
    """Makes groups of two VMs on each node; yields the files by which ranks
    join them: by VM, an entry for each rank.
    """
    group = RunCgroup(probe_layout(), f"bench-{os.getpid()}")
    group.create()
    try:
        files: dict[int, list[str]] = {FOREGROUND: [], BACKGROUND: []}
        for node in NODES:
            for vm, weight in ((FOREGROUND, MAX_WEIGHT), (BACKGROUND, 1)):
                joins = group.add_vm(node, vm)
                group.set_weight(node, vm, weight)
                files[vm].append(",".join(map(str, joins)))
        yield files
    finally:
        # Kills what an interrupt has left in them.
        remove_groups(group.paths)


def _library(folder: Path) -> Path:
    """The library by which ranks that wait sleep, as in live runs."""
    source = folder / rank_waits.SOURCE_FILE
    source.write_text(rank_waits.SOURCE, encoding="ascii")
    words = rank_waits.compiler_words(str(folder))
    if not words:
        raise MachineCannot("there is no C compiler", "Debian: gcc")
    subprocess.run(words, check=True, stdout=sys.stderr)
    return folder / rank_waits.LIBRARY
