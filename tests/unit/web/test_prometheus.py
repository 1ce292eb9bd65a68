"""A real Prometheus scrapes the page's metrics; the dashboard asks for those that
there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families,
)

from testbed.record.topology_record import topology_record
from testbed.web.followed_run import FollowedFolder, FollowedRun
from testbed.web.followed_sweep import FollowedSweep
from testbed.web.gauges import Gauge, network_gauges, run_gauges
from testbed.web.openmetrics import metrics_text
from testbed.web.page_layout import page_layout
from testbed.web.page_server import PageServer, serve_page
from tests.support.own_addresses import free_port
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run
from topologies.tree import tree

WEB = Path(__file__).parents[3] / "testbed" / "web"
DOCS = Path(__file__).parents[3] / "docs" / "watching.md"
TOKEN = "a-token-of-the-tests"  # noqa: S105
NOBODY = 65534
UNITS = {
    "bps": "bits_per_second",
    "bytes": "bytes",
    "pps": "packets_per_second",
    "s": "seconds",
}


class Network:
    """A network that is up, as metrics see it."""

    def label(self) -> dict[str, str]:
        return {"run": 'a "quoted"\nname', "policy": "", "kind": "network"}

    def gauges(self) -> Iterator[Gauge]:
        layout = page_layout(topology_record(tree([2, 2], 10**9, 2)))
        n = len(layout.capacity_bps)
        tenant = {
            "name": "a",
            "reserved_bps": 4e8,
            "sent_bps": 3e8,
            "queued_bytes": 1_500,
            "dropped": 6,
        }
        return network_gauges(
            layout,
            {
                "reserved_bps": np.full(n, 2e8),
                "sent_bps": np.full(n, 1e8),
                "tenants": [tenant],
                "slots": 8,
                "slots_taken": 4,
                "interval_s": 2.0,
                "down": [1],
                "switches": [{"name": "s0", "forwards": True}],
            },
        )


@pytest.fixture
def followed(tmp_path: Path) -> FollowedRun:
    folder = write_run(tmp_path, sample.main_example(), FIG10)[0].path
    (run,) = FollowedFolder(folder).new_runs()
    run.refresh()
    return run


def families(run: FollowedRun) -> dict[str, Any]:
    sources = [run, Network(), FollowedSweep(WEB / "no-such-sweep")]
    text = metrics_text(sources).decode()
    return {
        family.name: family
        for family in text_string_to_metric_families(text)
    }


def test_values_are_those_of_the_network(followed: FollowedRun) -> None:
    there = families(followed)
    dropped = there["hosenet_tenant_dropped_packets_per_second"]
    (one,) = dropped.samples
    assert one.value == 3.0
    assert one.labels["run"] == 'a "quoted"\nname'
    sent = there["hosenet_link_sent_bits_per_second"].samples
    of_network = [s for s in sent if s.labels["run"].startswith("a ")]
    assert {round(s.value) for s in of_network} == {10**8}


def test_the_page_of_metrics_lists_all(followed: FollowedRun) -> None:
    listed = set(re.findall(r"`(hosenet_\w+)`", DOCS.read_text("utf-8")))
    there = set()
    for name, family in families(followed).items():
        there.add(f"{name}_info" if family.type == "info" else name)
    assert listed == there


def test_the_dashboard_asks_for_metrics_in_their_units(
    followed: FollowedRun,
) -> None:
    there = families(followed)
    text = (WEB / "grafana-dashboard.json").read_text("utf-8")
    dashboard = json.loads(text)
    places = set()
    for panel in dashboard["panels"]:
        places.add((panel["gridPos"]["x"], panel["gridPos"]["y"]))
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            names = re.findall(r"hosenet_\w+", target["expr"])
            assert names
            for name in names:
                assert name in there, (panel["title"], name)
                if unit in UNITS:
                    assert there[name].unit == UNITS[unit]
            for label in re.findall(
                r"\{\{(\w+)\}\}", target["legendFormat"]
            ):
                labels = there[names[0]].samples[0].labels
                assert label in labels, (panel["title"], label)
    assert len(places) == len(dashboard["panels"])


def _ask(port: int, path: str) -> Any:
    with closing(
        HTTPConnection("127.0.0.1", port, timeout=60)
    ) as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def _result(port: int, expression: str) -> list[Any]:
    path = f"/api/v1/query?query={quote(expression)}"
    try:
        found: list[Any] = _ask(port, path)["data"]["result"]
    except (OSError, ValueError):
        return []
    return found


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[int]:
    """The port of a Prometheus of nobody's, which scrapes a page's metrics."""
    (folder / "token").write_text(TOKEN)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        "  - job_name: hosenet\n"
        "    authorization: {credentials_file: token}\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
    )
    (folder / "data").mkdir()
    user = None
    if os.geteuid() == 0:
        user = NOBODY
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        for above in folder.parents:
            if above.stat().st_uid == 0 and above != Path("/"):
                above.chmod(above.stat().st_mode | 0o011)
    port = free_port()
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        group=user,
        extra_groups=[] if user else None,
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.needs("prometheus")
@pytest.mark.slow
def test_prometheus_scrapes_it(
    followed: FollowedRun, tmp_path: Path
) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    page = PageServer(TOKEN)
    page.sources.append(followed)
    dashboard = json.loads((WEB / "grafana-dashboard.json").read_text())

    async def scrape() -> dict[str, list[Any]]:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(0)
        stop = asyncio.Event()
        serving = asyncio.create_task(serve_page(page, listening, stop))
        target = listening.getsockname()[1]
        try:
            with prometheus(folder, target) as port:
                return await asyncio.to_thread(_found, port, dashboard)
        finally:
            stop.set()
            await serving

    results = asyncio.run(scrape())
    jobs = {
        one["metric"]["state"]: float(one["value"][1])
        for one in results["hosenet_jobs"]
    }
    assert jobs["finished"] == followed.state.ended["finished"]
    (up,) = results["up"]
    assert up["value"][1] == "1"
    for expression, found in results.items():
        if "tenant" not in expression and "switch_part" not in expression:
            assert found, expression


def _found(port: int, dashboard: Any) -> dict[str, list[Any]]:
    """Results of the expressions by Prometheus, once it has scraped."""
    until_s = time.monotonic() + 60
    while not _result(port, "hosenet_jobs"):
        assert time.monotonic() < until_s, "nothing was scraped"
        time.sleep(0.2)
    results = {name: _result(port, name) for name in ("up", "hosenet_jobs")}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked = target["expr"]
            for variable in ("$run", "$policy"):
                asked = asked.replace(variable, ".*")
            results[asked] = _result(port, asked)
    return results


def test_gauges_of_a_run_name_each_series_once(
    followed: FollowedRun,
) -> None:
    seen = set()
    for gauge in run_gauges(followed.state):
        for labels, _ in gauge.samples:
            assert (gauge.name, labels) not in seen
            seen.add((gauge.name, labels))
