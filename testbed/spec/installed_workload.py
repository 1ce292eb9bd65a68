"""Workloads of installed packages: jobs that a function makes, checked."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict

from jobs.demand import KINDS, Command, Lease
from jobs.job_names import SAFE_NAME
from jobs.request import JobRequest
from jobs.workload.distributions import stream
from testbed.plugins import (
    PluginError,
    installed,
    raised_anywhere,
    shown_value,
)
from testbed.spec.document import Location
from testbed.spec.plugin_functions import PluginFunction, plugin_function
from testbed.spec.size_limits import LIMITS
from testbed.spec.topology_section import LoadContext
from testbed.spec.workload_section import (
    NO_JOBS,
    LoadedWorkload,
    WorkloadSection,
)
from testbed.units import number_of
from topologies.datacentre import DataCentre

DEMANDS = (*KINDS.values(), Command, Lease)
TIMES = (
    "submit_s",
    "duration_s",
    "deadline_s",
    "true_duration_s",
    "estimate_s",
)


class InstalledWorkload(WorkloadSection):
    """A workload of an installed package: its keys are the parameters of a
    function there.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return tuple(installed("workloads"))

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        """The function's jobs; none, and reported, where it raises or one of
        them is unsound.
        """
        plugin = plugin_function(location / "kind", "workloads")
        parameters = None if plugin is None else plugin.read(location)
        # What is missing has been reported already.
        if (
            plugin is None
            or parameters is None
            or context.datacentre is None
        ):
            return NO_JOBS
        try:
            jobs = _made(
                plugin, context.datacentre, context.seed, parameters
            )
        except PluginError as error:
            location.report(error.reason)
            return NO_JOBS
        applications: dict[str, None] = {}
        for job in jobs:
            if job.application is not None:
                applications[job.application] = None
        return LoadedWorkload(
            jobs,
            applications=tuple(applications),
            facts={
                **plugin.use.to_json(),
                "parameters": parameters,
                "jobs": len(jobs),
            },
            notes=(
                f"{number_of(len(jobs), 'job')} by {plugin.use.source}",
            ),
            plugins=(plugin.use,),
        )


def _made(
    plugin: PluginFunction,
    datacentre: DataCentre,
    seed: int,
    parameters: Mapping[str, Any],
) -> tuple[JobRequest, ...]:
    """The jobs that a function makes, from a random stream of its own; its prints
    go to standard error. Raises PluginError.
    """
    # Jobs are read inside the try, since a generator runs only then.
    try:
        with redirect_stdout(sys.stderr):
            jobs = plugin.function(
                datacentre,
                stream(seed, "plug-in", plugin.use.name),
                **parameters,
            )
            return tuple(_checked(jobs))
    except UnsoundJob as objection:
        raise plugin.error(f"makes {objection}") from objection
    except (Exception, SystemExit) as error:
        raise plugin.error(raised_anywhere(error)) from error


class UnsoundJob(ValueError):
    """A job of a function that cannot be played, with the objection to it."""


def _checked(made: Any) -> Iterator[JobRequest]:
    """The jobs with plain numbers. Raises UnsoundJob at the first that cannot be
    played.
    """
    if not isinstance(made, Iterable):
        raise UnsoundJob(f"{shown_value(made)}, not jobs one after another")
    seen: set[str] = set()
    last_s = 0.0
    for job in made:
        # A generator may never end.
        if len(seen) == LIMITS["jobs"]:
            raise UnsoundJob(
                f"more than {LIMITS['jobs']:,} jobs, the most that are supported"
            )
        if not isinstance(job, JobRequest):
            raise UnsoundJob(f"{shown_value(job)}, which is no JobRequest")
        # The first objection is enough to show the function's fault.
        for wrong in _objections(job, seen, last_s):
            raise UnsoundJob(f"job {job.id!r}: {wrong}")
        plain = _plain(job)
        seen.add(plain.id)
        last_s = plain.submit_s
        yield plain
    if not seen:
        raise UnsoundJob("no job")


def _objections(
    job: JobRequest, seen: Collection[str], last_s: float
) -> Iterator[str]:
    """Objections to a job that its class does not raise.

    ``seen``: ids of the jobs before it. ``last_s``: submission of the last one.
    """
    if not re.fullmatch(SAFE_NAME, str(job.id)):
        yield "an id consists of letters, digits, '.', '_' and '-', 64 at most"
    if job.demand.kind == "demand" and not job.bandwidth_bps:
        yield "a job with a demand curve needs a bandwidth"
    if str(job.id) in seen:
        yield "another one has this id"
    for name in (*TIMES, "value"):
        value = getattr(job, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            yield f"{name} is {value!r}: it must be finite and at least 0"
    if job.submit_s < last_s:
        yield f"its time is {job.submit_s:g} s, after {last_s:g} s of the one before: sort them"
    for name in ("n_vms", "bandwidth_bps"):
        value = getattr(job, name)
        if value != int(value):
            yield f"{name} is {value!r}: it must be a whole number"
    if job.after is not None and job.after not in seen:
        yield f"it waits for {job.after!r}, which is no job before it"
    # By exact type: a subclass would be played as its base, not as it says.
    if type(job.demand) not in DEMANDS:
        yield f"its demand is {shown_value(job.demand)}, which agents cannot play"


def _plain(job: JobRequest) -> JobRequest:
    """The job with Python's numbers in place of numpy's."""
    # Neither JSON nor the engine takes numpy's numbers.
    plain: dict[str, Any] = {"id": str(job.id), "value": float(job.value)}
    for name in TIMES:
        value = getattr(job, name)
        plain[name] = None if value is None else float(value)
    plain |= {
        name: int(getattr(job, name)) for name in ("n_vms", "bandwidth_bps")
    }
    return replace(job, **plain)
