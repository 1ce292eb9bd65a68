"""Ports are checked by their numbers: late ones are waited for, wrong ones are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testbed.backends.emu import open_vswitch
from testbed.errors import RunFailed
from testbed.plan.network_plan import NetworkPlan, network_plan
from topologies.tree import tree

PLAN = network_plan(tree([2], [10**8], 1), "tpn")
NONE = ["set", []]


def interface_rows(plan: NetworkPlan, **other: Any) -> list[list[Any]]:
    ports = [port for slot in plan.slots for port in (slot.port,)]
    ports += [
        port for link in plan.links for port in (link.lower, link.upper)
    ]
    recorded = {port.name: [port.name, port.number, NONE] for port in ports}
    first = plan.slots[0].port.name
    if other:
        recorded[first] = [first, other["number"], other["error"]]
    return list(recorded.values())


def given(
    monkeypatch: pytest.MonkeyPatch, output: list[list[list[Any]]]
) -> Iterator[list[Any]]:
    script = iter(output)
    monkeypatch.setattr(
        open_vswitch.SwitchDaemons, "rows", lambda *_: next(script)
    )
    monkeypatch.setattr(open_vswitch.time, "sleep", lambda _: None)
    return script


def test_a_number_that_comes_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = interface_rows(PLAN, number=NONE, error=NONE)
    left = given(monkeypatch, [late, late, interface_rows(PLAN)])
    open_vswitch.MACHINE.check_ports(PLAN.ports)
    assert list(left) == []


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (
            -1,
            "could not open network device (No such device)",
            "No such device",
        ),
        (77, NONE, "it has number 77"),
    ],
)
def test_a_wrong_port_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, number: int, error: Any, message: str
) -> None:
    left = given(
        monkeypatch,
        [
            interface_rows(PLAN, number=number, error=error),
            interface_rows(PLAN),
        ],
    )
    with pytest.raises(RunFailed, match=message) as failure:
        open_vswitch.MACHINE.check_ports(PLAN.ports)
    assert PLAN.slots[0].port.name in str(failure.value)
    assert len(list(left)) == 1


def test_a_number_that_never_comes_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(
        open_vswitch.time, "monotonic", lambda: float(next(clock))
    )
    given(monkeypatch, [interface_rows(PLAN, number=NONE, error=NONE)] * 50)
    with pytest.raises(RunFailed, match="should be number"):
        open_vswitch.MACHINE.check_ports(PLAN.ports)
