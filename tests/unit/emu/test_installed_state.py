"""Output of tc and ovs-ofctl against the plan's lines: equal where it is, named where not."""

from __future__ import annotations

from ipaddress import IPv4Network
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flow_rules import BASE_FLOWS, tenant_flows
from testbed.backends.emu import installed_state
from testbed.backends.emu.installed_state import (
    differences,
    flow_objects,
    tc_objects,
)
from testbed.embedding.placement import Placement
from testbed.plan.batch_lines import (
    BatchLine,
    ByteFifo,
    HtbClass,
    HtbRoot,
    PrefixFilter,
)
from testbed.plan.network_plan import (
    controller_tenant,
    network_plan,
    tenant_plan,
)
from topologies.tree import tree

# tc -d -p, iproute2 6.1, after the lines of PLAN.
SHOWN = """\
qdisc htb 1: root refcnt 3 r2q 10 default 0xfffe direct_packets_stat 0 ver 3.17 direct_qlen 1000
qdisc bfifo be3c: parent 1:5 limit 375000b
class htb 1:ffff root rate 400Mbit ceil 400Mbit linklayer ethernet burst 1000000b/1 mpu 0b \
cburst 1000000b/1 mpu 0b level 7 
class htb 1:2 root prio 0 quantum 60000 rate 1258Mbit ceil 1258Mbit linklayer ethernet \
burst 1572840b/1 mpu 64Kb cburst 1572840b/1 mpu 64Kb level 0 
class htb 1:5 parent 1:ffff leaf be3c: prio 0 quantum 60000 rate 100Mbit ceil 100Mbit \
linklayer ethernet burst 750000b/1 mpu 0b cburst 749999b/1 mpu 0b level 0 
filter parent 1: protocol ip pref 5 u32 chain 0 
filter parent 1: protocol ip pref 5 u32 chain 0 fh 800: ht divisor 1 
filter parent 1: protocol ip pref 5 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 \
*flowid 1:5 not_in_hw 
  match IP src 10.0.20.0/22
qdisc noqueue 0: root refcnt 2 
"""  # noqa: W291 - as tc prints it
DEVICES = ("hn-r0-u0", "hn-r0-d0")
ITEMS = (
    HtbRoot("hn-r0-u0", 0xFFFE),
    HtbClass("hn-r0-u0", 0, 0xFFFF, 400_000_000, 400_000_000, 0.02),
    HtbClass(
        "hn-r0-u0",
        0,
        2,
        1_258_272_000,
        1_258_272_000,
        0.01,
        mpu_bytes=65_535,
    ),
    HtbClass("hn-r0-u0", 0xFFFF, 5, 100_000_000, 100_000_000, 0.06),
    ByteFifo("hn-r0-u0", 5, 375_000),
    PrefixFilter("hn-r0-u0", 5, IPv4Network("10.0.20.0/22"), 5),
)
PLAN = tuple(BatchLine("add", item).text() for item in ITEMS)


def found_in(shown: str) -> list[tuple[str, str]]:
    return list(
        differences(
            tc_objects(PLAN), tc_objects(shown.splitlines(), DEVICES)
        )
    )


def test_what_tc_shows_is_what_the_plan_says() -> None:
    assert found_in(SHOWN) == []
    assert len(tc_objects(PLAN)) == len(PLAN)


def test_iproute2_of_debian_13_writes_the_cell_and_mpu_together() -> None:
    shown = SHOWN.replace(
        "b/1 mpu", "b/1mpu"
    )  # 6.15: "burst 1000000b/1mpu 0b"
    assert shown != SHOWN
    assert found_in(shown) == []
    ((name, fault),) = found_in(shown.replace("1mpu 64Kb", "1mpu 0b"))
    assert (name, fault) == ("hn-r0-u0 class 1:2", "mpu 0, expected 65535")


@pytest.mark.parametrize(
    ("was", "now", "name", "fault"),
    [
        (
            "rate 100Mbit",
            "rate 99Mbit",
            "class 1:5",
            "rate 99 Mbit/s, expected 100 Mbit/s",
        ),
        (
            "ceil 100Mbit",
            "ceil 400Mbit",
            "class 1:5",
            "ceil 400 Mbit/s, expected 100 Mbit/s",
        ),
        (
            "burst 750000b/1",
            "burst 7500b/1",
            "class 1:5",
            "burst 7500, expected 750000",
        ),
        (
            "limit 375000b",
            "limit 300Kb",
            "queue 1:5",
            "limit 307200, expected 375000",
        ),
        ("mpu 64Kb", "mpu 0b", "class 1:2", "mpu 0, expected 65535"),
        (
            "parent 1:ffff",
            "parent 1:2",
            "class 1:5",
            "parent 1:2, expected 1:ffff",
        ),
        (
            "quantum 60000 rate 100",
            "quantum 6000 rate 100",
            "class 1:5",
            "quantum 6000, expected",
        ),
        (
            "default 0xfffe",
            "default 0x5",
            "root",
            "default 0x5, expected 0xfffe",
        ),
        (
            "packets_stat 0",
            "packets_stat 9",
            "root",
            "direct_packets_stat 9, expected 0",
        ),
        (
            "flowid 1:5",
            "flowid 1:2",
            "filter 5 ip src 10.0.20.0/22",
            "flowid 1:2, expected 1:5",
        ),
        (
            "10.0.20.0",
            "10.0.24.0",
            "filter 5 ip src 10.0.20.0/22",
            "missing",
        ),
        ("class htb 1:5", "class htb 1:6", "class 1:5", "missing"),
        ("class htb 1:5", "class htb 1:6", "class 1:6", "not of the plan"),
    ],
)
def test_what_differs_is_named(
    was: str, now: str, name: str, fault: str
) -> None:
    assert was in SHOWN
    found = dict(found_in(SHOWN.replace(was, now)))
    assert fault in found[f"hn-r0-u0 {name}"]


def test_a_device_without_limits_lacks_all_and_others_keep_theirs() -> None:
    shown = f"qdisc noqueue 0: root refcnt 2 \n{SHOWN}"
    expected = tc_objects(PLAN)
    found = tc_objects(shown.splitlines(), ("hn-r0-d0", *DEVICES))
    assert list(differences(expected, found)) == []
    swapped = tc_objects(SHOWN.splitlines(), ("hn-r0-d0", "hn-r0-u0"))
    faults = dict(differences(expected, swapped))
    assert set(faults.values()) == {"missing", "not of the plan"}
    assert len(faults) == 2 * len(PLAN)


@given(rate_bps=st.integers(8_000, 10**10))
def test_rates_survive_how_tc_writes_them(rate_bps: int) -> None:
    """tc divides by thousands as long as digits are left over: six of them, or the first four."""
    text, units = rate_bps, ["bit", "Kbit", "Mbit", "Gbit", "Tbit"]
    while text >= 1000 and (text % 1000 == 0 or text >= 1_000_000):
        text, units = text // 1000, units[1:]
    line = BatchLine(
        "add", HtbClass("d", 0xFFFF, 5, rate_bps, rate_bps)
    ).text()
    shown = line.replace(f"{rate_bps}bit", f"{text}{units[0]}")
    assert list(differences(tc_objects([line]), tc_objects([shown]))) == []
    less = line.replace(f"{rate_bps}bit", f"{rate_bps * 99 // 100}bit")
    assert list(differences(tc_objects([line]), tc_objects([less])))


@pytest.mark.parametrize(
    ("planned_delay", "shown_delay"),
    [
        ("0.500us", "500ns"),
        ("999.600us", "1e+03us"),
        ("999600.000us", "1e+03ms"),
        ("5000.000us", "5ms"),
    ],
)
def test_delays_survive_how_tc_writes_them(
    planned_delay: str, shown_delay: str
) -> None:
    line = "qdisc add dev d root handle 2: netem limit 9 delay {}"
    shown = line.format(shown_delay)
    expected = tc_objects([line.format(planned_delay)])
    assert list(differences(expected, tc_objects([shown]))) == []
    other = tc_objects([line.format("7us")])
    assert list(differences(expected, other))


# -- flows


def planned() -> dict[str, list[str]]:
    """The flows of a tenant on two servers, as the plan writes them."""
    datacentre = tree([1, 2], [10**9, 10**9], 2)
    network = network_plan(datacentre)
    slots = tuple(network.slots_of_server[server][0] for server in (0, 1))
    placement = Placement(datacentre.trees[0].root, ((0, 1), (1, 1)))
    tenant = tenant_plan(
        datacentre, network, placement, slots, 1, "a", 10**7
    )
    flows = tenant_flows(controller_tenant(network, tenant))
    name = {bridge.dpid: bridge.name for bridge in network.bridges}
    return {
        name[dpid]: [f.text() for f in (*BASE_FLOWS, *of)]
        for dpid, of in flows.items()
    }


def dumped(line: str) -> str:
    """The line as ``ovs-ofctl dump-flows`` shows it, with counters."""
    head, _, actions = line.partition(" actions=")
    cookie, table, rest = head.split(",", 2)
    counters = "n_packets=7, n_bytes=2338, "
    return f" {cookie}, duration=3.141s, {table}, {counters}{rest} actions={actions}"


def test_flows_are_the_same_with_counters() -> None:
    for bridge, lines in planned().items():
        shown = ["OFPST_FLOW reply (OF1.3) (xid=0x2):", *map(dumped, lines)]
        expected = flow_objects(bridge, lines)
        assert len(expected) == len(lines)
        assert (
            list(differences(expected, flow_objects(bridge, shown))) == []
        )


def test_a_flow_that_is_missing_changed_or_strange_is_named() -> None:
    bridge, lines = next(iter(planned().items()))
    expected = flow_objects(bridge, lines)
    first, *others = [line for line in lines if "nw_dst" in line]
    name = next(iter(flow_objects(bridge, [first])))
    rest = [line for line in lines if line != first]
    assert list(differences(expected, flow_objects(bridge, rest))) == [
        (name, "missing")
    ]

    head, _, actions = first.partition("actions=")
    changed = flow_objects(bridge, [*rest, f"{head}actions=output:99"])
    assert list(differences(expected, changed)) == [
        (name, f"actions output:99, expected {actions}")
    ]
    strange = "cookie=0x0,table=0,priority=300,in_port=1 actions=NORMAL"
    found = list(
        differences(expected, flow_objects(bridge, [*lines, strange]))
    )
    assert found == [
        (f"{bridge} flow table=0,priority=300,in_port=1", "not of the plan")
    ]
    timed = others[0].replace(" actions", ",idle_timeout=5 actions")
    faults = [
        fault
        for _, fault in differences(
            expected, flow_objects(bridge, [*rest, first, timed])
        )
    ]
    assert "not of the plan" in faults


def test_filters_behind_a_delay_line_are_asked_for_by_their_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def tc(_: Any, text_in: str, **__: Any) -> Any:
        """As tc shows two devices, of which the first has a delay line."""
        asked.append(text_in)
        shown = "qdisc netem 2: root limit 9 delay 1ms\nqdisc htb 1: parent 2:1 default 0x1\n"
        if "parent 1:" in text_in:
            shown += (
                "filter protocol ip pref 5 u32 fh 800::800 flowid 1:5 \n"
                "  match IP src 10.0.20.0/22\n"
            )
        else:
            shown += "qdisc htb 1: root default 0x1\n"
        return SimpleNamespace(stdout=shown)

    monkeypatch.setattr(installed_state, "run", tc)
    found = installed_state.installed_limits(None, ["a", "b"])
    assert found["a filter 5 ip src 10.0.20.0/22"] == {"flowid": "1:5"}
    assert found["b root"]["default"] == "0x1"
    assert [text.count("show dev b") for text in asked] == [3, 0]
    assert "filter show dev a parent 1:" in asked[1]
