"""Progress of a run on standard error: time left, running jobs; plain lines
without a TTY.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from testbed import events
from testbed.cli import console
from testbed.record.job_history import event_sentence
from testbed.spec.experiment import Experiment
from testbed.units import number_of

if TYPE_CHECKING:
    from testbed.play.playing import RunRecord


INTERRUPTED = 130
"""The exit code of a command that was asked to end."""


@contextmanager
def results_shown(
    recorded: Sequence[RunRecord],
    show: Callable[[Sequence[RunRecord]], None],
    sentences: Callable[[Sequence[RunRecord]], list[str]],
    *,
    as_json: bool,
) -> Generator[None, None, None]:
    """Shows the results of the run in its block: by ``show``, or as JSON.

    ``recorded`` is filled in the block, policy by policy. If the block is
    interrupted, what it has recorded is shown, the ``sentences`` on it are
    printed (:func:`so_far`), and the command ends.
    """
    interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        interrupted = True
    if as_json:
        console.print_json(recorded)
    else:
        show(recorded)
    if interrupted:
        for line in sentences(recorded):
            console.say(line)
        raise typer.Exit(INTERRUPTED)
    if len(recorded) > 1:
        console.say(f"report of all policies: {recorded[0].page_above}")


def so_far(
    experiment: Experiment, recorded: Sequence[RunRecord]
) -> list[str]:
    """Sentences on an interrupted run: its progress, and how to resume."""
    if not recorded:
        return ["interrupted before the first policy was played to an end"]
    last = recorded[-1].results.summary
    ended = last.finished + last.rejected + last.killed
    n_policies = len(experiment.policies)
    line = f"interrupted: {ended:,} of {number_of(len(experiment.jobs), 'job')} had ended"
    if n_policies > 1:
        line += (
            f" under {last.policy}, policy {len(recorded)} of {n_policies}"
        )
    left = [policy.label for policy in experiment.policies[len(recorded) :]]
    # The policy that was interrupted has a record too, of what it came to.
    if last.status != "completed":
        left.insert(0, last.policy)
    hint = "hint: the report shows the run as far as it came"
    if left and n_policies > 1:
        hint += f"; policies left for another run: {', '.join(left)}"
    elif left:
        hint += "; the same command runs it anew"
    return [f"{line}; what was made for it is removed", hint]


def clock(seconds: float) -> str:
    """``1:07`` or ``2:01:07``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours}:{minutes:02}:{secs:02}"
    return f"{minutes}:{secs:02}"


class RunProgress:
    """An event sink that shows how far a run is.

    ``expected_end_s`` maps job ids to the times at which a dry run ended them
    (experiment seconds); the time left follows it, corrected by how late the
    last job ended really was. ``time_scale``: experiment seconds per wall
    second. ``several``: lines also name the policy, by ``label``.
    """

    def __init__(
        self,
        console: Console,
        expected_end_s: Mapping[str, float],
        time_scale: float = 1.0,
        label: str = "run",
        *,
        several: bool = False,
    ) -> None:
        self._policy = f"{label}: " if several else ""
        self._console = console
        self._expected = dict(expected_end_s)
        self._total_s = max(self._expected.values(), default=0.0)
        self._time_scale = time_scale
        self._late_s = 0.0
        self._ended = 0
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._main = self._bars.add_task(label, total=1.0, note="")

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.JobReserved():
                self._job_reserved(event)
            case events.JobProgress(job_id=job_id, share=share):
                if job_id in self._tasks:
                    self._bars.update(self._tasks[job_id], completed=share)
            case events.JobEnded():
                self._job_ended(event)
            case (
                events.JobRerooted(job_id=job_id)
                | events.JobRequeued(job_id=job_id)
                | events.JobCut(job_id=job_id)
                | events.JobReconnected(job_id=job_id)
            ):
                self._say(f"{job_id} {event_sentence(event)}")
                # It holds nothing; it gets another bar when it starts anew.
                if isinstance(event, events.JobRequeued):
                    self._remove_bar(job_id)
        self._update(event.t)

    def _job_reserved(self, event: events.JobReserved) -> None:
        servers = ", ".join(
            f"{server}:{n_vms}" for server, n_vms in event.vms_on
        )
        rate = "best effort"
        estimate = "none"
        if event.estimate_s is not None:
            rate = f"{event.rate_bps / 1e6:g} Mbit/s per VM"
            estimate = f"{event.estimate_s:.2f} s"
        self._say(
            f"{event.job_id}: {rate} on servers {servers}, estimate {estimate}",
        )
        self._tasks[event.job_id] = self._bars.add_task(
            f"  {event.job_id}", total=1.0, note=""
        )

    def _job_ended(self, event: events.JobEnded) -> None:
        self._ended += 1
        if event.job_id in self._expected and event.outcome == "finished":
            self._late_s = event.t - self._expected[event.job_id]
        measured = ""
        if event.measured_s is not None:
            measured = f", measured {event.measured_s:.2f} s"
        reason = f": {event.reason}" if event.reason else ""
        self._say(f"{event.job_id}: {event.outcome}{measured}{reason}")
        self._remove_bar(event.job_id)

    def _remove_bar(self, job_id: str) -> None:
        task = self._tasks.pop(job_id, None)
        if task is not None:
            self._bars.remove_task(task)

    def _update(self, now_s: float) -> None:
        # A run that is late stays so: the jobs that wait for the late one
        # move with it.
        end_s = self._total_s + self._late_s
        left = clock((end_s - now_s) / self._time_scale)
        note = f"{left} left, {self._ended}/{len(self._expected)} jobs"
        # A run without jobs expects its end at 0.
        share = min(1.0, now_s / max(end_s, now_s, 1e-9))
        self._bars.update(self._main, completed=share, note=note)

    def _say(self, text: str) -> None:
        line = f"{self._policy}{text}"
        self._console.print(line, highlight=False, markup=False)
