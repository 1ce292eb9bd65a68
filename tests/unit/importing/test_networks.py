"""Networks of other tools: what of them becomes an experiment, and what is said of
the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import BadInput
from testbed.importing.gml import is_gml
from testbed.importing.imported import Imported, Network
from testbed.importing.recognition import import_files
from testbed.spec.experiment_file import parse_experiment
from tests.unit.importing.samples import GML

Import = Callable[..., Imported]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Imports texts, each under a name; what comes is an experiment."""

    def take(*texts: str, **options: object) -> Imported:
        paths = []
        for number, text in enumerate(texts):
            path = tmp_path / f"file-{number}"
            path.write_text(text)
            paths.append(path)
        result = import_files(paths, **options)  # type: ignore[arg-type]
        parse_experiment(result.text(), tmp_path / "made.yaml")
        return result

    return take


def network(result: Imported) -> Network:
    assert isinstance(result.topology, Network)
    return result.topology


def links(result: Imported) -> dict[tuple[str, str], int]:
    found = {}
    for link in network(result).links:
        found[link.lower, link.upper] = min(link.up_bps, link.down_bps)
    return found


def refused(take: Import, *texts: str, **options: object) -> str:
    with pytest.raises(BadInput) as caught:
        take(*texts, **options)
    assert "\n" not in caught.value.message
    return caught.value.message


def all_notes(result: Imported) -> str:
    notes = result.notes
    return "\n".join((*notes.taken, *notes.not_taken, *notes.choices))


# ------------------------------------------------------------------ containerlab

CLOS = """\
name: fabric
topology:
  defaults: &forwarding {kind: nokia_srlinux}
  groups: {clients: {kind: linux}}
  nodes:
    spine1:
    spine2: {image: some, startup-config: spine.cfg}
    leaf1: {<<: *forwarding, type: ixr}
    leaf2: {kind: ceos}
    client1: {group: clients}
    client2: {kind: linux, exec: [ip link]}
  links:
    - endpoints: ["leaf1:e1", "spine1:e1"]
    - endpoints: ["leaf1:e2", "spine2:e1"]
    - endpoints: ["leaf2:e1", "spine1:e2"]
    - endpoints: ["leaf2:e2", "spine2:e2"]
    - endpoints: ["client1:eth1", "leaf1:e3"]
    - type: veth
      endpoints:
        - {node: client2, interface: eth1}
        - {node: leaf2, interface: e3, mac: 02:00:00:00:00:01}
    - type: mgmt-net
      endpoint: {node: spine1, interface: e9}
    - endpoints: ["spine1:e8", "host:spine1"]
"""


def test_a_fabric_of_leaves_and_spines_is_whole(imported: Import) -> None:
    result = imported(CLOS)
    assert result.name == "fabric"
    assert set(network(result).servers) == {"client1", "client2"}
    assert network(result).roots == ("spine1", "spine2")
    assert len(links(result)) == 6
    assert set(links(result).values()) == {10**9}
    said = all_notes(result)
    assert (
        "1 Gbit/s of 6 links whose capacity the file does not say" in said
    )
    assert "links to outside (mgmt-net): 1" in said
    assert "links to outside (host): 1" in said
    for key in ("image (1)", "startup-config (1)", "exec (1)", "type (1)"):
        assert key in said


def test_hosts_joined_to_each_other_get_a_switch(imported: Import) -> None:
    result = imported(
        "topology: {nodes: {a: {kind: linux}, b: {kind: linux}},"
        " links: [{endpoints: ['a:e', 'b:e']}]}"
    )
    assert network(result).servers == {"a": 1, "b": 1}
    assert network(result).switches == ("a-b",)


def test_a_lab_of_routers_gets_a_server_each(imported: Import) -> None:
    result = imported(
        "topology: {nodes: {a: {kind: srl}, b: {kind: ceos}},"
        " links: [{endpoints: ['a:e', 'b:e']}]}"
    )
    assert network(result).servers == {"a-host": 4, "b-host": 4}


@pytest.mark.slow
def test_a_host_with_several_links_is_a_router(imported: Import) -> None:
    nodes = ", ".join(f"{name}: {{kind: linux}}" for name in "abc")
    result = imported(
        f"topology: {{nodes: {{{nodes}}}, links:"
        " [{endpoints: ['a:e', 'b:e']}, {endpoints: ['b:f', 'c:e']}]}"
    )
    assert network(result).servers == {"a": 1, "c": 1}
    assert "hosts with several links as switches: b" in all_notes(result)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topology: {nodes: {a: , b: }, links: []}", "no two nodes"),
        (
            "topology: {nodes: {a: }, links: [{endpoints: ['a:1']}]}",
            "not 2",
        ),
        (
            "topology: {nodes: {a: }, links: [{endpoints: ['a:1', 'x:1']}]}",
            "topology.links[0]: no node is named 'x'",
        ),
        ("topology: {nodes: {a: }, links: 7}", "topology.links is no list"),
        ("topology: {nodes: {a: }, links: [7]}", "is no mapping"),
        ("topology: {nodes: {{ .nodes }}}", "no YAML"),
        ("services: {web: {image: x}}", "has no topology with nodes"),
        ("just words", "has no topology with nodes"),
        ('topology: {nodes: {"\\UFFFFFFFF": }}', "no YAML"),
    ],
)
def test_what_is_no_lab_is_told(
    text: str, said: str, imported: Import
) -> None:
    assert said in refused(imported, text)


@pytest.mark.slow
def test_aliases_of_aliases_count_like_copies(imported: Import) -> None:
    lines = ["a0: &a0 {k: v}"]
    for number in range(1, 40):
        many = ", ".join([f"*a{number - 1}"] * 20)
        lines.append(f"a{number}: &a{number} {{<<: [{many}], l: [{many}]}}")
    few = "\n".join([*lines[:3], CLOS])
    assert len(network(imported(few)).servers) == 2
    said = refused(imported, "\n".join([*lines, CLOS]))
    assert "more than 1,000,000 values" in said
    # An alias within its own anchor has no end.
    said = refused(imported, f"endless: &e [*e]\n{CLOS}")
    assert "nested too deeply" in said


# ------------------------------------------------------------------ GraphML

KEYS = """\
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="LinkSpeedRaw" for="edge" id="d1"/>
<key attr.name="LinkSpeed" for="edge" id="d2"/>
<key attr.name="LinkSpeedUnits" for="edge" id="d3"/>
<key attr.name="label" for="node" id="d4"/>
<key attr.name="Latitude" for="node" id="d5"/>
<key attr.name="hyperedge" for="node" id="d6"/>
<key attr.name="type" for="node" id="d7"/>
<key attr.name="capacity" for="edge" id="d8"/>
"""


def graphml(*parts: str, directed: bool = False) -> str:
    default = "directed" if directed else "undirected"
    body = "".join(parts)
    return f'{KEYS}<graph edgedefault="{default}">{body}</graph></graphml>'


def node(name: str, **data: str) -> str:
    return f'<node id="{name}">{values(data)}</node>'


def edge(source: str, target: str, **data: str) -> str:
    return (
        f'<edge source="{source}" target="{target}">{values(data)}</edge>'
    )


def values(data: dict[str, str]) -> str:
    return "".join(f'<data key="{k}">{v}</data>' for k, v in data.items())


def test_speeds_in_both_forms_and_the_smallest_where_there_is_none(
    imported: Import,
) -> None:
    result = imported(
        graphml(
            node("0", d4="New York", d5="40.7"),
            node("1", d4="None"),
            node("2", d4="None"),
            node("3"),
            edge("0", "1", d1="10000000000.0"),
            edge("1", "2", d2="2.5", d3="G"),
            edge("2", "3", d2="fast"),
        )
    )
    assert set(network(result).servers) == {
        "New York-host",
        "None-host",
        "None-2-host",
        "3-host",
    }
    capacities = sorted(
        capacity
        for (lower, _), capacity in links(result).items()
        if not lower.endswith("-host")
    )
    assert capacities == [2_500_000_000, 2_500_000_000, 10_000_000_000]
    said = all_notes(result)
    assert (
        "2.5 Gbit/s of 1 link whose capacity the file does not say" in said
    )
    assert "Latitude (1)" in said


def test_stated_capacities_that_are_none_are_named(
    imported: Import,
) -> None:
    text = graphml(
        node("a"),
        node("b"),
        node("c"),
        edge("a", "b", d2="10", d3="furlong"),
        edge("b", "c", d1="-5", d8="100 Mbps"),
    )
    said = (
        "capacities that are no bandwidths above 0: LinkSpeed '10 furlong',"
        " LinkSpeedRaw '-5', capacity '100 Mbps'"
    )
    assert said in imported(text).notes.not_taken


def test_quantities_with_units_are_read_too(imported: Import) -> None:
    text = graphml(node("a"), node("b"), edge("a", "b", d8="40 Mbit/s"))
    assert links(imported(text))["b", "a"] == 40_000_000


def test_parallel_edges_are_one_of_their_sum(imported: Import) -> None:
    text = graphml(
        node("a"),
        node("b"),
        edge("a", "b", d1="100"),
        edge("b", "a", d1="200"),
    )
    result = imported(text)
    assert links(result)["b", "a"] == 300
    assert "parallel links as one of their sum" in all_notes(result)


def test_both_directions_of_a_directed_graph_are_one_link_of_two_capacities(
    imported: Import,
) -> None:
    text = graphml(
        node("a"),
        node("b"),
        edge("a", "b", d1="100"),
        edge("b", "a", d1="200"),
        directed=True,
    )
    result = imported(text)
    (line,) = (line for line in result.text().splitlines() if "{up" in line)
    assert line.endswith(
        "{lower: b, upper: a, capacity: {up: 200 bit/s, down: 100 bit/s}}"
    )


def test_an_edge_in_one_direction_is_a_link(imported: Import) -> None:
    text = graphml(
        node("a"), node("b"), edge("a", "b", d1="100"), directed=True
    )
    written = imported(text).text()
    assert "capacity: 100 bit/s" in written
    assert (
        "with one direction in the file have the same capacity" in written
    )


@pytest.mark.parametrize("first", ["one way", "both ways"])
def test_an_edge_of_both_directions_adds_to_those_of_one(
    imported: Import, first: str
) -> None:
    there = '<edge source="a" target="b" directed="true">'
    edges = [
        f"{there}{values({'d1': '1000'})}</edge>",
        edge("a", "b", d1="50"),
    ]
    if first == "both ways":
        edges.reverse()
    result = imported(graphml(node("a"), node("b"), *edges))
    (line,) = (line for line in result.text().splitlines() if "{up" in line)
    assert line.endswith(
        "{lower: b, upper: a, capacity: {up: 50 bit/s, down: 1.05 kbit/s}}"
    )
    assert "parallel links as one of their sum" in all_notes(result)


def test_a_capacity_above_the_largest_is_the_largest(
    imported: Import,
) -> None:
    text = graphml(
        *map(node, "abc"),
        edge("a", "b", d1="2e15"),
        edge("b", "c", d1="10"),
    )
    result = imported(text)
    assert sorted(links(result).values())[-1] == 10**15
    assert "the file does not say" not in all_notes(result)
    text = graphml(
        *map(node, "abc"), edge("a", "b", d1="2e15"), edge("b", "c")
    )
    result = imported(text)
    assert set(links(result).values()) == {10**15}
    assert "1000 Tbit/s of 1 link whose" in all_notes(result)


def test_hosts_of_several_links_alone_are_not_denied(
    imported: Import,
) -> None:
    nodes = [node(name, d7="host") for name in "abc"]
    ring = (edge("a", "b"), edge("b", "c"), edge("c", "a"))
    result = imported(graphml(*nodes, *ring))
    assert set(network(result).servers) == {"a-host", "b-host", "c-host"}
    said = all_notes(result)
    assert "at each node: all hosts have several links;" in said
    assert "no hosts" not in said


def test_of_a_graph_with_loops_the_widest_tree_is_taken(
    imported: Import,
) -> None:
    ring = graphml(
        *map(node, "abcd"),
        edge("a", "b", d1="10"),
        edge("b", "c", d1="30"),
        edge("c", "d", d1="20"),
        edge("d", "a", d1="40"),
    )
    result = imported(ring)
    kept = {frozenset(ends) for ends in links(result)}
    assert frozenset("ab") not in kept
    assert "1 of 4 links between switches, outside the spanning tree" in (
        all_notes(result)
    )
    assert "    # left out: a - b (10 bit/s)\n" in result.text()
    assert "--whole" in refused(imported, ring, whole=True)


def test_parts_loops_and_media_without_servers(imported: Import) -> None:
    result = imported(
        graphml(
            *map(node, "abxy"),
            node("m", d6="1"),
            edge("a", "m"),
            edge("b", "m"),
            edge("x", "y"),
            edge("a", "a"),
        )
    )
    assert set(network(result).servers) == {"a-host", "b-host"}
    said = all_notes(result)
    assert "nodes that no links join to the largest part: x, y" in said
    assert "links of a node to itself: a" in said


def test_hosts_of_a_graph_are_its_servers(imported: Import) -> None:
    result = imported(
        graphml(
            node("h", d7="host"),
            node("i", d7="server"),
            *map(node, "st"),
            edge("h", "s"),
            edge("i", "s"),
            edge("s", "t"),
        )
    )
    assert set(network(result).servers) == {"h", "i"}
    assert "switches that lead to no host: t" in all_notes(result)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (graphml(node("a"), edge("a", "z")), "'z', which is no node"),
        (graphml(node("a"), node("a")), "is there already"),
        (graphml(), "no two nodes"),
        (KEYS, "no XML: no element found"),
        ("<html><body/></html>", "is a web page"),
        ("<svg/>", "is XML of another kind: <svg>"),
        ("graph [\n node [ id 0 ] ]", "no two nodes"),
        ("graph [\n node [ id 0 ]", "no GML: the file is cut off"),
        ('graph [\n Network "x ]', "2: no GML: a quotation mark"),
        (
            "graph [ ] ]",
            "no GML: a list ends here that did not begin",
        ),
        (
            "graph [ node [ id ] ]",
            "no GML: a list ends here after a key without a value",
        ),
        ("graph [ [ ] ]", "no GML: a value without its key"),
        ("graph [ " + "a [ " * 200, "no GML: more than 100 lists"),
        ("; Version: 2.2\n", "Standard Workload Format"),
    ],
)
def test_what_is_no_graph_is_told(
    text: str, said: str, imported: Import
) -> None:
    assert said in refused(imported, text)


@pytest.mark.timeout(20)
def test_a_long_head_is_not_tried_in_every_way() -> None:
    head = 'Creator "a"\n' * 300
    assert not is_gml(f"{head}nothing")
    assert is_gml(f"{head}Version 2\ngraph [")


def test_hosts_that_forward_get_no_switch_between(imported: Import) -> None:
    """As netlab writes a lab of FRR: its routers are of kind linux, too."""
    text = """
topology:
  nodes: {r1: {kind: linux}, r2: {kind: linux}, h1: {kind: linux}, h2: {kind: linux}}
  links:
    - endpoints: ["r1:eth1", "r2:eth1"]
    - endpoints: ["h1:eth1", "r1:eth2"]
    - endpoints: ["h2:eth1", "r2:eth2"]
"""
    result = imported(text)
    assert set(links(result)) == {("h1", "r1"), ("h2", "r2"), ("r2", "r1")}
    assert (
        "hosts with several links as switches: r1 and 1 more"
        in all_notes(result)
    )
    # Two hosts alone have one.
    alone = imported(
        "topology:\n  nodes: {h1: {kind: linux}, h2: {kind: linux}}\n"
        '  links: [{endpoints: ["h1:eth1", "h2:eth1"]}]\n'
    )
    assert "a switch between the hosts h1 and h2" in all_notes(alone)


# ------------------------------------------------------------------ GML


def test_gml_says_the_same_as_the_graphs_graphml(imported: Import) -> None:
    result = imported(GML)
    assert links(result) == {
        ("Bern", "Zürich"): 10**10,
        ("Bern-2", "Zürich"): 10**9,
    } | {
        (server, switch): bps
        for (server, switch), bps in links(result).items()
        if server in network(result).servers
    }
    assert result.name == "Small"
    assert "graphics (1)" in all_notes(result)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_the_encodings_of_gml(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(
        'graph [ node [ id 1 label "Zürich" ] node [ id 2 ]'
        " edge [ source 1 target 2 ] ]".encode(encoding)
    )
    assert "Zürich" in import_files([path]).text()


# ------------------------------------------------------------------ XML of others

LAUGHS = "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 9)
)
HOSTILE = {
    "expanding": f'<!DOCTYPE g [<!ENTITY a0 "ha">{LAUGHS}]><graphml>&a8;</graphml>',
    "fetched": '<!DOCTYPE g [<!ENTITY x SYSTEM "file:///etc/passwd">]><graphml>&x;</graphml>',
    "parameter": '<!DOCTYPE g [<!ENTITY % x SYSTEM "http://127.0.0.1:1/">%x;]><graphml/>',
    "in text": '<!DOCTYPE g SYSTEM "simgrid.dtd"><graphml>&x;</graphml>',
    "deep": "<graphml>" * 300 + "</graphml>" * 300,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_expanded_fetched_or_nested_without_end(
    name: str, imported: Import
) -> None:
    message = refused(imported, HOSTILE[name])
    assert any(
        word in message for word in ("entit", "declarations", "inside")
    )


# ------------------------------------------------------------------ SimGrid

PLATFORM = """\
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "http://simgrid.gforge.inria.fr/simgrid/simgrid.dtd">
<platform version="4.1">
<zone id="AS0" routing="Full">
  <cluster id="west" prefix="w" suffix=".x" radical="0-2,7" speed="2Gf,1Gf"
     bw="125MBps" lat="50us" bb_bw="2.25GBps" bb_lat="500us"/>
  <zone id="east" routing="Cluster">
    <cabinet id="c" prefix="e" suffix="" radical="1-2" speed="500Mf" bw="10Gbps" lat="1us"/>
    <cabinet id="m" prefix="master_host" suffix="" radical="0-0" speed="1Gf" bw="1Gbps"/>
    <backbone id="b" bandwidth="1GBps" latency="5us"/>
  </zone>
  <link id="wan" bandwidth="1.25GBps" latency="500us"/>
  <zoneRoute src="west" dst="east" gw_src="a" gw_dst="b"><link_ctn id="wan"/></zoneRoute>
</zone>
</platform>
"""


def test_a_cluster_without_a_bandwidth_names_what_it_states(
    imported: Import,
) -> None:
    text = (
        '<platform version="4.1"><zone id="z" routing="Full"><cluster id="c"'
        ' prefix="n" suffix="" radical="0-2" speed="1Gf" bw="0MBps"'
        ' lat="50us"/></zone></platform>'
    )
    said = "capacities that are no bandwidths above 0: bw '0MBps'"
    assert said in imported(text).notes.not_taken


def test_zones_are_switches_and_clusters_hosts_below_them(
    imported: Import,
) -> None:
    result = imported(PLATFORM)
    assert list(network(result).servers) == [
        "w0.x",
        "w1.x",
        "w2.x",
        "w7.x",
        "e1",
        "e2",
    ]
    assert links(result)["w7.x", "west"] == 10**9
    assert links(result)["e1", "east"] == 10**10
    # The narrower of its backbone and its route.
    assert links(result)["west", "AS0"] == 10**10
    assert links(result)["east", "AS0"] == 8 * 10**9
    assert network(result).speed_flops == 5e8
    assert "hosts that run no jobs in Batsim: master_host0" in all_notes(
        result
    )
    assert "upper: west, capacity: 1 Gbit/s, delay: 50 us}" in result.text()
    assert "latencies of routes" in all_notes(result)


def test_a_host_has_the_bandwidth_of_its_widest_route(
    imported: Import,
) -> None:
    result = imported(
        '<platform version="4.1"><AS id="AS0" routing="Full">'
        '<host id="master_host" speed="1Gf"/>'
        '<host id="a" speed="98.095Mf"/><host id="b" speed="1e9"/>'
        '<host id="c" speed="1Gf"/>'
        '<link id="1" bandwidth="10MBps" latency="1ms"/>'
        '<link id="2" bandwidth="1kBps"/><link id="3" bandwidth="5000000"/>'
        '<link id="lo" bandwidth="498MBps" sharing_policy="FATPIPE"/>'
        '<route src="a" dst="a"><link_ctn id="lo"/></route>'
        '<route src="a" dst="b"><link_ctn id="1"/><link_ctn id="3"/></route>'
        '<route src="a" dst="c"><link_ctn id="1"/><link_ctn id="2"/></route>'
        "</AS></platform>"
    )
    assert links(result) == {
        ("a", "AS0"): 40_000_000,
        ("b", "AS0"): 40_000_000,
        ("c", "AS0"): 8_000,
    }
    assert "which links several routes share" in all_notes(result)


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ("", "has no host that runs jobs"),
        ('<cluster id="c" radical="0-x"/>', "is no range as 0-511"),
        ('<cluster id="c" radical="0-99999999"/>', "has more than"),
        ('<host id="master_host"/>', "has no host that runs jobs"),
    ],
)
def test_what_is_no_platform_is_told(
    inner: str, said: str, imported: Import
) -> None:
    text = f'<platform version="4.1"><zone id="z">{inner}</zone></platform>'
    assert said in refused(imported, text)


@pytest.mark.slow
def test_one_host_alone_is_a_platform(imported: Import) -> None:
    result = imported(
        '<platform><zone id="z"><host id="a" speed="1Gf"/></zone></platform>'
    )
    assert network(result).servers == {"a": 1}
