"""A small flat machine for tests of policies that place parallel jobs on nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from jobs.demand import Compute
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.reservation.capacity import NodeCapacity, TierCapacity
from testbed.schedulers.cmbf import Cmbf
from testbed.schedulers.policy import Policy
from testbed.schedulers.queues import NodeQueue
from topologies.flat import flat


def job(
    name: str, nodes: int, runs_s: float, at: float = 0.0, **more: object
) -> JobRequest:
    uses = {
        key: more.pop(key)
        for key in ("cpu_use", "cpu_estimate")
        if key in more
    }
    demand = Compute(**uses)  # type: ignore[arg-type]
    return JobRequest(name, at, nodes, 0, runs_s, demand=demand, **more)  # type: ignore[arg-type]


def jobs_with_estimates(
    *, most_nodes: int, latest_s: int, factors: list[float], most: int
) -> st.SearchStrategy[list[JobRequest]]:
    """Up to ``most`` jobs of 1 to 12 s, whose estimates are their times by one
    of ``factors``.
    """
    return st.lists(
        st.tuples(
            st.integers(1, most_nodes),
            st.integers(1, 12),
            st.integers(0, latest_s),
            st.sampled_from(factors),
        ),
        min_size=1,
        max_size=most,
    ).map(
        lambda drawn: [
            job(
                f"j{k:02}",
                n,
                float(runs),
                float(at),
                estimate_s=runs * factor,
            )
            for k, (n, runs, at, factor) in enumerate(drawn)
        ]
    )


def check_nodes(nodes: NodeCapacity) -> None:
    """Free nodes and holders are what the jobs with nodes leave."""
    held = [node for _, own in nodes._held.values() for node in own]
    assert sorted(held + nodes.free) == list(range(nodes.total))
    assert nodes.free == sorted(nodes.free)
    assert nodes.holders == sorted(
        holder for holder, _ in nodes._held.values()
    )


def check_tier(tier: TierCapacity) -> None:
    """Idle VMs and holders are what the jobs with VMs leave."""
    who: list[str | None] = [None] * len(tier.who)
    for job_id, at in tier.at.items():
        for node in at:
            who[node] = job_id
    assert who == tier.who
    assert who.count(None) == tier.idle
    assert tier.holders == sorted(tier.holder_of.values())
    assert len(tier.holders) == len(tier.at)


def run(
    policy: Policy,
    jobs: Sequence[JobRequest],
    nodes: int,
    backend: SimulatedBackend | None = None,
    after_step: Callable[[Engine], None] | None = None,
) -> list[events.Event]:
    """All events; ledgers and the policy's own view of free nodes are checked after every step."""
    history: list[events.Event] = []
    machine = flat(nodes, 1)

    def check(engine: Engine) -> None:
        engine.reservations.check()
        match policy:
            case NodeQueue(nodes=nodes):
                check_nodes(nodes)
            case Cmbf(_foreground=foreground, _background=background):
                check_tier(foreground)
                check_tier(background)
        if after_step is not None:
            after_step(engine)

    Engine(
        machine,
        jobs,
        policy,
        backend or SimulatedBackend(machine),
        history.append,
        check,
    ).run()
    return history


def starts(history: Sequence[events.Event]) -> dict[str, list[float]]:
    """Times at which each job started or resumed, in order of first start."""
    out: dict[str, list[float]] = {}
    for event in history:
        if isinstance(
            event,
            events.JobStarted | events.JobMigrated | events.JobResumed,
        ):
            out.setdefault(event.job_id, []).append(event.t)
    return out


def finishes(history: Sequence[events.Event]) -> dict[str, float]:
    return {
        e.job_id: e.t
        for e in history
        if isinstance(e, events.JobEnded) and e.outcome == "finished"
    }


def evictions(history: Sequence[events.Event]) -> list[tuple[float, str]]:
    return [
        (e.t, e.job_id)
        for e in history
        if isinstance(e, events.JobPreempted)
    ]
