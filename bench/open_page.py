"""The live page in Chromium beside a run that grows for an hour.

A run of 500 VMs is simulated, with 200 jobs that run or wait at any time; a
process then writes its events into a run folder at the speed of the run's own
clock, ``testbed watch`` serves the folder, and Debian's Chromium has the page
open. Needs no root and no network; a checkout, as the browser is driven by the
tests' own module.

The rule, fixed before the first hour: between the first and the last quarter of
the samples, medians of the page's memory (after a collection of garbage) grow by
at most 25 %, of its nodes by at most 10 %, and of the server's memory by at most
50 %; the page never has 200 MB; it draws at least 20 frames a second, followed
and played again. A shorter time than half an hour is printed and not judged: the
page's curves and bars are still filling then.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil
import yaml

from bench.samples import Result
from testbed.record.folder import EVENTS, SPEC, RunFolder
from testbed.record.running import noted, running_run

if TYPE_CHECKING:
    from tests.support.browser import Browser

MINUTES = 60.0
QUICK_MINUTES = 1.0
JUDGED_FROM_MINUTES = 30.0
SAMPLE_S = 5.0
PLAYED_S = 10.0
PLAY_SPEED = 60
STEP_S = 0.2
TIMEOUT_S = 600.0
VMS = 4
RUNNING = 125
IN_SIGHT = 200
MEAN_S = 60.0
LEAST_S = 30
SPREAD_S = 61
STRIDE = 37
MOST_MB = 200.0
LEAST_FRAMES = 20.0
MOST_GROWTH = {"page": 1.25, "nodes": 1.10, "server": 1.50}
"""Medians of the last quarter over those of the first."""
COUNT_FRAMES = """
window.drawnFrames = 0;
const count = () => { window.drawnFrames += 1; requestAnimationFrame(count); };
requestAnimationFrame(count);
"""


@dataclass(frozen=True)
class Sample:
    """State of page and server. ``frames``: frames a second since the sample
    before.
    """

    at_s: float
    page_mb: float
    nodes: int
    server_mb: float
    frames: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="default 60"
    )


def run(quick: bool, options: argparse.Namespace) -> list[Result]:
    """Follows a run for so many minutes; ``quick``: one."""
    minutes = options.minutes
    if quick:
        minutes = QUICK_MINUTES
    with tempfile.TemporaryDirectory(prefix="hosenet-bench-") as scratch:
        folder = Path(scratch)
        # A page that root starts is served as nobody, who reads it there.
        folder.chmod(0o755)
        source = simulated(folder, minutes)
        samples, played = followed(folder, source, minutes)
    return results(samples, played, minutes)


# -- the run


def experiment(minutes: float) -> str:
    """Jobs of four VMs: as many come in a minute as end in one."""
    n_later = math.ceil(minutes * 60 * RUNNING / MEAN_S)
    jobs = []
    for number in range(IN_SIGHT + n_later):
        later = max(0, number - IN_SIGHT + 1)
        jobs.append(
            {
                "id": f"job-{number:05}",
                "at": f"{later * MEAN_S / RUNNING:.2f} s",
                "vms": VMS,
                "bandwidth": "20 Mbit/s",
                "duration": f"{LEAST_S + number * STRIDE % SPREAD_S} s",
            }
        )
    document = {
        "name": "open-page",
        "seed": 1,
        "topology": {
            "kind": "fat-tree",
            "k": 8,
            "links": "1 Gbit/s",
            "slots_per_server": 4,
        },
        "policies": ["vc"],
        "workload": {"kind": "jobs", "jobs": jobs},
    }
    return yaml.safe_dump(document, sort_keys=False)


def simulated(folder: Path, minutes: float) -> Path:
    """The folder of the whole run. Raises CalledProcessError."""
    file = folder / "open-page.yaml"
    file.write_text(experiment(minutes), "utf-8")
    command = ["testbed.cli.main", "simulate", str(file), "--out"]
    subprocess.run(
        [sys.executable, "-m", *command, str(folder / "whole")],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
    )
    [run_folder] = (folder / "whole").iterdir()
    return run_folder


def write_at_pace(source: Path, to: Path, seconds: float) -> None:
    """Writes a run's events into a folder at the pace of their times, for
    ``seconds``.
    """
    folder = RunFolder(to)
    began_s = time.monotonic()
    note = running_run(to, "open-page", ("vc",), 0)
    with (
        noted(folder, note),
        (source / EVENTS).open(encoding="utf-8") as events,
        (to / EVENTS).open("a", encoding="utf-8") as growing,
    ):
        for line in events:
            due_s = json.loads(line)["t"]
            if due_s > seconds:
                break
            while due_s > time.monotonic() - began_s:
                growing.flush()
                time.sleep(STEP_S)
            growing.write(line)
        growing.flush()
        time.sleep(max(0.0, seconds - (time.monotonic() - began_s)))


# -- the page


def followed(
    folder: Path, source: Path, minutes: float
) -> tuple[list[Sample], float]:
    """Samples while the run grows; frames a second while it is played again."""
    # The browser is for tests and this bench; an installed product has none.
    from tests.support.browser import browser

    growing = folder / "growing"
    growing.mkdir()
    shutil.copy(source / SPEC, growing)
    seconds = 60 * minutes
    writer = [str(source), str(growing), str(seconds + TIMEOUT_S)]
    with (
        child(["bench.open_page", *writer]),
        child(["testbed.cli.main", "watch", str(growing)]) as page,
        browser(folder / "profile") as opened,
    ):
        assert page.stdout is not None  # noqa: S101 - by Popen's PIPE
        link = page.stdout.readline().strip()
        opened.look(1280, dark=False)
        opened.open(link)
        opened.wait_for("Jobs now")
        opened.script(COUNT_FRAMES)
        server = psutil.Process(page.pid)
        samples = list(sampled(opened, server, seconds))
        return samples, frames_played(opened)


@contextmanager
def child(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A module of Python as a process, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 - by Popen's PIPE
    with process.stdout:
        try:
            yield process
        finally:
            # A shell's background jobs, and their children, ignore Ctrl-C.
            process.terminate()
            process.wait(TIMEOUT_S)


def sampled(
    page: Browser, server: psutil.Process, seconds: float
) -> Iterator[Sample]:
    """A sample every few seconds."""
    began_s = time.monotonic()
    n_frames = page.script("return window.drawnFrames")
    before_s = began_s
    while (at_s := time.monotonic() - began_s) < seconds:
        time.sleep(SAMPLE_S)
        n_now = page.script("return window.drawnFrames")
        now_s = time.monotonic()
        page_mb, nodes = page.size()
        frames = (n_now - n_frames) / (now_s - before_s)
        # A collection of garbage is the bench's, and no frame of the page's.
        n_frames = page.script("return window.drawnFrames")
        before_s = time.monotonic()
        yield Sample(
            at_s=at_s,
            page_mb=page_mb,
            nodes=nodes,
            server_mb=server.memory_info().rss / 1e6,
            frames=frames,
        )


def frames_played(page: Browser) -> float:
    """Frames a second while the run is played again from its beginning."""
    page.script(
        "const speed = document.querySelector('.controls select');"
        "speed.value = arguments[0];"
        "speed.dispatchEvent(new Event('change', {bubbles: true}));"
        "document.querySelector('.controls button').click();",
        str(PLAY_SPEED),
    )
    page.wait_for("pause")
    n_frames = page.script("return window.drawnFrames")
    began_s = time.monotonic()
    time.sleep(PLAYED_S)
    n_now = page.script("return window.drawnFrames")
    return float(n_now - n_frames) / (time.monotonic() - began_s)


# -- the rule


def results(
    samples: Sequence[Sample], played: float, minutes: float
) -> list[Result]:
    """A row a quantity: its last quarter, and beside it the first."""
    frames = [sample.frames for sample in samples]
    rows = [
        *_size_rows(samples),
        _frames_row("frames, followed", median(frames)),
        _frames_row("frames, played again", played),
    ]
    if minutes >= JUDGED_FROM_MINUTES:
        return rows
    return [unjudged(row) for row in rows]


def _size_rows(samples: Sequence[Sample]) -> list[Result]:
    page_mb = []
    nodes = []
    server_mb = []
    for sample in samples:
        page_mb.append(sample.page_mb)
        nodes.append(float(sample.nodes))
        server_mb.append(sample.server_mb)
    return [
        grown("page's memory", "MB", "page", page_mb),
        grown("page's nodes", "", "nodes", nodes),
        grown("server's memory", "MB", "server", server_mb),
        Result(
            "page's memory, most",
            "MB",
            samples=(max(page_mb),),
            target=f"below {MOST_MB:.0f}",
            meets=max(page_mb) < MOST_MB,
        ),
    ]


def _frames_row(name: str, per_s: float) -> Result:
    return Result(
        name,
        "1/s",
        samples=(per_s,),
        target=f"at least {LEAST_FRAMES:.0f}",
        meets=per_s >= LEAST_FRAMES,
    )


def grown(
    name: str, unit: str, kind: str, values: Sequence[float]
) -> Result:
    """The last quarter of a quantity against its first."""
    quarter = max(1, len(values) // 4)
    first = median(values[:quarter])
    last = tuple(values[-quarter:])
    growth = median(last) / first
    return Result(
        name,
        unit,
        samples=last,
        target=f"at most {MOST_GROWTH[kind]:.2f} of the first quarter",
        meets=growth <= MOST_GROWTH[kind],
        extra={"first_quarter": first, "growth": growth},
    )


def unjudged(row: Result) -> Result:
    target = f"{row.target}, from {JUDGED_FROM_MINUTES:.0f} minutes on"
    return replace(row, target=target, meets=None)


def table(rows: Sequence[Result]) -> str:
    """A line a quantity: medians of first and last quarter, and the rule."""
    lines = []
    verdicts = {True: "met", False: "missed", None: "not judged"}
    for row in rows:
        last = median(row.samples)
        text = f"{last:,.1f} {row.unit}".rstrip()
        if "first_quarter" in row.extra:
            first = row.extra["first_quarter"]
            growth = row.extra["growth"]
            text = f"{first:,.1f} -> {text} ({growth:.3f})"
        lines.append(
            f"{row.name:24} {text:34} {row.target}: {verdicts[row.meets]}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        write_at_pace(
            Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
        )
    except KeyboardInterrupt:
        sys.exit(0)
