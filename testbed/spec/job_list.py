"""``workload: {kind: jobs}``: jobs that the file lists one by one, and sweeps over one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.demand import KINDS, Entry, JobKind, Pattern, demand_of
from jobs.request import JobRequest
from testbed.spec.document import Document
from testbed.spec.problems import Path, Problem, did_you_mean, dotted, near
from testbed.spec.profile import Profiles
from testbed.spec.quantities import (
    Bandwidth,
    Duration,
    Name,
    PositiveBandwidth,
    PositiveDuration,
    Share,
    SpecModel,
)
from testbed.spec.reading import partial, read_model
from testbed.spec.sourced import Workload
from testbed.spec.topology import Site
from testbed.units import format_bandwidth, format_duration, format_share

MAX_JOBS = 100_000

Word = Annotated[str, Field(min_length=1, max_length=4096)]


class DemandStep(SpecModel):
    """A stretch of an application's progress with one demand."""

    until: Share = Field(description="the progress at which this step ends, as 70 %")
    at: Bandwidth = Field(description="what one VM would send, were bandwidth unlimited")


class Sweep(SpecModel):
    """One job several times over, one after another."""

    granted: Annotated[list[PositiveBandwidth], Field(min_length=1, max_length=1000)] = Field(
        description="the bandwidths to run it at; the jobs are called ID-750, ID-600 (in Mbit/s)"
    )


class JobEntry(SpecModel):
    """One job: n VMs at bandwidth b for a running time p, due at deadline d."""

    id: Name = Field(description="the job's own name")
    at: Duration | None = Field(None, description="when it is submitted (default 0 s)")
    after: str | None = Field(
        None, description="the job that must have left before this one is submitted"
    )
    vms: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="how many VMs it needs")
    bandwidth: PositiveBandwidth | None = Field(None, description="what it asks for per VM")
    granted: PositiveBandwidth | None = Field(
        None, description="what the policy 'scripted' gives it per VM (default: bandwidth)"
    )
    duration: PositiveDuration = Field(description="its running time at that bandwidth, as 6 s")
    deadline: PositiveDuration | None = Field(
        None, description="the latest time for it to end, counted from its submission"
    )
    kind: JobKind | None = Field(
        None,
        description="; ".join(f"{name}: {each.summary}" for name, each in KINDS.items()),
    )
    pattern: Pattern | None = Field(None, description="who sends to whom (default ring)")
    application: Name | None = Field(
        None, description="a label: the jobs of one application are one line of a figure"
    )
    demand: Annotated[list[DemandStep], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="the demand curve c(x): steps up to 100 % of the progress"
    )
    cpu: Share | None = Field(
        None,
        description="the share of a core that each VM burns (default 0; compute: 100 %, and"
        " what it leaves is for a VM behind it)",
    )
    command: Annotated[list[Word], Field(min_length=1, max_length=100)] | None = Field(
        None,
        description="on the live network each VM runs this, as its rank; words that begin with ./"
        " are files beside this one",
    )
    reward: Annotated[float, Field(ge=0, le=1e12)] | None = Field(
        None, description="what it is worth to end by the deadline (default 0)"
    )
    profile: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="a file with its running times at other bandwidths (an elastic job)"
    )
    speedup: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="instead: JSA's speed-up ratio α, its profile by the published model"
    )
    sweep: Sweep | None = Field(None, description="run it several times, one after another")


class JobListWorkload(SpecModel):
    """Jobs that the file lists."""

    kind: Literal["jobs"]
    jobs: Annotated[list[JobEntry], Field(min_length=1, max_length=MAX_JOBS)] = Field(
        description="the jobs"
    )


def read_job_list(document: Document, path: Path, site: Site) -> Workload:
    """The listed jobs, sweeps expanded."""
    profiles = Profiles(_beside(document))
    problems_before = len(document.problems)
    workload = read_model(JobListWorkload, document, path)
    entries = _entries(document, path)
    for here, known in entries:
        check_entry(document, here, known, site)
        profiles.check(document, here, known)
    _check_ids(document, entries)
    _check_followers(document, entries)
    if workload is None or len(document.problems) > problems_before:
        return Workload(applications=_applications([known for _, known in entries]))
    last = {entry.id: _ids(_known(entry))[-1] for entry in workload.jobs}
    jobs = [
        (job, document.place((*path, "jobs", index)))
        for index, entry in enumerate(workload.jobs)
        for job in requests(entry, last, _beside(document), profiles)
    ]
    return Workload(
        tuple(job for job, _ in jobs),
        {job.id: place for job, place in jobs},
        _applications([_known(entry) for entry in workload.jobs]),
    )


Known = Mapping[str, Any]


def _entries(document: Document, path: Path) -> list[tuple[Path, Known]]:
    """Every entry with its path and what can be read of it."""
    section = document.at(path)
    jobs = section.get("jobs") if isinstance(section, dict) else None
    if not isinstance(jobs, list):
        return []
    paths: list[Path] = [(*path, "jobs", index) for index in range(len(jobs))]
    return [(here, partial(JobEntry, document, here)) for here in paths]


def _known(entry: JobEntry) -> Known:
    return {name: getattr(entry, name) for name in JobEntry.model_fields}


# ------------------------------------------------------------------ what an entry stands for


def _kind(known: Known) -> JobKind:
    """An entry's kind; a demand curve, readable or not, makes it a demand job."""
    kind: JobKind | None = known.get("kind")
    return kind or ("demand" if known.get("demand", "unreadable") is not None else "transfer")


def _ids(known: Known) -> list[str]:
    """The ids of an entry's jobs: its own, or with a sweep one per bandwidth."""
    sweep: Sweep | None = known.get("sweep")
    if sweep is None:
        return [known["id"]]
    return [f"{known['id']}-{suffix}" for suffix in suffixes(sweep.granted)]


def _application(known: Known) -> str | None:
    """The label of an entry's jobs: a sweep that names none is an application of its own."""
    named: str | None = known["application"]
    return named or (known["id"] if known["sweep"] is not None else None)


def _applications(entries: Sequence[Known]) -> tuple[str, ...] | None:
    """All labels; None where one of them cannot be told."""
    if not entries or any(not {"id", "application", "sweep"} <= set(known) for known in entries):
        return None
    return tuple(dict.fromkeys(name for known in entries if (name := _application(known))))


def suffixes(rates_bps: Sequence[int]) -> list[str]:
    """Short texts for bandwidths: Mbit/s where all are whole, otherwise kbit/s or bit/s."""
    for factor, unit in ((10**6, ""), (10**3, "k")):
        if all(rate % factor == 0 for rate in rates_bps):
            return [f"{rate // factor}{unit}" for rate in rates_bps]
    return [f"{rate}b" for rate in rates_bps]


def _beside(document: Document) -> FilePath:
    """The experiment file's folder."""
    return FilePath(document.place(()).source).parent


def _command(entry: JobEntry, beside: FilePath) -> tuple[str, ...] | None:
    """An entry's command; files are named from the experiment file's folder."""
    if entry.command is None:
        return None
    return tuple(
        str((beside / word).resolve()) if word.startswith("./") else word for word in entry.command
    )


def requests(
    entry: JobEntry, last: Mapping[str, str], beside: FilePath, profiles: Profiles
) -> list[JobRequest]:
    """The jobs of a sound entry. Those of a sweep form a chain, each after the one before."""
    ids = _ids(_known(entry))
    granted = [entry.granted] if entry.sweep is None else list(entry.sweep.granted)
    kind = _kind(_known(entry))
    follows = [None if entry.after is None else last.get(entry.after, entry.after), *ids]
    demand = demand_of(
        Entry(
            kind=kind,
            pattern=entry.pattern,
            cpu=entry.cpu,
            steps=tuple((step.until, step.at) for step in entry.demand or ()),
            profile=profiles.of(_known(entry)),
            command=_command(entry, beside),
        )
    )
    return [
        JobRequest(
            id=job_id,
            submit_s=entry.at or 0.0,
            n_vms=entry.vms,
            bandwidth_bps=entry.bandwidth or 0,
            duration_s=entry.duration,
            deadline_s=entry.deadline,
            demand=demand,
            granted_bps=rate,
            application=_application(_known(entry)),
            after=after,
            value=entry.reward or 0.0,
        )
        for job_id, rate, after in zip(ids, granted, follows, strict=False)
    ]


# ------------------------------------------------------------------ checks


def check_entry(document: Document, path: Path, known: Known, site: Site) -> None:
    """What one entry says of itself and of the data centre."""
    _check_kind(document, path, known)
    _check_command(document, path, known)
    _check_demand(document, path, known)
    _check_rates(document, path, known, site)
    duration, deadline, vms = (known.get(key) for key in ("duration", "deadline", "vms"))
    if duration is not None and deadline is not None and deadline < duration:
        shorter = f"{format_duration(deadline)} is shorter than the duration"
        document.report((*path, "deadline"), f"{shorter}, {format_duration(duration)}")
    if vms is not None and site.datacentre is not None and site.slots_known:
        slots = site.datacentre.total_slots
        if vms > slots:
            document.report((*path, "vms"), f"{vms} VMs, but the data centre has {slots} slots")


def _check_command(document: Document, path: Path, known: Known) -> None:
    """A command's files exist; what it runs is its own affair, so no pattern and no curve."""
    command: list[str] = known.get("command") or []
    for index, word in enumerate(command):
        if word.startswith("./") and not (_beside(document) / word).exists():
            folder = _beside(document)
            document.report((*path, "command", index), f"there is no file {word} in {folder}")
    for key in ("pattern", "demand"):
        if command and key in document.at(path):
            document.report((*path, key), "means nothing to a job that runs a command", at_key=True)


def _check_kind(document: Document, path: Path, known: Known) -> None:
    """Keys that a kind of job needs or cannot have."""
    if "kind" not in known:
        return
    entry, kind = document.at(path), _kind(known)
    for key in KINDS[kind].refused:
        if key in entry:
            document.report((*path, key), f"means nothing to a {kind} job", at_key=True)
    if known.get("cpu") == 0 and not KINDS[kind].network:
        document.report((*path, "cpu"), f"must be above 0 for a {kind} job")
    for key in KINDS[kind].required:
        meant = (near(name, (key,)) for name in entry if name not in JobEntry.model_fields)
        if key not in entry and not any(meant):  # a misspelt key has been named already
            message = f"is required for a {kind} job"
            where = Problem(document.place(path), dotted((*path, key)), message)
            document.problems.append(where)
    if "demand" in entry and "demand" not in KINDS[kind].required:
        message = f"belongs to jobs of kind demand, this one's is {kind}"
        document.report((*path, "demand"), message, at_key=True)


def _check_demand(document: Document, path: Path, known: Known) -> None:
    """A demand curve's steps rise to exactly 100 %, and ask for something somewhere."""
    steps: list[DemandStep] = known.get("demand") or []
    reached = 0.0
    for index, step in enumerate(steps):
        here = (*path, "demand", index, "until")
        if step.until <= reached:
            before = format_share(reached)
            document.report(here, f"{format_share(step.until)} is not above {before} before it")
        reached = max(reached, step.until)
    if steps and reached != 1.0:
        last = (*path, "demand", len(steps) - 1, "until")
        document.report(last, f"the last step must reach 100 %, not {format_share(reached)}")
    if steps and not any(step.at for step in steps):
        document.report((*path, "demand"), "no step asks for any bandwidth", at_key=True)


def _check_rates(document: Document, path: Path, known: Known, site: Site) -> None:
    """Bandwidths against each other and against the servers' links."""
    asked: int | None = known.get("bandwidth")
    given: list[tuple[Path, int]] = []
    if known.get("granted") is not None:
        given.append(((*path, "granted"), known["granted"]))
    if known.get("sweep") is not None:
        rates = known["sweep"].granted
        given += [((*path, "sweep", "granted", i), rate) for i, rate in enumerate(rates)]
        if "granted" in document.at(path):
            document.report((*path, "granted"), "the sweep gives it: remove one of them")
    for here, rate in given:
        if asked is not None and rate > asked:
            more = f"{format_bandwidth(rate)} is more than the job asks for"
            document.report(here, f"{more}, {format_bandwidth(asked)}")
    if site.datacentre is None or not site.links_known or site.datacentre.n_links == 0:
        return
    nic_bps = int(site.datacentre.nic_bps.max())
    for here, rate in [((*path, "bandwidth"), asked or 0), *given]:
        if rate > nic_bps:
            above = f"{format_bandwidth(rate)} is above every server's link"
            document.report(here, f"{above} ({format_bandwidth(nic_bps)} at most)")


def _check_ids(document: Document, entries: Sequence[tuple[Path, Known]]) -> None:
    """Every job's id is its own, those of a sweep's jobs included."""
    first: dict[str, Path] = {}
    for path, known in entries:
        if "id" not in known:
            continue
        names = dict.fromkeys([known["id"], *(_ids(known) if "sweep" in known else [])])
        rates = known["sweep"].granted if known.get("sweep") is not None else []
        if len(set(rates)) < len(rates):
            document.report((*path, "sweep", "granted"), "names a bandwidth twice")
        for name in names:
            if name in first:
                line = document.place(first[name]).line
                document.report((*path, "id"), f"{name!r} is the id of the job in line {line} too")
                break
            first[name] = path


def _check_followers(document: Document, entries: Sequence[tuple[Path, Known]]) -> None:
    """``after`` names another job, and following it one comes to a job that waits for none."""
    owner = {
        name: known["id"]
        for _, known in entries
        if "id" in known
        for name in [known["id"], *_ids(known)]
    }
    follows: dict[str, str] = {}
    for path, known in entries:
        after = known.get("after")
        if after is None:
            continue
        if after not in owner:
            hint = did_you_mean(after, list(owner))
            document.report((*path, "after"), f"there is no job {after!r}{hint}")
        elif "id" in known:
            follows[known["id"]] = owner[after]
    for path, known in entries:
        circle = _circle(follows, str(known.get("id")))
        if circle and min(circle) == known["id"]:
            way = " after ".join([*circle, circle[0]])
            document.report((*path, "after"), f"these jobs wait for each other: {way}")


def _circle(follows: Mapping[str, str], start: str) -> list[str]:
    """The jobs on the way from ``start`` back to itself, if there is one."""
    way = [start]
    while follows.get(way[-1]) is not None:
        following = follows[way[-1]]
        if following == start:
            return way
        if following in way:
            return []
        way.append(following)
    return []
