"""Preflight of a live run: load tests of the plans' busiest instants, and the
search for a rate that fits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from operator import attrgetter

from jobs.demand import Pattern, Transfer
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
"""Shortest length of a first load test."""
LONG_LOAD_TEST_WALL_S = 5.0
"""Shortest length of a repeated load test, and longest of a first one. The
longer it is, the less packets' time on their way counts.
"""
NEARLY = 1.0
"""Load up to which a test over the limit is repeated: another program may have
added load.
"""
FAR = 2.0
"""Load of a first test beyond which the search begins far below its rate."""
TAKEN_SHARE = 0.1
"""Share of the processors withheld from the network in repeated load tests."""
TAKE_S = 0.001
"""Processor time that is withheld at once."""
GIVE_UP_AFTER = 2.0
"""Time after which a test transfer is ended, in lengths of the load test."""
PROGRESS_EVERY_S = 1.0
"""Longest time between test transfers' reports of their progress."""
LIKELY_BPS = 3e9
"""Approximate summed port load that two processors can carry, with which the
search for ``auto`` begins.
"""
SAFE_SHARE = 0.8
"""Share of a rate that probably fits, with which the search for ``auto``
begins: it leaves room.
"""
LEAST_VM_BPS = 1_000_000
"""Lowest rate of the fastest VM. Below, its few large packets are no stream at
a rate (docs/decisions/16).
"""

Peak = Sequence[events.JobReserved]
LoadTest = Callable[[Peak, Scale, bool], Finding]
"""Load test of a peak at a scale; True: a repeated one (:func:`load_test`)."""
Narrate = Callable[[str], None]


@dataclass(frozen=True)
class Preflight:
    """Each plan's finding at a rate; ``refusal``: the reason for which a run at
    this rate does not start (None: it starts).
    """

    rate: float
    findings: Sequence[Finding]
    refusal: MachineCannot | None = None

    @property
    def loads(self) -> list[float]:
        """Each plan's load as a share of what the machine can do; 0 if it asks
        nothing, infinite if it could not be tested.
        """
        loads = []
        for finding in self.findings:
            untested = 0.0 if finding.level == "ok" else inf
            loads.append(finding.metrics.get("load", untested))
        return loads

    @property
    def load(self) -> float:
        """The largest of the loads."""
        return max(self.loads)

    @property
    def worst(self) -> Finding:
        """The finding with the largest load."""
        return self.findings[self.loads.index(self.load)]

    def __str__(self) -> str:
        if self.load in (0.0, inf):
            return self.worst.reason
        share = f"{self.load:.0%} of what this machine can do"
        return f"the plan's busiest instant at scale.rate: {rate_text(self.rate)} is {share}"


def passed_load_test(
    test: LoadTest,
    peaks: Sequence[Peak],
    scale: Scale,
    narrate: Narrate,
    *,
    force: bool,
    repeat: bool = True,
) -> Preflight:
    """Tests the scale's rate; searches for one that fits if it does not.

    ``auto`` first tests a rate that leaves room, and takes it if it fits;
    ``largest`` always searches. A given rate that does not fit, or the first
    one of ``largest``, is tested once more unless its load is beyond
    :data:`FAR`. The best of several tests counts, as a switch that has just been
    started, or another program, only adds load.

    ``force``: nothing is refused, and there is no search for a given rate: it
    is tested twice at most, or once without ``repeat``. If the load test itself
    fails, a rate is run with that finding; ``auto`` without ``force`` is
    refused.
    """
    return _Search(test, peaks, scale, narrate).passed(
        force=force, repeat=repeat
    )


SUSPECT, INVALID = THRESHOLDS["preflight"]


class _Search:
    """Load tests of the plans' busiest instants, at one rate after the other."""

    def __init__(
        self,
        test: LoadTest,
        peaks: Sequence[Peak],
        scale: Scale,
        narrate: Narrate,
    ) -> None:
        self._test = test
        self._peaks = peaks
        self._scale = scale
        self._narrate = narrate
        self._tested: list[Preflight] = []
        self._room = 1.0 if scale.largest else SAFE_SHARE
        asked_bps = max(
            sum(map(reserved_port_load_bps, peak)) for peak in peaks
        )
        rate = two_figures(self._room * LIKELY_BPS / max(1, asked_bps))
        self._likely = min(1.0, rate)

    def passed(self, *, force: bool, repeat: bool) -> Preflight:
        """See :func:`passed_load_test`."""
        scale = self._scale
        start = self._likely if scale.auto else scale.rate
        first = self._load(start)
        if first == inf:
            return self._failed(self._tested[0], force=force)
        if first <= SUSPECT and not scale.largest:
            return self._chosen(self._tested[0])
        if force and not scale.auto:
            return self._best_at(start, again=repeat)
        fitting = self._fitting(start, first)
        rate = start
        if scale.auto:
            rate = fitting or self._lowest
        best = self._best_at(rate)
        if best.load <= SUSPECT:
            return self._chosen(best)
        return self._doubted(best, fitting, force=force)

    def _load(self, rate: float) -> float:
        """Tests a rate; its load. All tests but the first are repeated ones."""
        again = bool(self._tested)
        findings: list[Finding] = []
        for number, peak in enumerate(self._peaks):
            # Plans with the same busiest instant are tested once.
            earliest = self._peaks.index(peak)
            if earliest == number:
                scale = replace(self._scale, rate=rate)
                findings.append(self._test(peak, scale, again))
            else:
                findings.append(findings[earliest])
        tested = Preflight(rate, findings)
        # Otherwise two lines on one rate seem to contradict each other.
        once_more = any(done.rate == rate for done in self._tested)
        step = "preflight, tested once more" if once_more else "preflight"
        self._tested.append(tested)
        self._narrate(f"{step}: {tested}")
        return tested.load

    def _searched_load(self, rate: float) -> float:
        """Tests a rate, twice if it is just over the limit; its lower load."""
        load = self._load(rate)
        if SUSPECT < load <= NEARLY:
            return min(load, self._load(rate))
        return load

    def _fitting(self, start: float, first: float) -> float | None:
        """Searches for a rate that fits; ``first``: the load at ``start``. None
        if no rate fits.
        """
        scale = self._scale
        rates_bps = [job.rate_bps for peak in self._peaks for job in peak]
        fastest_bps = max(1, max(rates_bps, default=1))
        least = min(start, two_figures(LEAST_VM_BPS / fastest_bps))
        begin = start
        if first > FAR or (scale.auto and not scale.largest):
            # About the rate that fits, if load grows in proportion to it.
            below = two_figures(self._room * start / first)
            begin = max(least, min(self._likely, below))
        return fitting_rate(
            self._searched_load,
            start=begin,
            most=scale.rate,
            least=least,
            largest=scale.largest,
        )

    @property
    def _lowest(self) -> float:
        """The lowest rate that was tested."""
        return min(tested.rate for tested in self._tested)

    def _best_at(self, rate: float, *, again: bool = False) -> Preflight:
        """The test at a rate with the lowest load; ``again``: after one more
        test.
        """
        if again:
            self._load(rate)
        at_rate = [done for done in self._tested if done.rate == rate]
        return min(at_rate, key=attrgetter("load"))

    def _failed(self, tested: Preflight, *, force: bool) -> Preflight:
        """A load test that failed; refused if the rate was to be searched for,
        unless ``force``.
        """
        if force or not self._scale.auto:
            return tested
        hint = "give scale.rate a number in place of auto"
        return replace(tested, refusal=MachineCannot(str(tested), hint))

    def _chosen(self, tested: Preflight) -> Preflight:
        """The test at the run's rate; reports the rate if the preflight chose
        it.
        """
        if self._scale.auto:
            name = "largest" if self._scale.largest else "auto"
            self._narrate(
                f"scale.rate: {name} -> {rate_text(tested.rate)}, tested: {tested.load:.0%} load"
            )
        return tested

    def _doubted(
        self,
        tested: Preflight,
        fitting: float | None,
        *,
        force: bool,
    ) -> Preflight:
        """A test at too high a rate, with advice; refused if its load is
        ``invalid``, or if the rate was searched for, unless ``force``.
        """
        if fitting is None:
            advice = f"no scale.rate down to {rate_text(self._lowest)} fits"
            hint = f"have fewer jobs at once: {advice}"
        else:
            advice = f"scale.rate: {rate_text(fitting)} was tested and fits"
            hint = (
                f"--set scale.rate={rate_text(fitting)} was tested and fits"
            )
        findings = [
            _advised(finding, advice) for finding in tested.findings
        ]
        advised = replace(tested, findings=findings)
        accepted = advised.load <= INVALID and not self._scale.auto
        if force or accepted:
            return advised
        refusal = MachineCannot(
            str(advised), f"{hint}; --force runs all the same"
        )
        return replace(advised, refusal=refusal)


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
    """Runs a transfer in the place and at the rate of each job of ``together``,
    all at once. Returns the finding on the load.

    ``rings``: ids of jobs that are tested by a ring, most of whose transfers
    stay within a server. All others are tested by a permutation: all that their
    hoses allow may cross the network.

    ``again``: a repeated test. It is longer and withholds :data:`TAKEN_SHARE`
    of the processors: as a switch that polls leaves none idle, only a test with
    fewer of them shows that they suffice.

    Jobs of one VM and jobs without bandwidth ask nothing of the switches and
    are left out. Jobs that send without a reservation are in ``together`` with
    their share of the bandwidth (:func:`testbed.plan.peak_load.peak`).
    """
    together = _sending(together)
    if not together:
        return Finding(
            "ok", "preflight", "the plan asks nothing of the switches", {}
        )
    slowest_bps = min(job.rate_bps for job in together) * scale.rate
    length_s = _length_s(slowest_bps, long=again)
    ideal_s = length_s * scale.time
    backend = _test_backend(emulation, seed, together, scale)
    try:
        started = _start_all(backend, together, rings, ideal_s)
    except StartFailed as error:
        reason = (
            f"the plan's busiest instant could not be load-tested: {error}"
        )
        return Finding("invalid", "preflight", reason, {})
    asked_bps = sum(map(reserved_port_load_bps, together)) * scale.rate
    taken = TAKEN_SHARE if again else 0.0
    with processors_taken(taken):
        delivered, busy_share = _play(backend, started, ideal_s)
    if length_s >= LONG_LOAD_TEST_WALL_S and isfinite(
        backend.watch.received
    ):
        # The samples leave out packets' time on their way, which a transfer's
        # time includes: up to a tenth, for slow VMs over many switches.
        delivered = backend.watch.received
    lacking = backend.watch.lacking() if again else []
    return preflight(
        asked_bps,
        delivered,
        busy_share,
        scale_rate=scale.rate,
        taken_share=taken,
        lacking=lacking,
    )


def _n_vms(reserved: events.JobReserved) -> int:
    return sum(count for _, count in reserved.vms_on)


def _sending(together: Peak) -> Peak:
    """The jobs that ask something of the switches."""
    return [job for job in together if _n_vms(job) > 1 and job.rate_bps > 0]


def _test_backend(
    emulation: Emulation, seed: int, together: Peak, scale: Scale
) -> LiveBackend:
    """The backend of the test transfers in the place of ``together``."""
    # Packets get the size that the shortest of the jobs would use.
    estimates_s = [job.estimate_s for job in together if job.estimate_s]
    lasts_s = min(estimates_s, default=0.0) / scale.time
    backend = LiveBackend(
        emulation, scale, seed, lambda _: None, played_for_s=lasts_s
    )
    backend.progress_every_s = min(
        PROGRESS_EVERY_S, backend.progress_every_s
    )
    return backend


def _start_all(
    backend: LiveBackend,
    together: Peak,
    rings: Collection[str],
    ideal_s: float,
) -> list[str]:
    """Starts a test transfer in each job's place; returns their ids.

    Raises StartFailed, with none left running.
    """
    started: list[str] = []
    for reserved in together:
        pattern: Pattern = "permutation"
        if reserved.job_id in rings:
            pattern = "ring"
        try:
            started.append(_start(backend, reserved, pattern, ideal_s))
        except StartFailed:
            for job_id in started:
                backend.remove(job_id)
            raise
    return started


def _start(
    backend: LiveBackend,
    reserved: events.JobReserved,
    pattern: Pattern,
    ideal_s: float,
) -> str:
    """Starts a test transfer in a job's place; returns its id.

    Raises StartFailed.
    """
    job = JobRequest(
        id=f"preflight.{reserved.job_id}",
        submit_s=0.0,
        n_vms=_n_vms(reserved),
        bandwidth_bps=reserved.rate_bps,
        duration_s=ideal_s,
        demand=Transfer(pattern=pattern),
    )
    vms_on = tuple((server, count) for server, count in reserved.vms_on)
    placement = Placement(reserved.root, vms_on)
    backend.start(job, placement, reserved.rate_bps, "foreground")
    return job.id


# Its real-time priority lets it take its share from the switch as well. It counts
# its own processor time: by the clock it would take less when it has to wait.
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
    """Keeps each processor busy for a share of the time, :data:`TAKE_S` at
    once, so that other processes get less of it.
    """
    command = [sys.executable, "-I", "-S", "-c", _TAKE]
    processors = sorted(os.sched_getaffinity(0)) if share else []
    with ExitStack() as stack:
        for processor in processors:
            arguments = (str(processor), str(share), str(TAKE_S))
            process = stack.enter_context(
                subprocess.Popen([*command, *arguments])
            )
            stack.callback(process.kill)
        yield


def _length_s(slowest_bps: float, *, long: bool) -> float:
    """Length of a load test in s of wall time; the slowest VM sends at
    ``slowest_bps``.
    """
    packets_s = ENOUGH_PACKETS * LONG_GSO_BYTES * 8 / slowest_bps
    if not long:
        return min(LONG_LOAD_TEST_WALL_S, max(LOAD_TEST_WALL_S, packets_s))
    # Once until packets arrive at their rate, then as long to measure them.
    needed_s = max(LONG_LOAD_TEST_WALL_S, 2 * packets_s + 1.0)
    return min(2 * LONG_LOAD_TEST_WALL_S, needed_s)


def _play(
    backend: LiveBackend,
    started: list[str],
    ideal_s: float,
) -> tuple[float, float]:
    """Plays the started test transfers until they end. Returns the slowest
    one's ideal time over its time, and the processors' busy share.

    Sampling is part of the load, as it is in a run.
    """
    processors = ProcessorSampler()
    backend.begin()
    # Read before transfers end, as their removal takes processor time, too.
    backend.listen_until(0.95 * ideal_s)
    busy_share = 1.0 - processors.sample().idle
    backend.listen_until(GIVE_UP_AFTER * ideal_s)
    done = backend.wait(0.0)
    shares = [_achieved_share(completion, ideal_s) for completion in done]
    ended = {completion.job_id for completion in done}
    for job_id in started:
        if job_id not in ended:
            delivered = backend.delivered_share(job_id)
            shares.append(delivered * ideal_s / backend.now_s())
            backend.remove(job_id)
    return min(shares), busy_share


def _achieved_share(done: Completion, ideal_s: float) -> float:
    """A test transfer's ideal time over its time without its paths' delay."""
    if not done.measured_s:
        return 0.0
    # A path's delay is no lack of processor.
    late_s = float(max((done.detail or {}).get("delay_s", (0.0,))))
    return ideal_s / max(ideal_s / 2, done.measured_s - late_s)
