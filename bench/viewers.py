"""A live run with and without ten viewers of its page.

``examples/quickstart.yaml`` is played in turn without a page and with ten
viewers, who take all that its server sends them. The rule, fixed before the
first round: of each job the median of measured/estimate with viewers is within
0.2 % of the one without, and all verdicts are alike.

A round is added to ``--results FILE`` as soon as it is known: an interrupted
call is continued. Viewers are processes of low priority, as browsers on another
machine take no time of this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psutil
from tornado.websocket import WebSocketClosedError, websocket_connect

from bench.kept_rows import keep_row, kept_rows
from bench.progress import Progress, Step
from bench.samples import Result
from testbed.record.folder import EVENTS
from testbed.record.reading import load_run

EXAMPLE = Path(__file__).parents[1] / "examples" / "quickstart.yaml"
LINK = re.compile(r"live page: (http://\S+)")
N_VIEWERS = 10
MOST_SHIFT = 0.002
PAIRS = 8
RUN_S = 30.0
TIMEOUT_S = 300.0
NICE = 10


@dataclass(frozen=True)
class Round:
    """A run of the example. ``page_s``: processor time of the page's server."""

    viewers: int
    ratios: dict[str, float]
    verdict: str
    exit_code: int
    page_s: float
    frames: int
    wall_s: float
    load_average: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument(
        "--results",
        metavar="FILE",
        type=Path,
        default=Path("viewers.jsonl"),
        help="what is known so far (default viewers.jsonl)",
    )


def run(quick: bool, options: argparse.Namespace) -> list[Result]:
    """A row a job; ``quick``: one pair."""
    pairs = options.pairs
    if quick:
        pairs = 1
    rounds = kept_rows(options.results, Round)
    missing = []
    for number in range(len(rounds), 2 * pairs):
        # In turn, so that the machine is alike for both: without viewers,
        # then with ten.
        missing.append(number % 2 * N_VIEWERS)
    progress = Progress([Step(f"{n} viewers", RUN_S) for n in missing])
    for viewers in missing:
        with progress.step():
            played = play(viewers)
        keep_row(options.results, played)
        rounds.append(played)
    return results(rounds)


def play(viewers: int) -> Round:
    """Raises RuntimeError where there was no run to judge."""
    load_average = psutil.getloadavg()[0]
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hosenet-bench-") as folder:
        # The page is served as nobody, who reads the run there.
        Path(folder).chmod(0o755)
        process = _started(folder, viewers)
        audience = Audience(process, viewers)
        text = audience.follow()
        exit_code = process.wait(TIMEOUT_S)
        folders = [path.parent for path in Path(folder).glob(f"*/{EVENTS}")]
        if not folders:
            raise RuntimeError(f"{EXAMPLE.name}: {text}")
        recorded = load_run(folders[0])
    ratios = {}
    for row in recorded.rows:
        if row.ratio is not None:
            ratios[row.job_id] = row.ratio
    return Round(
        viewers=viewers,
        ratios=ratios,
        verdict=recorded.summary.fidelity.verdict or "none",
        exit_code=exit_code,
        page_s=audience.page_s,
        frames=audience.frames,
        wall_s=time.monotonic() - began_s,
        load_average=load_average,
    )


def _started(folder: str, viewers: int) -> subprocess.Popen[str]:
    """The example's run, with a page if there are viewers."""
    command = ["testbed.cli.main", "run", str(EXAMPLE)]
    if viewers:
        command.append("--watch")
    return subprocess.Popen(
        [sys.executable, "-m", *command, "--out", folder],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


class Audience:
    """The viewers of a run's page, from its link to its end."""

    def __init__(
        self, process: subprocess.Popen[str], viewers: int
    ) -> None:
        self._process = process
        self._viewers = viewers
        self.page_s = 0.0
        self.frames = 0

    def follow(self) -> str:
        """Reads the run's messages until it ends; opens the page at its link."""
        text = ""
        assert self._process.stderr is not None  # noqa: S101 - by Popen's PIPE
        viewing: subprocess.Popen[str] | None = None
        for line in self._process.stderr:
            text += line
            link = LINK.search(line)
            if link is not None and viewing is None:
                viewing = self._opened(link[1])
                threading.Thread(target=self._measure, daemon=True).start()
        if viewing is not None:
            # Their standard input ends with it, by which they leave.
            answer, _ = viewing.communicate(timeout=TIMEOUT_S)
            self.frames = int(answer or 0)
        return text

    def _opened(self, link: str) -> subprocess.Popen[str]:
        viewers = ["bench.viewers", link, str(self._viewers)]
        return subprocess.Popen(
            [sys.executable, "-m", *viewers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _measure(self) -> None:
        """Processor time of the page's server, as last seen."""
        # The processes end with the run, and with them this loop.
        with suppress(psutil.Error):
            run_process = psutil.Process(self._process.pid)
            servers = []
            for child in run_process.children(recursive=True):
                if "watch" in child.cmdline():
                    servers.append(child)
            while servers:
                total_s = 0.0
                for server in servers:
                    times = server.cpu_times()
                    total_s += times.user + times.system
                self.page_s = total_s
                time.sleep(1)


def results(rounds: Sequence[Round]) -> list[Result]:
    """Shifts of the jobs by viewers, and the verdicts."""
    alone = [played for played in rounds if not played.viewers]
    watched = [played for played in rounds if played.viewers]
    rows = []
    for job in rounds[0].ratios:
        rows.append(_shift_row(job, alone, watched))
    rows.append(_server_row(rounds, watched))
    return rows


def _shift_row(
    job: str, alone: Sequence[Round], watched: Sequence[Round]
) -> Result:
    without = [played.ratios[job] for played in alone]
    beside = [played.ratios[job] for played in watched]
    shift = median(beside) - median(without)
    return Result(
        f"{job}: measured/estimate, ten viewers",
        "ratio",
        samples=tuple(beside),
        target=f"median within {MOST_SHIFT:.1%} of the one without",
        meets=abs(shift) <= MOST_SHIFT,
        extra={"shift": shift, "without": without},
    )


def _server_row(
    rounds: Sequence[Round], watched: Sequence[Round]
) -> Result:
    """Cost of the page's server, and the verdicts of all rounds."""
    verdicts = set()
    load_averages = []
    for played in rounds:
        verdicts.add((played.verdict, played.exit_code))
        load_averages.append(played.load_average)
    page_s = []
    frames = []
    wall_s = []
    for played in watched:
        page_s.append(played.page_s)
        frames.append(played.frames)
        wall_s.append(played.wall_s)
    return Result(
        "processor time of the page's server",
        "s",
        samples=tuple(page_s),
        target="all verdicts alike",
        meets=len(verdicts) == 1,
        extra={
            "verdicts": sorted(map(list, verdicts)),
            "frames": frames,
            "wall_s": wall_s,
            "load_averages": load_averages,
        },
    )


# -- the viewers' own process


async def _view(link: str) -> int:
    """Frames that a viewer has received until it leaves."""
    parts = urlsplit(link)
    socket = await websocket_connect(f"ws://{parts.netloc}/socket")
    await socket.write_message(parts.fragment)
    frames = 0
    with suppress(WebSocketClosedError, asyncio.CancelledError):
        while True:
            message = await socket.read_message()
            if message is None:
                break
            frames += json.loads(message)["kind"] == "frame"
    return frames


async def _view_all(link: str, n_viewers: int) -> int:
    """They leave when standard input ends: a page stays as long as somebody
    looks at it.
    """
    loop = asyncio.get_running_loop()
    viewers = [loop.create_task(_view(link)) for _ in range(n_viewers)]

    def leave() -> None:
        loop.remove_reader(sys.stdin)
        for viewer in viewers:
            viewer.cancel()

    loop.add_reader(sys.stdin, leave)
    return sum(await asyncio.gather(*viewers))


if __name__ == "__main__":
    os.nice(NICE)
    print(asyncio.run(_view_all(sys.argv[1], int(sys.argv[2]))))
