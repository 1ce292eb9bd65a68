"""Agents in network namespaces of their own, joined by a bridge: as root, without Open vSwitch."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from jobs.live.agent_pool import AgentPool
from jobs.live.agent_protocol import (
    AgentExited,
    AgentProgress,
    AgentRefused,
    AgentReport,
    AgentStarted,
    Ready,
    SpawnRequest,
)
from jobs.live.command import CommandPlan
from jobs.live.compute import ComputePlan
from jobs.live.connections import VM_SYSCTLS
from jobs.live.patterns import VmTransfer, transfers
from jobs.live.program_plan import ProgramPlan
from jobs.live.transfer_plan import TransferPlan
from tests.support.agent_watch import Watch, transfer_plans, wait_until
from tests.support.vm_ids import OUTSIDE_RANGES

NOBODY = 65534
N_VMS = 3


def ip(*arguments: str) -> None:
    done = subprocess.run(
        ["ip", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stderr)


class Star:
    """``n`` namespaces with an ``eth0`` each, on a bridge in one more namespace."""

    def __init__(self, prefix: str, n: int) -> None:
        self.switch = f"{prefix}-sw"
        self.vms = [f"{prefix}-{i}" for i in range(n)]
        self.ips = [f"10.7.0.{1 + i}" for i in range(n)]

    def build(self) -> None:
        ip("netns", "add", self.switch)
        ip(
            "-n",
            self.switch,
            "link",
            "add",
            "name",
            "sw0",
            "type",
            "bridge",
        )
        ip("-n", self.switch, "link", "set", "sw0", "up")
        for i, (vm, address) in enumerate(
            zip(self.vms, self.ips, strict=True)
        ):
            ip("netns", "add", vm)
            peer = ("peer", "name", f"v{i}", "netns", self.switch)
            ip("link", "add", "eth0", "netns", vm, "type", "veth", *peer)
            ip(
                "-n",
                self.switch,
                "link",
                "set",
                f"v{i}",
                "master",
                "sw0",
                "up",
            )
            ip("-n", vm, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", vm, "link", "set", "eth0", "up")
            ip("-n", vm, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in (*self.vms, self.switch):
            # It may not have been made; what is left behind in earnest, the prefix finds.
            subprocess.run(
                ["ip", "netns", "delete", name],
                capture_output=True,
                timeout=60,
                check=False,
            )

    def limit(self, vm: int, *qdisc: str) -> None:
        ip(
            "netns",
            "exec",
            self.vms[vm],
            "tc",
            "qdisc",
            "replace",
            "dev",
            "eth0",
            *qdisc,
        )

    def received_bytes(self, vm: int) -> int:
        """Bytes that the VM's interface has received, by the kernel's own count."""
        shown = subprocess.run(
            [
                "ip",
                "netns",
                "exec",
                self.vms[vm],
                "cat",
                "/sys/class/net/eth0/statistics/rx_bytes",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return int(shown.stdout)


@pytest.fixture
def star(prefix: str) -> Iterator[Star]:
    made = Star(prefix, N_VMS)
    try:
        made.build()
        yield made
    finally:
        made.remove()


@pytest.fixture
def pool() -> Iterator[AgentPool]:
    with AgentPool() as running:
        yield running


@pytest.fixture
def watch(pool: AgentPool) -> Watch:
    return Watch(pool)


@pytest.fixture
def spawn_all(
    pool: AgentPool, star: Star
) -> Callable[[list[TransferPlan]], list[str]]:
    def spawn(plans: list[TransferPlan]) -> list[str]:
        for plan in plans:
            netns = f"/run/netns/{star.vms[plan.index]}"
            pool.spawn(
                SpawnRequest(
                    f"vm{plan.index}", plan, NOBODY, NOBODY, netns=netns
                )
            )
        return [f"vm{plan.index}" for plan in plans]

    return spawn


SpawnAll = Callable[[list[TransferPlan]], list[str]]


def cubic(plans: list[TransferPlan]) -> list[TransferPlan]:
    return [replace(plan, congestion_control="cubic") for plan in plans]


def never_ending(star: Star) -> list[TransferPlan]:
    """A ring of 8 Mbit/s that nobody lives to see the end of."""
    plans = cubic(
        transfer_plans(
            transfers("ring", N_VMS, 10**10, Random(0)), star.ips
        )
    )
    return [replace(plan, demand=((1.0, 8_000_000),)) for plan in plans]


@pytest.mark.parametrize("pattern", ["ring", "all-to-all"])
def test_the_receivers_count_is_what_crossed_the_wire(
    star: Star, watch: Watch, spawn_all: SpawnAll, pattern: str
) -> None:
    volume_bytes = 3_000_001
    before = [star.received_bytes(vm) for vm in range(N_VMS)]
    plans = cubic(
        transfer_plans(
            transfers(pattern, N_VMS, volume_bytes, Random(0)), star.ips
        )
    )
    outcomes = watch.run_together(spawn_all(plans))
    for vm, outcome in enumerate(outcomes):
        report = outcome.report
        assert report.error is None
        # Although the agent has no privileges and the machine's default may be another.
        assert report.congestion_control == "cubic"
        assert (
            sum(got.size_bytes for got in report.received) == volume_bytes
        )
        assert (
            sum(sent.acknowledged_bytes for sent in report.sent)
            == volume_bytes
        )
        assert report.last_byte_ns is not None
        assert star.received_bytes(vm) - before[vm] > volume_bytes


def test_the_time_is_that_of_the_limit(
    star: Star, watch: Watch, spawn_all: SpawnAll
) -> None:
    """1 MB through 8 Mbit/s cannot take less than the second it needs beyond the bucket."""
    star.limit(
        0, "root", "tbf", "rate", "8mbit", "burst", "16kb", "limit", "100kb"
    )
    plans = cubic(
        transfer_plans([VmTransfer(0, 1, 1_000_000)], star.ips[:2])
    )
    sender, receiver = watch.run_together(spawn_all(plans))
    assert sender.report.start_ns is not None
    assert receiver.report.last_byte_ns is not None
    taken_s = (receiver.report.last_byte_ns - sender.report.start_ns) / 1e9
    wire_bytes = 1_000_000 * 1514 / 1448
    assert taken_s > 8 * (wire_bytes - 16 * 1024) / 8e6


def test_the_next_receivers_turn_comes_when_the_kernel_has_sent_the_bytes_of_the_one_before(
    star: Star, watch: Watch, spawn_all: SpawnAll
) -> None:
    """600 kB to each of two at 2 Mbit/s: side by side, both would arrive until
    the very end.

    A fifth of the time of one is half a second, by which a receiver may come
    late to its processor.
    """
    star.limit(
        0, "root", "tbf", "rate", "2mbit", "burst", "16kb", "limit", "200kb"
    )
    flows = [VmTransfer(0, 1, 600_000), VmTransfer(0, 2, 600_000)]
    sender, *receivers = watch.run_together(
        spawn_all(cubic(transfer_plans(flows, star.ips)))
    )
    assert sender.report.error is None
    (first,), (second,) = (each.report.received for each in receivers)
    assert first.last_ns is not None
    assert second.first_ns is not None
    assert second.last_ns is not None
    overlap_ns = first.last_ns - second.first_ns
    assert overlap_ns < 0.2 * (second.last_ns - second.first_ns)


def test_an_agent_has_the_user_and_namespace_it_was_given(
    star: Star, pool: AgentPool, watch: Watch
) -> None:
    plan = ComputePlan(0, cpu_s=1000.0, share=0.01)
    pool.spawn(
        SpawnRequest(
            "vm0",
            plan,
            NOBODY,
            NOBODY - 1,
            netns=f"/run/netns/{star.vms[0]}",
        )
    )
    (outcome,) = watch.until(["vm0"], Ready)
    text = Path(f"/proc/{outcome.pid}/status").read_text()
    status = dict(
        line.split(":\t", 1) for line in text.splitlines() if ":\t" in line
    )
    assert status["Uid"].split() == [str(NOBODY)] * 4
    assert status["Gid"].split() == [str(NOBODY - 1)] * 4
    assert status["Groups"].strip() == ""
    assert status["NoNewPrivs"] == "1"
    for kind in ("CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert status["Seccomp"] == "2"
    # It is not dumpable, or this would be its user's.
    assert Path(f"/proc/{outcome.pid}/environ").stat().st_uid == 0
    limits = Path(f"/proc/{outcome.pid}/limits").read_text()
    assert re.search(r"Max core file size +[01] +[01] ", limits)
    assert Path(f"/proc/{outcome.pid}/ns/net").stat().st_ino == (
        Path(f"/run/netns/{star.vms[0]}").stat().st_ino
    )
    assert Path("/proc/self/ns/net").stat().st_ino != (
        Path(f"/proc/{outcome.pid}/ns/net").stat().st_ino
    )


def test_agents_do_not_run_as_root(pool: AgentPool, watch: Watch) -> None:
    pool.spawn(SpawnRequest("vm0", ComputePlan(0, 0.01), 0, NOBODY))
    pool.spawn(SpawnRequest("vm1", ComputePlan(0, 0.01), NOBODY, 0))
    for outcome in watch.until(["vm0", "vm1"], AgentRefused):
        (refused,) = outcome.messages
        assert isinstance(refused, AgentRefused)
        assert "agents do not run as root" in refused.reason


@pytest.mark.parametrize(
    ("netns", "message"),
    [
        ("/run/netns/hosenet-nowhere", "No such file or directory"),
        (
            "/etc/hostname",
            "cannot enter network namespace /etc/hostname: Invalid argument",
        ),
        ("/proc/self/ns/uts", "cannot enter network namespace"),
    ],
)
def test_a_namespace_that_is_none_ends_with_the_reason(
    pool: AgentPool, watch: Watch, netns: str, message: str
) -> None:
    pool.spawn(
        SpawnRequest(
            "vm0", ComputePlan(0, 0.01), NOBODY, NOBODY, netns=netns
        )
    )
    (outcome,) = watch.until(["vm0"], AgentExited)
    assert outcome.kinds() == [AgentStarted, AgentReport, AgentExited]
    assert outcome.exited.code == 1
    assert message in str(outcome.report.error)


@pytest.fixture
def cgroup(prefix: str) -> Iterator[Path]:
    roots = [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")]
    root = next((r for r in roots if (r / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("no control groups below /sys/fs/cgroup")
    made = root / f"{prefix}-vm"
    made.mkdir()
    try:
        yield made
    finally:
        wait_until(
            lambda: not (made / "cgroup.procs").read_text(),
            "an empty group",
        )
        made.rmdir()


def test_an_agent_joins_its_cgroup(
    pool: AgentPool, watch: Watch, cgroup: Path
) -> None:
    procs = cgroup / "cgroup.procs"
    plan = ComputePlan(0, cpu_s=1000.0, share=0.01)
    pool.spawn(
        SpawnRequest("vm0", plan, NOBODY, NOBODY, cgroups=(str(procs),))
    )
    (outcome,) = watch.until(["vm0"], Ready)
    assert procs.read_text().split() == [str(outcome.pid)]
    pool.signal("vm0", signal.SIGKILL)
    watch.until(["vm0"], AgentExited)


def test_a_cgroup_that_is_none_ends_with_the_reason(
    pool: AgentPool, watch: Watch
) -> None:
    path = "/sys/fs/cgroup/hosenet-nowhere/cgroup.procs"
    pool.spawn(
        SpawnRequest(
            "vm0", ComputePlan(0, 0.01), NOBODY, NOBODY, cgroups=(path,)
        )
    )
    (outcome,) = watch.until(["vm0"], AgentExited)
    assert (
        outcome.report.error
        == f"cannot join cgroup {path}: No such file or directory"
    )


def test_a_command_has_shared_memory_of_its_own(
    pool: AgentPool, watch: Watch
) -> None:
    fill = "head -c 2M /dev/zero > /dev/shm/hosenet-fill"
    plan = CommandPlan(0, "10.0.0.1", ("10.0.0.1",), ("sh", "-c", fill))
    request = SpawnRequest(
        "vm0", plan, NOBODY, NOBODY, shared_bytes=1 << 20
    )
    pool.spawn(request)
    watch.until(["vm0"], Ready)
    pool.begin(["vm0"], time.monotonic_ns())
    (outcome,) = watch.until(["vm0"], AgentExited)
    assert "No space left" in str(outcome.report.error)
    assert not Path("/dev/shm/hosenet-fill").exists()  # noqa: S108


def test_a_command_has_its_vms_folders_and_what_it_names(
    pool: AgentPool, watch: Watch, tmp_path: Path
) -> None:
    """Its own file, its home, and nothing else of the machine's /tmp."""
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "script").write_text(
        'pwd; ls "$1" "$2" && exit 7; touch "$TMPDIR/mine" /tmp/mine && exit 9'
    )
    for folder in (shown, shown / "script"):
        folder.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    hidden = tmp_path / "hidden"
    hidden.touch()
    of_all = Path("/run", f"hosenet-{os.getpid()}")
    argv = ("sh", str(shown / "script"), str(hidden), "/run/netns")
    plan = CommandPlan(0, "10.0.0.1", ("10.0.0.1",), argv)
    request = SpawnRequest(
        *("vm0", plan, NOBODY, NOBODY),
        shared_bytes=1 << 20,
        folder=str(of_all / "vm0"),
        shown=(str(shown),),
    )
    pool.spawn(request)
    watch.until(["vm0"], Ready)
    pool.begin(["vm0"], time.monotonic_ns())
    (outcome,) = watch.until(["vm0"], AgentExited)
    shutil.rmtree(of_all)
    assert "exit code 9" in str(outcome.report.error)
    assert not Path("/tmp/mine").exists()  # noqa: S108


LAUNCHED = """
echo "$(hostname) $(id -un) $HOME"
cat /proc/self/oom_score_adj
(setsid sleep 6007 &)
ls -d /proc/[0-9]* | wc -l
"""


def test_a_launched_program_has_names_and_takes_its_daemons_along(
    pool: AgentPool, watch: Watch, prefix: str, tmp_path: Path
) -> None:
    of_all = Path("/run", f"hosenet-{prefix}")
    plan = ProgramPlan(
        0,
        "127.9.9.1",
        ("127.9.9.1",),
        ("sh", "-c", LAUNCHED),
        folder=f"/tmp/{prefix}",  # noqa: S108 - the VM's
    )
    log = tmp_path / "vm0.log"
    request = SpawnRequest(
        *("vm0", plan, VM_USER, VM_USER),
        log=str(log),
        shared_bytes=1 << 20,
        folder=str(of_all / "vm0"),
    )
    pool.spawn(request)
    watch.until(["vm0"], Ready)
    pool.begin(["vm0"], time.monotonic_ns())
    (outcome,) = watch.until(["vm0"], AgentReport)
    assert outcome.report.error is None
    names, spared, processes = log.read_text().splitlines()
    assert names == f"vm0 vm-user /tmp/{prefix}"
    assert int(spared) >= 0
    # The first one, the start, the shell, the daemon and what counts them.
    assert int(processes) < 10
    # The shell does not wait until its daemon has become a sleep.
    wait_until(lambda: _sleepers() == 1, "the daemon")
    pool.signal("vm0", signal.SIGTERM)
    watch.until(["vm0"], AgentExited)
    shutil.rmtree(of_all)
    wait_until(lambda: _sleepers() == 0, "the daemon's end")


def _sleepers() -> int:
    command = ("pgrep", "-c", "-u", str(VM_USER), "-xf", "sleep 6007")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    return int(done.stdout)


CALLER, VM_USER = 54_321, OUTSIDE_RANGES + 7


@pytest.fixture
def home(prefix: str) -> Iterator[Path]:
    """A folder of the caller's, closed for all others, with one in it."""
    folder = Path("/var/lib", f"hosenet-{prefix}")
    for path in (folder, folder / "work"):
        path.mkdir(mode=0o700)
        os.chown(path, CALLER, CALLER)
    yield folder
    shutil.rmtree(folder)
    shutil.rmtree(Path("/run", f"hosenet-{prefix}"))


def by_sudo(
    prefix: str, home: Path, number: int, script: str
) -> SpawnRequest:
    """A job's own program in VM ``number`` of a run that the caller started."""
    path = home / "work" / f"script{number}"
    path.write_text(script)
    os.chown(path, CALLER, CALLER)
    argv = ("sh", str(path), str(path.parent))
    plan = CommandPlan(0, "10.0.0.1", ("10.0.0.1",), argv)
    return SpawnRequest(
        *(f"vm{number}", plan, VM_USER + number, CALLER),
        shared_bytes=1 << 20,
        folder=f"/run/hosenet-{prefix}/vm{number}",
        shown=(str(path.parent),),
        caller=CALLER,
    )


def test_a_command_owns_its_callers_folder_and_is_not_the_caller(
    pool: AgentPool, watch: Watch, prefix: str, home: Path
) -> None:
    """In a home that is closed for others it reads and writes as its owner."""
    script = 'id -u > "$1/who"; exit 9'
    pool.spawn(by_sudo(prefix, home, 0, script))
    watch.until(["vm0"], Ready)
    pool.begin(["vm0"], time.monotonic_ns())
    (outcome,) = watch.until(["vm0"], AgentExited)
    assert "exit code 9" in str(outcome.report.error)
    who = home / "work" / "who"
    assert who.read_text() == f"{VM_USER}\n"
    assert who.stat().st_uid == CALLER
    assert home.stat().st_uid == CALLER


def test_no_setuid_file_of_its_callers_folder_has_effect(
    pool: AgentPool, watch: Watch, prefix: str, home: Path
) -> None:
    script = 'cat /proc/self/mountinfo > "$1/mounts"; exit 9'
    pool.spawn(by_sudo(prefix, home, 0, script))
    watch.until(["vm0"], Ready)
    pool.begin(["vm0"], time.monotonic_ns())
    watch.until(["vm0"], AgentExited)
    mounts = (home / "work" / "mounts").read_text().splitlines()
    fields = [line.split() for line in mounts]
    (options,) = [row[5] for row in fields if row[4] == str(home)]
    assert "nosuid" in options.split(",")


WAITS = (
    'exec 5<"$0"; echo $$ > "$1/new"; mv "$1/new" "$1/pid"; exec sleep 600'
)
REACHES = """
while ! [ -e "$1/pid" ]; do sleep 0.1; done
read pid < "$1/pid"
kill -0 $pid && echo signalled
ls /proc/$pid && echo seen
for name in mem environ maps fd/5 root/etc cwd/script0; do
    head -c 1 /proc/$pid/$name && echo read $name
    ls /proc/$pid/$name && echo listed $name
done
echo tried
exit 9
"""


def test_programs_of_two_vms_by_sudo_cannot_reach_each_other(
    pool: AgentPool, watch: Watch, prefix: str, home: Path
) -> None:
    """Signals, memory, variables, files: of a program of the same caller."""
    reaches = f'exec > "$1/got" 2>&1\n{REACHES}'
    for number, script in enumerate((WAITS, reaches)):
        pool.spawn(by_sudo(prefix, home, number, script))
    watch.until(["vm0", "vm1"], Ready)
    pool.begin(["vm0", "vm1"], time.monotonic_ns())
    watch.until(["vm1"], AgentExited)
    pid = int((home / "work" / "pid").read_text())
    # It lives, as the shell or as what that has become: a child of its own
    # would outlast the test, without a control group to end it.
    assert Path(f"/proc/{pid}/comm").read_text() in ("sh\n", "sleep\n")
    got = (home / "work" / "got").read_text().splitlines()
    assert got[-1] == "tried"
    for line in filter(None, got[:-1]):
        assert "No such" in line or "not permitted" in line, line


def test_a_dead_peer_ends_its_neighbours_with_the_reason(
    star: Star, pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    names = spawn_all(never_ending(star))
    watch.until(names, Ready)
    pool.begin(names, time.monotonic_ns())
    watch.until(names, AgentProgress)
    pool.signal("vm1", signal.SIGKILL)
    outcomes = watch.until(names, AgentExited)
    assert [o.exited.code for o in outcomes] == [1, None, 1]
    assert outcomes[1].exited.signum == signal.SIGKILL
    assert any(
        "VM 1" in str(o.report.error) for o in (outcomes[0], outcomes[2])
    )


def test_a_transfer_can_be_terminated_and_still_reports(
    star: Star, pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    names = spawn_all(never_ending(star))
    watch.until(names, Ready)
    pool.begin(names, time.monotonic_ns())
    watch.until(names, AgentProgress)
    for name in names:
        pool.signal(name, signal.SIGTERM)
    outcomes = watch.until(names, AgentExited)
    # One may have lost its neighbour before its own signal came.
    assert {o.exited.code for o in outcomes} <= {128 + signal.SIGTERM, 1}
    assert any(
        o.report.error == "terminated by signal 15" for o in outcomes
    )
    assert all(o.report.error for o in outcomes)


def test_the_death_of_the_fork_server_ends_agents_that_changed_their_user(
    star: Star, pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    """The kernel forgets a parent-death signal when the user changes; ours is set after that."""
    names = spawn_all(never_ending(star))
    pids = [outcome.pid for outcome in watch.until(names, Ready)]
    os.kill(pool.pid, signal.SIGKILL)
    wait_until(
        lambda: not any(_runs(pid) for pid in pids), "the end of the agents"
    )


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink() is not None
    except OSError:  # it is gone, or a zombie that nobody has reaped yet
        return False


def test_the_kernel_knows_every_sysctl_of_a_vm_in_a_namespace(
    star: Star,
) -> None:
    """Set in one namespace, read back there, and unchanged in another."""
    code = (
        "import sys\n"
        "for name, value in zip(sys.argv[1::2], sys.argv[2::2]):\n"
        "    with open('/proc/sys/' + name.replace('.', '/'), 'r+') as f:\n"
        "        f.write(value)\n"
        "        f.flush()\n"
        "        f.seek(0)\n"
        "        print(' '.join(f.read().split()))\n"
    )
    words = [word for pair in VM_SYSCTLS for word in pair]
    elsewhere = [
        Path("/proc/sys", name.replace(".", "/")) for name, _ in VM_SYSCTLS
    ]
    before = [path.read_text() for path in elsewhere]
    shown = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            star.vms[0],
            sys.executable,
            "-c",
            code,
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout.splitlines() == [value for _, value in VM_SYSCTLS]
    assert [path.read_text() for path in elsewhere] == before
    assert VM_SYSCTLS
