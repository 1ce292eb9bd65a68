"""Gauges of runs and of the network that is up, for ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.web.page_layout import PageLayout
from testbed.web.run_state import NOT_JUDGED, RunState

BIT_RATE = "bits_per_second"
LEVELS = ("ok", "suspect", "invalid")

LabelValues = tuple[str, ...]


@dataclass(frozen=True)
class Gauge:
    """A gauge with its samples. ``name`` is without the unit."""

    name: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    samples: list[tuple[LabelValues, float]] = field(default_factory=list)

    def add(self, value: float, *labels: str) -> None:
        self.samples.append((labels, float(value)))


def run_gauges(state: RunState) -> Iterator[Gauge]:
    """Gauges of a run up to its last event."""
    totals = state.totals()
    yield _single("time", "seconds", "The run's own clock.", state.now_s)
    yield _jobs(state, totals)
    yield _slots_used(totals["slots_used"])
    if state.layout is not None:
        yield _slots(sum(node.slots for node in state.layout.nodes))
        yield from _link_gauges(state.layout, _link_rates(state))
    yield _fidelity(state)
    yield from _failures(state)


def _single(name: str, unit: str, text: str, value: float) -> Gauge:
    gauge = Gauge(name, unit, text)
    gauge.add(value)
    return gauge


def _slots(slots: float) -> Gauge:
    return _single("vm_slots", "", "VM slots of all servers.", slots)


def _slots_used(slots: float) -> Gauge:
    return _single("vm_slots_used", "", "VM slots that jobs take.", slots)


def _jobs(state: RunState, totals: Mapping[str, float]) -> Gauge:
    jobs = Gauge("jobs", "", "Jobs by state.", ("state",))
    for name in ("running", "waiting"):
        jobs.add(totals[name], name)
    # By name, so that an outcome without jobs is a series at 0: a graph of
    # one that begins in mid-run shows no increase.
    for outcome in ("finished", "rejected", "killed", "unfinished"):
        jobs.add(state.ended[outcome], outcome)
    return jobs


def _link_rates(state: RunState) -> dict[str, NDArray[np.float64]]:
    """Rates by directed link; a simulated run has no sent ones."""
    rates = {"reserved": state.reserved_bps()}
    sent = state.sent_bps()
    if sent is not None:
        rates["sent"] = sent
    return rates


_RATES = {
    "capacity": "The most that a directed link carries.",
    "reserved": "Bandwidth reserved on a directed link.",
    "sent": "Rate sent on a directed link over the last sample.",
}


def _link_gauges(
    layout: PageLayout, rates: Mapping[str, NDArray[np.float64]]
) -> Iterator[Gauge]:
    """Rates of the links that the page draws. A rack's links are drawn as one, with
    the rate of the fullest.
    """
    capacity_bps = layout.drawn_capacity_bps
    # As on the page, there are no links of 8,000 servers. The rate of a rack's
    # fullest link is its share times its capacity.
    drawn = {"capacity": capacity_bps}
    for name, rates_bps in rates.items():
        drawn[name] = layout.shares(rates_bps) * capacity_bps
    links = layout.directed_names()
    for name, of_links in drawn.items():
        gauge = Gauge(f"link_{name}", BIT_RATE, _RATES[name], ("link",))
        for link, rate_bps in zip(links, of_links.tolist(), strict=True):
            gauge.add(rate_bps, link)
        yield gauge


def _fidelity(state: RunState) -> Gauge:
    text = "1 at the level of fidelity of a live run, judged at its end."
    gauge = Gauge("fidelity", "", text, ("level",))
    verdict = state.fidelity()
    if verdict is not None:
        # OpenMetrics has no values of words: a series for each level, of
        # which one is 1.
        for level in (*LEVELS, NOT_JUDGED):
            gauge.add(level == verdict, level)
    return gauge


def _parts_down() -> Gauge:
    return Gauge("parts_down", "", "Failed parts by kind.", ("part",))


def _failures(state: RunState) -> Iterator[Gauge]:
    down = _parts_down()
    for kind in ("link", "server"):
        down.add(sum(part == kind for part, _ in state.down), kind)
    yield down
    restarts = Gauge(
        "restarts", "", "Restarts in this run by part.", ("part",)
    )
    restarts.add(state.controller_kills, "controller")
    restarts.add(state.switch_restarts, "switch")
    yield restarts


_OF_TENANTS = {
    "reserved_bps": (
        "tenant_reserved",
        BIT_RATE,
        "Sum of the bandwidths of a tenant's VMs.",
    ),
    "sent_bps": ("tenant_sent", BIT_RATE, "Rate that has left its VMs."),
    "queued_bytes": ("tenant_queued", "bytes", "Queued at its limits."),
}


def network_gauges(
    layout: PageLayout, last: Mapping[str, Any]
) -> Iterator[Gauge]:
    """Gauges of the network that is up, by the last line of its feed."""
    rates = {
        "reserved": np.array(last["reserved_bps"], float),
        "sent": np.array(last["sent_bps"], float),
    }
    yield from _link_gauges(layout, rates)
    yield _slots(last["slots"])
    yield _slots_used(last["slots_taken"])
    yield from _tenant_gauges(last["tenants"], last["interval_s"])
    down = _parts_down()
    down.add(len(last.get("down", ())), "link")
    yield down
    yield _switch_parts(last)


def _tenant_gauges(
    tenants: Sequence[Mapping[str, Any]], interval_s: float
) -> Iterator[Gauge]:
    """Gauges by tenant; 0 for a tenant that came since the last sample."""
    for key, (name, unit, text) in _OF_TENANTS.items():
        gauge = Gauge(name, unit, text, ("tenant",))
        for tenant in tenants:
            gauge.add(tenant.get(key, 0.0), tenant["name"])
        yield gauge
    dropped = Gauge(
        "tenant_dropped",
        "packets_per_second",
        "Packets dropped at a tenant's limits.",
        ("tenant",),
    )
    for tenant in tenants:
        # The feed counts over an interval, which a busy machine stretches.
        packets = tenant.get("dropped", 0)
        dropped.add(packets / interval_s, tenant["name"])
    yield dropped


def _switch_parts(last: Mapping[str, Any]) -> Gauge:
    parts = Gauge(
        "switch_part_up",
        "",
        "1 for an Open vSwitch whose process lives.",
        ("part",),
    )
    for switch in last.get("switches", ()):
        parts.add(switch["forwards"], switch["name"])
    return parts
