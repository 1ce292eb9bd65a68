"""Metrics of a run, from its events in one pass: a row a job, and the summary of all.

Memory grows with jobs, not with events. ``docs/runs-and-fidelity.md`` defines them; the audit
computes the main ones again by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from testbed import events

SLOWDOWN_BOUND_S = 10.0
"""Γ of the bounded slowdown: shorter jobs count as this long (AdaBa/BgMBF, CMBF)."""

OUTCOMES = ("finished", "rejected", "killed", "unfinished")


@dataclass(frozen=True)
class JobRow:
    """One line of ``jobs.csv``; None is an empty field. Times are experiment seconds."""

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
    exempt: str | None = None  # why a live time says nothing of its reservation; no column

    @property
    def wait_s(self) -> float | None:
        """From submission to the first start."""
        return None if self.start_s is None else self.start_s - self.submit_s

    @property
    def response_s(self) -> float | None:
        """From submission to the end, for finished jobs."""
        if self.outcome != "finished" or self.end_s is None:
            return None
        return self.end_s - self.submit_s

    @property
    def queued_s(self) -> float | None:
        """All waiting: the response but for the time on nodes, for finished jobs."""
        if self.response_s is None or self.measured_s is None:
            return None
        # Rounding of a sum of floats makes nobody wait less than nothing.
        return max(0.0, self.response_s - self.measured_s)

    @property
    def slowdown(self) -> float | None:
        """Response over running time, for finished jobs."""
        if self.response_s is None or not self.measured_s:
            return None
        return self.response_s / self.measured_s

    @property
    def bounded_slowdown(self) -> float | None:
        """Response over max(Γ, running time), for finished jobs."""
        if self.response_s is None or self.measured_s is None:
            return None
        return self.response_s / max(SLOWDOWN_BOUND_S, self.measured_s)


def group(rows: Sequence[JobRow]) -> dict[str, Any]:
    """Metrics of a group of jobs. None where there is nothing to average."""
    n = len(rows)
    count = {outcome: sum(r.outcome == outcome for r in rows) for outcome in OUTCOMES}
    good = sum(r.outcome == "finished" and r.met_deadline is not False for r in rows)
    means = ("wait_s", "queued_s", "response_s", "slowdown", "bounded_slowdown")
    return {
        "jobs": n,
        **count,
        "met_deadline": sum(r.met_deadline is True for r in rows),
        "success_rate": good / n if n else None,
        "acceptance_rate": 1.0 - count["rejected"] / n if n else None,
        **{_mean_of(column): mean(getattr(r, column) for r in rows) for column in means},
        "preemptions": sum(r.preemptions for r in rows),
        "migrations": sum(r.migrations for r in rows),
    }


def _mean_of(column: str) -> str:
    """``wait_mean_s`` of ``wait_s``, ``slowdown_mean`` of ``slowdown``."""
    name = column.removesuffix("_s")
    return f"{name}_mean{column[len(name) :]}"


def by_class(rows: Sequence[JobRow]) -> dict[str, dict[str, Any]]:
    """The jobs of each class that is named, classes by name; jobs without one are in none."""
    named = sorted({row.job_class for row in rows if row.job_class is not None})
    return {name: group([row for row in rows if row.job_class == name]) for name in named}


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there; None where there are none."""
    total, count = 0.0, 0
    for value in values:
        if value is not None:
            total += value
            count += 1
    return total / count if count else None


# -- from events to rows and a summary


LIVE = "live"
"""The backend whose runs depend on the machine they ran on, and need a verdict on it."""


def severity(level: str) -> int:
    """The rank of a level of fidelity; an unknown one is as bad as the worst."""
    return {"ok": 0, "suspect": 1}.get(level, 2)


@dataclass(frozen=True)
class Spread:
    """Order statistics of a sample; quantiles interpolate linearly between neighbours."""

    min: float
    median: float
    p95: float
    max: float


@dataclass(frozen=True)
class Fidelity:
    """Fidelity of the emulation: ``ok``, ``suspect``, ``invalid``; None for simulated runs."""

    verdict: str | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """``summary.json`` but for the verdict rows. None where there is nothing to average."""

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
    """The q-quantile of sorted ``values``, linear between the neighbouring order statistics."""
    place = q * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def spread(values: Iterable[float]) -> Spread | None:
    """None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(ordered[0], quantile(ordered, 0.5), quantile(ordered, 0.95), ordered[-1])


@dataclass
class _Job:
    """Sum of one job's events so far. ``held`` (VMs, bit/s) while it runs."""

    request: Mapping[str, Any]
    start_s: float | None = None
    end_s: float | None = None
    outcome: str = "unfinished"
    reason: str = "the run stopped before its end"
    granted_bps: int | None = None
    estimate_s: float | None = None
    measured_s: float | None = None
    preemptions: int = 0
    migrations: int = 0
    slowed: bool = False
    failed: bool = False
    by_policy: bool = False
    price: float = 0.0
    iperf3: Mapping[str, Sequence[float]] = field(default_factory=dict)
    n_slots: int = 0
    reserved_bps: int = 0
    tier: str = "foreground"
    held: tuple[int, int] = (0, 0)


@dataclass
class _Use:
    """A quantity over time, integrated: VMs that run, bit/s reserved for them over all links."""

    now_s: float = 0.0
    vms: int = 0
    reserved_bps: int = 0
    vm_s: float = 0.0
    reserved_bits: float = 0.0

    def advance(self, t: float) -> None:
        step = t - self.now_s
        self.vm_s += self.vms * step
        self.reserved_bits += self.reserved_bps * step
        self.now_s = t


_PLACED = (events.JobReserved, events.JobRescaled, events.JobMigrated, events.JobRerooted)
_TIERED = (events.JobReserved, events.JobResumed, events.JobTierSwitched, events.JobMigrated)
_RUNS = (events.JobStarted, events.JobRescaled, *_TIERED[1:])
_NOT_STARTED = events.RunStarted(0.0, "", "", "", 0, {"slots": [], "links": {"capacity_bps": []}})


@dataclass
class Tally:
    """Takes events one by one; gives rows and a summary at any moment.

    Feed a run's events in order. Complexity: O(1) per event but for the lengths of its own lists.
    """

    started: events.RunStarted = _NOT_STARTED
    ended: events.RunEnded | None = None
    notes: list[events.FidelityNoted] = field(default_factory=list)
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _use: _Use = field(default_factory=_Use)
    _sent_bits: float = 0.0
    _sampled_s: float = 0.0

    def feed(self, event: events.Event) -> None:
        self._use.advance(event.t)
        match event:
            case events.RunStarted():
                self.started = event
            case events.RunEnded():
                self.ended = event
            case events.FidelityNoted():
                self.notes.append(event)
            case events.LinkSample():
                self._sampled_s += event.interval_s
                self._sent_bits += sum(s[1] for s in event.links) * event.interval_s
            case events.SwitchRestarted():
                for job in self._jobs.values():
                    job.failed |= job.held != (0, 0)
            case events.JobSubmitted():
                self._jobs[str(event.job["id"])] = _Job(event.job)
            case _:
                self._feed_job(event)

    __call__ = feed

    def _feed_job(self, event: events.Event) -> None:
        job = self._jobs.get(getattr(event, "job_id", ""))
        if job is None:
            return
        if isinstance(event, _PLACED):
            job.reserved_bps = sum(bps for _, bps in event.links)
        if isinstance(event, _TIERED):
            job.tier = event.tier
        job.failed |= isinstance(event, events.JobCut | events.JobRequeued)
        match event:
            case events.JobReserved():
                job.granted_bps, job.estimate_s = event.rate_bps, event.estimate_s
                n_vms = sum(count for _, count in event.vms_on)
                job.n_slots = n_vms * int(job.request.get("cores", 1))
            case events.JobStarted():
                job.start_s = event.t if job.start_s is None else job.start_s
            case events.JobRescaled():
                job.slowed |= event.rate_bps < (job.granted_bps or 0)
            case events.JobPreempted():
                job.preemptions += 1
            case events.JobMigrated():
                job.migrations += 1
            case events.JobEnded():
                job.end_s, job.outcome, job.reason = event.t, event.outcome, event.reason
                job.measured_s, job.by_policy = event.measured_s, event.killed_by_policy
                job.price = float(event.detail.get("price", 0.0))
                job.iperf3 = event.detail.get("iperf3", {})
        self._follow_holds(job, event)

    def _follow_holds(self, job: _Job, event: events.Event) -> None:
        if isinstance(event, _RUNS):
            # A background VM runs in what the foreground leaves: it takes no slot of its own.
            self._hold(job, job.n_slots if job.tier == "foreground" else 0, job.reserved_bps)
        elif isinstance(event, events.JobPreempted | events.JobRequeued | events.JobEnded):
            self._hold(job, 0, 0)
        elif isinstance(event, events.JobRerooted) and job.held != (0, 0):
            self._hold(job, job.held[0], job.reserved_bps)

    def _hold(self, job: _Job, n_slots: int, reserved_bps: int) -> None:
        self._use.vms += n_slots - job.held[0]
        self._use.reserved_bps += reserved_bps - job.held[1]
        job.held = (n_slots, reserved_bps)

    @property
    def records(self) -> dict[str, Mapping[str, Any]]:
        """The jobs as they were submitted, by id."""
        return {job_id: job.request for job_id, job in self._jobs.items()}

    def rows(self) -> Iterator[JobRow]:
        """One row per submitted job, in order of submission."""
        return (_row(job, self.started) for job in self._jobs.values())

    def fidelity(self) -> Fidelity:
        """The worst note's level, and the reasons of all that are not ok, each once."""
        if self.started.backend != LIVE:
            return Fidelity(None)
        if not self.notes:
            return Fidelity("suspect", ("nothing was checked about the machine during this run",))
        worst = max((note.level for note in self.notes), key=severity)
        reasons = dict.fromkeys(note.reason for note in self.notes if note.level != "ok")
        return Fidelity(worst, tuple(reasons))

    def summary(self, name: str | None = None, wall_s: float | None = None) -> Summary:
        """``name`` defaults to the run's own; ``wall_s`` is what the run took in real seconds."""
        rows = list(self.rows())
        started = self.started
        vm_use, link_use, link_sent = self._utilisation()
        return Summary(
            name=started.run if name is None else name,
            policy=started.policy,
            backend=started.backend,
            seed=started.seed,
            status=self.ended.status if self.ended else "interrupted",
            **group(rows),
            vm_utilisation=vm_use,
            link_utilisation=link_use,
            link_utilisation_measured=link_sent,
            revenue=sum(r.price for r in rows),
            classes=by_class(rows),
            estimate_ratio=spread(r.ratio for r in rows if r.ratio is not None),
            iperf3_ratio=spread(r.iperf3_ratio for r in rows if r.iperf3_ratio is not None),
            fidelity=self.fidelity(),
            span_s=self._use.now_s,
            wall_s=wall_s,
        )

    def _utilisation(self) -> tuple[float | None, float | None, float | None]:
        """Means over the run: VM slots, reserved capacity, sent capacity (where sampled)."""
        if self._use.now_s <= 0:
            return None, None, None
        topology, span_s = self.started.topology, self._use.now_s
        slots = sum(topology["slots"])
        capacity = 2 * sum(topology["links"]["capacity_bps"])
        sampled = capacity * self._sampled_s
        return (
            self._use.vm_s / (slots * span_s) if slots else None,
            self._use.reserved_bits / (capacity * span_s) if capacity else None,
            self._sent_bits / sampled if sampled else None,
        )


def request_record(request: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a job's row that its request has alone."""
    return {
        "job_id": str(request["id"]),
        "requested_bps": request["bandwidth_bps"],
        "job_class": _class(request),
        **{column: request[column] for column in _OF_REQUEST},
    }


_OF_REQUEST = ("kind", "submit_s", "n_vms", "deadline_s", "value", "application", "duration_s")
_OF_EVENTS = tuple({f.name for f in fields(_Job)} & {f.name for f in fields(JobRow)})


def _row(job: _Job, started: events.RunStarted) -> JobRow:
    request = job.request
    ratio = None
    if job.outcome == "finished" and job.measured_s is not None and job.estimate_s:
        ratio = job.measured_s / job.estimate_s
    iperf3 = _iperf3(job)
    return JobRow(
        policy=started.policy,
        met_deadline=_met(job),
        ratio=ratio,
        exempt=_exempt(job, iperf3) if started.backend == LIVE else None,
        **iperf3,
        **request_record(request),
        **{column: getattr(job, column) for column in _OF_EVENTS},
    )


def _iperf3(job: _Job) -> dict[str, Any]:
    """Columns of a finished job that measured its bandwidth itself: the median and worst VM."""
    received, counted = (sorted(job.iperf3.get(k, ())) for k in ("received_bps", "counted_bps"))
    if job.outcome != "finished" or not received or not counted:
        return {}
    columns = {"iperf3_bps": quantile(received, 0.5), "iperf3_worst_bps": received[0]}
    if job.granted_bps:
        columns["iperf3_ratio"] = received[0] / job.granted_bps
    return {**columns, "iperf3_counted_bps": quantile(counted, 0.5)}


def _exempt(job: _Job, iperf3: Mapping[str, Any]) -> str | None:
    """Why a job's time shows nothing about its reservation. A failure always does."""
    request, killed = job.request, job.outcome == "killed"
    share = iperf3.get("iperf3_ratio")
    found = "" if share is None else f": its worst VM received {share:.4f} of its reservation"
    cases = (
        (job.by_policy, f"killed by its policy: {job.reason}"),
        (killed and job.reason.startswith(events.FAILED), f"{job.reason}, as the file has it"),
        (killed and job.reason != events.OUTLASTED, None),
        (request["kind"] == "compute" or not job.granted_bps, "no bandwidth reserved"),
        (request["kind"] == "iperf3", f"iperf3 takes its duration at any rate{found}"),
        (request.get("command"), "a command: nothing is known of what it sends"),
        ((request.get("true_duration_s") or 0) > request["duration_s"], "needs longer than stated"),
        (job.preemptions or job.migrations, "preempted or migrated: its time includes that"),
        (job.slowed, "rescaled below the bandwidth of its estimate"),
        (job.failed, "interrupted, cut or started anew by a failure"),
    )
    return next((reason for applies, reason in cases if applies), None)


def _class(request: Mapping[str, Any]) -> str | None:
    """A job's class: its tag, or the queue that its trace names."""
    tags = request.get("tags")
    for tag in tags if isinstance(tags, list | tuple) else ():
        if isinstance(tag, list | tuple) and len(tag) == 2 and tag[0] == "class":
            return str(tag[1])
    queue = request.get("queue")
    return None if queue is None else str(queue)


def _met(job: _Job) -> bool | None:
    """True where it finished by its deadline; None where it has none."""
    deadline_s = job.request["deadline_s"]
    if deadline_s is None:
        return None
    if job.outcome != "finished" or job.end_s is None:
        return False
    due_s = job.request["submit_s"] + deadline_s
    # Rounding of a sum of floats decides no deadline.
    return bool(job.end_s <= due_s + 1e-9 * max(1.0, abs(due_s)))


def tally(stream: Iterable[events.Event]) -> Tally:
    """The tally of a whole event stream."""
    out = Tally()
    for event in stream:
        out.feed(event)
    return out
