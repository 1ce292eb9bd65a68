"""Fidelity of a live run: pure judgements over what was measured beside the jobs.

Each check gives a :class:`Finding` with its level, the reason in words and the metrics behind it;
the run's verdict is its worst finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

Level = Literal["ok", "suspect", "invalid"]
_ORDER: dict[Level, int] = {"ok": 0, "suspect": 1, "invalid": 2}


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    level: Level
    check: str
    reason: str
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of the checks. ``docs/runs-and-fidelity.md`` says what each was set from."""

    load_suspect: float = 0.9
    load_invalid: float = 1.1
    delivered: float = 0.95
    starved_share: float = 0.98
    starved_samples: int = 2
    exceeded_suspect: float = 1.05
    exceeded_invalid: float = 1.10
    idle_suspect: float = 0.10
    idle_invalid: float = 0.02
    waited_suspect: float = 0.50
    waited_invalid: float = 0.90
    steal_suspect: float = 0.05
    steal_invalid: float = 0.15
    late_p99_suspect_s: float = 0.050
    late_p99_invalid_s: float = 0.250


@dataclass(frozen=True)
class ClassSample:
    """One class over one sampling interval: what it sent and whether it always had a queue.

    ``rate_bps`` is the least that it should have been able to send meanwhile, ``most_bps`` the
    most, where its rate was changed in between (else they are the same). ``packet_bps``: what one
    packet more or less is worth over the interval, where that counts.
    """

    name: str
    rate_bps: int
    sent_bps: float
    backlog_before_bytes: int
    backlog_after_bytes: int
    most_bps: int | None = None
    packet_bps: float = 0.0

    @property
    def backlogged(self) -> bool:
        """A queue at both ends of the interval worth over 5 ms of the rate: it wanted to send."""
        worth = self.rate_bps / 8 * 0.005
        return min(self.backlog_before_bytes, self.backlog_after_bytes) > worth


def verdict(findings: Iterable[Finding]) -> Level:
    """The worst level; ``ok`` when nothing was found."""
    return max((f.level for f in findings), key=_ORDER.__getitem__, default="ok")


def reasons(findings: Iterable[Finding]) -> list[str]:
    """The reasons of everything that is not ok, in order, each once."""
    return list(dict.fromkeys(f.reason for f in findings if f.level != "ok"))


def _graded(
    value: float, suspect: float, invalid: float, check: str, reason: str, metrics: dict[str, float]
) -> Finding:
    """High values are bad."""
    level: Level = "invalid" if value > invalid else "suspect" if value > suspect else "ok"
    return Finding(level, check, reason, metrics)


def preflight(
    asked_bps: float,
    achieved_share: float,
    busy_share: float,
    scale_rate: float,
    limits: Thresholds = Thresholds(),
) -> Finding:
    """Load of the plan's busiest instant, from the load test before the jobs.

    ``asked_bps``: summed port load, bit/s over every port that a bit leaves from (a transfer over
    five switches leaves six ports). ``achieved_share``: the slowest test transfer's estimate over
    its time. ``busy_share``: the share of all processors that the test kept busy. The capacity is
    what was forwarded over that share. (The CPU use of the switch's own thread tells nothing: it
    polls, and reads 97 % at a third of what it can forward.)
    """
    delivered = min(1.0, max(achieved_share, 0.001))
    load = max(busy_share, 0.001) / delivered
    if delivered < limits.delivered:
        # Too little was delivered although the processors were not busy: this is the measure then.
        load = max(load, 1 / delivered)
    capable_bps = asked_bps / load
    advice = ""
    if load > limits.load_suspect:
        fitting = scale_rate * limits.load_suspect / load
        advice = f"; scale.rate: {fitting:.2g} would fit"
    reason = (
        f"the plan asks the switches for {asked_bps / 1e6:.0f} Mbit/s of summed port load at its "
        f"peak, {load:.0%} of the {capable_bps / 1e6:.0f} Mbit/s that this machine can do{advice}"
    )
    metrics = {
        "asked_bps": asked_bps,
        "capable_bps": capable_bps,
        "load": load,
        "achieved_share": achieved_share,
        "busy_share": busy_share,
    }
    return _graded(load, limits.load_suspect, limits.load_invalid, "preflight", reason, metrics)


class Starved:
    """A class that stays backlogged over consecutive samples, yet sends too little of its rate."""

    def __init__(self, limits: Thresholds = Thresholds()) -> None:
        self._limits = limits
        self._streaks: dict[str, tuple[ClassSample, ...]] = {}
        self._worst: tuple[ClassSample, ...] = ()

    def take(self, sample: ClassSample) -> None:
        """Judge one sample more; of earlier ones only those are kept that a next one needs."""
        if not sample.backlogged:
            self._streaks.pop(sample.name, None)
            return
        n = self._limits.starved_samples
        recent = (*self._streaks.get(sample.name, ()), sample)[-n:]
        self._streaks[sample.name] = recent
        if len(recent) == n and (not self._worst or _share(recent) < _share(self._worst)):
            self._worst = recent

    def forget(self, names: Iterable[str]) -> None:
        """These will not be seen again."""
        for name in names:
            self._streaks.pop(name, None)

    def finding(self) -> Finding:
        if not self._worst:
            return Finding("ok", "starved class", "no class stayed backlogged", {})
        share = _share(self._worst)
        return _too_little("starved class", self._worst[0].name, share, self._limits)


class CapLimited:
    """A VM's cap that sends too little of its rate over all of a time in which it had a queue.

    Of cap-limited VMs only: a queue at the ends of a sample is then a queue in between.

    Its bucket holds 10 ms, so that it loses for good what a later timer would have sent: that is
    worth what it is to the job, and nothing in a long one. A cap that is wrong is so all the time.
    """

    def __init__(self, limits: Thresholds = Thresholds()) -> None:
        self._limits = limits
        self._streaks: dict[str, _Streak] = {}
        self._worst: tuple[float, str] | None = None

    def take(self, sample: ClassSample) -> None:
        """Judge one sample more; of earlier ones sums are kept."""
        if not sample.backlogged:
            self.forget([sample.name])
            return
        streak = self._streaks.setdefault(sample.name, _Streak())
        streak.n += 1
        streak.sent_bps += sample.sent_bps
        streak.rate_bps += sample.rate_bps
        streak.packet_bps = max(streak.packet_bps, sample.packet_bps)

    def forget(self, names: Iterable[str]) -> None:
        """These had a queue for the last time, or will not be seen again."""
        for name in names:
            streak = self._streaks.pop(name, None)
            if streak is not None and streak.n >= self._limits.starved_samples:
                found = (streak.share, name)
                self._worst = found if self._worst is None else min(self._worst, found)

    def finding(self) -> Finding:
        self.forget(list(self._streaks))
        if self._worst is None:
            return Finding("ok", "starved VM", "no VM's cap stayed backlogged", {})
        share, name = self._worst
        return _too_little("starved VM", name, share, self._limits)


@dataclass
class _Streak:
    """Sums over samples in a row."""

    n: int = 0
    sent_bps: float = 0.0
    rate_bps: int = 0
    packet_bps: float = 0.0

    @property
    def share(self) -> float:
        return (self.sent_bps + self.packet_bps) / self.rate_bps


class Exceeding:
    """A class that sends more than its rate: over two samples a bucket is worth three per cent."""

    def __init__(self, limits: Thresholds = Thresholds()) -> None:
        self._limits = limits
        self._last: dict[str, ClassSample] = {}
        self._worst, self._name = 0.0, ""

    def take(self, sample: ClassSample) -> None:
        """Judge one sample more, with the one before it."""
        before = self._last.get(sample.name)
        self._last[sample.name] = sample
        if before is None:
            return
        most_bps = sum(s.most_bps or s.rate_bps for s in (before, sample))
        packet_bps = max(before.packet_bps, sample.packet_bps)
        share = (before.sent_bps + sample.sent_bps - packet_bps) / most_bps
        if share > self._worst:
            self._worst, self._name = share, sample.name

    def forget(self, names: Iterable[str]) -> None:
        """These will not be seen again."""
        for name in names:
            self._last.pop(name, None)

    def finding(self) -> Finding:
        limits, worst = self._limits, self._worst
        excess = f"{self._name} sent {worst:.1%} of its rate"
        return _graded(
            worst,
            limits.exceeded_suspect,
            limits.exceeded_invalid,
            "exceeded limit",
            excess if self._name else "no class was used for long",
            {"share": worst},
        )


def _share(streak: Sequence[ClassSample]) -> float:
    return sum(s.sent_bps for s in streak) / sum(s.rate_bps for s in streak)


def _too_little(check: str, name: str, share: float, limits: Thresholds) -> Finding:
    level: Level = (
        "ok" if share >= limits.starved_share else "suspect" if share >= 0.9 else "invalid"
    )
    reason = f"{name} had a queue all the time and sent {share:.1%} of its rate"
    return Finding(level, check, reason, {"share": share})


def processor(
    idle: Sequence[float], steal: Sequence[float], limits: Thresholds = Thresholds()
) -> list[Finding]:
    """Idle and stolen shares of all cores, one value a second while jobs ran."""
    if not idle:
        return []
    low = _quantile(idle, 0.1)
    stolen = sum(steal) / len(steal)
    level: Level = (
        "invalid" if low < limits.idle_invalid else "suspect" if low < limits.idle_suspect else "ok"
    )
    return [
        Finding(
            level,
            "processor idle",
            f"in the busiest tenth of the time the processors were idle for at most {low:.0%}",
            {"idle_p10": low, "idle_mean": sum(idle) / len(idle)},
        ),
        _graded(
            stolen,
            limits.steal_suspect,
            limits.steal_invalid,
            "stolen time",
            f"the hypervisor took {stolen:.1%} of the processors' time for others",
            {"steal_mean": stolen},
        ),
    ]


def switch(waited: Sequence[float], limits: Thresholds = Thresholds()) -> list[Finding]:
    """Share of each second with jobs in which the switch's thread waited for a processor.

    ``waited``: shares. Meanwhile nothing is forwarded: what arrives waits with it, or is lost in
    front of every class that could count it.
    """
    if not waited:
        return []
    high = _quantile(waited, 0.9)
    reason = f"the switch waited for a processor for {high:.0%} of the time, in the worst tenth"
    metrics = {"waited_p90": high, "waited_mean": sum(waited) / len(waited)}
    return [
        _graded(
            high, limits.waited_suspect, limits.waited_invalid, "starved switch", reason, metrics
        )
    ]


def lateness(late_s: Sequence[float], limits: Thresholds = Thresholds()) -> list[Finding]:
    """Lateness of sleeping processes' wake-ups while jobs ran."""
    if not late_s:
        return []
    p99 = _quantile(late_s, 0.99)
    reason = f"a sleeping process woke up to {p99 * 1e3:.0f} ms late (p99)"
    metrics = {"p99_s": p99, "max_s": max(late_s)}
    return [
        _graded(
            p99, limits.late_p99_suspect_s, limits.late_p99_invalid_s, "lateness", reason, metrics
        )
    ]


def leaks(unclassified: dict[str, int], drops: dict[str, int]) -> list[Finding]:
    """Packets that left past the limits, and drops where there should be none (by port)."""
    out = []
    if past := sum(unclassified.values()):
        ports = ", ".join(sorted(port for port, count in unclassified.items() if count))
        reason = f"{past} packets left without a class (unshaped) at {ports}"
        out.append(Finding("invalid", "unshaped packets", reason, {"packets": past}))
    else:
        out.append(Finding("ok", "unshaped packets", "every packet was in a class", {"packets": 0}))
    if lost := sum(drops.values()):
        ports = ", ".join(sorted(port for port, count in drops.items() if count)[:6])
        reason = (
            f"{lost} packets were dropped at {ports}, where a hose within its limits drops none"
        )
        out.append(Finding("suspect", "drops", reason, {"packets": lost}))
    else:
        out.append(Finding("ok", "drops", "no packet was dropped between the VMs", {"packets": 0}))
    return out


def _quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, ceil(q * len(ordered)) - 1)]
