"""An experiment file made into one of bandwidth scaling: each of its jobs is
profiled at its own bandwidth, then run at smaller ones.

DCloud estimates p' = p·b/b' (Section III.B). Here p is measured: every
repetition first runs a job at b, then again at each b', one job at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.request import JobRequest
from testbed.errors import BadInput
from testbed.spec.document import Document, Location, Place, read_document
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import key_path, parse_experiment
from testbed.spec.sweep_section import as_yaml
from testbed.sweeps.cells import with_value
from testbed.sweeps.measured_scaling import profile_id
from testbed.units import (
    format_bandwidth,
    human_bandwidth,
    parse_bandwidth,
)

SHARES = (1.0, 0.8, 0.6, 0.4, 0.2)
"""The published bandwidths, 750 … 150 Mbit/s of 750 (DCloud, Fig. 10)."""
SET_UP_S = 12.0
"""Wall time of a repetition beside its jobs, about."""
ITS_TIME = ("at", "after", "deadline", "granted", "reward", "sweep")
"""Keys of a job that say when it runs, and at what bandwidth."""
REPLACED = ("policies", "workload", "expect", "sweep")
"""Sections of a file that bandwidth scaling replaces."""

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class WrittenJob:
    """A job as the file has it, without its time, and where it is written.

    ``granted_bps``: its smaller bandwidths b' where the file names some.
    """

    place: Place
    entry: Entry
    granted_bps: tuple[int, ...]


@dataclass(frozen=True)
class ScaledJob:
    """A job and the bandwidths it is run at, the greatest first."""

    entry: Entry
    request: JobRequest
    granted_bps: tuple[int, ...]

    @property
    def stated_s(self) -> float:
        """The sum of its running times by the duration that the file states."""
        request = self.request
        times_s = request.duration_s
        for granted_bps in self.granted_bps:
            times_s += request.demand.estimate_s(request, granted_bps)
        return times_s


@dataclass(frozen=True)
class ScalingFile:
    """An experiment file of bandwidth scaling.

    ``path``: that of the file whose jobs are scaled. ``text``: the file that is
    run. ``repetition_s``: the expected time of one repetition, in wall seconds.
    """

    path: Path
    text: str
    applications: tuple[str, ...]
    repetition_s: float


def scaling_file(
    path: Path,
    text: str,
    settings: Mapping[str, str],
    bandwidths_bps: Sequence[int] = (),
) -> ScalingFile:
    """The bandwidth scaling of an experiment file's jobs, as a file.

    ``bandwidths_bps`` are b'; by default those of a job's own ``sweep`` or of
    a ``kind: ladder``, else the published shares of its bandwidth. Raises
    SpecErrors, or BadInput where a job cannot be scaled.
    """
    experiment = parse_experiment(text, path, settings)
    document = read_document(text, str(path))
    for key, value in settings.items():
        setting = read_document(value, "").data
        document.data = with_value(document.data, key_path(key), setting)
    written = _written_jobs(experiment, document)
    # Each job alone: only a request says whether it sends, and how long the
    # file thinks that it takes.
    entries = [job.entry for job in written]
    alone = parse_experiment(
        _text(experiment.name, document.data, entries), path
    )
    jobs = [
        _scaled(job, request, bandwidths_bps)
        for job, request in zip(written, alone.jobs, strict=True)
    ]
    wall_s = sum(job.stated_s for job in jobs) / experiment.scale.time
    name = f"{experiment.name}-scaling"
    return ScalingFile(
        path=path,
        text=_text(name, document.data, _in_turn(jobs)),
        applications=tuple(job.request.id for job in jobs),
        repetition_s=SET_UP_S + wall_s,
    )


def _written_jobs(
    experiment: Experiment, document: Document
) -> list[WrittenJob]:
    workload = Location(document) / "workload"
    if experiment.workload == "ladder":
        return [_of_application(workload)]
    if experiment.workload != "jobs":
        kind = f"{workload.place}: workload.kind is {experiment.workload}"
        raise BadInput(
            f"{kind}: scaling needs kind: jobs or kind: ladder",
            "write the program as workload: {kind: jobs, jobs: [...]}; see"
            " examples/scaling.yaml",
        )
    jobs = []
    for index, entry in enumerate(workload.value["jobs"]):
        sweep = entry.get("sweep") or {}
        granted_bps = tuple(map(parse_bandwidth, sweep.get("granted", ())))
        place = (workload / "jobs" / index).place
        jobs.append(WrittenJob(place, _without_time(entry), granted_bps))
    return jobs


def _of_application(workload: Location) -> WrittenJob:
    """A ``kind: ladder`` application, at the bandwidths up to its own."""
    entry = workload.value["application"]
    # Above its own bandwidth a job is not scaled down: those points tell of the
    # no-elongation threshold, which is another question.
    asked_bps = parse_bandwidth(entry["bandwidth"])
    points = map(parse_bandwidth, workload.value.get("bandwidths") or ())
    granted_bps = tuple(bps for bps in points if bps <= asked_bps)
    return WrittenJob((workload / "application").place, entry, granted_bps)


def _without_time(entry: Entry) -> Entry:
    kept = dict(entry)
    for key in ITS_TIME:
        kept.pop(key, None)
    return kept


def _scaled(
    job: WrittenJob, request: JobRequest, bandwidths_bps: Sequence[int]
) -> ScaledJob:
    """A job with its bandwidths. Raises BadInput, naming its line."""
    where = f"{job.place}: {request.id}"
    if not request.demand.network or request.n_vms < 2:
        raise BadInput(
            f"{where} sends nothing, so no bandwidth can be taken from it",
            "leave it out of the file whose jobs are scaled",
        )
    asked_bps = request.bandwidth_bps
    granted_bps = tuple(bandwidths_bps) or job.granted_bps
    if not granted_bps:
        granted_bps = tuple(round(share * asked_bps) for share in SHARES)
    most_bps = max(granted_bps)
    if most_bps > asked_bps:
        raise BadInput(
            f"{where} asks for {human_bandwidth(asked_bps)}, less than {human_bandwidth(most_bps)}",
            "bandwidth scaling gives a job what it asks for, or less",
        )
    # A bandwidth that is named twice is run once.
    falling = tuple(sorted(set(granted_bps), reverse=True))
    return ScaledJob(job.entry, request, falling)


def _in_turn(jobs: Sequence[ScaledJob]) -> Sequence[Entry]:
    """Every job's profile, then its bandwidths, each after the one before."""
    # One at a time: beside another program neither the profile nor a time at
    # a smaller bandwidth would be the job's own.
    entries: list[dict[str, Any]] = []
    for job in jobs:
        name = job.request.id
        profile = {
            **job.entry,
            "id": profile_id(name),
            "application": name,
        }
        granted = list(map(format_bandwidth, job.granted_bps))
        scaled = {
            **job.entry,
            "application": name,
            "after": profile["id"],
            "sweep": {"granted": granted},
        }
        if entries:
            profile["after"] = entries[-1]["id"]
        entries += [profile, scaled]
    return entries


def _text(
    name: str, data: Mapping[str, Any], entries: Sequence[Entry]
) -> str:
    """The file with these jobs alone, under the policy that decides nothing."""
    kept: dict[str, Any] = {"name": name}
    for section, content in data.items():
        if section not in (*REPLACED, "name"):
            kept[section] = content
    kept["policies"] = ["scripted"]
    kept["workload"] = {"kind": "jobs", "jobs": list(entries)}
    # What the file expects of its jobs does not hold for these; the fidelity
    # that it accepts does.
    fidelity = (data.get("expect") or {}).get("fidelity")
    if fidelity is not None:
        kept["expect"] = {"fidelity": fidelity}
    return "".join(
        f"{section}: {as_yaml(content)}\n"
        for section, content in kept.items()
    )
