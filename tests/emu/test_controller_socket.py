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
# controller's place; prints what came of each. The last argument: seconds to
# wait for the controller's first bytes.
ATTACK = """
import os, socket, sys
path, port, wait_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
def tried(what, attempt):
    try:
        print(what, attempt() or "done")
    except OSError as error:
        print(what, type(error).__name__)
def greeted():
    with socket.create_connection(("127.0.0.1", port), wait_s) as peer:
        return peer.recv(8).hex() or "closed"
tried("connect", lambda: socket.socket(socket.AF_UNIX).connect(path))
tried("replace", lambda: os.unlink(path))
tried("make", lambda: socket.socket(socket.AF_UNIX).bind(path + "x"))
tried("listen", lambda: socket.socket().bind(("127.0.0.1", port)))
tried("greeted", greeted)
"""


ANSWERS_WITHIN_S = 60.0
SILENT_S = 5.0


def attack(path: Path, port: int, wait_s: float) -> list[str]:
    command = [sys.executable, "-c", ATTACK, str(path), str(port)]
    done = subprocess.run(
        [*command, str(wait_s)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


REFUSED = [
    "connect PermissionError",
    "replace PermissionError",
    "make PermissionError",
    "listen OSError",
]


# As another user: connects to every socket in a folder; prints how many there
# are, and those of them that were connected to.
SECOND = """
import os, pathlib, socket, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
sockets = [path for path in pathlib.Path(sys.argv[1]).iterdir() if path.is_socket()]
print(len(sockets))
for path in sockets:
    try:
        socket.socket(socket.AF_UNIX).connect(str(path))
        print(path)
    except OSError:
        pass
"""
# As another user: listens where the controller will, says so, and then says
# how many came.
EARLY = """
import os, socket, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
listeners = []
for port in map(int, sys.argv[1:]):
    listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
    listener.settimeout(0)
    listeners.append(listener)
print("listens", flush=True)
sys.stdin.read()
came = 0
for listener in listeners:
    try:
        while True:
            listener.accept()
            came += 1
    except OSError:
        pass
print(came)
"""


def test_who_listens_between_two_networks_gets_no_switch(
    standing: Standing,  # noqa: F811
) -> None:
    standing.up()
    standing.good("down")
    command = [sys.executable, "-c", EARLY, *map(str, standing.ports)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "listens\n"
        refused = standing.up()
        assert refused.returncode == 3
        assert f"process {stranger.pid}, user nobody" in refused.stderr
        said, _ = stranger.communicate(timeout=60)
    assert said == "0\n"
    assert standing.up().returncode == 0
    assert verified(standing)[0] == 0


def controllers_of(prefix: str) -> set[str]:
    """Controllers' addresses of a network's bridges: other networks may be up."""
    addresses = set()
    for (bridge,) in MACHINE.rows("Bridge", ["name"]):
        if bridge.startswith(f"{prefix}-"):
            question = ["get-controller", bridge]
            addresses.update(MACHINE.vsctl(question, wait=False).split())
    return addresses


@pytest.mark.smoke
def test_nobody_else_is_controller_or_switch_or_speaks_to_one(
    standing: Standing,  # noqa: F811
    prefix: str,
) -> None:
    """A second controller would take over, and put its own rules in."""
    standing.up()
    command = [sys.executable, "-c", SECOND, str(MACHINE.run_dir)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    )
    number, *connected = done.stdout.splitlines()
    assert int(number) > len(MACHINE.rows("Bridge", ["name"]))
    assert connected == []
    standing.good(
        "tenant", "add", "a", "--vms", "2", "--bandwidth", "9 Mbit/s"
    )
    (address,) = controllers_of(prefix)
    assert address.startswith("unix:")
    path = MACHINE.run_dir / address.removeprefix("unix:")
    port = int(
        standing.options[standing.options.index("--openflow-port") + 1]
    )
    refused = attack(path, port, ANSWERS_WITHIN_S)
    assert refused[:4] == REFUSED
    assert refused[4] in ("greeted closed", "greeted ConnectionResetError")
    first = controller_of(standing)
    assert first is not None
    first.suspend()
    try:
        # It is away: a connection waits, and nobody answers it.
        away = attack(path, port, SILENT_S)
        assert [*away[:4], away[4]] == [*REFUSED, "greeted TimeoutError"]
    finally:
        first.resume()
    killed(first.pid)
    assert attack(path, port, SILENT_S)[:4] == REFUSED
    wait_for(lambda: controller_of(standing) not in (None, first))
    standing.good(
        "tenant", "add", "b", "--vms", "2", "--bandwidth", "9 Mbit/s"
    )
    assert verified(standing)[0] == 0
    standing.good("down")
    assert not path.exists()
