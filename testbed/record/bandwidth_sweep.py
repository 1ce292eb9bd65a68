"""Measured bandwidth sweep of an application: times per bandwidth, threshold,
and profile file.

``profile.json`` in a run folder holds what :meth:`MeasuredSweep.to_json` gives;
``profile.yaml`` is what a job's ``profile`` names (docs/decisions/32).
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
from testbed.errors import BadInput, RunFailed
from testbed.events import Int, Number
from testbed.record.metrics import JobRow
from testbed.record.stored_json import CHANGED, typed_record
from testbed.spec.experiment import BandwidthSweep
from testbed.spec.job_entries import profile_text
from testbed.units import (
    format_share,
    human_bandwidth,
    number_of,
)

PROFILE = "profile.yaml"
PROFILE_RECORD = "profile.json"

# Ten microseconds: what the clock of a run says below that is noise.
DIGITS = 5
SHOWN_REASONS = 5


@dataclass(frozen=True)
class SweepPoint:
    """Times measured at one bandwidth, in experiment seconds, in the order of
    the runs.

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
    """``points`` by rising bandwidth; ``profile``: those worth offering, up to
    the threshold.
    """

    application: str
    tolerance: float
    points: tuple[SweepPoint, ...]
    profile: Profile

    @property
    def threshold_bps(self) -> int:
        """No-elongation threshold; the highest bandwidth where
        :attr:`threshold_found` is False.
        """
        return self.profile.threshold_bps

    @property
    def threshold_found(self) -> bool:
        """True where a bandwidth above the threshold gained nothing."""
        return self.threshold_bps < self.points[-1].bandwidth_bps

    def elongation(self, point: SweepPoint) -> float:
        """The time there over the time at the threshold."""
        return point.median_s / self.profile.options[-1][1]

    @property
    def model_threshold_bps(self) -> int | None:
        """Threshold by the model's times; None where there is no model."""
        times = []
        for point in self.points:
            if point.model_s is None:
                return None
            times.append((point.bandwidth_bps, point.model_s))
        return measured_profile(times, self.tolerance).threshold_bps

    def model_sentence(self) -> str | None:
        """The model's threshold as a sentence; None where there is no model."""
        threshold_bps = self.model_threshold_bps
        if threshold_bps is None:
            return None
        if threshold_bps == self.threshold_bps:
            return "The application's model says the same"
        if threshold_bps < self.points[-1].bandwidth_bps:
            bandwidth = human_bandwidth(threshold_bps)
            return f"The application's model says {bandwidth}"
        return "The application's model says that it is not reached"

    def sentence(self) -> str:
        """The threshold as a sentence, with its limits."""
        return f"No-elongation threshold: {self._threshold_text()}"

    def _threshold_text(self) -> str:
        top = human_bandwidth(self.points[-1].bandwidth_bps)
        if self.threshold_found:
            at = human_bandwidth(self.threshold_bps)
            if self.threshold_bps == self.points[0].bandwidth_bps:
                at += " at most"
            within = format_share(self.tolerance)
            return f"{at}; up to {top} nothing was faster by more than {within}"
        if len(self.points) > 1:
            highest = f"{top} is the highest tried"
            return f"not reached, {highest} and still faster than what is below it"
        return f"one bandwidth, {top}, tells nothing of it"

    def to_json(self) -> dict[str, Any]:
        options = []
        for bps, time_s in self.profile.options:
            options.append({"bandwidth_bps": bps, "duration_s": time_s})
        return {
            "application": self.application,
            "tolerance": self.tolerance,
            "threshold_bps": self.threshold_bps,
            "threshold_found": self.threshold_found,
            "model_threshold_bps": self.model_threshold_bps,
            "rungs": list(map(self._point_record, self.points)),
            "options": options,
        }

    def _point_record(self, point: SweepPoint) -> dict[str, Any]:
        return {
            "bandwidth_bps": point.bandwidth_bps,
            "median_s": point.median_s,
            "spread": point.spread,
            "elongation": self.elongation(point),
            "model_s": point.model_s,
            "times_s": list(point.times_s),
        }

    def text(self, origin: str) -> str:
        """The profile as a file for a job's ``profile``; ``origin`` is its
        provenance.
        """
        n_runs = len(self.points[0].times_s)
        runs = "one run" if n_runs == 1 else f"medians of {n_runs} runs"
        tried = number_of(
            len(self.points), "bandwidth was", "bandwidths were"
        )
        comments = (
            f"# {origin}\n"
            f"# {tried} tried, {runs} each.\n"
            f"# {self.sentence()}\n"
        )
        return comments + profile_text(self.profile, self.application)


def measured_sweep(
    application: str, tolerance: float, points: Sequence[SweepPoint]
) -> MeasuredSweep:
    """The sweep of these points, with the profile that
    :func:`jobs.job_profile.measured_profile` makes of their medians.

    Raises ValueError for a median that is not above 0.
    """
    ordered = tuple(sorted(points, key=lambda point: point.bandwidth_bps))
    times = [(point.bandwidth_bps, point.median_s) for point in ordered]
    # The profile would refuse such a time in one of its options alone.
    shortest_s = min(time_s for _, time_s in times)
    if shortest_s <= 0.0:
        raise ValueError(f"a time of {shortest_s:g} s was measured")
    profile = measured_profile(times, tolerance)
    return MeasuredSweep(application, tolerance, ordered, profile)


def sweep_of_rows(
    sweep: BandwidthSweep, rows: Sequence[JobRow]
) -> MeasuredSweep:
    """The profile in a run's jobs. Raises RunFailed where one of them did not
    finish.
    """
    of_application = [
        row for row in rows if row.application == sweep.application
    ]
    _require_all_finished(sweep, of_application)
    points = []
    for bps in sweep.bandwidths_bps:
        repeated = [
            row for row in of_application if row.requested_bps == bps
        ]
        # No time is None, as all have finished: 0.0 is for type checkers.
        times = tuple(row.measured_s or 0.0 for row in repeated)
        model_s = repeated[0].estimate_s if sweep.modelled else None
        points.append(SweepPoint(bps, times, model_s))
    return measured_sweep(sweep.application, sweep.tolerance, points)


def _require_all_finished(
    sweep: BandwidthSweep, rows: Sequence[JobRow]
) -> None:
    failed = []
    for row in rows:
        if row.outcome != "finished" or row.measured_s is None:
            failed.append(f"{row.job_id} {row.outcome}: {row.reason}")
    # A job that was never submitted has no row at all.
    n_missing = len(sweep.bandwidths_bps) * sweep.repetitions - len(rows)
    if not failed and not n_missing:
        return
    reasons = failed[:SHOWN_REASONS]
    n_left = len(failed) - SHOWN_REASONS
    if n_left > 0:
        reasons.append(f"{n_left} more did not finish")
    if n_missing:
        reasons.append(f"{n_missing} were never started")
    raise RunFailed(f"no profile: {'; '.join(reasons)}")


class _StoredSweep(TypedDict):
    application: str
    tolerance: Number
    rungs: Annotated[list[SweepPoint], Len(1)]


_STORED = TypeAdapter(_StoredSweep)


def stored_sweep(record: object, path: Path) -> MeasuredSweep:
    """The content of ``profile.json``, as :meth:`MeasuredSweep.to_json` wrote
    it.

    Raises BadInput where it is damaged.
    """
    stored = typed_record(_STORED, record, path, "profile")
    try:
        return measured_sweep(
            stored["application"], stored["tolerance"], stored["rungs"]
        )
    except ValueError as error:
        raise BadInput(f"{path}: damaged: {error}", CHANGED) from error
