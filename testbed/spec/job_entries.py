"""``workload: {kind: jobs}``: listed jobs, sweeps over a job, and profiles.

A profile file has bandwidth options with running times; the last option is at
the no-elongation threshold. ``testbed profile`` writes such a file::

    application: sort                 # a label, optional
    options:
      - {bandwidth: 100 Mbit/s, time: 42 s}
      - {bandwidth: 200 Mbit/s, time: 30 s}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from jobs import launcher_commands
from jobs.demand import (
    KINDS,
    Command,
    Demand,
    JobKind,
    Launch,
    MpiLibrary,
    Pattern,
    Program,
    demand_of,
)
from jobs.job_profile import STEEPEST, Profile, linear_profile, objections
from jobs.request import JobRequest
from testbed.errors import BadInput
from testbed.plugins import PluginError, PluginUse, installed, shown_value
from testbed.spec.document import (
    Document,
    Location,
    did_you_mean,
    file_at,
    is_beside,
    near,
    read_document,
    read_text,
)
from testbed.spec.plugin_functions import PluginFunction, plugin_function
from testbed.spec.size_limits import LIMITS
from testbed.spec.sweep_section import as_yaml
from testbed.spec.topology_section import LoadContext
from testbed.spec.unit_types import (
    Bandwidth,
    Duration,
    Name,
    PositiveBandwidth,
    PositiveDuration,
    Share,
    refused_value,
)
from testbed.spec.validation import (
    Section,
    SpecModel,
    read_section,
    value_in_words,
)
from testbed.spec.workload_section import LoadedWorkload, WorkloadSection
from testbed.units import (
    format_bandwidth,
    format_duration,
    format_share,
    number_of,
)

Word = Annotated[str, Field(min_length=1, max_length=4096)]
CommandWords = Annotated[list[Word], Field(min_length=1, max_length=100)]


def _known_kind(value: Any) -> str:
    """A job's kind: one of ours, or of an installed package."""
    if isinstance(value, str) and (
        value in KINDS or value in installed("demands")
    ):
        return value
    known = [*KINDS, *installed("demands")]
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    raise refused_value(
        f"must be one of {', '.join(known)}, not {value_in_words(value)}{hint}"
    )


DemandKind = Annotated[
    str, PlainValidator(_known_kind), WithJsonSchema({"enum": list(KINDS)})
]


class DemandStep(SpecModel):
    """A stretch of an application's progress with one demand."""

    until: Share
    """the progress at which this step ends, as 70 %"""
    at: Bandwidth
    """what one VM would send, were bandwidth unlimited"""


DemandCurve = Annotated[
    list[DemandStep], Field(min_length=1, max_length=1000)
]


class GrantedSweep(SpecModel):
    """One job several times over, one after another."""

    granted: Annotated[
        list[PositiveBandwidth], Field(min_length=1, max_length=1000)
    ]
    """the bandwidths to run it at; the jobs are called ID-750, ID-600
    (in Mbit/s)
    """


class ProgramKeys(Section):
    """The keys of a program that is launched in its VMs."""

    launch: Launch | None = None
    """each: as it is, once a rank (default); mpi: by mpirun; dask: as
    the client of a scheduler with workers in all VMs; spark: as the
    driver of executors in all VMs
    """
    mpi: MpiLibrary | None = None
    """whose mpirun (default openmpi)"""
    ranks_per_vm: Annotated[int, Field(ge=1, le=1024)] | None = None
    """ranks in each VM (default 1); dask: workers; spark: cores"""
    files: Annotated[list[Word], Field(max_length=100)] | None = None
    """files beside this one, copied into each VM's working folder before
    the start
    """
    prepare: CommandWords | None = None
    """run in each VM before the start, and not counted"""
    expect: Annotated[list[Word], Field(max_length=100)] | None = None
    """texts each of which has to be in a line of some rank's output"""


class JobEntry(ProgramKeys):
    """One job: n VMs at bandwidth b for a running time p, due at deadline d."""

    id: Name
    """the job's own name"""
    at: Duration | None = None
    """when it is submitted (default 0 s)"""
    after: str | None = None
    """the job that must have left before this one is submitted"""
    vms: Annotated[int, Field(ge=1, le=1_000_000)]
    """how many VMs it needs"""
    bandwidth: PositiveBandwidth | None = None
    """what it asks for per VM"""
    granted: PositiveBandwidth | None = None
    """what the policy 'scripted' gives it per VM (default: bandwidth)"""
    duration: PositiveDuration
    """its running time at that bandwidth, as 6 s"""
    deadline: PositiveDuration | None = None
    """the latest time for it to end, counted from its submission"""
    kind: DemandKind | None = Field(
        None,
        description="; ".join(
            f"{name}: {kind.summary}" for name, kind in KINDS.items()
        ),
    )
    parameters: dict[str, Any] | None = None
    """of a kind that an installed package adds: what it takes"""
    pattern: Pattern | None = None
    """communication pattern (default ring)"""
    at_once: bool = False
    """of pattern all-to-all: each VM sends to all others at the same
    time (default false: to one after another, round by round)
    """
    application: Name | None = None
    """a label: the jobs of one application are one line of a figure"""
    demand: DemandCurve | None = None
    """the demand curve c(x): steps up to 100 % of the progress"""
    cpu: Share | None = None
    """the share of a core that each VM burns (default 0; compute: 100
    %, and what it leaves is for a VM behind it)
    """
    command: CommandWords | None = None
    """on the live network each VM runs this, as its rank; words that
    begin with ./ are files beside this one
    """
    reward: Annotated[float, Field(ge=0, le=1e12)] | None = None
    """what it is worth to end by the deadline (default 0)"""
    profile: Annotated[str, Field(min_length=1)] | None = None
    """a file with its running times at other bandwidths (an elastic job)"""
    speedup: Annotated[float, Field(ge=0, le=1)] | None = None
    """instead: JSA's speed-up ratio α, its profile by the published
    model
    """
    sweep: GrantedSweep | None = None
    """run it several times, one after another"""


class JobListWorkload(WorkloadSection):
    """Jobs that the file lists."""

    kind: Literal["jobs"]
    jobs: Annotated[
        list[JobEntry], Field(min_length=1, max_length=LIMITS["jobs"])
    ]
    """the jobs"""

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        """The listed jobs, sweeps expanded."""
        demands = EntryDemands(location.document.folder)
        entries: list[JobEntry] = self["jobs"] or []
        # All entries are checked before any job is made, so that all problems
        # are reported together.
        where = location / "jobs"
        for index, entry in enumerate(entries):
            demands.check(where / index, entry)
            check_entry(where / index, entry, context)
        _check_ids(where, entries)
        _check_followers(where, entries)
        applications = _applications(entries)
        if not location.is_sound():
            return LoadedWorkload(applications=applications)
        # A job that waits for a sweep waits for the last of its jobs.
        last = {entry.id: _ids(entry)[-1] for entry in entries}
        jobs: list[JobRequest] = []
        for entry in entries:
            jobs += requests(entry, demands.of(entry), last)
        return LoadedWorkload(
            tuple(jobs),
            applications=applications,
            notes=launcher_notes(jobs),
            plugins=demands.plugins.uses,
        )


# ------------------------------------------------------------------ from an entry to its jobs


def _kind(entry: Section) -> Any:
    """An entry's kind; the default is demand with a demand curve, readable or
    not, and transfer without.
    """
    kind: str | None = entry["kind"]
    curved = entry["demand"] is not None or not entry.is_readable("demand")
    return kind or ("demand" if curved else "transfer")


def _ids(entry: JobEntry) -> list[str]:
    """The ids of an entry's jobs: its own, or with a sweep one per bandwidth."""
    if entry.sweep is None:
        return [entry.id]
    return [
        f"{entry.id}-{suffix}" for suffix in suffixes(entry.sweep.granted)
    ]


def _application(entry: JobEntry) -> str | None:
    """The label of an entry's jobs; by default a sweep's is the entry's id."""
    if entry.application is None and entry.sweep is not None:
        return entry.id
    return entry.application


def _applications(entries: Sequence[JobEntry]) -> tuple[str, ...] | None:
    """All labels; None where one of them cannot be read."""
    if not entries:
        return None
    names: dict[str, None] = {}
    for entry in entries:
        if not entry.is_readable("id", "application", "sweep"):
            return None
        name = _application(entry)
        if name:
            names[name] = None
    return tuple(names)


def suffixes(rates_bps: Sequence[int]) -> list[str]:
    """Short texts for bandwidths: Mbit/s where all are whole, otherwise kbit/s
    or bit/s.
    """
    for factor, unit in ((10**6, ""), (10**3, "k")):
        if all(rate % factor == 0 for rate in rates_bps):
            return [f"{rate // factor}{unit}" for rate in rates_bps]
    return [f"{rate}b" for rate in rates_bps]


def _words(written: Sequence[str], beside: FilePath) -> tuple[str, ...]:
    """A command's words; files are named from the experiment file's folder."""
    words = []
    for word in written:
        if word.startswith("./"):
            # Absolute: an agent has another working folder.
            words.append(str((beside / word).resolve()))
        else:
            words.append(word)
    return tuple(words)


class EntryDemands:
    """The demands of a file's jobs; ``beside`` is the file's folder."""

    def __init__(self, beside: FilePath) -> None:
        self.plugins = PluginDemands()
        self._profiles = Profiles()
        self._beside = beside

    def check(self, location: Location, entry: JobEntry) -> None:
        """Reports what is wrong with an entry's plug-in and profile."""
        self.plugins.check(location, entry)
        self._profiles.check(location, entry)

    def of(self, entry: JobEntry) -> Demand:
        """The demand of a sound entry."""
        plugin = self.plugins.of(entry)
        if plugin is not None:
            return plugin
        profile = self._profiles.of(entry)
        if entry.kind == "program":
            return self._program(entry, profile)
        command = None
        if entry.command is not None:
            command = _words(entry.command, self._beside)
        return demand_of(
            _kind(entry),
            pattern=entry.pattern,
            cpu=entry.cpu,
            steps=tuple(
                (step.until, step.at) for step in entry.demand or ()
            ),
            profile=profile,
            command=command,
            at_once=entry.at_once,
        )

    def _program(self, entry: JobEntry, profile: Profile | None) -> Program:
        return Program(
            cpu_share=entry.cpu or 0.0,
            profile=profile,
            words=_words(entry.command or (), self._beside),
            launch=entry.launch or "each",
            mpi=entry.mpi or "openmpi",
            ranks_per_vm=entry.ranks_per_vm or 1,
            files=_words(entry.files or (), self._beside),
            prepare=_words(entry.prepare or (), self._beside),
            expected=tuple(entry.expect or ()),
        )


def requests(
    entry: JobEntry, demand: Demand, last: Mapping[str, str]
) -> list[JobRequest]:
    """The jobs of a sound entry. Each job of a sweep follows the one before.

    ``last`` is the id of the last job of each entry, by the entry's id.
    """
    granted = [entry.granted]
    if entry.sweep is not None:
        granted = list(entry.sweep.granted)
    after = entry.after
    if after is not None:
        after = last.get(after, after)
    jobs = []
    for job_id, rate_bps in zip(_ids(entry), granted, strict=False):
        job = JobRequest(
            id=job_id,
            submit_s=entry.at or 0.0,
            n_vms=entry.vms,
            bandwidth_bps=entry.bandwidth or 0,
            duration_s=entry.duration,
            deadline_s=entry.deadline,
            demand=demand,
            granted_bps=rate_bps,
            application=_application(entry),
            after=after,
            value=entry.reward or 0.0,
        )
        jobs.append(job)
        # The next one of the sweep waits for this one.
        after = job_id
    return jobs


def launcher_notes(jobs: Iterable[JobRequest]) -> tuple[str, ...]:
    """Sentences on launchers that a live run needs and this machine lacks."""
    notes = []
    for command in launcher_commands.missing(job.demand for job in jobs):
        install = launcher_commands.install_command([command])
        notes.append(f"for a live run {command.missing}: {install}")
    return tuple(notes)


# ------------------------------------------------------------------ checks


def check_entry(
    location: Location, entry: Section, context: LoadContext
) -> None:
    """Checks one entry by itself and against the data centre."""
    _check_kind(location, entry)
    _check_command(location, entry)
    _check_program(location, entry)
    _check_demand(location, entry)
    _check_order(location, entry)
    _check_rates(location, entry, context)
    _check_deadline(location, entry)
    _check_vms(location, entry, context)


def _report_keys(
    location: Location, entry: Section, keys: Iterable[str], message: str
) -> None:
    """Reports each of these keys that the entry has."""
    for key in keys:
        if key in entry.model_fields_set:
            location.report(message, key, at_key=True)


def _check_deadline(location: Location, entry: Section) -> None:
    duration_s = entry["duration"]
    deadline_s = entry["deadline"]
    if duration_s is None or deadline_s is None:
        return
    if deadline_s < duration_s:
        deadline = format_duration(deadline_s)
        shorter = f"{deadline} is shorter than the duration"
        location.report(
            f"{shorter}, {format_duration(duration_s)}", "deadline"
        )


def _check_vms(
    location: Location, entry: Section, context: LoadContext
) -> None:
    """Checks that the VMs would fit an empty data centre."""
    vms = entry["vms"]
    datacentre = context.datacentre
    if vms is None or datacentre is None or not context.slots_known:
        return
    if vms > datacentre.total_slots:
        asked = number_of(vms, "VM")
        room = number_of(datacentre.total_slots, "slot")
        location.report(f"{asked}, but the data centre has {room}", "vms")


def _check_command(location: Location, entry: Section) -> None:
    """Checks that a command's files exist, and that it has neither pattern nor
    demand curve: it decides itself what it sends.
    """
    command: list[str] = entry["command"] or []
    _check_words(location / "command", command)
    if command:
        _report_keys(
            location,
            entry,
            ("pattern", "demand"),
            "means nothing to a job that runs a command",
        )


def _check_words(location: Location, words: Sequence[str]) -> None:
    folder = location.document.folder
    for index, word in enumerate(words):
        if "\0" in word:
            location.report(
                "holds a NUL character, which ends a word", index
            )
        elif word.startswith("./") and not is_beside(location, word):
            location.report(f"there is no file {word} in {folder}", index)


def _check_program(location: Location, entry: Section) -> None:
    """Checks that keys of programs belong to kind program, and its files."""
    if not entry.is_readable("kind"):
        return
    if entry["kind"] != "program":
        _report_keys(
            location,
            entry,
            ProgramKeys.model_fields,
            f"belongs to jobs of kind program, this one's is {_kind(entry)}",
        )
        return
    if entry["launch"] != "mpi":
        _report_keys(location, entry, ("mpi",), "belongs to launch: mpi")
    _check_words(location / "prepare", entry["prepare"] or ())
    _check_files(location / "files", entry["files"] or ())


def _check_files(location: Location, files: Sequence[str]) -> None:
    """Checks files that are copied into one folder, by their names alone."""
    _check_words(location, files)
    names: set[str] = set()
    for index, word in enumerate(files):
        name = word.rpartition("/")[2]
        if not word.startswith("./"):
            location.report(
                f"begin with ./, as ./{name}: files beside this one", index
            )
        elif name in names:
            location.report(f"{name} stands there twice", index)
        names.add(name)


def _check_kind(location: Location, entry: Section) -> None:
    """Checks keys that a kind of job needs or cannot have."""
    if not entry.is_readable("kind"):
        return
    kind = _kind(entry)
    # A package's kind is checked with its parameters.
    if kind not in KINDS:
        return
    _report_keys(
        location,
        entry,
        ("parameters",),
        f"belongs to kinds of installed packages, this one's is {kind}",
    )
    _check_keys(location, entry, kind)
    if "demand" not in KINDS[kind].required:
        _report_keys(
            location,
            entry,
            ("demand",),
            f"belongs to jobs of kind demand, this one's is {kind}",
        )


def _check_keys(location: Location, entry: Section, kind: JobKind) -> None:
    """Checks the keys that this kind refuses or requires."""
    named = entry.model_fields_set
    a_job = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} job"
    _report_keys(
        location, entry, KINDS[kind].refused, f"means nothing to {a_job}"
    )
    if entry["cpu"] == 0 and not KINDS[kind].network:
        location.report(f"must be above 0 for {a_job}", "cpu")
    for key in KINDS[kind].required:
        # A misspelt key has been reported already.
        if key not in named and not _is_misspelt(key, location, entry):
            location.report(f"is required for {a_job}", key)


def _is_misspelt(key: str, location: Location, entry: Section) -> bool:
    """True where a key that the entry does not know is close to this one."""
    known = type(entry).model_fields
    for name in location.value:
        if name not in known and near(name, (key,)):
            return True
    return False


def _check_demand(location: Location, entry: Section) -> None:
    """Checks that a demand curve's steps rise to exactly 100 %, and that one of
    them asks for bandwidth.
    """
    steps: list[DemandStep] = entry["demand"] or []
    reached = 0.0
    for index, step in enumerate(steps):
        if step.until <= reached:
            message = f"{format_share(step.until)} is not above {format_share(reached)} before it"
            location.report(message, "demand", index, "until")
        # The highest so far, so that a step that is too low is reported once.
        reached = max(reached, step.until)
    if steps and reached != 1.0:
        message = (
            f"the last step must reach 100 %, not {format_share(reached)}"
        )
        location.report(message, "demand", len(steps) - 1, "until")
    if steps and not any(step.at for step in steps):
        location.report(
            "no step asks for any bandwidth", "demand", at_key=True
        )


def _check_order(location: Location, entry: Section) -> None:
    """Checks ``at_once``: only a VM with several receivers can serve them at
    once.
    """
    if not isinstance(entry, JobEntry) or not entry.at_once:
        return
    several = _kind(entry) in ("transfer", "demand")
    if not several or entry["pattern"] != "all-to-all":
        location.report(
            "belongs to transfers of pattern all-to-all, where a VM sends to several",
            "at_once",
            at_key=True,
        )


def _check_rates(
    location: Location, entry: Section, context: LoadContext
) -> None:
    """Checks bandwidths against each other and against the servers' links."""
    asked: int | None = entry["bandwidth"]
    rates: list[tuple[Location, int]] = []
    # The application of a bandwidth sweep has no granted bandwidth.
    if isinstance(entry, JobEntry):
        rates = _granted(location, entry)
    for where, rate in rates:
        if asked is not None and rate > asked:
            more = f"{format_bandwidth(rate)} is more than the job asks for"
            where.report(f"{more}, {format_bandwidth(asked)}")
    datacentre = context.datacentre
    # A flat cluster has no links that could limit anything.
    if (
        datacentre is None
        or not context.links_known
        or datacentre.n_links == 0
    ):
        return
    nic_bps = int(datacentre.nic_bps.max())
    for where, rate in [(location / "bandwidth", asked or 0), *rates]:
        if rate > nic_bps:
            above = f"{format_bandwidth(rate)} is above every server's link"
            where.report(f"{above} ({format_bandwidth(nic_bps)} at most)")


def _granted(
    location: Location, entry: JobEntry
) -> list[tuple[Location, int]]:
    """The bandwidths that an entry grants, with their places."""
    rates: list[tuple[Location, int]] = []
    if entry.granted is not None:
        rates.append((location / "granted", entry.granted))
    if entry.sweep is None:
        return rates
    for index, rate in enumerate(entry.sweep.granted):
        rates.append((location / "sweep" / "granted" / index, rate))
    if "granted" in entry.model_fields_set:
        location.report("the sweep gives it: remove one of them", "granted")
    return rates


def _check_ids(location: Location, entries: Sequence[JobEntry]) -> None:
    """Checks that no two jobs have one id, those of a sweep's jobs included."""
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry["id"] is None:
            continue
        granted = [] if entry.sweep is None else entry.sweep.granted
        if len(set(granted)) < len(granted):
            location.report(
                "names a bandwidth twice", index, "sweep", "granted"
            )
        # Also the entry's own id, which "after" may name.
        for name in dict.fromkeys([entry.id, *_ids(entry)]):
            if name in first:
                line = (location / first[name]).place.line
                message = (
                    f"{name!r} is the id of the job in line {line} too"
                )
                location.report(message, index, "id")
                break
            first[name] = index


def _check_followers(
    location: Location, entries: Sequence[JobEntry]
) -> None:
    """Checks that ``after`` names another job, and that no chain of jobs is a
    cycle.
    """
    follows = _followed(location, entries)
    index_of = {entry["id"]: index for index, entry in enumerate(entries)}
    for circle in _circles(follows):
        # From the first job by name, wherever the search began.
        first = min(circle)
        at = circle.index(first)
        way = [*circle[at:], *circle[:at], first]
        message = f"these jobs wait for each other: {' after '.join(way)}"
        location.report(message, index_of[first], "after")


def _followed(
    location: Location, entries: Sequence[JobEntry]
) -> dict[str, str]:
    """For each entry's id the id of the entry that it waits for.

    An entry that waits for a job of a sweep waits for the sweep.
    """
    owner = {}
    for entry in entries:
        if entry["id"] is not None:
            for name in (entry.id, *_ids(entry)):
                owner[name] = entry.id
    follows: dict[str, str] = {}
    for index, entry in enumerate(entries):
        after = entry.after
        if after is not None and after not in owner:
            hint = did_you_mean(after, list(owner))
            location.report(
                f"there is no job {after!r}{hint}", index, "after"
            )
        elif after is not None and entry["id"] is not None:
            follows[entry.id] = owner[after]
    return follows


def _circles(follows: Mapping[str, str]) -> Iterator[list[str]]:
    """Cycles of jobs, each of which follows the next one. O(jobs)."""
    seen: set[str] = set()
    for start in follows:
        way: dict[str, None] = {}
        job: str | None = start
        # A way that meets an earlier one ends there: each job is visited once.
        while job is not None and job not in seen:
            seen.add(job)
            way[job] = None
            job = follows.get(job)
        if job in way:
            names = list(way)
            yield names[names.index(job) :]


# ------------------------------------------------------------------ kinds of installed packages


_FOR_ITS_PACKAGE = (
    *("pattern", "demand", "cpu", "command", "profile", "speedup"),
    *ProgramKeys.model_fields,
)


class PluginDemands:
    """The demands of jobs whose kinds are of installed packages; ``uses`` are
    these kinds.
    """

    def __init__(self) -> None:
        self._made: dict[str, Demand] = {}
        self._uses: dict[str, PluginUse] = {}

    @property
    def uses(self) -> tuple[PluginUse, ...]:
        return tuple(self._uses.values())

    def of(self, entry: JobEntry) -> Demand | None:
        """A sound entry's demand; None where its kind is of no package."""
        return self._made.get(entry.id)

    def check(self, location: Location, entry: JobEntry) -> None:
        """Makes an entry's demand, or reports its problems."""
        kind = entry["kind"]
        if kind is None or kind in KINDS:
            return
        plugin = plugin_function(location / "kind", "demands")
        if plugin is None:
            return
        _report_keys(
            location,
            entry,
            _FOR_ITS_PACKAGE,
            f"is for {kind} to say: leave it out",
        )
        demand = _demand_by(plugin, location, entry)
        if demand is None or entry["id"] is None:
            return
        if not demand.network:
            _report_keys(
                location,
                entry,
                ("granted", "sweep"),
                f"means nothing to a {kind} job",
            )
        elif "bandwidth" not in entry.model_fields_set:
            location.report(f"is required for a {kind} job", "bandwidth")
        self._made[entry.id] = demand
        self._uses[kind] = plugin.use


def _demand_by(
    plugin: PluginFunction, location: Location, entry: JobEntry
) -> Demand | None:
    """The demand that a function makes of an entry's parameters; None, and
    reported, where agents cannot play it.
    """
    parameters = _parameters(plugin, location, entry)
    if parameters is None:
        return None
    playable = (*KINDS.values(), Command)
    try:
        demand = plugin.made(Demand, parameters)
        # Agents would play a subclass as its base.
        if type(demand) not in playable:
            names = ", ".join(kind.__name__ for kind in playable)
            raise plugin.error(
                f"makes {shown_value(demand)}: agents can play {names}"
            )
    except PluginError as error:
        location.report(error.reason, "kind")
        return None
    return demand


def _parameters(
    plugin: PluginFunction, location: Location, entry: JobEntry
) -> dict[str, Any] | None:
    """The parameters of a package's kind; None, and reported, where some are
    wrong or missing.
    """
    if "parameters" in entry.model_fields_set:
        return plugin.read(location / "parameters")
    required = []
    for name, field in plugin.section.model_fields.items():
        if field.is_required():
            required.append(name)
    if required:
        location.report(
            f"is required for a {plugin.use.name} job: {', '.join(required)}",
            "parameters",
        )
        return None
    return {}


# ------------------------------------------------------------------ profiles


class ProfileOption(SpecModel):
    """One option."""

    bandwidth: PositiveBandwidth
    """per VM, as 200 Mbit/s"""
    time: PositiveDuration
    """the job's running time at it, as 30 s"""


class ProfileFile(SpecModel):
    """A profile file."""

    application: Name | None = None
    """whose profile it is, a label"""
    options: Annotated[
        list[ProfileOption], Field(min_length=1, max_length=1000)
    ]
    """bandwidths rising, times falling; the last is the no-elongation
    threshold
    """


def read_profile(path: FilePath) -> tuple[Profile | None, Document]:
    """The profile in a file and the file's document; None with the problems in
    the document where it is wrong.

    Raises BadInput where the file cannot be read at all.
    """
    document = read_document(read_text(path), str(path))
    location = Location(document)
    section = read_section(ProfileFile, location)
    if section is None:
        return None, document
    options = tuple(
        (option.bandwidth, option.time) for option in section.options
    )
    for at, message in objections(options):
        location.report(message, "options", at)
    if document.problems:
        return None, document
    return Profile(options), document


def profile_text(profile: Profile, application: str | None = None) -> str:
    """A profile as the text of a file that :func:`read_profile` reads."""
    lines = ["options:"]
    if application is not None:
        lines.insert(0, f"application: {as_yaml(application)}")
    for bps, took_s in profile.options:
        bandwidth = format_bandwidth(bps)
        time = format_duration(took_s)
        lines.append(f"  - {{bandwidth: {bandwidth}, time: {time}}}")
    return "\n".join(lines) + "\n"


class Profiles:
    """The profiles of a file's jobs; every profile file is read, and its
    problems are reported, once.
    """

    def __init__(self) -> None:
        self._read: dict[str, Profile | None] = {}

    def check(self, location: Location, entry: JobEntry) -> None:
        """Reports what is wrong with an entry's ``profile`` and ``speedup``."""
        name = entry.profile
        speedup = entry.speedup
        if name is not None and speedup is not None:
            location.report(
                "the profile says it: remove one of them", "speedup"
            )
        has_curve = entry["demand"] is not None
        if entry["kind"] in ("demand", "compute") or has_curve:
            for key in ("profile", "speedup"):
                if entry[key] is not None:
                    location.report(
                        "belongs to jobs of kind transfer", key, at_key=True
                    )
        if speedup is not None and not 0 <= speedup < STEEPEST:
            message = f"must be at least 0 and below {STEEPEST}, where a time would be 0"
            location.report(message, "speedup")
        if name is not None and name not in self._read:
            self._read[name] = self._load(location / "profile", name)

    def of(self, entry: JobEntry) -> Profile | None:
        """A sound entry's profile, from its file or the published model; None
        without one.
        """
        if entry.profile is not None:
            return self._read[entry.profile]
        if entry.speedup is None:
            return None
        return linear_profile(
            entry.bandwidth or 0, entry.duration, entry.speedup
        )

    def _load(self, location: Location, name: str) -> Profile | None:
        path = file_at(location, name)
        if path is None:
            return None
        try:
            profile, inside = read_profile(path)
        except BadInput as error:
            location.report(error.message)
            return None
        location.document.problems.extend(inside.problems)
        return profile
