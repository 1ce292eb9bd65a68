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
        """From its ``dataclasses.asdict`` form, as ``spec.resolved.json`` holds it.

        Raises ValueError where it is not one.
        """
        fidelity = record.get("fidelity")
        if fidelity not in (None, "ok", "suspect", "invalid"):
            raise ValueError(f"fidelity is {fidelity!r}")
        applications = _mapping(record.get("applications"), "applications")
        return cls(
            _band(record.get("estimate_ratio")),
            {name: _application(_mapping(own, name)) for name, own in applications.items()},
            fidelity,
        )


def _mapping(record: object, name: str) -> Mapping[str, Any]:
    if not isinstance(record, Mapping | None):
        raise ValueError(f"{name} is no object")  # noqa: TRY004 - so it is for any wrong record
    return record or {}


def _application(record: Mapping[str, Any]) -> ApplicationExpectation:
    return ApplicationExpectation(
        _band(record.get("estimate_ratio")), _limit(record, "scaled_down_below")
    )


def _band(record: object) -> Band | None:
    if record is None:
        return None
    ends = _mapping(record, "estimate_ratio")
    return Band(_limit(ends, "min"), _limit(ends, "max"))


def _limit(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    if not isinstance(value, int | float | None):
        raise ValueError(f"{name} is no number")  # noqa: TRY004
    return value
