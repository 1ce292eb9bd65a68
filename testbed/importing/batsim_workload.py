"""Batsim's workloads: jobs in JSON, each with a profile of what it does.

A parallel task computes and sends at the same time. Its running time is the
longer of both, for the VM that computes most and the VM that sends or receives
most. A sequence takes as long as its parts together. A job's bandwidth is just
enough to send its bytes in its running time.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import BadInput
from testbed.importing.imported import (
    Job,
    Names,
    Network,
    Notes,
    RegularTree,
    fits_in_a_file,
    refusal,
    refusal_without_jobs,
)
from testbed.units import number_of

DEFAULT_FLOPS = 1e9
MOST_NODES = 100_000
_DEEPEST = 50
_NEWER = {
    "msg_par": "parallel",
    "msg_par_hg": "parallel_homogeneous",
    "msg_par_hg_tot": "parallel_homogeneous_total",
    "sequence": "composed",
}
"""Present names of profile types, by their names before Batsim 2."""


@dataclass(frozen=True)
class ProfileWork:
    """The time that a job takes, and the most bits that one of its VMs sends or
    receives in it.
    """

    duration_s: float = 0.0
    bits: float = 0.0

    def and_then(self, other: ProfileWork) -> ProfileWork:
        return ProfileWork(
            self.duration_s + other.duration_s, self.bits + other.bits
        )

    def times(self, count: float) -> ProfileWork:
        return ProfileWork(self.duration_s * count, self.bits * count)


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
    or a star of ``nb_res`` servers. ``first``: at most so many entries. Raises
    BadInput.
    """
    data = read_json(content, path)
    if not is_batsim_workload(data):
        raise refusal(
            path, "has no jobs and profiles, as Batsim's workloads"
        )
    topology = network or _star(data, path)
    reader = _Jobs(
        profiles=_Profiles(
            data["profiles"],
            speed_flops=_speed(network, notes),
            link_bps=topology.server_link_bps,
        ),
        slots=topology.slots,
        link_bps=topology.server_link_bps,
    )
    # In the file's order, not by time.
    for entry in data["jobs"][:first]:
        reader.take(entry)
    if not reader.jobs:
        raise reader.refusal(path)
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
    servers = _whole(data.get("nb_res", _largest_res(data["jobs"])))
    if servers is None or servers > MOST_NODES:
        why = (
            f"nb_res is no number from 1 to {MOST_NODES:,}"
            " (without it: the largest res)"
        )
        raise refusal(path, why)
    return RegularTree(fanout=(servers,), slots_per_server=1)


def _largest_res(jobs: list[Any]) -> int:
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
    """Jobs that are taken, and the number of jobs by remark."""

    profiles: _Profiles
    slots: int
    link_bps: int
    jobs: list[Job] = field(default_factory=list)
    _remarks: Counter[str] = field(default_factory=Counter)
    _names: Names = field(default_factory=Names.of_jobs)
    _labels: Names = field(default_factory=Names.of_jobs)

    def refusal(self, path: Path) -> BadInput:
        """The error for a workload of which no job is taken."""
        return refusal_without_jobs(
            path, "has no job that can be run here", self._remarks
        )

    def note(self, notes: Notes, n_entries: int) -> None:
        """Notes how many jobs were taken, and why others were not."""
        notes.taken.append(
            f"{len(self.jobs):,} of {number_of(n_entries, 'job')}"
        )
        notes.not_taken.append("walltimes: no job is killed")
        notes.leave_out_counted(self._remarks)

    def take(self, entry: Any) -> None:
        """Adds an entry of ``jobs``, or counts the reason against it."""
        if not isinstance(entry, dict):
            entry = {}
        vms = _whole(entry.get("res"))
        at_s = _number(entry.get("subtime"))
        if vms is None or at_s is None:
            noun = "jobs without a whole res above 0 or a subtime from 0 on"
            self._remarks[noun] += 1
        elif vms > self.slots:
            noun = f"jobs that ask for more than {self.slots:,} hosts"
            self._remarks[noun] += 1
        else:
            self._add(entry, vms, at_s)

    def _add(self, entry: dict[str, Any], vms: int, at_s: float) -> None:
        profile = str(entry.get("profile"))
        work = self.profiles.work(profile, vms)
        remark = ""
        if work is None:
            # Only Batsim itself can say how long it takes.
            kind = self.profiles.type_of(profile)
            remark = f"jobs that take their walltime, of profiles {kind}"
            walltime_s = _number(entry.get("walltime"))
            work = ProfileWork(duration_s=walltime_s or 0.0)
        # 0 s is a moment, but no duration.
        fits = at_s == 0 or fits_in_a_file(at_s)
        if not fits or not fits_in_a_file(work.duration_s):
            noun = "jobs without a time from 1 us to 100 years"
            self._remarks[noun] += 1
            return
        if remark:
            self._remarks[remark] += 1
            remark = "its walltime"
        self.jobs.append(
            Job(
                name=self._names.of(str(entry.get("id", "job"))),
                at_s=at_s,
                vms=vms,
                duration_s=work.duration_s,
                # Rounded up: with a bit/s less its bytes would not arrive
                # in time. Where sending decides, the quotient may round to
                # more than the link.
                bandwidth_bps=min(
                    math.ceil(work.bits / work.duration_s), self.link_bps
                ),
                application=self._labels.label(profile),
                remark=remark,
            )
        )


class _Profiles:
    """The work of profiles, computed once for each number of VMs.

    A profile of profiles may name others many times, or itself.
    """

    def __init__(
        self, profiles: dict[str, Any], *, speed_flops: float, link_bps: int
    ) -> None:
        self._profiles = profiles
        self._speed_flops = speed_flops
        self._link_bps = link_bps
        self._known: dict[tuple[str, int], ProfileWork | None] = {}

    def type_of(self, name: str) -> str:
        """A profile's type by its present name."""
        profile = self._profiles.get(name)
        if not isinstance(profile, dict):
            return "that are not there"
        kind = str(profile.get("type"))[:40]
        # For messages: letters and _ alone.
        kept = "".join(filter(str.isidentifier, kind))
        return _NEWER.get(kept, kept)

    def work(
        self, name: str, vms: int, depth: int = 0
    ) -> ProfileWork | None:
        """The work of a job; None where the profile does not determine it."""
        if (name, vms) not in self._known and depth < _DEEPEST:
            # Until it is known: a profile may be a part of itself.
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
            return self._parallel(profile, vms)
        if kind == "parallel_homogeneous":
            return self._homogeneous(profile, vms, share=1.0)
        if kind == "parallel_homogeneous_total":
            # The total is the whole job's: each VM does its share.
            return self._homogeneous(profile, vms, share=1.0 / vms)
        if kind == "delay":
            return _delay(profile)
        return None

    def _task(self, flops: float, sent_bytes: float) -> ProfileWork:
        """The work of a task that computes and sends at the same time."""
        bits = 8 * sent_bytes
        return ProfileWork(
            duration_s=max(
                flops / self._speed_flops, bits / self._link_bps
            ),
            bits=bits,
        )

    def _homogeneous(
        self, profile: dict[str, Any], vms: int, share: float
    ) -> ProfileWork | None:
        """The work of VMs that compute ``cpu`` and send ``com`` to each other
        VM.
        """
        flops = _number(profile.get("cpu", 0))
        sent_bytes = _number(profile.get("com", 0))
        if flops is None or sent_bytes is None:
            return None
        return self._task(flops * share, sent_bytes * share * (vms - 1))

    def _parallel(
        self, profile: dict[str, Any], vms: int
    ) -> ProfileWork | None:
        """The computing of the VM that computes most, and the bytes of the one
        that sends or receives most.
        """
        flops = _vector(profile.get("cpu"), vms)
        matrix = _vector(profile.get("com"), vms * vms)
        if flops is None or matrix is None:
            return None
        return self._task(max(flops, default=0.0), _most_bytes(matrix, vms))

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
    return None if wait_s is None else ProfileWork(duration_s=wait_s)


def _most_bytes(matrix: Sequence[float], vms: int) -> float:
    """The most that a VM sends to or receives from others. ``matrix``: bytes
    from each row's VM to each column's.
    """
    sent = [0.0] * vms
    received = [0.0] * vms
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
    # For nothing Batsim writes an empty vector, 0, null or no key.
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
