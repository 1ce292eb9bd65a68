"""Another user can take neither the controller's place nor a switch's, whether
the controller is there or away.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.emu.open_vswitch import MACHINE
from tests.emu.test_links_and_verify import verified
from tests.emu.test_restarts import controller_of, killed
from tests.emu.test_up import Standing, standing, wait_for  # noqa: F401 - a fixture

# As another user: tries to connect as a switch, and to listen in the
# controller's place; prints what came of each.
ATTACK = """
import os, socket, sys
path, port = sys.argv[1], int(sys.argv[2])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
def tried(what, attempt):
    try:
        print(what, attempt() or "done")
    except OSError as error:
        print(what, type(error).__name__)
def greeted():
    with socket.create_connection(("127.0.0.1", port), 5) as peer:
        return peer.recv(8).hex() or "closed"
tried("connect", lambda: socket.socket(socket.AF_UNIX).connect(path))
tried("replace", lambda: os.unlink(path))
tried("make", lambda: socket.socket(socket.AF_UNIX).bind(path + "x"))
tried("listen", lambda: socket.socket().bind(("127.0.0.1", port)))
tried("greeted", greeted)
"""


def attack(path: Path, port: int) -> list[str]:
    command = [sys.executable, "-c", ATTACK, str(path), str(port)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


REFUSED = [
    "connect PermissionError",
    "replace PermissionError",
    "make PermissionError",
    "listen OSError",
]


@pytest.mark.smoke
def test_nobody_else_is_controller_or_switch(
    standing: Standing,  # noqa: F811
) -> None:
    standing.up()
    standing.good(
        "tenant", "add", "a", "--vms", "2", "--bandwidth", "9 Mbit/s"
    )
    (path,) = MACHINE.run_dir.glob("hosenet-*.sock")
    targets = {
        str(row[0]) for row in MACHINE.rows("Controller", ["target"])
    }
    assert f"unix:{path.name}" in targets
    assert not any(target.startswith("tcp:") for target in targets)
    port = int(
        standing.options[standing.options.index("--openflow-port") + 1]
    )
    refused = attack(path, port)
    assert refused[:4] == REFUSED
    assert refused[4] in ("greeted closed", "greeted ConnectionResetError")
    first = controller_of(standing)
    assert first is not None
    first.suspend()
    try:
        # It is away: a connection waits, and nobody answers it.
        away = attack(path, port)
        assert [*away[:4], away[4]] == [*REFUSED, "greeted TimeoutError"]
    finally:
        first.resume()
    killed(first.pid)
    assert attack(path, port)[:4] == REFUSED
    wait_for(lambda: controller_of(standing) not in (None, first))
    standing.good(
        "tenant", "add", "b", "--vms", "2", "--bandwidth", "9 Mbit/s"
    )
    assert verified(standing)[0] == 0
    standing.good("down")
    assert not path.exists()
