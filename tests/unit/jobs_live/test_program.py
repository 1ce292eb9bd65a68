"""Launched programs on the loopback interface: ranks, their output, the remote shell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from jobs.demand import Launch, Program
from jobs.linux import C_COMPILERS
from jobs.live import remote_shell
from jobs.live.agent import Channel
from jobs.live.agent_pool import AgentPool
from jobs.live.agent_protocol import (
    AgentExited,
    AgentReport,
    Ready,
    SpawnRequest,
)
from jobs.live.program import ProgramAgent
from jobs.live.program_output import (
    OUTPUT_LIMIT_BYTES,
    OutputLog,
    ProgramOutput,
)
from jobs.live.program_plan import (
    SHELL_PORT,
    ProgramPlan,
    launcher_words,
    ranks_in,
)
from jobs.live.rank_waits import SLEEP_US
from tests.support.agent_watch import (
    Outcome,
    Watch,
    loopback_ips,
    wait_until,
)


def plans(
    words: Sequence[str], n_vms: int, ranks: int = 1
) -> list[ProgramPlan]:
    ips = tuple(loopback_ips(n_vms))
    plan = ProgramPlan(
        0, ips[0], ips, tuple(words), ranks=ranks, total=n_vms * ranks
    )
    return [
        replace(plan, index=index, ip=ip, first_rank=index * ranks)
        for index, ip in enumerate(ips)
    ]


def run(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
    work: Sequence[ProgramPlan],
) -> tuple[list[Outcome], list[str]]:
    """The agents' messages and logs."""
    names = [f"vm{plan.index}" for plan in work]
    logs = [tmp_path / f"{name}.log" for name in names]
    for name, plan, log in zip(names, work, logs, strict=True):
        pool.spawn(SpawnRequest(name, plan, *account, log=str(log)))
    watch.until(names, Ready)
    pool.begin(names, time.monotonic_ns() + 10_000_000)
    watch.until(names, AgentReport)
    for name in names:
        pool.signal(name, signal.SIGTERM)
    outcomes = watch.until(names, AgentExited)
    return outcomes, [log.read_text() for log in logs]


def remote_shell_place(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> tuple[str, int]:
    """Spawns an agent without ranks; the place where it serves its remote shell."""
    (plan,) = plans(("unused",), n_vms=1)
    pool.spawn(
        SpawnRequest("vm0", replace(plan, launch="mpi", ranks=0), *account)
    )
    watch.until(["vm0"], Ready)
    return plan.ip, SHELL_PORT


def finish(pool: AgentPool, watch: Watch) -> None:
    """The agent begins, and reports no error."""
    pool.begin(["vm0"], time.monotonic_ns())
    (outcome,) = watch.until(["vm0"], AgentReport)
    assert outcome.report.error is None


def end(pool: AgentPool, watch: Watch) -> None:
    """By a word: it removes its folder."""
    pool.signal("vm0", signal.SIGTERM)
    watch.until(["vm0"], AgentExited)


def test_every_rank_has_its_number_its_output_and_its_end(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
) -> None:
    script = 'echo "I am $HOSENET_RANK of $HOSENET_SIZE"; echo too >&2'
    work = plans(("sh", "-c", script), n_vms=2, ranks=2)
    outcomes, logs = run(pool, watch, account, tmp_path, work)
    for index, (outcome, log) in enumerate(
        zip(outcomes, logs, strict=True)
    ):
        report = outcome.report
        assert report.error is None
        assert outcome.exited.code == 0
        first = 2 * index
        assert [end.rank for end in report.ranks] == [first, first + 1]
        assert [end.code for end in report.ranks] == [0, 0]
        assert report.start_ns is not None
        assert report.end_ns == max(end.end_ns for end in report.ranks)
        assert report.start_ns < report.end_ns
        for rank in (first, first + 1):
            assert f"rank {rank}: I am {rank} of 4\n" in log
            assert f"rank {rank}: too\n" in log


def test_a_rank_that_fails_says_how_with_its_last_line(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
) -> None:
    work = plans(("sh", "-c", "echo no input; exit 7"), n_vms=1)
    (outcome,), (log,) = run(pool, watch, account, tmp_path, work)
    assert (
        outcome.report.error
        == "rank 0: sh ended with exit code 7: no input"
    )
    assert [end.code for end in outcome.report.ranks] == [7]
    # One rank a VM: its output stands in the log as it is.
    assert log == "no input\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("hosenet-no-such",), "cannot run 'hosenet-no-such'"),
        (("sh", "-c", "kill -9 $$"), "rank 0: sh ended with SIGKILL"),
    ],
)
def test_a_rank_without_a_program_or_killed_is_a_failure(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
    words: tuple[str, ...],
    error: str,
) -> None:
    work = plans(words, n_vms=1)
    (outcome,), _ = run(pool, watch, account, tmp_path, work)
    assert error in str(outcome.report.error)


@pytest.mark.slow
def test_preparation_comes_before_the_start_and_does_not_count(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
) -> None:
    data = tmp_path / "data.txt"
    data.write_text("4 words of data\n")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    (plan,) = plans(("sh", "-c", "cat words; ls"), n_vms=1)
    plan = replace(
        plan,
        files=(str(data),),
        prepare=("sh", "-c", "wc -w < data.txt > words; echo counted"),
        expected=("4", "data.txt", "counted"),
    )
    (outcome,), (log,) = run(pool, watch, account, tmp_path, [plan])
    assert outcome.report.error is None
    assert log == "prepare: counted\n4\ndata.txt\nwords\n"
    # Only ranks print what is expected of ranks.
    assert outcome.report.printed == (0, 1)


def test_a_preparation_that_fails_is_said(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> None:
    (plan,) = plans(("true",), n_vms=1)
    plan = replace(plan, prepare=("sh", "-c", "echo no room; exit 3"))
    pool.spawn(SpawnRequest("vm0", plan, *account))
    (outcome,) = watch.until(["vm0"], AgentExited)
    assert outcome.report.error == "prepare ended with exit code 3: no room"
    assert Ready not in outcome.kinds()


def test_a_rank_leaves_nothing_in_its_group(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
) -> None:
    work = plans(("sh", "-c", "sleep 600 & echo $!"), n_vms=1)
    _, (log,) = run(pool, watch, account, tmp_path, work)
    pid = int(log)
    wait_until(lambda: not _lives(pid), f"the end of process {pid}")


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] != "Z"


# It asks the second VM's agent for a command, as mpirun would, and the command is the rank's start.
HEAD = """
import os, subprocess, sys
shell, ip = sys.argv[1:]
there = subprocess.call([shell, ip, "exit", "9"])
start = os.environ["HOME"] + "/.hosenet/rank-start"
variables = {**os.environ, "HOSENET_RANK": "0"}
here = subprocess.Popen([start, "echo", "here"], env=variables)
rank = ["HOSENET_RANK=1", "exec", "$HOME/.hosenet/rank-start", "echo", "yonder"]
code = subprocess.call([shell, ip, *rank])
sys.exit(here.wait() or code or there != 9)
"""


@pytest.mark.slow
def test_a_launcher_reaches_the_other_vm_by_the_remote_shell(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
) -> None:
    first, second = plans(("unused",), n_vms=2)
    launcher = (
        *("sh", "-c"),
        'exec "$0" -c "$1" "$HOME/.hosenet/remote-shell" "$2"',
        *(os.path.realpath(sys.executable), HEAD, second.ip),
    )
    work = [
        replace(first, launch="mpi", launcher=launcher, expected=("here",)),
        replace(second, launch="mpi", expected=("here", "yonder")),
    ]
    outcomes, logs = run(pool, watch, account, tmp_path, work)
    assert [outcome.report.error for outcome in outcomes] == [None, None]
    assert logs == ["here\n", "yonder\n"]
    assert [outcome.report.printed for outcome in outcomes] == [(0,), (1,)]
    assert [end.rank for end in outcomes[1].report.ranks] == [1]


def test_the_remote_shell_serves_the_jobs_own_addresses_alone(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> None:
    place = remote_shell_place(pool, watch, account)
    request = json.dumps({"command": "exit 5"}).encode() + b"\n"
    with socket.create_connection(place, 60, ("127.0.0.1", 0)) as stranger:
        assert stranger.recv(10) == b""
    with socket.create_connection(place, 60, (place[0], 0)) as own:
        own.sendall(request)
        assert own.recv(10) == b"5\n"
    finish(pool, watch)
    end(pool, watch)


def test_a_call_that_is_no_request_is_hung_up_on(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> None:
    place = remote_shell_place(pool, watch, account)
    deep = b"[" * 50_000 + b"\n"
    for line in (b"GET / HTTP/1.1\r\n", b"\xff\n", b"[]\n", b"{}\n", deep):
        with socket.create_connection(place, 60, (place[0], 0)) as caller:
            caller.sendall(line)
            assert caller.recv(10) == b""
    finish(pool, watch)
    end(pool, watch)


def test_what_has_ended_is_not_heard_by_its_descriptors_next_holder() -> (
    None
):
    (plan,) = plans(("unused",), n_vms=1)
    ours, callers, silent = (socket.socketpair() for _ in range(3))
    agent = ProgramAgent(plan, Channel(ours[0]))
    ends = [*callers]
    heard = []

    def take(number: int) -> None:
        heard.append(number)
        other = ends[1 - number]
        descriptor = other.fileno()
        agent._selector.unregister(other)
        other.close()
        os.dup2(silent[0].fileno(), descriptor)
        agent._watch(descriptor, lambda: heard.append(-1))
        reused.append(descriptor)

    reused: list[int] = []
    for number, caller in enumerate(ends):
        caller.send(b"to the other")
        agent._watch(caller, partial(take, number))
    agent._attend()
    assert len(heard) == 1
    agent._selector.close()
    for descriptor in reused:
        os.close(descriptor)
    for sock in (*ours, *ends, *silent):
        sock.close()


def test_a_shell_that_is_hung_up_on_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            # With a reset, as a process that ends with unread data.
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
            connection.close()

        monkeypatch.setenv(remote_shell.PORT, str(server.getsockname()[1]))
        monkeypatch.setenv(remote_shell.ADDRESS, "127.0.0.1")
        thread = threading.Thread(target=hang_up)
        thread.start()
        code = remote_shell.main(["127.0.0.1", "true"])
        thread.join()
    assert code == remote_shell.UNREACHABLE
    assert "remote-shell: 127.0.0.1" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("first", ["true", "trap '' TERM"])
def test_a_call_ends_with_its_caller(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    first: str,
) -> None:
    """By force, where it does not end by a word."""
    place = remote_shell_place(pool, watch, account)
    with socket.create_connection(place, 10, (place[0], 0)) as own:
        begun = f"{first}; sleep 600"
        own.sendall(json.dumps({"command": begun}).encode() + b"\n")
        # A shell that has not begun has set no trap yet.
        time.sleep(1.0)
        pool.begin(["vm0"], time.monotonic_ns())
    (outcome,) = watch.until(["vm0"], AgentReport)
    assert outcome.report.error is None
    end(pool, watch)


@pytest.mark.slow
def test_a_launcher_that_starts_no_ranks_is_a_failure(
    pool: AgentPool, watch: Watch, account: tuple[int, int]
) -> None:
    (plan,) = plans(("unused",), n_vms=1)
    launcher = ("sh", "-c", "echo no hosts; exit 1")
    plan = replace(plan, launch="mpi", launcher=launcher)
    pool.spawn(SpawnRequest("vm0", plan, *account))
    (outcome,) = watch.until(["vm0"], AgentExited)
    assert outcome.report.error == "sh ended with exit code 1: no hosts"


# ------------------------------------------------------------------------------ output


def test_output_is_cut_at_its_limit(
    capfd: pytest.CaptureFixture[str],
) -> None:
    log = OutputLog(("late",))
    line = b"x" * (1 << 20)
    for _ in range(6):
        log.write(line)
    log.search(b"later")
    kept = capfd.readouterr().out
    assert OUTPUT_LIMIT_BYTES <= len(kept) < OUTPUT_LIMIT_BYTES + 100
    assert kept.endswith("[the rest of the output is not kept]\n")
    assert log.printed == {0}


@pytest.mark.parametrize("before", [65_520, 65_533, 65_536, 200_001])
def test_a_text_is_found_wherever_a_long_line_is_cut(before: int) -> None:
    log = OutputLog(("ready to serve",))
    reading, writing = os.pipe()
    output = ProgramOutput(reading, "", log, is_rank=True)
    text = b"." * before + b"ready to serve\n"
    for start in range(0, len(text), 50_000):
        os.write(writing, text[start : start + 50_000])
        assert output.pass_on()
    os.close(writing)
    os.close(reading)
    assert log.printed == {0}


def test_output_comes_in_lines_with_a_label(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reading, writing = os.pipe()
    output = ProgramOutput(reading, "rank 3: ", OutputLog(()), is_rank=True)
    os.write(writing, b"one\ntw")
    assert output.pass_on()
    os.write(writing, b"o\n\nlast")
    os.close(writing)
    assert not output.pass_on()
    os.close(reading)
    assert capfd.readouterr().out == (
        "rank 3: one\nrank 3: two\nrank 3: \nrank 3: last\n"
    )
    assert output.last == b"last"


# ------------------------------------------------------------------------------ launchers


def test_the_first_vm_starts_the_ranks_of_all() -> None:
    program = Program(words=("hpcc",), launch="mpi", ranks_per_vm=2)
    words = launcher_words(program, 3, "/vm/.hosenet")
    assert words[:5] == (
        "mpirun.openmpi",
        "--host",
        "vm0:2,vm1:2,vm2:2",
        "-np",
        "6",
    )
    assert words[-2:] == ("/vm/.hosenet/rank-start", "hpcc")
    shell = words.index("plm_rsh_agent")
    assert words[shell + 1] == "/vm/.hosenet/remote-shell"
    mpich = launcher_words(replace(program, mpi="mpich"), 2, "/x")
    assert mpich[0] == "mpiexec.hydra"
    assert mpich[-4:] == ("-n", "4", "/x/rank-start", "hpcc")
    assert launcher_words(replace(program, launch="each"), 3, "/x") == ()


@pytest.mark.parametrize("launch", ["dask", "spark"])
def test_a_client_is_in_the_first_vm(launch: Launch) -> None:
    program = Program(words=("a.py",), launch=launch, ranks_per_vm=2)
    words = launcher_words(program, 2, "/x")
    assert words[1:] == (
        *(f"/x/{launch}-head", "/x/remote-shell", "vm0,vm1", "2"),
        *("/x/rank-start", "a.py"),
    )
    assert [ranks_in(program, index) for index in range(2)] == [1, 0]


YIELDS = """
import os, time
until_s, count = time.monotonic() + 0.5, 0
while time.monotonic() < until_s:
    os.sched_yield()
    count += 1
print("yields", count)
"""


@pytest.mark.skipif(
    not any(map(shutil.which, C_COMPILERS)),
    reason="no C compiler (Debian: tcc)",
)
def test_a_rank_of_mpi_that_waits_sleeps(
    pool: AgentPool,
    watch: Watch,
    account: tuple[int, int],
    tmp_path: Path,
) -> None:
    (plan,) = plans((os.path.realpath(sys.executable), "-c", YIELDS), 1)
    start = 'HOSENET_RANK=0 exec "$HOME/.hosenet/rank-start" "$@"'
    launcher = ("sh", "-c", start, "sh", *plan.argv)
    outcomes, (log,) = run(
        pool,
        watch,
        account,
        tmp_path,
        [replace(plan, launch="mpi", launcher=launcher)],
    )
    assert outcomes[0].report.error is None
    assert 0 < int(log.split()[1]) <= 0.5e6 / SLEEP_US + 1
