"""``/metrics``: the state of runs and of the network that is up, as OpenMetrics.

Names end in their unit; rates are bit/s of the experiment. docs/watching.md
lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import (
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import (
    CONTENT_TYPE_LATEST,
    generate_latest,
)
from prometheus_client.registry import Collector, CollectorRegistry

from testbed.web.gauges import Gauge

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Measured(Protocol):
    """A source of metrics."""

    def label(self) -> dict[str, str]:
        """``run`` and ``policy``, labels of all samples; and the source's ``kind``."""

    def gauges(self) -> Iterable[Gauge]:
        """The gauges as they are now, without labels of :meth:`label`."""


class _Sources(Collector):
    """All sources in one scrape: the samples of a gauge stand together."""

    def __init__(self, sources: Iterable[Measured]) -> None:
        self._sources = list(sources)

    def collect(self) -> Iterator[Metric]:
        # A text may have a family only once, with the samples of all sources.
        families: dict[str, GaugeMetricFamily] = {}
        info = InfoMetricFamily(
            "hosenet_source",
            "A run, or the network that is up.",
            labels=("run", "policy"),
        )
        for source in self._sources:
            label = source.label()
            common = (label["run"], label["policy"])
            info.add_metric(common, {"kind": label["kind"]})
            _add_samples(families, source.gauges(), common)
        yield info
        yield from families.values()


def _add_samples(
    families: dict[str, GaugeMetricFamily],
    gauges: Iterable[Gauge],
    common: tuple[str, str],
) -> None:
    """Adds a source's gauges to the families. ``common``: run and policy."""
    for gauge in gauges:
        family = families.setdefault(gauge.name, _family(gauge))
        for labels, value in gauge.samples:
            family.add_metric((*common, *labels), value)


def _family(gauge: Gauge) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        f"hosenet_{gauge.name}",
        gauge.help,
        labels=("run", "policy", *gauge.labels),
        unit=gauge.unit,
    )


def metrics_text(sources: Iterable[Measured]) -> bytes:
    """The text of a scrape."""
    # A registry of its own: the library's has metrics of this process too.
    registry = CollectorRegistry()
    registry.register(_Sources(sources))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text
