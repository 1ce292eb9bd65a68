"""Fidelity of a live run, by measurements taken while its jobs run. Pure.

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
# By check, the values beyond which a run is suspect, and invalid. If the second
# is the lower one, low values are bad. Their origin: docs/runs-and-fidelity.md.
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
"""Share of its rate from which on a reserved transfer counts as undelayed."""
QUEUE_S = 0.005
"""Least queue of a backlogged class, in s at the class's rate. It must also
exceed one packet.
"""
DELIVERED = 0.95
"""If a load test delivered a smaller share than this, its load is at least 1 over
the share that it delivered.
"""


def graded_finding(
    check: str,
    value: float,
    reason: str,
    metrics: dict[str, float] | None = None,
) -> Finding:
    """The finding of a check, graded by its entry in :data:`THRESHOLDS`.

    ``metrics``: by default ``{"share": value}``.
    """
    suspect, invalid = THRESHOLDS[check]
    # Negated, low values are compared as high ones.
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

    - ``names``: returns the name of the class in a row.
    - ``rate_bps``: the lowest rate assured to it during the interval;
      ``most_bps``: the highest rate allowed to it.
    - ``sent_bps``: the rate at which it sent; NaN: unknown.
    - ``queue_bytes``: its queue at the interval's start or end, the shorter.
    - ``packet_bits``: its largest packet; ``packet_bps``: the rate of one such
      packet an interval.
    - ``bucket_bps``: the rate of one bucket an interval, counting only what the
      bucket holds beyond the usual size.
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
        """Mask of the classes that wanted to send more.

        Their queue exceeds :data:`QUEUE_S` at their rate, and one packet: a
        slow VM that keeps to its rate often has one queued.
        """
        least_bits = np.maximum(self.rate_bps * QUEUE_S, self.packet_bits)
        return self.known & (8 * self.queue_bytes > least_bits)

    @property
    def known(self) -> NDArray[np.bool_]:
        return np.isfinite(self.sent_bps)

    def where(self, rows: NDArray[np.bool_]) -> ClassSamples:
        """The samples of some rows. ``names`` still takes the old row numbers."""
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
    """The finding on a load test of the plan's busiest instant.

    - ``asked_bps``: summed port load in bit/s; a bit counts at every port that
      it leaves (a transfer over five switches leaves six).
    - ``achieved_share``: the slowest test transfer's estimate over its time.
    - ``busy_share``: the share of all processors that the test kept busy.
    - ``taken_share``: the share of all processors that the test withheld from
      the network.
    - ``lacking``: findings of the test that would make a run suspect or
      invalid; with any, the network did not keep up.

    The load is ``busy_share`` over the delivered share. With a ``taken_share``,
    it is at most the rest of the processors if the network kept up on that
    rest, else the rest over the delivered share. The load at another rate does
    not follow from it (:func:`fitting_rate`). The CPU use of the switch's own
    thread is no measure: it polls, and is at 97 % when it forwards a third of
    what it can.
    """
    delivered = achieved_share
    for finding in lacking:
        delivered = min(delivered, finding.metrics.get("share", 1.0))
    # If nothing arrived the load is very large, but finite.
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
    if not taken_share:
        if delivered < DELIVERED:
            # Idle processors prove nothing if too little was delivered.
            return max(load, 1 / delivered)
        return load
    available = 1.0 - taken_share
    if delivered < KEPT_UP or not kept_up:
        # If something else than delivery was amiss, the load is a little above
        # what was available.
        return available / min(delivered, KEPT_UP)
    if busy_share > 1.0 - 2 * taken_share:
        # A switch that polls is as busy at half this load. All that is known
        # is that the load fits.
        return available
    return load


def rate_text(rate: float) -> str:
    """A ``scale.rate`` without an exponent, as experiment files take none."""
    return f"{Decimal(f'{rate:g}'):f}"


def two_figures(rate: float) -> float:
    """The rate, rounded to two significant figures."""
    return float(f"{rate:.2g}")


LARGEST_LOAD, _ = THRESHOLDS["preflight"]
"""Largest load at which a rate fits."""
MOST_TESTS = 8
"""Largest number of load tests in one search for a rate."""
CLOSE = 1.12
"""Precision of the search: the largest rate that fits is at most the returned
rate times this, unless :data:`MOST_TESTS` is reached.
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

    It is the first tested rate that fits, or with ``largest`` nearly the
    largest rate that fits; None if no tested rate does. ``test`` returns a
    rate's load. ``start`` is tested first, then rates of two significant
    figures.

    Only a rate that was tested itself is returned, as the load is not
    proportional to the rate: a pass of the switch has a fixed cost, packets
    have a cost and not bytes, and an overload causes losses.
    """
    loads: dict[float, float] = {}
    fit = 0.0
    rate = start
    # The search is over when it comes back to a tested rate.
    while rate not in loads and len(loads) < MOST_TESTS:
        loads[rate] = test(rate)
        fit, over = _bracket(loads)
        crossing, interpolated = _crossing(loads, fit)
        if fit and not largest:
            break
        if fit and _close_enough(
            loads[fit], fit, over, crossing, interpolated=interpolated
        ):
            break
        low, high = _next_range(
            fit, over, load_falls=interpolated or len(loads) == 1
        )
        # The aim is a little below the crossing, as above it no rate fits.
        wanted = two_figures(min(max(0.93 * crossing, low), high))
        # 1.06: at two figures the next rate may be a tenth higher.
        next_above = two_figures(1.06 * fit)
        rate = min(most, max(least, wanted, next_above))
    return fit or None


def _bracket(loads: Mapping[float, float]) -> tuple[float, float]:
    """The largest tested rate that fits (0: none does), and the next higher
    tested rate, which does not (infinite: none was tested).
    """
    fit = 0.0
    for rate, load in loads.items():
        if load <= LARGEST_LOAD:
            fit = max(fit, rate)
    # Lower rates that did not fit are ignored: their loads were noise.
    over = min((rate for rate in loads if rate > fit), default=inf)
    return fit, over


def _close_enough(
    load: float,
    fit: float,
    over: float,
    crossing: float,
    *,
    interpolated: bool,
) -> bool:
    """True if ``fit``, whose load is ``load``, is nearly the largest rate that
    fits.

    Either its load is near the limit, or a rate just above does not fit, by the
    interpolated crossing or else by a test.
    """
    if 0.97 * LARGEST_LOAD <= load < LARGEST_LOAD:
        return True
    if interpolated:
        return crossing <= CLOSE * fit
    return over <= CLOSE * fit


def _next_range(
    fit: float, over: float, *, load_falls: bool
) -> tuple[float, float]:
    """Lowest and highest rate that may be tested next.

    ``fit`` and ``over``: see :func:`_bracket`. ``load_falls``: lower rates have
    had lower loads so far.
    """
    if fit == 0.0:
        # If a lower rate was no help, the next one is much lower.
        if load_falls:
            return over / 8, over * 0.8
        return over / 8, over * 0.4
    if over == inf:
        return 2 * fit, 8 * fit
    # The inner 60 % on a logarithmic scale: a rate near an end would hardly
    # narrow the bracket.
    width = over / fit
    return fit * width**0.2, fit * width**0.8


def _crossing(
    loads: Mapping[float, float], fit: float
) -> tuple[float, bool]:
    """The rate at which the load would reach the limit, and True if it was
    interpolated.

    It is interpolated by the line through the two rates next to it. If losses
    or noise leave no such line, the load is taken as proportional to the rate,
    from the rate whose load is nearest to the limit. A load of exactly the
    limit only shows that its rate fits (:func:`_tested_load`): the result is
    then the geometric mean of this rate and the next one.
    """
    from_fit = [rate for rate in sorted(loads) if rate >= fit]
    if len(from_fit) > 1:
        low, high = from_fit[:2]
    else:
        low, high = sorted([*loads, 0.0])[-2:]
    if low and loads[low] == LARGEST_LOAD:
        return sqrt(low * high), False
    # A rise below 5 % may be noise, and losses distort a load far above.
    if low and 1.05 * loads[low] < loads[high] <= 1.2 * LARGEST_LOAD:
        slope = (loads[high] - loads[low]) / (high - low)
        return low + (LARGEST_LOAD - loads[low]) / slope, True
    rate = min(loads, key=lambda tested: abs(loads[tested] - LARGEST_LOAD))
    return rate * LARGEST_LOAD / max(loads[rate], 0.01), False


class Starved:
    """Check for classes that stay backlogged, yet send less than their rate.

    A *streak* is a row's series of samples that count, without a gap. Single
    samples are not judged, as a bucket may distort them.
    """

    check = "starved class"
    ok_reason = "no class stayed backlogged"
    phrase = "had a queue all the time and sent"
    judges_whole_streaks = False
    """True: streaks are judged as a whole; False: each pair of successive
    samples.
    """
    is_upper_limit = False
    """True: sending more than the rate is bad, and samples without a queue
    count.
    """

    def __init__(self) -> None:
        self._names: Callable[[int], str] = str
        # A column for each class. The rows are sums over its streak: number
        # of samples, rate_bps, most_bps, sent_bps; and its largest allowance.
        self._streaks = np.zeros((5, 0))
        self._worst_share: float | None = None
        self._worst_name = ""
        if self.is_upper_limit:
            self._worst_share = 0.0

    def renumber(self, earlier_rows: NDArray[np.int64]) -> None:
        """Gives row i the streak of the row that was ``earlier_rows[i]``; -1: a
        new row.

        The streaks of rows that are gone end and are judged.
        """
        all_rows = np.arange(self._streaks.shape[1])
        self._judge(self._streaks, np.setdiff1d(all_rows, earlier_rows))
        # Index -1, of a new row, takes the last column: zeros.
        self._streaks = np.pad(self._streaks, ((0, 0), (0, 1)))[
            :, earlier_rows
        ]

    def take(
        self, samples: ClassSamples, mask: NDArray[np.bool_] | None = None
    ) -> None:
        """Judges one more sample of the rows in ``mask``; None: of all rows.

        The streak of any other row ends, as does that of a row of which nothing
        is known.
        """
        self._names = samples.names
        counts = samples.backlogged
        if self.is_upper_limit:
            counts = samples.known
        if mask is not None:
            counts = counts & mask
        sample = self._sample(samples, counts)
        streaks = self._streaks + sample
        # A packet more or less is allowed once a streak, not once a sample.
        streaks[4] = np.maximum(self._streaks[4], sample[4])
        if self.judges_whole_streaks:
            # Where the row does not count now, its streak has ended.
            self._judge(self._streaks, np.flatnonzero(~counts))
            self._streaks = np.where(counts, streaks, 0.0)
        else:
            # Only the last sample is kept, so that streaks are pairs.
            self._judge(streaks, np.flatnonzero(counts))
            self._streaks = sample

    def _sample(
        self, samples: ClassSamples, counts: NDArray[np.bool_]
    ) -> Floats:
        """A sample in the form of ``_streaks``; 0 for classes that do not
        count.
        """
        allowance_bps = samples.packet_bps
        # What a full bucket lets pass is no fault of the limit.
        if self.is_upper_limit:
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
        """Keeps the worst share of these classes, of streaks of two samples or
        more.
        """
        rows = rows[streaks[0, rows] > 1]
        if not len(rows):
            return
        _, rate, most, sent, allowance = streaks[:, rows]
        if self.is_upper_limit:
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
        if self.is_upper_limit:
            return share > self._worst_share
        return share < self._worst_share

    def finding(self) -> Finding:
        """The finding over all streaks; the present ones end here."""
        # No row is left, so every streak ends and is judged.
        self.renumber(np.zeros(0, dtype=np.int64))
        share = self._worst_share
        if share is None:
            return Finding("ok", self.check, self.ok_reason, {})
        reason = self.ok_reason
        if self._worst_name:
            reason = (
                f"{self._worst_name} {self.phrase} {share:.1%} of its rate"
            )
        return graded_finding(self.check, share, reason)


class CapLimited(Starved):
    """Check for VMs' caps that send less than their rate while they have a
    queue.

    It is for cap-limited VMs only: a queue of theirs at both ends of a sample
    has lasted all the time in between.

    Streaks are judged as a whole. The cap's bucket holds 10 ms: if a timer is
    later than that, the sending time beyond 10 ms is lost for good. In a long
    job such a loss is small, while a wrong cap is wrong all the time.
    """

    check = "starved VM"
    ok_reason = "no VM's cap stayed backlogged"
    judges_whole_streaks = True


class Exceeding(Starved):
    """Check for classes that send more than their rate.

    The thresholds allow for a bucket of the usual size, which adds 3 % over two
    samples. Not counted are one packet, and what a bucket holds beyond the
    usual size to fit a large packet.
    """

    check = "exceeded limit"
    ok_reason = "no class was used for long"
    phrase = "sent"
    is_upper_limit = True


OTHERS = 0.5
"""Share of the processors used by others above which they are not the run's
own.
"""
ENOUGH_PACKETS = 16
"""Number of packets of each VM over which their time on the way is negligible.
"""


@dataclass(frozen=True)
class ProcessorSample:
    """Use of the processors over a sample with jobs, as shares; NaN: not known.

    - ``idle``, ``steal`` (stolen by a hypervisor) and ``others`` (used by other
      programs than the run's): of all processors.
    - ``waited``: of the switch's time, the share in which it waited for a
      processor.
    - ``received``: the share of their rates that VMs received
      (:class:`ReceivedShares`), known only if all jobs were cap-limited.
    - ``unsettled``: ``received`` is not known only because jobs had just begun
      or were about to end.
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
    """The samples' values, with ``if_nothing_lacked`` for each sample in which
    the processors sufficed and were the run's own.

    Such a sample's value proves no lack of processors: a switch that polls uses
    all time that it gets, and takes more packets in a pass if it gets little.

    In a stretch of unsettled samples the processors sufficed if they did so in
    the stretches on both sides, and these have at least as many samples.
    """
    stretches = _stretches(samples)
    sufficed: list[bool] = []
    for at, (kept_up, length) in enumerate(stretches):
        if kept_up is None:
            neighbours = stretches[max(0, at - 1) : at]
            neighbours += stretches[at + 1 : at + 2]
            known_length = sum(count for _, count in neighbours)
            all_kept_up = all(value for value, _ in neighbours)
            sufficed += [all_kept_up and length <= known_length] * length
        else:
            sufficed += [kept_up] * length
    judged = list(values)
    for at, sample in enumerate(samples):
        # False for NaN: unknown programs may have used the processors.
        if sufficed[at] and sample.others <= OTHERS:
            judged[at] = if_nothing_lacked
    return judged


def _stretches(
    samples: Sequence[ProcessorSample],
) -> list[tuple[bool | None, int]]:
    """Stretches of successive samples that are alike: (kept up, number of samples).

    Kept up: True if the VMs received at their rates, False if not or if that is
    not known, None if the samples are unsettled.
    """
    kept_up: list[bool | None] = []
    for sample in samples:
        if sample.unsettled:
            kept_up.append(None)
        else:
            kept_up.append(sample.received >= KEPT_UP)
    return [(value, len(list(alike))) for value, alike in groupby(kept_up)]


class ReceivedShares:
    """The share of their rates that VMs received, over the latest samples.

    It is the share of all VMs together, or that of the worst tenant if lower.
    The latest samples are as many as each VM needs to receive
    :data:`ENOUGH_PACKETS`: in one second a slow VM receives only a few. Only
    tenants in all of these samples count, as the first packets of others may be
    on their way. One packet of each VM may arrive a sample late: to a tenant's
    traffic is added the square root of the sum of its packets' squares.
    """

    def __init__(self) -> None:
        # For each sample its length in s, and the sums by tenant
        # (_sums_by_tenant).
        self._recent: deque[tuple[float, dict[int, Floats]]] = deque()

    def take(
        self,
        tenants: NDArray[np.int64],
        interval_s: Floats,
        samples: ClassSamples,
    ) -> float:
        """Takes one more sample and returns the share; NaN: not known.

        ``tenants`` and ``interval_s``: of each row of ``samples``, the tenant's
        number and the time since its last count.
        """
        if not len(tenants):
            self._recent.clear()
            return nan
        packets_s = ENOUGH_PACKETS * samples.packet_bits / samples.rate_bps
        enough_s = packets_s.max()
        sums = self._sums_by_tenant(tenants, interval_s, samples)
        self._recent.append((interval_s.mean(), sums))
        self._forget_before(max(enough_s, 1e-9))
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
        """The share of these tenants together, or that of the worst if lower.

        ``late_packets``: bits added to the traffic of each, as they may be
        late.
        """
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
        """By tenant: bits received, bits at its rates, sum of its packets'
        squares in bits².
        """
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
        """Drops the oldest samples while the others last for ``needed_s``."""
        lengths_s = [length_s for length_s, _ in self._recent]
        while sum(lengths_s[1:]) >= needed_s:
            self._recent.popleft()
            lengths_s.pop(0)


def processor(samples: Sequence[ProcessorSample]) -> list[Finding]:
    """Findings on idle time of the processors and on stolen time.

    Samples in which the processors sufficed (:func:`_judged`) count as idle.
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
    """Medians of shares that are not known in all samples."""
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
    """The finding on the switch's waits for a processor; none if not known.

    Samples in which the processors sufficed (:func:`_judged`) count as without
    a wait. While the switch waits it forwards nothing: packets that arrive wait
    too, or are lost before they reach a class that would count them.
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
    """Findings on packets outside all classes and on drops, both counted by
    port.

    ``full``: the part of ``drops`` in classes that were full of their tenant's
    own traffic, which is expected.
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
    """The smallest of the values that is at least as large as a share ``q`` of
    them.
    """
    ordered = sorted(values)
    return ordered[max(0, ceil(q * len(ordered)) - 1)]
