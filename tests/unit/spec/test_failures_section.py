"""The ``failures`` section read into failures in order of time. Its errors: ``bad/failures*``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.failures import Failure
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment, parse_experiment
from tests.support.schema import schema_validator

FILE = """\
topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, {name: vc, on_failure: wait}]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 1 s}]}
"""


def read(*entries: str) -> Experiment:
    section = "".join(f"  - {{{entry}}}\n" for entry in entries)
    return parse_experiment(f"{FILE}failures:\n{section}", Path("x.yaml"))


def test_a_failure_that_lasts_is_two_and_all_are_in_order_of_time() -> None:
    experiment = read(
        "at: 1 min, server: server 3, lasts: 30 s",
        "at: 70 s, controller: killed",
        "at: 5 s, switch: edge 1",
        "at: 0 s, link: edge 0 - server 1",
    )
    centre = experiment.datacentre
    edge, link = centre.names.index("edge 1"), experiment.failures[0].part
    ends = (int(centre.link_lower[link]), int(centre.link_upper[link]))
    assert ends == (
        centre.names.index("server 1"),
        centre.names.index("edge 0"),
    )
    assert experiment.failures == (
        Failure(0.0, "link_failed", link),
        Failure(5.0, "switch_restarted", edge),
        Failure(60.0, "server_failed", 3),
        Failure(70.0, "controller_killed"),
        Failure(90.0, "server_restored", 3),
    )
    assert experiment.resolved["failures"][0] == {
        "at_s": 0.0,
        "kind": "link_failed",
        "part": link,
    }


@pytest.mark.parametrize(
    "text",
    ["server 1 - edge 0", "edge 0 -> server 1", "server 1 --  edge 0"],
)
def test_a_links_ends_are_named_in_either_order(text: str) -> None:
    assert (
        read(f"at: 0 s, link: {text}").failures
        == read("at: 0 s, link: edge 0 - server 1").failures
    )


def test_a_part_may_fail_again_the_moment_it_is_back() -> None:
    twice = (
        "at: 9 s, server: server 0, lasts: 1 s",
        "at: 1 s, server: server 0, lasts: 8 s",
    )
    kinds = [
        (one.at_s, one.kind) for one in read(twice[1], twice[0]).failures
    ]
    assert kinds[1:3] == [(9.0, "server_restored"), (9.0, "server_failed")]


def test_the_order_of_entries_does_not_matter_where_one_ends_as_another_begins() -> (
    None
):
    entries = (
        "at: 9 s, server: server 0, lasts: 1 s",
        "at: 1 s, server: server 0, lasts: 8 s",
    )
    assert read(*entries).failures == read(*reversed(entries)).failures


def test_a_policy_says_what_becomes_of_a_job_and_has_a_default() -> None:
    first, second = read("at: 1 s, controller: killed").policies
    ways = [
        one.kind.on_failure_of(dict(one.parameters))
        for one in (first, second)
    ]
    assert ways == ["kill", "wait"]


def test_a_file_without_failures_says_nothing_of_them() -> None:
    experiment = parse_experiment(FILE, Path("x.yaml"))
    assert experiment.failures == ()
    assert "failures" not in experiment.resolved
    assert (
        parse_experiment(f"{FILE}failures: []\n", Path("x.yaml")).failures
        == ()
    )


def test_a_controller_of_ones_own_plays_no_failures(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    path = tmp_path / "one.yaml"
    path.write_text(
        f"{FILE}controller: {{app: ./mine.py}}\nfailures: [{{at: 1 s, controller: killed}}]\n"
    )
    with pytest.raises(SpecErrors) as caught:
        load_experiment(path)
    assert str(caught.value) == (
        f"{path}:5:11: failures: need the testbed's own controller, which moves tenants:"
        " leave it out"
    )


@pytest.mark.parametrize(
    ("entry", "valid"),
    [
        ({"at": "1 s", "link": "a - b", "lasts": "2 min"}, True),
        ({"at": "1 s", "controller": "killed"}, True),
        ({"at": "1 s", "server": "s", "lasts": 5}, False),
        ({"at": "1 s", "server": 3}, False),
        ({"at": "-1 s", "server": "s"}, False),
        ({"server": "s"}, False),
        ({"at": "1 s", "servers": "s"}, False),
    ],
)
def test_the_schema_knows_the_section(
    entry: dict[str, Any], *, valid: bool
) -> None:
    document = {**yaml.safe_load(FILE), "failures": [entry]}
    assert schema_validator().is_valid(document) == valid


DASHED = """\
name: dashed
topology:
  kind: custom
  servers: [{name: s - 1, slots: 2}, {name: s2, slots: 2}]
  switches: [top - left]
  links:
    - {lower: s - 1, upper: top - left, capacity: 1 Gbit/s}
    - {lower: s2, upper: top - left, capacity: 1 Gbit/s}
policies: [vc]
workload:
  kind: jobs
  jobs: [{id: a, at: 0 s, vms: 2, bandwidth: 9 Mbit/s, duration: 9 s}]
failures: [{at: 1 s, link: LINK}]
"""


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("s - 1 - top - left", 0),
        ("top - left - s - 1", 0),
        ("top - left - s2", 1),
    ],
)
def test_names_that_hold_the_sign_between_ends(
    tmp_path: Path, text: str, part: int
) -> None:
    path = tmp_path / "dashed.yaml"
    path.write_text(DASHED.replace("LINK", text))
    (failure,) = load_experiment(path).failures
    assert failure.part == part
