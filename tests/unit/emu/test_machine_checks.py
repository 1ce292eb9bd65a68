"""The doctor's checks, on a machine that is made to differ."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.library import LibraryMissing
from jobs import launcher_commands
from jobs.demand import Compute, Program
from testbed.backends.emu import machine_checks
from testbed.backends.emu.cgroups import CgroupLayout
from testbed.backends.emu.commands import CommandFailed
from testbed.backends.emu.machine_checks import MachineCheck, verdict
from testbed.errors import MachineCannot
from tests.support.scheduling import need_usual_class


def by_name(checks: list[MachineCheck]) -> dict[str, MachineCheck]:
    return {check.name: check for check in checks}


def test_a_check_has_the_keys_of_the_doctor_s_json() -> None:
    check = MachineCheck("disk", "warn", "1 MiB free here", "remove runs")
    assert check.to_json() == {
        "name": "disk",
        "grade": "warn",
        "found": "1 MiB free here",
        "hint": "remove runs",
    }


def test_one_failure_is_enough_to_say_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        machine_checks.open_vswitch, "datapath_type", lambda: "netdev"
    )
    checks = [
        MachineCheck("a", "ok", ""),
        MachineCheck("b", "fail", "broken"),
        MachineCheck("c", "warn", ""),
    ]
    able, sentence = verdict(checks)
    assert not able
    assert sentence.endswith(": b")


@pytest.mark.parametrize(
    ("kind", "message"), [("netdev", "userspace"), ("system", "kernel's")]
)
def test_a_good_machine_gets_its_datapath_and_warnings(
    monkeypatch: pytest.MonkeyPatch, kind: str, message: str
) -> None:
    monkeypatch.setattr(
        machine_checks.open_vswitch, "datapath_type", lambda: kind
    )
    able, sentence = verdict(
        [MachineCheck("a", "ok", ""), MachineCheck("c", "warn", "hm")]
    )
    assert able
    assert message in sentence
    assert sentence.endswith("look at: c")
    assert "look at" not in verdict([MachineCheck("a", "ok", "")])[1]


@pytest.mark.slow
def test_without_root_the_hint_is_sudo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    checks = by_name(machine_checks.examine())
    assert checks["root"].grade == "fail"
    assert checks["root"].hint == "sudo testbed doctor"
    # Nothing is said of what could not be tried.
    assert "namespaces, veth and tc" not in checks


def test_a_missing_command_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., str | None] = shutil.which

    def which(name: str, **options: Any) -> str | None:
        return (
            None
            if name in ("tc", "iperf3")
            else real(name, **options) or name
        )

    monkeypatch.setattr(shutil, "which", which)
    checks = by_name(list(machine_checks._commands()))
    assert checks["command tc"].grade == "fail"
    assert "iproute2" in checks["command tc"].sentence
    assert (
        checks["command iperf3"].grade == "warn"
    )  # only calibration needs it
    assert all(check.hint for check in checks.values())


def test_a_launcher_is_wanted_only_by_programs_that_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    check = machine_checks._launcher(launcher_commands.MPICH)
    assert check.grade == "ok"
    assert "mpiexec.hydra is missing (Debian: mpich)" in check.sentence
    assert check.hint == "sudo apt-get install mpich"
    program = Program(words=("a",), launch="mpi")
    others = [Program(words=("a",)), Compute()]
    machine_checks.require_launchers(others)
    with pytest.raises(MachineCannot) as refused:
        machine_checks.require_launchers([*others, program])
    assert "mpirun.openmpi is missing" in refused.value.message
    assert refused.value.hint == "sudo apt-get install openmpi-bin"
    spark = Program(words=("a",), launch="spark")
    with pytest.raises(MachineCannot) as refused:
        machine_checks.require_launchers([spark, program, spark])
    assert refused.value.message == (
        "java is missing (Debian: default-jre-headless);"
        " mpirun.openmpi is missing (Debian: openmpi-bin)"
    )
    assert (
        refused.value.hint
        == "sudo apt-get install default-jre-headless openmpi-bin"
    )


def test_without_a_controller_library_there_is_no_live_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> str:
        raise LibraryMissing("no OpenFlow library is installed")

    monkeypatch.setattr(machine_checks, "choose_library", missing)
    check = machine_checks._controller()
    assert check.grade == "fail"
    assert check.hint == "sudo ./provision.sh install"


def test_control_groups_that_cannot_be_used_are_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = CgroupLayout(
        0, (), "no control group controller freezer is mounted"
    )
    monkeypatch.setattr(machine_checks, "probe_layout", lambda: layout)
    check = machine_checks._cgroups()
    assert check.grade == "fail"
    assert "freezer" in check.sentence


@pytest.mark.parametrize(
    ("processors", "load", "grade"),
    [(1, 0.1, "warn"), (4, 9.0, "warn"), (4, 0.5, "ok")],
)
def test_few_or_busy_processors_are_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
    processors: int,
    load: float,
    grade: str,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    assert machine_checks._processors().grade == grade


@pytest.mark.slow
@pytest.mark.parametrize(
    ("free_mib", "grade"), [(100, "warn"), (8000, "ok")]
)
def test_little_memory_or_disk_is_a_doubt(
    monkeypatch: pytest.MonkeyPatch, free_mib: int, grade: str
) -> None:
    free = SimpleNamespace(available=free_mib << 20, free=free_mib << 20)
    monkeypatch.setattr(
        machine_checks.psutil, "virtual_memory", lambda: free
    )
    monkeypatch.setattr(machine_checks.shutil, "disk_usage", lambda _: free)
    room = machine_checks._room()
    assert room.grade == grade
    assert f"{free_mib} MiB available" in room.sentence
    assert machine_checks._disk().grade == grade


@pytest.mark.parametrize(
    ("resolution_s", "grade"), [(1e-9, "ok"), (4e-3, "warn")]
)
def test_a_coarse_clock_is_a_doubt(
    monkeypatch: pytest.MonkeyPatch, resolution_s: float, grade: str
) -> None:
    monkeypatch.setattr(
        machine_checks.time, "clock_getres", lambda _: resolution_s
    )
    assert machine_checks._clock().grade == grade


def test_a_taken_port_names_its_holder_and_the_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check = machine_checks._port(port, "--openflow-port")
        assert check.grade == "warn"
        user = pwd.getpwuid(os.getuid()).pw_name
        assert f"(process {os.getpid()}, user {user})" in check.sentence
        assert check.hint is not None
        assert "--openflow-port" in check.hint
    assert machine_checks._port(port, "--openflow-port").grade == "ok"


def test_a_switch_that_grew_is_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown = SimpleNamespace(
        memory_info=lambda: SimpleNamespace(rss=3 << 30)
    )
    monkeypatch.setattr(machine_checks, "MACHINE", SimpleNamespace(pid=1))
    monkeypatch.setattr(machine_checks.psutil, "Process", lambda _: grown)
    check = machine_checks._switch_memory()
    assert check.grade == "warn"
    assert "restart" in str(check.hint)


# ------------------------------------------------------------------ the doctor and a run agree


def test_a_read_only_proc_sys_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for writable, grade in ((True, "ok"), (False, "fail")):
        monkeypatch.setattr(os, "access", lambda *_, good=writable: good)
        check = machine_checks._kernel_settings()
        assert check.grade == grade
        assert "/proc/sys" in check.sentence


def test_a_loopback_device_that_is_down_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert machine_checks._loopback().grade == "ok"

    def unreachable(*_: Any) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    check = machine_checks._loopback()
    assert check.grade == "fail"
    assert "Network is unreachable" in check.sentence


def test_a_switch_that_a_run_would_start_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = SimpleNamespace(running=False, database_pid=None)
    monkeypatch.setattr(machine_checks, "MACHINE", absent)
    for startable, grade in ((True, "ok"), (False, "fail")):
        monkeypatch.setattr(
            machine_checks.open_vswitch,
            "is_startable",
            lambda good=startable: good,
        )
        (check,) = machine_checks._switch()
        assert check.grade == grade
        assert "not running" in check.sentence


def test_what_the_doctor_fails_ends_a_run_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = [
        MachineCheck("a", "ok", ""),
        MachineCheck("b", "warn", "hm"),
        MachineCheck("kernel settings", "fail", "read-only", "remount"),
    ]
    monkeypatch.setattr(
        machine_checks, "requirements", lambda **_: iter(checks[:2])
    )
    machine_checks.require_machine()
    monkeypatch.setattr(
        machine_checks, "requirements", lambda **_: iter(checks)
    )
    with pytest.raises(MachineCannot) as cannot:
        machine_checks.require_machine()
    assert "kernel settings: read-only" in cannot.value.message
    assert cannot.value.hint == "remount"


def test_control_groups_without_limits_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    names = ["cpu", "cpuacct", "freezer"]
    layout = CgroupLayout(2, dict.fromkeys(names, tmp_path))
    monkeypatch.setattr(machine_checks, "probe_layout", lambda: layout)
    check = machine_checks._cgroups()
    assert check.grade == "warn"
    assert (
        "without memory and pids: VMs have no such limit" in check.sentence
    )
    layout = CgroupLayout(
        2, dict.fromkeys([*names, "memory", "pids"], tmp_path)
    )
    (tmp_path / "memory.max").write_text(str(1 << 30))
    monkeypatch.setattr(machine_checks, "probe_layout", lambda: layout)
    check = machine_checks._cgroups()
    assert check.grade == "ok"
    assert "64 MiB of memory" in check.sentence


def test_a_switch_under_sched_idle_is_named_with_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_usual_class()
    with subprocess.Popen(["sleep", "60"]) as switch:
        usual, no_priority = os.SCHED_OTHER, os.sched_param(0)
        os.sched_setscheduler(switch.pid, usual, no_priority)
        monkeypatch.setattr(
            machine_checks, "MACHINE", SimpleNamespace(pid=switch.pid)
        )
        assert machine_checks._switch_scheduling().grade == "ok"
        os.sched_setscheduler(switch.pid, os.SCHED_IDLE, no_priority)
        check = machine_checks._switch_scheduling()
        assert check.grade == "warn"
        assert str(switch.pid) in check.sentence
        command = str(check.hint).removeprefix("sudo ").split()
        # Nobody but root may leave this class.
        if os.geteuid() == 0:
            subprocess.run(command, check=True)
            assert machine_checks._switch_scheduling().grade == "ok"
        switch.kill()
    assert machine_checks._switch_scheduling().grade == "ok"


@pytest.mark.parametrize(
    ("why", "hint"),
    [
        ("Read-only file system", "make /run writable"),
        ("Operation not supported", "use a kernel with veth"),
    ],
)
def test_namespaces_that_cannot_be_made_have_their_own_hint(
    why: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> str:
        raise MachineCannot(f"ip: cannot create namespace: {why}")

    monkeypatch.setattr(machine_checks, "run", refused)
    check = machine_checks._namespaces_and_tc()
    assert check.grade == "fail"
    assert str(check.hint).startswith(hint)


def test_a_command_that_is_missing_does_not_end_the_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object, **__: object) -> str:
        raise MachineCannot("there is no command 'tc'", "install it")

    monkeypatch.setattr(machine_checks, "run", missing)
    check = machine_checks._netem()
    assert check.grade == "warn"
    assert check.sentence == "there is no command 'tc'"
    assert check.hint == "install it"


def test_a_switch_that_does_not_reply_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*_: object) -> str:
        raise CommandFailed("ovs-vsctl: no answer within 35 s")

    hung = SimpleNamespace(running=True, pid=None, rows=silent)
    monkeypatch.setattr(machine_checks, "MACHINE", hung)
    *_, check = machine_checks._switch()
    assert check.grade == "fail"
    assert check.sentence == "ovs-vsctl: no answer within 35 s"
    assert check.hint


def test_a_switch_may_end_while_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    monkeypatch.setattr(
        machine_checks, "MACHINE", SimpleNamespace(pid=ended.pid)
    )
    assert machine_checks._switch_memory().grade == "ok"


def test_a_loopback_device_that_does_not_reply_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*_: Any) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    assert machine_checks._loopback().sentence.startswith("timed out: ")


def test_a_port_that_nobody_has_taken_is_not_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(*_: object) -> None:
        raise OSError(
            errno.EADDRNOTAVAIL, "Cannot assign requested address"
        )

    monkeypatch.setattr(machine_checks.socket.socket, "bind", unavailable)
    check = machine_checks._port(6653, "--openflow-port")
    assert check.grade == "warn"
    assert (
        check.sentence == "cannot be used: Cannot assign requested address"
    )
