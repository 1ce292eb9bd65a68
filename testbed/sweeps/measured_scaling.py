"""Running times at smaller bandwidths against p·b/b', where p is measured.

Each repetition has its own profile: p is the median of its profiling runs at
b, and its estimates follow from that p. The interval of a ratio is Student's
over repetitions, so that the error of p is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from jobs.demand import scaled_duration_s
from testbed.errors import RunFailed
from testbed.record.metrics import JobRow
from testbed.sweeps.intervals import Estimate, estimate
from testbed.sweeps.job_traffic import JobTraffic
from testbed.sweeps.scaling_reasons import BoundVerdict, reason

CLOSE = 0.9
"""The ratio from which the estimate is close, where the bound holds."""
COLUMNS = (
    "application",
    "repetition",
    "bandwidth_bps",
    "profiled_s",
    "estimate_s",
    "measured_s",
    "ratio",
    "network_share",
    "use",
    "packet_bytes",
    "sent_bytes",
    "resent_segments",
    "timeouts",
)
ROUNDING = 1e-9
"""Allowance for sums of floats: simulated times are equal to the estimate."""
NO_TRAFFIC: Mapping[str, JobTraffic] = MappingProxyType({})
_PROFILE = "{}-profile"


def profile_id(application: str) -> str:
    """The id of the job that profiles an application."""
    return _PROFILE.format(application)


def is_profile(row: JobRow) -> bool:
    """True for a run that profiles, by its id; there may be several."""
    return row.job_id.startswith(profile_id(row.application or row.job_id))


@dataclass(frozen=True)
class Repetition:
    """An application in one run: p at b, and the times at each b', in
    experiment seconds.

    ``network_shares``: of the times, how much the network limited (0 to 1;
    None: not known). ``traffic``: of launched programs, by b';
    ``profiled_traffic``: at b.
    """

    application: str
    requested_bps: int
    profiled_s: float
    times: tuple[tuple[int, float], ...]
    network_shares: tuple[tuple[int, float | None], ...] = ()
    traffic: tuple[tuple[int, JobTraffic], ...] = ()
    profiled_traffic: JobTraffic | None = None

    def estimate_s(self, granted_bps: float) -> float:
        """p·b/b' (DCloud, Section III.B)."""
        return scaled_duration_s(
            self.profiled_s, self.requested_bps, granted_bps
        )


def repetitions_of(
    rows: Iterable[JobRow],
    traffic: Mapping[str, JobTraffic] = NO_TRAFFIC,
) -> list[Repetition]:
    """The applications of one run, in the order of their jobs, with the
    ``traffic`` of those that were counted.

    Raises RunFailed where a job did not finish.
    """
    profiles: dict[str, list[JobRow]] = {}
    scaled: dict[str, list[JobRow]] = {}
    for row in rows:
        if row.application is None:
            continue
        if row.outcome != "finished" or row.measured_s is None:
            raise RunFailed(f"{row.job_id} {row.outcome}: {row.reason}")
        group = profiles if is_profile(row) else scaled
        group.setdefault(row.application, []).append(row)
    repetitions = []
    for name, profiled in profiles.items():
        times = []
        shares = []
        counted = []
        for row in scaled.get(name, ()):
            granted_bps = row.granted_bps or row.requested_bps
            if row.job_id in traffic:
                counted.append((granted_bps, traffic[row.job_id]))
            times.append((granted_bps, row.measured_s or 0.0))
            shares.append((granted_bps, row.network_share))
        # The median, as of `testbed profile`: one run beside a burst of
        # somebody else's work does not move it.
        profiled_s = median(row.measured_s or 0.0 for row in profiled)
        repetition = Repetition(
            name,
            profiled[0].requested_bps,
            profiled_s,
            tuple(times),
            tuple(shares),
            tuple(counted),
            traffic.get(profiled[0].job_id),
        )
        repetitions.append(repetition)
    return repetitions


@dataclass(frozen=True)
class ScalingPoint:
    """An application at one b': times and estimates by repetition, in s."""

    granted_bps: int
    times_s: tuple[float, ...]
    estimates_s: tuple[float, ...]
    scaled_down: bool
    network_shares: tuple[float | None, ...] = ()
    traffics: tuple[JobTraffic | None, ...] = ()
    traffics_at_b: tuple[JobTraffic | None, ...] = ()

    @property
    def traffic(self) -> JobTraffic | None:
        """Its traffic, the means of the repetitions that were counted."""
        return _mean_traffic(self.traffics)

    @property
    def traffic_at_b(self) -> JobTraffic | None:
        """The same of the profiles."""
        return _mean_traffic(self.traffics_at_b)

    @property
    def network_share(self) -> float | None:
        """Share of the time that the network limited, the median repetition's;
        None where it is not known.
        """
        known = [
            share for share in self.network_shares if share is not None
        ]
        return median(known) if known else None

    @property
    def measured(self) -> Estimate:
        return estimate(self.times_s)

    @property
    def estimated(self) -> Estimate:
        return estimate(self.estimates_s)

    @property
    def ratios(self) -> tuple[float, ...]:
        pairs = zip(self.times_s, self.estimates_s, strict=True)
        return tuple(time_s / by_rule_s for time_s, by_rule_s in pairs)

    @property
    def ratio(self) -> Estimate:
        """Measured over p·b/b'."""
        return estimate(self.ratios)

    @property
    def verdict(self) -> BoundVerdict:
        """The bound holds where the whole interval of the ratio is at most 1;
        it is close where none of it is below CLOSE.

        At b itself nothing is scaled: p against p is the reference.
        """
        if not self.scaled_down:
            return "reference"
        half = self.ratio.half_width
        # One repetition has no interval, and decides nothing.
        if half is None:
            return "undecided"
        if self.ratio.mean + half <= 1.0 + ROUNDING:
            is_close = self.ratio.mean - half >= CLOSE
            return "close" if is_close else "holds"
        if self.ratio.mean - half > 1.0 + ROUNDING:
            return "violated"
        return "undecided"

    @property
    def reason(self) -> str:
        """Why, from what was counted; empty where nothing was."""
        return reason(
            self.verdict,
            self.traffic,
            self.traffic_at_b,
            self.network_share,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "bandwidth_bps": self.granted_bps,
            "measured_s": self.measured.mean,
            "measured_half_width_s": self.measured.half_width,
            "estimate_s": self.estimated.mean,
            "ratio": self.ratio.mean,
            "ratio_half_width": self.ratio.half_width,
            "network_share": self.network_share,
            "traffic": _fields(self.traffic),
            "traffic_at_b": _fields(self.traffic_at_b),
            "verdict": self.verdict,
            "reason": self.reason,
        }


def _mean_traffic(
    traffics: Sequence[JobTraffic | None],
) -> JobTraffic | None:
    counted = [vars(traffic) for traffic in traffics if traffic is not None]
    if not counted:
        return None
    means = {}
    for name in counted[0]:
        means[name] = fmean(fields[name] for fields in counted)
    return JobTraffic(**means)


def _fields(traffic: JobTraffic | None) -> dict[str, float] | None:
    return None if traffic is None else dict(vars(traffic))


@dataclass(frozen=True)
class MeasuredScaling:
    """An application over all repetitions; ``points`` from b downward."""

    application: str
    requested_bps: int
    profiles_s: tuple[float, ...]
    points: tuple[ScalingPoint, ...]

    @property
    def profiled(self) -> Estimate:
        """Mean of the profiled times p at b."""
        return estimate(self.profiles_s)

    @property
    def violated(self) -> bool:
        return any(point.verdict == "violated" for point in self.points)

    def to_json(self) -> dict[str, Any]:
        return {
            "application": self.application,
            "bandwidth_bps": self.requested_bps,
            "profiled_s": self.profiled.mean,
            "profiled_half_width_s": self.profiled.half_width,
            "repetitions": len(self.profiles_s),
            "points": [point.to_json() for point in self.points],
        }


def measured_scaling(
    repetitions: Sequence[Repetition],
) -> list[MeasuredScaling]:
    """The applications of all repetitions, in the order of the first."""
    by_name: dict[str, list[Repetition]] = {}
    for repetition in repetitions:
        by_name.setdefault(repetition.application, []).append(repetition)
    return [_measured(name, group) for name, group in by_name.items()]


def _measured(
    name: str, repetitions: Sequence[Repetition]
) -> MeasuredScaling:
    requested_bps = repetitions[0].requested_bps
    bandwidths = {
        bps for repetition in repetitions for bps, _ in repetition.times
    }
    at_b = tuple(repetition.profiled_traffic for repetition in repetitions)
    points = []
    # Each repetition against its own profile: what makes a machine slow for
    # minutes is then in both, and cancels.
    for granted_bps in sorted(bandwidths, reverse=True):
        times = []
        estimates = []
        shares = []
        traffics = []
        for repetition in repetitions:
            traffics.append(dict(repetition.traffic).get(granted_bps))
            shares.append(dict(repetition.network_shares).get(granted_bps))
            times.append(dict(repetition.times)[granted_bps])
            estimates.append(repetition.estimate_s(granted_bps))
        points.append(
            ScalingPoint(
                granted_bps=granted_bps,
                times_s=tuple(times),
                estimates_s=tuple(estimates),
                scaled_down=granted_bps < requested_bps,
                network_shares=tuple(shares),
                traffics=tuple(traffics),
                traffics_at_b=at_b,
            )
        )
    profiles_s = tuple(repetition.profiled_s for repetition in repetitions)
    return MeasuredScaling(name, requested_bps, profiles_s, tuple(points))


def table_lines(
    measured: Sequence[MeasuredScaling],
) -> Iterator[tuple[Any, ...]]:
    """A line of :data:`COLUMNS` for each measured time."""
    for scaling in measured:
        for number, profiled_s in enumerate(scaling.profiles_s):
            for point in scaling.points:
                yield (
                    scaling.application,
                    number + 1,
                    point.granted_bps,
                    profiled_s,
                    point.estimates_s[number],
                    point.times_s[number],
                    point.ratios[number],
                    point.network_shares[number],
                    *_counts(point.traffics[number]),
                )


def _counts(traffic: JobTraffic | None) -> tuple[float | None, ...]:
    if traffic is None:
        return (None,) * 5
    return (
        traffic.use,
        traffic.packet_bytes,
        traffic.sent_bytes,
        traffic.resent,
        traffic.timeouts,
    )
