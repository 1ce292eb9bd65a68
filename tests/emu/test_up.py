"""A network that stays up, from outside: its tenants, those who use it, and its end."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.backends.emu.cgroups import lives
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.backends.emu.traffic_control import NETNS_DIR
from tests.emu.test_run import Testbed, cgroups_of

FILE = """
name: standing
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.05}
embedder: oktopus
policies: [vc]
workload:
  kind: jobs
  jobs:
    - {id: first, vms: 4, bandwidth: 200 Mbit/s, duration: 5 s}
    - {id: huge, vms: 8, bandwidth: 900 Mbit/s, duration: 5 s}
    - {id: third, at: 9 s, vms: 2, bandwidth: 100 Mbit/s, duration: 5 s}
"""


class Standing(Testbed):
    """The command, for a network that stays up."""

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.run("up", str(self.file), *self.options[:6], *more)

    def remove_left(self) -> None:
        if self.marks:
            self.run("down")
        super().remove_left()

    def good(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def inside(
        self, target: str, *command: str
    ) -> subprocess.CompletedProcess[str]:
        return self.run("exec", target, "--", *command)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.good("status", "--json")))


@pytest.fixture
def standing(prefix: str, tmp_path: Path) -> Iterator[Standing]:
    own = Standing(prefix, tmp_path)
    own.file.write_text(FILE, encoding="utf-8")
    yield own
    own.remove_left()


def machine(prefix: str) -> dict[str, object]:
    """Parts of a network on this machine, to compare before and after."""
    shown = subprocess.run(
        ["tc", "qdisc", "show"], capture_output=True, text=True, check=True
    )
    return {
        "namespaces": sorted(
            path.name for path in NETNS_DIR.glob(f"{prefix}-*")
        ),
        "bridges": sorted(
            str(row[0]) for row in MACHINE.rows("Bridge", ["name"])
        ),
        "qdiscs": sorted(
            line
            for line in shown.stdout.splitlines()
            if f" {prefix}-" in line
        ),
        "devices": sorted(
            p.name for p in Path("/sys/class/net").glob(f"{prefix}-*")
        ),
        "mounts": [
            line
            for line in Path("/proc/mounts").read_text().splitlines()
            if "/up/" in line
        ],
    }


@pytest.mark.smoke
def test_tenants_come_measure_and_go(
    standing: Standing, prefix: str
) -> None:
    before = machine(prefix)
    assert standing.run("status").returncode == 1
    came = standing.up()
    assert came.returncode == 0, came.stderr
    assert (
        "standing is up (tree, fanout [2, 2]): 8 VM slots, 7 bridges, 6 links"
        in came.stdout
    )
    assert "network up: 7 bridges" in came.stderr
    (mark,) = standing.marks
    assert standing.status()["tenants"] == []

    a = json.loads(
        standing.good(
            "tenant",
            "add",
            "a",
            "--vms",
            "3",
            "--bandwidth",
            "200 Mbit/s",
            "--json",
        )
    )
    assert [vm["name"] for vm in a["vms"]] == ["a.0", "a.1", "a.2"]
    assert a["wire_bps"] == 10_000_000
    by_hand = ("--at", "server 1:1", "--at", "3:1")
    said = standing.good(
        "tenant", "add", "b", "--bandwidth", "300 Mbit/s", *by_hand
    )
    assert said == (
        "tenant b: 2 × 300 Mbit/s (15 Mbit/s on the wire): b.0 on server 1; b.1 on server 3\n"
    )

    # More than a link has left, and everything stays as it was.
    status = standing.status()
    refused = standing.run("tenant", "rerate", "b", "950 Mbit/s")
    assert refused.returncode == 1
    assert re.search(
        r"tenant b does not fit: .*: 950 Mbit/s asked, 800 Mbit/s free",
        refused.stderr,
    )
    refused = standing.run(
        "tenant", "add", "c", "--vms", "4", "--bandwidth", "100 Mbit/s"
    )
    assert refused.returncode == 1
    assert (
        "tenant c does not fit: not enough slots: 4 asked, 3 free"
        in refused.stderr
    )
    assert standing.run("tenant", "show", "c").returncode == 2
    assert standing.status() == status

    # Inside: a user of its own, the VM's namespace, the VMs' names, and what was typed.
    users = {
        int(standing.inside(f"a.{k}", "id", "-u").stdout) for k in range(3)
    }
    assert len(users) == 3
    assert min(users) >= 1_900_000_000
    assert (
        standing.inside("a.0", "cat", "/proc/self/status").stdout.count(
            "NoNewPrivs:\t1"
        )
        == 1
    )
    assert (
        standing.inside("a.0", "getent", "hosts", "a.2").stdout.split()[1]
        == "a.2"
    )
    assert standing.inside("a.0", "getent", "hosts", "b.0").returncode == 2
    assert "a.0" not in Path("/etc/hosts").read_text()
    assert standing.inside("a.0", "sh", "-c", "exit 7").returncode == 7
    fed = subprocess.run(
        standing.command("exec", "a.1", "--", "tr", "a-z", "A-Z"),
        env=standing.environment, input="hello\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert fed.stdout == "HELLO\n"
    assert mark in standing.inside("a.0", "cat", "/proc/self/cgroup").stdout
    assert standing.inside("a.0", "nothing-of-this-name").returncode == 2

    # Packets: among a tenant's VMs, and not between tenants.
    ping = ("ping", "-c", "2", "-i", "0.2", "-W", "2")
    assert standing.inside("a.0", *ping, "a.2").returncode == 0
    assert standing.inside("a.0", *ping, b_ip(standing)).returncode != 0

    # In all of a tenant: every line with its VM's name, the worst exit code.
    done = standing.inside(
        "a",
        "sh",
        "-c",
        "echo $HOSENET_VM; echo oh >&2; test $HOSENET_VM = a.1",
    )
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == [
        f"a.{i}: a.{i}" for i in range(3)
    ]
    assert sorted(done.stderr.splitlines()) == [
        f"a.{i}: oh" for i in range(3)
    ]

    measured(standing, "a", 200_000_000)
    standing.good("tenant", "rerate", "a", "100 Mbit/s")
    judged(standing, "a", 100_000_000)

    # By another policy's embedder, and with what its links have left over.
    refused = standing.run(
        "tenant", "add", "c", "--vms", "2", *RATE, "--policy", "jsa"
    )
    assert refused.returncode == 2
    assert (
        "policy jsa cannot place one tenant at once: it has no embedder"
        in refused.stderr
    )
    lent = ("--policy", "dcloud", "--enforcement", "work-conserving")
    standing.good("tenant", "add", "c", "--vms", "3", *RATE, *lent)
    slowest: list[float] = []
    while len(slowest) < TRIES and max(slowest, default=0.0) <= 1.5:
        slowest.append(min(measured_ratios(standing, "c").values()))
    assert max(slowest) > 1.5, slowest
    standing.good("tenant", "remove", "c")

    # A tenant that goes takes along what still runs in its VMs.
    sleeper = subprocess.Popen(
        standing.command("exec", "b.0", "--", "sleep", "1000"),
        env=standing.environment,
    )
    wait_for(
        lambda: standing.inside("b.0", "pgrep", "-xf", "sleep 1000").stdout
    )
    standing.good("tenant", "remove", "b")
    assert sleeper.wait(30) == 128 + signal.SIGKILL
    assert [each["name"] for each in standing.status()["tenants"]] == ["a"]

    assert "everything of it is removed" in standing.good("down")
    assert standing.run("status").returncode == 1
    assert standing.run("down").returncode == 2
    assert machine(prefix) == before
    assert standing.marks == []
    assert cgroups_of(mark) == []
    assert {
        path.name for path in (standing.state / "up").glob("[hs]*")
    } == set()


def b_ip(standing: Standing) -> str:
    return str(
        json.loads(standing.good("tenant", "show", "b", "--json"))["vms"][
            0
        ]["ip"]
    )


RATE = ("--bandwidth", "100 Mbit/s")
TRIES = 3
MOST_MEASUREMENTS = 8


def measured_ratios(standing: Standing, name: str) -> dict[str, float]:
    """Measured over reserved, of each VM."""
    done = standing.run("measure", name, "--seconds", "2", "--json")
    return {
        one["sender"]: one["ratio"]
        for one in json.loads(done.stdout)["pairs"]
    }


def measured(standing: Standing, name: str, reserved_bps: int) -> None:
    """Never more than is reserved, and each within 1 % in one of eight
    measurements: what else the machine does only takes away.

    Half a per cent is missing on an idle machine: 15 ms in which three seconds'
    packets of one VM wait for a processor are enough to miss the bound.
    """
    found = []
    while len(found) < MOST_MEASUREMENTS:
        ratios = judged(standing, name, reserved_bps)
        if all(abs(ratio - 1) <= 0.01 for ratio in ratios):
            return
        found.append(ratios)
    pytest.fail(f"no measurement was within 1 %: {found}")


def judged(standing: Standing, name: str, reserved_bps: int) -> list[float]:
    """The ratios of a measurement: long enough for a packet to be a third of a
    per cent. The exit code says which it was.
    """
    done = standing.run("measure", name, "--seconds", "3", "--json")
    assert done.returncode in (0, 1), done.stderr
    pairs = json.loads(done.stdout)["pairs"]
    assert [(one["sender"], one["receiver"]) for one in pairs] == [
        (f"{name}.0", f"{name}.1"),
        (f"{name}.1", f"{name}.2"),
        (f"{name}.2", f"{name}.0"),
    ]
    for one in pairs:
        assert one["reserved_bps"] == reserved_bps
        assert 0 < one["ratio"] <= 1.05
        assert one["good"] == (
            abs(one["ratio"] - 1) <= 0.01 and one["lost_share"] == 0
        )
    assert (done.returncode == 0) == all(one["good"] for one in pairs)
    return [one["ratio"] for one in pairs]


def wait_for(happened: Any) -> None:
    give_up = time.monotonic() + 180
    while not happened():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_jobs_become_tenants_until_sigterm_takes_it_down(
    standing: Standing, prefix: str
) -> None:
    before = machine(prefix)
    came = standing.up("--jobs")
    assert came.returncode == 0, came.stderr
    assert (
        "job huge is not admitted: tenant huge does not fit: "
        in came.stderr
    )
    assert "2 jobs are tenants, 1 not admitted" in came.stderr
    state = standing.status()
    assert [each["name"] for each in state["tenants"]] == ["first", "third"]
    for other in (standing.up(), standing.live(), standing.run("clean")):
        assert other.returncode == 3
        assert f"the network of {standing.file} that is up" in other.stderr
        assert f"process {state['pid']}" in other.stderr
        assert "sudo testbed down" in other.stderr
    assert standing.status() == state
    os.kill(state["pid"], signal.SIGTERM)
    wait_for(lambda: not lives(state["pid"]))
    assert machine(prefix) == before
    assert standing.marks == []


def test_a_killed_keepers_network_stays_until_it_is_cleaned(
    standing: Standing, prefix: str
) -> None:
    before = machine(prefix)
    assert standing.up().returncode == 0
    standing.good(
        "tenant", "add", "a", "--vms", "2", "--bandwidth", "100 Mbit/s"
    )
    (mark,) = standing.marks
    pid = standing.status()["pid"]
    place = json.loads(standing.good("tenant", "show", "a", "--json"))[
        "vms"
    ]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not lives(pid))
    for verb in (["status"], ["down"], ["tenant", "list"]):
        done = standing.run(*verb)
        assert done.returncode == 4
        assert (
            "the network is still there\nhint: sudo testbed clean"
            in done.stderr
        )
    netns = Path(place[0]["netns"]).name
    ping = [
        "ip",
        "netns",
        "exec",
        netns,
        "ping",
        "-c",
        "3",
        "-i",
        "0.2",
        place[1]["ip"],
    ]
    assert (
        subprocess.run(
            ping, check=False, stdout=subprocess.DEVNULL
        ).returncode
        == 0
    )
    assert "htb" in subprocess.run(
        ["ip", "netns", "exec", netns, "tc", "qdisc"], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    standing.good("clean")
    assert machine(prefix) == before
    assert cgroups_of(mark) == []
    assert standing.run("status").returncode == 1


@pytest.mark.short("1.2")
@pytest.mark.parametrize("after_s", [0.6, 1.2, 1.8, 2.4])
def test_interrupted_while_it_comes_up_it_leaves_nothing(
    standing: Standing, prefix: str, after_s: float
) -> None:
    before = machine(prefix)
    coming = subprocess.Popen(
        standing.command("up", str(standing.file), *standing.options[:6]),
        env=standing.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # Not a measurement: any moment will do, also one after it is up.
    time.sleep(after_s)
    coming.send_signal(signal.SIGINT)
    _, stderr = coming.communicate(timeout=60)
    assert coming.returncode in (0, 130, -signal.SIGINT), stderr
    if coming.returncode == 0 or standing.run("status").returncode == 0:
        standing.good("down")  # it was up already
    assert machine(prefix) == before
    assert not standing.state.exists() or standing.marks == []


def processes_of(standing: Standing) -> list[psutil.Process]:
    """Commands and keepers of a test's own state folder."""
    state = str(standing.state)
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOSENET_STATE_DIR") == state:
                processes.append(process)
    return processes


@pytest.mark.short("20")
@pytest.mark.parametrize("lines", [1, 20, 60])
def test_killed_while_it_comes_up_the_next_one_comes_up(
    standing: Standing, prefix: str, lines: int
) -> None:
    """With all its processes, once its journal has so many lines."""
    before = machine(prefix)
    coming = subprocess.Popen(
        standing.command("up", str(standing.file), *standing.options[:6]),
        env=standing.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def has_begun() -> bool:
        journals = [*(standing.state / "runs").glob("*.jsonl")]
        return any(
            journal.read_bytes().count(b"\n") >= lines
            for journal in journals
        )

    wait_for(lambda: has_begun() or coming.poll() is not None)
    for process in processes_of(standing):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    coming.wait(60)
    if standing.run("status").returncode == 0:
        # It was up already.
        standing.good("down")
    assert standing.up().returncode == 0
    standing.good("verify")
    standing.good("down")
    assert machine(prefix) == before
    assert standing.marks == []


def test_what_cannot_come_up_says_why_and_leaves_nothing(
    standing: Standing, prefix: str
) -> None:
    before = machine(prefix)
    standing.file.write_text(
        FILE.replace("oktopus", "okto"), encoding="utf-8"
    )
    assert standing.up().returncode == 2
    standing.file.write_text(FILE, encoding="utf-8")
    done = standing.up("--set", "scale.rate=auto")
    assert done.returncode == 2
    assert (
        "scale.rate: auto or largest is found by the preflight"
        in done.stderr
    )
    name = f"{prefix}-s0v0"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        done = standing.up()
        assert done.returncode == 3
        assert f"ip netns delete {name}" in done.stderr
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    assert machine(prefix) == before
    assert standing.marks == []


@pytest.fixture(scope="module")
def lasting(
    make_prefix: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """A network that is up, for tests that leave it as they find it."""
    own = Standing(make_prefix(), tmp_path_factory.mktemp("lasting"))
    own.file.write_text(FILE, encoding="utf-8")
    assert own.up().returncode == 0
    yield own
    own.remove_left()


def test_of_several_people_at_once_one_is_served_first(
    lasting: Standing,
) -> None:
    wanted = (
        "tenant",
        "add",
        "a",
        "--vms",
        "2",
        "--bandwidth",
        "100 Mbit/s",
    )
    everybody = [
        subprocess.Popen(
            lasting.command(*wanted), env=lasting.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    said = [each.communicate(timeout=120) for each in everybody]
    assert sorted(each.returncode for each in everybody) == [0, 2, 2, 2], (
        said
    )
    refusals = [text for _, text in said if text]
    assert len(refusals) == 3
    assert all("there is a tenant a already" in text for text in refusals)
    (a,) = lasting.status()["tenants"]
    assert len(a["vms"]) == 2
    refused = lasting.inside("a.7", "true")
    assert refused.returncode == 2
    assert "unknown VM 'a.7': known are a.0 to a.1" in refused.stderr
    lasting.good("tenant", "remove", "a")


def test_a_shells_prompt_says_where_one_is(lasting: Standing) -> None:
    lasting.good(
        "tenant", "add", "a", "--vms", "1", "--bandwidth", "100 Mbit/s"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        command = lasting.command("shell", "a.0")
        os.execvpe(command[0], command, lasting.environment)  # noqa: S606
    shown = b""
    try:
        os.write(terminal, b"echo at $HOSENET_IP; exit 3\n")
        while select.select([terminal], [], [], 60)[0]:
            shown += os.read(terminal, 65_536)
    except OSError:  # its end
        pass
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert b"[a.0]" in shown
    assert b"at 10.0.4.1" in shown
    assert os.waitstatus_to_exitcode(status) == 3
    lasting.good("tenant", "remove", "a")
