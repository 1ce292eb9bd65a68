"""Batsim's workloads: jobs in JSON, each with a profile of what it does.

A parallel task computes and sends at the same time. Its running time is the
longer of both, for the VM that computes most and the VM that sends or receives
most. Its bandwidth is just enough to send the bytes in that time.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.importing.imported import (
    Job,
    Names,
    Network,
    Notes,
    RegularTree,
    fits_in_a_file,
    refusal,
)
from testbed.units import number_of

DEFAULT_FLOPS = 1e9
MOST_HOSTS = 100_000
_DEEPEST = 50
_NEWER = {
    "msg_par": "parallel",
    "msg_par_hg": "parallel_homogeneous",
    "msg_par_hg_tot": "parallel_homogeneous_total",
    "sequence": "composed",
}
"""Names of profile types before Batsim 2."""


@dataclass(frozen=True)
class ProfileWork:
    """The most that a VM of a job does: it waits, computes and sends."""

    wait_s: float = 0.0
    flops: float = 0.0
    sent_bytes: float = 0.0

    @property
    def bits(self) -> float:
        return 8 * self.sent_bytes

    def and_then(self, other: ProfileWork) -> ProfileWork:
        return ProfileWork(
            self.wait_s + other.wait_s,
            self.flops + other.flops,
            self.sent_bytes + other.sent_bytes,
        )

    def times(self, count: float) -> ProfileWork:
        return ProfileWork(
            self.wait_s * count, self.flops * count, self.sent_bytes * count
        )


def is_batsim_workload(data: Any) -> bool:
    """True if a JSON content has jobs and profiles."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("jobs"), list)
        and isinstance(data.get("profiles"), dict)
    )


def read_json(content: bytes, path: Path) -> Any:
    """The content of a JSON file. Raises BadInput."""
    try:
        # Some tools begin JSON with a byte order mark.
        return json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise refusal(path, f"no JSON: {error.msg}", error.lineno) from None
    except ValueError as error:
        first = str(error).partition("\n")[0]
        raise refusal(path, f"no JSON: {first}") from None
    except RecursionError:
        raise refusal(path, "is nested too deeply") from None


def read_batsim_workload(
    content: bytes,
    path: Path,
    network: Network | None,
    first: int | None,
    notes: Notes,
) -> tuple[Network | RegularTree, tuple[Job, ...]]:
    """The jobs in order of submission, and the topology for them: the network,
    or a star of ``nb_res`` servers. Raises BadInput.
    """
    data = read_json(content, path)
    if not is_batsim_workload(data):
        raise refusal(
            path, "has no jobs and profiles, as Batsim's workloads"
        )
    topology = network or _star(data, path)
    reader = _Jobs(
        profiles=_Profiles(data["profiles"]),
        slots=topology.slots,
        speed_flops=_speed(network, notes),
        link_bps=topology.server_link_bps,
    )
    # The first of the file, not the earliest.
    for entry in data["jobs"][:first]:
        reader.take(entry)
    if not reader.jobs:
        raise refusal(path, "has no job that can be run here")
    reader.note(notes, n_entries=len(data["jobs"]))
    return topology, tuple(sorted(reader.jobs, key=lambda job: job.at_s))


def _speed(network: Network | None, notes: Notes) -> float:
    if network is not None and network.speed_flops is not None:
        return network.speed_flops
    notes.choices.append(
        "durations are for hosts of 1 Gflop/s: the speed is the platform's,"
        " import both: `testbed import PLATFORM WORKLOAD`"
    )
    return DEFAULT_FLOPS


def _star(data: dict[str, Any], path: Path) -> RegularTree:
    """A switch over as many servers as the workload's machine has."""
    # Without `nb_res` the machine is as large as its largest job.
    servers = _whole(data.get("nb_res", _most_hosts(data["jobs"])))
    if servers is None or servers > MOST_HOSTS:
        why = f"nb_res is no number from 1 to {MOST_HOSTS:,}"
        raise refusal(path, why)
    return RegularTree(fanout=(servers,), slots_per_server=1)


def _most_hosts(jobs: list[Any]) -> int:
    asked = []
    for entry in jobs:
        if isinstance(entry, dict):
            asked.append(_whole(entry.get("res")) or 0)
    return max(asked, default=0)


def _whole(value: Any) -> int | None:
    number = _number(value)
    if number is None or number != int(number) or number < 1:
        return None
    return int(number)


def _number(value: Any) -> float | None:
    """A finite number of JSON, at least 0; None for anything else."""
    # In Python true is a number.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


@dataclass
class _Jobs:
    """Jobs that are taken, and the number of others by reason."""

    profiles: _Profiles
    slots: int
    speed_flops: float
    link_bps: int
    jobs: list[Job] = field(default_factory=list)
    _left_out: Counter[str] = field(default_factory=Counter)
    _names: Names = field(default_factory=Names.of_jobs)
    _labels: Names = field(default_factory=Names.of_jobs)

    def note(self, notes: Notes, n_entries: int) -> None:
        """Notes how many jobs were taken, and why others were not."""
        notes.taken.append(
            f"{len(self.jobs):,} of {number_of(n_entries, 'job')}"
        )
        notes.not_taken.append("walltimes: no job is killed")
        notes.leave_out_counted(self._left_out)

    def take(self, entry: Any) -> None:
        """Adds an entry of ``jobs``, or counts the reason against it."""
        if not isinstance(entry, dict):
            entry = {}
        vms = _whole(entry.get("res"))
        at_s = _number(entry.get("subtime"))
        if vms is None or at_s is None:
            self._left_out["jobs without res or subtime"] += 1
        elif vms > self.slots:
            noun = f"jobs that ask for more than {self.slots:,} hosts"
            self._left_out[noun] += 1
        else:
            self._add(entry, vms, at_s)

    def _add(self, entry: dict[str, Any], vms: int, at_s: float) -> None:
        profile = str(entry.get("profile"))
        work = self.profiles.work(profile, vms)
        remark = ""
        if work is None:
            # Only Batsim itself can say how long it takes.
            kind = self.profiles.type_of(profile)
            remark = "its walltime"
            noun = f"jobs that take their walltime, of profiles {kind}"
            self._left_out[noun] += 1
            work = ProfileWork(wait_s=_number(entry.get("walltime")) or 0.0)
        duration_s = self._duration(work)
        # 0 s is a moment, but no duration.
        starts = at_s == 0 or fits_in_a_file(at_s)
        if not starts or not fits_in_a_file(duration_s):
            noun = "jobs without a time from 1 us to 100 years"
            self._left_out[noun] += 1
            return
        self.jobs.append(
            Job(
                name=self._names.of(str(entry.get("id", "job"))),
                at_s=at_s,
                vms=vms,
                duration_s=duration_s,
                # Rounded up: with a bit/s less its bytes would not arrive
                # in time.
                bandwidth_bps=math.ceil(work.bits / duration_s),
                application=self._labels.label(profile),
                remark=remark,
            )
        )

    def _duration(self, work: ProfileWork) -> float:
        """The longer of computing and sending, which happen at the same time."""
        computing_s = work.wait_s + work.flops / self.speed_flops
        return max(computing_s, work.bits / self.link_bps)


class _Profiles:
    """The work of profiles, computed once for each number of VMs.

    A profile of profiles may name others many times, or itself.
    """

    def __init__(self, profiles: dict[str, Any]) -> None:
        self._profiles = profiles
        self._known: dict[tuple[str, int], ProfileWork | None] = {}

    def type_of(self, name: str) -> str:
        """A profile's type by its present name."""
        profile = self._profiles.get(name)
        if not isinstance(profile, dict):
            return "that are not there"
        kind = str(profile.get("type"))[:40]
        kept = "".join(filter(str.isidentifier, kind))
        return _NEWER.get(kept, kept)

    def work(
        self, name: str, vms: int, depth: int = 0
    ) -> ProfileWork | None:
        """The work of each VM; None where the profile does not determine it."""
        if (name, vms) not in self._known and depth < _DEEPEST:
            # For a profile that is a part of itself.
            self._known[name, vms] = None
            self._known[name, vms] = self._looked_up(name, vms, depth)
        return self._known.get((name, vms))

    def _looked_up(
        self, name: str, vms: int, depth: int
    ) -> ProfileWork | None:
        kind = self.type_of(name)
        profile = self._profiles.get(name, {})
        if kind == "composed":
            return self._composed(profile, vms, depth)
        if kind == "parallel":
            return _parallel(profile, vms)
        if kind == "parallel_homogeneous":
            return _homogeneous(profile, vms, share=1.0)
        if kind == "parallel_homogeneous_total":
            # The total is the whole job's: each VM does its share.
            return _homogeneous(profile, vms, share=1.0 / vms)
        if kind == "delay":
            return _delay(profile)
        return None

    def _composed(
        self, profile: dict[str, Any], vms: int, depth: int
    ) -> ProfileWork | None:
        """The work of profiles one after another, several times."""
        parts = profile.get("seq")
        repeat = _number(profile.get("repeat", profile.get("nb", 1)))
        if not isinstance(parts, list) or repeat is None:
            return None
        whole = ProfileWork()
        # Counted by name: a sequence may repeat a part thousands of times.
        for name, count in Counter(map(str, parts)).items():
            work = self.work(name, vms, depth + 1)
            if work is None:
                return None
            whole = whole.and_then(work.times(count))
        return whole.times(repeat)


def _delay(profile: dict[str, Any]) -> ProfileWork | None:
    wait_s = _number(profile.get("delay"))
    return None if wait_s is None else ProfileWork(wait_s=wait_s)


def _homogeneous(
    profile: dict[str, Any], vms: int, share: float
) -> ProfileWork | None:
    """The work of VMs that compute ``cpu`` and send ``com`` to each other VM."""
    flops = _number(profile.get("cpu", 0))
    sent_bytes = _number(profile.get("com", 0))
    if flops is None or sent_bytes is None:
        return None
    return ProfileWork(
        flops=flops * share, sent_bytes=sent_bytes * share * (vms - 1)
    )


def _parallel(profile: dict[str, Any], vms: int) -> ProfileWork | None:
    """The computing of the VM that computes most, and the bytes of the one that
    sends or receives most.
    """
    flops = _vector(profile.get("cpu"), vms)
    matrix = _vector(profile.get("com"), vms * vms)
    if flops is None or matrix is None:
        return None
    most_flops = max(flops, default=0.0)
    return ProfileWork(
        flops=most_flops, sent_bytes=_most_bytes(matrix, vms)
    )


def _most_bytes(matrix: Sequence[float], vms: int) -> float:
    """The most that a VM sends to or receives from others. ``matrix``: bytes
    from each row's VM to each column's.
    """
    sent = [0.0] * vms
    received = [0.0] * vms
    # Row by row: from each VM to all others.
    for index, amount in enumerate(matrix):
        row, column = divmod(index, vms)
        if row != column:
            sent[row] += amount
            received[column] += amount
    return max(*sent, *received)


def _vector(values: Any, length: int) -> Sequence[float] | None:
    """The numbers of a list of that length, or an empty one; None for other
    values.
    """
    # Batsim writes no vector, 0 or an empty one for nothing.
    if values in (None, 0, []):
        return ()
    if not isinstance(values, list) or len(values) != length:
        return None
    numbers = []
    for value in values:
        number = _number(value)
        if number is None:
            return None
        numbers.append(number)
    return numbers
