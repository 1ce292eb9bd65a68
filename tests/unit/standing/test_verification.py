"""Verification: what each check says of a network that is whole, and of one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from testbed.backends.emu import installed_state, packet_probes
from testbed.errors import RunFailed
from testbed.plan.network_plan import network_plan
from testbed.standing.network_layout import NetworkLayout, TenantPlans
from testbed.standing.verification import (
    CHECKS,
    NetworkCheck,
    checks,
    planned_flows,
    planned_limits,
)
from tests.unit.plan.test_lost_links import TREE, placed

NETWORK, TENANT, NAMES = placed(TREE, ((0, 2), (2, 1)))
LAYOUT = NetworkLayout(
    NETWORK, {b.name: ("/run/x", None) for b in NETWORK.bridges}, 6653, 1
)
PLANS = TenantPlans((TENANT,), NAMES, borrowing=False)


class Installed:
    """Output of the tools: all of the plan, unless somebody takes a part of it away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limits = planned_limits(LAYOUT, PLANS)
        self.flows = planned_flows(LAYOUT, PLANS)
        self.devices: dict[str, Any] = {
            port.name: {"flags": ["UP", "LOWER_UP"], "qdisc": "htb"}
            for port in NETWORK.ports
        }
        self.faults: dict[str, str] = {}
        monkeypatch.setattr(
            installed_state, "devices_of", lambda _: self.devices
        )
        monkeypatch.setattr(
            installed_state, "installed_limits", self._limits
        )
        monkeypatch.setattr(installed_state, "installed_flows", self._flows)
        monkeypatch.setattr(packet_probes, "faults", self._packets)

    def _limits(
        self, netns: str | None, devices: Sequence[str], prefix: str = ""
    ) -> Any:
        wanted = {f"{prefix}{device}" for device in devices}
        return {
            k: v
            for k, v in self.limits.items()
            if k.split(" ")[0] in wanted
        }

    def _flows(self, bridge: str, run_dir: str) -> Any:
        assert run_dir == "/run/x"
        if bridge in self.faults:
            raise RunFailed(self.faults[bridge])
        return {
            k: v
            for k, v in self.flows.items()
            if k.startswith(f"{bridge} ")
        }

    def _packets(
        self, tried: Sequence[packet_probes.Probe], round_trip_s: float
    ) -> list[str]:
        assert round_trip_s == 0.0  # these links have no delay
        return [self.faults.get(probe.kind, "") for probe in tried]

    def found(self, plans: TenantPlans = PLANS) -> dict[str, NetworkCheck]:
        return {check.name: check for check in checks(LAYOUT, plans)}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(monkeypatch)


def test_what_is_as_planned_is_good(installed: Installed) -> None:
    found = installed.found()
    assert list(found) == list(CHECKS)
    assert all(check.good for check in found.values())
    assert found["links"].compared == len(NETWORK.links) + len(
        NETWORK.slots
    )
    assert found["limits"].compared == len(installed.limits)
    assert found["flows"].compared == len(installed.flows)
    assert [
        found[kind].compared for kind in ("reachability", "isolation")
    ] == [
        6,
        0,
    ]


def test_every_difference_is_named_as_people_call_it(
    installed: Installed,
) -> None:
    installed.limits["hn-r0-u0 class 1:1"] = installed.limits["hn-r0-u0 class 1:1"] | {
        "rate": 4e6, "ceil": 4e6,
    }  # fmt: skip
    del installed.limits["hn-s2v0/eth0 class 1:2"]
    del installed.limits["hn-s0v1 root"]
    installed.limits["hn-c0-d1 class 1:9"] = {"rate": 1.0}
    (gone, *_) = [
        name for name in installed.flows if "nw_dst=10.0.4.3" in name
    ]
    del installed.flows[gone]
    installed.devices["hn-r1-u0"]["flags"] = ["UP"]
    installed.faults |= {
        "isolation": "no",
        "reachability": "a.0 to a.2: nothing arrives",
    }
    found = installed.found()
    assert found["links"].problems == (
        "hn-r1-u0 (rack 1 -> core 0) is down",
    )
    assert sorted(found["limits"].problems) == [
        "hn-c0-d1 (core 0 -> rack 1) class 1:9: not of the plan",
        "hn-r0-u0 (rack 0 -> core 0) class 1:1 of tenant a: ceil 4 Mbit/s, expected 10 Mbit/s",
        "hn-r0-u0 (rack 0 -> core 0) class 1:1 of tenant a: rate 4 Mbit/s, expected 10 Mbit/s",
        "hn-s0v1 (server 0 -> a.1) root: missing",
        "hn-s2v0/eth0 (a.2) class 1:2: missing",
    ]
    bridge, _, flow = gone.partition(" ")
    assert found["flows"].problems == (
        f"{bridge} ({NAMES[bridge]}) {flow}: missing",
    )
    assert set(found["reachability"].problems) == {
        "a.0 to a.2: nothing arrives"
    }
    assert found["isolation"].good  # there is one tenant


def test_traffic_that_may_borrow_is_part_of_the_plan(
    installed: Installed,
) -> None:
    plans = TenantPlans((TENANT,), NAMES, borrowing=True)
    assert not installed.found(plans)["limits"].good
    installed.limits = planned_limits(LAYOUT, plans)
    assert installed.found(plans)["limits"].good


def test_a_switch_that_does_not_answer_is_a_problem_and_others_are_read(
    installed: Installed,
) -> None:
    installed.faults["hn-r0"] = "ovs-ofctl: no answer within 35 s"
    problems = installed.found()["flows"].problems
    assert problems[0] == "hn-r0: ovs-ofctl: no answer within 35 s"
    assert all(problem.startswith("hn-r0") for problem in problems)


def test_flows_of_a_persons_controller_are_judged_by_packets(
    installed: Installed,
) -> None:
    installed.flows = {
        "hn-r0 flow table=0,priority=1": {
            "actions": "NORMAL",
            "cookie": "0x0",
        }
    }
    installed.faults["anti-spoofing"] = (
        "a.0 to a.1 with another MAC: arrives at a.1"
    )
    found = installed.found(
        TenantPlans((TENANT,), NAMES, borrowing=False, app="mine.py")
    )
    assert (found["flows"].compared, found["flows"].good) == (1, True)
    assert "those of mine.py are not compared" in found["flows"].note
    assert not found["anti-spoofing"].good


def test_a_network_without_tenants_has_its_links_and_base_flows(
    installed: Installed,
) -> None:
    nobody = TenantPlans((), NAMES, borrowing=False)
    installed.limits = planned_limits(LAYOUT, nobody)
    installed.flows = planned_flows(LAYOUT, nobody)
    found = installed.found(nobody)
    assert all(check.good for check in found.values())
    assert found["flows"].compared == 2 * len(network_plan(TREE).bridges)
    assert found["reachability"].compared == 0
