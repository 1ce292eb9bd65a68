"""Killed at any moment, a run is cleaned up after to the last object, and nobody else's is touched.

``HOSENET_KILLS`` sets how many moments are tried of each kind (the default is for every day).
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from testbed.backends.emu.cleanup import clean, devices_in_group
from testbed.backends.emu.cleanup_journal import (
    STATE_VARIABLE,
    boot_id,
    journals,
)
from testbed.backends.emu.emulation import Builder
from testbed.backends.emu.open_vswitch import MACHINE, RUN_KEY
from testbed.backends.emu.part_switches import RUN_ROOT
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.errors import MachineCannot
from testbed.plan.switch_parts import MOST_WEIGHT
from tests.support import killed_run
from tests.support.control_groups import control_groups

KILLS = int(os.environ.get("HOSENET_KILLS", "4"))
ROOT = Path(__file__).parents[2]
PROGRAM = Path(killed_run.__file__)
# A round of building and removing takes a few tenths of a second here; later moments fall into
# later rounds.
LONGEST_S = 2.5
SETTINGS = (
    "/proc/sys/net/core/wmem_default",
    "/proc/sys/net/core/rmem_default",
    "/sys/kernel/rcu_expedited",
)

# Its network as a whole, and in parts of a few bridges each.
IN_PARTS = pytest.mark.parametrize(
    "most_weight", [MOST_WEIGHT, 20], ids=["whole", "in parts"]
)

pytestmark = pytest.mark.timeout(120 + 10 * KILLS)


@pytest.fixture
def state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    folder = tmp_path / "state"
    monkeypatch.setenv(STATE_VARIABLE, str(folder))
    yield folder
    clean()  # after a failure: nothing stays on the machine


def environment() -> dict[str, str]:
    """For a program of this tree, with this test's state folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Run:
    """The program of killed_run.py, started and known by its mark."""

    def __init__(
        self,
        prefix: str,
        folder: Path,
        most_weight: int = MOST_WEIGHT,
        builder: Builder = "batched",
    ) -> None:
        # A file, not a pipe: its children outlive it and would keep a pipe open.
        self._log = folder / f"run-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(PROGRAM),
                    prefix,
                    str(most_weight),
                    builder,
                ],
                stdout=log,
                stderr=log,
                env=environment(),
            )
        deadline = time.monotonic() + 60
        while not self.output.startswith("going "):
            if (
                self.process.poll() is not None
                or time.monotonic() > deadline
            ):
                pytest.fail(f"the run did not begin: {self.output}")
            time.sleep(0.01)
        self.tag = self.output.split()[1]

    @property
    def output(self) -> str:
        return self._log.read_text()

    def end(self, signum: int, after_s: float) -> None:
        """Send a signal some time into the run, and wait for its end."""
        time.sleep(after_s)
        assert self.process.poll() is None, self.output
        self.process.send_signal(signum)
        self.process.wait(timeout=60)


def traces(prefix: str, mark: str) -> list[str]:
    """Everything on this machine that a run with this prefix and mark could have left."""
    found = [f"namespace {p.name}" for p in NETNS_DIR.glob(f"{prefix}-*")]
    found += [
        f"device {n}"
        for _, n in socket.if_nameindex()
        if n.startswith(f"{prefix}-")
    ]
    found += [
        f"device {name} in group"
        for name in devices_in_group(0x4000_0000 | int(mark, 16))
    ]
    for table in ("Bridge", "Port"):
        names = [str(row[0]) for row in MACHINE.rows(table, ["name"])]
        found += [
            f"{table} {name}"
            for name in names
            if name.startswith(f"{prefix}-")
        ]
    condition = f"external_ids:{RUN_KEY}={mark}"
    found += [
        f"QoS {row}" for row in MACHINE.rows("QoS", ["_uuid"], condition)
    ]
    found += [f"folder {folder}" for folder in RUN_ROOT.glob(mark)]
    found += [
        f"group {group}"
        for group in control_groups(levels=3)
        if group.name == mark
    ]
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if any(
            argument.startswith(f"unix:{RUN_ROOT}/{mark}/")
            for argument in command
        ):
            found.append(f"switch part {process.pid}")
        if f"{prefix}-child" in command or (
            prefix in command and str(PROGRAM) in command
        ):
            found.append(f"process {process.pid}: {' '.join(command)}")
    return sorted(set(found))


def settings() -> dict[str, str]:
    return {
        name: Path(name).read_text().strip()
        for name in SETTINGS
        if Path(name).exists()
    }


def command(*arguments: str) -> str:
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


@pytest.fixture
def foreign(prefix: str) -> Iterator[list[str]]:
    """Other people's objects: some with names unlike ours, some that look just like ours."""
    unlike = f"o{prefix[1:]}"
    spaces = [f"{unlike}-ns", f"{prefix}-s0v9"]
    pairs = [
        (f"{unlike}-a", f"{unlike}-b"),
        (f"{prefix}-r9-u0", f"{prefix}-c0-d9"),
    ]
    bridges = [f"{unlike}-br", f"{prefix}-s99"]
    made = []
    sleeper = None
    try:
        for name in spaces:
            command("ip", "netns", "add", name)
        for one, two in pairs:
            command(
                "ip",
                "link",
                "add",
                one,
                "type",
                "veth",
                "peer",
                "name",
                two,
            )
            command(
                "tc",
                "qdisc",
                "add",
                "dev",
                one,
                "root",
                "handle",
                "1:",
                "htb",
            )
        for name in bridges:
            command(
                "ovs-vsctl", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev",
                f"external_ids:{RUN_KEY}=someone-else",
            )  # fmt: skip
        sleeper = subprocess.Popen(
            ["ip", "netns", "exec", spaces[1], "sleep", "4000"]
        )
        made = [f"namespace {spaces[1]}"]
        made += [f"device {name}" for name in (*pairs[1], bridges[1])]
        made += [f"{table} {bridges[1]}" for table in ("Bridge", "Port")]
        made.append(f"process {sleeper.pid}: sleep 4000")
        yield made[:-1]
        assert sleeper.poll() is None
        assert {p.name for p in NETNS_DIR.iterdir()} >= set(spaces)
        devices = {name for _, name in socket.if_nameindex()}
        assert devices >= {name for pair in pairs for name in pair} | set(
            bridges
        )
        for one, _ in pairs:
            assert "qdisc htb 1: root" in command(
                "tc", "qdisc", "show", "dev", one
            )
    finally:
        if sleeper is not None:
            sleeper.kill()
            sleeper.wait()
        for name in bridges:
            command("ovs-vsctl", "--if-exists", "del-br", name)
        for one, _ in pairs:
            subprocess.run(
                ["ip", "link", "delete", one],
                check=False,
                capture_output=True,
            )
        for name in spaces:
            subprocess.run(
                ["ip", "netns", "delete", name],
                check=False,
                capture_output=True,
            )


# One strike in the short form, the others with `--all`.
MOMENTS = pytest.mark.parametrize(
    "strikes", [1, pytest.param(KILLS, marks=pytest.mark.long)]
)


def moments(seed: str, strikes: int) -> list[float]:
    """When to strike: spread over the whole time, and never twice at the same moment."""
    random_stream = random.Random(f"{seed} {time.time_ns()}")
    return [
        (i + random_stream.random()) * LONGEST_S / strikes
        for i in range(strikes)
    ]


@MOMENTS
@IN_PARTS
def test_killed_at_any_moment_everything_is_cleaned_and_nothing_else(
    prefix: str,
    state: Path,
    tmp_path: Path,
    foreign: list[str],
    most_weight: int,
    strikes: int,
) -> None:
    before = settings()
    for after_s in moments("kill", strikes):
        run = Run(prefix, tmp_path, most_weight)
        run.end(signal.SIGKILL, after_s)
        removed = clean()
        left = [
            trace
            for trace in traces(prefix, run.tag)
            if trace not in foreign
        ]
        assert left == [], (
            f"killed after {after_s:.3f} s, clean removed {len(removed)} things"
        )
        assert journals() == []
        assert settings() == before, f"killed after {after_s:.3f} s"
        assert clean() == []


@MOMENTS
@IN_PARTS
def test_interrupted_at_any_moment_a_run_cleans_up_itself(
    prefix: str,
    state: Path,
    tmp_path: Path,
    foreign: list[str],
    most_weight: int,
    strikes: int,
) -> None:
    before = settings()
    for after_s in moments("interrupt", strikes):
        run = Run(prefix, tmp_path, most_weight)
        run.end(signal.SIGINT, after_s)
        assert run.process.returncode == 130, (
            f"after {after_s:.3f} s: {run.output}"
        )
        left = [
            trace
            for trace in traces(prefix, run.tag)
            if trace not in foreign
        ]
        assert left == [], f"interrupted after {after_s:.3f} s"
        assert journals() == []
        assert settings() == before
        assert clean() == []


def test_the_next_run_cleans_up_after_a_killed_one(
    prefix: str, state: Path, tmp_path: Path
) -> None:
    first = Run(prefix, tmp_path)
    first.end(signal.SIGKILL, 0.7)
    second = Run(prefix, tmp_path)
    try:
        assert second.tag != first.tag
        assert [
            trace
            for trace in traces("no-such-prefix", first.tag)
            if "process" not in trace
        ] == []
        assert [journal.tag.run for journal in journals()] == [second.tag]
    finally:
        second.end(signal.SIGINT, 0.0)
    assert traces(prefix, second.tag) == []


@MOMENTS
def test_a_clean_that_was_killed_is_finished_by_the_next(
    prefix: str, state: Path, tmp_path: Path, strikes: int
) -> None:
    before = settings()
    for after_s in moments("clean", max(1, strikes // 2)):
        run = Run(prefix, tmp_path)
        run.end(signal.SIGKILL, 0.9)
        cleaner = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from testbed.backends.emu.cleanup import clean; clean()",
            ],
            env=environment(),
        )
        time.sleep(0.3 + after_s / 3)
        cleaner.kill()
        cleaner.wait()
        clean()
        assert traces(prefix, run.tag) == []
        assert settings() == before


def test_while_a_run_is_alive_nothing_is_cleaned_and_no_other_begins(
    prefix: str, state: Path, tmp_path: Path
) -> None:
    run = Run(prefix, tmp_path)
    try:
        with pytest.raises(
            MachineCannot,
            match=f"'kill me {prefix}' \\(process {run.process.pid}\\)",
        ):
            clean()
        second = subprocess.run(
            [sys.executable, str(PROGRAM), prefix, str(MOST_WEIGHT)],
            capture_output=True, text=True, timeout=60, check=False,
            env=environment(),
        )  # fmt: skip
        assert second.returncode != 0
        assert f"'kill me {prefix}'" in second.stderr
        assert run.process.poll() is None
    finally:
        run.end(signal.SIGINT, 0.0)
    assert traces(prefix, run.tag) == []


def tools_of(run: Run, prefix: str) -> list[psutil.Process]:
    """Living children of a run but for those that are to be left over."""
    tools = []
    for child in psutil.Process(run.process.pid).children():
        with suppress(psutil.Error):
            if f"{prefix}-child" not in child.cmdline():
                tools.append(child)
    return tools


def test_after_a_reboot_the_switchs_memory_is_cleaned_and_names_are_left(
    prefix: str, state: Path, tmp_path: Path
) -> None:
    """The database outlives a reboot; what else bears a listed name then is somebody else's."""
    run = Run(prefix, tmp_path)
    condition = f"external_ids:{RUN_KEY}={run.tag}"
    (journal,) = journals()
    deadline = time.monotonic() + 60
    # It builds and takes down all the time: looked at only while it stands still.
    while True:
        run.process.send_signal(signal.SIGSTOP)
        devices = devices_in_group(journal.tag.group)
        spaces = list(NETNS_DIR.glob(f"{prefix}-*"))
        rows = MACHINE.rows("Bridge", ["name"], condition)
        # Cables too, of which the database knows nothing.
        if rows and spaces and devices - {str(name) for (name,) in rows}:
            break
        run.process.send_signal(signal.SIGCONT)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    tools = tools_of(run, prefix)
    run.end(signal.SIGKILL, 0.0)
    # One that was at work has not been stopped, and comes to its end.
    psutil.wait_procs(tools, timeout=60)
    (journal,) = journals()
    text = journal.path.read_text()
    journal.path.write_text(text.replace(boot_id(), "an earlier boot"))
    devices, spaces = (
        devices_in_group(journal.tag.group),
        sorted(NETNS_DIR.glob(f"{prefix}-*")),
    )
    assert devices
    bridges = {thing.name for thing in clean()}
    assert not MACHINE.rows("Bridge", ["name"], condition)
    assert devices_in_group(journal.tag.group) == devices - bridges != set()
    assert sorted(NETNS_DIR.glob(f"{prefix}-*")) == spaces
    # This boot's again, what was left is ours.
    journal.path.write_text(text)
    clean()
    assert traces(prefix, run.tag) == []
