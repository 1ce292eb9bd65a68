"""Delay, jitter, loss and queue of links: from files, from Mininet, in sentences."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from topologies.datacentre import (
    PLAIN,
    LinkQuality,
    TopologyError,
    down,
    up,
)
from topologies.link_quality import quality_notes, quality_of
from topologies.mininet_record import MininetRecord
from topologies.mininet_topo import from_mininet

JOBS = "workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 2 s}]}"


def loaded(tmp_path: Path, topology: str) -> Experiment:
    file = tmp_path / "x.yaml"
    file.write_text(f"topology: {topology}\n{JOBS}\n")
    return load_experiment(file)


def star(*options: dict[str, object]) -> MininetRecord:
    """A switch with a host for each link's options, the host at its first end."""
    record = MininetRecord({"s1": {"isSwitch": True}})
    for i, given_options in enumerate(options):
        record.nodes[f"h{i}"] = {}
        record.links.append((f"h{i}", "s1", {"bw": 10, **given_options}))
    return record


def test_a_trees_levels_have_their_own_qualities(tmp_path: Path) -> None:
    links = "[{capacity: 1 Gbit/s, delay: 2 ms, jitter: 500 us}, {capacity: 1 Gbit/s, loss: 1 %}]"
    experiment = loaded(
        tmp_path,
        f"{{kind: tree, fanout: [2, 2], links: {links}, slots_per_server: 1}}",
    )
    centre = experiment.datacentre
    core = LinkQuality(delay_s=0.002, jitter_s=0.0005)
    server = LinkQuality(loss_share=0.01)
    for link in range(centre.n_links):
        quality = core
        if centre.link_lower[link] < centre.n_servers:
            quality = server
        assert centre.qualities[up(link)] == quality
        assert centre.qualities[down(link)] == quality
    assert experiment.resolved["topology"]["link_quality"] == [
        {"delay_s": 0.002, "jitter_s": 0.0005},
        {"loss_share": 0.01},
    ]


@pytest.mark.parametrize("network", ["tree", "pooled"])
def test_one_entry_serves_all_links_of_a_fat_tree(
    tmp_path: Path, network: str
) -> None:
    topology = (
        "{kind: fat-tree, k: 4, links: {capacity: 1 Gbit/s, delay: 1 ms,"
        f" max_queue_size: 20}}, slots_per_server: 1, network: {network}}}"
    )
    centre = loaded(tmp_path, topology).datacentre
    assert len(centre.qualities) == 2 * centre.n_links
    assert set(centre.qualities) == {
        LinkQuality(delay_s=0.001, queue_packets=20)
    }


def test_a_custom_topologys_links_keep_theirs(tmp_path: Path) -> None:
    topology = (
        "{kind: custom, servers: [{name: a, slots: 1}, {name: b, slots: 1}],"
        " switches: [s], links: [{lower: b, upper: s, capacity: 1 Gbit/s,"
        " delay: 5 ms, loss: 0.5 %}, {lower: a, upper: s, capacity: 1 Gbit/s}]}"
    )
    experiment = loaded(tmp_path, topology)
    slow = LinkQuality(delay_s=0.005, loss_share=0.005)
    assert experiment.datacentre.qualities == (slow, slow, PLAIN, PLAIN)
    assert experiment.notes[0] == "1 link with delay 5 ms, loss 0.5 %"
    links = experiment.resolved["topology"]["links"]
    assert links[0]["quality"] == {"delay_s": 0.005, "loss_share": 0.005}
    assert "quality" not in links[1]


def test_links_without_quality_are_as_before(tmp_path: Path) -> None:
    plain = (
        "{kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}"
    )
    experiment = loaded(tmp_path, plain)
    assert experiment.datacentre.qualities == ()
    assert experiment.notes == ()
    assert "link_quality" not in experiment.resolved["topology"]
    entry = plain.replace("1 Gbit/s", "[{capacity: 1 Gbit/s}]")
    assert loaded(tmp_path, entry).resolved == experiment.resolved


def test_wrong_keys_are_named_where_they_stand(tmp_path: Path) -> None:
    links = "[{capacity: 1 Gbit/s, delay: 11 s, dealy: 1 ms}, {loss: 100 %, max_queue_size: 10001}]"
    with pytest.raises(SpecErrors) as caught:
        loaded(
            tmp_path,
            f"{{kind: tree, fanout: [2, 2], links: {links}, slots_per_server: 1}}",
        )
    found = {
        problem.path: problem.message for problem in caught.value.problems
    }
    assert found["topology.links[0].delay"].startswith("must be at most 10")
    assert "did you mean 'delay'?" in found["topology.links[0].dealy"]
    assert found["topology.links[1].loss"].startswith("must be below 1")
    assert "at most 10000" in found["topology.links[1].max_queue_size"]
    assert "is required" in found["topology.links[1].capacity"]


@pytest.mark.parametrize(
    ("options", "quality"),
    [
        ({"delay": "20ms", "loss": 2}, LinkQuality(0.02, 0.0, 0.02)),
        ({"delay": "5 usec", "jitter": ".5ms"}, LinkQuality(5e-6, 0.0005)),
        (
            {"delay": "1s", "max_queue_size": 100},
            LinkQuality(1.0, 0, 0, 100),
        ),
        # tc takes a bare number for microseconds.
        ({"delay": "7", "loss": "0.5%"}, LinkQuality(7e-6, 0.0, 0.005)),
        ({"delay": 7}, LinkQuality(7e-6)),
        ({"delay": "0ms", "loss": 0, "jitter": None}, PLAIN),
        ({"bw": 10, "use_htb": True}, PLAIN),
    ],
)
def test_mininets_spellings(
    options: dict[str, object], quality: LinkQuality
) -> None:
    assert quality_of(options) == quality


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": "5 parsec"}, "delay='5 parsec' is no time: write '5ms'"),
        ({"delay": "-1ms"}, "is no time"),
        ({"delay": True}, "is no time"),
        ({"jitter": "20s"}, "is more than 10 s"),
        ({"loss": 100}, "no percentage from 0 to below 100"),
        ({"loss": "much"}, "no percentage"),
        ({"max_queue_size": 1.5}, "no number of packets"),
        ({"max_queue_size": 10_001}, "no number of packets"),
    ],
)
def test_what_mininet_cannot_mean(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        from_mininet(star({}, options))
    ((path, text),) = caught.value.problems
    assert path == ("links",)
    assert text.startswith("h1<->s1: ")
    assert message in text


def test_each_end_of_a_mininet_link_may_have_its_own() -> None:
    centre = from_mininet(
        star(
            {"params1": {"delay": "1ms"}, "params2": {"delay": "9ms"}},
            {"delay": "2ms", "params1": {"delay": "5ms"}},
            {"params2": {"loss": 1}},
        )
    )
    # Hosts are the lower ends: what leaves them goes upward.
    assert centre.qualities == (
        LinkQuality(0.001),
        LinkQuality(0.009),
        LinkQuality(0.002),
        LinkQuality(0.002),
        PLAIN,
        LinkQuality(loss_share=0.01),
    )
    assert quality_notes(centre.qualities)[0] == (
        "1 link with delay 1 ms upward and delay 9 ms downward;"
        " 1 link with delay 2 ms; 1 link with loss 1 % downward"
    )


@given(
    st.integers(0, 10**7),
    st.sampled_from(["us", "usecs", "ms", "msec", "s", "sec", "ns"]),
)
def test_a_time_is_its_number_times_its_unit(
    number: int, unit: str
) -> None:
    power = {"u": -6, "m": -3, "s": 0, "n": -9}[unit[0]]
    exact_s = Fraction(number) * Fraction(10) ** power
    if exact_s > 10:
        with pytest.raises(ValueError, match="is more than 10 s"):
            quality_of({"delay": f"{number}{unit}"})
        return
    found = quality_of({"delay": f"{number}{unit}"})
    assert found.delay_s == pytest.approx(float(exact_s), rel=1e-12)


def test_times_follow_the_scale_of_time_and_nothing_else_does() -> None:
    quality = LinkQuality(0.02, 0.01, 0.1, 50)
    assert quality.scaled(10) == LinkQuality(0.002, 0.001, 0.1, 50)
