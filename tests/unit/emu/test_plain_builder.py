"""The network that Mininet builds: what it is given to build, and what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.backends.emu import emulation
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.emulation import (
    LiveOptions,
    emulate,
    network_kind,
)
from testbed.errors import BadInput
from testbed.plan.network_plan import network_plan
from testbed.spec.experiment import Scale
from topologies.fat_tree import fat_tree
from topologies.tree import tree

pytestmark = [
    pytest.mark.needs("mininet"),
    pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning"),
]

SMALL = network_plan(fat_tree(4, 10**9, 2))
LARGE = network_plan(fat_tree(6, 10**9, 2))


@pytest.fixture
def module() -> Any:
    from testbed.backends.emu import plain_network

    return plain_network


def test_the_batched_builder_has_no_use_for_mininet() -> None:
    said: list[str] = []
    assert network_kind("batched", LARGE, said.append) is EmulatedNetwork
    assert said == []


def test_mininets_links_and_its_time_are_said(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "datapath_type", lambda: "netdev")
    said: list[str] = []
    assert network_kind("plain", SMALL, said.append) is module.PlainNetwork
    (sentence,) = said
    assert "Mininet builds 80 links one by one: about " in sentence


def test_a_network_in_parts_is_refused_before_anything_is_made(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "datapath_type", lambda: "netdev")
    monkeypatch.setattr(
        emulation, "machine_lock", lambda _: pytest.fail("it begins")
    )
    options = LiveOptions(builder="plain")
    with (
        pytest.raises(
            BadInput, match="of 270 links needs 3 switch parts"
        ) as refused,
        emulate(fat_tree(6, 10**9, 2), Scale(), options, tmp_path, "x"),
    ):
        pytest.fail("it is up")
    assert "leave --builder out" in str(refused.value.hint)


def test_the_kernels_datapath_has_one_switch_for_all(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "datapath_type", lambda: "system")
    assert (
        network_kind("plain", LARGE, lambda _: None) is module.PlainNetwork
    )


def test_a_larger_network_takes_mininet_longer(module: Any) -> None:
    plans = [network_plan(tree([n, 2], 10**9, 2)) for n in (1, 2, 8)]
    times = [module.built_in_s(plan) for plan in (*plans, SMALL, LARGE)]
    assert times == sorted(times)
    assert times[0] > 0


def test_a_switch_is_given_mininets_command_with_the_runs_tag(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction for a bridge: its ports by their numbers, its mark, and no discipline."""
    from testbed.backends.emu.mininet_network import AttachedIntf

    asked: list[list[str]] = []
    monkeypatch.setattr(
        type(module.MACHINE),
        "vsctl",
        lambda _, given: asked.append(given) or "",
    )
    monkeypatch.setattr(module, "datapath_type", lambda: "netdev")
    plan = network_plan(tree([1, 1], 10**9, 40), "tpb")
    switch = module.BuiltSwitch("tpb-s0", plan.bridges[0], "4711")
    for port in plan.ports_of_bridge["tpb-s0"]:
        AttachedIntf(port.name, switch, port.number, up=None)
    switch.start(module.PlainMininet(6699).controllers)
    words, controller = asked
    text = " ".join(words)
    assert len(text) > 4096  # more than a shell takes at a time
    assert not [word for word in words if word.startswith("target=")]
    assert 'target="unix:hosenet-4711.sock"' in controller
    assert controller[-3:] == ["Bridge", "tpb-s0", "controller=@c"]
    assert "add-br tpb-s0" in text
    assert text.count("external_ids:hosenet-run=4711") == 2 + len(
        plan.ports_of_bridge["tpb-s0"]
    )
    for port in plan.ports_of_bridge["tpb-s0"]:
        assert (
            f"set Interface {port.name} ofport_request={port.number}"
            in text
        )
        assert f"set Port {port.name} qos=@noop" in text
    assert {
        "datapath_type=netdev",
        "fail_mode=secure",
        "protocols=OpenFlow13",
    } <= set(words)
