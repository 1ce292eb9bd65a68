"""A whole live run in which a job migrates: its folder, its audit and its replay."""

from __future__ import annotations

import csv
from pathlib import Path

from testbed.audit import audit
from testbed.cli.main import run
from tests.emu.test_run import Testbed

POLICY = """
from testbed.embedding.placement import Placement
from testbed.schedulers.actions import Arrived, Migrate, Start, Wake, Woken

SWITCH = 4  # the only one of four servers


class Moves:
    \"\"\"Starts on two servers, and moves to the two others a second later.\"\"\"

    def decide(self, view, event):
        if isinstance(event, Arrived):
            begin = Placement(SWITCH, ((0, 1), (1, 1)))
            rate_bps = view.job(event.job_id).bandwidth_bps
            return [
                Start(event.job_id, begin, rate_bps),
                Wake(view.now_s + 1.0),
            ]
        if isinstance(event, Woken):
            to = Placement(SWITCH, ((2, 1), (3, 1)))
            return [Migrate("job", to, "to make room", cost_s=0.5)]
        return []
"""
FILE = """
name: migrating
topology: {kind: tree, fanout: [4], links: 1 Gbit/s, slots_per_server: 1}
scale: {rate: 0.02}
policies: [{class: "./moves.py:Moves"}]
workload:
  kind: jobs
  jobs: [{id: job, vms: 2, bandwidth: 500 Mbit/s, duration: 4 s, pattern: ring}]
# However busy the machine is.
expect: {fidelity: invalid}
"""


def test_a_job_migrates_in_a_run(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "moves.py").write_text(POLICY, "utf-8")
    testbed = Testbed(prefix, tmp_path)
    testbed.file.write_text(FILE, "utf-8")
    done = testbed.live()
    assert done.returncode == 0, done.stderr
    assert testbed.marks == []
    (table,) = testbed.out.glob("*/jobs.csv")
    with table.open(encoding="utf-8") as rows:
        (job,) = csv.DictReader(rows)
    assert (job["outcome"], job["migrations"]) == ("finished", "1")
    # The cost of moving is in its time.
    assert float(job["measured_s"]) > 4.3
    assert audit(table.parent).passed
    again = ["simulate", str(testbed.file), "--replay", str(table.parent)]
    assert run([*again, "--out", str(tmp_path / "again")]) == 0
