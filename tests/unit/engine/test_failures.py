"""Lost links and servers in the engine: other roots, and the ways of policies without one."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Placement
from testbed.engine.engine import Engine
from testbed.failures import Failure, OnFailure
from testbed.schedulers import actions as act
from testbed.schedulers.policy import View
from testbed.schedulers.registry import (
    build_policy,
    known_policies,
    policy_kind,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

GBIT = 10**9
FAT = fat_tree(4, GBIT, 1)
TREE = tree([2, 2], GBIT, 2)


def request(
    job_id: str,
    submit_s: float = 0.0,
    n: int = 2,
    bps: int = GBIT,
    p: float = 10.0,
) -> Any:
    return JobRequest(job_id, submit_s, n, bps, p)


def play(
    centre: DataCentre,
    jobs: list[JobRequest],
    failures: list[Failure],
    policy: str = "vc",
    on_failure: OnFailure | None = None,
) -> list[events.Event]:
    history: list[events.Event] = []
    kind = policy_kind(policy)
    engine = Engine(
        centre,
        jobs,
        build_policy(policy, embedder("oktopus"), {}),
        SimulatedBackend(centre, kind.sharing_of({})),
        history.append,
        lambda e: e.reservations.check(),
        tuple(failures),
        on_failure or kind.on_failure_of({}),
    )
    engine.run()
    return history


def of(history: list[events.Event], job_id: str) -> list[tuple[float, str]]:
    return [
        (event.t, event.name.removeprefix("job_"))
        for event in history
        if getattr(event, "job_id", None) == job_id
    ]


def link_between(centre: DataCentre, lower: str, upper: str) -> int:
    ends = list(
        zip(
            centre.link_lower.tolist(),
            centre.link_upper.tolist(),
            strict=True,
        )
    )
    return ends.index(
        (centre.names.index(lower), centre.names.index(upper))
    )


def core_links_used(
    centre: DataCentre, history: list[events.Event], job_id: str
) -> list[int]:
    """The links between switches that a job holds, from the last event with its links."""
    held = [
        e
        for e in history
        if getattr(e, "job_id", "") == job_id and hasattr(e, "links")
    ]
    numbers = {directed // 2 for directed, _ in held[-1].links}
    return sorted(
        k for k in numbers if centre.link_lower[k] >= centre.n_servers
    )


# In different pods: 16 VMs, one a server.
WIDE = request("wide", n=16, bps=GBIT // 16)


def test_a_job_moves_to_another_root_and_ends_as_if_nothing_had_happened() -> (
    None
):
    before = play(FAT, [WIDE], [])
    lost = core_links_used(FAT, before, "wide")[0]
    history = play(FAT, [WIDE], [Failure(4.0, "link_failed", lost)])
    assert of(history, "wide")[1:] == [
        (0.0, "started"),
        (4.0, "rerooted"),
        (10.0, "ended"),
    ]
    assert lost not in core_links_used(FAT, history, "wide")
    assert of(before, "wide")[-1] == (10.0, "ended")


class Given:
    """Starts each job on arrival where the test says."""

    name = "given"

    def __init__(self, places: dict[str, Placement]) -> None:
        self._places = places

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        if not isinstance(event, act.Arrived):
            return []
        job = view.job(event.job_id)
        return [act.Start(job.id, self._places[job.id], job.bandwidth_bps)]


def test_a_job_that_no_other_root_has_room_for_waits_for_room_or_for_its_link() -> (
    None
):
    """Four tenants with a VM in every pod fill the links of the four cores."""
    roots = [each.root for each in FAT.trees]
    places = {
        job_id: Placement(
            root, tuple((first + 4 * pod, 1) for pod in range(4))
        )
        for job_id, root, first in zip(
            "abcd", roots, (0, 2, 1, 3), strict=True
        )
    }
    jobs = [
        request(job_id, n=4, p=6.0 if job_id == "b" else 20.0)
        for job_id in "abcd"
    ]
    tree_of_a, tree_of_c = (
        FAT.tree_by_root[places[name].root] for name in "ac"
    )
    lost = [
        int(each.uplink[each.parent[each.parent[0]]])
        for each in (tree_of_a, tree_of_c)
    ]
    failures = [
        Failure(4.0, "link_failed", lost[0]),
        Failure(5.0, "link_failed", lost[1]),
        Failure(9.0, "link_restored", lost[1]),
    ]
    history: list[events.Event] = []
    backend = SimulatedBackend(FAT)
    given = FAT, jobs, Given(places), backend, history.append, None
    Engine(*given, tuple(failures), "wait").run()
    cut = [e for e in history if isinstance(e, events.JobCut)]
    assert "no other root has room (" in cut[0].reason
    # b's end leaves room below b's root for a, whose edge switches have paths there; not for c.
    assert of(history, "a")[2:] == [
        *((4.0, "cut"), (6.0, "rerooted"), (6.0, "reconnected"), (22.0, "ended")),
    ]  # fmt: skip
    assert of(history, "c")[2:] == [
        (5.0, "cut"),
        (9.0, "reconnected"),
        (24.0, "ended"),
    ]


@pytest.mark.parametrize("on_failure", ["wait", "kill", "requeue"])
def test_on_a_tree_the_policy_says_what_becomes_of_a_job(
    on_failure: OnFailure,
) -> None:
    link = link_between(TREE, TREE.names[0], TREE.names[TREE.n_servers])
    job = request("a", n=8, bps=GBIT // 8)
    failures = [
        Failure(4.0, "link_failed", link),
        Failure(7.0, "link_restored", link),
    ]
    history = play(TREE, [job], failures, "fcfs", on_failure)
    ways = {
        "wait": [(4.0, "cut"), (7.0, "reconnected"), (13.0, "ended")],
        "kill": [(4.0, "ended")],
        "requeue": [
            *(
                (4.0, "requeued"),
                (4.0, "waits"),
                (7.0, "reserved"),
                (7.0, "started"),
            ),
            (17.0, "ended"),
        ],
    }
    assert of(history, "a")[2:] == ways[on_failure]
    last = [e for e in history if isinstance(e, events.JobEnded)][-1]
    assert last.outcome == (
        "killed" if on_failure == "kill" else "finished"
    )
    if on_failure == "kill":
        assert last.reason == (
            f"stopped by a failure: lost link {TREE.link_name(2 * link)}; a tree has no other path"
        )


@pytest.mark.parametrize("on_failure", ["wait", "kill", "requeue"])
def test_no_lost_link_stops_a_job_without_bandwidth(
    on_failure: str,
) -> None:
    """It was requeued, and started in the same place, without end."""
    link = link_between(TREE, TREE.names[0], TREE.names[TREE.n_servers])
    history = play(
        TREE,
        [request("a", n=8, bps=0)],
        [Failure(4.0, "link_failed", link)],
        "fcfs",
        on_failure,
    )
    assert of(history, "a")[2:] == [(10.0, "ended")]


def test_a_cut_that_lasts_for_good_ends_the_job_with_the_reason() -> None:
    link = link_between(TREE, TREE.names[0], TREE.names[TREE.n_servers])
    job = request("a", n=8, bps=GBIT // 8)
    history = play(
        TREE, [job], [Failure(4.0, "link_failed", link)], "fcfs", "wait"
    )
    last = [e for e in history if isinstance(e, events.JobEnded)][-1]
    assert (last.t, last.outcome) == (4.0, "killed")
    assert "cut off for good: lost link" in last.reason


def test_the_jobs_of_a_lost_server_end_or_start_anew_elsewhere() -> None:
    job = request("a", n=2, bps=GBIT // 8)
    first = next(
        e
        for e in play(TREE, [job], [])
        if isinstance(e, events.JobReserved)
    )
    server = first.vms_on[0][0]
    failures = [Failure(4.0, "server_failed", server)]
    killed = play(TREE, [job], failures, "vc")
    assert of(killed, "a")[2:] == [(4.0, "ended")]
    history = play(TREE, [job], failures, "fcfs")
    assert of(history, "a")[2:] == [
        *((4.0, "requeued"), (4.0, "reserved"), (4.0, "started")), (14.0, "ended"),
    ]  # fmt: skip
    again = [e for e in history if isinstance(e, events.JobReserved)][-1]
    assert server not in [on for on, _ in again.vms_on]


def test_a_later_failure_keeps_no_run_from_ending() -> None:
    history = play(
        TREE, [request("a", bps=1)], [Failure(4000.0, "controller_killed")]
    )
    assert history[-1].t == 10.0


def test_a_restart_and_a_killed_controller_change_no_decision() -> None:
    others = [
        Failure(2.0, "switch_restarted", TREE.n_servers),
        Failure(3.0, "controller_killed"),
    ]
    history = play(TREE, [request("a", bps=1)], others)
    names = [e.name for e in history if not getattr(e, "job_id", None)]
    assert names == [
        "job_submitted",
        "switch_restarted",
        "controller_killed",
        "run_ended",
    ]
    assert of(history, "a")[-1] == (10.0, "ended")


def test_best_effort_jobs_stand_still_while_they_are_cut() -> None:
    link = link_between(TREE, TREE.names[0], TREE.names[TREE.n_servers])
    failures = [
        Failure(4.0, "link_failed", link),
        Failure(7.0, "link_restored", link),
    ]
    job = request("a", n=8, bps=GBIT // 8)
    plain = of(play(TREE, [job], [], "bl"), "a")[-1][0]
    history = play(TREE, [job], failures, "bl")
    assert of(history, "a")[2:] == [
        (4.0, "cut"),
        (7.0, "reconnected"),
        (plain + 3.0, "ended"),
    ]


def test_every_policy_with_hoses_says_what_becomes_of_a_job() -> None:
    silent = {
        name
        for name, kind in known_policies().items()
        if not kind.on_failure
    }
    keep_own_nodes = {
        "easy",
        "cmbf",
        "ambf",
        "cmcbf",
        "amcbf",
        "mbfcbs",
        "v-mct",
        "priority",
    }
    assert silent == keep_own_nodes


class AllAtOnce(Given):
    """Starts whatever waits, best effort, where the test says, whenever a job has left."""

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        if isinstance(event, act.Arrived) and view.running():
            return []
        return [
            act.Start(job_id, self._places[job_id], 0)
            for job_id in view.waiting()
        ]


def test_a_policy_hears_of_jobs_that_stop_as_they_start_when_its_list_is_done() -> (
    None
):
    link = link_between(TREE, TREE.names[0], TREE.names[TREE.n_servers])
    root, all_of_them = TREE.trees[0].root, ((0, 2), (1, 2), (2, 2), (3, 2))
    places = {
        "first": Placement(root, all_of_them),
        **{
            name: Placement(root, all_of_them[n : n + 2])
            for name, n in (("a", 0), ("b", 2))
        },
    }
    jobs = [
        request("first", n=8, bps=9),
        *(request(name, 1.0, n=4, bps=9) for name in "ab"),
    ]
    history: list[events.Event] = []
    given = (
        TREE,
        jobs,
        AllAtOnce(places),
        SimulatedBackend(TREE),
        history.append,
        None,
    )
    Engine(*given, (Failure(4.0, "link_failed", link),), "kill").run()
    assert [of(history, job_id)[-1] for job_id in ("first", "a")] == [
        (4.0, "ended")
    ] * 2
    assert of(history, "b") == [
        (4.0, "reserved"),
        (4.0, "started"),
        (14.0, "ended"),
    ]


class Freeing(Given):
    """Does something about "b" before it starts "z"."""

    def __init__(
        self, places: dict[str, Placement], action: act.Action
    ) -> None:
        super().__init__(places)
        self._action = action

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        done = super().decide(view, event)
        if event == act.Arrived("z"):
            return [self._action, *done]
        return done


EVERY_POD = ((2, 1), (6, 1), (10, 1), (14, 1))
"""Servers of "b"."""


@pytest.mark.parametrize(
    "action",
    [
        act.Rescale("b", GBIT // 2),
        act.Preempt("b", "for good"),
        act.Migrate(
            "b",
            Placement(FAT.trees[1].root, EVERY_POD),
            "it gives up its bandwidth",
            best_effort=True,
        ),
    ],
    ids=["rescaled", "preempted", "migrated"],
)
def test_bandwidth_that_a_job_gives_up_is_room_for_one_that_is_cut(
    action: act.Action,
) -> None:
    z = request("z", 6.0, n=1, bps=1, p=1.0)
    history = played_while_a_is_cut(action, z, ((1, 1),))
    moved = [name for at_s, name in of(history, "a") if at_s == 6.0]
    assert moved == ["rerooted", "reconnected"]


@pytest.mark.parametrize(
    ("action", "bps", "first_server"),
    [
        (act.Rescale("b", GBIT // 2), GBIT // 2, 1),
        (act.Preempt("b", "for z"), GBIT, 2),
        (act.Kill("b", "for z"), GBIT, 2),
    ],
    ids=["rescaled", "preempted", "killed"],
)
def test_room_that_a_policy_frees_for_a_start_is_not_taken_before(
    action: act.Action, bps: int, first_server: int
) -> None:
    """The start was refused, which ended the run: "a" had the room already."""
    z = request("z", 6.0, n=4, bps=bps, p=1.0)
    places = tuple((first_server + 4 * pod, 1) for pod in range(4))
    history = played_while_a_is_cut(action, z, places)
    assert of(history, "z")[-1] == (7.0, "ended")
    assert of(history, "a")[3:5] == [
        (7.0, "rerooted"),
        (7.0, "reconnected"),
    ]


def played_while_a_is_cut(
    action: act.Action,
    z: JobRequest,
    vms_of_z: tuple[tuple[int, int], ...],
) -> list[events.Event]:
    """From 4 s on "a" is cut. It would fit below the root of "b", about which something is done
    when "z" comes at 6 s.
    """
    roots = [each.root for each in FAT.trees]
    places = {
        job_id: Placement(
            root, tuple((first + 4 * pod, 1) for pod in range(4))
        )
        for job_id, root, first in zip(
            "abcd", roots, (0, 2, 1, 3), strict=True
        )
    }
    assert places["b"].vms_on == EVERY_POD
    places = {**places, "z": Placement(roots[1], vms_of_z)}
    del places["c"]
    jobs = [
        request(j, n=4, p=20.0, bps=GBIT // (2 if j == "a" else 1))
        for j in "abd"
    ]
    jobs.append(z)
    core = FAT.tree_by_root[roots[0]]
    lost = int(core.uplink[core.parent[core.parent[0]]])
    others = [FAT.tree_by_root[root] for root in roots[2:]]
    also = [
        int(each.uplink[each.parent[each.parent[0]]]) for each in others
    ]
    failures = [
        Failure(4.0, "link_failed", number) for number in (*also[:1], lost)
    ]
    history: list[events.Event] = []
    given = (
        FAT,
        jobs,
        Freeing(places, action),
        SimulatedBackend(FAT),
        history.append,
        None,
    )
    Engine(*given, tuple(failures), "wait").run()
    assert (4.0, "cut") in of(history, "a")
    return history


class Setting(Given):
    """Preempts the first job while it is cut, and lets it go on when its link is back."""

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        if isinstance(event, act.Arrived) and event.job_id == "z":
            return [
                *super().decide(view, event),
                act.Preempt("a", "set aside"),
            ]
        if isinstance(event, act.Restored):
            return [act.Resume("a")]
        return super().decide(view, event)


def test_a_job_that_is_preempted_while_it_is_cut_goes_on_with_its_links() -> (
    None
):
    root = TREE.trees[0].root
    places = {
        "a": Placement(root, ((0, 1), (1, 1))),
        "z": Placement(root, ((3, 1),)),
    }
    link = link_between(TREE, TREE.names[0], TREE.names[TREE.n_servers])
    failures = (
        Failure(4.0, "link_failed", link),
        Failure(7.0, "link_restored", link),
    )
    jobs = [request("a"), request("z", 6.0, n=1, bps=1, p=1.0)]
    history: list[events.Event] = []
    given = (
        TREE,
        jobs,
        Setting(places),
        SimulatedBackend(TREE),
        history.append,
        None,
    )
    Engine(*given, failures, "wait").run()
    assert of(history, "a")[2:] == [
        *((4.0, "cut"), (6.0, "preempted"), (7.0, "resumed"), (13.0, "ended")),
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["jsa", "edf", "oktopus-batch"])
def test_a_job_that_waits_again_has_a_reason_again(policy: str) -> None:
    jobs = [request("a", n=8, bps=1), request("b", 1.0, n=8, bps=1)]
    failures = [
        Failure(15.0, "server_failed", 0),
        Failure(40.0, "server_restored", 0),
    ]
    history = play(TREE, jobs, failures, policy, "requeue")
    assert of(history, "b") == [
        (1.0, "waits"),
        (10.0, "reserved"),
        (10.0, "started"),
        (15.0, "requeued"),
        (15.0, "waits"),
        (40.0, "reserved"),
        (40.0, "started"),
        (50.0, "ended"),
    ]
