"""Agents behind the fork server, on the loopback interface: no root, no namespaces."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jobs.live.agent_pool import AgentPool, AgentPoolError, _Line
from jobs.live.agent_protocol import (
    AgentExited,
    AgentProgress,
    AgentRefused,
    AgentReport,
    AgentStarted,
    Ready,
    SpawnRequest,
)
from jobs.live.compute import ComputePlan
from jobs.live.patterns import VmTransfer, transfers
from jobs.live.transfer_plan import TransferPlan
from tests.support.agent_watch import (
    CONGESTION_CONTROL,
    PATIENCE,
    PORT,
    Outcome,
    Watch,
    loopback_ips,
    transfer_plans,
    wait_until,
)

pytestmark = pytest.mark.slow

SpawnAll = Callable[[Sequence[TransferPlan]], list[str]]
LIFE = [AgentStarted, Ready, AgentReport, AgentExited]


def gone(pid: int) -> bool:
    """True if the process has ended (a zombie has)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"


# --------------------------------------------------------------------------------- transfers


def paced(rate_bps: int) -> list[TransferPlan]:
    """Plans of three VMs that send 2.4 MB to both others, at once."""
    flows = transfers("all-to-all", 3, 4_800_000, Random(3))
    plans = []
    for plan in transfer_plans(flows, loopback_ips(3)):
        plans.append(replace(plan, at_once=True, rate_bps=rate_bps))
    return plans


def test_flows_at_once_share_the_vms_rate(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    # On this interface nothing else limits them; the first packets are free.
    outcomes = watch.run_together(spawn_all(paced(32_000_000)))
    for outcome in outcomes:
        report = outcome.report
        assert report.error is None
        for flow in report.received:
            assert flow.last_ns is not None
            # The sender's start: a receiver may wait for a processor first.
            start_ns = outcomes[flow.peer].report.start_ns
            assert start_ns is not None
            took_s = (flow.last_ns - start_ns) / 1e9
            assert took_s > 0.5 * 8 * 4_800_000 / 32_000_000


def test_flows_at_once_follow_another_rate(
    pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    # At the first rate they would take a day.
    names = spawn_all(paced(100))
    pool.rerate(["nobody", *names], 1_000_000_000)
    for outcome in watch.run_together(names):
        assert outcome.report.error is None


@pytest.mark.parametrize(
    ("pattern", "at_once"),
    [
        ("ring", False),
        ("permutation", False),
        ("all-to-all", False),
        ("all-to-all", True),
    ],
)
def test_every_byte_arrives_is_stamped_and_acknowledged(
    watch: Watch, spawn_all: SpawnAll, pattern: str, at_once: bool
) -> None:
    n, volume_bytes = 5, 3_000_001
    flows = transfers(pattern, n, volume_bytes, Random(3))
    plans = []
    for plan in transfer_plans(flows, loopback_ips(n)):
        plans.append(replace(plan, at_once=at_once))
    outcomes = watch.run_together(spawn_all(plans))
    reports = [outcome.report for outcome in outcomes]
    assert [outcome.kinds() for outcome in outcomes] == [LIFE] * n
    assert [(o.exited.code, o.exited.signum) for o in outcomes] == [
        (0, None)
    ] * n
    sizes = {(t.sender, t.receiver): t.size_bytes for t in flows}
    assert {
        (r.peer, i): r.size_bytes
        for i, x in enumerate(reports)
        for r in x.received
    } == sizes
    assert {
        (i, s.peer): s.size_bytes
        for i, x in enumerate(reports)
        for s in x.sent
    } == sizes
    for report in reports:
        assert report.error is None
        assert report.congestion_control == CONGESTION_CONTROL
        assert report.start_ns is not None
        for got in report.received:
            assert got.first_ns is not None
            assert got.last_ns is not None
            assert (
                report.start_ns
                <= got.first_ns
                <= got.last_ns
                <= report.end_ns
            )
            # The sender was told the very instant that the receiver stamped.
            (told,) = [
                s for s in reports[got.peer].sent if s.peer == report.index
            ]
            assert (told.acknowledged_bytes, told.acknowledged_ns) == (
                got.size_bytes,
                got.last_ns,
            )


def test_nobody_sends_before_the_start(
    pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    plans = transfer_plans(
        transfers("ring", 3, 1000, Random(0)), loopback_ips(3)
    )
    names = spawn_all(plans)
    watch.until(names, Ready)
    at_ns = time.monotonic_ns() + 300_000_000
    pool.begin(names, at_ns)
    for outcome in watch.until(names, AgentExited):
        report = outcome.report
        assert report.start_ns is not None
        assert report.start_ns >= at_ns
        assert all(
            r.first_ns is not None and r.first_ns >= at_ns
            for r in report.received
        )


def test_progress_grows_to_the_whole_volume(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    # A curve that needs at least a second and a half: several samples on any
    # machine.
    plans = transfer_plans(
        transfers("ring", 2, 1_500_000, Random(0)), loopback_ips(2)
    )
    names = spawn_all(
        [replace(plan, demand=((1.0, 8_000_000),)) for plan in plans]
    )
    for outcome in watch.run_together(names):
        samples = [
            m for m in outcome.messages if isinstance(m, AgentProgress)
        ]
        received = [sample.received_bytes for sample in samples]
        assert len(samples) > 3
        assert received == sorted(received)
        assert received[-1] == 1_500_000
        assert samples[-1].sent_bytes == 1_500_000
        assert received[1] < 1_500_000


def slow_ring(
    n: int, pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> list[str]:
    """Agents that have begun to send 8 Mbit/s of 1 GB: nobody gets near the end by itself."""
    plans = transfer_plans(
        transfers("ring", n, 10**9, Random(0)), loopback_ips(n)
    )
    names = spawn_all(
        [replace(plan, demand=((1.0, 8_000_000),)) for plan in plans]
    )
    watch.until(names, Ready)
    pool.begin(names, time.monotonic_ns())
    watch.until(names, AgentProgress)
    return names


def test_progress_alone_does_not_wake_the_caller(
    pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    names = slow_ring(2, pool, watch, spawn_all)
    for _ in range(3):
        began = time.monotonic()
        messages = pool.poll(0.2)
        assert time.monotonic() - began >= 0.2
        assert {type(message) for _, message in messages} <= {AgentProgress}
    for name in names:
        pool.signal(name, signal.SIGTERM)
    kinds = [type(message) for _, message in pool.poll(PATIENCE)]
    assert kinds[-1] is not AgentProgress


def test_a_demand_curve_sets_a_floor_to_the_time(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    # Eq. 1 over a network that never limits: τ = 0.4 s of which 0.2 s yield nothing.
    plans = transfer_plans([VmTransfer(0, 1, 200_000)], loopback_ips(2))
    plans[0] = replace(plans[0], demand=((0.5, 0), (1.0, 8_000_000)))
    sender, receiver = watch.run_together(spawn_all(plans))
    start_ns, (got,) = sender.report.start_ns, receiver.report.received
    assert start_ns is not None
    assert got.first_ns is not None
    assert got.last_ns is not None
    assert got.first_ns - start_ns > 0.19e9
    assert got.last_ns - start_ns > 0.38e9


def test_producing_burns_the_share_of_cpu(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    both = [VmTransfer(0, 1, 500_000), VmTransfer(2, 3, 500_000)]
    plans = transfer_plans(both, loopback_ips(4))
    for sender, share in ((0, 0.5), (2, 0.0)):
        plans[sender] = replace(
            plans[sender], demand=((1.0, 8_000_000),), cpu_share=share
        )
    busy, receiver, idle, _ = watch.run_together(spawn_all(plans))
    assert busy.report.error is None
    # Half of 0.5 s. What sending takes depends on the machine: as much as
    # without a share, or a bit more.
    sending_s = idle.report.cpu_s
    assert 0.24 < busy.report.cpu_s < 0.27 + 2 * sending_s
    assert receiver.report.cpu_s < busy.report.cpu_s


def test_a_flow_without_a_receiver_ends_with_the_reason(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    ips = loopback_ips(2)
    plans = transfer_plans([VmTransfer(0, 1, 1000)], ips)
    (name,) = spawn_all([replace(plans[0], connect_timeout_s=0.2)])
    (outcome,) = watch.until([name], AgentExited)
    assert outcome.exited.code == 1
    assert outcome.report.error == (
        f"no connection within 0.2 s to VM 1 at {ips[1]}:{PORT} (Connection refused)"
    )


def test_a_receiver_nobody_calls_ends_with_the_reason(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    plans = transfer_plans([VmTransfer(0, 1, 1000)], loopback_ips(2))
    (name,) = spawn_all([replace(plans[1], connect_timeout_s=0.2)])
    (outcome,) = watch.until([name], AgentExited)
    assert outcome.exited.code == 1
    assert outcome.report.error == "no call within 0.2 s from VM 0"


def test_a_peer_that_dies_ends_both_its_neighbours_with_the_reason(
    pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    names = slow_ring(3, pool, watch, spawn_all)
    pool.signal("vm1", signal.SIGKILL)
    outcomes = watch.until(names, AgentExited)
    assert outcomes[1].exited.signum == signal.SIGKILL
    assert outcomes[1].exited.code is None
    for survivor in (outcomes[0], outcomes[2]):
        assert survivor.exited.code == 1
        assert survivor.report.error is not None
        assert "lost after" in survivor.report.error
    assert "to VM 1" in str(outcomes[0].report.error) or "VM 2" in str(
        outcomes[0].report.error
    )


def test_the_kernel_keeps_no_connection_of_one_that_is_killed(
    pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    """Its neighbours stand still, as a preempted job's do: unsent bytes would wait for a week."""
    ips = loopback_ips(3)
    names = spawn_all(
        transfer_plans(transfers("ring", 3, 10**9, Random(0)), ips)
    )
    watch.until(names, Ready)
    for name in ("vm0", "vm2"):
        pool.signal(name, signal.SIGSTOP)
    pool.begin(names, time.monotonic_ns())
    watch.until(["vm1"], AgentProgress)
    time.sleep(0.2)  # until the neighbour's buffers are full
    pool.signal("vm1", signal.SIGKILL)
    watch.until(["vm1"], AgentExited)
    left = unfinished(ips)
    for name in ("vm0", "vm2"):
        pool.signal(name, signal.SIGKILL)
    assert left == []


FIN_WAIT1 = "04"


def unfinished(ips: Sequence[str]) -> list[str]:
    """Connections to addresses that nobody has any more, and that still have bytes to send."""
    there = [
        f"{int.from_bytes(socket.inet_aton(ip), sys.byteorder):08X}:"
        for ip in ips
    ]
    rows = [
        row.split()
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]
    ]
    return [
        row[2]
        for row in rows
        if row[2].startswith(tuple(there)) and row[3] == FIN_WAIT1
    ]


def test_a_sender_that_announces_another_size_is_refused(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    ips = loopback_ips(2)
    sender, receiver = transfer_plans([VmTransfer(0, 1, 1000)], ips)
    other = transfer_plans([VmTransfer(0, 1, 999)], ips)[1]
    assert receiver.receives[0].size_bytes == 1000
    outcomes = watch.until(
        spawn_all([replace(sender, connect_timeout_s=5.0), other]),
        AgentExited,
    )
    assert (
        outcomes[1].report.error
        == "VM 0 announces 1000 bytes, 999 are expected"
    )
    assert [o.exited.code for o in outcomes] == [1, 1]


def test_a_stranger_on_the_port_is_turned_away(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    ips = loopback_ips(2)
    plans = transfer_plans([VmTransfer(0, 1, 1000)], ips)
    (receiver,) = spawn_all([plans[1]])
    watch.until([receiver], AgentStarted)
    wait_until(lambda: _listens(ips[1]), "its port")
    with socket.create_connection(
        (ips[1], PORT), timeout=PATIENCE
    ) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: hosenet\r\n\r\n")
        try:
            answer = stranger.recv(1)
        except ConnectionResetError:  # it hung up with our words unread
            answer = b""
        assert answer == b""
    (sender,) = spawn_all([plans[0]])
    for outcome in watch.run_together([sender, receiver]):
        assert outcome.report.error is None


def test_an_address_that_is_not_here_ends_with_the_reason(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    plans = transfer_plans(
        [VmTransfer(0, 1, 1000)], ["127.0.0.1", "192.0.2.1"]
    )
    (name,) = spawn_all([plans[1]])
    (outcome,) = watch.until([name], AgentExited)
    assert outcome.report.error == (
        f"cannot listen at 192.0.2.1:{PORT}: Cannot assign requested address"
    )


def test_an_unknown_congestion_control_ends_with_the_reason(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    plans = transfer_plans([VmTransfer(0, 1, 1000)], loopback_ips(2))
    (name,) = spawn_all([replace(plans[0], congestion_control="vegetable")])
    (outcome,) = watch.until([name], AgentExited)
    assert outcome.exited.code == 1
    assert "cannot use TCP congestion control 'vegetable'" in str(
        outcome.report.error
    )


# ----------------------------------------------------------------------------------- compute


def test_a_compute_agent_burns_the_share_it_is_given(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> None:
    pool.spawn(
        SpawnRequest(
            "burn",
            ComputePlan(0, cpu_s=0.3, share=0.5),
            account[0],
            account[1],
        )
    )
    (outcome,) = watch.run_together(["burn"])
    report = outcome.report
    assert outcome.kinds() == LIFE
    assert report.error is None
    assert report.cpu_s == pytest.approx(0.3, abs=0.05)
    assert report.start_ns is not None
    assert report.end_ns - report.start_ns > 0.55e9  # half a core at most


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_terminated_agent_still_reports(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    signum: signal.Signals,
) -> None:
    pool.spawn(
        SpawnRequest(
            "burn",
            ComputePlan(0, cpu_s=1000.0, share=0.1),
            account[0],
            account[1],
        )
    )
    watch.until(["burn"], Ready)
    pool.begin(["burn"], time.monotonic_ns())
    watch.until(["burn"], AgentProgress)
    pool.signal("burn", signum)
    (outcome,) = watch.until(["burn"], AgentExited)
    assert outcome.exited.code == 128 + signum
    assert outcome.report.error == f"terminated by signal {int(signum)}"
    assert outcome.report.cpu_s > 0


def test_a_terminated_receiver_counts_what_had_come_before(
    pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    """Where the job resumes elsewhere, what waits in the kernel need not be sent again."""
    plans = transfer_plans([VmTransfer(0, 1, 10**9)], loopback_ips(2))
    names = spawn_all(
        [replace(plan, demand=((1.0, 8_000_000),)) for plan in plans]
    )
    sender, receiver = watch.until(names, Ready)
    pool.begin(names, time.monotonic_ns())
    watch.until(names, AgentProgress)
    pool.signal(names[1], signal.SIGSTOP)
    wait_until(
        lambda: process_state(receiver.pid) == "T",
        "a receiver that stands still",
    )
    stopped_ns = time.monotonic_ns()
    # It has read no more than was sent by then; what is sent from now on waits in its socket.
    read_bytes = sent_bytes(pool, watch, sender, stopped_ns, 0)
    sent_bytes(pool, watch, sender, stopped_ns, read_bytes + 20_000)
    pool.signal(names[1], signal.SIGTERM)
    pool.signal(names[1], signal.SIGCONT)
    watch.until([names[1]], AgentExited)
    (got,) = receiver.report.received
    assert got.size_bytes > read_bytes


def process_state(pid: int) -> str:
    return (
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    )


def sent_bytes(
    pool: AgentPool,
    watch: Watch,
    sender: Outcome,
    since_ns: int,
    least: int,
) -> int:
    """Bytes that the sender reports as sent, once ``least`` or more after ``since_ns``."""
    for _ in range(PATIENCE):
        output = [
            m for m in sender.messages if isinstance(m, AgentProgress)
        ]
        for progress in output:
            if progress.at_ns > since_ns and progress.sent_bytes >= least:
                return progress.sent_bytes
        for agent_id, message in pool.poll(1.0):
            watch.outcome(agent_id).messages.append(message)
    raise AssertionError(
        f"not more than {output[-1].sent_bytes} of {least} bytes were sent"
    )


def test_a_transfer_waiting_for_its_peers_can_be_terminated(
    pool: AgentPool, watch: Watch, spawn_all: SpawnAll
) -> None:
    plans = transfer_plans([VmTransfer(0, 1, 1000)], loopback_ips(2))
    (name,) = spawn_all([replace(plans[1], connect_timeout_s=PATIENCE)])
    watch.until([name], AgentStarted)
    # Its handler stands as soon as it listens.
    wait_until(lambda: _listens(plans[1].ip), "its port")
    pool.signal(name, signal.SIGTERM)
    (outcome,) = watch.until([name], AgentExited)
    assert outcome.report.error == "terminated by signal 15"


def _listens(ip: str) -> bool:
    try:
        socket.create_connection((ip, PORT), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


# ------------------------------------------------------------------------------- fork server


def test_the_log_is_private_and_gets_what_the_agent_prints(
    pool: AgentPool, watch: Watch, account: tuple[int, int], tmp_path: Path
) -> None:
    log = tmp_path / "vm0.log"
    pool.spawn(
        SpawnRequest(
            "vm0",
            ComputePlan(0, 0.01),
            account[0],
            account[1],
            log=str(log),
        )
    )
    watch.run_together(["vm0"])
    found = log.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())


@pytest.mark.parametrize(
    "kind", ["symlink", "hard link", "fifo", "folder missing"]
)
def test_a_log_that_is_not_a_file_of_its_own_is_refused(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
    kind: str,
) -> None:
    target, log = tmp_path / "precious", tmp_path / "vm0.log"
    target.write_text("precious")
    target.chmod(0o644)
    if kind == "symlink":
        log.symlink_to(target)
    elif kind == "hard link":
        log.hardlink_to(target)
    elif kind == "fifo":
        os.mkfifo(log)
    else:
        log = tmp_path / "nowhere" / "vm0.log"
    pool.spawn(
        SpawnRequest(
            "vm0",
            ComputePlan(0, 0.01),
            account[0],
            account[1],
            log=str(log),
        )
    )
    (outcome,) = watch.until(["vm0"], AgentRefused)
    assert outcome.kinds() == [AgentRefused]
    assert target.read_text() == "precious"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_name_is_taken_while_its_agent_lives_and_free_afterwards(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> None:
    plan = ComputePlan(0, 0.01)
    pool.spawn(SpawnRequest("vm0", plan, account[0], account[1]))
    with pytest.raises(ValueError, match="'vm0' is in the pool already"):
        pool.spawn(SpawnRequest("vm0", plan, account[0], account[1]))
    watch.run_together(["vm0"])
    pool.spawn(SpawnRequest("vm0", plan, account[0], account[1]))
    again = Watch(pool)
    (outcome,) = again.run_together(["vm0"])
    assert outcome.exited.code == 0


def test_only_children_can_be_signalled(
    pool: AgentPool, watch: Watch
) -> None:
    pool.signal("stranger", signal.SIGKILL)
    (outcome,) = watch.until(["stranger"], AgentRefused)
    (refused,) = outcome.messages
    assert refused == AgentRefused("no agent of this name is running")


def test_the_server_inherits_only_its_socket(
    pool: AgentPool, tmp_path: Path
) -> None:
    # The pool was started before this file was opened, hence one of its own.
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)  # noqa: FBT003 - the function has no keyword
        with AgentPool() as other:
            wait_until(
                lambda: "jobs.live.forkserver" in _command(other.pid),
                "the server",
            )
            kinds = list(_open_files(other.pid))
    assert not [kind for kind in kinds if kind.endswith("/lock")]
    assert sum(kind.startswith("socket:") for kind in kinds) == 1


def _open_files(pid: int) -> Iterator[str]:
    """Open files of a process; it may close some of it meanwhile, as while it imports."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(entry.readlink())


def _command(pid: int) -> str:
    return (
        Path(f"/proc/{pid}/cmdline")
        .read_bytes()
        .replace(b"\0", b" ")
        .decode()
    )


def test_an_agent_has_its_log_and_its_channel_open_and_nothing_else(
    pool: AgentPool, watch: Watch, account: tuple[int, int], tmp_path: Path
) -> None:
    log = tmp_path / "vm0.log"
    for name in ("vm0", "vm1"):
        plan = ComputePlan(0, cpu_s=1000.0, share=0.01)
        pool.spawn(
            SpawnRequest(
                name,
                plan,
                account[0],
                account[1],
                log=str(log) if name == "vm0" else None,
            )
        )
    watch.until(["vm0", "vm1"], Ready)
    (outcome,) = watch.until(["vm0"], Ready)
    folder = Path(f"/proc/{outcome.pid}/fd")
    found = {
        int(entry.name): str(entry.readlink()) for entry in folder.iterdir()
    }
    assert {
        0: "/dev/null",
        1: str(log),
        2: str(log),
    }.items() <= found.items()
    assert found[3].startswith("socket:")
    assert set(found) == {0, 1, 2, 3}


def test_closing_the_pool_ends_everything(
    watch: Watch, pool: AgentPool, account: tuple[int, int]
) -> None:
    pids = _three_that_never_end(pool, watch, account)
    server = pool.pid
    pool.close()
    assert all(gone(pid) for pid in (*pids, server))
    pool.close()


def test_the_death_of_the_server_ends_its_agents_and_is_reported(
    watch: Watch, pool: AgentPool, account: tuple[int, int]
) -> None:
    pids = _three_that_never_end(pool, watch, account)
    os.kill(pool.pid, signal.SIGKILL)
    wait_until(lambda: all(gone(pid) for pid in pids), "the end of all")
    with pytest.raises(
        AgentPoolError, match="fork server was ended by SIGKILL"
    ):
        _poll_for_ever(pool)


def _poll_for_ever(pool: AgentPool) -> None:
    while True:
        pool.poll(PATIENCE)


def test_the_death_of_the_caller_ends_server_and_agents(
    account: tuple[int, int],
) -> None:
    ours, theirs = socket.socketpair()
    caller = os.fork()
    if caller == 0:
        ours.close()
        try:
            with AgentPool() as pool:
                pids = _three_that_never_end(pool, Watch(pool), account)
                theirs.sendall(
                    " ".join(map(str, [pool.pid, *pids])).encode()
                )
                signal.pause()
        finally:
            os._exit(1)
    theirs.close()
    with ours:
        ours.settimeout(PATIENCE)
        pids = [int(word) for word in ours.recv(1000).split()]
    assert len(pids) == 4
    assert not any(gone(pid) for pid in pids)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    wait_until(lambda: all(gone(pid) for pid in pids), "the end of all")


def _three_that_never_end(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> list[int]:
    names = ["a", "b", "c"]
    for name in names:
        plan = ComputePlan(0, cpu_s=1000.0, share=0.01)
        pool.spawn(SpawnRequest(name, plan, account[0], account[1]))
    return [outcome.pid for outcome in watch.until(names, Ready)]


def test_a_request_that_is_too_long_leaves_its_name_free(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> None:
    request = SpawnRequest("vm0", ComputePlan(0, 0.01), *account)
    with pytest.raises(ValueError, match="too long"):
        pool.spawn(replace(request, log="x" * (2 << 20)))
    pool.spawn(request)
    [outcome] = watch.run_together(["vm0"])
    assert outcome.kinds() == LIFE


class _Endless:
    """A channel on which a tampered agent sends 26 MB without a line end."""

    def __init__(self) -> None:
        self.left = 400

    def recv(self, size: int) -> bytes:
        if not self.left:
            raise BlockingIOError
        self.left -= 1
        return b"x" * size


def test_an_agent_that_sends_without_end_neither_holds_up_nor_fills_memory(
    pool: AgentPool,
) -> None:
    channel: Any = _Endless()
    line = _Line("vm0", channel)
    pool._read_line(line)
    assert channel.left > 300
    while channel.left:
        pool._read_line(line)
        assert len(line.rest) <= 8 << 20
