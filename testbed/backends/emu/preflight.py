"""Preflight load test: the plan's busiest instant, played for a moment before the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.live_backend import LiveBackend
from testbed.backends.emu.sampling import Processors
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.plan.fidelity import Finding, preflight
from testbed.plan.peak_load import reserved_port_load_bps
from testbed.spec.experiment import Scale

LOAD_TEST_WALL_S = 1.5


def preflight_load_test(
    emulation: Emulation, scale: Scale, seed: int, together: Sequence[events.JobReserved]
) -> Finding:
    """Run transfers in the places and at the rates of ``together``; judge what it took.

    Jobs of one VM and jobs without bandwidth ask nothing of the switches and are left out; those
    that send without a reservation come with their share (:func:`testbed.plan.peak_load.peak`).
    """
    asking = [r for r in together if sum(count for _, count in r.vms_on) > 1 and r.rate_bps > 0]
    asked_bps = sum(map(reserved_port_load_bps, asking)) * scale.rate
    if not asking:
        return Finding("ok", "preflight", "the plan asks nothing of the switches", {})
    backend = LiveBackend(emulation, scale, seed, lambda _: None)
    ideal_s = LOAD_TEST_WALL_S * scale.time
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
        started.append(job.id)
    processors = Processors()
    done: list[Completion] = []
    while len(done) < len(asking):
        done += backend.wait(None)
    busy_share = processors.sample().busy
    achieved = min((ideal_s / d.measured_s if d.measured_s else 0.0) for d in done)
    return preflight(asked_bps, achieved, busy_share, scale.rate)
