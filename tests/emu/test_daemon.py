"""A run that finds no Open vSwitch starts it as it must be, and stops it; settings are put back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.emu.open_vswitch import SEND_BUFFER_BYTES, datapath_type, switch_pid
from tests.support import own_switch

ROOT = Path(__file__).parents[2]
PROGRAM = Path(own_switch.__file__)
SETTINGS = ("/proc/sys/net/core/wmem_default", "/proc/sys/net/core/rmem_default")


@pytest.mark.needs("userspace-datapath")
@pytest.mark.skipif(
    Path("/run/systemd/system").exists(), reason="systemd starts Open vSwitch on this machine"
)
def test_a_switch_of_the_runs_own(prefix: str, tmp_path: Path) -> None:
    machines_own = switch_pid()
    before = [Path(name).read_text() for name in SETTINGS]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private",
         sys.executable, str(PROGRAM), prefix, str(tmp_path)],
        capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["before"] is False
    assert said["running"] is said["listed"] is True
    assert said["datapath"] == datapath_type()
    assert said["offload"] is True
    assert said["send_buffer_bytes"] >= SEND_BUFFER_BYTES
    assert said["allocator"] is True
    assert said["settings"]["emc-insert-inv-prob"] == "0"
    assert int(said["files"]) >= 4096
    assert said["after_a_dead_switch"] == []
    # A service is nobody's child: it survives the group of the run that started it.
    assert said["in_group"] is False
    assert said["survives_group"] is True
    assert said["spared"] is True  # as long as anybody has a bridge
    assert said["removed"] == ["service"]
    assert said["after"] is False
    assert [Path(name).read_text() for name in SETTINGS] == before
    assert switch_pid() == machines_own
