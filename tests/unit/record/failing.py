"""Simulated runs with failures, small enough to be changed in every field."""

from __future__ import annotations

from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.failures import Failure, OnFailure
from testbed.record.topology_record import topology_record
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

GBIT = 10**9
FAT = fat_tree(4, GBIT, 1)
TREE = tree([2, 2], GBIT, 2)


def link_between(centre: DataCentre, lower: str, upper: str) -> int:
    """A link by its ends."""
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


def _played(
    centre: DataCentre,
    jobs: list[JobRequest],
    failures: list[Failure],
    on_failure: OnFailure,
) -> list[events.Event]:
    record = topology_record(centre)
    history: list[events.Event] = [
        events.RunStarted(0.0, "failing", "fcfs", "sim", 1, record)
    ]
    built, backend = (
        build_policy("fcfs", embedder("oktopus"), {}),
        SimulatedBackend(centre),
    )
    Engine(
        centre,
        jobs,
        built,
        backend,
        history.append,
        None,
        tuple(failures),
        on_failure,
    ).run()
    return history


def moving() -> list[events.Event]:
    """In a fat-tree: ``wide`` moves to another root, ``pair`` is cut and whole again; ``lone``, on
    a server that is lost, is killed."""
    jobs = [
        JobRequest("wide", 0.0, 10, GBIT // 20, 20.0),
        JobRequest("pair", 1.0, 2, GBIT // 2, 10.0),
        JobRequest("lone", 2.0, 1, GBIT // 4, 30.0),
    ]
    whole = _played(FAT, jobs, [], "wait")
    placed = {
        e.job_id: e for e in whole if isinstance(e, events.JobReserved)
    }
    above = FAT.tree_by_root[placed["wide"].root]
    core = next(
        directed // 2
        for directed, _ in placed["wide"].links
        if int(FAT.link_upper[directed // 2]) == above.root
    )
    first = placed["pair"].vms_on[0][0]
    own = int(above.uplink[first])
    failures = [
        Failure(4.0, "link_failed", core),
        Failure(5.0, "link_failed", own),
        Failure(6.0, "switch_restarted", FAT.n_servers),
        Failure(7.0, "controller_killed"),
        Failure(8.0, "link_restored", own),
        Failure(9.0, "server_failed", placed["lone"].vms_on[0][0]),
        Failure(11.0, "link_restored", core),
        Failure(12.0, "server_restored", placed["lone"].vms_on[0][0]),
    ]
    return _played(FAT, jobs, failures, "wait")


def anew() -> list[events.Event]:
    """In a tree, where ``first`` starts anew on other servers after its own is lost."""
    jobs = [
        JobRequest("first", 0.0, 2, GBIT // 8, 10.0),
        JobRequest("later", 1.0, 4, 1, 8.0),
    ]
    failures = [
        Failure(4.0, "server_failed", 0),
        Failure(9.0, "server_restored", 0),
    ]
    return _played(TREE, jobs, failures, "requeue")
