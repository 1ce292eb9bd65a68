"""A profile out of the runs of a ladder: times per bandwidth, the threshold, and the file.

``profile.json`` in a run folder holds what :meth:`MeasuredLadder.to_json` gives; ``profile.yaml``
is what a job's ``profile`` names (docs/decisions/0460).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from jobs.job_profile import Profile, measured_profile
from testbed.errors import RunFailed
from testbed.results.metrics import JobRow
from testbed.spec.profile import profile_text
from testbed.spec.sourced import Ladder
from testbed.units import format_share, human_bandwidth

PROFILE = "profile.yaml"
PROFILE_RECORD = "profile.json"

# Ten microseconds: what the clock of a run says below that is noise.
DIGITS = 5
SHOWN_REASONS = 5


@dataclass(frozen=True)
class Rung:
    """What was measured at one bandwidth, in experiment seconds, in the order of the runs.

    ``model_s`` is what the application's model says; None where it has none.
    """

    bandwidth_bps: int
    times_s: tuple[float, ...]
    model_s: float | None = None

    @property
    def median_s(self) -> float:
        return round(median(self.times_s), DIGITS)

    @property
    def spread(self) -> float:
        """(longest - shortest) / median."""
        return (max(self.times_s) - min(self.times_s)) / self.median_s


@dataclass(frozen=True)
class MeasuredLadder:
    """``rungs`` by bandwidth, rising; ``profile`` are those worth offering, up to the threshold."""

    application: str
    tolerance: float
    rungs: tuple[Rung, ...]
    profile: Profile

    @property
    def threshold_bps(self) -> int:
        """The no-elongation threshold; the ladder's top where :attr:`found` is not."""
        return self.profile.threshold_bps

    @property
    def found(self) -> bool:
        """Whether there is a rung above the threshold, which gains nothing."""
        return self.threshold_bps < self.rungs[-1].bandwidth_bps

    def elongation(self, rung: Rung) -> float:
        """The time there over the time at the threshold."""
        return rung.median_s / self.profile.options[-1][1]

    @property
    def model_threshold_bps(self) -> int | None:
        """What the same rule finds in the model's times; None where there is no model."""
        points = [(r.bandwidth_bps, r.model_s) for r in self.rungs if r.model_s is not None]
        if len(points) < len(self.rungs):
            return None
        return measured_profile(points, self.tolerance)[1]

    def model_sentence(self) -> str | None:
        """What the application's model says of the threshold; None where there is no model."""
        expected_bps = self.model_threshold_bps
        if expected_bps is None:
            return None
        if expected_bps == self.threshold_bps:
            return "The application's model says the same"
        what = human_bandwidth(expected_bps)
        reached = expected_bps < self.rungs[-1].bandwidth_bps
        return f"The application's model says {what if reached else 'that it is not reached'}"

    def sentence(self) -> str:
        """The threshold in words, and what is not known of it."""
        at, top = human_bandwidth(self.threshold_bps), human_bandwidth(self.rungs[-1].bandwidth_bps)
        if not self.found:
            return (
                f"No-elongation threshold: not reached, {top} is the ladder's end and still faster"
                " than what is below it"
                if len(self.rungs) > 1
                else f"No-elongation threshold: one bandwidth, {top}, tells nothing of it"
            )
        least = " at most" if self.threshold_bps == self.rungs[0].bandwidth_bps else ""
        within = format_share(self.tolerance)
        return (
            f"No-elongation threshold: {at}{least}; up to {top} nothing was faster by more than"
            f" {within}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "application": self.application,
            "tolerance": self.tolerance,
            "threshold_bps": self.threshold_bps,
            "threshold_found": self.found,
            "model_threshold_bps": self.model_threshold_bps,
            "rungs": [
                {
                    "bandwidth_bps": rung.bandwidth_bps,
                    "median_s": rung.median_s,
                    "spread": rung.spread,
                    "elongation": self.elongation(rung),
                    "model_s": rung.model_s,
                    "times_s": list(rung.times_s),
                }
                for rung in self.rungs
            ],
            "options": [
                {"bandwidth_bps": bps, "duration_s": time_s} for bps, time_s in self.profile.options
            ],
        }

    def text(self, origin: str) -> str:
        """The profile as a file for a job's ``profile``; ``origin`` says where it comes from."""
        runs = len(self.rungs[0].times_s)
        of = "one run" if runs == 1 else f"medians of {runs} runs"
        head = [origin, f"{len(self.rungs)} bandwidths were tried, {of} each.", self.sentence()]
        comments = "".join(f"# {line}\n" for line in head)
        return comments + profile_text(self.profile, self.application)


def measured_ladder(application: str, tolerance: float, rungs: Sequence[Rung]) -> MeasuredLadder:
    """The profile in what was measured, by :func:`jobs.job_profile.measured_profile`."""
    ordered = tuple(sorted(rungs, key=lambda rung: rung.bandwidth_bps))
    points = [(rung.bandwidth_bps, rung.median_s) for rung in ordered]
    profile, _ = measured_profile(points, tolerance)
    return MeasuredLadder(application, tolerance, ordered, profile)


def ladder_of_rows(ladder: Ladder, rows: Sequence[JobRow]) -> MeasuredLadder:
    """The profile in a run's jobs. Raises RunFailed where one of them did not finish."""
    own = [row for row in rows if row.application == ladder.application]
    failed = [row for row in own if row.outcome != "finished" or row.measured_s is None]
    missing = len(ladder.bandwidths_bps) * ladder.repetitions - len(own)
    if failed or missing:
        said = [f"{row.job_id} {row.outcome}: {row.reason}" for row in failed[:SHOWN_REASONS]]
        more = len(failed) - SHOWN_REASONS
        said += [f"{more} more did not finish"] if more > 0 else []
        said += [f"{missing} were never started"] if missing else []
        raise RunFailed(f"no profile: {'; '.join(said)}")
    rungs = []
    for bps in ladder.bandwidths_bps:
        there = [row for row in own if row.requested_bps == bps]
        model_s = there[0].estimate_s if ladder.modelled else None
        rungs.append(Rung(bps, tuple(row.measured_s or 0.0 for row in there), model_s))
    return measured_ladder(ladder.application, ladder.tolerance, rungs)


def ladder_from_json(record: dict[str, Any]) -> MeasuredLadder:
    """What :meth:`MeasuredLadder.to_json` wrote; KeyError, TypeError, ValueError if damaged."""
    rungs = [
        Rung(int(one["bandwidth_bps"]), tuple(one["times_s"]), one.get("model_s"))
        for one in record["rungs"]
    ]
    return measured_ladder(str(record["application"]), float(record["tolerance"]), rungs)
