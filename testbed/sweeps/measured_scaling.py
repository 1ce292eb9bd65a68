"""Running times at smaller bandwidths against p·b/b', where p is measured.

Each repetition has its own profile: p is the median of its profiling runs at
b, and its estimates follow from that p. The interval of a ratio is Student's
over repetitions, so that the error of p is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from jobs.demand import scaled_duration_s
from testbed.errors import RunFailed
from testbed.record.metrics import JobRow
from testbed.sweeps.intervals import ROUNDING, Estimate, estimate
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
_counts = attrgetter(
    "use", "packet_bytes", "sent_bytes", "resent", "timeouts"
)
NOT_COUNTED = (None,) * 5
NO_TRAFFIC: Mapping[str, JobTraffic] = MappingProxyType({})


def profile_id(application: str) -> str:
    """The id of the job that profiles an application."""
    return f"{application}-profile"


def is_profile(row: JobRow) -> bool:
    """True for a run that profiles, by its id; there may be several."""
    return row.job_id.startswith(profile_id(row.application or row.job_id))


@dataclass(frozen=True)
class ScaledRun:
    """A job at one bandwidth, in experiment seconds.

    ``network_share``: share of the time that the network limited (0 to 1; None:
    not known). ``traffic``: that of a launched program.
    """

    time_s: float
    network_share: float | None = None
    traffic: JobTraffic | None = None


@dataclass(frozen=True)
class Repetition:
    """An application in one run: p at b, and its runs by b'.

    ``profiled_traffic``: of a launched program, at b.
    """

    application: str
    requested_bps: int
    profiled_s: float
    runs: Mapping[int, ScaledRun]
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
        # The median, as of `testbed profile`: one run beside a burst of
        # somebody else's work does not move it.
        profiled_s = median(row.measured_s or 0.0 for row in profiled)
        repetition = Repetition(
            application=name,
            requested_bps=profiled[0].requested_bps,
            profiled_s=profiled_s,
            runs=_scaled_runs(scaled.get(name, ()), traffic),
            profiled_traffic=traffic.get(profiled[0].job_id),
        )
        repetitions.append(repetition)
    return repetitions


def _scaled_runs(
    rows: Iterable[JobRow], traffic: Mapping[str, JobTraffic]
) -> dict[int, ScaledRun]:
    """An application's runs by their bandwidth."""
    runs = {}
    for row in rows:
        runs[row.granted_bps or row.requested_bps] = ScaledRun(
            row.measured_s or 0.0,
            row.network_share,
            traffic.get(row.job_id),
        )
    return runs


@dataclass(frozen=True)
class ScalingPoint:
    """An application at one b': runs and estimates by repetition, in s."""

    granted_bps: int
    runs: tuple[ScaledRun, ...]
    estimates_s: tuple[float, ...]
    scaled_down: bool
    traffics_at_b: tuple[JobTraffic | None, ...]

    @property
    def traffic(self) -> JobTraffic | None:
        """Its traffic, the means of the repetitions that were counted."""
        return _mean_traffic(run.traffic for run in self.runs)

    @property
    def traffic_at_b(self) -> JobTraffic | None:
        """The same of the profiles."""
        return _mean_traffic(self.traffics_at_b)

    @property
    def network_share(self) -> float | None:
        """Share of the time that the network limited, the median repetition's;
        None where it is not known.
        """
        shares = [run.network_share for run in self.runs]
        known = [share for share in shares if share is not None]
        return median(known) if known else None

    @property
    def measured(self) -> Estimate:
        return estimate(run.time_s for run in self.runs)

    @property
    def estimated(self) -> Estimate:
        return estimate(self.estimates_s)

    @property
    def ratios(self) -> tuple[float, ...]:
        pairs = zip(self.runs, self.estimates_s, strict=True)
        return tuple(run.time_s / by_rule_s for run, by_rule_s in pairs)

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
            now=self.traffic,
            at_b=self.traffic_at_b,
            network_share=self.network_share,
            measured_s=self.measured.mean,
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
    traffics: Iterable[JobTraffic | None],
) -> JobTraffic | None:
    counted = [vars(traffic) for traffic in traffics if traffic is not None]
    if not counted:
        return None
    means = {
        name: fmean(fields[name] for fields in counted)
        for name in counted[0]
    }
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
    bandwidths: set[int] = set()
    for repetition in repetitions:
        bandwidths.update(repetition.runs)
    points = [
        _point(granted_bps, repetitions)
        for granted_bps in sorted(bandwidths, reverse=True)
    ]
    return MeasuredScaling(
        application=name,
        requested_bps=repetitions[0].requested_bps,
        profiles_s=tuple(r.profiled_s for r in repetitions),
        points=tuple(points),
    )


def _point(
    granted_bps: int, repetitions: Sequence[Repetition]
) -> ScalingPoint:
    runs = []
    estimates = []
    # Each repetition against its own profile: what makes a machine slow for
    # minutes is then in both, and cancels.
    for repetition in repetitions:
        runs.append(repetition.runs[granted_bps])
        estimates.append(repetition.estimate_s(granted_bps))
    return ScalingPoint(
        granted_bps=granted_bps,
        runs=tuple(runs),
        estimates_s=tuple(estimates),
        scaled_down=granted_bps < repetitions[0].requested_bps,
        traffics_at_b=tuple(r.profiled_traffic for r in repetitions),
    )


def table_lines(
    measured: Sequence[MeasuredScaling],
) -> Iterator[tuple[Any, ...]]:
    """A line of :data:`COLUMNS` for each measured time."""
    for scaling in measured:
        for number, profiled_s in enumerate(scaling.profiles_s):
            for point in scaling.points:
                run = point.runs[number]
                counts = NOT_COUNTED
                if run.traffic is not None:
                    counts = _counts(run.traffic)
                yield (
                    scaling.application,
                    number + 1,
                    point.granted_bps,
                    profiled_s,
                    point.estimates_s[number],
                    run.time_s,
                    point.ratios[number],
                    run.network_share,
                    *counts,
                )
