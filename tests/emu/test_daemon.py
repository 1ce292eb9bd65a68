"""A run that finds no Open vSwitch starts it as it must be, and stops it; settings are put back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.emu.open_vswitch import (
    MACHINE,
    datapath_type,
)
from testbed.backends.emu.switch_preload import SEND_BUFFER_BYTES
from tests.support import own_switch

ROOT = Path(__file__).parents[2]
PROGRAM = Path(own_switch.__file__)
STARTED_BESIDE = """
import subprocess
from testbed.backends.emu.open_vswitch import start
subprocess.run(["mount", "-t", "tmpfs", "own", "/run/openvswitch"], check=True)
start()
"""
SETTINGS = (
    "/proc/sys/net/core/wmem_default",
    "/proc/sys/net/core/rmem_default",
)


@pytest.mark.needs("userspace-datapath")
@pytest.mark.skipif(
    Path("/run/systemd/system").exists(),
    reason="systemd starts Open vSwitch on this machine",
)
def test_a_switch_of_the_runs_own(prefix: str, tmp_path: Path) -> None:
    machines_own = MACHINE.pid
    if machines_own and (bridges := MACHINE.rows("Bridge", ["name"])):
        # The userspace datapath's device has one name: no switch beside one that has bridges.
        pytest.skip(
            f"the machine's switch has bridges that no test made: {bridges}"
        )
    before = [Path(name).read_text() for name in SETTINGS]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private",
         sys.executable, str(PROGRAM), prefix, str(tmp_path)],
        capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout.splitlines()[-1])
    assert output["before"] is False
    assert output["running"] is output["listed"] is True
    assert output["datapath"] == datapath_type()
    assert output["offload"] is True
    assert output["send_buffer_bytes"] >= SEND_BUFFER_BYTES
    assert output["allocator"] is True
    assert output["settings"]["emc-insert-inv-prob"] == "0"
    assert int(output["files"]) >= 4096
    assert output["after_a_dead_switch"] == []
    # A service is nobody's child: it survives the group of the run that started it.
    assert output["in_group"] is False
    assert output["survives_group"] is True
    assert output["spared"] is True  # as long as anybody has a bridge
    assert output["removed"] == ["service"]
    assert output["after"] is False
    assert [Path(name).read_text() for name in SETTINGS] == before
    assert MACHINE.pid == machines_own


@pytest.mark.needs("userspace-datapath")
def test_a_switch_does_not_start_beside_one_with_bridges(
    prefix: str,
) -> None:
    name = f"{prefix}-s0"
    bridge = [
        "add-br",
        name,
        "--",
        "set",
        "Bridge",
        name,
        "datapath_type=netdev",
    ]
    MACHINE.vsctl(bridge)
    try:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private",
             sys.executable, "-c", STARTED_BESIDE],
            capture_output=True, text=True, timeout=100, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    finally:
        MACHINE.vsctl(["del-br", name])
    assert done.returncode == 1
    assert "another Open vSwitch has the userspace datapath" in done.stderr
    assert MACHINE.running
