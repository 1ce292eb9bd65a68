"""Launched programs on the live network: names, launchers, and the end of all that they start."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs import launcher_commands
from jobs.demand import MpiLibrary, Program
from jobs.launcher_commands import LauncherCommand
from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.schedulers.actions import Start
from tests.emu.test_run import Testbed
from tests.support.agent_watch import wait_until
from tests.support.scripted_run import (
    ScriptedPolicy,
    ended,
    on,
    play,
    small_emulation,
)
from topologies.tree import tree

MBIT = 10**6
SWITCH = 3  # the only switch of three servers
VMS = ((0, 1), (1, 1), (2, 1))


@pytest.fixture(scope="module")
def emulation(
    make_prefix: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Emulation]:
    assert callable(make_prefix)
    folder: Path = tmp_path_factory.mktemp("logs")
    with small_emulation(
        tree([3], [1000 * MBIT], 2), make_prefix(), folder
    ) as up:
        yield up


def run(emulation: Emulation, **demands: Program) -> list[Any]:
    """The ends of jobs of three VMs with these demands, all at once."""
    jobs = []
    arrivals = {}
    for name, demand in demands.items():
        start = Start(name, on(SWITCH, *VMS), 400 * MBIT)
        arrivals[name] = lambda _, start=start: [start]
        jobs.append(
            JobRequest(name, 0.0, 3, 400 * MBIT, 2.0, demand=demand)
        )
    histories = play(emulation, jobs, ScriptedPolicy(arrivals))
    return [ended(histories[job.id]) for job in jobs]


def logs(emulation: Emulation, job: str) -> list[str]:
    return [
        (emulation.log_dir / f"agent-{job}.{vm}.log").read_text()
        for vm in range(3)
    ]


def finished(end: events.JobFinished) -> dict[str, Any]:
    assert end.outcome == "finished", end.reason
    return end.detail


def test_ranks_find_each_other_by_name(emulation: Emulation) -> None:
    script = (
        'echo "$(hostname) $HOME $(id -un)"; getent hosts vm2 named.1;'
        " ls /proc | grep -c '^[0-9]'"
    )
    demand = Program(words=("sh", "-c", script), ranks_per_vm=2)
    (end,) = run(emulation, named=demand)
    ranks = finished(end)["ranks"]
    assert [row["rank"] for row in ranks] == list(range(6))
    assert [row["vm"] for row in ranks] == [0, 0, 1, 1, 2, 2]
    assert {row["exit_code"] for row in ranks} == {0}
    longest_s = max(row["took_s_raw"] for row in ranks)
    assert end.measured_s == pytest.approx(longest_s, abs=1e-6)
    for vm, log in enumerate(logs(emulation, "named")):
        assert f"rank {2 * vm}: vm{vm} /tmp/named vm-user\n" in log
        assert "vm2 named.2" in log
        assert "vm1 named.1" in log


SENDS = """
import os, socket, time
rank = int(os.environ["HOSENET_RANK"])
address = os.environ["HOSENET_PEERS"].split(",")
if rank == 0:
    listener = socket.create_server((address[0], 5900), backlog=2)
    for _ in range(2):
        caller, _ = listener.accept()
        while caller.recv(65536):
            pass
        caller.close()
else:
    while True:
        try:
            caller = socket.create_connection((address[0], 5900))
            break
        except ConnectionRefusedError:
            # Each try is bytes on the wire, which count: few of them.
            time.sleep(0.05)
    caller.sendall(bytes(100000 * rank))
    # What is in the kernel's buffers at its end is not counted.
    caller.shutdown(socket.SHUT_WR)
    caller.recv(1)
"""


def test_what_each_vm_has_sent_and_received_is_counted(
    emulation: Emulation,
) -> None:
    words = ("/usr/bin/python3", "-c", SENDS)
    (end,) = run(emulation, counted=Program(words=words))
    rows = finished(end)["traffic"]
    assert [row["vm"] for row in rows] == [0, 1, 2]
    assert rows[0]["received_bytes"] > 300_000
    assert 100_000 < rows[1]["sent_bytes"] < 200_000
    assert rows[2]["sent_bytes"] > 200_000
    assert all(row["segments"] > 0 for row in rows)


def test_what_is_not_printed_is_missed(emulation: Emulation) -> None:
    words = ("sh", "-c", "echo sum 4711")
    good, bad = run(
        emulation,
        good=Program(words=words, expected=("sum 4711",)),
        bad=Program(words=words, expected=("sum 4711", "sum 4712")),
    )
    assert good.outcome == "finished"
    assert bad.outcome == "killed"
    assert bad.reason == "no rank has printed 'sum 4712'"


HOSTILE = """
import os, signal, socket, time
for number in range(1024, 65536):
    try:
        listener = socket.socket()
        listener.bind(("", number))
        listener.listen()
        os.set_inheritable(listener.fileno(), True)
        kept.append(listener)
    except (NameError, OSError):
        kept = [listener]
        if len(kept) > 500:
            break
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(signum, signal.SIG_IGN)
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execvp("sleep", ["sleep", MARK])
try:
    with open("fill", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
except OSError as error:
    print("full:", error.strerror)
time.sleep(1)
"""


def sleepers(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == ["sleep", mark]:
            found.append(process.pid)
    return found


def test_a_hostile_program_ends_with_its_job(emulation: Emulation) -> None:
    """It forks, leaves its session and parents, ignores signals, listens everywhere, fills its
    folder."""
    mark = f"6{os.getpid()}"
    script = f"MARK = {mark!r}\n{HOSTILE}"
    hostile = Program(words=("/usr/bin/python3", "-c", script))
    beside = Program(words=("sh", "-c", "sleep 3; echo unharmed"))
    end, other = run(emulation, hostile=hostile, beside=beside)
    finished(end)
    assert "full: No space left on device" in logs(emulation, "hostile")[1]
    assert sleepers(mark) == []
    assert logs(emulation, "beside") == ["unharmed\n"] * 3
    finished(other)
    # The next tenant of the same VMs finds nothing of it.
    script = "ls -A; echo $HOME; ls -d /tmp/hostile"
    words = ("sh", "-c", f"{script} || true")
    (after,) = run(emulation, after=Program(words=words))
    finished(after)
    assert logs(emulation, "after")[0].startswith(
        ".hosenet\n/tmp/after\nls: cannot access '/tmp/hostile'"
    )


def needs(command: LauncherCommand) -> Any:
    return pytest.mark.skipif(
        not command.is_installed, reason=command.missing
    )


@pytest.mark.parametrize(
    "library",
    [
        pytest.param("openmpi", marks=needs(launcher_commands.OPEN_MPI)),
        pytest.param("mpich", marks=needs(launcher_commands.MPICH)),
    ],
)
def test_mpirun_reaches_all_vms(
    emulation: Emulation, library: MpiLibrary
) -> None:
    """Without sshd, from the first VM, each rank in its own."""
    script = 'echo "rank $HOSENET_RANK in $(hostname) of $HOSENET_IP"'
    demand = Program(
        words=("sh", "-c", script),
        launch="mpi",
        mpi=library,
        ranks_per_vm=2,
        expected=("rank 5 in",),
    )
    (end,) = run(emulation, **{library: demand})
    ranks = finished(end)["ranks"]
    assert [row["rank"] for row in ranks] == list(range(6))
    assert sorted(row["vm"] for row in ranks) == [0, 0, 1, 1, 2, 2]
    for vm, log in enumerate(logs(emulation, library)):
        assert log.count(f" in vm{vm} of 10.") == 2


@needs(launcher_commands.OPEN_MPI)
def test_a_failing_rank_ends_the_job_of_all(emulation: Emulation) -> None:
    script = (
        'if [ "$HOSENET_RANK" = 1 ]; then echo no input; exit 7; fi;'
        " sleep 600"
    )
    demand = Program(words=("sh", "-c", script), launch="mpi")
    (end,) = run(emulation, failing=demand)
    assert end.outcome == "killed"
    assert end.reason == "VM 1: rank 1: sh ended with exit code 7: no input"


PYSPARK = Path("/opt/pyspark/bin/python3")
"""As examples/wild/wild-spark.yaml has it made."""
NEEDS_SPARK = pytest.mark.skipif(
    not launcher_commands.JAVA.is_installed or not PYSPARK.exists(),
    reason=f"{launcher_commands.JAVA.missing}, or {PYSPARK}",
)
SPARK_PROGRAM = """
import os, socket, sys, time
from pyspark.sql import SparkSession

def place(_):
    print("a task in", socket.gethostname(), file=sys.stderr)
    return f"{socket.gethostname()} as {os.getuid()}"

print("a session is there", SparkSession.getActiveSession() is not None)
context = SparkSession.builder.getOrCreate().sparkContext
places = context.parallelize(range(2), 2).map(place).collect()
print(sorted(places), "beside", os.getuid())
time.sleep(SECONDS)
sys.exit(CODE)
"""
CALLER = """
import socket
for tenant in range(1, 12):
    for vm in range(1, 4):
        for port in (7077, 8080, 5002):
            try:
                address = (f"10.0.{tenant}.{vm}", port)
                socket.create_connection(address, timeout=0.03)
                print("reached", address)
            except OSError:
                pass
print("called all")
"""


def writing(seconds: int, code: int) -> str:
    """The text that writes the program: VMs' users may not read tests' folders."""
    text = SPARK_PROGRAM.replace("SECONDS", str(seconds))
    text = text.replace("CODE", str(code))
    return f"open('spark_program.py', 'w').write({text!r})"


def spark_program(seconds: int, code: int = 0) -> Program:
    return Program(
        words=(str(PYSPARK), "spark_program.py"),
        launch="spark",
        prepare=("/usr/bin/python3", "-c", writing(seconds, code)),
    )


def spark_processes() -> list[int]:
    pids = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        is_java = bool(words) and words[0].endswith("java")
        if is_java and any("org.apache.spark" in word for word in words):
            pids.append(process.pid)
    return pids


@pytest.mark.long
@NEEDS_SPARK
def test_sparks_executors_are_in_the_other_vms(
    emulation: Emulation,
) -> None:
    """And no other tenant reaches its master, its page, or its remote shell."""
    demand = spark_program(seconds=8)
    caller = Program(words=("/usr/bin/python3", "-c", CALLER))
    end, other = run(emulation, spark=demand, caller=caller)
    finished(other)
    (rank,) = finished(end)["ranks"]
    assert (rank["rank"], rank["vm"], rank["exit_code"]) == (0, 0, 0)
    first, *others = logs(emulation, "spark")
    assert "a session is there True\n" in first
    words = re.search(
        r"\['vm1 as (\d+)', 'vm2 as (\d+)'] beside (\d+)", first
    )
    assert words is not None
    # Each VM has a user of its own.
    assert len({"0", *words.groups()}) == 4
    for vm, log in enumerate(others, start=1):
        assert f"remote-shell: a task in vm{vm}\n" in log
        # By its worker, which ends as the driver does.
        assert re.search(r" finished with state .* exitStatus \d+\n", log)
    for log in logs(emulation, "caller"):
        assert log == "called all\n"
    assert spark_processes() == []


@pytest.mark.long
@NEEDS_SPARK
def test_a_failing_driver_ends_sparks_job(emulation: Emulation) -> None:
    demand = spark_program(seconds=0, code=3)
    (end,) = run(emulation, failing=demand)
    assert end.outcome == "killed"
    assert end.reason.startswith(
        "VM 0: rank 0: python3 ended with exit code 3"
    )
    assert spark_processes() == []


FILE = """
name: killed
topology: {{kind: tree, fanout: [3], links: 1 Gbit/s, slots_per_server: 1}}
scale: {{rate: 0.02}}
policies: [vc]
workload:
  kind: jobs
  jobs:
    - id: lasting
      kind: program
      vms: 3
      bandwidth: 400 Mbit/s
      duration: 600 s
      {keys}
expect: {{fidelity: invalid}}
"""
LASTING = "\n".join(
    (
        "import os, time",
        "if os.fork() == 0:",
        "    os.setsid()",
        "    if os.fork(): os._exit(0)",
        "    os.execvp('sleep', ['sleep', MARK])",
        "time.sleep(600)",
    )
)


def test_nothing_of_a_program_outlives_the_run_that_is_killed(
    prefix: str, tmp_path: Path
) -> None:
    mark = f"7{os.getpid()}"
    script = _yaml_text(LASTING.replace("MARK", repr(mark)))
    run_and_kill(
        Testbed(prefix, tmp_path),
        keys=f"command: [/usr/bin/python3, -c, {script}]",
        processes=lambda: sleepers(mark),
        n_processes=3,
    )


def run_and_kill(
    testbed: Testbed,
    *,
    keys: str,
    processes: Callable[[], Sized],
    n_processes: int,
) -> None:
    """Kills a run of a program once its processes are there; they end by themselves.

    ``keys``: of the program's entry in the file.
    """
    testbed.file.write_text(FILE.format(keys=keys), encoding="utf-8")
    running = testbed.start()
    try:
        wait_until(lambda: len(processes()) == n_processes, "its processes")
    finally:
        running.send_signal(signal.SIGKILL)
        running.communicate(timeout=100)
    # Nobody has cleaned up yet.
    wait_until(lambda: len(processes()) == 0, "its processes' end")
    testbed.remove_left()


@pytest.mark.long
@NEEDS_SPARK
def test_nothing_of_spark_outlives_the_run_that_is_killed(
    prefix: str, tmp_path: Path
) -> None:
    script = _yaml_text(writing(seconds=600, code=0))
    keys = (
        "launch: spark",
        f"command: [{PYSPARK}, spark_program.py]",
        f"prepare: [/usr/bin/python3, -c, {script}]",
    )
    # Master, driver, two workers and their executors.
    run_and_kill(
        Testbed(prefix, tmp_path),
        keys="\n      ".join(keys),
        processes=spark_processes,
        n_processes=6,
    )


def _yaml_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n")
    return f'"{escaped}"'
