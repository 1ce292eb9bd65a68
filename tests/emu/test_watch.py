"""The live page of a run and of a network that is up: its user, its metrics, its end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families,
)

from tests.emu.test_run import Testbed
from tests.emu.test_up import FILE, Standing

LINK = re.compile(r"live page: http://127\.0\.0\.1:(\d+)/#(\S+)")
END_WITHIN_S = 60


class Page:
    """A page by the link that a verb has said."""

    def __init__(self, narration: str) -> None:
        found = LINK.search(narration)
        assert found is not None, narration
        self.port = int(found[1])
        self._token = found[2]

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Values by name, and by their labels but run and policy."""
        headers = {"Authorization": f"Bearer {self._token}"}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            connection.request("GET", "/metrics", headers=headers)
            text = connection.getresponse().read().decode()
        values: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(
                    value
                    for name, value in sample.labels.items()
                    if name not in ("run", "policy")
                )
                values.setdefault(sample.name, {})[labels] = sample.value
        return values

    def processes(self) -> list[psutil.Process]:
        found = []
        for connection in psutil.net_connections("tcp"):
            here = connection.laddr and connection.laddr.port == self.port
            if here and connection.status == psutil.CONN_LISTEN:
                found.append(psutil.Process(connection.pid))
        return found

    def wait_for_end(self) -> None:
        until_s = time.monotonic() + END_WITHIN_S
        while self.processes():
            assert time.monotonic() < until_s
            time.sleep(0.2)


@pytest.fixture
def standing(prefix: str, tmp_path: Path) -> Iterator[Standing]:
    own = Standing(prefix, tmp_path)
    own.file.write_text(FILE, encoding="utf-8")
    yield own
    own.remove_left()


@pytest.fixture
def testbed(prefix: str, tmp_path: Path) -> Iterator[Testbed]:
    own = Testbed(prefix, tmp_path)
    yield own
    own.remove_left()


def test_a_network_that_is_up(standing: Standing) -> None:
    up = standing.up("--jobs", "--watch")
    assert up.returncode == 0, up.stderr
    page = Page(up.stderr)
    (process,) = page.processes()
    assert 0 not in process.uids()
    until_s = time.monotonic() + END_WITHIN_S
    while "hosenet_tenant_sent_bits_per_second" not in (
        values := page.metrics()
    ):
        assert time.monotonic() < until_s
        time.sleep(0.2)
    reserved = values["hosenet_tenant_reserved_bits_per_second"]
    assert reserved[("first",)] == pytest.approx(4 * 200e6)
    assert values["hosenet_switch_part_up"].popitem()[1] == 1
    capacities = values["hosenet_link_capacity_bits_per_second"].values()
    assert {round(value) for value in capacities} == {10**9}
    assert standing.run("down").returncode == 0
    page.wait_for_end()


def jobs_seen(page: Page) -> float:
    """Jobs that run or have finished, by the page."""
    jobs = page.metrics().get("hosenet_jobs", {})
    return jobs.get(("running",), 0.0) + jobs.get(("finished",), 0.0)


def test_a_run(testbed: Testbed, tmp_path: Path) -> None:
    # The page's user is nobody here.
    for above in (tmp_path, *tmp_path.parents):
        if above != Path("/"):
            above.chmod(above.stat().st_mode | 0o055)
    process = testbed.start("--watch")
    testbed.until("job_started", process)
    assert process.stderr is not None
    narration = ""
    while "live page" not in narration:
        narration = process.stderr.readline()
    page = Page(narration)
    # It follows the run, and is a moment behind.
    until_s = time.monotonic() + END_WITHIN_S
    while not jobs_seen(page):
        assert time.monotonic() < until_s
        time.sleep(0.1)
    _, rest = process.communicate(timeout=120)
    assert process.returncode in (0, 1), rest
    summary = json.loads((testbed.folder / "summary.json").read_text())
    page.wait_for_end()
    assert summary["status"] == "completed"
