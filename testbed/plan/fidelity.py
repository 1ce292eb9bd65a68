"""Fidelity of a live run: pure judgements over what was measured beside the jobs.

Each check gives a :class:`Finding` with its level, the reason in words and the metrics behind it;
the run's verdict is its worst finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from itertools import groupby
from math import ceil, inf, isfinite, nan, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Level = Literal["ok", "suspect", "invalid"]


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    level: Level
    check: str
    reason: str
    metrics: dict[str, float] = field(default_factory=dict)


# Values beyond which a run is suspect, and invalid; where the second is the lesser one, low values
# are bad. ``docs/runs-and-fidelity.md`` says what each was set from.
THRESHOLDS: dict[str, tuple[float, float]] = {
    "preflight": (0.9, 1.1),
    "starved class": (0.98, 0.9),
    "starved VM": (0.98, 0.9),
    "exceeded limit": (1.05, 1.10),
    "processor idle": (0.10, 0.02),
    "stolen time": (0.05, 0.15),
    "starved switch": (0.50, 0.90),
    "lateness": (0.050, 0.250),
}
KEPT_UP = 0.98
"""Share of their rates above which reserved transfers lacked nothing."""
DELIVERED = 0.95
"""Share of the load test below which what was delivered is the measure."""


def _graded(check: str, value: float, reason: str, metrics: dict[str, float]) -> Finding:
    suspect, invalid = THRESHOLDS[check]
    sign = 1 if invalid > suspect else -1
    beyond = [sign * value > sign * threshold for threshold in (suspect, invalid)]
    level: Level = "invalid" if beyond[1] else "suspect" if beyond[0] else "ok"
    return Finding(level, check, reason, metrics)


@dataclass(frozen=True)
class ClassSamples:
    """Classes over one sampling interval, by row: what each sent and the queue it always had.

    ``rate_bps`` is the least that it should have been able to send meanwhile, ``most_bps`` the
    most, where its rate was changed in between (else they are the same). ``packet_bits``: the
    largest packet, ``packet_bps``: what one more or less is worth over the interval, and
    ``bucket_bps`` what a bucket holds beyond the usual. ``sent_bps`` is NaN where nothing is known
    of it. ``names`` gives a row's name.
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
        """A queue at both ends of the interval worth over 5 ms of the rate: it wanted to send.

        More than a packet too: one is often there of a slow VM that keeps to its rate.
        """
        least_bits = np.maximum(self.rate_bps * 0.005, self.packet_bits)
        return self.known & (8 * self.queue_bytes > least_bits)

    @property
    def known(self) -> NDArray[np.bool_]:
        return np.isfinite(self.sent_bps)

    def where(self, rows: NDArray[np.bool_]) -> ClassSamples:
        """Those rows alone; names stay those of all."""
        columns = (getattr(self, each.name)[rows] for each in fields(self)[1:])
        return ClassSamples(self.names, *columns)


def preflight(
    asked_bps: float,
    achieved_share: float,
    busy_share: float,
    scale_rate: float,
    taken_share: float = 0.0,
    lacking: Sequence[Finding] = (),
) -> Finding:
    """Load of the plan's busiest instant, from the load test before the jobs.

    ``asked_bps``: summed port load, bit/s over every port that a bit leaves from (a transfer over
    five switches leaves six ports). ``achieved_share``: the slowest test transfer's estimate over
    its time. ``busy_share``: the share of all processors that the test kept busy. The load is that
    share over what was delivered, and no measure of another rate's (:func:`fitting_rate`). (The
    CPU use of the switch's own thread tells nothing: it polls, and reads 97 % at a third of what it
    can forward.)

    ``taken_share``: the share of the processors that the test took from the network. Where it kept
    up with the rest, the load is that rest at most; else by so much more as was not delivered.
    ``lacking``: what a run would be doubted for; then it did not keep up.
    """
    shares = [one.metrics["share"] for one in lacking if "share" in one.metrics]
    delivered = min(1.0, max(min([achieved_share, *shares]), 0.001))
    load = max(busy_share - taken_share, 0.001) / delivered
    if taken_share:
        rest = 1.0 - taken_share
        if delivered < KEPT_UP or lacking:
            load = rest / min(delivered, KEPT_UP)
        elif busy_share > 1.0 - 2 * taken_share:
            # A switch that polls is as busy at half of this: no more is known than that it fits.
            load = rest
    elif delivered < DELIVERED:
        # Too little was delivered although the processors were not busy: this is the measure then.
        load = max(load, 1 / delivered)
    reason = (
        f"the plan asks the switches for {asked_bps / 1e6:.0f} Mbit/s of summed port load at its "
        f"peak; at scale.rate: {rate_text(scale_rate)} that is {load:.0%} of what this machine can"
        " do"
    )
    reason += "".join(f"; {one.reason}" for one in lacking)
    metrics = {
        "scale_rate": scale_rate,
        "asked_bps": asked_bps,
        "capable_bps": asked_bps / load,
        "load": load,
        "achieved_share": achieved_share,
        "busy_share": busy_share,
        "taken_share": taken_share,
    }
    return _graded("preflight", load, reason, metrics)


def rate_text(rate: float) -> str:
    """A ``scale.rate`` in plain digits: an experiment file takes no 1e-05."""
    return f"{Decimal(f'{rate:g}'):f}"


def two_figures(rate: float) -> float:
    """As a person would write the rate."""
    return float(f"{rate:.2g}")


MOST_TESTS = 8
CLOSE = 1.12
"""The answer is less than so many times below the largest rate that fits, if tests suffice."""


def fitting_rate(
    test: Callable[[float], float], start: float, most: float, least: float
) -> float | None:
    """The largest ``scale.rate`` found from ``least`` to ``most`` whose tested load is ``ok``.

    The load is not proportional to the rate (a pass of the switch has a fixed cost, packets cost
    instead of bytes, losses follow an overload): only a rate that was tested itself is an answer.
    None where no tested rate fits. ``start`` is tested first, then rates of two figures.
    """
    limit, _ = THRESHOLDS["preflight"]
    loads: dict[float, float] = {}
    fit, rate = 0.0, start
    while rate not in loads and len(loads) < MOST_TESTS:
        loads[rate] = test(rate)
        fit = max((r for r, load in loads.items() if load <= limit), default=0.0)
        over = min((r for r, load in loads.items() if load > limit and r > fit), default=inf)
        crossing, sure = _crossing(loads, fit, limit)
        near = 0.97 * limit <= loads.get(fit, 0.0) < limit
        if fit and (near or (crossing if sure else over) <= CLOSE * fit):
            break  # near enough, by the load or by the rate
        if not fit:  # far down where the load did not fall with the rate
            low, high = over / 8, over * (0.8 if sure or len(loads) == 1 else 0.4)
        elif over == inf:
            low, high = 2 * fit, 8 * fit
        else:  # not at the ends, or the bracket would shrink by nearly nothing
            low, high = fit * (over / fit) ** 0.2, fit * (over / fit) ** 0.8
        # At two figures the next rate may be a tenth away.
        rate = max(two_figures(min(max(0.93 * crossing, low), high)), two_figures(1.06 * fit))
        rate = min(most, max(least, rate))
    return fit or None


def _crossing(loads: Mapping[float, float], fit: float, limit: float) -> tuple[float, bool]:
    """The rate at which the load would reach the limit.

    By the line through the two rates next to it (True), or in proportion to the load nearest to
    it, where losses or noise leave no such line. A load of just the limit is known to be no more
    than that: midway to the next rate, then.
    """
    above = [rate for rate in sorted(loads) if rate >= fit]
    low, high = above[:2] if len(above) > 1 else sorted([*loads, 0.0])[-2:]
    if low and loads[low] == limit:
        return sqrt(low * high), False
    # Less of a rise may be noise, and above losses distort the load.
    if low and 1.05 * loads[low] < loads[high] <= 1.2 * limit:
        return low + (limit - loads[low]) * (high - low) / (loads[high] - loads[low]), True
    rate, load = min(loads.items(), key=lambda one: abs(one[1] - limit))
    return rate * limit / max(load, 0.01), False


class Starved:
    """A class that stays backlogged over two samples in a row, yet sends too little of its rate."""

    check = "starved class"
    nothing = "no class stayed backlogged"
    how = "had a queue all the time and sent"
    whole = False
    """The judgement is over all of the time in which it had a queue."""
    too_much = False
    """What is sent over the rate is bad, with a queue or without."""

    def __init__(self) -> None:
        self._names: Callable[[int], str] = str
        self._streaks = np.zeros((5, 0))
        self._worst: tuple[float, str] | None = (0.0, "") if self.too_much else None

    def renumber(self, was: NDArray[np.int64]) -> None:
        """From now on row i is what row ``was[i]`` was, -1: new. What has gone is judged."""
        self._judge(self._streaks, np.setdiff1d(np.arange(self._streaks.shape[1]), was))
        # The last column is what a new row begins with.
        self._streaks = np.pad(self._streaks, ((0, 0), (0, 1)))[:, was]

    def take(self, samples: ClassSamples, of: NDArray[np.bool_] | None = None) -> None:
        """Judge one sample more of the rows ``of`` (all): what is not known ends a streak.

        Of earlier ones only that or those sums are kept that count.
        """
        self._names = samples.names
        counts = samples.known if self.too_much else samples.backlogged
        counts = counts if of is None else counts & of
        if self.whole:
            self._judge(self._streaks, np.flatnonzero(~counts))
        rates = samples.rate_bps, samples.most_bps, samples.sent_bps
        beside = samples.packet_bps + (samples.bucket_bps if self.too_much else 0.0)
        sample = np.where(counts, (np.ones(len(counts)), *rates, beside), 0.0)
        streaks = self._streaks + sample
        streaks[4] = np.maximum(self._streaks[4], sample[4])
        if not self.whole:
            self._judge(streaks, np.flatnonzero(counts))
        self._streaks = np.where(counts, streaks, 0.0) if self.whole else sample

    def _judge(self, streaks: Floats, rows: NDArray[np.int64]) -> None:
        """One sample may be a bucket's."""
        rows = rows[streaks[0, rows] > 1]
        if not len(rows):
            return
        _, rate, most, sent, beside = streaks[:, rows]
        shares = (sent - beside) / most if self.too_much else (sent + beside) / rate
        at = int(np.argmax(shares) if self.too_much else np.argmin(shares))
        share = float(shares[at])
        than = share if self._worst is None else self._worst[0]
        if self._worst is None or (share > than if self.too_much else share < than):
            self._worst = share, self._names(int(rows[at]))

    def finding(self) -> Finding:
        self.renumber(np.zeros(0, dtype=np.int64))
        if self._worst is None:
            return Finding("ok", self.check, self.nothing, {})
        share, name = self._worst
        reason = f"{name} {self.how} {share:.1%} of its rate" if name else self.nothing
        return _graded(self.check, share, reason, {"share": share})


class CapLimited(Starved):
    """A VM's cap that sends too little of its rate over all of a time in which it had a queue.

    Of cap-limited VMs only: a queue at the ends of a sample is then a queue in between.

    Its bucket holds 10 ms, so that it loses for good what a later timer would have sent: that is
    worth what it is to the job, and nothing in a long one. A cap that is wrong is so all the time.
    """

    check = "starved VM"
    nothing = "no VM's cap stayed backlogged"
    whole = True


class Exceeding(Starved):
    """A class that sends more than its rate: over two samples a bucket is worth three per cent.

    One that holds more, because a packet is more, and a packet that counts in whole are not held
    against it.
    """

    check = "exceeded limit"
    nothing = "no class was used for long"
    how = "sent"
    too_much = True


OTHERS = 0.5
"""Share of the processors above which they are not the run's own."""
ENOUGH_PACKETS = 16
"""Packets of each VM over which their time on the way is a small part."""


@dataclass(frozen=True)
class ProcessorSample:
    """Shares of all processors over a sample with jobs: idle, stolen by a hypervisor, used by
    ``others`` than the run; and of its time in which the switch ``waited`` for a processor.

    ``received``: share (:class:`Received`) of reserved transfers at their VMs' own caps, where
    nothing else ran. NaN: not known; ``unsettled`` where that is only because they had just begun
    or were about to end.
    """

    idle: float
    steal: float
    others: float = nan
    waited: float = nan
    received: float = nan
    unsettled: bool = False


def nothing_lacked(samples: Sequence[ProcessorSample]) -> list[bool]:
    """Of each sample, whether it is known that the processors, all the run's own, sufficed.

    A switch that polls uses whatever there is, and takes more packets a pass where that is little:
    that nothing was left over does not say that there was too little. Unsettled samples go by the
    known ones on both sides, where these are not fewer.
    """
    known = [None if one.unsettled else one.received >= KEPT_UP for one in samples]
    runs = [(value, len(list(of))) for value, of in groupby(known)]
    sufficed: list[bool] = []
    for at, (value, length) in enumerate(runs):
        beside = runs[max(0, at - 1) : at] + runs[at + 1 : at + 2]
        by_those = all(good for good, _ in beside) and length <= sum(n for _, n in beside)
        sufficed += [by_those if value is None else value] * length
    return [good and one.others <= OTHERS for good, one in zip(sufficed, samples, strict=True)]


class Received:
    """The share of their rates that VMs received, sample after sample: all together, or a tenant's
    where that is less.

    Over the last samples in which each could receive :data:`ENOUGH_PACKETS`: in a second a slow one
    has a few. A tenant counts from then on: what is on its way to it has begun to arrive. Of each
    VM a packet may come a sample later: a tenant is allowed the square root of the sum of squares.
    """

    def __init__(self) -> None:
        # Seconds and, by tenant: bits received, bits at its rates, sum of squares of its packets.
        self._recent: deque[tuple[float, dict[int, Floats]]] = deque()

    def take(self, tenants: NDArray[np.int64], interval_s: Floats, samples: ClassSamples) -> float:
        """The share with one sample more, its rows' tenants and lengths; NaN: nothing known."""
        if not len(tenants):
            self._recent.clear()
            return nan
        numbers, row_of = np.unique(tenants, return_inverse=True)
        bits = samples.sent_bps * interval_s, samples.rate_bps * interval_s, samples.packet_bits**2
        sums = np.transpose([np.bincount(row_of, each) for each in bits])
        self._recent.append((interval_s.mean(), dict(zip(numbers.tolist(), sums, strict=True))))
        enough_s = (ENOUGH_PACKETS * samples.packet_bits / samples.rate_bps).max()
        while sum(length_s for length_s, _ in list(self._recent)[1:]) >= max(enough_s, 1e-9):
            self._recent.popleft()
        there = [n for n in numbers.tolist() if all(n in by for _, by in self._recent)]
        if not there or sum(length_s for length_s, _ in self._recent) < enough_s:
            return nan
        got, rate, _ = np.sum([[by[n] for n in there] for _, by in self._recent], axis=0).T
        beside = np.sqrt([self._recent[-1][1][n][2] for n in there])
        return float(min(got.sum() / rate.sum(), ((got + beside) / rate).min()))


def processor(samples: Sequence[ProcessorSample]) -> list[Finding]:
    """Idle shares, where it is not known that nothing lacked, and stolen ones."""
    if not samples:
        return []
    idle = [sample.idle for sample in samples]
    low = _quantile(idle, 0.1)
    judged = zip(idle, nothing_lacked(samples), strict=True)
    graded = _quantile([1.0 if sufficed else share for share, sufficed in judged], 0.1)
    stolen = sum(sample.steal for sample in samples) / len(samples)
    busiest = f"in the busiest tenth of the time the processors were idle for at most {low:.0%}"
    if low < THRESHOLDS["processor idle"][0] <= graded:
        busiest += ", by the run alone, and reserved VMs received at their rates"
    taken = f"the hypervisor took {stolen:.1%} of the processors' time for others"
    metrics = {"idle_p10": low, "idle_mean": sum(idle) / len(idle)}
    for name in ("others", "received"):
        known = [value for sample in samples if isfinite(value := getattr(sample, name))]
        metrics |= {f"{name}_p50": _quantile(known, 0.5)} if known else {}
    return [
        _graded("processor idle", graded, busiest, metrics),
        _graded("stolen time", stolen, taken, {"steal_mean": stolen}),
    ]


def switch(samples: Sequence[ProcessorSample]) -> list[Finding]:
    """Time that the switch's thread waited for a processor, where it is not known that nothing
    lacked.

    Meanwhile nothing is forwarded: what arrives waits with it, or is lost in front of every class
    that could count it.
    """
    known = [sample for sample in samples if isfinite(sample.waited)]
    if not known:
        return []
    waited = [sample.waited for sample in known]
    high = _quantile(waited, 0.9)
    judged = zip(waited, nothing_lacked(known), strict=True)
    graded = _quantile([0.0 if sufficed else share for share, sufficed in judged], 0.9)
    reason = f"the switch waited for a processor for {high:.0%} of the time, in the worst tenth"
    if high > THRESHOLDS["starved switch"][0] >= graded:
        reason += ", and reserved VMs received at their rates"
    metrics = {"waited_p90": high, "waited_mean": sum(waited) / len(waited)}
    return [_graded("starved switch", graded, reason, metrics)]


def lateness(late_s: Sequence[float]) -> list[Finding]:
    """Lateness of sleeping processes' wake-ups while jobs ran."""
    if not late_s:
        return []
    p99 = _quantile(late_s, 0.99)
    reason = f"a sleeping process woke up to {p99 * 1e3:.0f} ms late (p99)"
    return [_graded("lateness", p99, reason, {"p99_s": p99, "max_s": max(late_s)})]


def leaks(unclassified: dict[str, int], drops: dict[str, int]) -> list[Finding]:
    """Packets that left past the limits, and drops where there should be none (by port)."""
    past, lost = sum(unclassified.values()), sum(drops.values())
    without = f"{past} packets left without a class (unshaped) at {_ports(unclassified)}"
    dropped = (
        f"{lost} packets were dropped at {_ports(drops, 6)}, "
        "where a hose within its limits drops none"
    )
    shaped: Level = "invalid" if past else "ok"
    whole: Level = "suspect" if lost else "ok"
    all_in, none_lost = "every packet was in a class", "no packet was dropped between the VMs"
    return [
        Finding(shaped, "unshaped packets", without if past else all_in, {"packets": past}),
        Finding(whole, "drops", dropped if lost else none_lost, {"packets": lost}),
    ]


def _ports(counts: dict[str, int], most: int | None = None) -> str:
    return ", ".join(sorted(port for port, count in counts.items() if count)[:most])


def _quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, ceil(q * len(ordered)) - 1)]
