"""Preflight of a live run: load tests of the plans' busiest instants, and the
rate that fits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite

from jobs.demand import Transfer
from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.sampling import ProcessorSampler
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.errors import MachineCannot
from testbed.plan.fidelity import (
    ENOUGH_PACKETS,
    THRESHOLDS,
    Finding,
    fitting_rate,
    preflight,
    rate_text,
    two_figures,
)
from testbed.plan.limits import LONG_GSO_BYTES
from testbed.plan.peak_load import reserved_port_load_bps
from testbed.spec.experiment import Scale

LOAD_TEST_WALL_S = 1.5
LONG_LOAD_TEST_WALL_S = 5.0
"""A load test's length, and that of one more where a first is in doubt, or
where a VM sends less than enough of its largest packets in a short one:
packets' time on their way counts for less.
"""
NEARLY = 1.0
"""The load up to which one that is over the limit is in doubt: another program
only adds load.
"""
FAR = 2.0
"""The load beyond which a first test is not repeated: the search begins far
below its rate.
"""
TAKEN_SHARE = 0.1
"""Of the processors, taken from a network whose first load test is in doubt."""
TAKE_S = 0.001
GIVE_UP_AFTER = 2.0
"""Lengths of a load test after which what has not arrived is given up."""
PROGRESS_EVERY_S = 1.0
"""At least so often test transfers say how much has arrived."""
LIKELY_BPS = 3e9
"""Summed port load that two processors can do, about: where ``auto`` begins to
search.
"""
SAFE_SHARE = 0.8
"""Of a rate that is likely to fit, or of what a load test leaves of one: where
the search for a rate with room begins.
"""
LEAST_VM_BPS = 1_000_000
"""Of the fastest VM: below, its few large packets are no stream at a rate
(docs/decisions/16).
"""

Peak = Sequence[events.JobReserved]
LoadTest = Callable[[Peak, Scale, bool], Finding]
"""Its last argument: a long one, with a share of the processors taken away."""
Narrate = Callable[[str], None]


@dataclass(frozen=True)
class Preflight:
    """Each plan's finding at a rate, and why a run at it does not start (None:
    it does).
    """

    rate: float
    findings: Sequence[Finding]
    refusal: MachineCannot | None = None

    @property
    def loads(self) -> list[float]:
        """Shares of what the machine can do; infinite where that could not be
        tested.
        """
        return [
            f.metrics.get("load", 0.0 if f.level == "ok" else inf)
            for f in self.findings
        ]

    @property
    def worst(self) -> Finding:
        """The finding with the largest load."""
        return self.findings[self.loads.index(max(self.loads))]

    def __str__(self) -> str:
        if max(self.loads) in (0.0, inf):
            return self.worst.reason
        share = f"{max(self.loads):.0%} of what this machine can do"
        return f"the plan's busiest instant at scale.rate: {rate_text(self.rate)} is {share}"


def passed_load_test(
    test: LoadTest,
    peaks: Sequence[Peak],
    scale: Scale,
    narrate: Narrate,
    *,
    force: bool,
) -> Preflight:
    """Tests the scale's rate; searches for one that fits if it does not.

    ``auto`` tests one that leaves room, and takes it where it fits; ``largest``
    always searches. The search tests the first rate once more, unless its load is beyond
    :data:`FAR`, and the better of both tests counts: a switch that has just
    been started, or another program, only adds load. ``force``: nothing is
    refused, and a given rate is tested twice at most. A load test that could
    not be made is one more finding of a run at a given rate; without any,
    ``auto`` has no rate.
    """
    suspect, invalid = THRESHOLDS["preflight"]
    fastest_bps = max(
        (one.rate_bps for peak in peaks for one in peak), default=1
    )
    asked_bps = max(
        sum(map(reserved_port_load_bps, peak)) for peak in peaks
    )
    room = 1.0 if scale.largest else SAFE_SHARE
    likely = min(1.0, two_figures(room * LIKELY_BPS / max(1, asked_bps)))
    start = likely if scale.auto else scale.rate
    tested: list[Preflight] = []

    def load(rate: float) -> float:
        findings = _findings(
            test, peaks, replace(scale, rate=rate), again=bool(tested)
        )
        tested.append(Preflight(rate, findings))
        narrate(f"preflight: {tested[-1]}")
        return max(tested[-1].loads)

    def searched(rate: float) -> float:
        found = load(rate)
        return (
            min(found, load(rate)) if suspect < found <= NEARLY else found
        )

    first = load(start)
    if first == inf:
        return _untested(tested[0], scale, force=force)
    if first <= suspect and not scale.largest:
        return _taken(tested[0], scale, narrate)
    if force and not scale.auto:
        load(start)
        return min(tested, key=lambda one: max(one.loads))
    least = min(start, two_figures(LEAST_VM_BPS / max(1, fastest_bps)))
    begin = start
    if first > FAR or (scale.auto and not scale.largest):
        below = min(likely, two_figures(room * start / first))
        begin = max(least, below)
    fitting = fitting_rate(
        searched,
        start=begin,
        most=scale.rate,
        least=least,
        largest=scale.largest,
    )
    lowest = min(one.rate for one in tested)
    rate = (fitting or lowest) if scale.auto else start
    found = min(
        (one for one in tested if one.rate == rate),
        key=lambda one: max(one.loads),
    )
    if (worst := max(found.loads)) <= suspect:
        return _taken(found, scale, narrate)
    if fitting is None:
        advice = f"no scale.rate down to {rate_text(lowest)} fits"
        hint = f"have fewer jobs at once: {advice}"
    else:
        advice = f"scale.rate: {rate_text(fitting)} was tested and fits"
        hint = f"--set scale.rate={rate_text(fitting)} was tested and fits"
    found = replace(
        found, findings=[_advised(one, advice) for one in found.findings]
    )
    if force or (worst <= invalid and not scale.auto):
        return found
    return replace(
        found,
        refusal=MachineCannot(
            str(found), f"{hint}; --force runs all the same"
        ),
    )


def _untested(tested: Preflight, scale: Scale, *, force: bool) -> Preflight:
    """A load test that could not be made: no rate where one is searched."""
    if force or not scale.auto:
        return tested
    hint = "give scale.rate a number in place of auto"
    return replace(tested, refusal=MachineCannot(str(tested), hint))


def _taken(tested: Preflight, scale: Scale, narrate: Narrate) -> Preflight:
    """The rate of the run; said where the preflight chose it."""
    if scale.auto:
        name = "largest" if scale.largest else "auto"
        load = max(tested.loads)
        narrate(
            f"scale.rate: {name} -> {rate_text(tested.rate)}, tested: {load:.0%} load"
        )
    return tested


def _findings(
    test: LoadTest, peaks: Sequence[Peak], scale: Scale, *, again: bool
) -> list[Finding]:
    """Of each plan. Plans with the same busiest instant are tested once."""
    found: list[Finding] = []
    for number, peak in enumerate(peaks):
        first = peaks.index(peak)
        found.append(
            test(peak, scale, again) if first == number else found[first]
        )
    return found


def _advised(finding: Finding, advice: str) -> Finding:
    if finding.level == "ok":
        return finding
    return replace(finding, reason=f"{finding.reason}; {advice}")


def load_test(
    emulation: Emulation,
    seed: int,
    rings: Collection[str],
    together: Peak,
    scale: Scale,
    again: bool = False,
) -> Finding:
    """Run transfers in the places and at the rates of ``together``; judge what
    it took.

    ``rings``: ids of jobs that play a ring, most of whose transfers stay within
    a server. All others are tested by a permutation: all that their hoses allow
    may cross the network.

    ``again``: for longer, without :data:`TAKEN_SHARE` of the processors. A
    switch that polls leaves nothing of them idle; what tells that they suffice
    is that fewer would.

    Jobs of one VM and jobs without bandwidth ask nothing of the switches and
    are left out; those that send without a reservation come with their share
    (:func:`testbed.plan.peak_load.peak`).
    """
    together = [
        r
        for r in together
        if sum(count for _, count in r.vms_on) > 1 and r.rate_bps > 0
    ]
    if not together:
        return Finding(
            "ok", "preflight", "the plan asks nothing of the switches", {}
        )
    slowest_bps = min(r.rate_bps for r in together) * scale.rate
    length_s = _length_s(slowest_bps, long=again)
    ideal_s = length_s * scale.time
    lasts_s = (
        min((r.estimate_s for r in together if r.estimate_s), default=0.0)
        / scale.time
    )
    backend = LiveBackend(
        emulation, scale, seed, lambda _: None, played_for_s=lasts_s
    )
    backend.progress_every_s = min(
        PROGRESS_EVERY_S, backend.progress_every_s
    )
    started: list[str] = []
    for reserved in together:
        vms_on = tuple((server, count) for server, count in reserved.vms_on)
        name = f"preflight.{reserved.job_id}"
        rate_bps = reserved.rate_bps
        demand = Transfer(
            pattern="ring" if reserved.job_id in rings else "permutation"
        )
        n_vms = sum(count for _, count in vms_on)
        job = JobRequest(name, 0.0, n_vms, rate_bps, ideal_s, demand=demand)
        try:
            backend.start(
                job,
                Placement(reserved.root, vms_on),
                rate_bps,
                "foreground",
            )
        except StartFailed as error:
            for job_id in started:
                backend.kill(job_id)
            reason = f"the plan's busiest instant could not be load-tested: {error}"
            return Finding("invalid", "preflight", reason, {})
        started.append(name)
    asked_bps = sum(map(reserved_port_load_bps, together)) * scale.rate
    taken = TAKEN_SHARE if again else 0.0
    with processors_taken(taken):
        delivered, busy_share = _played(backend, started, ideal_s)
    if length_s >= LONG_LOAD_TEST_WALL_S and isfinite(
        backend.watch.received
    ):
        # To its end a transfer has the time of its packets on their way too, in
        # a short test of slow VMs over many switches a tenth of it.
        delivered = backend.watch.received
    lacking = backend.watch.lacking() if again else []
    return preflight(
        asked_bps, delivered, busy_share, scale.rate, taken, lacking
    )


_TAKE = """
import os, sys, time
processor, share, take_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
os.sched_setaffinity(0, [processor])
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except OSError:
    os.nice(-20)
parent = os.getppid()
while os.getppid() == parent:
    until = time.thread_time() + take_s
    while time.thread_time() < until:
        pass
    time.sleep(take_s / share - take_s)
"""


@contextmanager
def processors_taken(share: float) -> Iterator[None]:
    """Takes a share of each processor from everything else, :data:`TAKE_S` at a
    time.
    """
    with ExitStack() as stack:
        for processor in sorted(os.sched_getaffinity(0)) if share else ():
            command = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _TAKE,
                str(processor),
                str(share),
            ]
            process = stack.enter_context(
                subprocess.Popen([*command, str(TAKE_S)])
            )
            stack.callback(process.kill)
        yield


def _length_s(slowest_bps: float, *, long: bool) -> float:
    """Length of a load test in which VMs send at this rate at least, s of wall
    time.
    """
    packets_s = ENOUGH_PACKETS * LONG_GSO_BYTES * 8 / slowest_bps
    if long:  # until packets arrive at their rate, then as long again
        return min(
            2 * LONG_LOAD_TEST_WALL_S,
            max(LONG_LOAD_TEST_WALL_S, 2 * packets_s + 1.0),
        )
    return min(LONG_LOAD_TEST_WALL_S, max(LOAD_TEST_WALL_S, packets_s))


def _played(
    backend: LiveBackend, started: list[str], ideal_s: float
) -> tuple[float, float]:
    """The share of its volume that the slowest job had in its time, and the
    processors' busy share.

    All begin together, and have ended. Sampling, as beside jobs, is part of the
    load.
    """
    processors = ProcessorSampler()
    backend.begin()
    # The processors are read before jobs end and are cleaned up after.
    backend.listen_until(0.95 * ideal_s)
    busy_share = processors.sample().busy
    backend.listen_until(GIVE_UP_AFTER * ideal_s)
    done = backend.wait(0.0)
    shares = [_achieved_share(one, ideal_s) for one in done]
    for job_id in set(started).difference(one.job_id for one in done):
        shares.append(
            backend.delivered_share(job_id) * ideal_s / backend.now_s()
        )
        backend.kill(job_id)
    return min(shares), busy_share


def _achieved_share(done: Completion, ideal_s: float) -> float:
    """A test transfer's ideal time over its time, the paths' delay apart."""
    if not done.measured_s:
        return 0.0
    # A path's delay is no lack of processor.
    late_s = float(max((done.detail or {}).get("delay_s", (0.0,))))
    return ideal_s / max(ideal_s / 2, done.measured_s - late_s)
