"""Python in docs/ runs: data centres built in code, and the live network as a Mininet topology."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from testbed.spec.experiment_file import parse_experiment

DOCS = Path(__file__).parents[3] / "docs"


def run(page: str, number: int = 0) -> dict[str, Any]:
    """The names that a page's Python block defines."""
    text = (DOCS / page).read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)  # noqa: S102 - our own page
    return names


def test_the_data_centres_are_built() -> None:
    names = run("experiment-files.md")
    assert names["dcloud"].n_servers == 8000
    assert names["cluster"].n_links == 0


@pytest.mark.slow
@pytest.mark.needs("mininet")
def test_the_mininet_file_is_a_data_centre(tmp_path: Path) -> None:
    text = (DOCS / "experiment-files.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1]
    (section,) = re.findall(
        r"^    (topology: {kind: mininet.*)$", text, re.MULTILINE
    )
    (tmp_path / "two_racks.py").write_text(code, encoding="utf-8")
    jobs = "{kind: jobs, jobs: [{id: a, vms: 9, bandwidth: 10 Mbit/s, duration: 2 s}]}"
    centre = parse_experiment(
        f"{section}\nworkload: {jobs}\n", tmp_path / "one.yaml"
    ).datacentre
    hosts = [f"{rack}{i}" for rack in ("left", "right") for i in range(4)]
    assert centre.names == (*hosts, "left", "right", "top")
    assert (centre.total_slots, set(centre.nic_bps.tolist())) == (
        16,
        {100_000_000},
    )


@pytest.mark.needs("mininet")
def test_the_mininet_topology_is_built() -> None:
    topo = run("live-network.md", 1)["topos"]["hosenet"]()
    assert len(topo.hosts()) == 8
    assert len(topo.switches()) == 7
