"""Preflight of a live run: load tests of the plans' busiest instants, and the rate that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.sampling import Processors
from testbed.embedding.placement import Placement
from testbed.engine.backend import StartFailed
from testbed.errors import MachineCannot
from testbed.plan.fidelity import THRESHOLDS, Finding, preflight
from testbed.plan.peak_load import reserved_port_load_bps
from testbed.plan.rate_search import fitting_rate
from testbed.spec.experiment import Scale

LOAD_TEST_WALL_S = 1.5
"""A plan's busiest instant is played so long."""
GIVE_UP = 2.0
"""Times the above: a test ends then, and what has arrived is what was delivered."""
SETTLED = 0.95
"""Share of a test after which the processors are read: before jobs end and are cleaned up after."""
TWO_CORES_BPS = 3e9
"""Summed port load that two processors can do, about: where ``auto`` begins to search."""
LEAST_VM_BPS = 500_000
"""Below it a VM's few large packets are no stream at a rate any more (docs/decisions/16)."""

Peak = Sequence[events.JobReserved]


@dataclass(frozen=True)
class Preflight:
    """The rate, each plan's finding at it, and why a run at it does not start (None: it does)."""

    rate: float
    findings: tuple[Finding, ...]
    refusal: MachineCannot | None = None

    @property
    def load(self) -> float:
        """The greatest of the plans' loads."""
        return max(map(_load, self.findings))

    @property
    def worst(self) -> int:
        """Index of the plan with that load."""
        return max(range(len(self.findings)), key=lambda i: _load(self.findings[i]))


def _load(finding: Finding) -> float:
    """Share of what the machine can do; infinite where that could not be tested."""
    return finding.metrics.get("load", 0.0 if finding.level == "ok" else inf)


@dataclass
class LoadTests:
    """The busiest instants of several plans, played at any rate on one network.

    Link limits stay those of the network's rate. Equal instants are played once.
    """

    emulation: Emulation
    scale: Scale
    seed: int
    peaks: Sequence[Peak]
    narrate: Callable[[str], None]
    tested: list[Preflight] = field(default_factory=list)

    def test(self, rate: float) -> float:
        """The greatest load of all plans at a rate; their findings are added to ``tested``."""
        self.narrate(f"preflight: load test at the plan's busiest instant, scale.rate: {rate:g}")
        scale = replace(self.scale, rate=rate)
        findings: list[Finding] = []
        for i, together in enumerate(self.peaks):
            first = self.peaks.index(together)
            known = findings[first] if first < i else None
            findings.append(known or load_test(self.emulation, scale, self.seed, together))
        self.tested.append(latest := Preflight(rate, tuple(findings)))
        worst = findings[latest.worst]
        self.narrate(f"preflight: {worst.level}: {worst.reason}")
        return latest.load

    def least_rate(self) -> float:
        """The rate at which the fastest VM of all has :data:`LEAST_VM_BPS`."""
        rates_bps = [reserved.rate_bps for peak in self.peaks for reserved in _asking(peak)]
        return min(1.0, LEAST_VM_BPS / max(rates_bps, default=LEAST_VM_BPS))

    def likely_rate(self) -> float:
        """A rate to begin with where none is given, 1 at most."""
        asked_bps = (sum(map(reserved_port_load_bps, _asking(peak))) for peak in self.peaks)
        return min(1.0, max(self.least_rate(), TWO_CORES_BPS / max(1.0, *asked_bps)))


def check(tests: LoadTests, *, force: bool) -> Preflight:
    """Tests the scale's rate, and searches for one that fits if it does not, or is ``auto``.

    The search tests a given rate once more, and the better of both tests counts: what another
    program does meanwhile only ever adds load. ``force``: a given rate runs without a search.
    """
    suspect, invalid = THRESHOLDS["preflight"]
    auto, start, most = tests.scale.auto, tests.scale.rate, tests.scale.rate
    if auto:
        start, most = tests.likely_rate(), 1.0
    elif (load := tests.test(start)) <= suspect or force or load == inf:
        return tests.tested[-1]
    fitting = fitting_rate(tests.test, start, most, min(start, tests.least_rate()), suspect)
    lowest = min(test.rate for test in tests.tested)
    rate = start if not auto else lowest if fitting is None else fitting
    found = min((test for test in tests.tested if test.rate == rate), key=lambda test: test.load)
    if found.load <= suspect:
        return found
    advice, mend = f"no scale.rate down to {lowest:g} was found to fit", "have fewer jobs at once"
    if fitting is not None:
        advice, mend = f"{fitting:g} was tested and fits", f"set scale.rate: {fitting:g} (tested)"
    refusal = None
    if auto or found.load > invalid:
        refusal = MachineCannot(
            f"this machine can do {1 / found.load:.0%} of what the plan asks of the switches at its"
            f" peak, at scale.rate: {rate:g}",
            mend if auto else f"{mend}, or run all the same: --force",
        )
    findings = (
        one if one.level == "ok" else replace(one, reason=f"{one.reason}; {advice}")
        for one in found.findings
    )
    return Preflight(rate, tuple(findings), refusal)


def load_test(emulation: Emulation, scale: Scale, seed: int, together: Peak) -> Finding:
    """Run transfers in the places and at the rates of ``together``; judge what it took.

    Jobs of one VM and jobs without bandwidth ask nothing of the switches and are left out; those
    that send without a reservation come with their share (:func:`testbed.plan.peak_load.peak`).
    The sampling that goes on beside jobs is part of the load.
    """
    asking = _asking(together)
    asked_bps = sum(map(reserved_port_load_bps, asking)) * scale.rate
    if not asking:
        return Finding("ok", "preflight", "the plan asks nothing of the switches", {})
    ideal_s = LOAD_TEST_WALL_S * scale.time
    # Jobs that end one after another are cleaned up after together.
    scale = replace(scale, instant_s=GIVE_UP * ideal_s)
    lasts_s = min((r.estimate_s for r in asking if r.estimate_s), default=0.0) / scale.time
    backend = LiveBackend(emulation, scale, seed, lambda _: None, played_for_s=lasts_s)
    started: list[str] = []
    for reserved in asking:
        vms_on = tuple((server, count) for server, count in reserved.vms_on)
        n_vms = sum(count for _, count in vms_on)
        name, rate_bps = f"preflight.{reserved.job_id}", reserved.rate_bps
        job = JobRequest(name, 0.0, n_vms, rate_bps, ideal_s)
        try:
            backend.start(job, Placement(reserved.root, vms_on), rate_bps, "foreground")
        except StartFailed as error:
            for job_id in started:
                backend.kill(job_id)
            reason = f"the plan's busiest instant could not be load-tested: {error}"
            return Finding("invalid", "preflight", reason, {})
        started.append(name)
    achieved, busy_share = _played(backend, started, ideal_s)
    return preflight(asked_bps, achieved, busy_share, scale.rate)


def _asking(together: Peak) -> list[events.JobReserved]:
    return [r for r in together if sum(count for _, count in r.vms_on) > 1 and r.rate_bps > 0]


def _played(backend: LiveBackend, started: list[str], ideal_s: float) -> tuple[float, float]:
    """The share of their volume that the slowest jobs achieved in their time, and the busy share
    of the processors. Every job has ended.
    """
    processors = Processors()
    backend.begin()
    done = backend.wait(SETTLED * ideal_s)
    busy_share = processors.sample().busy
    while len(done) < len(started) and backend.now_s() < GIVE_UP * ideal_s:
        done += backend.wait(GIVE_UP * ideal_s)
    shares = [ideal_s / one.measured_s if one.measured_s else 0.0 for one in done]
    for job_id in set(started).difference(one.job_id for one in done):
        shares.append(backend.delivered_share(job_id) * ideal_s / backend.now_s())
        backend.kill(job_id)
    return min(shares), busy_share
