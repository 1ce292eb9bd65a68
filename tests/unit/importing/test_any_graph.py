"""Any graph, and any damage to a file: an experiment, or a refusal in one
sentence. networkx writes the graphs and is the oracle of trees.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import BadInput
from testbed.importing.imported import Imported, Names, Network, quoted
from testbed.importing.recognition import import_files
from testbed.spec.document import read_document
from testbed.spec.experiment_file import parse_experiment
from tests.unit.importing.samples import SAMPLES

SPEEDS = [10, 100, 1000]


@st.composite
def graphs(draw: st.DrawFn) -> nx.MultiGraph:
    """Graphs with parallel edges, loops, islands, hosts, and odd names."""
    graph = nx.MultiGraph() if draw(st.booleans()) else nx.MultiDiGraph()
    count = draw(st.integers(1, 9))
    for number in range(count):
        data = {}
        if draw(st.booleans()):
            data["label"] = draw(st.text(max_size=6).filter(is_xml))
        if draw(st.integers(0, 3)) == 0:
            data["type"] = "host"
        graph.add_node(number, **data)
    ends = st.integers(0, count - 1)
    for first, second in draw(st.lists(st.tuples(ends, ends), max_size=16)):
        data = {}
        if draw(st.booleans()):
            data["LinkSpeedRaw"] = float(draw(st.sampled_from(SPEEDS)))
        graph.add_edge(first, second, **data)
    return graph


def is_xml(text: str) -> bool:
    return all(char in "\t\n" or " " <= char < "\ud800" for char in text)


def imported(content: bytes, **options: bool) -> Imported | None:
    """The experiment of a file; None where it is refused, in one sentence."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        try:
            result = import_files([path], **options)  # type: ignore[arg-type]
        except BadInput as error:
            message = error.message
            result = None
    if result is None:
        assert message.startswith(f"{path}:")
        assert "\n" not in message
        return None
    parse_experiment(result.text(), Path("made.yaml"))
    return result


def written(graph: nx.MultiGraph) -> bytes:
    return "\n".join(nx.generate_graphml(graph)).encode()


@pytest.mark.slow
@given(graphs(), st.booleans())
def test_any_graph_is_an_experiment_or_refused(
    graph: nx.MultiGraph, whole: bool
) -> None:
    result = imported(written(graph), whole=whole)
    if result is None:
        return
    assert isinstance(result.topology, Network)
    tree = nx.Graph(
        (link.lower, link.upper) for link in result.topology.links
    )
    assert nx.is_connected(tree)
    assert set(result.topology.servers) < set(tree)


@pytest.mark.slow
@given(graphs())
def test_a_graph_is_the_same_in_gml(graph: nx.MultiGraph) -> None:
    for data in graph.nodes.values():
        # networkx writes the node itself as its label.
        data.pop("label", None)
    in_graphml = imported(written(graph))
    in_gml = imported("\n".join(nx.generate_gml(graph)).encode())
    if in_graphml is None or in_gml is None:
        assert in_graphml is in_gml
        return
    assert in_gml.topology == in_graphml.topology


@pytest.mark.slow
@given(st.integers(0, 10**6))
def test_the_widest_path_between_any_two_nodes_is_kept(seed: int) -> None:
    graph = nx.gnm_random_graph(8, 14, seed)
    graph = graph.subgraph(max(nx.connected_components(graph), key=len))
    random = Random(seed)
    graph = nx.Graph(graph)
    for first, second in graph.edges:
        graph.edges[first, second]["LinkSpeedRaw"] = random.choice(SPEEDS)
    result = imported(written(nx.MultiGraph(graph)))
    if result is None:
        assert graph.number_of_edges() == 0
        return
    assert isinstance(result.topology, Network)
    kept = nx.Graph()
    for link in result.topology.links:
        kept.add_edge(link.lower, link.upper, LinkSpeedRaw=link.up_bps)
    widest = nx.maximum_spanning_tree(graph, weight="LinkSpeedRaw")
    for first, second in combinations(graph, 2):
        assert width(kept, str(first), str(second)) >= width(
            widest, first, second
        )


def width(graph: nx.Graph, first: object, second: object) -> float:
    """The narrowest link of the shortest path."""
    path = nx.shortest_path(graph, first, second)
    return min(graph.edges[ends]["LinkSpeedRaw"] for ends in pairwise(path))


@pytest.mark.slow
@pytest.mark.short("grid", "full")
@pytest.mark.parametrize("make", ["path", "star", "ring", "grid", "full"])
def test_large_graphs(make: str) -> None:
    graph = {
        "path": nx.path_graph(800),
        "star": nx.star_graph(800),
        "ring": nx.cycle_graph(800),
        "grid": nx.convert_node_labels_to_integers(
            nx.grid_2d_graph(28, 28)
        ),
        "full": nx.complete_graph(60),
    }[make]
    result = imported(written(nx.MultiGraph(graph)))
    assert result is not None
    assert len(result.topology.servers) == len(graph)  # type: ignore[union-attr]


# ------------------------------------------------------------------ damage


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAMPLES)
@given(st.data())
def test_a_damaged_file_is_refused_or_read(
    kind: str, data: st.DataObject
) -> None:
    content = bytearray(SAMPLES[kind].encode())
    places = st.integers(0, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(places)
        end = min(start + data.draw(st.integers(0, 40)), len(content))
        piece = data.draw(
            st.one_of(
                st.binary(max_size=5),
                st.sampled_from(
                    [b"&", b"*a", b"1e999", b"-1", b'"', b"{", b"]]", b"\0"]
                ),
            )
        )
        content[start:end] = piece
    imported(bytes(content))
    imported(bytes(content), lenient=True)


@pytest.mark.parametrize("kind", SAMPLES)
def test_samples_are_imported_whole(kind: str) -> None:
    assert imported(SAMPLES[kind].encode()) is not None


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(content: bytes) -> None:
    imported(content)


@given(st.text(max_size=20))
def test_names_are_read_as_themselves(text: str) -> None:
    name = "".join(filter(str.isprintable, text)).strip()
    if name:
        document = read_document(f"name: {quoted(name)}\n", "x")
        assert not document.problems
        assert document.data == {"name": name}


@pytest.mark.parametrize("unseen", ["", "\u200b", "\xad", "\ufeff"])
def test_no_name_holds_the_separator_of_a_links_ends(unseen: str) -> None:
    names = Names()
    assert names.of(f"a {unseen}- b") == "a-b"
    assert names.of(f"c {unseen} d") == "c d"
