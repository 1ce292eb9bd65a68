"""A run in a terminal: its jobs, and the links that are fullest, each second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
"""Lines of the screen without a job or a link: titles, headings, blanks."""


@dataclass(frozen=True)
class ShownJob:
    """A job that runs or waits.

    ``bandwidth_bps``: of each VM; ``share``: the part of its volume that it has
    moved, None where nothing measures it; ``reason``: why it waits, empty for
    one that runs.
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
    """A directed link in use. ``sent_bps``: None where nothing measures it."""

    name: str
    capacity_bps: float
    reserved_bps: float
    sent_bps: float | None

    @property
    def fullest(self) -> float:
        """The larger of two shares of its capacity: reserved, and sent."""
        rate_bps = max(self.reserved_bps, self.sent_bps or 0.0)
        return rate_bps / max(self.capacity_bps, 1.0)


@dataclass(frozen=True)
class RunView:
    """A run at a moment: jobs that have not ended, and links in use.

    ``ended``: numbers of ended jobs, by outcome; ``fidelity``: None for a
    simulated run.
    """

    name: str
    policy: str
    status: str
    at_s: float = 0.0
    fidelity: str | None = None
    ended: dict[str, int] = field(default_factory=dict)
    jobs: list[ShownJob] = field(default_factory=list)
    links: list[ShownLink] = field(default_factory=list)


def show_run(folder: Path, *, once: bool, as_json: bool) -> None:
    """Follows a run to its end on a terminal; elsewhere, with ``once`` or
    ``as_json`` shows its present state.

    Raises BadInput where ``folder`` is no run's, RunFailed where its events
    cannot be read or never come.
    """
    out = console.out()
    redrawn = out.is_terminal and not out.is_dumb_terminal
    views = run_views(folder)
    view = next(views)
    if as_json:
        console.print_json(view)
        return
    if redrawn and not once:
        with (
            suppress(KeyboardInterrupt),
            Live(console=out, screen=True, auto_refresh=False) as live,
        ):
            # Of a run that has ended the first view is the last one.
            for view in views:
                # Jobs and links have half of the screen each. Its height is
                # read anew, as a window may change it.
                most = max(2, (out.height - AROUND) // 2)
                live.update(_shown(view, most), refresh=True)
                time.sleep(EVERY_S)
    # Also after the run was followed: the terminal has its former screen back.
    out.print(_shown(view, max(len(view.jobs), len(view.links))))


def run_views(folder: Path) -> Iterator[RunView]:
    """Yields the run's state each time, of the policy that is played; the last
    time at its end.

    Raises as :func:`show_run`.
    """
    from testbed.web.followed_run import FollowedFolder

    followed = FollowedFolder(folder)
    runs: list[FollowedRun] = []
    while True:
        # Asked before the events are read: of a run that has ended, all are.
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
            # A folder that has events itself is of one policy: no other follows.
            of_one = runs[0].folder == folder
            if in_progress is None or (of_one and runs[0].ended):
                return
        elif in_progress is not None:
            policies = ", ".join(in_progress.policies)
            yield RunView(in_progress.name, policies, "waiting")
        else:
            raise RunFailed(
                f"{folder}: the run ended before its first event"
            )


def _view(run: FollowedRun) -> RunView:
    state = run.state
    label = run.label()
    return RunView(
        name=label["run"],
        policy=label["policy"],
        status=run.status,
        at_s=state.now_s,
        fidelity=run.frame()["fidelity"]["verdict"],
        ended=dict(state.ended),
        jobs=[_job(life) for life in state.active()],
        links=_used_links(state),
    )


def _used_links(state: RunState) -> list[ShownLink]:
    """Directed links on which something is reserved or sent, fullest first."""
    layout = state.layout
    if layout is None:
        return []
    capacities_bps = layout.drawn_capacity_bps
    reserved_shares = layout.shares(state.reserved_bps())
    sent_shares = None
    sampled_bps = state.sent_bps()
    if sampled_bps is not None:
        sent_shares = layout.shares(sampled_bps)
    links = []
    for number, name in enumerate(layout.directed_names()):
        capacity_bps = float(capacities_bps[number])
        sent_bps = None
        if sent_shares is not None:
            sent_bps = float(sent_shares[number]) * capacity_bps
        reserved_bps = float(reserved_shares[number]) * capacity_bps
        link = ShownLink(name, capacity_bps, reserved_bps, sent_bps)
        if link.fullest:
            links.append(link)
    return sorted(links, key=lambda link: -link.fullest)


def _job(life: JobLife) -> ShownJob:
    estimated_end_s = None
    if life.start_s is not None and life.estimate_s is not None:
        estimated_end_s = life.start_s + life.estimate_s
    # Without a reservation, the bandwidth that it asks for.
    bandwidth_bps = life.granted_bps or life.request["bandwidth_bps"]
    return ShownJob(
        job_id=life.job_id,
        phase=life.phase,
        tier=life.tier,
        n_vms=int(life.request["n_vms"]),
        bandwidth_bps=int(bandwidth_bps),
        start_s=life.start_s,
        estimated_end_s=estimated_end_s,
        share=life.share,
        reason=life.wait_reason if life.waits else "",
    )


def _shown(view: RunView, most: int) -> Group:
    """A view as lines: a title, the first ``most`` jobs, the first ``most``
    links.
    """
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
    links = _links(view.links, most)
    return Group(Text(title), jobs, links)


def _table(columns: Sequence[str], *, left: Sequence[str]) -> Table:
    """A table without rows. ``left``: columns of text; others hold numbers."""
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
            "–" if job.start_s is None else human_duration(job.start_s),
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
