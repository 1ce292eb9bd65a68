"""Metrics of a run, from its events in one pass: a row per job, and the summary.

``docs/runs-and-fidelity.md`` defines every metric. Memory grows with jobs, not
with events. A new column of ``jobs.csv`` touches two files: :class:`JobRow`
here and that page; the table's writing, its Parquet types and the audit follow
the row's fields.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, reduce
from operator import add, attrgetter, itemgetter
from typing import IO, Any

from testbed import events
from testbed.foreign_text import csv_text
from testbed.record.event_file import EventFile
from testbed.record.failure_times import Outage, outages
from testbed.record.job_lives import JobLife, JobLives
from testbed.record.server_use import ServerUses

SLOWDOWN_BOUND_S = 10.0
"""Γ of the bounded slowdown: shorter jobs count as this long (AdaBa/BgMBF,
CMBF).
"""

OUTCOMES = ("finished", "rejected", "killed", "unfinished")


@dataclass(frozen=True)
class JobRow:
    """One line of ``jobs.csv``; None is an empty field. Times are experiment
    seconds.
    """

    job_id: str
    policy: str
    kind: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    outcome: str
    reason: str
    n_vms: int
    requested_bps: int
    granted_bps: int | None
    estimate_s: float | None
    measured_s: float | None
    deadline_s: float | None
    met_deadline: bool | None
    preemptions: int
    migrations: int
    value: float
    price: float
    application: str | None
    duration_s: float
    ratio: float | None
    job_class: str | None
    iperf3_bps: float | None = None
    iperf3_worst_bps: float | None = None
    iperf3_ratio: float | None = None
    iperf3_counted_bps: float | None = None
    exempt: str | None = None
    """The reason why a live job's time shows nothing about its reservation; no
    column.
    """
    may_end_early: bool = False
    """The estimate is only an upper bound of a live job's time; no column."""
    possible_error: str = ""
    """The possible error of a live job's time, by its evidence; no column."""
    delay_s: float = 0.0
    """The most that its links' delay adds to its estimate; no column."""
    network_share: float | None = None
    """Share of a live job's time in which packets waited at its limiters; no
    column.
    """

    @property
    def wait_s(self) -> float | None:
        """From submission to the first start."""
        if self.start_s is None:
            return None
        return self.start_s - self.submit_s

    @cached_property
    def response_s(self) -> float | None:
        """From submission to the end, for finished jobs."""
        if self.outcome != "finished" or self.end_s is None:
            return None
        return self.end_s - self.submit_s

    @property
    def queued_s(self) -> float | None:
        """All time in which a job waited, for finished jobs: the response
        without the time on nodes.
        """
        response_s = self.response_s
        if response_s is None or self.measured_s is None:
            return None
        # Sums of floats are rounded: the difference may be just below 0.
        return max(0.0, response_s - self.measured_s)

    @property
    def slowdown(self) -> float | None:
        """Response over running time, for finished jobs."""
        response_s = self.response_s
        if response_s is None or not self.measured_s:
            return None
        return response_s / self.measured_s

    @property
    def bounded_slowdown(self) -> float | None:
        """Response over max(Γ, running time), for finished jobs."""
        # No floor of 1, since both papers print the quotient without one. The
        # divisor max(1, t_a) in one of them is a misprint for max(Γ, t_e)
        # (decision 20).
        response_s = self.response_s
        if response_s is None or self.measured_s is None:
            return None
        return response_s / max(SLOWDOWN_BOUND_S, self.measured_s)


# -- jobs.csv


_IPERF3 = (
    "iperf3_bps",
    "iperf3_worst_bps",
    "iperf3_ratio",
    "iperf3_counted_bps",
)
_SET_APART = (
    "exempt",
    "may_end_early",
    "possible_error",
    "delay_s",
    "network_share",
    *_IPERF3,
)
"""Fields without a column, and those whose columns come last."""
JOB_COLUMNS = (
    *(f.name for f in fields(JobRow) if f.name not in _SET_APART),
    "wait_s",
    "queued_s",
    "response_s",
    "slowdown",
    "bounded_slowdown",
    *_IPERF3,
)
cells_of = attrgetter(*JOB_COLUMNS)
"""A row's values, in the order of the columns."""
_KINDS = {column.name: str(column.type) for column in fields(JobRow)}


def _is_of_words(column: str) -> bool:
    """True for a column of texts or truths; all others hold numbers alone."""
    return _KINDS.get(column, "float").startswith(("str", "bool"))


_WORDS = tuple(
    place
    for place, column in enumerate(JOB_COLUMNS)
    if _is_of_words(column)
)
"""Places of the columns of words."""


def write_jobs_csv(rows: Iterable[JobRow], file: IO[str]) -> None:
    """Writes a header, then a line per job: None as an empty field, booleans as
    ``true`` and ``false``.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(JOB_COLUMNS)
    for row in rows:
        cells = list(cells_of(row))
        for place in _WORDS:
            cells[place] = cell_of(cells[place])
        writer.writerow(cells)


def cell_of(value: object) -> object:
    """A value as the :mod:`csv` module is to write it."""
    # By its exact type: a million values go through here, most of them numbers.
    kind = type(value)
    if kind is bool:
        if value:
            return "true"
        return "false"
    if kind is str:
        return csv_text(value)  # type: ignore[arg-type]
    return value


# -- groups of jobs


_MEANS = {
    "wait_mean_s": "wait_s",
    "queued_mean_s": "queued_s",
    "response_mean_s": "response_s",
    "slowdown_mean": "slowdown",
    "bounded_slowdown_mean": "bounded_slowdown",
}
"""Means of a summary, each with the column that it is of."""


def group_metrics(rows: Sequence[JobRow]) -> dict[str, Any]:
    """Metrics of a group of jobs. None where there is nothing to average."""
    # A damaged run folder may have other outcomes; no metric counts them.
    count = Counter(row.outcome for row in rows)
    n_good = 0
    n_met = 0
    for row in rows:
        n_met += row.met_deadline is True
        # A job without a deadline is good when it has finished.
        n_good += (
            row.outcome == "finished" and row.met_deadline is not False
        )
    means = {}
    for name, column in _MEANS.items():
        means[name] = mean(map(attrgetter(column), rows))
    return {
        "jobs": len(rows),
        **{outcome: count[outcome] for outcome in OUTCOMES},
        "met_deadline": n_met,
        **_rates(len(rows), n_good, count["rejected"]),
        **means,
        "preemptions": sum(row.preemptions for row in rows),
        "migrations": sum(row.migrations for row in rows),
    }


def _rates(n: int, n_good: int, n_rejected: int) -> dict[str, float | None]:
    # A mean of nothing is None: 0 would be a result.
    if n == 0:
        return {"success_rate": None, "acceptance_rate": None}
    return {
        "success_rate": n_good / n,
        "acceptance_rate": 1.0 - n_rejected / n,
    }


def by_class(rows: Sequence[JobRow]) -> dict[str, dict[str, Any]]:
    """Metrics of the jobs of each class, classes by name.

    Jobs without a class are in none.
    """
    classes: dict[str, list[JobRow]] = {}
    for row in rows:
        if row.job_class is not None:
            classes.setdefault(row.job_class, []).append(row)
    return {name: group_metrics(classes[name]) for name in sorted(classes)}


def mean(values: Iterable[float | None]) -> float | None:
    """Arithmetic mean of the values that are not None; None for no such value."""
    averaged = present(values)
    if not averaged:
        return None
    # Added one by one: sum() rounds otherwise from Python 3.12 on.
    return reduce(add, averaged, 0.0) / len(averaged)


# -- from events to rows and a summary


LIVE = "live"
"""The backend whose runs depend on the machine: a verdict says how faithful the
emulation was.
"""


def severity(level: str) -> int:
    """The rank of a level of fidelity; an unknown one is as bad as the worst."""
    return {"ok": 0, "suspect": 1}.get(level, 2)


@dataclass(frozen=True)
class Spread:
    """Order statistics of a sample; quantiles interpolate linearly between
    neighbours.
    """

    min: float
    median: float
    p95: float
    max: float


@dataclass(frozen=True)
class Fidelity:
    """Fidelity of the emulation: ``ok``, ``suspect``, ``invalid``; None for
    simulated runs.
    """

    verdict: str | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """``summary.json`` without the verdicts on jobs (``expectations`` in it).
    None where there is nothing to average.
    """

    name: str
    policy: str
    backend: str
    seed: int
    status: str
    jobs: int
    finished: int
    rejected: int
    killed: int
    unfinished: int
    met_deadline: int
    success_rate: float | None
    acceptance_rate: float | None
    vm_utilisation: float | None
    link_utilisation: float | None
    link_utilisation_measured: float | None
    revenue: float
    wait_mean_s: float | None
    queued_mean_s: float | None
    response_mean_s: float | None
    slowdown_mean: float | None
    bounded_slowdown_mean: float | None
    preemptions: int
    migrations: int
    classes: Mapping[str, Mapping[str, Any]]
    estimate_ratio: Spread | None
    iperf3_ratio: Spread | None
    fidelity: Fidelity
    span_s: float
    wall_s: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile of sorted ``values``, linear between the neighbouring
    order statistics.
    """
    # As numpy does by default.
    place = q * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def spread(values: Iterable[float]) -> Spread | None:
    """Order statistics of a sample; None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(
        min=ordered[0],
        median=quantile(ordered, 0.5),
        p95=quantile(ordered, 0.95),
        max=ordered[-1],
    )


_NO_TOPOLOGY: dict[str, Any] = {
    "names": [],
    "slots": [],
    "links": {"lower": [], "upper": [], "capacity_bps": []},
}
_NOT_STARTED = events.RunStarted(
    t=0.0,
    run="",
    policy="",
    backend="",
    seed=0,
    topology=_NO_TOPOLOGY,
)


class Tally:
    """Takes a run's events in order; gives rows and a summary at any moment.

    An event costs O(1), or the length of the lists in it. ``recording`` keeps
    all samples of links, uses of servers, and what :class:`JobLives` keeps
    with it.
    """

    def __init__(self, *, recording: bool = False) -> None:
        self.started = _NOT_STARTED
        self.ended: events.RunEnded | None = None
        self.notes: list[events.FidelityNoted] = []
        self.lives = JobLives(recording=recording)
        # Kept with ``recording`` alone.
        self.samples: list[events.LinkSample] = []
        self.uses = ServerUses()
        self._recording = recording
        self._sent_bits = 0.0
        self._sampled_s = 0.0

    def feed(self, event: events.Event) -> None:
        # Events about jobs concern their lives alone.
        life = self.lives.follow(event)
        if life is not None:
            if self._recording:
                self.uses.follow(event.t, type(event), life)
            return
        match event:
            case events.RunStarted():
                self.started = event
            case events.RunEnded():
                self.ended = event
            case events.FidelityNoted():
                self.notes.append(event)
            case events.LinkSample():
                self._sampled_s += event.interval_s
                sent_bps = sum(sent for _, sent, _ in event.links)
                self._sent_bits += sent_bps * event.interval_s
                if self._recording:
                    self.samples.append(event)

    # An engine calls its sink of events.
    __call__ = feed

    @property
    def requests(self) -> dict[str, Mapping[str, Any]]:
        """Records of the jobs' requests, by id."""
        jobs = self.lives.jobs
        return {job_id: life.request for job_id, life in jobs.items()}

    def rows(self) -> Iterator[JobRow]:
        """One row per submitted job, in order of submission."""
        return (
            _row(life, self.started) for life in self.lives.jobs.values()
        )

    def fidelity(self) -> Fidelity:
        """The worst note's level, and the reasons of all that are not ok, each
        once.
        """
        if self.started.backend != LIVE:
            return Fidelity(None)
        # A live run without notes was not looked at: that is no proof that
        # it was sound.
        if not self.notes:
            return Fidelity(
                "suspect",
                ("nothing was checked about the machine during this run",),
            )
        worst = max((note.level for note in self.notes), key=severity)
        reasons = dict.fromkeys(
            note.reason for note in self.notes if note.level != "ok"
        )
        return Fidelity(worst, tuple(reasons))

    def summary(self, rows: Sequence[JobRow] | None = None) -> Summary:
        """The run's summary.

        ``rows``: those of :meth:`rows`, if the caller has them.
        """
        rows = list(self.rows()) if rows is None else rows
        started = self.started
        vm_use, link_use, link_sent = self._utilisation()
        return Summary(
            name=started.run,
            policy=started.policy,
            backend=started.backend,
            seed=started.seed,
            status=self.ended.status if self.ended else "interrupted",
            **group_metrics(rows),
            vm_utilisation=vm_use,
            link_utilisation=link_use,
            link_utilisation_measured=link_sent,
            revenue=sum(row.price for row in rows),
            classes=by_class(rows),
            estimate_ratio=spread(present(row.ratio for row in rows)),
            iperf3_ratio=spread(present(row.iperf3_ratio for row in rows)),
            fidelity=self.fidelity(),
            span_s=self.lives.now_s,
            wall_s=None,
        )

    def _utilisation(
        self,
    ) -> tuple[float | None, float | None, float | None]:
        """Shares of VM slots used, link capacity reserved, and link capacity
        used by traffic (where sampled): means over the run.
        """
        span_s = self.lives.now_s
        # An empty run, or one in which everything happened at once: there
        # is nothing to average over.
        if span_s <= 0:
            return None, None, None
        topology = self.started.topology
        slots = sum(topology["slots"])
        links = topology["links"]
        up_bps = links["capacity_bps"]
        down_bps = links.get("capacity_down_bps", up_bps)
        # Both directions count: a hose reserves in each of them.
        capacity_bps = sum(up_bps) + sum(down_bps)
        vm_use = link_use = link_sent = None
        if slots:
            vm_use = self.lives.slot_s / (slots * span_s)
        if capacity_bps:
            link_use = self.lives.reserved_bits / (capacity_bps * span_s)
        sampled_bits = capacity_bps * self._sampled_s
        if sampled_bits:
            link_sent = self._sent_bits / sampled_bits
        return vm_use, link_use, link_sent


def request_record(request: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a job's row that follow from its request alone."""
    cells = dict(zip(_REQUEST_COLUMNS, _of_request(request), strict=True))
    cells["job_id"] = str(request["id"])
    cells["requested_bps"] = request["bandwidth_bps"]
    cells["job_class"] = _class(request)
    return cells


_REQUEST_COLUMNS = (
    "kind",
    "submit_s",
    "n_vms",
    "deadline_s",
    "value",
    "application",
    "duration_s",
)
_LIFE_COLUMNS = tuple(
    {f.name for f in fields(JobLife)} & {f.name for f in fields(JobRow)}
)
"""Columns that are fields of a job's life by the same name."""
_of_request = itemgetter(*_REQUEST_COLUMNS)
_of_life = attrgetter(*_LIFE_COLUMNS)


def _row(life: JobLife, started: events.RunStarted) -> JobRow:
    ratio = None
    finished = life.outcome == "finished"
    if finished and life.measured_s is not None and life.estimate_s:
        ratio = life.measured_s / life.estimate_s
    iperf3 = _iperf3(life)
    exempt = None
    if started.backend == LIVE:
        exempt = _exempt(life, iperf3)
    cells = request_record(life.request)
    cells.update(zip(_LIFE_COLUMNS, _of_life(life), strict=True))
    cells.update(
        iperf3,
        policy=started.policy,
        met_deadline=_met(life),
        ratio=ratio,
        exempt=exempt,
        may_end_early=_may_end_early(life),
    )
    row = object.__new__(JobRow)
    # Not by the constructor: a frozen class's makes one call per field, and takes
    # three times as long. Fields that are not among the cells have the defaults
    # of the class.
    object.__setattr__(row, "__dict__", cells)
    return row


def present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _iperf3(life: JobLife) -> dict[str, Any]:
    """Columns of a finished iperf3 job: bandwidth of the median and worst VM.

    ``received`` is what iperf3 reports, ``counted`` what the VM's cap has sent.
    """
    if not life.iperf3:
        return {}
    received = sorted(life.iperf3.get("received_bps", ()))
    counted = sorted(life.iperf3.get("counted_bps", ()))
    if life.outcome != "finished" or not received or not counted:
        return {}
    columns = {
        "iperf3_bps": quantile(received, 0.5),
        "iperf3_worst_bps": received[0],
        "iperf3_counted_bps": quantile(counted, 0.5),
    }
    if life.granted_bps:
        columns["iperf3_ratio"] = received[0] / life.granted_bps
    return columns


def _exempt(life: JobLife, iperf3: Mapping[str, Any]) -> str | None:
    """The reason why a live job's time shows nothing about its reservation.

    None where it shows something, as the end of a job that failed by itself
    always does.
    """
    if life.by_policy:
        return f"killed by its policy: {life.reason}"
    if life.outcome == "killed":
        if life.reason.startswith(events.FAILED):
            return f"{life.reason}, as the file has it"
        # A job that failed by itself is judged, whatever its kind. One whose
        # time ran out may be exempt for the reasons below.
        if life.reason != events.OUTLASTED:
            return None
    return _exempt_by_kind(life, iperf3) or _exempt_by_events(life)


def _exempt_by_kind(life: JobLife, iperf3: Mapping[str, Any]) -> str | None:
    request = life.request
    if request["kind"] == "compute" or not life.granted_bps:
        return "no bandwidth reserved"
    if request["kind"] == "iperf3":
        reason = "iperf3 takes its duration at any rate"
        share = iperf3.get("iperf3_ratio")
        if share is None:
            return reason
        return f"{reason}: its worst VM received {share:.4f} of its reservation"
    if request.get("command"):
        return "a command: nothing is known of what it sends"
    if life.loses:
        return "its links lose packets: no rate can be kept to"
    return None


def _exempt_by_events(life: JobLife) -> str | None:
    request = life.request
    if (request.get("true_duration_s") or 0) > request["duration_s"]:
        return "needs longer than stated"
    if life.preemptions or life.migrations:
        return "preempted or migrated: its time includes that"
    if life.slowed:
        return "rescaled below the bandwidth of its estimate"
    if life.failed:
        return "interrupted, cut or started anew by a failure"
    return None


def _may_end_early(life: JobLife) -> bool:
    """True where the estimate is only an upper bound of a job's time.

    The estimate p·b/b' stretches a job's whole time, but a demand curve is
    delayed only while its demand is above the granted b'.
    """
    request = life.request
    granted_bps = life.granted_bps or 0
    if (
        request["kind"] == "demand"
        and granted_bps < request["bandwidth_bps"]
    ):
        return True
    true_s = request.get("true_duration_s")
    is_shorter = true_s is not None and true_s < request["duration_s"]
    return is_shorter or life.quickened


def _class(request: Mapping[str, Any]) -> str | None:
    """A job's class: its tag, or the queue that its trace names."""
    tags = request.get("tags")
    if isinstance(tags, list | tuple):
        # Tags of a damaged or older folder may be of any form.
        for tag in tags:
            is_pair = isinstance(tag, list | tuple) and len(tag) == 2
            if is_pair and tag[0] == "class":
                return str(tag[1])
    queue = request.get("queue")
    if queue is None:
        return None
    return str(queue)


def _met(job: JobLife) -> bool | None:
    """True where it finished by its deadline; None where it has none."""
    deadline_s = job.request["deadline_s"]
    if deadline_s is None:
        return None
    if job.outcome != "finished" or job.end_s is None:
        return False
    due_s = job.request["submit_s"] + deadline_s
    # Sums of floats are rounded, which must not make a job miss its deadline.
    return bool(job.end_s <= due_s + 1e-9 * max(1.0, abs(due_s)))


def tally(
    stream: Iterable[events.Event], *, recording: bool = False
) -> Tally:
    """The tally of a whole event stream."""
    whole = Tally(recording=recording)
    for event in stream:
        whole.feed(event)
    return whole


@dataclass(frozen=True)
class Recording(EventFile):
    """A run's events and what follows from them, each made once."""

    judged: list[tuple[object, Any]] = field(
        default_factory=list, repr=False
    )
    """Pairs of an expectation and the verdicts by it, kept by ``verdicts_of``."""

    @cached_property
    def tally(self) -> Tally:
        """The tally of all events, with the records that pictures and link rates
        need.
        """
        return tally(self.events, recording=True)

    @cached_property
    def rows(self) -> tuple[JobRow, ...]:
        """A row per job, as in ``jobs.csv``."""
        return tuple(self.tally.rows())

    @cached_property
    def failures(self) -> tuple[Outage, ...]:
        """Parts that failed or were restarted, in order of begin."""
        return tuple(outages(self))

    @cached_property
    def jobs_table(self) -> str:
        """The text of ``jobs.csv``."""
        text = io.StringIO()
        write_jobs_csv(self.rows, text)
        return text.getvalue()

    def summary(
        self, name: str | None = None, wall_s: float | None = None
    ) -> Summary:
        """The summary; ``name`` defaults to the run's own; ``wall_s`` is what
        the run took in real seconds.
        """
        summary = self._summary
        if name is not None:
            summary = replace(summary, name=name)
        return replace(summary, wall_s=wall_s)

    @cached_property
    def _summary(self) -> Summary:
        return self.tally.summary(rows=self.rows)
