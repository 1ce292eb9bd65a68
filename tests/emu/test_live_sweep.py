"""``testbed sweep --live --cluster``: live cells on Dask workers that offer the live network."""

from __future__ import annotations

import json
from pathlib import Path

from tests.emu.test_run import Testbed
from tests.support.dask_processes import DaskProcesses

FILE = """
name: two
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}
scale: {rate: 0.02}
policies: [fcfs]
workload:
  kind: jobs
  jobs:
    - {id: burn, vms: 1, kind: compute, duration: 1 s, cpu: 10 %}
# On a busy machine too.
expect: {fidelity: invalid}
"""
LIVE = ("--resources", "testbed=1")


def test_live_cells_take_turns_on_workers_that_offer_the_network(
    prefix: str, tmp_path: Path
) -> None:
    testbed = Testbed(prefix, tmp_path)
    testbed.file.write_text(FILE, "utf-8")
    state = {"HOSENET_STATE_DIR": str(testbed.state)}
    with DaskProcesses(tmp_path) as dask:
        for name, options in (("a", LIVE), ("b", LIVE), ("c", ())):
            dask.worker(name, *options, **state)
        dask.wait_for_workers()
        done = testbed.run(
            "sweep", str(testbed.file), "--live", "--over", "seed=1..3", "--cluster", dask.address,
            "--out", str(testbed.out),
        )  # fmt: skip
    records = [
        [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in (testbed.out / ".cells").glob("??/*.jsonl")
    ]
    assert done.returncode == 0, done.stderr
    assert len(records) == 3
    assert {where["worker"] for _, where in records} == {"a", "b"}
    for _, where in records:
        assert where["doctor"]["can_run"]
        assert where["machine"]["kernel"]["release"]
    assert testbed.run("clean").returncode == 0
