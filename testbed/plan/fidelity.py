"""Fidelity of a live run: judgements over measurements beside the jobs. Pure.

Each check gives a :class:`Finding` with its level, the reason in words and the
metrics behind it; the run's verdict is its worst finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from itertools import groupby
from math import ceil, inf, isfinite, nan, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.units import number_of

Floats = NDArray[np.float64]
Level = Literal["ok", "suspect", "invalid"]


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    level: Level
    check: str
    reason: str
    metrics: dict[str, float] = field(default_factory=dict)


JOB_SHARES = (0.015, 0.02)
"""Shares of a job's time that make it suspect, and invalid."""
# Values beyond which a run is suspect, and invalid; where the second is the
# lesser one, low values are bad. ``docs/runs-and-fidelity.md`` says what each
# was set from.
THRESHOLDS: dict[str, tuple[float, float]] = {
    "preflight": (0.9, 1.1),
    "starved class": (0.98, 0.9),
    "starved VM": (0.98, 0.9),
    "exceeded limit": (1.05, 1.10),
    "processor idle": (0.10, 0.02),
    "stolen time": (0.05, 0.15),
    "starved switch": (0.50, 0.90),
    "lateness": (0.5, 1.0),
    "missing traffic": JOB_SHARES,
    "outrun limit": JOB_SHARES,
    "late agent": JOB_SHARES,
    "standstill": JOB_SHARES,
    "late start": JOB_SHARES,
    "move": JOB_SHARES,
    "controller": JOB_SHARES,
}
KEPT_UP = 0.98
"""Share of their rates above which reserved transfers lacked nothing."""
QUEUE_S = 0.005
"""Time of its rate that the queue of a class that wants to send holds at least,
beside a packet.
"""
DELIVERED = 0.95
"""If a smaller share of the load test is delivered, the load is at least 1
over that share.
"""


def graded_finding(
    check: str,
    value: float,
    reason: str,
    metrics: dict[str, float] | None = None,
) -> Finding:
    """The finding of a check, by the thresholds of its name.

    ``metrics``: by default the value, as ``share``.
    """
    suspect, invalid = THRESHOLDS[check]
    # Where low values are bad the comparison is turned round.
    sign = 1
    if invalid < suspect:
        sign = -1
    level: Level = "ok"
    if sign * value > sign * suspect:
        level = "suspect"
    if sign * value > sign * invalid:
        level = "invalid"
    return Finding(level, check, reason, metrics or {"share": value})


@dataclass(frozen=True)
class ClassSamples:
    """Traffic classes over one sampling interval, a row for each.

    ``names``: the name of a row. ``rate_bps``: the lowest rate that the class
    was assured during the interval; ``most_bps``: the highest that it was
    allowed. ``sent_bps``: the rate at which it sent; NaN: unknown.
    ``queue_bytes``: its queue at the start or at the end of the interval,
    whichever is shorter. ``packet_bits``: its largest packet. ``packet_bps``:
    that packet over the interval. ``bucket_bps``: the part of its bucket
    beyond the usual size, over the interval.
    """

    names: Callable[[int], str]
    rate_bps: Floats
    sent_bps: Floats
    queue_bytes: Floats
    most_bps: Floats
    packet_bps: Floats
    packet_bits: Floats
    bucket_bps: Floats

    @property
    def backlogged(self) -> NDArray[np.bool_]:
        """Classes that wanted to send: their queue held over 5 ms of the rate.

        It must also hold more than one packet: a slow VM that keeps to its
        rate often has one queued.
        """
        least_bits = np.maximum(self.rate_bps * QUEUE_S, self.packet_bits)
        return self.known & (8 * self.queue_bytes > least_bits)

    @property
    def known(self) -> NDArray[np.bool_]:
        return np.isfinite(self.sent_bps)

    def where(self, rows: NDArray[np.bool_]) -> ClassSamples:
        """Some of the rows; names stay those of all."""
        columns = {}
        for column in fields(self):
            if column.name != "names":
                columns[column.name] = getattr(self, column.name)[rows]
        return replace(self, **columns)


def preflight(
    asked_bps: float,
    achieved_share: float,
    busy_share: float,
    scale_rate: float,
    taken_share: float = 0.0,
    lacking: Sequence[Finding] = (),
) -> Finding:
    """Load of the plan's busiest instant, from the load test before the jobs.

    ``asked_bps``: summed port load in bit/s; a bit counts at every port that
    it leaves (a transfer over five switches leaves six). ``achieved_share``:
    the slowest test transfer's estimate over its time. ``busy_share``: the
    share of all processors that the test kept busy. The load is ``busy_share``
    over the share that was delivered. The load at another rate does not follow
    from it (:func:`fitting_rate`). The CPU use of the switch's own thread is
    no measure: it polls, and is at 97 % when it forwards a third of what it
    can.

    ``taken_share``: the share of the processors that the test took from the
    network. If the network kept up on the rest, the load is at most that rest;
    if not, it is the rest over the share that was delivered. ``lacking``:
    findings that would make a run doubtful; with any, it did not keep up.
    """
    delivered = achieved_share
    for finding in lacking:
        delivered = min(delivered, finding.metrics.get("share", 1.0))
    # A test of which nothing arrived has a very large load, and not an
    # infinite one.
    delivered = min(1.0, max(delivered, 0.001))
    load = _tested_load(
        delivered, busy_share, taken_share, kept_up=not lacking
    )
    reason = (
        f"the plan asks the switches for {asked_bps / 1e6:.0f} Mbit/s of summed port load at its "
        f"peak; at scale.rate: {rate_text(scale_rate)} that is {load:.0%} of what this machine can"
        " do"
    )
    for finding in lacking:
        reason += f"; {finding.reason}"
    metrics = {
        "scale_rate": scale_rate,
        "asked_bps": asked_bps,
        "capable_bps": asked_bps / load,
        "load": load,
        "achieved_share": achieved_share,
        "busy_share": busy_share,
        "taken_share": taken_share,
    }
    return graded_finding("preflight", load, reason, metrics)


def _tested_load(
    delivered: float,
    busy_share: float,
    taken_share: float,
    *,
    kept_up: bool,
) -> float:
    """The load of a test as a share of what the machine can do."""
    load = max(busy_share - taken_share, 0.001) / delivered
    if taken_share:
        available = 1.0 - taken_share
        if delivered < KEPT_UP or not kept_up:
            # Also where all was delivered and something else lacked: the
            # load is then a little above what was left.
            return available / min(delivered, KEPT_UP)
        if busy_share > 1.0 - 2 * taken_share:
            # A switch that polls is as busy at half of this: no more is known
            # than that it fits.
            return available
        return load
    if delivered < DELIVERED:
        # Too little was delivered although the processors were not busy: this
        # is the measure then.
        return max(load, 1 / delivered)
    return load


def rate_text(rate: float) -> str:
    """A ``scale.rate`` in plain digits: an experiment file takes no 1e-05."""
    return f"{Decimal(f'{rate:g}'):f}"


def two_figures(rate: float) -> float:
    """The rate in two figures, as a person would write it."""
    return float(f"{rate:.2g}")


LARGEST_LOAD, _ = THRESHOLDS["preflight"]
"""The largest load of a rate that fits."""
MOST_TESTS = 8
"""Load tests of one search for a rate, at most."""
CLOSE = 1.12
"""The largest rate that fits is at most this many times the rate that is
returned, unless :data:`MOST_TESTS` is reached.
"""


def fitting_rate(
    test: Callable[[float], float],
    start: float,
    most: float,
    least: float,
    *,
    largest: bool,
) -> float | None:
    """A ``scale.rate`` from ``least`` to ``most`` whose tested load is ``ok``.

    The first that fits, or with ``largest`` nearly the largest that fits. None
    where no tested rate fits. ``start`` is tested first, then rates of two
    figures.

    Only a rate that was tested itself is returned, as the load is not
    proportional to the rate: a pass of the switch has a fixed cost, packets
    cost and not bytes, and an overload causes losses.
    """
    loads: dict[float, float] = {}
    fit = 0.0
    rate = start
    # A rate that comes up again brings nothing new.
    while rate not in loads and len(loads) < MOST_TESTS:
        loads[rate] = test(rate)
        fit, over = _bracket(loads)
        crossing, sure = _crossing(loads, fit)
        if fit and not largest:
            break
        if fit and _close_enough(
            loads[fit], fit, over, crossing, sure=sure
        ):
            break
        low, high = _next_range(
            fit, over, load_falls=sure or len(loads) == 1
        )
        # A little below the crossing: a rate just above it would not fit.
        wanted = two_figures(min(max(0.93 * crossing, low), high))
        # At two figures the next rate may be a tenth away.
        next_above = two_figures(1.06 * fit)
        rate = min(most, max(least, wanted, next_above))
    return fit or None


def _bracket(loads: Mapping[float, float]) -> tuple[float, float]:
    """The largest tested rate that fits (0: none does), and the least above it
    that does not (infinite: none was tested).
    """
    fit = 0.0
    for rate, load in loads.items():
        if load <= LARGEST_LOAD:
            fit = max(fit, rate)
    # Below one that fits a load above the limit was noise.
    over = min((rate for rate in loads if rate > fit), default=inf)
    return fit, over


def _close_enough(
    load: float, fit: float, over: float, crossing: float, *, sure: bool
) -> bool:
    """True if the largest rate that fits is near the limit.

    Its load may be near it, or a rate just above is known or expected not to
    fit.
    """
    if 0.97 * LARGEST_LOAD <= load < LARGEST_LOAD:
        return True
    if sure:
        return crossing <= CLOSE * fit
    return over <= CLOSE * fit


def _next_range(
    fit: float, over: float, *, load_falls: bool
) -> tuple[float, float]:
    """The range of the next rate to test.

    ``fit``: the largest rate that fits, 0 where none does; ``over``: the least
    above it that does not. ``load_falls``: the load has fallen with the rate so
    far.
    """
    if fit == 0.0:
        # Far down where the load did not fall with the rate.
        if load_falls:
            return over / 8, over * 0.8
        return over / 8, over * 0.4
    if over == inf:
        return 2 * fit, 8 * fit
    # Not at the ends, or the bracket would shrink by nearly nothing. Rates are
    # compared by how many times one is the other: it shrinks by powers.
    width = over / fit
    return fit * width**0.2, fit * width**0.8


def _crossing(
    loads: Mapping[float, float], fit: float
) -> tuple[float, bool]:
    """The rate at which the load would reach the limit, and True if sure.

    It is sure if it follows from the line through the two rates next to it.
    Where losses or noise leave no such line, it is in proportion to the rate
    whose load is nearest to the limit, and not sure. A load of exactly the
    limit only shows that its rate fits (:func:`_tested_load`): the result is
    midway to the next rate then, and not sure.
    """
    from_fit = [rate for rate in sorted(loads) if rate >= fit]
    if len(from_fit) > 1:
        low, high = from_fit[:2]
    else:
        low, high = sorted([*loads, 0.0])[-2:]
    if low and loads[low] == LARGEST_LOAD:
        return sqrt(low * high), False
    # Less of a rise may be noise, and above losses distort the load.
    if low and 1.05 * loads[low] < loads[high] <= 1.2 * LARGEST_LOAD:
        slope = (loads[high] - loads[low]) / (high - low)
        return low + (LARGEST_LOAD - loads[low]) / slope, True
    rate = min(loads, key=lambda tested: abs(loads[tested] - LARGEST_LOAD))
    return rate * LARGEST_LOAD / max(loads[rate], 0.01), False


class Starved:
    """A class that stays backlogged, yet sends too little of its rate.

    Two samples in a row count: one alone may be a bucket's.
    """

    check = "starved class"
    nothing = "no class stayed backlogged"
    phrase = "had a queue all the time and sent"
    whole = False
    """True: all time with a queue is judged as a whole, not in pairs."""
    too_much = False
    """True: sending over the rate is bad, with a queue or without."""

    def __init__(self) -> None:
        self._names: Callable[[int], str] = str
        # By column the rows of the samples, by row the sums over a streak:
        # samples, least rate, most rate, sent, allowance.
        self._streaks = np.zeros((5, 0))
        self._worst_share: float | None = None
        self._worst_name = ""
        if self.too_much:
            self._worst_share = 0.0

    def renumber(self, was: NDArray[np.int64]) -> None:
        """Gives row i the streak of row ``was[i]``; -1: a new row.

        Rows that are gone are judged.
        """
        all_rows = np.arange(self._streaks.shape[1])
        self._judge(self._streaks, np.setdiff1d(all_rows, was))
        # Index -1, of a new row, takes the last column: zeros.
        self._streaks = np.pad(self._streaks, ((0, 0), (0, 1)))[:, was]

    def take(
        self, samples: ClassSamples, of: NDArray[np.bool_] | None = None
    ) -> None:
        """Judges one more sample, of the rows in the mask ``of`` or of all.

        The streak of a row ends where nothing is known of the row.
        """
        self._names = samples.names
        counts = samples.backlogged
        if self.too_much:
            counts = samples.known
        if of is not None:
            counts = counts & of
        sample = self._sample(samples, counts)
        streaks = self._streaks + sample
        # A packet more or less is allowed once a streak, not once a sample.
        streaks[4] = np.maximum(self._streaks[4], sample[4])
        # A row that does not count now ends its streak, which is judged as
        # a whole.
        if self.whole:
            self._judge(self._streaks, np.flatnonzero(~counts))
            self._streaks = np.where(counts, streaks, 0.0)
        else:
            # The last sample and this one: pairs, whatever was before.
            self._judge(streaks, np.flatnonzero(counts))
            self._streaks = sample

    def _sample(
        self, samples: ClassSamples, counts: NDArray[np.bool_]
    ) -> Floats:
        """The rows of a streak, for one sample; 0 in the columns that do not
        count.
        """
        allowance_bps = samples.packet_bps
        # What a full bucket lets pass is no fault of the limit.
        if self.too_much:
            allowance_bps = allowance_bps + samples.bucket_bps
        rows = (
            np.ones(len(counts)),
            samples.rate_bps,
            samples.most_bps,
            samples.sent_bps,
            allowance_bps,
        )
        return np.where(counts, rows, 0.0)

    def _judge(self, streaks: Floats, rows: NDArray[np.int64]) -> None:
        """Keeps the worst share of these rows' streaks of two samples and more."""
        rows = rows[streaks[0, rows] > 1]
        if not len(rows):
            return
        _, rate, most, sent, allowance = streaks[:, rows]
        if self.too_much:
            shares = (sent - allowance) / most
            worst = int(np.argmax(shares))
        else:
            shares = (sent + allowance) / rate
            worst = int(np.argmin(shares))
        share = float(shares[worst])
        if self._is_worse(share):
            self._worst_share = share
            self._worst_name = self._names(int(rows[worst]))

    def _is_worse(self, share: float) -> bool:
        if self._worst_share is None:
            return True
        if self.too_much:
            return share > self._worst_share
        return share < self._worst_share

    def finding(self) -> Finding:
        """The judgement over all streaks; the last ones end here."""
        # Renumbered to no rows at all, every streak ends and is judged.
        self.renumber(np.zeros(0, dtype=np.int64))
        share = self._worst_share
        if share is None:
            return Finding("ok", self.check, self.nothing, {})
        reason = self.nothing
        if self._worst_name:
            reason = (
                f"{self._worst_name} {self.phrase} {share:.1%} of its rate"
            )
        return graded_finding(self.check, share, reason)


class CapLimited(Starved):
    """A VM's cap that sends too little of its rate while it has a queue.

    Only for cap-limited VMs: their queue at both ends of a sample lasts all
    the time in between. All time with a queue is judged as a whole.

    The reason: the cap's bucket holds 10 ms, and what would have been sent
    while a timer is later than that is lost for good. In a long job such a
    loss is small, while a wrong cap is wrong all the time.
    """

    check = "starved VM"
    nothing = "no VM's cap stayed backlogged"
    whole = True


class Exceeding(Starved):
    """A class that sends more than its rate.

    Over two samples a usual bucket adds three per cent. Allowed beyond that
    are a bucket that is larger to hold a large packet, and one packet that
    counts as a whole.
    """

    check = "exceeded limit"
    nothing = "no class was used for long"
    phrase = "sent"
    too_much = True


OTHERS = 0.5
"""Share used by others above which the processors are not the run's own."""
ENOUGH_PACKETS = 16
"""Packets of each VM that make their time on the way negligible."""


@dataclass(frozen=True)
class ProcessorSample:
    """Shares of all processors over a sample with jobs.

    ``steal``: stolen by a hypervisor. ``others``: used by others than the run.
    ``waited``: the share of the switch's time in which it waited for a
    processor.

    ``received``: the share (:class:`ReceivedShares`) of reserved transfers at
    their VMs' own caps, where nothing else ran. NaN: not known. ``unsettled``:
    not known only because they had just begun or were about to end.
    """

    idle: float
    steal: float
    others: float = nan
    waited: float = nan
    received: float = nan
    unsettled: bool = False


def _judged(
    samples: Sequence[ProcessorSample],
    values: Sequence[float],
    *,
    if_nothing_lacked: float,
) -> list[float]:
    """The samples' values; one that does not count is replaced.

    It does not count where the processors sufficed and were the run's own: a
    switch that polls uses all time that it gets, and takes more packets in a
    pass if it gets little, so that a lack of idle time proves no lack of
    processors. A stretch of unsettled samples is judged by the stretches on
    both sides, if these have at least as many samples; else it counts.
    """
    stretches = _stretches(samples)
    sufficed: list[bool] = []
    for at, (kept_up, length) in enumerate(stretches):
        if kept_up is None:
            neighbours = stretches[max(0, at - 1) : at]
            neighbours += stretches[at + 1 : at + 2]
            known_length = sum(length for _, length in neighbours)
            all_kept_up = all(kept_up for kept_up, _ in neighbours)
            sufficed += [all_kept_up and length <= known_length] * length
        else:
            sufficed += [kept_up] * length
    judged = list(values)
    for at, sample in enumerate(samples):
        # What is not known of others (NaN) is not below the threshold.
        if sufficed[at] and sample.others <= OTHERS:
            judged[at] = if_nothing_lacked
    return judged


def _stretches(
    samples: Sequence[ProcessorSample],
) -> list[tuple[bool | None, int]]:
    """Stretches of equal samples, as (kept up, number of samples).

    True: the VMs kept up; False: they did not; None: unsettled.
    """
    kept_up: list[bool | None] = []
    for sample in samples:
        if sample.unsettled:
            kept_up.append(None)
        else:
            kept_up.append(sample.received >= KEPT_UP)
    return [(value, len(list(alike))) for value, alike in groupby(kept_up)]


class ReceivedShares:
    """The share of their rates that VMs received, sample after sample.

    It is the share of all VMs together, or that of the worst tenant if less.
    It is taken over as many of the last samples as each VM needs to receive
    :data:`ENOUGH_PACKETS`: in one second a slow VM receives only a few. A
    tenant counts if it is in all of these samples: its first packets have
    arrived then. One packet of each VM may arrive a sample late: a tenant is
    allowed the square root of the sum of its packets' squares.
    """

    def __init__(self) -> None:
        # Seconds and, by tenant: bits received, bits at its rates, sum of
        # squares of its packets.
        self._recent: deque[tuple[float, dict[int, Floats]]] = deque()

    def take(
        self,
        tenants: NDArray[np.int64],
        interval_s: Floats,
        samples: ClassSamples,
    ) -> float:
        """Takes one sample more and returns the share; NaN: nothing known.

        ``tenants`` and ``interval_s`` are those of the sample's rows.
        """
        if not len(tenants):
            self._recent.clear()
            return nan
        packets_s = ENOUGH_PACKETS * samples.packet_bits / samples.rate_bps
        enough_s = packets_s.max()
        sums = self._sums_by_tenant(tenants, interval_s, samples)
        self._recent.append((interval_s.mean(), sums))
        self._forget_before(max(enough_s, 1e-9))
        # A tenant that has just come is left out until all kept samples
        # have it: its first packets are still on their way.
        known = [
            tenant
            for tenant in sums
            if all(tenant in earlier for _, earlier in self._recent)
        ]
        total_s = sum(length_s for length_s, _ in self._recent)
        if not known or total_s < enough_s:
            return nan
        late_packets = np.sqrt([sums[tenant][2] for tenant in known])
        return self._share(known, late_packets)

    def _share(self, tenants: Sequence[int], late_packets: Floats) -> float:
        """Of all together, or of the worst, over the samples that are kept."""
        by_sample = []
        for _, sums in self._recent:
            by_sample.append([sums[tenant] for tenant in tenants])
        received, rate, _ = np.sum(by_sample, axis=0).T
        share_of_all = received.sum() / rate.sum()
        worst_share = ((received + late_packets) / rate).min()
        return float(min(share_of_all, worst_share))

    @staticmethod
    def _sums_by_tenant(
        tenants: NDArray[np.int64],
        interval_s: Floats,
        samples: ClassSamples,
    ) -> dict[int, Floats]:
        """Bits received, bits at the rates, and packets' squares, by tenant."""
        numbers = np.flatnonzero(np.bincount(tenants))
        columns = (
            np.bincount(tenants, samples.sent_bps * interval_s),
            np.bincount(tenants, samples.rate_bps * interval_s),
            # Packets that are late by chance add up like deviations, by
            # their squares.
            np.bincount(tenants, samples.packet_bits**2),
        )
        sums = np.transpose(columns)[numbers]
        return dict(zip(numbers.tolist(), sums, strict=True))

    def _forget_before(self, needed_s: float) -> None:
        """Drops the oldest samples while the others last long enough."""
        lengths_s = [length_s for length_s, _ in self._recent]
        while sum(lengths_s[1:]) >= needed_s:
            self._recent.popleft()
            lengths_s.pop(0)


def processor(samples: Sequence[ProcessorSample]) -> list[Finding]:
    """Findings on idle shares and on stolen ones.

    Samples in which nothing lacked count as idle.
    """
    if not samples:
        return []
    idle = [sample.idle for sample in samples]
    low = quantile(idle, 0.1)
    graded = quantile(_judged(samples, idle, if_nothing_lacked=1.0), 0.1)
    busiest = f"in the busiest tenth of the time the processors were idle for at most {low:.0%}"
    if low < THRESHOLDS["processor idle"][0] <= graded:
        busiest += (
            ", by the run alone, and reserved VMs received at their rates"
        )
    metrics = {"idle_p10": low, "idle_mean": sum(idle) / len(idle)}
    metrics |= _medians(samples)
    return [
        graded_finding("processor idle", graded, busiest, metrics),
        _stolen(samples),
    ]


def _medians(samples: Sequence[ProcessorSample]) -> dict[str, float]:
    """Medians of what is known in some samples only."""
    metrics = {}
    for name in ("others", "received"):
        values = [getattr(sample, name) for sample in samples]
        known = [value for value in values if isfinite(value)]
        if known:
            metrics[f"{name}_p50"] = quantile(known, 0.5)
    return metrics


def _stolen(samples: Sequence[ProcessorSample]) -> Finding:
    stolen = sum(sample.steal for sample in samples) / len(samples)
    taken = f"the hypervisor took {stolen:.1%} of the processors' time for others"
    return graded_finding(
        "stolen time", stolen, taken, {"steal_mean": stolen}
    )


def switch(samples: Sequence[ProcessorSample]) -> list[Finding]:
    """A finding on the switch's wait for a processor.

    Samples in which nothing lacked count as without a wait. While the switch
    waits it forwards nothing: packets that arrive wait too, or are lost before
    they reach a class that would count them.
    """
    known = [sample for sample in samples if isfinite(sample.waited)]
    if not known:
        return []
    waited = [sample.waited for sample in known]
    high = quantile(waited, 0.9)
    graded = quantile(_judged(known, waited, if_nothing_lacked=0.0), 0.9)
    reason = f"the switch waited for a processor for {high:.0%} of the time, in the worst tenth"
    if high > THRESHOLDS["starved switch"][0] >= graded:
        reason += ", and reserved VMs received at their rates"
    metrics = {"waited_p90": high, "waited_mean": sum(waited) / len(waited)}
    return [graded_finding("starved switch", graded, reason, metrics)]


def leaks(
    unclassified: Mapping[str, int],
    drops: Mapping[str, int],
    full: Mapping[str, int] | None = None,
) -> list[Finding]:
    """Findings on packets past the limits and on drops, both counted by port.

    ``full``: of the drops, those of classes that were full of their tenant's
    own traffic.
    """
    return [_unshaped(unclassified), _dropped(drops, full or {})]


def _unshaped(counts: Mapping[str, int]) -> Finding:
    packets = sum(counts.values())
    level: Level = "ok"
    reason = "every packet was in a class"
    if packets:
        level = "invalid"
        unshaped = number_of(packets, "packet")
        reason = f"{unshaped} left without a class (unshaped) at {_ports(counts)}"
    return Finding(level, "unshaped packets", reason, {"packets": packets})


def _dropped(counts: Mapping[str, int], full: Mapping[str, int]) -> Finding:
    doubtful = {}
    expected = {}
    for port, count in counts.items():
        expected[port] = min(count, full.get(port, 0))
        doubtful[port] = count - expected[port]
    packets = sum(doubtful.values())
    level: Level = "ok"
    reasons = []
    if packets:
        level = "suspect"
        dropped = number_of(packets, "packet was", "packets were")
        reasons.append(
            f"{dropped} dropped at {_ports(doubtful, most=6)}, "
            "where a hose within its limits drops none"
        )
    n_expected = sum(expected.values())
    if n_expected:
        dropped = number_of(n_expected, "packet was", "packets were")
        reasons.append(
            f"{dropped} dropped by full reservations, where several VMs "
            f"sent to one, at {_ports(expected, most=6)}"
        )
    reason = "; ".join(reasons) or "no packet was dropped between the VMs"
    metrics: dict[str, float] = {"packets": packets, "full": n_expected}
    return Finding(level, "drops", reason, metrics)


def _ports(counts: Mapping[str, int], most: int | None = None) -> str:
    ports = sorted(port for port, count in counts.items() if count)
    return ", ".join(ports[:most])


def quantile(values: Sequence[float], q: float) -> float:
    """The least value that a share ``q`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(q * len(ordered)) - 1)]
