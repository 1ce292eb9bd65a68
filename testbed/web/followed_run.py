"""Runs that the page shows: folders that grow or are finished, and players that
go through their events.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from testbed.errors import BadInput, TestbedError
from testbed.events import Event, JobEvent, JobReserved, RunEnded
from testbed.record.event_file import EventTail
from testbed.record.folder import EVENTS, REPORT, SPEC, SWEEP
from testbed.record.job_history import event_sentence, explained
from testbed.record.link_rates import described_links, link_rows
from testbed.record.metrics import tally
from testbed.record.reading import in_order_of_list, policy_folders
from testbed.record.running import running_in
from testbed.record.server_use import ServerUse, ServerUses
from testbed.report.server_rows import MAX_JOBS, SlotRows, server_lanes
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

    ``trouble``: why the folder can no longer be read, in a sentence, or empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.state = RunState()
        self.trouble = ""
        self._tail = EventTail(folder / EVENTS)
        self._uses = ServerUses()
        # Kept until there are more events.
        self._lanes: dict[str, Any] | None = None
        self._curves: dict[int, Curve] | None = None

    def refresh(self) -> bool:
        """Reads what was written since the last call; False where nothing was."""
        if self.trouble:
            return False
        try:
            new = self._tail.new_events()
        except TestbedError as error:
            self.trouble = error.message
            return True
        jobs = self.state.tally.lives.jobs
        for event in new:
            self.state.follow(event)
            if isinstance(event, JobEvent) and event.job_id in jobs:
                life = jobs[event.job_id]
                self._uses.follow(event.t, type(event), life)
        self.events += new
        if new:
            self._lanes = None
            self._curves = None
        return bool(new)

    @property
    def ended(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], RunEnded)

    @property
    def status(self) -> Status:
        """``interrupted``: it has no end, and no process writes to it."""
        if self.trouble:
            return "damaged"
        # Its process may still live: it writes tables and report after the last
        # event.
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
        frame = self.state.frame()
        if self.status == "interrupted":
            # No end will come: the verdict is the summary's.
            verdict = self.state.tally.fidelity().verdict
            frame["fidelity"]["verdict"] = verdict
        return {
            **frame,
            "at_s": self.state.now_s,
            "speed": 0,
            "mode": "live",
        }

    def header(self) -> dict[str, Any]:
        """The layout, and all that a page needs once."""
        started = self.state.tally.started
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
            "begin_s": self.begin_s,
            "end_s": self.state.now_s,
            "curves": list(samples_over_time(self.events, MOMENTS)),
        }
        if self.state.layout is not None:
            header["layout"] = self.state.layout.to_json()
        return header

    @property
    def begin_s(self) -> float:
        """Time of the first event; 0 before there is one."""
        return self.events[0].t if self.events else 0.0

    def lanes(self) -> dict[str, Any]:
        """The busiest servers over time: bars of jobs' slots in rows.

        Without lanes where there are too many jobs to tell them apart.
        """
        if self._lanes is not None:
            return self._lanes
        uses: list[ServerUse] = []
        if len(self.state.tally.lives.jobs) <= MAX_JOBS:
            uses = self._uses.until(self.state.now_s)
        chosen = server_lanes(uses)
        lanes = []
        for server, (placed, n_rows) in chosen.lanes.items():
            name = shown(self.state.node_name(server))
            bars = list(map(_bar, placed))
            lanes.append({"name": name, "rows": n_rows, "bars": bars})
        self._lanes = {
            "kind": "lanes",
            "lanes": lanes,
            "servers": chosen.n_used,
        }
        return self._lanes

    def item(self, kind: ItemKind, name: str) -> dict[str, Any]:
        """The history of a job, of a drawn link or of a drawn node.

        Raises BadInput where there is none of that name.
        """
        if kind == "job":
            return self._job(name)
        layout = self.state.layout
        if layout is None:
            raise BadInput("the run has not begun")
        number = drawn_number(layout, kind, name)
        if kind == "link":
            return self._link(layout, number)
        return self._node(layout, number)

    def _job(self, job_id: str) -> dict[str, Any]:
        explanation = explained(self.events, job_id)
        lines = [(step.t, shown(step.says)) for step in explanation.steps]
        return {
            "title": f"job {shown(job_id)}",
            "facts": [
                ("asks for", explanation.asked),
                ("outcome", shown(explanation.outcome)),
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
        # Directed links: that of link n upward is 2n, downward 2n + 1.
        upward = 2 * link.number
        # The third column of links.csv is the directed link.
        rows = f"awk -F, 'NR == 1 || $3 == {upward} || $3 == {upward + 1}'"
        table = shlex.quote(f"{self.folder}/links.csv")
        return {
            "title": f"link {shown(link.name)}",
            "facts": [],
            "lines": [],
            "curves": [self._curve(upward), self._curve(upward + 1)],
            "command": f"{rows} {table}",
        }

    def _curve(self, directed: int) -> dict[str, Any]:
        """A directed link with its rates over time, for the page."""
        # Rates between two samples follow from all reservations before: one
        # pass gives those of all links.
        if self._curves is None:
            self._curves = link_curves(self.events)
        links = described_links(self.state.tally.started.topology)
        name, capacity_bps = links[directed]
        head = {"name": shown(name), "capacity_bps": capacity_bps}
        return head | self._curves.get(directed, _empty_curve())

    def _node(self, layout: PageLayout, number: int) -> dict[str, Any]:
        node = layout.nodes[number]
        inside = {
            server
            for server, drawn in enumerate(layout.node_of)
            if drawn == number
        }
        return {
            "title": shown(node.name),
            "facts": node.facts(),
            "lines": self._placed_on(inside)[-MAX_LINES:],
            "command": shlex.join(["testbed", "plan", str(self._spec())]),
        }

    def _spec(self) -> Path:
        """The experiment file; of a run of several policies it is above theirs."""
        spec = self.folder / SPEC
        if spec.exists():
            return spec
        return self.folder.resolve().parent / SPEC

    def _placed_on(self, servers: set[int]) -> list[tuple[float, str]]:
        """Sentences on the jobs that had VMs on one of these servers."""
        lines = []
        jobs: set[str] = set()
        for event in self.events:
            if not isinstance(event, JobEvent):
                continue
            vms_on = getattr(event, "vms_on", None)
            if vms_on is not None:
                # A migration can bring a job here, or away.
                jobs.discard(event.job_id)
                if any(server in servers for server, _ in vms_on):
                    jobs.add(event.job_id)
            if event.job_id in jobs:
                lines += _line(event)
        return lines


def _bar(part: SlotRows) -> list[Any]:
    """Job, first row, number of rows, tier, begin and end in s, why it ends."""
    use = part.use
    return [
        shown(use.job_id),
        part.first,
        part.n_rows,
        use.tier,
        use.start_s,
        use.end_s,
        use.end,
    ]


def _line(event: JobEvent) -> list[tuple[float, str]]:
    """Time and sentence of an event; nothing of one without a sentence."""
    sentence = event_sentence(event)
    # A reservation that names no servers says nothing of this node.
    nowhere = isinstance(event, JobReserved) and not event.vms_on
    if nowhere or not sentence:
        return []
    return [(event.t, shown(f"{event.job_id} {sentence}"))]


def drawn_number(
    layout: PageLayout,
    kind: ItemKind,
    name: str,
) -> int:
    """The number of a drawn link or node. Raises BadInput where there is none."""
    known = len(layout.links if kind == "link" else layout.nodes)
    # Names come from the browser: "²" is a digit, but no decimal.
    if name.isdecimal() and int(name) < known:
        return int(name)
    raise BadInput(f"there is no {kind} {shown(name)}")


def _empty_curve() -> Curve:
    return {"t": [], "reserved_bps": [], "sent_bps": []}


def link_curves(stream: Sequence[Event]) -> dict[int, Curve]:
    """Rates of the used directed links over time, as ``links.csv`` has them."""
    curves: dict[int, Curve] = {}
    for row in link_rows(tally(stream, recording=True)):
        curve = curves.setdefault(row.directed_link, _empty_curve())
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
        self.at_s = run.begin_s
        self.speed = 0.0

    @property
    def at_end(self) -> bool:
        return self._n_followed >= len(self._run.events)

    def seek(self, at_s: float) -> None:
        """Moves to a moment; backwards by following the events from the first."""
        if at_s < self.at_s:
            self._state = RunState()
            self._n_followed = 0
        self.at_s = at_s
        run = self._run.events
        while not self.at_end and run[self._n_followed].t <= at_s:
            self._state.follow(run[self._n_followed])
            self._n_followed += 1

    def step(self, elapsed_s: float) -> None:
        """Moves on by ``elapsed_s`` seconds of the viewer's time."""
        self.seek(self.at_s + self.speed * elapsed_s)
        if self.at_end:
            self.speed = 0.0
            # The last step may have passed the run's end.
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

    ``growing``: its process is known to live, though it may have written
    nothing yet. Raises BadInput where the folder is no run's.
    """

    def __init__(self, path: Path, *, growing: bool = False) -> None:
        self.path = path
        self._growing = growing
        # Known to live, and not yet noted in the folder.
        self._awaited = growing
        self._folders: list[Path] = []
        self._known: set[Path] = set()
        self._look()

    @property
    def is_small(self) -> bool:
        """True if its events are read in a moment."""
        sizes = [
            (folder / EVENTS).stat().st_size for folder in self._folders
        ]
        return sum(sizes) < SMALL_BYTES

    def new_runs(self) -> list[FollowedRun]:
        """Runs that were not there at the last call."""
        if self._growing:
            self._look()
        new = [path for path in self._folders if path not in self._known]
        self._known.update(new)
        return list(map(FollowedRun, new))

    def _look(self) -> None:
        # A sweep has folders of runs with --keep-runs alone.
        if (self.path / SWEEP).is_file():
            raise BadInput(
                f"{self.path} is a sweep's folder, which has no page of its runs",
                f"its tables and pictures: {self.path / REPORT}",
            )
        in_progress = running_in(self.path) is not None
        self._awaited = self._awaited and not in_progress
        grew = self._growing
        # Asked before the folders are listed: those of a run that has ended
        # are all there.
        self._growing = in_progress or self._awaited
        try:
            folders = policy_folders(self.path)
            self._folders = in_order_of_list(self.path, folders)
        except BadInput:
            # A run that has just begun has no events yet, nor folders of
            # policies; one that was stopped then never gets any.
            if not (grew or self._growing):
                raise
