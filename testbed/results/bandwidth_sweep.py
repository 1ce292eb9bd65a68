"""Measured bandwidth sweep of an application: times per bandwidth, threshold, and profile file.

``profile.json`` in a run folder holds what :meth:`MeasuredSweep.to_json` gives; ``profile.yaml``
is what a job's ``profile`` names (docs/decisions/32).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from annotated_types import Len
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from jobs.job_profile import Profile, measured_profile
from testbed.errors import RunFailed
from testbed.events import Int, Number
from testbed.results.metrics import JobRow
from testbed.results.reading import checked
from testbed.spec.experiment import BandwidthSweep
from testbed.spec.job_entries import profile_text
from testbed.units import format_share, human_bandwidth

PROFILE = "profile.yaml"
PROFILE_RECORD = "profile.json"

# Ten microseconds: what the clock of a run says below that is noise.
DIGITS = 5
SHOWN_REASONS = 5


@dataclass(frozen=True)
class SweepPoint:
    """Times measured at one bandwidth, in experiment seconds, in the order of the runs.

    ``model_s``: the time by the application's model; None where it has none.
    """

    bandwidth_bps: Int
    times_s: Annotated[tuple[Number, ...], Len(1)]
    model_s: Number | None = None

    @property
    def median_s(self) -> float:
        return round(median(self.times_s), DIGITS)

    @property
    def spread(self) -> float:
        """(longest - shortest) / median."""
        return (max(self.times_s) - min(self.times_s)) / self.median_s


@dataclass(frozen=True)
class MeasuredSweep:
    """``points`` by rising bandwidth; ``profile``: those worth offering, up to the threshold."""

    application: str
    tolerance: float
    points: tuple[SweepPoint, ...]
    profile: Profile

    @property
    def threshold_bps(self) -> int:
        """No-elongation threshold; the highest bandwidth where :attr:`found` is not."""
        return self.profile.threshold_bps

    @property
    def found(self) -> bool:
        """True where a bandwidth above the threshold gained nothing."""
        return self.threshold_bps < self.points[-1].bandwidth_bps

    def elongation(self, point: SweepPoint) -> float:
        """The time there over the time at the threshold."""
        return point.median_s / self.profile.options[-1][1]

    @property
    def model_threshold_bps(self) -> int | None:
        """Threshold by the model's times; None where there is no model."""
        points = [(r.bandwidth_bps, r.model_s) for r in self.points if r.model_s is not None]
        if len(points) < len(self.points):
            return None
        return measured_profile(points, self.tolerance).threshold_bps

    def model_sentence(self) -> str | None:
        """The model's threshold as a sentence; None where there is no model."""
        expected_bps = self.model_threshold_bps
        if expected_bps is None:
            return None
        if expected_bps == self.threshold_bps:
            return "The application's model says the same"
        what = human_bandwidth(expected_bps)
        reached = expected_bps < self.points[-1].bandwidth_bps
        return f"The application's model says {what if reached else 'that it is not reached'}"

    def sentence(self) -> str:
        """The threshold as a sentence, with its limits."""
        least, highest = self.points[0], self.points[-1]
        at, top = human_bandwidth(self.threshold_bps), human_bandwidth(highest.bandwidth_bps)
        within = format_share(self.tolerance)
        if self.found:
            most = " at most" if self.threshold_bps == least.bandwidth_bps else ""
            threshold = f"{at}{most}; up to {top} nothing was faster by more than {within}"
        elif len(self.points) > 1:
            threshold = (
                f"not reached, {top} is the highest tried and still faster than what is below it"
            )
        else:
            threshold = f"one bandwidth, {top}, tells nothing of it"
        return f"No-elongation threshold: {threshold}"

    def to_json(self) -> dict[str, Any]:
        return {
            "application": self.application,
            "tolerance": self.tolerance,
            "threshold_bps": self.threshold_bps,
            "threshold_found": self.found,
            "model_threshold_bps": self.model_threshold_bps,
            "rungs": [
                {
                    **{key: getattr(point, key) for key in ("bandwidth_bps", "median_s", "spread")},
                    "elongation": self.elongation(point),
                    "model_s": point.model_s,
                    "times_s": list(point.times_s),
                }
                for point in self.points
            ],
            "options": [
                {"bandwidth_bps": bps, "duration_s": time_s} for bps, time_s in self.profile.options
            ],
        }

    def text(self, origin: str) -> str:
        """The profile as a file for a job's ``profile``; ``origin`` is its provenance."""
        runs = len(self.points[0].times_s)
        of = "one run" if runs == 1 else f"medians of {runs} runs"
        head = [origin, f"{len(self.points)} bandwidths were tried, {of} each.", self.sentence()]
        comments = "".join(f"# {line}\n" for line in head)
        return comments + profile_text(self.profile, self.application)


def measured_sweep(
    application: str, tolerance: float, points: Sequence[SweepPoint]
) -> MeasuredSweep:
    """The profile in what was measured, by :func:`jobs.job_profile.measured_profile`."""
    ordered = tuple(sorted(points, key=lambda point: point.bandwidth_bps))
    times = [(point.bandwidth_bps, point.median_s) for point in ordered]
    return MeasuredSweep(application, tolerance, ordered, measured_profile(times, tolerance))


def sweep_of_rows(sweep: BandwidthSweep, rows: Sequence[JobRow]) -> MeasuredSweep:
    """The profile in a run's jobs. Raises RunFailed where one of them did not finish."""
    own = [row for row in rows if row.application == sweep.application]
    failed = [row for row in own if row.outcome != "finished" or row.measured_s is None]
    missing = len(sweep.bandwidths_bps) * sweep.repetitions - len(own)
    if failed or missing:
        message = [f"{row.job_id} {row.outcome}: {row.reason}" for row in failed[:SHOWN_REASONS]]
        more = len(failed) - SHOWN_REASONS
        message += [f"{more} more did not finish"] if more > 0 else []
        message += [f"{missing} were never started"] if missing else []
        raise RunFailed(f"no profile: {'; '.join(message)}")
    points = []
    for bps in sweep.bandwidths_bps:
        there = [row for row in own if row.requested_bps == bps]
        model_s = there[0].estimate_s if sweep.modelled else None
        points.append(SweepPoint(bps, tuple(row.measured_s or 0.0 for row in there), model_s))
    return measured_sweep(sweep.application, sweep.tolerance, points)


class _StoredSweep(TypedDict):
    application: str
    tolerance: Number
    rungs: Annotated[list[SweepPoint], Len(1)]


_STORED = TypeAdapter(_StoredSweep)


def stored_sweep(record: object, path: Path) -> MeasuredSweep:
    """The content of ``profile.json``, as :meth:`MeasuredSweep.to_json` wrote it.

    Raises BadInput where it is damaged.
    """
    stored = checked(_STORED, record, path, "profile")
    return measured_sweep(stored["application"], stored["tolerance"], stored["rungs"])
