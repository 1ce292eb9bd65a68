from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flow_rules import tenant_flows
from controller.values import (
    ELEMENTS_MAX,
    PROBLEM_LENGTH_MAX,
    PROBLEMS_MAX,
    RULES_MAX,
    AttachedVm,
    Conflict,
    DesiredState,
    InvalidValues,
    NetworkSwitches,
    Switch,
    Tenant,
    TreeEdge,
    UnknownTenant,
    from_json,
    to_json,
)
from tests.support.fake_datacentre import (
    FakeDataCentre,
    fat_tree_datacentre,
    tree_datacentre,
    vm_address,
)

DATACENTRE = fat_tree_datacentre(4, slots_per_server=2)


def a_tenant(
    datacentre: FakeDataCentre = DATACENTRE,
    tenant_id: int = 7,
    vms: int = 5,
) -> Tenant:
    return datacentre.tenant(
        tenant_id, datacentre.slots[:vms], lambda _count: 0
    )


def as_dict(value: object) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(to_json(value))
    return loaded


# ------------------------------------------------------------------------------- conventions


def test_vms_count_from_the_first_host_address_to_the_last() -> None:
    assert vm_address("10.0.4.0/22", 0) == "10.0.4.1"
    assert vm_address("10.0.4.0/22", 255) == "10.0.5.0"
    assert vm_address("10.0.4.0/22", 1021) == "10.0.7.254"
    for index in (-1, 1022):
        with pytest.raises(InvalidValues):
            vm_address("10.0.4.0/22", index)


# -------------------------------------------------------------------------------------- JSON


@given(
    st.sampled_from(
        [DATACENTRE, tree_datacentre([2, 3], 2), tree_datacentre([1], 1)]
    ),
    st.integers(1, 16383),
    st.data(),
)
def test_json_and_back(
    datacentre: FakeDataCentre, tenant_id: int, data: st.DataObject
) -> None:
    vms = data.draw(st.integers(1, len(datacentre.slots)))
    tenant = a_tenant(datacentre, tenant_id, vms)
    assert from_json(Tenant, to_json(tenant)) == tenant
    network = NetworkSwitches(datacentre.switches)
    assert from_json(NetworkSwitches, to_json(network)) == network
    state = DesiredState(datacentre.switches, (tenant,))
    assert from_json(DesiredState, to_json(state)) == state


def test_all_problems_are_named_at_once_with_their_places() -> None:
    body = as_dict(a_tenant())
    body["colour"] = "green"
    body["name"] = 5
    del body["prefix"]
    body["vms"][1]["dpid"] = "4"
    body["vms"][2]["mac"] = "02-00-00-00-00-01"
    body["vms"][2]["port"] = 0
    body["vms"][3]["speed"] = 1
    with pytest.raises(InvalidValues) as caught:
        from_json(Tenant, json.dumps(body).encode())
    assert sorted(caught.value.problems) == [
        "colour: unknown key",
        "name: input should be a valid string, not 5",
        "prefix: missing",
        "vms[1].dpid: input should be a valid integer, not '4'",
        "vms[2]: mac: '02-00-00-00-00-01' is not of the form 02:00:00:00:00:01 (lower case)",
        "vms[2]: port: 0 is not within 1..65279",
        "vms[3].speed: unknown key",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 30_000, "not JSON"),
        ("[]", "input should be an object"),
        (
            '{"switches": [], "switches": []}',
            "key 'switches' is given twice",
        ),
        (
            '{"switches": [{"dpid": true, "name": "a", "role": "rack", "ports": []}]}',
            "dpid",
        ),
        (
            '{"switches": [{"dpid": 1.0, "name": "a", "role": "rack", "ports": []}]}',
            "dpid",
        ),
        (
            '{"switches": [{"dpid": 1, "name": "a", "role": "spine", "ports": []}]}',
            "'server'",
        ),
        (
            '{"switches": [{"dpid": 1, "name": "a", "role": "rack", "ports": [1, 1]}]}',
            "twice",
        ),
        (
            '{"switches": [{"dpid": 1, "name": "", "role": "rack", "ports": []}]}',
            "printable",
        ),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_what_is_no_network(text: str | bytes, problem: str) -> None:
    if isinstance(text, str):
        text = text.encode(errors="surrogatepass")
    with pytest.raises(InvalidValues, match=problem):
        from_json(NetworkSwitches, text)


scalars = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=5)
    | st.integers()
)


@pytest.mark.slow
@given(
    st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["id", "vms", "tree", "x"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    )
)
def test_any_json_is_read_or_refused(value: object) -> None:
    with pytest.raises(InvalidValues) as caught:
        from_json(Tenant, json.dumps(value).encode())
    assert caught.value.problems


# ------------------------------------------------------------------------------- one by itself


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": 0}, "id: 0 is not within 1..16383"),
        (
            {"name": "a\nb"},
            "name: 'a\\nb' is not 1 to 128 printable characters",
        ),
        (
            {"prefix": "10.0.28.0/23"},
            "prefix: 10.0.28.0/23 is not a /22 inside 10.0.0.0/8",
        ),
        (
            {"prefix": "11.0.0.0/22"},
            "prefix: 11.0.0.0/22 is not a /22 inside 10.0.0.0/8",
        ),
        (
            {"prefix": "10.0.29.0/22"},
            "prefix: 10.0.29.0/22 has host bits set",
        ),
        ({"vms": ()}, "vms: a tenant has at least one VM"),
        (
            {"prefix": "10.0.32.0/22"},
            "VM 0: 10.0.28.1 is not a host address of 10.0.32.0/22",
        ),
        ({"tree": ()}, "tree: it falls apart"),
    ],
)
def test_a_tenant_that_is_none(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidValues) as caught:
        replace(a_tenant(), **change)
    assert any(
        line.startswith(problem) for line in caught.value.problems
    ), caught.value.problems


@pytest.mark.parametrize(
    "address", ["10.0.28.0", "10.0.31.255", "10.0.27.255", "10.0.32.0"]
)
def test_network_broadcast_and_neighbours_are_no_hosts(
    address: str,
) -> None:
    vm = AttachedVm(0, address, "02:00:00:00:00:01", 1, 1)
    with pytest.raises(InvalidValues, match="not a host address"):
        Tenant(7, "t", "10.0.28.0/22", (vm,))


@pytest.mark.parametrize(
    "mac",
    ["02:00:00:00:00:0G", "02:AA:00:00:00:01", "01:00:5e:00:00:01", ""],
)
def test_a_mac_is_lower_case_and_ones_own(mac: str) -> None:
    with pytest.raises(InvalidValues, match="mac"):
        AttachedVm(0, "10.0.4.1", mac, 1, 1)


def test_what_is_given_twice() -> None:
    tenant = a_tenant(vms=2)
    first, second = tenant.vms
    for twin in (
        {"index": first.index},
        {"ip": first.ip},
        {"mac": first.mac},
        {"port": first.port},
    ):
        with pytest.raises(InvalidValues, match="twice"):
            replace(tenant, vms=(first, replace(second, **twin)))


def test_a_vm_does_not_sit_on_a_port_of_the_tree() -> None:
    tenant = a_tenant()
    edge = next(
        e for e in tenant.tree if e.child_dpid == tenant.vms[0].dpid
    )
    moved = replace(tenant.vms[0], port=edge.child_port)
    with pytest.raises(InvalidValues, match="used twice"):
        replace(tenant, vms=(moved, *tenant.vms[1:]))


def test_trees_that_are_none() -> None:
    vms = (
        AttachedVm(0, "10.0.28.1", "02:00:00:00:00:01", 1, 1),
        AttachedVm(1, "10.0.28.2", "02:00:00:00:00:02", 2, 1),
    )
    edges = {
        "two parents": (
            TreeEdge(1, 9, 3, 1),
            TreeEdge(2, 9, 3, 2),
            TreeEdge(1, 8, 4, 1),
        ),
        "circle": (
            TreeEdge(1, 9, 3, 1),
            TreeEdge(2, 9, 3, 2),
            TreeEdge(3, 9, 1, 8),
        ),
        "falls apart": (TreeEdge(1, 9, 3, 1), TreeEdge(2, 9, 4, 1)),
    }
    for problem, tree in edges.items():
        with pytest.raises(InvalidValues, match=problem):
            Tenant(7, "t", "10.0.28.0/22", vms, tree)
    with pytest.raises(InvalidValues, match="its own parent"):
        TreeEdge(1, 1, 1, 2)


def test_one_server_needs_no_tree() -> None:
    tenant = DATACENTRE.tenant(
        7, DATACENTRE.slots[:2], lambda count: count - 1
    )
    assert tenant.tree == ()
    assert tenant.dpids == (tenant.vms[0].dpid,)


# ------------------------------------------------------------------------------- among others


def test_tenants_come_and_go_and_stay_sorted() -> None:
    empty = DesiredState().with_network(DATACENTRE.switches)
    second = DATACENTRE.tenant(2, DATACENTRE.slots[:3], lambda _count: 0)
    first = DATACENTRE.tenant(1, DATACENTRE.slots[3:6], lambda _count: 0)
    state = empty.with_tenant(second).with_tenant(first)
    assert [tenant.id for tenant in state.tenants] == [1, 2]
    assert state.tenant(2) is second
    assert state.without_tenant(1).without_tenant(2) == empty
    for missing in (state.without_tenant, state.tenant):
        with pytest.raises(UnknownTenant, match="no tenant 3"):
            missing(3)


def test_everything_that_is_taken_is_named() -> None:
    state = (
        DesiredState()
        .with_network(DATACENTRE.switches)
        .with_tenant(a_tenant())
    )
    with pytest.raises(Conflict) as caught:
        state.with_tenant(a_tenant())
    assert caught.value.problems[:2] == (
        "id 7 is taken by tenant 7 (tenant-7)",
        "prefix 10.0.28.0/22 overlaps that of tenant 7 (tenant-7)",
    )
    dpid, port = DATACENTRE.slots[0]
    assert (
        f"port {port} of switch {dpid} is a port of tenant 7 (tenant-7)"
        in caught.value.problems
    )


def test_a_vm_on_another_tenants_uplink_is_a_conflict_both_ways() -> None:
    tenant = a_tenant()
    edge = next(
        e for e in tenant.tree if e.child_dpid == tenant.vms[0].dpid
    )
    intruder = Tenant(
        8,
        "intruder",
        "10.0.32.0/22",
        (
            AttachedVm(
                0,
                "10.0.32.1",
                "02:00:00:00:ff:01",
                edge.child_dpid,
                edge.child_port,
            ),
        ),
    )
    empty = DesiredState().with_network(DATACENTRE.switches)
    for first, then in ((tenant, intruder), (intruder, tenant)):
        with pytest.raises(
            Conflict,
            match=f"port {edge.child_port} of switch {edge.child_dpid}",
        ):
            empty.with_tenant(first).with_tenant(then)


def test_a_place_that_does_not_exist() -> None:
    state = DesiredState().with_network(
        [
            Switch(1, "s1", "server", (1, 9)),
            Switch(2, "r2", "rack", (1, 2)),
        ]
    )
    tenant = Tenant(
        7,
        "t",
        "10.0.28.0/22",
        (
            AttachedVm(0, "10.0.28.1", "02:00:00:00:00:01", 1, 5),
            AttachedVm(1, "10.0.28.2", "02:00:00:00:00:02", 2, 2),
            AttachedVm(2, "10.0.28.3", "02:00:00:00:00:03", 4, 1),
        ),
        (TreeEdge(1, 9, 2, 1), TreeEdge(4, 9, 2, 3)),
    )
    with pytest.raises(InvalidValues) as caught:
        state.with_tenant(tenant)
    assert caught.value.problems == (
        "switch 4 is not in the network",
        "switch s1 has no port 5",
        "switch r2 has no port 3",
        "VM 1 sits on r2, a rack switch, not a server",
    )


def test_a_network_cannot_be_pulled_from_under_a_tenant() -> None:
    state = (
        DesiredState()
        .with_network(DATACENTRE.switches)
        .with_tenant(a_tenant())
    )
    with pytest.raises(
        Conflict,
        match=r"tenant 7 \(tenant-7\): switch .* is not in the network",
    ):
        state.with_network(DATACENTRE.switches[:3])
    assert state.with_network(DATACENTRE.switches) == state
    assert (
        state.without_tenant(7)
        .with_network(DATACENTRE.switches[:3])
        .switches
        == DATACENTRE.switches[:3]
    )


def test_switches_are_distinct() -> None:
    twin = Switch(1, "a", "rack", (1,))
    with pytest.raises(InvalidValues) as caught:
        DesiredState().with_network([twin, twin])
    assert caught.value.problems == (
        "dpid 1 is given twice",
        "switch name 'a' is given twice",
    )


def test_ports_are_sorted() -> None:
    assert Switch(1, "a", "rack", (3, 1, 2)).ports == (1, 2, 3)


# ---------------------------------------------------------------------------- what is too much


MEBIBYTE = 1 << 20


def _list_of(item: bytes, most: int = MEBIBYTE) -> bytes:
    return (
        b'{"switches":['
        + b",".join([item] * ((most - 15) // (len(item) + 1)))
        + b"]}"
    )


def _ports_of(item: bytes, count: int) -> bytes:
    ports = b",".join([item] * count)
    return (
        b'{"switches":[{"dpid":1,"name":"a","role":"core","ports":['
        + ports
        + b"]}]}"
    )


LONG = 10**4299
WORST = {
    "many short objects": _list_of(b'{"dpid":1}'),
    "many empty objects": _list_of(b"{}"),
    "as many as go": _list_of(b"{}", 3 * (ELEMENTS_MAX // 2 - 4)),
    "many empty lists": _list_of(b"[]"),
    "many lists for ports": _ports_of(b"[]", ELEMENTS_MAX // 2 - 10),
    "many texts for ports": _ports_of(b'""', ELEMENTS_MAX - 10),
    "many ports out of range": _ports_of(b"0", ELEMENTS_MAX - 10),
    "one port many times": _ports_of(b"1", ELEMENTS_MAX - 10),
    "many unknown keys": b"{"
    + b",".join(b'"%d":0' % n for n in range(ELEMENTS_MAX - 2))
    + b"}",
    "many repeated keys": b"{"
    + b",".join([b'"a":0,"b":0'] * (ELEMENTS_MAX // 2 - 2))
    + b"}",
    "deep lists": b"[" * MEBIBYTE,
    "deep as far as goes": b'{"switches":' + b"[" * (ELEMENTS_MAX - 2),
    "deep objects": b'{"switches":' * (MEBIBYTE // 12),
    "long numbers": _ports_of(str(LONG).encode(), 200),
    "one longer number": _ports_of(b"9" * (MEBIBYTE - 100), 1),
    "a long fraction": _ports_of(b"0." + b"9" * (MEBIBYTE - 100), 1),
    "a long text": _ports_of(b'"' + b"x" * (MEBIBYTE - 100) + b'"', 1),
    "a long key": b'{"' + b"x" * (MEBIBYTE - 10) + b'":1}',
    "a long name": b'{"switches":[{"dpid":1,"role":"core","ports":[],"name":"%s"}]}'
    % (b"x" * 10**6),
    "no text": b"\xff" * MEBIBYTE,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", WORST.values(), ids=WORST)
def test_the_worst_mebibyte_is_refused_in_few_words_and_little_memory(
    text: bytes,
) -> None:
    assert len(text) <= MEBIBYTE
    tracemalloc.start()
    try:
        with pytest.raises(InvalidValues) as caught:
            from_json(NetworkSwitches, text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 1 <= len(caught.value.problems) <= PROBLEMS_MAX + 1
    assert len(str(caught.value)) <= (PROBLEMS_MAX + 1) * (
        PROBLEM_LENGTH_MAX + 10
    )
    assert peak_bytes < 48 << 20


def test_the_rest_of_the_problems_is_counted() -> None:
    ports = ",".join(str(n) for n in range(70_000, 70_050))
    text = f'{{"switches":[{{"dpid":1,"name":"a","role":"core","ports":[{ports}]}}]}}'
    with pytest.raises(InvalidValues) as caught:
        from_json(NetworkSwitches, text.encode())
    assert len(caught.value.problems) == PROBLEMS_MAX + 1
    assert "ports: 70000 is not within" in caught.value.problems[0]
    assert caught.value.problems[-1].endswith("and 30 more")


@pytest.mark.slow
def test_the_largest_tenant_is_far_below_the_number_of_elements() -> None:
    """1,021 VMs, each on its own server in a rack of its own below pods of their own."""
    vms = tuple(
        AttachedVm(
            n,
            vm_address("10.0.4.0/22", n),
            f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}",
            n + 1,
            1,
        )
        for n in range(1021)
    )
    tree = tuple(
        edge
        for n in range(1021)
        for edge in (
            TreeEdge(n + 1, 2, 2001 + n, 1),
            TreeEdge(2001 + n, 2, 4001 + n, 1),
            TreeEdge(4001 + n, 2, 9000, n + 1),
        )
    )
    tenant = Tenant(1, "largest", "10.0.4.0/22", vms, tree)
    text = to_json(tenant)
    assert from_json(Tenant, text) == tenant
    assert 2 * sum(map(text.count, (b",", b"[", b"{"))) < ELEMENTS_MAX
    assert sum(map(len, tenant_flows(tenant).values())) < RULES_MAX / 4


def _chain(length: int, vms: int) -> dict[str, Any]:
    """A tenant whose tree is a chain, its VMs at the lower end."""
    return {
        "id": 1,
        "name": "chain",
        "prefix": "10.0.4.0/22",
        "vms": [
            {
                "index": n,
                "ip": vm_address("10.0.4.0/22", n),
                "mac": f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}",
                "dpid": 1,
                "port": 10 + n,
            }
            for n in range(vms)
        ],
        "tree": [
            {
                "child_dpid": n,
                "child_port": 1,
                "parent_dpid": n + 1,
                "parent_port": 2,
            }
            for n in range(1, length)
        ],
    }


def test_a_tree_may_be_deep_but_not_with_many_vms_at_its_end() -> None:
    """Every switch above a VM has a rule for it."""
    tenant = from_json(Tenant, json.dumps(_chain(1000, 60)).encode())
    assert len(tenant.dpids) == 1000
    with pytest.raises(
        InvalidValues, match=r"tree: 1000000 rules .* at most 65536 go"
    ):
        from_json(Tenant, json.dumps(_chain(1000, 1000)).encode())


def test_a_long_tree_is_looked_at_once() -> None:
    """No switch is walked up from for itself: a chain of thousands would take seconds."""
    looks = [0]

    class Counting(int):
        def __hash__(self) -> int:
            looks[0] += 1
            return super().__hash__()

    chain = _chain(2000, 1)
    edges = tuple(
        TreeEdge(*(Counting(number) for number in e.values()))
        for e in chain["tree"]
    )
    vm = AttachedVm(0, "10.0.4.1", "02:00:00:00:00:00", Counting(1), 10)
    Tenant(1, "chain", "10.0.4.0/22", (vm,), edges)
    assert looks[0] < 100 * len(edges)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-be"])
def test_json_is_in_utf_8_alone(encoding: str) -> None:
    """Python's reader would guess, by modules that a controller without root may not reach."""
    with pytest.raises(InvalidValues, match="not JSON"):
        from_json(NetworkSwitches, '{"switches": []}'.encode(encoding))
