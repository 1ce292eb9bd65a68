"""Control groups for real, in whichever version this machine has."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from testbed.backends.emu import cgroups
from testbed.backends.emu.cgroups import (
    RunCgroup,
    lives,
    probe_layout,
    release,
    remove_groups,
)
from testbed.backends.emu.job_evidence import Waits
from testbed.backends.emu.process_progress import spent
from tests.support.cgroup_time import cpu_s

LAYOUT = probe_layout()
pytestmark = pytest.mark.skipif(
    LAYOUT.version == 0, reason=LAYOUT.lacking or "has them"
)

BURN = "while True: pass"
PROJECT = Path(__file__).parents[2]
JOIN = "import sys\nfor file in sys.argv[1:]: open(file, 'w').write('0')\n"


@pytest.fixture
def group() -> Iterator[RunCgroup]:
    made = RunCgroup(LAYOUT, secrets.token_hex(4))
    made.create()
    yield made
    remove_groups(made.paths)
    assert not any(path.exists() for path in made.paths)


def start_in(
    files: tuple[Path, ...], *command: str
) -> subprocess.Popen[bytes]:
    """A process that joins groups before it becomes what it is to be."""
    join = "import os, sys\nfor f in sys.argv[1].split(':'): open(f, 'w').write('0')\n"
    become = "os.execvp(sys.argv[2], sys.argv[2:])"
    names = ":".join(str(file) for file in files)
    return subprocess.Popen(
        [sys.executable, "-c", join + become, names, *command]
    )


def joined(pid: int, files: tuple[Path, ...]) -> bool:
    return all(str(pid) in file.read_text().split() for file in files)


def wait_for(
    condition: object, what: str, patience_s: float = 60.0
) -> None:
    assert callable(condition)
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def test_a_process_in_a_vms_group_is_counted_there(
    group: RunCgroup,
) -> None:
    files = group.add_vm(3, 0)
    group.add_vm(3, 1)
    process = start_in(files, sys.executable, "-c", BURN)
    try:
        wait_for(
            lambda: cpu_s(group, 3, 0) > 0.05,
            "no processor time was counted",
        )
        assert cpu_s(group, 3, 1) == 0.0
        for file in files:
            assert str(process.pid) in file.read_text().split()
    finally:
        process.kill()
        process.wait()


def test_a_frozen_vm_stands_still_until_it_is_thawed(
    group: RunCgroup,
) -> None:
    process = start_in(group.add_vm(0, 0), sys.executable, "-c", BURN)
    try:
        wait_for(lambda: cpu_s(group, 0, 0) > 0.05, "it did not run")
        group.freeze(0, 0, frozen=True)
        assert group.is_frozen(0, 0)
        used = cpu_s(group, 0, 0)
        time.sleep(0.2)
        assert cpu_s(group, 0, 0) == pytest.approx(used, abs=0.01)
        group.freeze(0, 0, frozen=False)
        assert not group.is_frozen(0, 0)
        wait_for(
            lambda: cpu_s(group, 0, 0) > used + 0.05, "it did not resume"
        )
    finally:
        process.kill()
        process.wait()


def test_a_nodes_quota_and_a_vms_weight_reach_the_kernel(
    group: RunCgroup,
) -> None:
    group.add_vm(1, 0)
    group.set_quota(1, 0.5)
    group.set_weight(1, 0, 10_000)
    node = (
        next(
            p
            for p in group.paths
            if p.parent.parent == LAYOUT.mounts["cpu"]
        )
        / "node1"
    )
    if LAYOUT.version == 2:
        assert (node / "cpu.max").read_text().split() == ["5000", "10000"]
        assert (node / "vm0" / "cpu.weight").read_text().strip() == "10000"
    else:
        assert (node / "cpu.cfs_quota_us").read_text().strip() == "5000"
        assert (node / "vm0" / "cpu.shares").read_text().strip() == "20000"


def test_the_smallest_quotas_take_a_longer_period(group: RunCgroup) -> None:
    group.add_vm(1, 0)
    group.set_quota(1, 0.02)
    node = (
        next(
            p
            for p in group.paths
            if p.parent.parent == LAYOUT.mounts["cpu"]
        )
        / "node1"
    )
    if LAYOUT.version == 2:
        assert (node / "cpu.max").read_text().split() == ["1000", "50000"]
    else:
        assert (node / "cpu.cfs_quota_us").read_text().strip() == "1000"
        assert (node / "cpu.cfs_period_us").read_text().strip() == "50000"


def test_a_nodes_vms_get_no_more_than_its_quota_together(
    group: RunCgroup,
) -> None:
    files = [group.add_vm(1, vm) for vm in range(2)]
    group.set_quota(1, 0.3)
    began = time.monotonic()
    processes = [
        start_in(joins, sys.executable, "-c", BURN) for joins in files
    ]
    try:
        wait_for(lambda: used_s(group, 1, 2) > 0.5, "they did not run")
        used = used_s(group, 1, 2)
        # Ten periods of grace: what a period's end is late by, and slices handed out before it.
        assert used < 0.3 * (time.monotonic() - began + 0.1)
        group.set_quota(1, os.cpu_count() or 1)
        wait_for(
            lambda: used_s(group, 1, 2) > used + 0.5,
            "they did not resume without a quota",
        )
    finally:
        end(processes)


def test_a_vm_in_the_background_gets_what_the_foreground_leaves(
    group: RunCgroup,
) -> None:
    """10,000 to 1 on one processor, as long as both want it; all of it when the other stops."""
    one = min(os.sched_getaffinity(0))
    alone = f"import os\nos.sched_setaffinity(0, {{{one}}})\n{BURN}"
    files = [group.add_vm(1, vm) for vm in range(2)]
    group.set_weight(1, 0, 10_000)
    group.set_weight(1, 1, 1)
    processes = []
    try:
        # The one behind first: beside the other it would hardly come to its first line.
        for vm in (1, 0):
            processes.append(
                start_in(files[vm], sys.executable, "-c", alone)
            )
            wait_for(
                partial(pinned, processes[-1].pid, one),
                "it did not come to its burning",
            )
        ahead, behind = cpu_s(group, 1, 0), cpu_s(group, 1, 1)
        wait_for(
            lambda: cpu_s(group, 1, 0) > ahead + 1.0,
            "the one ahead did not run",
        )
        assert (
            cpu_s(group, 1, 1) - behind < (cpu_s(group, 1, 0) - ahead) / 20
        )
        group.freeze(1, 0, frozen=True)
        behind = cpu_s(group, 1, 1)
        wait_for(
            lambda: cpu_s(group, 1, 1) > behind + 0.2,
            "the one behind did not run",
        )
    finally:
        group.freeze(1, 0, frozen=False)
        end(processes)


SPIN = "while :; do :; done"


def test_no_number_of_busy_vms_takes_the_testbeds_share(
    group: RunCgroup,
) -> None:
    """On one processor: beside twenty of them the testbed's process has most
    of it, and another one, as the machine's switch, more than a VM.
    """
    processor = str(min(os.sched_getaffinity(0)))
    spin = ("taskset", "-c", processor, "sh", "-c", SPIN)
    main = tuple(
        path / "cgroup.procs" for path in group.paths[-len(LAYOUT.roots) :]
    )
    home = tuple(root / "cgroup.procs" for root in LAYOUT.roots)
    vms = [start_in(group.add_vm(node, 0), *spin) for node in range(20)]
    others = [start_in(main, *spin)]
    if (
        LAYOUT.version == 1
    ):  # version 2 takes none in a group that hands out
        # A session of its own: the kernel groups processes by it (autogroup).
        others.append(start_in(home, "setsid", *spin))
    try:
        for process in (*vms, *others):
            wait_for(partial(runs, process.pid), "it does not compute")
        before = [spent_s([process]) for process in others]
        vms_before = spent_s(vms)
        wait_for(
            lambda: spent_s(others[:1]) - before[0] > 2.0,
            "the testbed's process has no processor",
        )
        used = [
            spent_s([process]) - s
            for process, s in zip(others, before, strict=True)
        ]
        by_vms = spent_s(vms) - vms_before
    finally:
        end([*vms, *others])
    # 16 : 6 on two processors; with all in one group it was 10 : 20.
    assert used[0] > 1.5 * by_vms
    if len(used) > 1:
        # 1 : 6; it was 1 : 16, and is with fewer VMs too.
        assert used[1] > by_vms / 10


def runs(pid: int) -> bool:
    return psutil.Process(pid).name() == "sh" and spent_s_of(pid) > 0.0


def spent_s(processes: list[subprocess.Popen[bytes]]) -> float:
    """Processor time of processes."""
    return sum(spent_s_of(process.pid) for process in processes)


def spent_s_of(pid: int) -> float:
    return psutil.Process(pid).cpu_times().user


def pinned(pid: int, processor: int) -> bool:
    return os.sched_getaffinity(pid) == {processor}


def used_s(group: RunCgroup, server: int, n_vms: int) -> float:
    return sum(cpu_s(group, server, vm) for vm in range(n_vms))


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def test_a_node_that_takes_more_memory_than_it_may_is_ended(
    group: RunCgroup,
) -> None:
    files = group.add_vm(2, 0)
    if not group.set_memory(2, 32 << 20):
        pytest.skip("this machine's control groups have no memory quotas")
    hungry = start_in(
        files,
        sys.executable,
        "-c",
        "x = bytearray(200 << 20); print(len(x))",
    )
    assert hungry.wait(60) == -9


def test_a_vm_that_takes_more_than_it_may_is_told(group: RunCgroup) -> None:
    files = group.add_vm(2, 0)
    if not (
        group.set_memory(2, 32 << 20, 0) and group.set_processes(2, 0, 4)
    ):
        pytest.skip("this machine's control groups lack memory or pids")
    assert group.limits_reached(2, 0) == ()
    forking = start_in(
        files, sys.executable, "-c",
        "import subprocess\nfor _ in range(6): subprocess.Popen(['sleep', '60'])",
    )  # fmt: skip
    assert forking.wait(60) == 1
    assert group.limits_reached(2, 0) == ("processes",)
    group.end_vm(2, 0)
    hungry = start_in(files, sys.executable, "-c", "bytearray(200 << 20)")
    assert hungry.wait(60) == -9
    assert group.limits_reached(2, 0) == ("processes", "memory")


HOLDS = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
held = []
for _ in range(64):
    try:
        sender = socket.create_connection(listener.getsockname(), timeout=2)
        held += [sender, listener.accept()[0]]
        sender.setblocking(False)
        while True:
            sender.send(bytes(1 << 16))
    except (BlockingIOError, TimeoutError):
        pass
print(len(held))
"""


def test_sockets_of_a_vm_hold_no_more_than_they_may(
    group: RunCgroup,
) -> None:
    files = group.add_vm(2, 0)
    if group.layout.version == 2 or not group.set_memory(2, 64 << 20, 0):
        pytest.skip("they are of a group's memory, or it has no limit")
    (counted,) = (
        path / "node2" / "vm0" / "memory.kmem.tcp.max_usage_in_bytes"
        for path in group.paths
        if (
            path / "node2" / "vm0" / "memory.kmem.tcp.usage_in_bytes"
        ).exists()
    )
    assert start_in(files, sys.executable, "-c", HOLDS).wait(60) == 0
    # Of 64 connections some 400 MiB without a limit. What a group takes a
    # little beyond it is for packets under way.
    assert 30 << 20 < int(counted.read_text()) < 40 << 20


def test_a_vms_processes_end_frozen_or_not(group: RunCgroup) -> None:
    files = group.add_vm(0, 0)
    process = start_in(files, sys.executable, "-c", BURN)
    wait_for(lambda: joined(process.pid, files), "it did not join")
    group.freeze(0, 0, frozen=True)
    group.end_vm(0, 0)
    assert process.wait(60) == -9


@pytest.mark.parametrize("weight", [0, 10_001])
def test_a_weight_out_of_range_is_refused(
    group: RunCgroup, weight: int
) -> None:
    group.add_vm(0, 0)
    with pytest.raises(ValueError, match="outside 1"):
        group.set_weight(0, 0, weight)


def test_a_vms_group_goes_when_its_processes_have_gone(
    group: RunCgroup,
) -> None:
    files = group.add_vm(0, 0)
    group.remove_vm(0, 0)
    assert not any(file.parent.exists() for file in files)
    group.remove_vm(0, 0)


def test_removal_kills_even_what_is_frozen_or_forks(
    group: RunCgroup,
) -> None:
    frozen = start_in(group.add_vm(0, 0), "sleep", "60")
    forking = start_in(
        group.add_vm(0, 1), sys.executable, "-c",
        "import os, time\nfor _ in range(5):\n os.fork()\ntime.sleep(60)",
    )  # fmt: skip
    procs = group.add_vm(0, 1)[-1]
    wait_for(
        lambda: len(procs.read_text().split()) == 32, "it did not fork"
    )
    wait_for(
        lambda: joined(frozen.pid, group.add_vm(0, 0)), "it did not join"
    )
    group.freeze(0, 0, frozen=True)
    remove_groups(group.paths)
    assert frozen.wait() == -9
    assert forking.wait() == -9
    assert not any(path.exists() for path in group.paths)


BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


@pytest.mark.timeout(500)
def test_a_fork_bomb_ends_at_once(group: RunCgroup) -> None:
    """Killed one by one as they are found, its processes are never all found."""
    files = group.add_vm(0, 0)
    # Beside the bomb the others of this machine keep their processors.
    group.set_quota(0, 0.3)
    most = 1_500
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NPROC, ({most}, {most}))\n"
    become = "os.setgid(54321); os.setuid(54321)\n"
    first = start_in(
        files, sys.executable, "-c", f"import os\n{limit}{become}{BOMB}"
    )
    # On an emulated processor, of which it has 0.3, it forks six times a second.
    wait_for(
        lambda: len(files[-1].read_text().split()) > 1_000, "no bomb", 400.0
    )
    group.end_vm(0, 0)
    assert files[-1].read_text() == ""
    assert first.wait(60) == -9


CHILD = """
import os, sys
from testbed.backends.emu.cgroups import RunCgroup, probe_layout
group = RunCgroup(probe_layout(), sys.argv[1])
before = open("/proc/self/cgroup").read()
group.enter()
print(open("/proc/self/cgroup").read().count(sys.argv[1]))
group.leave()
print(open("/proc/self/cgroup").read() == before)
"""


def test_a_run_enters_its_group_and_leaves_it_for_where_it_was(
    group: RunCgroup,
) -> None:
    run = group.paths[0].name
    done = subprocess.run(
        [sys.executable, "-c", CHILD, run],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == [str(len(LAYOUT.roots)), "True"]


def test_this_process_is_never_killed(group: RunCgroup) -> None:
    group.enter()
    try:
        with pytest.raises(RuntimeError, match="itself in"):
            remove_groups(group.paths)
    finally:
        group.leave()


def test_a_service_is_released_and_survives_the_run(
    group: RunCgroup,
) -> None:
    service = start_in(group.add_vm(0, 0), "sleep", "60")
    try:
        wait_for(
            lambda: joined(service.pid, group.add_vm(0, 0)),
            "it did not join",
        )
        release(service.pid)
        remove_groups(group.paths)
        assert service.poll() is None
    finally:
        service.kill()
        service.wait()


def test_a_process_outside_is_left_where_it_is() -> None:
    before = Path("/proc/self/cgroup").read_text()
    release(os.getpid())
    assert Path("/proc/self/cgroup").read_text() == before


@pytest.fixture
def pressed() -> Iterator[Path]:
    """A group of which the kernel counts stalls (PSI), also beside version 1."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            break
    else:
        pytest.skip("no control groups of version 2 are mounted")
    made = (
        Path(mount.split()[4]) / f"hosenet-pressed-{secrets.token_hex(4)}"
    )
    made.mkdir()
    try:
        try:
            (made / "cpu.pressure").read_text()
        except OSError as error:
            pytest.skip(f"the kernel counts no stalls: {error.strerror}")
        yield made
    finally:
        remove_groups((made,))


def test_programs_waits_are_the_kernel_s_own_count(pressed: Path) -> None:
    """Two that share a processor wait in turn: all the time it is one of them."""
    waits = Waits(pressed)
    core = min(os.sched_getaffinity(0))
    pinned = f"import os; os.sched_setaffinity(0, [{core}])\n{BURN}"
    burning = [
        start_in((pressed / "cgroup.procs",), sys.executable, "-c", pinned)
        for _ in range(2)
    ]
    try:
        # Of agents it would count nothing process by process.
        agents = [process.pid for process in burning]
        wait_for(lambda: waits.look(agents) >= 1.0, "the group never waits")
        # Before and after: this process may wait in between, too.
        before = [waited_s(process.pid) for process in burning]
        counted_s = waits.look(agents)
        after = [waited_s(process.pid) for process in burning]
        # While one runs the other waits; beside others both do, counted once.
        assert max(before) / 2 <= counted_s <= sum(after) + 1.0
    finally:
        for process in burning:
            process.kill()
            process.wait()


def waited_s(pid: int) -> float:
    """Time that a process has waited for a processor."""
    now = spent(pid)
    return now.waited_s if now else 0.0


# Each says "up" when its processes are as they are to be, and stays.
HOSTILE = {
    "stopped": """
for _ in range(20):
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
""",
    "daemons": """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()
""",
    # Each waits in the kernel (state D) for a child that is stopped.
    "waiting": """
libc = ctypes.CDLL(None)
for _ in range(10):
    if os.fork() == 0:
        if libc.vfork() == 0:
            libc.kill(libc.getpid(), signal.SIGSTOP)
            time.sleep(600)
        os._exit(0)
""",
    "threads": """
threading.stack_size(1 << 16)
for _ in range(50):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
""",
    "a forker of the stopped": """
def fork_on():
    while True:
        if os.fork() == 0:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(600)
        time.sleep(0.001)
if os.fork() == 0:
    fork_on()
""",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_whatever_its_processes_are_a_vm_ends(
    group: RunCgroup, kind: str
) -> None:
    files = group.add_vm(0, 0)
    group.set_processes(0, 0, 200)
    code = "import ctypes, os, signal, sys, threading, time\n"
    code += HOSTILE[kind] + "print('up', flush=True)\ntime.sleep(600)\n"
    hostile = subprocess.Popen(
        [sys.executable, "-c", JOIN + code, *map(str, files)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with hostile:
        assert hostile.stdout is not None
        assert hostile.stdout.readline() == "up\n"
        members = [int(pid) for pid in files[0].read_text().split()]
        group.end_vm(0, 0)
        group.remove_vm(0, 0)
    assert len(members) > 0
    assert not any(file.parent.exists() for file in files)
    assert not any(map(lives, members))


def test_a_program_that_enters_at_its_vms_removal_is_ended(
    group: RunCgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `testbed exec` may, between the end of all others and the removal."""
    monkeypatch.setattr(cgroups, "TIMEOUT_S", 5.0)
    files = group.add_vm(0, 0)
    group.end_vm(0, 0)
    late = start_in(files, "sleep", "600")
    wait_for(partial(joined, late.pid, files), "it did not enter")
    group.remove_vm(0, 0)
    assert late.wait(60) == -9
    assert not any(file.parent.exists() for file in files)


def test_what_prepares_moves_moves_nothing(group: RunCgroup) -> None:
    """Its own process alone, into the group that it is in."""
    code = (
        f"import sys\nsys.path.insert(0, {str(PROJECT)!r})\n"
        "from testbed.backends.emu.cgroups import RunCgroup, probe_layout\n"
        "group = RunCgroup(probe_layout(), sys.argv[1])\n"
        "ours = lambda: open('/proc/self/cgroup').read()\n"
        "before = ours()\n"
        "group.prepare_moves()\n"
        "print(ours() == before)\n"
        "group.enter()\n"
        "inside = ours()\n"
        "group.prepare_moves()\n"
        "print(ours() == inside != before)\n"
        "group.leave()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, group.paths[0].name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "True\nTrue\n"
