"""Files at the end of a run: ``jobs.csv``, ``links.csv``, ``summary.json`` with its verdicts.

A live run's links are sampled while it runs (``link_sample``). A simulated run sends nothing; there
the run is cut into equal intervals and each row holds the mean reservation over one of them.
Every metric is defined in ``docs/runs-and-fidelity.md``.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import TypeAdapter

from testbed import events
from testbed.events import Int, Number
from testbed.results import folder as names
from testbed.results.folder import RunFolder
from testbed.results.metrics import Fidelity, JobRow, Summary, severity, tally
from testbed.results.reading import Run, checked, claims_of, read_events, read_json
from testbed.spec.experiment import ApplicationExpectation, Expectation
from topologies.datacentre import DataCentre

_IPERF3 = ("iperf3_bps", "iperf3_worst_bps", "iperf3_ratio", "iperf3_counted_bps")
JOB_COLUMNS = (
    *(f.name for f in fields(JobRow) if f.name not in ("exempt", *_IPERF3)),
    "wait_s",
    "queued_s",
    "response_s",
    "slowdown",
    "bounded_slowdown",
    *_IPERF3,
)


def write_jobs_csv(rows: Iterable[JobRow], file: IO[str]) -> None:
    """``jobs.csv``: a header, then a line per job; None is empty, truths ``true`` and ``false``."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(JOB_COLUMNS)
    for row in rows:
        writer.writerow([_cell(getattr(row, column)) for column in JOB_COLUMNS])


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # The csv module does not quote a lone carriage return, and readers take it for a line end.
        return value.replace("\r\n", "\n").replace("\r", "\n")
    return value


# -- the topology of run_started


MAX_LISTED_NODES = 1_000_000
"""Nodes in all trees together whose parents and uplinks are listed; the audit finds others'."""


def topology_record(datacentre: DataCentre) -> dict[str, Any]:
    """The ``topology`` of a :class:`testbed.events.RunStarted`.

    ``names`` and ``level`` per node, ``slots`` per server, ``links`` as arrays ``lower``,
    ``upper``, ``capacity_bps`` per link, and every tree a tenant can be pinned to as ``root``,
    ``parent`` and ``uplink`` per node (-1 where there is none); of large data centres with many
    trees the roots alone, below which hangs what links lead to. ``memory_mib`` per server where
    memory limits anything.
    """
    whole = len(datacentre.trees) * datacentre.n_nodes <= MAX_LISTED_NODES
    return {
        "kind": datacentre.kind,
        "names": list(datacentre.names),
        "level": datacentre.level.tolist(),
        "slots": datacentre.slots.tolist(),
        "links": {
            "lower": datacentre.link_lower.tolist(),
            "upper": datacentre.link_upper.tolist(),
            "capacity_bps": datacentre.link_capacity_bps.tolist(),
        },
        "trees": [
            {"root": int(tree.root)}
            | ({"parent": tree.parent.tolist(), "uplink": tree.uplink.tolist()} if whole else {})
            for tree in datacentre.trees
        ],
        **({} if datacentre.memory_mib is None else {"memory_mib": datacentre.memory_mib.tolist()}),
    }


# -- links.csv: reserved and sent bandwidth over time


MAX_SIMULATED_ROWS = 200_000
MAX_INTERVALS = 200


@dataclass(frozen=True)
class LinkRow:
    """One line of ``links.csv``. ``sent_bps`` None: not measured."""

    time_s: float
    link: str
    directed_link: int
    sent_bps: float | None
    reserved_bps: float
    capacity_bps: int


LINK_COLUMNS = tuple(f.name for f in fields(LinkRow))


def described_links(topology: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Name (``rack 3 -> aggregation 1``) and capacity of the directed links in the arrays.

    Of another one, in a damaged folder, there is nothing to show; the audit names it.
    """
    names, links = topology["names"], topology["links"]
    ends = zip(links["lower"], links["upper"], links["capacity_bps"], strict=False)
    out = {}
    for link, (lower, upper, capacity_bps) in enumerate(ends):
        if 0 <= lower < len(names) and 0 <= upper < len(names):
            out[2 * link] = f"{names[lower]} -> {names[upper]}", int(capacity_bps)
            out[2 * link + 1] = f"{names[upper]} -> {names[lower]}", int(capacity_bps)
    return out


def sampled_rows(stream: Iterable[events.Event]) -> Iterator[LinkRow]:
    """The samples of a live run, in order."""
    known: dict[int, tuple[str, int]] = {}
    for event in stream:
        if isinstance(event, events.RunStarted):
            known = described_links(event.topology)
        elif isinstance(event, events.LinkSample):
            for directed, sent, reserved in event.links:
                link = int(directed)
                if link in known:
                    name, capacity_bps = known[link]
                    yield LinkRow(event.t, name, link, sent, reserved, capacity_bps)


@dataclass(frozen=True)
class Reservation:
    """``bps`` reserved on a directed link from ``start_s`` to ``end_s`` while a job ran."""

    directed_link: int
    start_s: float
    end_s: float
    bps: int


def reservations(stream: Iterable[events.Event]) -> Iterator[Reservation]:
    """Reservations of running jobs on each link by release; open ones end with the run."""
    links: dict[str, Sequence[Sequence[int]]] = {}
    since: dict[str, float] = {}
    now_s = 0.0

    def release(job_id: str) -> Iterator[Reservation]:
        start_s = since.pop(job_id, None)
        if start_s is not None and now_s > start_s:
            # One that was never reserved, in a damaged folder, held nothing.
            for link, bps in links.get(job_id, ()):
                yield Reservation(link, start_s, now_s, bps)

    for event in stream:
        now_s = event.t
        match event:
            case events.JobReserved():
                links[event.job_id] = event.links
            case events.JobStarted() | events.JobResumed():
                since[event.job_id] = now_s
            case events.JobRescaled() | events.JobMigrated():
                yield from release(event.job_id)
                links[event.job_id] = event.links
                since[event.job_id] = now_s
            case events.JobRerooted():
                runs = event.job_id in since
                yield from release(event.job_id)
                links[event.job_id] = event.links
                if runs:
                    since[event.job_id] = now_s
            case events.JobPreempted() | events.JobRequeued() | events.JobEnded():
                yield from release(event.job_id)
    for job_id in list(since):
        yield from release(job_id)


def shares(start_s: float, end_s: float, step_s: float, n: int) -> Iterator[tuple[int, float]]:
    """Which of ``n`` equal intervals a stretch of time touches, and for how many seconds."""
    for i in range(int(start_s / step_s), min(n - 1, int(end_s / step_s)) + 1):
        yield i, max(0.0, min(end_s, (i + 1) * step_s) - max(start_s, i * step_s))


def simulated_rows(
    topology: dict[str, Any], held: Sequence[Reservation], span_s: float
) -> Iterator[LinkRow]:
    """Means over equal intervals for every link that was ever used, by time, then by link.

    At most MAX_INTERVALS intervals, fewer where many links would make over MAX_SIMULATED_ROWS rows.
    """
    known = described_links(topology)
    held = [r for r in held if r.directed_link in known]
    used = sorted({r.directed_link for r in held})
    if not used or span_s <= 0:
        return
    n = max(1, min(MAX_INTERVALS, MAX_SIMULATED_ROWS // len(used)))
    step_s = span_s / n
    bits: dict[int, list[float]] = {link: [0.0] * n for link in used}
    for r in held:
        row = bits[r.directed_link]
        for i, inside_s in shares(r.start_s, r.end_s, step_s, n):
            row[i] += inside_s * r.bps
    for i in range(n):
        for link in used:
            name, capacity_bps = known[link]
            yield LinkRow((i + 1) * step_s, name, link, None, bits[link][i] / step_s, capacity_bps)


def link_rows(history: Sequence[events.Event]) -> Iterator[LinkRow]:
    """Samples where there are any, means of the reservations otherwise."""
    if any(isinstance(event, events.LinkSample) for event in history):
        return sampled_rows(history)
    started = next((e for e in history if isinstance(e, events.RunStarted)), None)
    if started is None:
        return iter(())
    return simulated_rows(started.topology, list(reservations(history)), history[-1].t)


def write_links_csv(rows: Iterable[LinkRow], file: IO[str]) -> None:
    """``links.csv``: a header, then a line per link and time; ``sent_bps`` empty: not measured."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(LINK_COLUMNS)
    for row in rows:
        rates = (row.sent_bps, row.reserved_bps)
        sent, reserved = (rate if rate is None else round(rate) for rate in rates)
        link = (row.link, row.directed_link)
        writer.writerow([row.time_s, *link, sent, reserved, row.capacity_bps])


# -- verdicts on reservations, and on what an experiment expects: they decide exit code 1


Answer = Literal["ok", "outside", "held", "late", "killed", "open"]
"""By the file's ``expect``: ``ok``, ``outside``; else by a live job's reservation, or ``open``."""
BAD = frozenset[Answer]({"outside", "late", "killed"})
Judgement = tuple[Answer, str]


@dataclass(frozen=True)
class Verdict:
    """One job's result against its expectation or its reservation; ``why`` is the explanation."""

    job_id: str
    application: str
    requested_bps: Int
    granted_bps: Int | None
    estimate_s: Number | None
    measured_s: Number | None
    ratio: Number | None
    verdict: Answer
    why: str

    @property
    def bad(self) -> bool:
        return self.verdict in BAD


@dataclass(frozen=True)
class Verdicts:
    """All of them, and what else was expected. ``met`` decides the exit code."""

    rows: tuple[Verdict, ...]
    complaints: tuple[str, ...]

    @property
    def met(self) -> bool:
        return not self.complaints

    @property
    def judged(self) -> tuple[Verdict, ...]:
        """Those that are not open."""
        return tuple(row for row in self.rows if row.verdict != "open")

    @property
    def bad(self) -> tuple[Verdict, ...]:
        """Those outside, late or killed; they may be ``met`` where the file accepts them."""
        return tuple(row for row in self.rows if row.bad)

    def to_json(self) -> dict[str, Any]:
        """The ``expectations`` of ``summary.json``."""
        rows = [asdict(row) for row in self.rows]
        return {"met": self.met, "complaints": list(self.complaints), "rows": rows}


_VERDICTS = TypeAdapter(Verdicts)
_EXPECTATION = TypeAdapter(Expectation)


def stored_verdicts(run: Run) -> Verdicts:
    """The verdicts of ``summary.json``; for an interrupted run, of its resolved experiment."""
    stored = (run.stored_summary or {}).get("expectations")
    if not isinstance(stored, dict):
        claims = claims_of(run.resolved)
        return evaluate(stored_expectation(run), run.rows, run.summary.fidelity, claims)
    return checked(_VERDICTS, stored, run.path / names.SUMMARY, "expectations")


def stored_expectation(run: Run) -> Expectation:
    """The ``expect`` block that ``spec.resolved.json`` holds; an empty one where it has none."""
    block = (run.resolved or {}).get("expect")
    if not isinstance(block, dict):
        return Expectation()
    own, above = run.path / names.RESOLVED, run.path.parent / names.RESOLVED
    return checked(_EXPECTATION, block, own if own.is_file() else above, "expect")


def evaluate(
    expect: Expectation,
    rows: Iterable[JobRow],
    fidelity: Fidelity,
    claims: Collection[str] = (),
) -> Verdicts:
    """Every job by what the file states of it, a live one else by its reservation; then fidelity,
    then names that match nothing.

    A file that accepts ``invalid`` accepts what follows from it: reservations that did not hold.
    """
    rows = tuple(rows)
    found, accepted = fidelity.verdict, expect.fidelity
    # Simulated times are the model's own.
    expect = expect if found is not None else replace(expect, late_above=None)
    judged = tuple(_verdict(expect, row, "every-job-starts" in claims) for row in rows)
    decisive = {"outside"} if accepted == "invalid" else BAD
    complaints = [f"{v.job_id}: {v.why}" for v in judged if v.verdict in decisive]
    if accepted is not None and found is not None and severity(found) > severity(accepted):
        reasons = "; ".join(fidelity.reasons) or "no reason given"
        complaints.append(f"fidelity is {found}, accepted is at worst {accepted}: {reasons}")
    # An expectation about an application that never ran must not pass in silence.
    ran, no_job = {v.application for v in judged}, "is expected, but no job has that name"
    complaints += [f"application {n!r} {no_job}" for n in expect.applications if n not in ran]
    estimated = not any(_best_effort(row) for row in rows)
    if estimated and expect.estimate_ratio and all(v.verdict == "open" for v in judged):
        complaints.append(
            "`expect.estimate_ratio` is set, but no job finished, so there is no ratio to check."
        )
    return Verdicts(judged, tuple(complaints))


def _verdict(expect: Expectation, row: JobRow, all_start: bool) -> Verdict:
    own = expect.applications.get(row.application or "")
    # A policy may reject; what a script starts, and an application named in the file, were to run.
    must_run = own is not None or all_start
    answer, why = (
        (None if must_run else _free(row))
        or _stated(expect, own or ApplicationExpectation(), row)
        or _reserved(expect.late_above, row)
    )
    cells: dict[str, Any] = {f.name: getattr(row, f.name, None) for f in fields(Verdict)}
    cells |= {"application": row.application or row.job_id, "verdict": answer, "why": why}
    return Verdict(**cells)


def _best_effort(row: JobRow) -> bool:
    """Started on a network without reservations (BL, PS-P)."""
    return row.start_s is not None and row.estimate_s is None


def _free(row: JobRow) -> Judgement | None:
    """By the policy's own decision: a job that it need not start, or reserve for; else None."""
    if row.outcome == "rejected":
        return "open", _outcome(row)
    return ("open", "best effort: no estimate") if _best_effort(row) else None


def _stated(expect: Expectation, own: ApplicationExpectation, row: JobRow) -> Judgement | None:
    """By the file; None where it states nothing of the job. Silence proves nothing."""
    band = own.estimate_ratio or expect.estimate_ratio
    full = row.granted_bps is not None and row.granted_bps >= row.requested_bps
    below = None if full else own.scaled_down_below
    if band is None and below is None:
        return None
    if row.ratio is None:
        return "outside", f"no measured time: {_outcome(row)}"
    bounds = [(band.holds(row.ratio), str(band))] if band else []
    bounds += [(row.ratio < below, f"below {below:g} when scaled down")] if below else []
    for holds, bound in bounds:
        if not holds:
            return "outside", f"measured/estimate {row.ratio:.4f}, expected {bound}"
    return "ok", f"{bounds[-1][1]}, as expected"


def _reserved(late_above: float | None, row: JobRow) -> Judgement:
    """By its reservation: what was estimated at a rate that is kept takes about that time."""
    if late_above is None:
        return "open", "nothing expected"
    if row.estimate_s is None or row.exempt is not None:
        return "open", row.exempt or _outcome(row)
    if row.ratio is None:
        return ("killed" if row.outcome == "killed" else "open"), _outcome(row)
    found = f"measured/estimate {row.ratio:.4f}, held is at most {late_above:g}"
    return ("late" if row.ratio > late_above else "held"), found


def _outcome(row: JobRow) -> str:
    return f"{row.outcome}: {row.reason}" if row.reason else row.outcome


# -- all files at the end of a run


@dataclass(frozen=True)
class Results:
    """Results of a run: rows, their summary, and verdicts on what was expected."""

    path: Path
    rows: tuple[JobRow, ...]
    summary: Summary
    verdicts: Verdicts

    def to_json(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return {**self.summary.to_json(), "expectations": self.verdicts.to_json()}


def conclude(
    folder: RunFolder,
    expect: Expectation | None = None,
    *,
    name: str | None = None,
    wall_s: float | None = None,
) -> Results:
    """Read ``events.jsonl`` back and write everything that follows from it.

    Works on an interrupted run too. The events on the disk are the only source: what the audit
    will read is what was summed up.
    """
    history = read_events(folder.path / names.EVENTS).events
    taken = tally(history)
    rows = tuple(taken.rows())
    summary = taken.summary(name, wall_s)
    claims = claims_of(read_json(folder.path / names.RESOLVED))
    verdicts = evaluate(expect or Expectation(), rows, summary.fidelity, claims)
    results = Results(folder.path, rows, summary, verdicts)
    folder.write_lines(names.JOBS, lambda file: write_jobs_csv(rows, file))
    folder.write_lines(names.LINKS, lambda file: write_links_csv(link_rows(history), file))
    folder.write_json(names.SUMMARY, results.to_json())
    if folder.parquet:
        from testbed.results.parquet_tables import write_parquet

        write_parquet(folder, history)
    return results


def conclude_all(folder: RunFolder, policies: list[Results]) -> None:
    """The ``summary.json`` above several policies: a list, one entry each, in the file's order."""
    folder.write_json(
        names.SUMMARY, [{**one.to_json(), "folder": one.path.name} for one in policies]
    )
