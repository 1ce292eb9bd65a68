"""Results that an experiment file expects of its jobs (``expect``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class Band:
    """A closed interval; None is no limit on that side."""

    min: float | None = None
    max: float | None = None

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (
            self.max is None or value <= self.max
        )

    def __str__(self) -> str:
        if self.min is not None and self.max is not None:
            return f"{self.min:g}–{self.max:g}"
        if self.min is not None:
            return f"at least {self.min:g}"
        if self.max is not None:
            return f"at most {self.max:g}"
        return "anything"


@dataclass(frozen=True)
class ApplicationExpectation:
    """Expectations of one application's jobs.

    ``estimate_ratio`` takes the place of the global band;
    ``scaled_down_below``: the ratio stays under this wherever less bandwidth
    was granted than asked for.
    """

    estimate_ratio: Band | None = None
    scaled_down_below: float | None = None


@dataclass(frozen=True)
class Expectation:
    """The ``expect`` block. ``fidelity``: the worst verdict that is still
    accepted; None: any.
    """

    estimate_ratio: Band | None = None
    applications: Mapping[str, ApplicationExpectation] = field(
        default_factory=dict
    )
    fidelity: Literal["ok", "suspect", "invalid"] | None = "suspect"
    # Limits of measured over estimated time, for live jobs of which the file
    # expects nothing. None in run folders of earlier versions.
    late_above: float | None = 1.05
    early_below: float | None = 0.95

    def late_share(self, application: str | None) -> float | None:
        """The share of its time by which a job may be late; None: any.

        ``application``: the job's label.
        """
        stated = self.applications.get(
            application or "", ApplicationExpectation()
        )
        band = stated.estimate_ratio or self.estimate_ratio
        most = self.late_above
        # A band below 1 is about less work than estimated, not about lateness.
        if band is not None and band.max is not None and band.max > 1.0:
            most = band.max
        if most is None:
            return None
        return most - 1.0

    def under(self, enforcement: str) -> Expectation:
        """The expectations that apply under an enforcement.

        Where bandwidth is lent, a job may end before its estimate: no lower
        limit applies. Where nothing is reserved, it may also end after it.
        """
        if enforcement == "strict":
            return self
        applications = {
            name: replace(
                expectation,
                estimate_ratio=_without_min(expectation.estimate_ratio),
            )
            for name, expectation in self.applications.items()
        }
        late_above = None if enforcement == "none" else self.late_above
        band = _without_min(self.estimate_ratio)
        return replace(
            self,
            estimate_ratio=band,
            applications=applications,
            late_above=late_above,
            early_below=None,
        )


def _without_min(band: Band | None) -> Band | None:
    if band is None or band.max is None:
        return None
    return Band(None, band.max)
