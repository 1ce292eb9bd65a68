"""Two VMs on a node: the published interference, event by event, against time slices."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Compute
from jobs.interference import Interference
from jobs.request import JobRequest
from testbed.backends.sim.node_sharing import TwoTiers, servers_of_processes
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement
from testbed.schedulers.actions import Tier
from tests.support.examples import examples
from topologies.flat import flat

NODES = 4
INTERFERENCE = Interference()


def job(name: str, *use: float, runs_s: float = 100.0) -> JobRequest:
    return JobRequest(
        name, 0.0, len(use), 0, runs_s, demand=Compute(cpu_use=use)
    )


def on(*servers: int, processes: tuple[int, ...] = ()) -> Placement:
    return Placement(NODES, tuple((s, 1) for s in servers), processes)


def simulator(seed: int = 1) -> SimulatedBackend:
    return SimulatedBackend(flat(NODES, 1), seed=seed)


def ends(backend: SimulatedBackend) -> dict[str, float]:
    out = {}
    while done := backend.wait(None):
        out.update({c.job_id: c.at_s for c in done})
    return out


def test_alone_in_the_foreground_a_job_loses_nothing() -> None:
    backend = simulator()
    backend.start(job("a", 0.5, 0.9), on(0, 1), 0, "foreground")
    assert ends(backend) == {"a": 100.0}


def test_in_the_foreground_of_another_a_job_loses_what_its_slowest_crowded_process_loses() -> (
    None
):
    backend = simulator()
    foreground, background = job("a", 0.5, 0.9), job("b", 1.0, runs_s=1e9)
    backend.start(foreground, on(0, 1), 0, "foreground")
    backend.start(background, on(1), 0, "background")
    (done,) = backend.wait(None)
    loss = INTERFERENCE.losses(foreground, 1)[1]
    assert 0 < loss < 0.037
    assert (done.job_id, done.at_s) == (
        "a",
        pytest.approx(100.0 / (1 - loss)),
    )


def test_in_the_background_of_another_a_process_gets_its_share_of_what_is_left() -> (
    None
):
    backend = simulator()
    foreground, background = job("a", 0.7, runs_s=1e9), job("b", 0.9)
    backend.start(foreground, on(0), 0, "foreground")
    backend.start(background, on(0), 0, "background")
    (done,) = backend.wait(1e6)
    (eff,) = INTERFERENCE.effs(background, 1)
    assert 0.8 <= eff <= 1.0
    assert done.at_s == pytest.approx(100.0 / (eff * 0.3 / 0.9))


def test_what_it_needs_is_all_it_gets() -> None:
    backend = simulator()
    background = job("b", 0.25)
    backend.start(job("a", 0.7, runs_s=1e9), on(0), 0, "foreground")
    backend.start(background, on(0), 0, "background")
    (done,) = backend.wait(1e6)
    assert done.at_s == pytest.approx(
        100.0 / INTERFERENCE.effs(background, 1)[0]
    )


def test_a_busy_foreground_leaves_4_percent() -> None:
    backend = simulator()
    background = job("b", 1.0)
    backend.start(job("a", 1.0, runs_s=1e9), on(0), 0, "foreground")
    backend.start(background, on(0), 0, "background")
    (done,) = backend.wait(1e6)
    assert done.at_s == pytest.approx(
        100.0 / (INTERFERENCE.effs(background, 1)[0] * 0.04)
    )


def test_in_the_background_of_nobody_a_job_runs_at_full_speed() -> None:
    backend = simulator()
    backend.start(job("b", 1.0, 0.6), on(0, 1), 0, "background")
    assert ends(backend) == {"b": 100.0}


def test_a_job_advances_with_its_slowest_process_wherever_each_of_them_is() -> (
    None
):
    foreground = job("a", 0.9, 0.4, runs_s=1e9)
    background = job("b", 0.9, 0.4)
    effs = INTERFERENCE.effs(background, 1)
    for order in ((), (0, 1), (1, 0)):
        backend = simulator()
        backend.start(foreground, on(2, 3), 0, "foreground")
        backend.start(
            background, on(2, 3, processes=order), 0, "background"
        )
        (done,) = backend.wait(1e6)
        need = [0.4, 0.9] if order == (1, 0) else [0.9, 0.4]
        eff = effs[::-1] if order == (1, 0) else effs
        speed = min(
            e * min(1.0, i / n)
            for e, i, n in zip(eff, (0.1, 0.6), need, strict=True)
        )
        assert done.at_s == pytest.approx(100.0 / speed)


def test_a_switch_to_the_foreground_is_a_matter_of_speed_alone() -> None:
    backend = simulator()
    background = job("b", 0.9)
    backend.start(job("a", 0.7, runs_s=40.0), on(0), 0, "foreground")
    backend.start(background, on(0), 0, "background")
    (first,) = backend.wait(None)
    backend.switch_tier("b", "foreground")
    done_by_then = INTERFERENCE.effs(background, 1)[0] / 3 * first.at_s
    assert ends(backend)["b"] == pytest.approx(
        first.at_s + 100.0 - done_by_then
    )


def test_draws_are_the_jobs_own_and_within_the_stated_ranges() -> None:
    wide = job("w", *([0.5] * 200))
    effs, losses = INTERFERENCE.effs(wide, 7), INTERFERENCE.losses(wide, 7)
    assert all(0.2 <= eff <= 0.8 for eff in effs)
    assert all(0.0 <= loss <= 0.037 for loss in losses)
    assert abs(sum(effs) / 200 - 0.43) < 0.05
    assert (effs, losses) == (
        INTERFERENCE.effs(wide, 7),
        INTERFERENCE.losses(wide, 7),
    )
    assert effs != INTERFERENCE.effs(job("other", *([0.5] * 200)), 7)
    assert effs != INTERFERENCE.effs(wide, 8)


def test_cpu_seconds_count_what_processes_use_in_the_foreground_and_get_in_the_background() -> (
    None
):
    backend = simulator()
    backend.start(job("a", 0.7, runs_s=1e4), on(0), 0, "foreground")
    backend.start(job("b", 0.9, runs_s=1e6), on(0), 0, "background")
    backend.wait(100.0)
    assert backend.cpu_s == pytest.approx(100.0 * (0.7 + 0.3))
    backend.preempt("b")
    backend.wait(200.0)
    assert backend.cpu_s == pytest.approx(100.0 * (0.7 + 0.3) + 100.0 * 0.7)


@pytest.mark.slow
@examples(25)
@given(st.data())
def test_speeds_are_those_of_the_published_formula(
    data: st.DataObject,
) -> None:
    """Random comings and goings, each job's speed worked out afresh, process by process."""
    tiers = TwoTiers([1] * NODES, INTERFERENCE, 3)
    held: dict[tuple[Tier, int], tuple[str, int]] = {}
    jobs: dict[str, tuple[JobRequest, Tier, list[int]]] = {}
    names = (f"j{k}" for k in itertools.count())
    sides: tuple[Tier, Tier] = ("foreground", "background")
    for _ in range(data.draw(st.integers(1, 14))):
        if jobs and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(jobs)))
            tiers.leave(gone)
            _, tier, at = jobs.pop(gone)
            for server in at:
                del held[tier, server]
            continue
        tier = data.draw(st.sampled_from(sides))
        free = [s for s in range(NODES) if (tier, s) not in held]
        if not free:
            continue
        servers = sorted(
            data.draw(st.sets(st.sampled_from(free), min_size=1))
        )
        order = data.draw(st.permutations(range(len(servers))))
        use = data.draw(
            st.lists(
                st.floats(0.05, 1.0),
                min_size=len(order),
                max_size=len(order),
            )
        )
        request = job(next(names), *use)
        placement = on(*servers, processes=tuple(order))
        tiers.enter(request, placement, tier)
        jobs[request.id] = (request, tier, servers)
        for server, process in zip(servers, order, strict=True):
            held[tier, server] = (request.id, process)
        assert [
            servers_of_processes(placement)[p] for p in order
        ] == servers
    for name, (request, tier, servers) in jobs.items():
        speeds = []
        for server in servers:
            process = held[tier, server][1]
            other = held.get((sides[1 - sides.index(tier)], server))
            if other is None:
                speeds.append(1.0)
            elif tier == "foreground":
                speeds.append(
                    1.0 - INTERFERENCE.losses(request, 3)[process]
                )
            else:
                idle = max(0.04, 1.0 - jobs[other[0]][0].cpu_uses[other[1]])
                eff = INTERFERENCE.effs(request, 3)[process]
                speeds.append(
                    eff * min(1.0, idle / request.cpu_uses[process])
                )
        assert tiers.pace(name)[0] == pytest.approx(min(speeds))
