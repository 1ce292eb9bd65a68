"""Preflight of a live run: load tests of the plans' busiest instants, and the rate that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.sampling import Processors
from testbed.embedding.placement import Placement
from testbed.engine.backend import StartFailed
from testbed.errors import MachineCannot
from testbed.plan.fidelity import THRESHOLDS, Finding, fitting_rate, preflight
from testbed.plan.peak_load import reserved_port_load_bps
from testbed.spec.experiment import Scale

LOAD_TEST_WALL_S, GIVE_UP = 1.5, 2.0
"""A plan's busiest instant is played so long, and until so many times that at most."""
LIKELY_BPS = 3e9
"""Summed port load that two processors can do, about: where ``auto`` begins to search."""
LEAST_VM_BPS = 1_000_000
"""Of the fastest VM: below, its few large packets are no stream at a rate (docs/decisions/16)."""

Peak = Sequence[events.JobReserved]
LoadTest = Callable[[Peak, Scale], Finding]
Narrate = Callable[[str], None]


@dataclass(frozen=True)
class Preflight:
    """Each plan's finding at a rate, and why a run at it does not start (None: it does)."""

    rate: float
    findings: Sequence[Finding]
    refusal: MachineCannot | None = None

    @property
    def loads(self) -> list[float]:
        """Shares of what the machine can do; infinite where that could not be tested."""
        return [f.metrics.get("load", 0.0 if f.level == "ok" else inf) for f in self.findings]


def checked(
    test: LoadTest, peaks: Sequence[Peak], scale: Scale, narrate: Narrate, *, force: bool
) -> Preflight:
    """Tests the scale's rate; searches for one that fits if it does not, or is ``auto``.

    The search tests the first rate once more, and the better of both tests counts: a switch that
    has just been started, or another program, only adds load. ``force``: nothing is refused, and a
    given rate runs without a search. Plans with the same busiest instant are tested once.
    """
    suspect, invalid = THRESHOLDS["preflight"]
    fastest_bps = max((one.rate_bps for peak in peaks for one in peak), default=1)
    asked_bps = max(sum(map(reserved_port_load_bps, peak)) for peak in peaks)
    start = min(1.0, LIKELY_BPS / max(1, asked_bps)) if scale.auto else scale.rate
    tested: list[Preflight] = []

    def load(rate: float) -> float:
        at_rate, found = replace(scale, rate=rate), list[Finding]()
        for peak in peaks:
            first = peaks.index(peak)
            found.append(found[first] if first < len(found) else test(peak, at_rate))
        tested.append(Preflight(rate, found))
        share = f"{max(tested[-1].loads):.0%} of what this machine can do"
        narrate(f"preflight: the plan's busiest instant at scale.rate: {rate:g} is {share}")
        return max(tested[-1].loads)

    fits = load(start) <= suspect
    if not scale.auto and (fits or force or inf in tested[0].loads):
        return tested[0]
    least = min(start, LEAST_VM_BPS / max(1, fastest_bps))
    fitting = fitting_rate(load, start, scale.rate, least)
    lowest = min(one.rate for one in tested)
    rate = (fitting or lowest) if scale.auto else start
    found = min((one for one in tested if one.rate == rate), key=lambda one: max(one.loads))
    if (worst := max(found.loads)) <= suspect:
        if scale.auto:
            narrate(f"scale.rate: auto -> {rate:g}, tested: {worst:.0%} load")
        return found
    advice = f"scale.rate: {fitting} was tested and fits"
    if fitting is None:
        advice = f"no scale.rate down to {lowest:g} fits: have fewer jobs at once"
    findings = [replace(one, reason=f"{one.reason}; {advice}") for one in found.findings]
    if force or (worst <= invalid and not scale.auto):
        return Preflight(rate, findings)
    can = f"this machine can do {1 / worst:.0%} of what the plan asks of the switches at its peak"
    hint = f"{advice}; or run all the same: --force"
    return Preflight(rate, findings, MachineCannot(f"{can}, at scale.rate: {rate:g}", hint))


def load_test(emulation: Emulation, seed: int, together: Peak, scale: Scale) -> Finding:
    """Run transfers in the places and at the rates of ``together``; judge what it took.

    Jobs of one VM and jobs without bandwidth ask nothing of the switches and are left out; those
    that send without a reservation come with their share (:func:`testbed.plan.peak_load.peak`).
    """
    together = [r for r in together if sum(count for _, count in r.vms_on) > 1 and r.rate_bps > 0]
    if not together:
        return Finding("ok", "preflight", "the plan asks nothing of the switches", {})
    ideal_s = LOAD_TEST_WALL_S * scale.time
    lasts_s = min((r.estimate_s for r in together if r.estimate_s), default=0.0) / scale.time
    # Those that end one after another are cleaned up after together.
    scale = replace(scale, instant_s=GIVE_UP * ideal_s)
    backend = LiveBackend(emulation, scale, seed, lambda _: None, played_for_s=lasts_s)
    started: list[str] = []
    for reserved in together:
        vms_on = tuple((server, count) for server, count in reserved.vms_on)
        name, rate_bps = f"preflight.{reserved.job_id}", reserved.rate_bps
        job = JobRequest(name, 0.0, sum(count for _, count in vms_on), rate_bps, ideal_s)
        try:
            backend.start(job, Placement(reserved.root, vms_on), rate_bps, "foreground")
        except StartFailed as error:
            for job_id in started:
                backend.kill(job_id)
            reason = f"the plan's busiest instant could not be load-tested: {error}"
            return Finding("invalid", "preflight", reason, {})
        started.append(name)
    asked_bps = sum(map(reserved_port_load_bps, together)) * scale.rate
    return preflight(asked_bps, *_played(backend, started, ideal_s), scale.rate)


def _played(backend: LiveBackend, started: list[str], ideal_s: float) -> tuple[float, float]:
    """The share of its volume that the slowest job had in its time, and the processors' busy share.

    All begin together, and have ended. Sampling, as beside jobs, is part of the load.
    """
    processors = Processors()
    backend.begin()
    # The processors are read before jobs end and are cleaned up after.
    done = backend.wait(0.95 * ideal_s)
    busy_share = processors.sample().busy
    while len(done) < len(started) and backend.now_s() < GIVE_UP * ideal_s:
        done += backend.wait(GIVE_UP * ideal_s)
    shares = [ideal_s / one.measured_s if one.measured_s else 0.0 for one in done]
    for job_id in set(started).difference(one.job_id for one in done):
        shares.append(backend.delivered_share(job_id) * ideal_s / backend.now_s())
        backend.kill(job_id)
    return min(shares), busy_share
