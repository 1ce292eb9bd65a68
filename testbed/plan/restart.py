"""What is left of a job that was stopped: the plans of the agents that go on elsewhere. Pure.

A job that migrates is ended where it is, each agent reporting what it has done, and begun again on
its new nodes with the rest: what a receiver has counted is not sent again, CPU time that was burnt
is not burnt again. What cannot be divided is done again: a stretch of a demand curve in which
nothing is sent, and an application's own command, which starts from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from jobs.live.protocol import (
    AgentReport,
    CommandPlan,
    ComputePlan,
    Incoming,
    Plan,
    TransferPlan,
)

Curve = tuple[tuple[float, int], ...]

# Less CPU than this is nobody's work; a plan wants something above 0.
LEAST_CPU_S = 1e-6


def remaining(plans: Sequence[Plan], reports: Mapping[int, AgentReport]) -> tuple[Plan, ...]:
    """Every VM's plan for the rest, by index. A VM without a report has done nothing that counts.

    Addresses are still the old ones: see :func:`moved`.
    """
    arrived = {
        (flow.peer, index): flow.size_bytes
        for index, report in reports.items()
        for flow in report.received
    }
    return tuple(_rest(plan, reports.get(plan.index), arrived) for plan in plans)


def moved(plans: Sequence[Plan], ips: Sequence[str]) -> tuple[Plan, ...]:
    """The same plans for VMs that have the addresses ``ips`` now, by index."""
    return tuple(_moved(plan, ips) for plan in plans)


def _moved(plan: Plan, ips: Sequence[str]) -> Plan:
    match plan:
        case TransferPlan():
            sends = tuple(replace(order, ip=ips[order.peer]) for order in plan.sends)
            return replace(plan, ip=ips[plan.index], sends=sends)
        case CommandPlan():
            return replace(plan, ip=ips[plan.index], peers=tuple(ips))
        case ComputePlan():
            return plan


def _rest(
    plan: Plan,
    report: AgentReport | None,
    arrived: Mapping[tuple[int, int], int],
) -> Plan:
    if isinstance(plan, CommandPlan):
        return plan
    if isinstance(plan, ComputePlan):
        burnt_s = 0.0 if report is None else report.cpu_s
        return replace(plan, cpu_s=max(LEAST_CPU_S, plan.cpu_s - burnt_s))
    sends, receives = [], []
    for order in plan.sends:
        left = order.size_bytes - arrived.get((plan.index, order.peer), 0)
        if left > 0:
            sends.append(replace(order, size_bytes=left))
    for source in plan.receives:
        left = source.size_bytes - arrived.get((source.peer, plan.index), 0)
        if left > 0:
            receives.append(Incoming(source.peer, left))
    total = sum(order.size_bytes for order in plan.sends)
    done = total - sum(order.size_bytes for order in sends)
    return replace(
        plan,
        sends=tuple(sends),
        receives=tuple(receives),
        demand=curve_after(plan.demand, done / total) if plan.demand and sends else (),
    )


def curve_after(curve: Curve, sent_share: float) -> Curve:
    """The demand curve from where ``sent_share`` of all bytes are sent, stretched to 0..1 again.

    With τ and the total both reduced in proportion, the rest takes as long as it would have.
    """
    starts = [0.0, *(end for end, _ in curve)]
    areas = [(b - a) * rate for (a, b), (_, rate) in zip(pairwise(starts), curve, strict=True)]
    done = sent_share * sum(areas)
    x0 = 0.0
    for start, (end, rate), area in zip(starts, curve, areas, strict=False):
        if done < area:
            x0 = start + done / rate
            break
        if area and done == area:
            x0 = end
            break
        done -= area
    rest = [((end - x0) / (1.0 - x0), rate) for end, rate in curve if end > x0]
    return (*rest[:-1], (1.0, rest[-1][1]))
