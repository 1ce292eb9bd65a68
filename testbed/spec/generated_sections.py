"""Generated workloads: ``poisson`` and ``batch``, tenants' requests as in
DCloud's simulations, and ``leases`` as in MBFCBS's evaluation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from jobs.demand import Pattern
from jobs.workload.distributions import (
    Floats,
    NormalDistribution,
    Rule,
    stream,
)
from jobs.workload.lwf import LEASE_KINDS, LeaseRecord
from jobs.workload.tenants import (
    QUANTITIES,
    Tenants,
    day_and_night,
    distribution,
    interpretation,
)
from testbed.spec.document import Location
from testbed.spec.size_limits import LIMITS, within
from testbed.spec.topology_section import LoadContext
from testbed.spec.unit_types import (
    HOUR_S,
    Bandwidth,
    Duration,
    Hours,
    PerHour,
    PositiveBandwidth,
    PositiveDuration,
    Share,
    SignedShare,
    refused_value,
)
from testbed.spec.validation import SpecModel, value_in_words
from testbed.spec.workload_section import (
    NO_JOBS,
    LeaseWorkload,
    LoadedWorkload,
    WorkloadSection,
)
from testbed.units import format_share
from topologies.datacentre import IntArray

# G was fitted: of some fifty interpretations of the paper's distributions
# it comes nearest to the published figures (decision 25).
Interpretation = Literal["G", "literal", "literal-clamped"]
Sigma = Annotated[float, Field(ge=0, le=1e6)]

# ------------------------------------------------------------------ tenants' requests


class Distribution(SpecModel):
    """A distribution of a quantity, by its parameters."""

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, value: Any) -> Any:
        """Refuses a bare number, with the mapping to write where there is one."""
        if isinstance(value, dict):
            return value
        keys = ", ".join(cls.model_fields)
        hint = ""
        # Only a mapping that is valid is a hint.
        if not isinstance(value, list):
            try:
                cls.model_validate({"mean": value})
            except ValidationError:
                pass
            else:
                hint = f" (write {{mean: {value}}})"
        raise refused_value(
            f"must be a mapping with the keys {keys}, not {value_in_words(value)}{hint}"
        )


_SIGMA = "its standard deviation (default: the interpretation's)"


class CountDistribution(Distribution):
    """The number of VMs of a job: a normal distribution, drawn again below 1
    (or clamped to it).
    """

    mean: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """of the distribution, before draws are drawn again (default 120)"""
    sigma: Sigma | None = Field(None, description=_SIGMA)
    rule: Rule | None = None
    """what becomes of draws below 1"""


class RatioDistribution(CountDistribution):
    """The deadline extension ratio r = d/p: normal, drawn again below 1 (or
    clamped).
    """

    mean: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """of the distribution, at least 1: no deadline is before the end
    (default 10)
    """


class BandwidthDistribution(Distribution):
    """The bandwidth asked for per VM: a normal distribution, positive."""

    mean: PositiveBandwidth | None = None
    """of it (default 250 Mbit/s)"""
    sigma: Bandwidth | None = Field(None, description=_SIGMA)
    rule: Rule | None = None
    """what becomes of draws below 1 bit/s"""


class DurationDistribution(Distribution):
    """The profiled running time: a normal distribution, of a minute at least."""

    mean: PositiveDuration | None = None
    """of the distribution (default 1 h)"""
    sigma: Duration | None = Field(None, description=_SIGMA)
    rule: Rule | None = None
    """what becomes of draws below a minute"""


class ErrorSection(SpecModel):
    """By how much true durations differ from profiled ones, uniformly."""

    low: SignedShare
    """the least error, as -12 %"""
    high: SignedShare
    """the greatest error, as 30 %"""


class TenantWorkload(WorkloadSection):
    """Requests as in DCloud's simulations, in one of the interpretations of its
    distributions.
    """

    reading: Interpretation = "G"
    """how the paper's distributions are interpreted: G (fitted to its
    figures, default), literal, literal-clamped
    """
    vms: CountDistribution = CountDistribution()
    """VMs per job"""
    bandwidth: BandwidthDistribution = BandwidthDistribution()
    """bandwidth per VM"""
    duration: DurationDistribution = DurationDistribution()
    """profiled running time"""
    deadline_ratio: RatioDistribution = RatioDistribution()
    """deadline over running time"""
    profiling_error: ErrorSection | None = None
    """true over profiled running time, less 1 (default none)"""
    pattern: Pattern = "permutation"
    """communication pattern (default permutation, chosen at random for
    each job)
    """
    services: Share = 0.0
    """the share of user-facing services (default 0)"""

    def tenants(self, location: Location) -> Tenants | None:
        """The distributions of the interpretation with the file's changes; None
        for a section with problems, which are reported.
        """
        distributions: dict[str, Any] = {
            name: self._distribution(location / name) for name in QUANTITIES
        }
        low = 0.0
        high = 0.0
        if self.profiling_error is not None:
            low = self.profiling_error.low
            high = self.profiling_error.high
        # An error of -100 % would be a job of no time at all.
        if low > high:
            message = f"low, {format_share(low)}, is above high, {format_share(high)}"
            location.report(message, "profiling_error")
        elif low <= -1.0:
            location.report("low must be above -100 %", "profiling_error")
        if not location.is_sound():
            return None
        return replace(
            interpretation(),
            **distributions,
            profiling_error=(low, high),
            pattern=self.pattern,
            service_share=self.services,
        )

    def _distribution(
        self, location: Location
    ) -> NormalDistribution | None:
        """The interpretation's distribution with the parameters that the file
        changes.
        """
        name = str(location.path[-1])
        try:
            return distribution(self.reading, name, **dict(self[name]))
        except ValueError as objection:
            location.report(str(objection))
            return None

    def arrivals_s(self, location: Location, seed: int) -> Floats:
        """Arrival times of the jobs, rising; too many are reported."""
        raise NotImplementedError

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        tenants = self.with_defaults().tenants(location)
        if tenants is None:
            return NO_JOBS
        jobs = tenants.requests(
            self.arrivals_s(location, context.seed), context.seed
        )
        return LoadedWorkload(jobs)


class PoissonWorkload(TenantWorkload):
    """Jobs that arrive at random, more of them by day than by night."""

    kind: Literal["poisson"]
    per_hour: PerHour = 160.0
    """arrivals by day, as 40/h (default 160/h)"""
    night_factor: Annotated[float, Field(ge=0, le=1e3)] = 0.2
    """arrivals by night over those by day (default 0.2)"""
    hours: Hours = 24.0
    """for how long jobs arrive, as 6 h (default 24 h); day and night
    take turns every 12 h
    """

    def arrivals_s(self, location: Location, seed: int) -> Floats:
        # At least as many as arrive, whether day or night is busier.
        expected = self.per_hour * max(1.0, self.night_factor) * self.hours
        hint = "take fewer an hour, or fewer hours"
        if not within(location / "per_hour", expected, "jobs", hint):
            return np.zeros(0)
        return day_and_night(
            seed, self.per_hour, self.night_factor, self.hours * HOUR_S
        )


class BatchWorkload(TenantWorkload):
    """Jobs that all arrive at time 0."""

    kind: Literal["batch"]
    jobs: Annotated[int, Field(ge=1, le=LIMITS["jobs"])]
    """how many"""

    def arrivals_s(self, location: Location, seed: int) -> Floats:
        del location, seed
        return np.zeros(self.jobs)


# ------------------------------------------------------------------ leases

Size = Literal["small", "medium", "large", "x-large"]
SIZES: dict[Size, tuple[int, int]] = {
    "small": (1, 1920),
    "medium": (2, 3840),
    "large": (4, 7680),
    "x-large": (6, 11520),
}
"""Cores and memory in MiB of the VM types (Table 2); x-large is named in
Section 3, but not defined.
"""


class SyntheticLeases(LeaseWorkload):
    """Synthetic leases as in MBFCBS's evaluation."""

    kind: Literal["leases"]
    jobs: Annotated[int, Field(ge=1, le=LIMITS["leases"])] = 1000
    """how many (default 1,000)"""
    mix: Literal["main", "equal"] = "main"
    """main: 20 % advance reservations, the other two types alike
    (default); equal: all three alike
    """
    advance: Share | None = None
    """the share of advance reservations, in place of the mix's"""
    immediate: Share | None = None
    """the share of immediate leases, in place of the mix's"""
    sizes: (
        Annotated[list[Size], Field(min_length=1, max_length=100)] | None
    ) = None
    """the VM types, all as likely (default: each of the four once)"""
    mean_duration: PositiveDuration = 3600.0
    """of an exponential distribution (default 1 h)"""
    shortest: PositiveDuration = 60.0
    """no lease lasts less (default 1 min)"""
    mean_lead: Duration = 7200.0
    """how far ahead advance reservations are booked, on average
    (default 2 h)
    """
    load: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """cores times duration over slots times the span of arrivals
    (default 1)
    """

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of advance reservations and of immediate leases; the rest
        is best effort.
        """
        # The paper has both: equal shares (Table 1), and 20 % advance
        # reservations (Section 5.2).
        if self.mix == "equal":
            advance = 1.0 / 3.0
            immediate = 1.0 / 3.0
        else:
            advance = 0.2
            immediate = 0.4
        if self.advance is not None:
            advance = self.advance
        if self.immediate is not None:
            immediate = self.immediate
        return advance, immediate

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        if not location.is_sound() or context.datacentre is None:
            return NO_JOBS
        advance, immediate = self.shares
        # Thirds may add up to a little more than 1.
        if advance + immediate > 1.0 + 1e-9:
            location.report(
                "advance and immediate together are more than 100 %"
            )
            return NO_JOBS
        leases = self.draw(context.seed, context.datacentre.total_slots)
        if not within(
            location / "load",
            leases[-1].arrival_s,
            "seconds of arrivals",
            "take a higher load",
        ):
            return NO_JOBS
        facts = {
            **self.model_dump(exclude={"sizes"}),
            "advance": advance,
            "immediate": immediate,
            "sizes": list(self.sizes or SIZES),
        }
        return self.of_leases(leases, facts)

    def draw(self, seed: int, slots: int) -> tuple[LeaseRecord, ...]:
        """The leases in order of arrival: Σ(cores · duration) / (slots · span)
        is ``load``.

        Durations and lead times are exponential, arrivals Poisson, scaled to
        the load. The paper names the sizes and the shares of the types alone.
        """
        count = self.jobs
        # Each quantity has a stream: a change of one keeps the others' draws.
        duration_s = np.maximum(
            self.mean_duration * self._exponential(seed, "duration"),
            self.shortest,
        )
        lead_s = self.mean_lead * self._exponential(seed, "lead")
        sizes = [SIZES[name] for name in self.sizes or SIZES]
        size_index = stream(seed, self.kind, "size").integers(
            0, len(sizes), count
        )
        cores = np.array([cores for cores, _ in sizes])[size_index]
        kind_index = self._kind_index(seed)
        work = float(cores @ duration_s)
        arrival_s = self._arrivals_s(seed, work / (slots * self.load))
        # Advance leases start after their lead time, immediate ones at once.
        start_s = np.where(kind_index == 0, arrival_s + lead_s, arrival_s)
        # Padded, so that names sort as numbers do.
        digits = max(5, len(str(count)))
        leases = []
        for k in range(count):
            kind = LEASE_KINDS[kind_index[k]]
            n_cores, memory_mb = sizes[size_index[k]]
            lease = LeaseRecord(
                name=f"lease-{k + 1:0{digits}}",
                kind=kind,
                arrival_s=float(arrival_s[k]),
                start_s=None if kind == "BE" else float(start_s[k]),
                duration_s=float(duration_s[k]),
                nodes=1,
                cores=n_cores,
                memory_mb=memory_mb,
            )
            leases.append(lease)
        return tuple(leases)

    def _exponential(self, seed: int, name: str) -> Floats:
        """A value for each lease, exponential with mean 1."""
        return stream(seed, self.kind, name).standard_exponential(self.jobs)

    def _kind_index(self, seed: int) -> IntArray:
        """The type of each lease: 0 advance, 1 immediate, 2 best effort."""
        uniform = stream(seed, self.kind, "type").random(self.jobs)
        # By the running sum of the shares.
        return np.searchsorted(
            np.cumsum(self.shares), uniform, side="right"
        )

    def _arrivals_s(self, seed: int, span_s: float) -> Floats:
        """Poisson arrivals, the first at 0 s and the last at ``span_s``."""
        gaps = self._exponential(seed, "gap")
        gaps[0] = 0.0
        arrival_s: Floats = np.cumsum(gaps)
        # A single lease has no span to be scaled.
        if self.jobs > 1:
            arrival_s *= span_s / float(arrival_s[-1])
        return arrival_s
