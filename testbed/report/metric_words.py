"""A run's metrics in words, for headings, axes and sentences of all pages.

The keys are those of ``summary.json`` and of a sweep's columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from testbed.report.labels import capital
from testbed.units import human_duration

MetricKind = Literal["count", "share", "time", "number"]
_TIME_UNITS = (("h", 3600.0), ("min", 60.0))
UNIT_FROM = 3
"""A unit of time is used for values above so many of it."""


@dataclass(frozen=True)
class MetricWords:
    """A metric in words.

    ``of_jobs``: the jobs that a mean is taken over, empty for other metrics.
    ``best``: the better end, empty where neither is better.
    """

    name: str
    kind: MetricKind = "number"
    of_jobs: str = ""
    best: Literal["most", "least", ""] = ""

    @property
    def heading(self) -> str:
        return capital(self.name)

    @property
    def can_be_negative(self) -> bool:
        return self.name == "revenue"

    def scale(self, largest: float) -> MetricScale:
        """The unit for an axis or a column with values up to this one."""
        if self.kind == "share":
            return MetricScale("%", 0.01)
        if self.kind != "time":
            return MetricScale("", 1.0)
        return time_scale(largest)

    def text(self, value: float) -> str:
        """A value with its unit: ``98.9 %``, ``3 h 45 min``."""
        # As a ratio to 0 is.
        if not math.isfinite(value):
            return f"{value}"
        if self.kind == "share":
            return f"{100 * value:.1f} %"
        if self.kind == "time":
            return human_duration(value)
        if value == int(value):
            return f"{value:,.0f}"
        return f"{value:,.2f}"

    def distance(self, value: float) -> str:
        """A difference with its unit: shares differ by points."""
        if self.kind == "share":
            return f"{100 * value:.1f} points"
        return self.text(value)


@dataclass(frozen=True)
class MetricScale:
    """A unit, and its size in the metric's own unit."""

    unit: str
    size: float

    def titled(self, heading: str) -> str:
        """``Mean wait [h]``."""
        return f"{heading} [{self.unit}]" if self.unit else heading


def time_scale(longest_s: float) -> MetricScale:
    """The unit for an axis or a column with times up to this one."""
    for unit, size_s in _TIME_UNITS:
        if longest_s > UNIT_FROM * size_s:
            return MetricScale(unit, size_s)
    return MetricScale("s", 1.0)


STARTED = "jobs that started"
FINISHED = "jobs that finished"
METRIC_WORDS: Mapping[str, MetricWords] = MappingProxyType(
    {
        "jobs": MetricWords("jobs", "count"),
        "finished": MetricWords("jobs finished", "count", best="most"),
        "rejected": MetricWords("jobs rejected", "count", best="least"),
        "killed": MetricWords("jobs killed", "count", best="least"),
        "unfinished": MetricWords("jobs not ended", "count", best="least"),
        "met_deadline": MetricWords("deadlines met", "count", best="most"),
        "success_rate": MetricWords("success rate", "share", best="most"),
        "acceptance_rate": MetricWords(
            "jobs accepted", "share", best="most"
        ),
        "vm_utilisation": MetricWords("VM slots used", "share"),
        "link_utilisation": MetricWords("bandwidth reserved", "share"),
        "link_utilisation_measured": MetricWords("bandwidth sent", "share"),
        "revenue": MetricWords("revenue", best="most"),
        "wait_mean_s": MetricWords("mean wait", "time", STARTED, "least"),
        "queued_mean_s": MetricWords(
            "mean wait with preemptions", "time", FINISHED, "least"
        ),
        "response_mean_s": MetricWords(
            "mean response", "time", FINISHED, "least"
        ),
        "slowdown_mean": MetricWords(
            "mean slowdown", of_jobs=FINISHED, best="least"
        ),
        "bounded_slowdown_mean": MetricWords(
            "mean bounded slowdown", of_jobs=FINISHED, best="least"
        ),
        "preemptions": MetricWords("preemptions", "count"),
        "migrations": MetricWords("migrations", "count"),
        "estimate_ratio": MetricWords("measured / estimate"),
        "iperf3_ratio": MetricWords("worst VM by iperf3 / reserved"),
        "fidelity": MetricWords("fidelity"),
        "span_s": MetricWords("length of the run", "time"),
    }
)
_PARTS = {
    "min": "least",
    "median": "median",
    "p95": "95th percentile",
    "max": "most",
}


def metric_words(key: str) -> MetricWords:
    """The words of a key. An unknown key, as of another version's file, stands
    for itself.
    """
    name, _, part = key.partition(".")
    words = METRIC_WORDS.get(name, MetricWords(key))
    if part in _PARTS:
        return MetricWords(f"{words.name}, {_PARTS[part]}")
    return words
