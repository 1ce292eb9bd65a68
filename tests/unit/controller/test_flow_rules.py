"""The rules as text: an example in full, and the way back from what ovs-ofctl prints."""

from __future__ import annotations

from controller.flow_rules import (
    BASE_FLOWS,
    COOKIE_TAG,
    COOKIE_TAG_MASK,
    desired_flows,
    tenant_cookie,
    tenant_flows,
)
from controller.values import (
    AttachedVm,
    DesiredState,
    Switch,
    Tenant,
    TreeEdge,
)
from tests.support.fake_switch import text_of_dumped_flow

TENANT = Tenant(
    3,
    "example",
    "10.0.12.0/22",
    (
        AttachedVm(0, "10.0.12.1", "02:00:00:00:00:01", dpid=1, port=1),
        AttachedVm(1, "10.0.12.2", "02:00:00:00:00:02", dpid=1, port=2),
        AttachedVm(2, "10.0.12.3", "02:00:00:00:00:03", dpid=2, port=1),
    ),
    (TreeEdge(1, 9, 3, 1), TreeEdge(2, 9, 3, 2)),
)
C = "cookie=0x484f534500000003"
ADMIT = f"{C},table=0,priority=100,ip,in_port"
UNTAGGED = "vlan_tci=0x0000/0x1fff"
PREFIX = "nw_src=10.0.12.0/22"


def test_the_rules_of_a_server() -> None:
    assert [flow.text() for flow in tenant_flows(TENANT)[1]] == [
        f"{ADMIT}=1,{UNTAGGED},dl_src=02:00:00:00:00:01,nw_src=10.0.12.1 actions=goto_table:1",
        f"{ADMIT}=2,{UNTAGGED},dl_src=02:00:00:00:00:02,nw_src=10.0.12.2 actions=goto_table:1",
        f"{ADMIT}=9,{UNTAGGED},{PREFIX} actions=goto_table:1",
        f"{C},table=1,priority=200,ip,{PREFIX},nw_dst=10.0.12.1 actions=output:1",
        f"{C},table=1,priority=200,ip,{PREFIX},nw_dst=10.0.12.2 actions=output:2",
        f"{C},table=1,priority=100,ip,{PREFIX},nw_dst=10.0.12.0/22 actions=output:9",
    ]


def test_the_rules_of_the_root() -> None:
    assert [flow.text() for flow in tenant_flows(TENANT)[3]] == [
        f"{ADMIT}=1,{UNTAGGED},{PREFIX} actions=goto_table:1",
        f"{ADMIT}=2,{UNTAGGED},{PREFIX} actions=goto_table:1",
        f"{C},table=1,priority=200,ip,{PREFIX},nw_dst=10.0.12.1 actions=output:1",
        f"{C},table=1,priority=200,ip,{PREFIX},nw_dst=10.0.12.2 actions=output:1",
        f"{C},table=1,priority=200,ip,{PREFIX},nw_dst=10.0.12.3 actions=output:2",
    ]


def test_a_switch_without_tenants_drops_everything() -> None:
    switch = Switch(1, "s1", "server", (1, 2, 9))
    texts = [
        "cookie=0x484f534500000000,table=0,priority=0 actions=drop",
        "cookie=0x484f534500000000,table=1,priority=0 actions=drop",
    ]
    assert [flow.text() for flow in BASE_FLOWS] == texts
    state = DesiredState((switch,))
    assert [flow.text() for flow in desired_flows(state)[1]] == texts


def test_every_rule_bears_the_tag_and_its_tenants_number() -> None:
    cookies = {
        flow.cookie
        for flows in tenant_flows(TENANT).values()
        for flow in flows
    }
    assert cookies == {tenant_cookie(3)} == {COOKIE_TAG + 3}
    assert tenant_cookie(16383) == COOKIE_TAG + 16383
    assert tenant_cookie(16383) & COOKIE_TAG_MASK == COOKIE_TAG


def test_no_rule_has_a_twin() -> None:
    for flows in tenant_flows(TENANT).values():
        assert len({flow.key for flow in flows}) == len(flows)


# Printed by Open vSwitch 3.1: each line, and below it the same in our form.
DUMPED = """
 cookie=0x484f534500000003, duration=0.076s, table=0, n_packets=0, n_bytes=0, \
priority=100,ip,in_port=9,vlan_tci=0x0000/0x1fff,nw_src=10.0.12.0/22 actions=goto_table:1
cookie=0x484f534500000003,table=0,\
priority=100,ip,in_port=9,vlan_tci=0x0000/0x1fff,nw_src=10.0.12.0/22 actions=goto_table:1
 cookie=0x484f534500000000, duration=12.6s, table=1, n_packets=7, n_bytes=522, idle_age=3, \
priority=0 actions=drop
cookie=0x484f534500000000,table=1,priority=0 actions=drop
 cookie=0x0, duration=0.008s, table=0, n_packets=0, n_bytes=0, arp actions=output:1,output:2
cookie=0x0,table=0,arp actions=output:1,output:2
 cookie=0x7, duration=0.036s, table=0, n_packets=0, n_bytes=0, idle_timeout=50, \
priority=7,tcp,nw_dst=10.0.0.0/9,tp_dst=80 actions=NORMAL
cookie=0x7,table=0,idle_timeout=50,priority=7,tcp,nw_dst=10.0.0.0/9,tp_dst=80 actions=NORMAL
"""


def test_what_ovs_ofctl_prints_in_our_form() -> None:
    lines = DUMPED.strip("\n").split("\n")
    assert len(lines) == 8
    for dumped, text in zip(lines[::2], lines[1::2], strict=True):
        assert text_of_dumped_flow(dumped) == text


def test_a_dumped_rule_of_ours_is_its_own_text() -> None:
    for flows in tenant_flows(TENANT).values():
        for flow in flows:
            head, _, rest = flow.text().partition(",table=")
            table, _, rest = rest.partition(",")
            dumped = f" {head}, duration=1s, table={table}, n_packets=0, n_bytes=0, {rest}"
            assert text_of_dumped_flow(dumped) == flow.text()
