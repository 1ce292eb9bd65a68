"""Runs that the page shows: folders that grow or are finished, and players that
go through their events.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from testbed.errors import BadInput, TestbedError
from testbed.events import Event, JobEvent, JobReserved, RunEnded
from testbed.record.event_file import EventTail
from testbed.record.folder import EVENTS, REPORT, SPEC, SWEEP
from testbed.record.job_history import explained, words
from testbed.record.link_rates import described_links, link_rows
from testbed.record.metrics import tally
from testbed.record.reading import in_order_of_list, policy_folders
from testbed.record.running import running_in
from testbed.web.gauges import Gauge, run_gauges
from testbed.web.page_layout import PageLayout
from testbed.web.run_state import RunState, samples_over_time, shown

MOMENTS = 400
"""Points of the curves over a run's time."""
MAX_LINES = 200
SMALL_BYTES = 20_000_000
Status = Literal["live", "finished", "interrupted", "damaged", "waiting"]
ItemKind = Literal["job", "link", "node"]
Curve = dict[str, list[float | None]]
"""``t``, ``reserved_bps`` and ``sent_bps`` of a directed link."""


class FollowedRun:
    """One policy's run folder: its events so far and the state at their end.

    ``trouble``: the sentence about a folder that can no longer be read; empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.state = RunState()
        self.trouble = ""
        self._tail = EventTail(folder / EVENTS)
        self._n_in_curves = 0
        self._curves: dict[int, Curve] = {}

    def refresh(self) -> bool:
        """Takes in what was written since; False where nothing was."""
        if self.trouble:
            return False
        try:
            new = self._tail.new_events()
        except TestbedError as error:
            self.trouble = error.message
            return True
        for event in new:
            self.state.follow(event)
        self.events += new
        return bool(new)

    @property
    def ended(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], RunEnded)

    @property
    def status(self) -> Status:
        """``interrupted``: it has no end, and nobody writes to it."""
        if self.trouble:
            return "damaged"
        if self.ended:
            return "finished"
        if running_in(self.folder) is None:
            return "interrupted"
        return "live" if self.events else "waiting"

    def label(self) -> dict[str, str]:
        """The run as lists and metrics name it."""
        started = self.state.tally.started
        name = started.run or self.folder.name
        policy = started.policy or self.folder.name
        kind = started.backend or "run"
        return {"run": shown(name), "policy": shown(policy), "kind": kind}

    def gauges(self) -> Iterable[Gauge]:
        """Its latest state as metrics."""
        return run_gauges(self.state)

    def frame(self) -> dict[str, Any]:
        return {
            **self.state.frame(),
            "at_s": self.state.now_s,
            "speed": 0,
            "mode": "live",
        }

    def header(self) -> dict[str, Any]:
        """The layout, and all that a page needs once."""
        started = self.state.tally.started
        layout = self.state.layout
        header: dict[str, Any] = {
            "kind": "layout",
            "of": "run",
            "name": shown(started.run),
            "policy": shown(started.policy),
            "backend": started.backend,
            "seed": started.seed,
            "folder": shown(self.folder),
            "status": self.status,
            "trouble": shown(self.trouble),
            "begin_s": self.events[0].t if self.events else 0.0,
            "end_s": self.state.now_s,
            "curves": list(samples_over_time(self.events, MOMENTS)),
        }
        if layout is not None:
            header["layout"] = layout.to_json()
        return header

    def item(self, kind: ItemKind, name: str) -> dict[str, Any]:
        """The history of a job, of a drawn link or of a drawn node.

        Raises BadInput where there is none of that name.
        """
        if kind == "job":
            return self._job(name)
        layout = self.state.layout
        number = int(name) if name.isdecimal() else -1
        if layout is None:
            raise BadInput("the run has not begun")
        if kind == "node" and 0 <= number < len(layout.nodes):
            return self._node(layout, number)
        if kind == "link" and 0 <= number < len(layout.links):
            return self._link(layout, number)
        raise BadInput(f"there is no {kind} {shown(name)}")

    def _job(self, job_id: str) -> dict[str, Any]:
        explanation = explained(self.events, job_id)
        lines = [(step.t, shown(step.says)) for step in explanation.steps]
        facts = asdict(explanation)
        return {
            "title": f"job {shown(job_id)}",
            "facts": [
                ("asks for", explanation.asked),
                ("outcome", shown(facts["outcome"])),
                ("waited", f"{explanation.waited_s:.6g} s"),
                ("overtaken by", str(len(explanation.overtaken_by))),
            ],
            "lines": lines[-MAX_LINES:],
            "command": shlex.join(
                ["testbed", "explain", str(self.folder), shown(job_id)]
            ),
        }

    def _link(self, layout: PageLayout, number: int) -> dict[str, Any]:
        link = layout.links[number]
        upward = 2 * link.number
        known = described_links(self.state.tally.started.topology)
        curves = []
        for directed in (upward, upward + 1):
            name, capacity_bps = known[directed]
            curves.append(
                {"name": shown(name), "capacity_bps": capacity_bps}
                | self._rates(directed)
            )
        column = (
            f"awk -F, 'NR == 1 || $3 == {upward} || $3 == {upward + 1}'"
        )
        return {
            "title": f"link {shown(link.name)}",
            "facts": [],
            "lines": [],
            "curves": curves,
            "command": f"{column} {shlex.quote(f'{self.folder}/links.csv')}",
        }

    def _rates(self, directed: int) -> Curve:
        """A directed link's reserved and sent rates over time."""
        if self._n_in_curves != len(self.events):
            self._n_in_curves = len(self.events)
            self._curves = link_curves(self.events)
        empty: Curve = {"t": [], "reserved_bps": [], "sent_bps": []}
        return self._curves.get(directed, empty)

    def _node(self, layout: PageLayout, number: int) -> dict[str, Any]:
        node = layout.nodes[number]
        inside = set()
        for server, drawn in enumerate(layout.node_of):
            if drawn == number:
                inside.add(server)
        spec = self.folder / SPEC
        if not spec.exists():
            spec = self.folder.parent / SPEC
        return {
            "title": shown(node.name),
            "facts": [
                ("servers", f"{node.servers}"),
                ("VM slots", f"{node.slots}"),
            ],
            "lines": self._placed_on(inside)[-MAX_LINES:],
            "command": shlex.join(["testbed", "plan", str(spec)]),
        }

    def _placed_on(self, servers: set[int]) -> list[tuple[float, str]]:
        """Sentences on the jobs that had VMs on one of these servers."""
        lines = []
        jobs = set()
        for event in self.events:
            if not isinstance(event, JobEvent):
                continue
            vms_on = getattr(event, "vms_on", None)
            if vms_on is not None:
                jobs.discard(event.job_id)
                if any(server in servers for server, _ in vms_on):
                    jobs.add(event.job_id)
            sentence = words(event)
            relevant = not isinstance(event, JobReserved) or vms_on
            if event.job_id in jobs and sentence and relevant:
                lines.append((event.t, shown(f"{event.job_id} {sentence}")))
        return lines


def link_curves(stream: Sequence[Event]) -> dict[int, Curve]:
    """Rates of the used directed links over time, as ``links.csv`` has them."""
    curves: dict[int, Curve] = {}
    for row in link_rows(tally(stream, recording=True)):
        curve = curves.setdefault(
            row.directed_link, {"t": [], "reserved_bps": [], "sent_bps": []}
        )
        curve["t"].append(row.time_s)
        curve["reserved_bps"].append(row.reserved_bps)
        curve["sent_bps"].append(row.sent_bps)
    return curves


class Player:
    """A viewer's own way through a run's events.

    ``speed``: experiment seconds a second; 0: it stands still.
    """

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._state = RunState()
        self._n_followed = 0
        self.at_s = run.events[0].t if run.events else 0.0
        self.speed = 0.0

    @property
    def at_end(self) -> bool:
        return self._n_followed >= len(self._run.events)

    def seek(self, at_s: float) -> None:
        """Moves to a moment; backwards from the beginning of the events."""
        if at_s < self.at_s:
            self._state = RunState()
            self._n_followed = 0
        self.at_s = at_s
        run = self._run.events
        while not self.at_end and run[self._n_followed].t <= at_s:
            self._state.follow(run[self._n_followed])
            self._n_followed += 1

    def step(self, elapsed_s: float) -> None:
        """Moves on by what passed of the viewer's time."""
        self.seek(self.at_s + self.speed * elapsed_s)
        if self.at_end:
            self.speed = 0.0
            self.at_s = self._run.state.now_s

    def frame(self) -> dict[str, Any]:
        return {
            **self._state.frame(),
            "at_s": self.at_s,
            "speed": self.speed,
            "mode": "replay",
        }


class FollowedFolder:
    """The runs of a folder, one a policy; of a run in progress more may come.

    ``growing``: its process is known to live, though it has written nothing.
    Raises BadInput where the folder is no run's.
    """

    def __init__(self, path: Path, *, growing: bool = False) -> None:
        self.path = path
        self._growing = growing
        self._folders: list[Path] = []
        self._known: set[Path] = set()
        self._look()

    @property
    def is_small(self) -> bool:
        """True if reading its events takes no time worth a word."""
        size_bytes = 0
        for folder in self._folders:
            size_bytes += (folder / EVENTS).stat().st_size
        return size_bytes < SMALL_BYTES

    def new_runs(self) -> list[FollowedRun]:
        """Runs that were not there at the last call."""
        if self._growing:
            self._look()
        new = []
        for folder in self._folders:
            if folder not in self._known:
                self._known.add(folder)
                new.append(FollowedRun(folder))
        return new

    def _look(self) -> None:
        if (self.path / SWEEP).is_file():
            raise BadInput(
                f"{self.path} is a sweep's folder, which has no page of its runs",
                f"its tables and pictures: {self.path / REPORT}",
            )
        in_progress = running_in(self.path) is not None
        self._growing = self._growing or in_progress
        try:
            folders = policy_folders(self.path)
        except BadInput:
            if not self._growing:
                raise
            folders = []
        self._folders = in_order_of_list(self.path, folders)
