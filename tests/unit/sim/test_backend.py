"""The simulator: end times and order of jobs, and the sharing among best-effort jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import DemandCurve, Pattern, Transfer
from jobs.request import JobRequest
from testbed.backends.sim.flow_sharing import paths, traffic
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.engine.backend import StartFailed
from testbed.errors import RunFailed
from testbed.schedulers.policy import (
    FLOW_DEPENDENCIES,
    FlowDependency,
    SharingModel,
)
from tests.support.examples import examples
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

DC = tree([2, 2, 2], [400, 200, 100], 4)
ROOT = DC.trees[0].root


def transfer(
    job_id: str, n: int = 2, b: int = 100, p: float = 10.0, **more: object
) -> JobRequest:
    return JobRequest(job_id, 0.0, n, b, p, **more)  # type: ignore[arg-type]


def ends(backend: SimulatedBackend) -> list[tuple[str, float]]:
    out = []
    while done := backend.wait(None):
        out += [(c.job_id, c.at_s) for c in done]
    return out


def on(*vms: tuple[int, int], root: int = ROOT) -> Placement:
    return Placement(root, vms)


def test_a_reserved_job_ends_exactly_when_the_model_says() -> None:
    backend = SimulatedBackend()
    backend.start(transfer("a", p=0.1), on((0, 2)), 30, "foreground")
    assert ends(backend) == [("a", 0.1 * (100 / 30))]


def test_completions_of_one_instant_come_together_by_id_and_later_ones_later() -> (
    None
):
    backend = SimulatedBackend()
    for name, rate in (("c", 100), ("a", 100), ("b", 50)):
        backend.start(transfer(name), on((0, 2)), rate, "foreground")
    assert [c.job_id for c in backend.wait(30.0)] == ["a", "c"]
    assert backend.now_s() == 10.0
    assert backend.wait(15.0) == []
    assert backend.now_s() == 15.0
    assert [(c.job_id, c.measured_s) for c in backend.wait(None)] == [
        ("b", 20.0)
    ]
    assert backend.wait(None) == []


def test_a_completion_at_the_limit_is_in_time() -> None:
    backend = SimulatedBackend()
    backend.start(transfer("a"), on((0, 2)), 100, "foreground")
    assert [c.job_id for c in backend.wait(10.0)] == ["a"]


def test_rescaling_on_the_way() -> None:
    backend = SimulatedBackend()
    backend.start(transfer("a"), on((0, 2)), 100, "foreground")
    backend.wait(5.0)
    backend.rescale("a", 25)
    backend.wait(9.0)
    backend.rescale("a", 100)
    # Half done at 5, a tenth more by 9, the rest at full speed.
    assert ends(backend) == [("a", pytest.approx(13.0))]


def test_a_demand_curve_is_followed_through_a_rescaling() -> None:
    curve = DemandCurve(((0.5, 0), (1.0, 100)))
    backend = SimulatedBackend()
    job = JobRequest("a", 0.0, 2, 100, 10.0, demand=curve)
    backend.start(job, on((0, 2)), 50, "foreground")
    backend.wait(4.0)
    backend.rescale("a", 25)
    assert ends(backend) == [("a", pytest.approx(5.0 + 20.0))]


def test_work_is_conserved_across_preemption() -> None:
    backend = SimulatedBackend()
    backend.start(transfer("a"), on((0, 2)), 100, "foreground")
    backend.wait(4.0)
    backend.preempt("a")
    assert backend.wait(20.0) == []
    backend.resume("a", 0.0, "foreground")
    backend.wait(21.0)
    backend.preempt("a")
    backend.migrate("a", on((2, 2)), 0.0, "foreground")
    (done,) = backend.wait(None)
    assert (done.at_s, done.measured_s) == (
        pytest.approx(26.0),
        pytest.approx(10.0),
    )


def test_a_migration_costs_time_on_the_new_nodes_and_none_of_the_work() -> (
    None
):
    backend = SimulatedBackend()
    backend.start(transfer("a"), on((0, 2)), 100, "foreground")
    backend.wait(4.0)
    backend.migrate("a", on((2, 2)), 3.0, "foreground")
    (done,) = backend.wait(None)
    assert (done.at_s, done.measured_s) == (
        pytest.approx(13.0),
        pytest.approx(13.0),
    )


@pytest.mark.parametrize("flow_dependency", FLOW_DEPENDENCIES)
def test_a_job_that_gives_up_its_bandwidth_keeps_what_it_has_done(
    flow_dependency: FlowDependency,
) -> None:
    sharing = SharingModel(flow_dependency)
    backend = SimulatedBackend(DC, sharing)
    # Half of its bandwidth for 8 s is 4 s of its 10 s; the rest at b, as
    # nobody else is there.
    backend.start(transfer("a"), on((0, 1), (1, 1)), 50, "foreground")
    assert backend.wait(8.0) == []
    backend.migrate(
        "a", on((4, 1), (6, 1)), 0.0, "foreground", best_effort=True
    )
    (done,) = backend.wait(None)
    assert (done.at_s, done.measured_s) == (
        pytest.approx(14.0),
        pytest.approx(14.0),
    )


@pytest.mark.parametrize("flow_dependency", FLOW_DEPENDENCIES)
def test_without_bandwidth_a_job_has_what_reservations_leave(
    flow_dependency: FlowDependency,
) -> None:
    backend = SimulatedBackend(DC, SharingModel(flow_dependency))
    backend.start(transfer("a"), on((0, 1), (1, 1)), 100, "foreground")
    held = transfer("held", b=75, p=100.0)
    backend.start(held, on((4, 1), (6, 1)), 75, "foreground")
    backend.wait(5.0)
    backend.migrate(
        "a", on((4, 1), (6, 1)), 0.0, "foreground", best_effort=True
    )
    # 5 s of work at a quarter of its bandwidth.
    (done,) = backend.wait(None)
    assert (done.job_id, done.at_s) == ("a", pytest.approx(25.0))


def test_a_demand_curve_has_left_what_its_later_steps_send() -> None:
    curve = DemandCurve(((0.5, 100), (1.0, 300)))
    job = transfer("a", demand=curve)
    whole_bits = curve.volume_bits(job)
    assert curve.left_bits(job, 0.0) == pytest.approx(whole_bits)
    assert curve.left_bits(job, 0.5) == pytest.approx(0.75 * whole_bits)
    assert curve.left_bits(job, 1.0) == 0.0


def test_a_single_vm_without_bandwidth_is_held_up_by_nothing() -> None:
    backend = SimulatedBackend(DC)
    backend.start(transfer("a", n=1), on((0, 1)), 100, "foreground")
    backend.wait(4.0)
    backend.migrate("a", on((4, 1)), 0.0, "foreground", best_effort=True)
    assert ends(backend) == [("a", pytest.approx(10.0))]


def test_best_effort_needs_a_network_and_independent_flows_no_cost() -> (
    None
):
    independent = SharingModel("independent")
    for backend, cost_s in (
        (SimulatedBackend(), 0.0),
        (SimulatedBackend(DC, independent), 3.0),
    ):
        backend.start(transfer("a"), on((0, 2)), 100, "foreground")
        with pytest.raises(RunFailed, match=r"simulated network|no cost"):
            backend.migrate(
                "a", on((4, 2)), cost_s, "foreground", best_effort=True
            )


@pytest.mark.parametrize("dependency", FLOW_DEPENDENCIES)
def test_nothing_is_waited_for_where_the_only_job_is_cut(
    dependency: FlowDependency,
) -> None:
    def meter(begin_s: float, *_: float) -> None:
        assert begin_s < 1e3

    backend = SimulatedBackend(DC, SharingModel(dependency), meter=meter)
    backend.start(
        transfer("a"), on((0, 1), (4, 1)), rate_bps=0, tier="foreground"
    )
    backend.cut("a")
    assert backend.wait(None) == []
    backend.reconnect("a")
    assert [name for name, _ in ends(backend)] == ["a"]


def test_preempted_while_it_is_restored_a_job_keeps_its_progress_and_pays_again() -> (
    None
):
    backend = SimulatedBackend()
    backend.start(transfer("a"), on((0, 2)), 100, "foreground")
    backend.wait(4.0)
    backend.preempt("a")
    backend.resume("a", 3.0, "foreground")
    backend.wait(6.0)
    backend.preempt("a")
    backend.wait(10.0)
    backend.resume("a", 3.0, "foreground")
    (done,) = backend.wait(None)
    assert (done.at_s, done.measured_s) == (
        pytest.approx(19.0),
        pytest.approx(15.0),
    )


def test_ends_that_differ_by_rounding_alone_are_one_instant() -> None:
    backend = SimulatedBackend()
    backend.start(transfer("a", p=0.3), on((0, 2)), 100, "foreground")
    backend.wait(0.1)
    backend.start(transfer("b", p=0.2), on((2, 2)), 100, "foreground")
    assert 0.1 + 0.2 != 0.3
    assert [c.job_id for c in backend.wait(0.3)] == ["a", "b"]
    assert backend.now_s() == 0.3


def test_a_killed_job_completes_no_more() -> None:
    backend = SimulatedBackend(DC)
    backend.start(transfer("a"), on((0, 2)), 100, "foreground")
    backend.start(transfer("b"), on((0, 1), (4, 1)), 0, "foreground")
    backend.wait(1.0)
    backend.kill("a", "asked to")
    backend.kill("b", "asked to")
    assert ends(backend) == []


def test_what_the_simulator_cannot_do_it_says() -> None:
    backend = SimulatedBackend()
    with pytest.raises(StartFailed, match="network to share"):
        backend.start(transfer("a"), on((0, 2)), 0, "foreground")
    with pytest.raises(StartFailed, match="the nodes it is on"):
        backend.start(transfer("a"), on((0, 2)), 100, "background")
    shared = SimulatedBackend(DC)
    shared.start(transfer("a"), on((0, 1), (1, 1)), 0, "foreground")
    with pytest.raises(RunFailed, match="no reservation"):
        shared.preempt("a")
    with pytest.raises(RunFailed, match="no reservation"):
        shared.rescale("a", 5)


# ------------------------------------------------------------------------------ best effort


@pytest.mark.parametrize("dependency", FLOW_DEPENDENCIES)
def test_two_jobs_over_one_link_halve_it_until_one_has_gone(
    dependency: FlowDependency,
) -> None:
    backend = SimulatedBackend(DC, SharingModel(dependency))
    backend.start(
        transfer("a", p=10.0), on((0, 1), (1, 1)), 0, "foreground"
    )
    backend.start(
        transfer("b", p=20.0), on((0, 1), (1, 1)), 0, "foreground"
    )
    # 100 bit/s for two: a has its 1000 bits at 20 s, b then the other half of its 2000 alone.
    assert ends(backend) == [
        ("a", pytest.approx(20.0)),
        ("b", pytest.approx(30.0)),
    ]


@pytest.mark.parametrize("dependency", FLOW_DEPENDENCIES)
def test_best_effort_gets_what_reservations_leave(
    dependency: FlowDependency,
) -> None:
    backend = SimulatedBackend(DC, SharingModel(dependency))
    backend.start(
        transfer("kept", p=10.0, b=60), on((0, 1), (1, 1)), 60, "foreground"
    )
    backend.start(
        transfer("best_effort", p=10.0), on((0, 1), (1, 1)), 0, "foreground"
    )
    # 40 bit/s until 10 s, then 100.
    assert ends(backend) == [
        ("kept", 10.0),
        ("best_effort", pytest.approx(16.0)),
    ]


@pytest.mark.parametrize("dependency", FLOW_DEPENDENCIES)
def test_inside_one_server_nothing_is_shared(
    dependency: FlowDependency,
) -> None:
    backend = SimulatedBackend(DC, SharingModel(dependency))
    for name in "abc":
        backend.start(transfer(name), on((0, 2)), 0, "foreground")
    assert [at for _, at in ends(backend)] == [pytest.approx(10.0)] * 3


STAR = tree([1, 5], [1000, 100], 4)


def star(*pairs: tuple[int, int]) -> Placement:
    return Placement(STAR.trees[0].root, pairs)


@pytest.mark.parametrize(
    ("dependency", "end_s"),
    [("slowest", 20.0), ("lockstep", 15.0), ("independent", 20.0)],
)
def test_flow_dependencies_differ_in_what_a_slow_job_takes_from_others(
    dependency: FlowDependency, end_s: float
) -> None:
    # A ring over servers 0, 1, 2 is held to a third of server 2's link by two more jobs there. Its
    # flow from 0 to 1 could have half of that way: it takes it, or (as "lockstep") takes a third.
    backend = SimulatedBackend(STAR, SharingModel(dependency))
    backend.start(
        transfer("ring", n=3, p=900.0),
        star((0, 1), (1, 1), (2, 1)),
        0,
        "foreground",
    )
    for name in ("x", "y"):
        backend.start(
            transfer(name, p=900.0), star((2, 1), (3, 1)), 0, "foreground"
        )
    backend.start(
        transfer("pair", p=10.0), star((0, 1), (1, 1)), 0, "foreground"
    )
    assert [(c.job_id, c.at_s) for c in backend.wait(None)] == [
        ("pair", pytest.approx(end_s))
    ]


@pytest.mark.parametrize(
    ("dependency", "end_s"),
    [("slowest", 50.0), ("lockstep", 40.0), ("independent", 40.0)],
)
def test_flow_dependencies_differ_in_what_a_finished_flow_leaves(
    dependency: FlowDependency, end_s: float
) -> None:
    # The ring's flows from and to server 2 have a quarter of its link, for 40 s. Its flow from 0 to
    # 1 shares server 0's uplink with the pair: independent, it is through after 20 s.
    backend = SimulatedBackend(
        STAR, SharingModel(dependency, recompute_s=1.0)
    )
    backend.start(
        transfer("ring", n=3, p=10.0),
        star((0, 1), (1, 1), (2, 1)),
        0,
        "foreground",
    )
    for name in ("x", "y", "z"):
        backend.start(
            transfer(name, p=900.0), star((2, 1), (3, 1)), 0, "foreground"
        )
    backend.start(
        transfer("pair", p=30.0), star((0, 1), (4, 1)), 0, "foreground"
    )
    found = {}
    while done := backend.wait(100.0):
        found |= {c.job_id: c.at_s for c in done}
    assert found == {
        "ring": pytest.approx(40.0),
        "pair": pytest.approx(end_s),
    }


@pytest.mark.parametrize("pattern", ["ring", "permutation", "all-to-all"])
@examples(60)
@given(
    counts=st.lists(st.integers(0, 4), min_size=8, max_size=8).filter(
        lambda c: sum(c) > 1
    ),
    seed=st.integers(0, 99),
)
def test_traffic_never_loads_a_link_above_the_hose(
    pattern: Pattern, counts: list[int], seed: int
) -> None:
    placement = on(*((s, m) for s, m in enumerate(counts) if m))
    job = transfer("j", n=placement.n_vms, demand=Transfer(pattern))
    flows = traffic(DC, job, placement, seed)
    assert flows.count.sum() == job.n_vms * flows.per_vm
    hose = hose_bps(tree_of(DC, ROOT), placement, 1)
    load: dict[int, float] = {}
    for k in range(flows.n_bundles):
        for link in flows.links[
            flows.start[k] : flows.start[k + 1]
        ].tolist():
            load[link] = load.get(link, 0.0) + flows.count[k] / flows.per_vm
    for link, amount in load.items():
        assert amount <= hose[link] + 1e-9
    if pattern == "all-to-all":
        assert set(load) == set(hose)


def walk(dc: DataCentre, root: int, source: int, target: int) -> set[int]:
    tree_ = tree_of(dc, root)
    ups, downs = tree_.path_to_root(source), tree_.path_to_root(target)
    meet = next(node for node in ups if node in downs)
    links = {2 * int(tree_.uplink[v]) for v in ups[: ups.index(meet)]}
    return links | {
        2 * int(tree_.uplink[v]) + 1 for v in downs[: downs.index(meet)]
    }


@pytest.mark.parametrize(
    "dc", [DC, fat_tree(4, 100, 2)], ids=["tree", "fat-tree"]
)
def test_paths_go_up_to_where_they_meet_and_down(dc: DataCentre) -> None:
    import numpy as np

    for tree_ in dc.trees:
        source, target = (
            a.ravel() for a in np.indices((dc.n_servers, dc.n_servers))
        )
        start, links = paths(dc, tree_.root, source.copy(), target.copy())
        for k in range(len(source)):
            used = links[start[k] : start[k + 1]].tolist()
            assert len(used) == len(set(used))
            assert set(used) == walk(
                dc, tree_.root, int(source[k]), int(target[k])
            )


def test_permutations_depend_on_seed_and_job_alone() -> None:
    placement = on(*((s, 4) for s in range(8)))
    job = transfer("j", n=32, demand=Transfer("permutation"))

    def links(seed: int, job: JobRequest = job) -> list[int]:
        return traffic(DC, job, placement, seed).links.tolist()

    assert links(1) == links(1)
    assert links(1) != links(2)
    assert links(1) != links(
        1, transfer("k", n=32, demand=Transfer("permutation"))
    )


def test_what_the_servers_send_is_metered() -> None:
    metered: list[tuple[float, float, float, float]] = []
    backend = SimulatedBackend(
        DC,
        SharingModel("slowest"),
        meter=lambda *stretch: metered.append(stretch),
    )
    backend.start(transfer("a"), on((0, 1), (1, 1)), 0, "foreground")
    backend.start(transfer("b"), on((0, 1), (1, 1)), 0, "foreground")
    backend.start(transfer("c"), on((3, 2)), 0, "foreground")
    backend.wait(1.0)
    backend.kill("b", "asked to")
    backend.wait(None)
    # a and b send 50 bit/s up from either server; c stays inside its own, where
    # its two VMs send 100 bit/s each.
    assert metered == [
        (0.0, 1.0, pytest.approx(200.0), pytest.approx(400.0)),
        (1.0, 10.0, pytest.approx(200.0), pytest.approx(400.0)),
    ]


@pytest.mark.parametrize(
    ("model", "end_s"),
    [
        (SharingModel("independent"), 10.0),
        (SharingModel("independent", capped=False), 5.0),
    ],
)
def test_without_a_cap_a_vm_sends_as_fast_as_its_link(
    model: SharingModel, end_s: float
) -> None:
    # Its server's link has 100 bit/s.
    job = transfer("a", b=50)
    backend = SimulatedBackend(DC, model)
    backend.start(job, on((0, 1), (1, 1)), 0, "foreground")
    (ended,) = backend.wait(None)
    assert ended.at_s == pytest.approx(end_s)
