"""A run in a terminal: its jobs, and the links that are fullest, each second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.errors import RunFailed
from testbed.record.running import running_in
from testbed.units import human_bandwidth, human_duration, number_of

if TYPE_CHECKING:
    from testbed.record.job_lives import JobLife
    from testbed.web.followed_run import FollowedRun
    from testbed.web.run_state import RunState

EVERY_S = 1.0
AROUND = 12
"""Lines of the screen that are titles, headings and blanks."""


@dataclass(frozen=True)
class ShownJob:
    """A job that runs or waits. ``share``: done of its volume, None where that
    is not known.
    """

    job_id: str
    phase: str
    tier: str
    n_vms: int
    bandwidth_bps: int
    start_s: float | None
    estimated_end_s: float | None
    share: float | None
    reason: str


@dataclass(frozen=True)
class ShownLink:
    """A directed link in use. ``sent_bps``: None where nothing is measured."""

    name: str
    capacity_bps: float
    reserved_bps: float
    sent_bps: float | None

    @property
    def fullest(self) -> float:
        """The larger share of its capacity, reserved or sent."""
        rate_bps = max(self.reserved_bps, self.sent_bps or 0.0)
        return rate_bps / max(self.capacity_bps, 1.0)


@dataclass(frozen=True)
class RunView:
    """A run at a moment: the jobs that have not ended, the links in use."""

    name: str
    policy: str
    status: str
    at_s: float
    fidelity: str | None
    ended: dict[str, int]
    jobs: list[ShownJob] = field(default_factory=list)
    links: list[ShownLink] = field(default_factory=list)


def show_run(folder: Path, *, once: bool, as_json: bool) -> None:
    """Follows a run to its end; without a terminal, or if asked, shows it once.

    Raises BadInput where it is no run's folder, RunFailed where its events
    cannot be read.
    """
    out = console.out()
    redrawn = out.is_terminal and not out.is_dumb_terminal
    views = run_views(folder)
    view = next(views)
    if as_json:
        console.print_json(asdict(view))
        return
    if redrawn and not once:
        with (
            suppress(KeyboardInterrupt),
            Live(console=out, screen=True, auto_refresh=False) as live,
        ):
            # Of a run that has ended the first view is the last one.
            for view in views:
                # Jobs and links have half of the screen each, of whatever
                # height it is now.
                most = max(2, (out.height - AROUND) // 2)
                live.update(_shown(view, most), refresh=True)
                time.sleep(EVERY_S)
    # Of a run that was followed: the screen of before has come back.
    out.print(_shown(view, max(len(view.jobs), len(view.links))))


def run_views(folder: Path) -> Iterator[RunView]:
    """A run's state at each call, of the policy that is played; the last time
    at its end.

    Raises as :func:`show_run`.
    """
    from testbed.web.followed_run import FollowedFolder

    followed = FollowedFolder(folder)
    runs: list[FollowedRun] = []
    while True:
        # Asked first: what a run that has ended wrote is then read below.
        in_progress = running_in(folder)
        runs += followed.new_runs()
        for run in runs:
            run.refresh()
            if run.trouble:
                raise RunFailed(run.trouble)
        if runs:
            live = [
                run for run in runs if run.status in ("live", "waiting")
            ]
            yield _view((live or runs)[-1])
            # Other policies have other folders; this one may be one of theirs.
            alone = runs[0].folder == folder
            if in_progress is None or (alone and runs[0].ended):
                return
        elif in_progress is not None:
            policies = ", ".join(in_progress.policies)
            yield RunView(
                in_progress.name, policies, "waiting", 0.0, None, {}
            )
        else:
            raise RunFailed(
                f"{folder}: the run ended before its first event"
            )


def _view(run: FollowedRun) -> RunView:
    state = run.state
    label = run.label()
    return RunView(
        label["run"],
        label["policy"],
        run.status,
        state.now_s,
        run.frame()["fidelity"]["verdict"],
        dict(state.ended),
        [_job(life) for life in state.active()],
        _used_links(state),
    )


def _used_links(state: RunState) -> list[ShownLink]:
    """Directed links that something is reserved or sent on, the fullest first."""
    if state.layout is None:
        return []
    sent_bps = state.sent_bps()
    capacities_bps = state.layout.drawn_capacity_bps
    reserved = state.layout.shares(state.reserved_bps())
    sent = None if sent_bps is None else state.layout.shares(sent_bps)
    links = []
    for number, name in enumerate(state.layout.directed_names()):
        capacity_bps = float(capacities_bps[number])
        link = ShownLink(
            name,
            capacity_bps,
            float(reserved[number]) * capacity_bps,
            None if sent is None else float(sent[number]) * capacity_bps,
        )
        if link.fullest:
            links.append(link)
    return sorted(links, key=lambda link: -link.fullest)


def _job(life: JobLife) -> ShownJob:
    estimated_end_s = None
    if life.start_s is not None and life.estimate_s is not None:
        estimated_end_s = life.start_s + life.estimate_s
    return ShownJob(
        life.job_id,
        life.phase,
        life.tier,
        int(life.request["n_vms"]),
        int(life.granted_bps or life.request["bandwidth_bps"]),
        life.start_s,
        estimated_end_s,
        life.share,
        life.wait_reason if life.waits else "",
    )


def _shown(view: RunView, most: int) -> Group:
    """``most``: jobs, and links, for which there is room."""
    ended = [
        f"{count:,} {outcome}" for outcome, count in view.ended.items()
    ]
    title = (
        f"{view.name}, {view.policy}: {view.status}, at"
        f" {human_duration(view.at_s)}; {', '.join(ended) or 'no job ended'}"
    )
    if view.fidelity is not None:
        title += f"; fidelity {view.fidelity}"
    jobs = _jobs(view.jobs, most)
    return Group(Text(title), jobs, _links(view.links, most))


def _table(columns: Sequence[str], *, left: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        if column in left:
            table.add_column(column, overflow="ellipsis", no_wrap=True)
        else:
            table.add_column(column, justify="right", no_wrap=True)
    return table


def _jobs(jobs: Sequence[ShownJob], most: int) -> Group:
    table = _table(
        ("job", "state", "VMs", "a VM", "started", "done", "why it waits"),
        left=("job", "state", "why it waits"),
    )
    for job in jobs[:most]:
        state = job.phase
        if job.tier != "foreground":
            state = f"{state}, {job.tier}"
        table.add_row(
            Text(job.job_id),
            Text(state),
            str(job.n_vms),
            human_bandwidth(job.bandwidth_bps),
            _or_dash(job.start_s),
            "–" if job.share is None else f"{job.share:.0%}",
            Text(job.reason),
        )
    n_more = len(jobs) - most
    return _with_rest(table, n_more, number_of(n_more, "more job"))


def _links(links: Sequence[ShownLink], most: int) -> Group:
    table = _table(("link", "capacity", "reserved", "sent"), left=("link",))
    for link in links[:most]:
        sent = "–"
        if link.sent_bps is not None:
            sent = human_bandwidth(link.sent_bps)
        table.add_row(
            Text(link.name),
            human_bandwidth(link.capacity_bps),
            human_bandwidth(link.reserved_bps),
            sent,
        )
    n_more = len(links) - most
    directions = number_of(n_more, "direction")
    return _with_rest(table, n_more, f"{directions} less loaded")


def _with_rest(table: Table, n_more: int, more: str) -> Group:
    """A table, and below it the rows for which there is no room, in words."""
    if not table.row_count:
        return Group()
    if n_more <= 0:
        return Group(table)
    return Group(table, Text(f"and {more}", "dim"))


def _or_dash(time_s: float | None) -> str:
    return "–" if time_s is None else human_duration(time_s)
