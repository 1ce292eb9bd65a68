"""Alibaba's cluster trace of 2018, ``batch_task.csv``: one task per line.

A task becomes a job. Its instances are the VMs, and its start in the trace is
the arrival. Of the tasks that it waited for, it comes after the last to end.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jobs.workload.traces import Complaints, quoted_text, whole_number
from testbed.errors import BadInput
from testbed.importing.imported import (
    Job,
    Names,
    Network,
    Notes,
    RegularTree,
    refusal_without_jobs,
)
from testbed.units import (
    format_bandwidth,
    number_of,
)

FIELDS = (
    "task_name",
    "instance_num",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
)
DEFAULT_FIRST = 1000
STATES = frozenset(
    (
        "Terminated",
        "Failed",
        "Running",
        "Waiting",
        "Cancelled",
        "Interrupted",
    )
)
# The trace has no bandwidths and no network: both are choices.
BANDWIDTH_BPS = 100_000_000
CENTRE = RegularTree(
    fanout=(4, 8, 16), slots_per_server=16, server_link_bps=10**10
)
_DEPENDING = re.compile(r"[A-Za-z]+([0-9]{1,6})((?:_[0-9]{1,6})*)")


@dataclass(frozen=True)
class BatchTask:
    """A line of the file. Times in seconds; 0 where the file has none."""

    name: str
    job: str
    status: str
    instances: int
    start_s: int
    end_s: int
    line: int

    def objection(self, slots: int) -> str:
        """Why it becomes no job on so many slots, as the noun of a count; empty
        if it is one.
        """
        if self.status != "Terminated":
            return "tasks that did not end as Terminated"
        # An unknown time is 0 or empty in the trace.
        is_known = self.instances and self.start_s
        if not is_known or self.end_s < self.start_s:
            return "tasks without instances, start or end"
        if self.instances > slots:
            return f"tasks of more than {slots:,} instances"
        return ""

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        """The task's own number, and those of the tasks that it waits for."""
        match = _DEPENDING.fullmatch(self.name)
        if match is None:
            return (0,)
        # "_2_3" begins with a separator.
        first, others = match.groups()
        return (int(first), *map(int, others.split("_")[1:]))

    @property
    def number(self) -> int:
        """4 of R4_2_3; 0 of a name without a number."""
        return self._numbers[0]

    @property
    def waits_for(self) -> tuple[int, ...]:
        """2 and 3 of R4_2_3, the tasks of its job before it."""
        return self._numbers[1:]


def is_alibaba(begin: str) -> bool:
    """True if one of a text's first lines is a task."""
    for line in begin.splitlines()[:20]:
        words = line.split(",")
        if len(words) >= len(FIELDS) and words[4] in STATES:
            return True
    return False


def read_alibaba(
    path: Path,
    network: Network | None,
    first: int | None,
    notes: Notes,
    *,
    lenient: bool,
) -> tuple[Network | RegularTree, tuple[Job, ...]]:
    """The first tasks of the file that can be run, as jobs, and the topology for
    them: the network, or :data:`CENTRE`.

    Raises TraceErrors with the lines that cannot be read, and BadInput.
    """
    topology = network or CENTRE
    # A whole trace is gigabytes: only its first tasks are taken.
    tasks = _Tasks(first or DEFAULT_FIRST, topology.slots)
    tasks.read(path, lenient=lenient)
    if not tasks.kept:
        raise tasks.refusal(path)
    tasks.note(notes)
    bandwidth_bps = min(BANDWIDTH_BPS, topology.server_link_bps)
    choice = f"{format_bandwidth(bandwidth_bps)} for each VM of several"
    if network is None:
        choice += ", and the data centre: the trace has no bandwidths and no network"
    else:
        choice += ": the trace has no bandwidths"
    notes.choices.append(choice)
    return topology, _jobs(tasks.kept, bandwidth_bps)


class _Tasks:
    """The tasks of a file that are kept, and how many are left out, by kind."""

    def __init__(self, wanted: int, slots: int) -> None:
        self.kept: list[BatchTask] = []
        self._wanted = wanted
        self._slots = slots
        self._left_out: Counter[str] = Counter()
        self._complaints = Complaints()

    def read(self, path: Path, *, lenient: bool) -> None:
        with self._complaints.reading(path) as lines:
            for number, text in enumerate(lines, 1):
                self._complaints.line = number
                self._take(number, text.strip())
                if len(self.kept) == self._wanted:
                    break
        read = len(self.kept) + self._left_out.total()
        self._complaints.conclude(path, read, lenient=lenient, noun="task")

    def _take(self, number: int, text: str) -> None:
        words = text.split(",")
        is_header = number == 1 and words[0] == FIELDS[0]
        if is_header or not text:
            return
        task = _task(words, number, self._complaints)
        if task is None:
            return
        objection = task.objection(self._slots)
        if objection:
            self._left_out[objection] += 1
        else:
            self.kept.append(task)

    def refusal(self, path: Path) -> BadInput:
        """The error for a file of which no task is kept."""
        return refusal_without_jobs(
            path, "has no task that can be run here", self._left_out
        )

    def note(self, notes: Notes) -> None:
        """Adds what is taken and not taken to the notes."""
        notes.taken.append(
            f"{number_of(len(self.kept), 'task')}, the first of the file that ended; a"
            " task's instances are VMs, its start is the arrival"
        )
        notes.not_taken.extend(self._complaints.remarks)
        if self._complaints.total:
            count = self._complaints.total
            self._left_out["lines that cannot be read"] = count
        notes.leave_out_counted(self._left_out)
        notes.not_taken.append(
            "plan_cpu, plan_mem, and dependencies on several tasks but the last"
        )


def _task(
    words: list[str], line: int, complaints: Complaints
) -> BatchTask | None:
    """A line's task; None where the line is wrong, which is reported."""
    if not complaints.has_fields(
        line, 1, n_fields=len(words), wanted=len(FIELDS)
    ):
        return None
    numbers: list[int] = []
    for index in (1, 5, 6):
        value = whole_number(words[index] or "0", 12)
        if value is None or value < 0:
            shown = quoted_text(words[index])
            message = f"{FIELDS[index]}: {shown} is no whole number"
            complaints.add(line, 1, message)
            return None
        numbers.append(value)
    instances, start_s, end_s = numbers
    return BatchTask(
        name=words[0],
        job=words[2],
        status=words[4],
        instances=instances,
        start_s=start_s,
        end_s=end_s,
        line=line,
    )


def _jobs(tasks: list[BatchTask], bandwidth_bps: int) -> tuple[Job, ...]:
    """The tasks as jobs, in order of their starts; the first starts at 0 s."""
    ordered = sorted(tasks, key=lambda task: (task.start_s, task.line))
    numbered: dict[tuple[str, int], BatchTask] = {}
    for task in ordered:
        # A number may occur twice in a job: others wait for its first task.
        numbered.setdefault((task.job, task.number), task)
    name_of = _names(ordered)
    labels = Names.of_jobs()
    jobs = []
    for task in ordered:
        before = _last_before(task, numbered)
        # A single VM sends to nobody.
        several = task.instances > 1
        jobs.append(
            Job(
                name=name_of[task],
                # The trace has no submissions.
                at_s=task.start_s - ordered[0].start_s,
                vms=task.instances,
                # 0 s stands for less than 1 s, as in logs of parallel machines.
                duration_s=max(1, task.end_s - task.start_s),
                bandwidth_bps=bandwidth_bps if several else 0,
                application=labels.label(task.job),
                after=name_of[before] if before else "",
            )
        )
    return tuple(jobs)


def _names(tasks: list[BatchTask]) -> dict[BatchTask, str]:
    names = Names.of_jobs()
    return {task: names.of(f"{task.job}-{task.name}") for task in tasks}


def _last_before(
    task: BatchTask, numbered: dict[tuple[str, int], BatchTask]
) -> BatchTask | None:
    """The last to end of the tasks that a task waits for.

    Only tasks of smaller numbers count, so that no job waits for itself, not
    even through others.
    """
    before = []
    for number in task.waits_for:
        other = numbered.get((task.job, number))
        if other is not None and number < task.number:
            before.append(other)
    return max(before, key=lambda other: other.end_s, default=None)
