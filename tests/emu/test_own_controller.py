"""Applications of others on the live network: in a run, on one that stays up, and broken ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import left_behind
from tests.emu.test_run import REPOSITORY, Testbed
from tests.emu.test_up import Standing, wait_for

# Open vSwitch's own learning switch in every bridge, asked for in one flow.
STATIC = """\
try:
    from ryu.base.app_manager import RyuApp as App
    from ryu.controller import ofp_event
    from ryu.controller.handler import CONFIG_DISPATCHER, set_ev_cls
except ImportError:
    from os_ken.base.app_manager import OSKenApp as App
    from os_ken.controller import ofp_event
    from os_ken.controller.handler import CONFIG_DISPATCHER, set_ev_cls


class Static(App):
    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, event):
        path = event.msg.datapath
        parser, protocol = path.ofproto_parser, path.ofproto
        apply = protocol.OFPIT_APPLY_ACTIONS
        normal = parser.OFPInstructionActions(
            apply, [parser.OFPActionOutput(protocol.OFPP_NORMAL)]
        )
        path.send_msg(parser.OFPFlowMod(datapath=path, priority=1, instructions=[normal]))
        if path.id == 1:
            raise KeyError("the first switch")
"""
FILE = """
name: standing
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.05}
policies: [vc]
controller: {app: mine.py}
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 1 s}]}
"""


@pytest.fixture
def testbed(prefix: str, tmp_path: Path) -> Iterator[Testbed]:
    own = Testbed(prefix, tmp_path)
    for name in ("own-controller.yaml", "learning_switch.py"):
        shutil.copy(REPOSITORY / "examples" / name, tmp_path)
    own.file = tmp_path / "own-controller.yaml"
    # Whose the flows are does not depend on how long jobs take.
    text = own.file.read_text("utf-8")
    assert text.count("duration: 20 s") == 2
    own.file.write_text(text.replace("duration: 20 s", "duration: 3 s"))
    yield own
    own.remove_left()


@pytest.fixture
def standing(prefix: str, tmp_path: Path) -> Iterator[Standing]:
    own = Standing(prefix, tmp_path)
    own.file.write_text(FILE, encoding="utf-8")
    (tmp_path / "mine.py").write_text(STATIC, encoding="utf-8")
    yield own
    own.remove_left()


def test_a_run_under_a_learning_switch(
    testbed: Testbed, tmp_path: Path
) -> None:
    done = testbed.live("--set", "expect={fidelity: invalid}")
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((testbed.folder / "summary.json").read_text())
    assert (summary["finished"], summary["jobs"]) == (2, 2)
    app = tmp_path / "learning_switch.py"
    assert f"flows: those of {app}, none of the testbed's" in done.stderr
    (note,) = [e for e in testbed.events() if e.get("check") == "flows"]
    assert note["level"] == "ok"
    assert f"all flows are those of {app}" in note["reason"]
    provenance = json.loads(
        (testbed.folder / "provenance.json").read_text()
    )
    assert str(app) in json.dumps(provenance)
    log = testbed.folder / "logs" / "controller.log"
    assert log.stat().st_mode & 0o777 == 0o600
    assert "Traceback" not in log.read_text()
    assert (
        testbed.folder / "plan" / "learning_switch.py"
    ).read_text() == app.read_text()
    network = (testbed.folder / "plan" / "0000-network.txt").read_text()
    assert network.endswith(f"# flows: those of {app}\n")
    audited = testbed.run("audit", str(testbed.folder))
    assert audited.returncode == 0
    assert (
        "flows that are not the testbed's are noted as such"
        in audited.stdout
    )


def test_a_network_that_stays_up_has_its_flows_and_our_limits(
    standing: Standing, tmp_path: Path
) -> None:
    came = standing.up()
    assert came.returncode == 0, came.stderr
    assert standing.status()["controller"] == str(tmp_path / "mine.py")
    # The application may be logging it still: a switch is connected before.
    error = "KeyError: 'the first switch'"
    wait_for(lambda: error in standing.status()["trouble"])
    standing.good(
        "tenant", "add", "a", "--vms", "5", "--bandwidth", "100 Mbit/s"
    )
    ping = ("ping", "-c", "1", "-w", "30")
    for other in range(1, 5):
        assert standing.inside("a.0", *ping, f"a.{other}").returncode == 0
    assert (
        "burst"
        in standing.inside(
            "a.0", "tc", "class", "show", "dev", "eth0"
        ).stdout
    )
    standing.good("tenant", "remove", "a")
    said = standing.good("status")
    assert (
        f"flows: those of {tmp_path}/mine.py, none of the testbed's" in said
    )

    (mark,) = standing.marks
    journal = (
        (standing.state / "runs" / f"{mark}.jsonl").read_text().splitlines()
    )
    entries = [json.loads(line) for line in journal]
    (pid,) = {
        e["pid"]
        for e in entries
        if e.get("name") == "controller" and e.get("pid")
    }
    (ids,) = re.findall(
        r"^Uid:\t(.*)$",
        Path(f"/proc/{pid}/status").read_text(),
        re.MULTILINE,
    )
    assert "0" not in ids.split()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "has ended with -9" in standing.status()["trouble"])
    standing.good("down")


@pytest.mark.parametrize("verb", ["run", "up"])
def test_one_that_does_not_start_leaves_its_log_and_nothing_else(
    standing: Standing, verb: str, prefix: str, tmp_path: Path
) -> None:
    app = tmp_path / "mine.py"
    app.write_text(
        "import ryu_of_tomorrow\n"
        if verb == "run"
        else f"{STATIC}\n1 / 0\n"
    )
    done = standing.live() if verb == "run" else standing.up()
    assert done.returncode == 2
    line, error = (
        (1, "ModuleNotFoundError: No module named 'ryu_of_tomorrow'")
        if verb == "run"
        else (
            app.read_text().count("\n"),
            "ZeroDivisionError: division by zero",
        )
    )
    assert (
        f"the controller {app} does not start: line {line}: {error}"
        in done.stderr
    )
    assert "controller.log" in done.stderr
    assert left_behind(prefix) == []
    assert standing.marks == []
