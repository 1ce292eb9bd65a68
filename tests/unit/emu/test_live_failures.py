"""Failures in a live run: whose traffic moves, and who is given time while it is cut."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.request import JobRequest
from testbed.backends.emu import live_backend as emu
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.live_backend import LiveBackend
from testbed.embedding.base import embedder
from testbed.engine.backend import Backend
from testbed.engine.engine import Engine
from testbed.events import Event, JobEnded, JobReserved
from testbed.failures import Failure, OnFailure
from testbed.plan.network_plan import network_plan
from testbed.play.backend_trace import ReplayBackend, TracingBackend
from testbed.record.comparison import decisions
from testbed.schedulers.registry import build_policy
from testbed.spec.experiment import Scale
from tests.support.fake_emulation import (
    SCALE_RATE,
    FakeEmulation,
    own_clock,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

MBPS = 1_000_000
FAT = fat_tree(4, 1000 * MBPS, 1)
TREE = tree([2, 2], 1000 * MBPS, 1)


def network(centre: DataCentre) -> tuple[FakeEmulation, LiveBackend]:
    fake: Any = FakeEmulation(centre)
    backend = LiveBackend(fake, Scale(rate=SCALE_RATE), 1, lambda _: None)
    backend.begin()
    return fake, backend


def play(
    centre: DataCentre, backend: Backend, jobs: list[JobRequest], failures: list[Failure],
    on_failure: OnFailure = "wait",
) -> list[Event]:  # fmt: skip
    recorded: list[Event] = []
    policy = build_policy("fcfs", embedder("oktopus"), {})
    given = centre, jobs, policy, backend, recorded.append, None
    Engine(*given, tuple(failures), on_failure).run()
    return recorded


def wide(n: int) -> JobRequest:
    return JobRequest("wide", 0.0, n, 50 * MBPS, 5.0)


def outcome(recorded: list[Event]) -> tuple[str, str]:
    (ended,) = [event for event in recorded if isinstance(event, JobEnded)]
    return ended.outcome, ended.reason


def core_links(recorded: list[Event], centre: DataCentre) -> list[int]:
    (held,) = [
        event for event in recorded if isinstance(event, JobReserved)
    ]
    numbers = {directed // 2 for directed, _ in held.links}
    return sorted(
        k for k in numbers if centre.link_lower[k] >= centre.n_servers
    )


@pytest.mark.slow
def test_the_traffic_moves_with_the_decision_and_a_replay_decides_the_same() -> (
    None
):
    fake, backend = network(FAT)
    fake.agents.lasts_s["wide"] = 0.05
    lost = core_links(play(FAT, backend, [wide(16)], []), FAT)[0]
    fake, backend = network(FAT)
    fake.agents.lasts_s["wide"] = 0.6
    moves: list[Any] = []
    fake.reroot = lambda pairs: moves.extend(pairs) or {}  # type: ignore[method-assign]
    trace: list[dict[str, Any]] = []
    failures = [
        Failure(0.1, "link_failed", lost),
        Failure(0.2, "controller_killed"),
        Failure(0.3, "link_restored", lost),
    ]
    recorded = play(
        FAT, TracingBackend(backend, trace.append), [wide(16)], failures
    )
    assert outcome(recorded) == ("finished", "")
    assert fake.failures == failures
    ((old, new),) = moves
    port = fake.plan.links[lost].lower
    assert port in [edge.lower for edge in old.edges]
    assert port not in [edge.lower for edge in new.edges]
    assert (new.vms, new.tenant_id, new.prefix) == (
        old.vms,
        old.tenant_id,
        old.prefix,
    )
    again = play(
        FAT, ReplayBackend(iter(enumerate(trace, 1))), [wide(16)], failures
    )
    assert [each.same_as for each in decisions(again)] == [
        each.same_as for each in decisions(recorded)
    ]
    assert "rerooted" in [each.name for each in decisions(recorded)]


def test_who_cannot_be_moved_ends_with_the_reason() -> None:
    fake, backend = network(FAT)
    fake.agents.lasts_s["wide"] = 5.0
    fake.reroot_refused = {"wide"}
    lost = [
        int(each.uplink[each.parent[each.parent[0]]]) for each in FAT.trees
    ]
    recorded = play(
        FAT,
        backend,
        [wide(16)],
        [Failure(0.1, "link_failed", k) for k in lost[:1]],
    )
    assert outcome(recorded) == ("killed", "tc refused wide")


def test_a_vm_that_its_limit_has_stopped_is_in_the_reason() -> None:
    fake, backend = network(FAT)
    fake.agents.lasts_s["wide"] = 5.0
    fake.reroot_refused = {"wide"}
    fake.reached["wide"] = "VM 3 reached its limit of memory"
    lost = int(
        FAT.trees[0].uplink[FAT.trees[0].parent[FAT.trees[0].parent[0]]]
    )
    failures = [Failure(0.1, "link_failed", lost)]
    recorded = play(FAT, backend, [wide(16)], failures)
    reason = "tc refused wide; VM 3 reached its limit of memory"
    assert outcome(recorded) == ("killed", reason)


@pytest.mark.slow
def test_a_job_that_is_cut_is_not_given_up_before_its_link_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own_clock(monkeypatch)
    monkeypatch.setattr(emu, "STALL_S", 1.0)
    monkeypatch.setattr(emu, "CHECK_EVERY_NS", 10_000_000)
    fake, backend = network(TREE)
    fake.agents.lasts_s["wide"] = 1.8
    link = [
        Failure(0.1, "link_failed", 0),
        Failure(1.7, "link_restored", 0),
    ]
    assert outcome(play(TREE, backend, [wide(4)], link)) == ("finished", "")
    fake, backend = network(TREE)
    fake.agents.lasts_s["wide"] = 1.8
    gone, reason = outcome(play(TREE, backend, [wide(4)], []))
    assert gone == "killed"
    assert "nothing has arrived" in reason


def test_a_link_that_is_lost_with_its_server_is_back_when_both_are() -> (
    None
):
    plan, down = network_plan(TREE, "hn", SCALE_RATE), set[str]()

    def set_ports(names: list[str], *, up: bool) -> None:
        (down.difference_update if up else down.update)(names)

    fake: Any = SimpleNamespace(plan=plan, set_ports=set_ports)
    nothing: Any = SimpleNamespace(
        client=lambda: SimpleNamespace(close=lambda: None)
    )
    given = TREE, fake, nothing, nothing, nothing, Path("logs"), {}, nothing
    emulation = Emulation(*given)
    link = plan.links[0]
    both = {link.lower.name, link.upper.name}
    assert link.lower.bridge == plan.bridge_of_node[0].name
    for kind, expected in (
        ("link_failed", both), ("server_failed", both), ("link_restored", both),
        ("server_restored", set()), ("server_failed", both), ("link_failed", both),
        ("server_restored", both),
    ):  # fmt: skip
        emulation.fail(Failure(0.0, kind), ())  # type: ignore[arg-type]
        assert down == expected, kind
    emulation.restore_links()
    assert down == set()
    emulation.close()
