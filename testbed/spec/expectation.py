"""What an experiment expects of its results: the ``expect`` section as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Band:
    """A closed interval; None is no limit on that side."""

    min: float | None = None
    max: float | None = None

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def __str__(self) -> str:
        if self.min is not None and self.max is not None:
            return f"{self.min:g}–{self.max:g}"
        if self.min is not None:
            return f"at least {self.min:g}"
        return "anything" if self.max is None else f"at most {self.max:g}"


@dataclass(frozen=True)
class ApplicationExpectation:
    """What is expected of one application's jobs.

    ``estimate_ratio`` takes the place of the global band; ``scaled_down_below``: the ratio stays
    under this wherever less bandwidth was granted than asked for.
    """

    estimate_ratio: Band | None = None
    scaled_down_below: float | None = None


@dataclass(frozen=True)
class Expectation:
    """The ``expect`` block. ``fidelity``: the worst verdict that is still accepted; None: any."""

    estimate_ratio: Band | None = None
    applications: Mapping[str, ApplicationExpectation] = field(default_factory=dict)
    fidelity: Literal["ok", "suspect", "invalid"] | None = None

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Expectation:
        """From its ``dataclasses.asdict`` form, as ``spec.resolved.json`` holds it."""
        return cls(
            _band(record.get("estimate_ratio")),
            {
                name: ApplicationExpectation(
                    _band(own.get("estimate_ratio")), own.get("scaled_down_below")
                )
                for name, own in (record.get("applications") or {}).items()
            },
            record.get("fidelity"),
        )


def _band(record: Mapping[str, float | None] | None) -> Band | None:
    return None if record is None else Band(record.get("min"), record.get("max"))
