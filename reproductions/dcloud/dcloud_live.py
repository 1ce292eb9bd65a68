"""DCloud's Figure 11: a day of arrivals on 16 servers, measured on the live
network; and a part of that day on a fat-tree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from reproductions.configuration import Variant
from reproductions.dcloud.dcloud_scaling import FAT_TREE
from reproductions.grid_quantities import Measure, Measures
from reproductions.interpretations import DCLOUD as INTERPRETATION
from reproductions.live_figure import (
    BESIDE,
    FIDELITY,
    MEDIAN,
    P95,
    SLOTS,
    SUCCESS,
    WORST,
    Curve,
    Curves,
    LiveFigure,
    last_arrival_s,
    mean_until,
    simulated,
    slots_in_use,
)
from reproductions.published_figure import Panel
from testbed import events
from testbed.record.metrics import JobRow
from testbed.record.reading import RecordedRun

DCLOUD = "DCloud"
VC = "VC"
BL = "BL"
POLICIES = {DCLOUD: "dcloud", VC: "vc", BL: "bl"}
AS_G = (
    # Durations as in every figure; slower, since many are short.
    ("workload.duration", "{mean: 1 h}"),
    ("scale.time", "300"),
)
X = 10.0
XS = (X,)
HOUR_S = 3600.0
HOURS = 24
# Deadline over finish time.
MUCH_EARLIER = 5.0

EARLY = Measure(
    "early",
    "jobs that end in a fifth of the time to their deadline",
    unit="%",
    factor=100.0,
)
TRAFFIC = Measure(
    "traffic_day",
    "traffic among VMs in the hours of arrivals, of the servers' links",
    unit="%",
    factor=100.0,
)


def deadline_over_finish(run: RecordedRun) -> Curve:
    """Figure 11(a): by ratio of deadline to finish time, the share of jobs at
    or below it.
    """
    ratios = sorted(map(_ratio, run.rows))
    points = []
    for number, ratio in enumerate(ratios, 1):
        points.append((ratio, 100.0 * number / len(ratios)))
    return points


def _ratio(row: JobRow) -> float:
    """0 where the job was not accepted, or did not finish (BL kills it at its
    deadline).
    """
    if row.response_s is None or row.deadline_s is None:
        return 0.0
    return row.deadline_s / row.response_s


def slots_by_hour(run: RecordedRun) -> Curve:
    """Figure 11(b): the share of VM slots in use, the mean of every hour."""
    return _by_hour(slots_in_use(run))


def _by_hour(curve: Curve) -> Curve:
    """The mean of every hour of the day, in percent."""
    points = []
    percent = 0.0
    # The mean over all hours so far, times their number.
    until = 0.0
    for hour in range(1, HOURS + 1):
        before = until
        until = hour * mean_until(curve, hour * HOUR_S)
        percent = 100.0 * (until - before)
        points.append((float(hour - 1), percent))
    # The last step lasts until the end of the day.
    points.append((float(HOURS), percent))
    return points


def traffic_among_vms(run: RecordedRun) -> Curve:
    """The traffic that jobs' VMs receive, as a share of what the servers' links
    carry, from every change on.

    A job sends evenly from its start to its end. The share that an unfinished
    job had received is known on the live network alone; simulated, it counts as
    nothing.
    """
    shares = {}
    for event in run.file.events:
        if isinstance(event, events.JobProgress):
            # The last one counts.
            shares[event.job_id] = event.share
    changes: defaultdict[float, float] = defaultdict(float)
    for row in run.rows:
        # A single VM sends to no other.
        if row.start_s is None or row.end_s is None or row.n_vms < 2:
            continue
        share = shares.get(row.job_id, 0.0)
        if row.outcome == "finished":
            share = 1.0
        running_s = row.end_s - row.start_s
        if running_s <= 0:
            continue
        bits = share * row.n_vms * row.requested_bps * row.duration_s
        changes[row.start_s] += bits / running_s
        changes[row.end_s] -= bits / running_s
    capacity_bps = _server_links_bps(run)
    points = [(0.0, 0.0)]
    sent_bps = 0.0
    for at_s, change_bps in sorted(changes.items()):
        sent_bps += change_bps
        points.append((at_s, sent_bps / capacity_bps))
    return points


def _server_links_bps(run: RecordedRun) -> float:
    """The capacity of all servers' own links, one way."""
    topology = run.started.topology
    links = topology["links"]
    n_servers = len(topology["slots"])
    total_bps = 0.0
    # Servers have the lowest numbers of all nodes.
    for lower, bps in zip(
        links["lower"], links["capacity_bps"], strict=True
    ):
        if lower < n_servers:
            total_bps += bps
    return total_bps


def measures(run: RecordedRun) -> Measures:
    """Jobs that end much earlier than they must, and traffic among VMs."""
    early = math.nan
    if run.rows:
        n_early = sum(_ratio(row) >= MUCH_EARLIER for row in run.rows)
        early = n_early / len(run.rows)
    until_s = last_arrival_s(run)
    return {
        EARLY.name: early,
        TRAFFIC.name: mean_until(traffic_among_vms(run), until_s),
    }


def traffic_by_hour(run: RecordedRun) -> Curve:
    """Traffic among VMs, the mean of every hour."""
    return _by_hour(traffic_among_vms(run))


def _variant(series: str, x: float, quick: bool) -> Variant:  # noqa: ARG001 - one x
    settings = (*INTERPRETATION.settings, *AS_G)
    if quick:
        settings = (*settings, ("workload.hours", "2"))
    entry = INTERPRETATION.entry(POLICIES[series])
    return Variant("dcloud/dcloud-fig11.yaml", entry, settings)


def _on_a_fat_tree(series: str, x: float, quick: bool) -> Variant:
    of_day = _variant(series, x, quick)
    hours = "2" if quick else "8"
    part_of_day = ("workload.hours", hours)
    settings = (*of_day.settings, *FAT_TREE, part_of_day)
    return replace(of_day, settings=settings)


CURVES = (
    Curves(
        title="share of jobs [%]",
        x_label="deadline / finish time, at most",
        curve=deadline_over_finish,
        x=X,
        limits=(0.0, 20.0),
    ),
    Curves(
        title="VM slots in use, by hour [%]",
        x_label="time [h]",
        curve=slots_by_hour,
        x=X,
        limits=(0.0, 24.0),
    ),
    Curves(
        title="traffic among VMs, by hour [% of the servers' links]",
        x_label="time [h]",
        curve=traffic_by_hour,
        x=X,
        limits=(0.0, 24.0),
    ),
)
PRINTED = (
    SUCCESS,
    simulated(SUCCESS),
    SLOTS,
    simulated(SLOTS),
    MEDIAN,
    P95,
    WORST,
    FIDELITY,
)

FIGURE_11 = LiveFigure(
    name="dcloud-fig11",
    title="A day of arrivals on 16 servers",
    source="DCloud, Fig. 11",
    x_label="jobs an hour",
    xs=XS,
    series=(DCLOUD, VC, BL),
    variant=_variant,
    own=measures,
    curves=CURVES,
    panels=(
        Panel(SUCCESS),
        Panel(SLOTS),
        Panel(TRAFFIC),
        Panel(EARLY),
        Panel(simulated(SUCCESS)),
        Panel(simulated(SLOTS)),
    ),
    also=(*BESIDE, simulated(EARLY), simulated(TRAFFIC)),
    printed=PRINTED,
    size=(
        "16 servers of 2 VMs, every link 1 Gbit/s, 4:1; 24 h of arrivals, "
        "live"
    ),
    quick_size="the same with 2 h of arrivals, live",
    seeds=1,
)

FIGURE_11_FAT_TREE = LiveFigure(
    name="dcloud-fig11-fat-tree",
    title="Arrivals on 16 servers of a fat-tree",
    source="DCloud, Fig. 11",
    x_label="jobs an hour",
    xs=XS,
    series=(DCLOUD, VC),
    variant=_on_a_fat_tree,
    own=measures,
    panels=(
        Panel(SUCCESS),
        Panel(SLOTS),
        Panel(TRAFFIC),
        Panel(simulated(SUCCESS)),
        Panel(simulated(SLOTS)),
    ),
    also=(*BESIDE, simulated(TRAFFIC)),
    printed=PRINTED,
    size=(
        "fat-tree of 16 servers of 2 VMs, every link 1 Gbit/s; 8 h of "
        "arrivals, live"
    ),
    quick_size="the same with 2 h of arrivals, live",
    reduced=(
        "8 hours of arrivals, and a network that the paper does not have."
    ),
    seeds=1,
)
