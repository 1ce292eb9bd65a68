"""``testbed run`` from outside: what it leaves, what it refuses, what interrupts it."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_groups import control_groups
from tests.support.own_addresses import free_port

REPOSITORY = Path(__file__).parents[2]

SMALL = """
name: small
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.02}
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - {id: ring, vms: 4, bandwidth: 500 Mbit/s, granted: 250 Mbit/s, duration: 1 s, pattern: ring}
    - {id: shuffle, vms: 3, bandwidth: 300 Mbit/s, duration: 1 s, pattern: all-to-all, after: ring}
    - {id: count, vms: 2, bandwidth: 400 Mbit/s, duration: 1 s, cpu: 10 %,
       demand: [{until: 50 %, at: 40 Mbit/s}, {until: 100 %, at: 400 Mbit/s}]}
    - {id: burn, vms: 1, kind: compute, duration: 1 s, cpu: 20 %}
    - {id: huge, vms: 8, bandwidth: 900 Mbit/s, duration: 1 s}
# What is tested here does not depend on how busy the machine is.
expect: {fidelity: invalid}
"""


# Where any job will do.
SHORT = """
name: small
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.02}
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - {id: ring, vms: 3, bandwidth: 500 Mbit/s, duration: 1 s, pattern: ring}
    - {id: burn, vms: 1, kind: compute, duration: 1 s, cpu: 20 %}
expect: {fidelity: invalid}
"""

# Where no packet needs to be sent: it has no load test either.
COMPUTING = "".join(
    line
    for line in SHORT.splitlines(keepends=True)
    if "{id: ring" not in line
)

# One that runs until somebody ends it, however slow the machine is.
LONG = SMALL.replace(
    "duration: 1 s, pattern: ring", "duration: 300 s, pattern: ring"
)


class Testbed:
    """The command, with a state folder, ports and a prefix of the test's own."""

    __test__ = False

    def __init__(self, prefix: str, folder: Path) -> None:
        self.out = folder / "runs"
        self.file = folder / "small.yaml"
        self.file.write_text(SMALL, encoding="utf-8")
        self.state = folder / "state"
        self.ports = (free_port(), free_port())
        self.environment = {
            **os.environ,
            "HOSENET_STATE_DIR": str(self.state),
            "PYTHONPATH": str(REPOSITORY),
        }
        self.options = [
            *("--prefix", prefix),
            *("--openflow-port", str(self.ports[0])),
            *("--api-port", str(self.ports[1])),
            *("--out", str(self.out)),
        ]

    def start(self, *more: str, verb: str = "run") -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(verb, str(self.file), *self.options, *more),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # For a hang under software emulation (tests/vm); elsewhere the test's own limit comes first.
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )

    def live(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.run("run", str(self.file), *self.options, *more)

    def remove_left(self) -> None:
        """Remove whatever a test has left, which is nothing unless it failed."""
        if self.marks:
            assert self.run("clean").returncode == 0

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "testbed.cli.main", *arguments]

    @property
    def marks(self) -> list[str]:
        """The runs that have a journal now."""
        return [path.stem for path in (self.state / "runs").glob("*.jsonl")]

    @property
    def folder(self) -> Path:
        (folder,) = self.out.iterdir()
        return folder

    def events(self) -> list[dict[str, Any]]:
        text = (self.folder / "events.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def until(
        self, event: str, process: subprocess.Popen[str], times: int = 1
    ) -> None:
        """Wait until the run has written so many events of that name.

        For five minutes: a slow machine takes one to make a network of many
        VMs.
        """
        give_up = time.monotonic() + 300
        while time.monotonic() < give_up and process.poll() is None:
            if self.out.exists() and any(self.out.iterdir()):
                log = self.folder / "events.jsonl"
                text = log.read_text("utf-8") if log.exists() else ""
                if text.count(f'"{event}"') >= times:
                    return
            time.sleep(0.02)
        pytest.fail(f"no {event} came: {process.communicate(timeout=60)}")


@pytest.fixture
def testbed(prefix: str, tmp_path: Path) -> Iterator[Testbed]:
    own = Testbed(prefix, tmp_path)
    yield own
    own.remove_left()


@dataclass(frozen=True)
class Finished:
    """A run of SMALL that has ended, for tests that look at what it left."""

    testbed: Testbed
    done: subprocess.CompletedProcess[str]

    @property
    def library(self) -> str:
        """The library of its controller."""
        return library_of(self.testbed)


def library_of(testbed: Testbed) -> str:
    """The library of a run's controller."""
    text = (testbed.folder / "provenance.json").read_text("utf-8")
    return str(json.loads(text)["live"]["controller"]["library"])


@pytest.fixture(scope="module")
def finished(
    make_prefix: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Finished]:
    own = Testbed(make_prefix(), tmp_path_factory.mktemp("finished"))
    library = "ryu" if importlib.util.find_spec("ryu") else "os-ken"
    yield Finished(own, own.live("--json", "--controller", library))
    own.remove_left()


@pytest.fixture
def short(testbed: Testbed) -> Testbed:
    testbed.file.write_text(SHORT, encoding="utf-8")
    return testbed


@pytest.fixture
def computing(testbed: Testbed) -> Testbed:
    testbed.file.write_text(COMPUTING, encoding="utf-8")
    return testbed


def cgroups_of(mark: str) -> list[Path]:
    """Groups of a run's VMs, and of its own processes beside them."""
    return [
        group
        for group in control_groups()
        if group.name == mark
        and group.parent.name in ("hosenet", "hosenet-main")
    ]


@pytest.mark.smoke
def test_a_rate_beyond_any_machine_is_refused(testbed: Testbed) -> None:
    testbed.options += ["--set", "expect={}"]
    refused = testbed.live("--set", "scale.rate=1000")
    assert refused.returncode == 3, refused.stderr
    assert "of what this machine can do" in refused.stderr
    assert "--force runs all the same" in refused.stderr
    (folder,) = testbed.out.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["status"], summary["fidelity"]["verdict"]) == (
        "failed",
        "invalid",
    )
    assert testbed.run("audit", str(folder)).returncode == 0
    assert not testbed.marks


def assert_evidence_covers(
    folder: Path, job_id: str, late_s: float
) -> None:
    """The lack seen of a job reaches to its end, however busy the machine is."""
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "job_ended" and event["job_id"] == job_id:
            evidence = event["detail"]["evidence"]
            if evidence["watched_s"] > 0:
                late_s = max(0.0, late_s)
                assert evidence["missing_s"] == pytest.approx(
                    late_s, abs=0.02
                )


@pytest.mark.smoke
def test_a_rate_that_fits_is_found(short: Testbed) -> None:
    testbed = short
    testbed.options += ["--set", "expect={}"]
    found = testbed.live("--set", "scale.rate=auto", "--json")
    assert found.returncode in (0, 1), found.stderr
    (folder,) = testbed.out.iterdir()
    scale = json.loads((folder / "spec.resolved.json").read_text())["scale"]
    assert scale["auto"]
    assert 0 < scale["rate"] <= 1
    assert f"scale.rate: auto -> {scale['rate']:g}, tested" in found.stderr


def test_every_job_gets_its_outcome_and_the_folder_is_complete(
    finished: Finished,
) -> None:
    testbed, done = finished.testbed, finished.done
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)
    assert (summary["jobs"], summary["finished"], summary["rejected"]) == (
        5,
        4,
        1,
    )
    assert summary["audit_passed"]
    assert summary["fidelity"]["verdict"] in ("ok", "suspect", "invalid")
    with (testbed.folder / "jobs.csv").open(encoding="utf-8") as file:
        jobs = {row["job_id"]: row for row in csv.DictReader(file)}
    assert jobs["huge"]["outcome"] == "rejected"
    assert jobs["huge"]["reason"]
    assert float(jobs["ring"]["estimate_s"]) == 2.0
    assert all(
        float(jobs[j]["measured_s"]) > 0
        for j in ("ring", "shuffle", "count", "burn")
    )
    late_s = float(jobs["ring"]["measured_s"]) - 2.0
    assert_evidence_covers(testbed.folder, "ring", late_s)
    present = {path.name for path in testbed.folder.iterdir()}
    assert present >= {
        "spec.yaml", "spec.resolved.json", "provenance.json", "plan", "events.jsonl",
        "jobs.csv", "links.csv", "summary.json", "logs", "report.html",
    }  # fmt: skip


@pytest.mark.smoke
def test_data_handed_to_the_network_arrived_and_was_acknowledged(
    finished: Finished,
) -> None:
    assert finished.done.returncode == 0
    events = finished.testbed.events()
    ended = {e["job_id"]: e for e in events if e["event"] == "job_ended"}
    for job in ("ring", "shuffle", "count"):
        detail = ended[job]["detail"]
        assert detail["volume_bytes_raw"] > 0
        assert detail["received_bytes_raw"] == detail["volume_bytes_raw"]
        assert (
            detail["acknowledged_bytes_raw"] == detail["volume_bytes_raw"]
        )
        assert detail["congestion_control"] == ["cubic"]
        assert set(detail["exit_codes"]) == {0}
    # 500 Mbit/s for 1 s from each of 4 VMs, a fiftieth of it on the wire, payload only;
    # in packets of 8 segments, beside an acknowledgement for each that is received.
    payload_bytes = 10_000_000 * 1448 // (8 * 1514)
    sent_bytes = payload_bytes * (8 * 1514) // (8 * 1514 + 66)
    assert ended["ring"]["detail"]["volume_bytes_raw"] == 4 * sent_bytes


@pytest.mark.smoke
def test_what_was_installed_is_what_was_planned(finished: Finished) -> None:
    testbed = finished.testbed
    assert finished.done.returncode == 0
    planned = testbed.run("plan", str(testbed.file), "--job", "ring")
    assert planned.returncode == 0
    installed = next(testbed.folder.glob("plan/*-ring.txt")).read_text(
        encoding="utf-8"
    )
    prefix = testbed.options[1]
    shown = (
        planned.stdout.split("\n", 1)[1]
        .rstrip("\n")
        .replace("hn-", f"{prefix}-")
    )
    assert installed.rstrip("\n") == shown


@dataclass(frozen=True)
class Interrupted:
    """A run of LONG that has ended by Ctrl-C. ``processes``: command and users of
    each that it had while its jobs ran.
    """

    testbed: Testbed
    mark: str
    processes: tuple[tuple[str, frozenset[str]], ...]
    exit_code: int
    narration: str

    @property
    def library(self) -> str:
        """The library of its controller."""
        return library_of(self.testbed)


@pytest.fixture(scope="module")
def interrupted(
    make_prefix: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Interrupted]:
    own = Testbed(make_prefix(), tmp_path_factory.mktemp("interrupted"))
    own.file.write_text(LONG, encoding="utf-8")
    # The other library than that of the run that ends, where both are there.
    library = "os-ken" if importlib.util.find_spec("os_ken") else "ryu"
    running = own.start("--controller", library)
    # Of the jobs that come at once all agents have been forked, and have
    # become their users.
    own.until("job_started", running, times=3)
    own.until("job_progress", running)
    (mark,) = own.marks
    processes = tuple(processes_of(mark, running.pid))
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=60)
    yield Interrupted(own, mark, processes, running.returncode, stderr)
    own.remove_left()


def test_either_controller_library_runs_it(
    finished: Finished, interrupted: Interrupted
) -> None:
    """A run that ends, and one whose jobs ran until Ctrl-C."""
    pytest.importorskip("ryu")
    pytest.importorskip("os_ken")
    assert finished.done.returncode == 0, finished.done.stderr
    assert finished.library == "ryu"
    assert interrupted.library == "os-ken"


@pytest.mark.long
@pytest.mark.needs("os-ken")
def test_a_whole_run_under_os_ken(short: Testbed) -> None:
    run = Finished(short, short.live("--controller", "os-ken"))
    assert run.done.returncode == 0, run.done.stderr
    assert run.library == "os-ken"


def processes_of(
    mark: str, run_pid: int
) -> Iterator[tuple[str, frozenset[str]]]:
    """Commands in a run's groups with their users, but for the run itself."""
    pids = set()
    for folder in cgroups_of(mark):
        for procs in folder.glob("**/cgroup.procs"):
            pids |= {int(pid) for pid in procs.read_text().split()}
    for pid in pids - {run_pid}:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        (users,) = re.findall(r"^Uid:\t(.*)$", status, re.MULTILINE)
        words = command.replace(b"\0", b" ").decode()
        yield words, frozenset(users.split())


def test_agents_and_controller_are_nobody(interrupted: Interrupted) -> None:
    unprivileged = []
    root = []
    for command, users in interrupted.processes:
        kind = root if "0" in users else unprivileged
        kind.append(command)
    assert any("controller.launch" in command for command in unprivileged)
    assert sum("forkserver" in command for command in unprivileged) >= 4
    # One process forks the agents and needs root for that; the agents themselves do not.
    assert all(
        "forkserver" in command or "tc" in command for command in root
    ), root
    assert sum("forkserver" in command for command in root) <= 1


def test_ctrl_c_ends_in_130_with_a_complete_folder_and_nothing_left(
    interrupted: Interrupted,
) -> None:
    testbed = interrupted.testbed
    assert interrupted.exit_code == 130, interrupted.narration
    assert testbed.marks == []
    assert cgroups_of(interrupted.mark) == []
    ended = [e for e in testbed.events() if e["event"] == "job_ended"]
    assert {e["outcome"] for e in ended} >= {"unfinished"}
    assert testbed.events()[-1]["status"] == "interrupted"
    assert (testbed.folder / "summary.json").exists()
    assert testbed.run("audit", str(testbed.folder)).returncode == 0


@pytest.mark.short("1")
@pytest.mark.parametrize("moment", range(4))
def test_sigkill_at_any_moment_leaves_nothing_after_clean(
    testbed: Testbed, moment: int
) -> None:
    running = testbed.start()
    # Not a measurement: any moment will do, and each run of the tests takes others.
    time.sleep(0.3 + 1.2 * moment + random.uniform(0, 1.2))
    running.kill()
    running.communicate(timeout=60)
    marks = testbed.marks if testbed.state.exists() else []
    cleaned = testbed.run("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert testbed.marks == []
    assert [path for mark in marks for path in cgroups_of(mark)] == []


def test_the_next_run_cleans_up_after_a_killed_one(
    computing: Testbed,
) -> None:
    running = computing.start()
    computing.until("job_started", running)
    running.kill()
    running.communicate(timeout=60)
    done = computing.live()
    assert done.returncode == 0, done.stderr
    assert "removed what an earlier run left" in done.stderr


def test_a_second_testbed_is_refused_with_the_first_ones_name(
    computing: Testbed,
) -> None:
    running = computing.start()
    computing.until("job_started", running)
    # Standing still, so that it is there until the second one has come and gone.
    running.send_signal(signal.SIGSTOP)
    try:
        second = computing.live()
    finally:
        running.send_signal(signal.SIGCONT)
    assert second.returncode == 3
    assert "'small'" in second.stderr
    assert str(running.pid) in second.stderr
    running.communicate(timeout=60)
    assert running.returncode == 0


@pytest.mark.parametrize("which", [0, 1])
def test_a_taken_port_is_named_with_a_hint(
    testbed: Testbed, which: int
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", testbed.ports[which]))
        holder.listen()
        done = testbed.live()
    assert done.returncode == 3
    assert str(testbed.ports[which]) in done.stderr
    assert ("--openflow-port", "--api-port")[which] in done.stderr


def test_a_foreign_object_of_the_same_name_is_refused_and_left(
    testbed: Testbed, prefix: str
) -> None:
    name = f"{prefix}-s0v0"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        done = testbed.live()
        assert done.returncode == 3
        assert name in done.stderr
        assert Path(f"/run/netns/{name}").exists()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def test_a_result_outside_its_band_makes_the_exit_code_1(
    testbed: Testbed,
) -> None:
    text = COMPUTING.replace(
        "{fidelity: invalid}", "{estimate_ratio: {max: 0.0001}}"
    )
    testbed.file.write_text(text, encoding="utf-8")
    done = testbed.live()
    assert done.returncode == 1
    assert "outside what was expected: burn" in done.stdout


def test_a_job_that_fails_makes_the_exit_code_1_without_an_expectation(
    testbed: Testbed,
) -> None:
    failing = "duration: 1 s, command: [sh, -c, exit 3]}"
    text = COMPUTING.replace("duration: 1 s, cpu: 20 %}", failing).replace(
        "{fidelity: invalid}", "{}"
    )
    testbed.file.write_text(text, encoding="utf-8")
    done = testbed.live()
    assert done.returncode == 1
    assert (
        "outside what was expected: burn: killed: VM 0: sh ended with exit code 3"
        in done.stdout
    )


def test_a_bad_file_creates_nothing(testbed: Testbed) -> None:
    testbed.file.write_text(
        SMALL.replace("vms: 4", "vms: 400"), encoding="utf-8"
    )
    done = testbed.live()
    assert done.returncode == 2
    assert "small.yaml:9" in done.stderr
    assert not testbed.out.exists()


def test_without_root_it_says_how(
    testbed: Testbed,
    tmp_path: Path,
    as_nobody: Callable[[list[str]], subprocess.CompletedProcess[str]],
) -> None:
    done = as_nobody(
        testbed.command("run", str(REPOSITORY / "examples/quickstart.yaml"))
    )
    assert done.returncode == 3, done.stderr
    assert "sudo testbed run" in done.stderr


@pytest.fixture
def as_nobody() -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=REPOSITORY,
            env={
                "PATH": os.defpath,
                "PYTHONPATH": str(REPOSITORY),
                "HOME": "/nonexistent",
            },
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
