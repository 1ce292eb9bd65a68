"""A program in a VM: what it has of the machine, entered for real."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.launch import User
from jobs.linux import hides_processes
from jobs.live.agent_pool import AgentPool
from testbed.backends.emu.pseudo_terminal import ProgramStreams
from testbed.backends.emu.vm_process import VmPlace, start_process
from tests.support.vm_ids import OUTSIDE_RANGES


@pytest.fixture
def place(prefix: str, tmp_path: Path) -> Iterator[VmPlace]:
    """A namespace without a network, control groups or a tenant."""
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.7 a.0\n")
    tmp_path.chmod(0o755)
    name = f"{prefix}-vm"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield VmPlace(
        "a.0", "s", "10.0.0.7", f"/run/netns/{name}", (), str(hosts)
    )
    subprocess.run(["ip", "netns", "delete", name], check=True)


def said(place: VmPlace, script: str) -> str:
    return output(place, "sh", "-c", script)


def output(place: VmPlace, *command: str) -> str:
    pipe = subprocess.PIPE
    streams = ProgramStreams(subprocess.DEVNULL, pipe, subprocess.STDOUT)
    with start_process(place, command, streams) as child:
        assert child.stdout is not None
        return child.stdout.read().decode()


def test_a_program_has_no_capability_and_gains_none(place: VmPlace) -> None:
    status = dict(
        line.split(":\t")
        for line in said(place, "cat /proc/self/status").splitlines()
        if line.startswith(("Cap", "NoNew", "Seccomp:"))
    )
    assert {
        status[f"Cap{which}"] for which in ("Inh", "Prm", "Eff", "Amb")
    } == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_a_program_that_crashes_leaves_no_core_dump(
    place: VmPlace,
) -> None:
    """Nor is there a limit of 0, with which the kernel starts root's handler."""
    # Without CAP_SYS_RESOURCE root cannot raise a limit.
    wanted = (
        "0" if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else "1"
    )
    dumps = "cd /tmp; ulimit -H -c; sh -c 'kill -SEGV $$'; ls core* 2>&1"
    with_blocks = "bash -c 'ulimit -c unlimited' 2>&1 | grep -o permitted"
    text = said(place, f"{with_blocks}; grep 'core file' /proc/self/limits")
    assert text.startswith("permitted\n")
    assert text.split()[-3:-1] == [wanted, wanted]
    assert "No such file" in said(place, dumps)


def test_a_program_whose_file_has_capabilities_runs(place: VmPlace) -> None:
    assert "ping from" in said(place, "ping -V")


def test_shared_memory_is_not_the_machines(place: VmPlace) -> None:
    mark = Path("/dev/shm") / f"hosenet-{os.getpid()}"  # noqa: S108
    mark.write_text("of the machine")
    try:
        fill = "head -c 128M /dev/zero > /dev/shm/big; wc -c < /dev/shm/big"
        text = said(place, f"ls {mark}; {fill}; readlink /proc/self/ns/ipc")
    finally:
        mark.unlink()
    assert "No such file" in text
    assert f"{64 << 20}\n" in text
    assert str(Path("/proc/self/ns/ipc").readlink()) not in text
    assert not Path("/dev/shm/big").exists()  # noqa: S108


def test_names_of_vms_are_found(place: VmPlace) -> None:
    assert "10.0.0.7" in said(place, "getent hosts a.0")


def test_programs_of_two_vms_cannot_reach_each_other(
    place: VmPlace,
) -> None:
    first, second = (
        replace(place, user=User(f"vm{number}", number, number))
        for number in (OUTSIDE_RANGES, OUTSIDE_RANGES + 1)
    )
    pipe = subprocess.PIPE
    streams = ProgramStreams(subprocess.DEVNULL, pipe, subprocess.STDOUT)
    waiting = ["sh", "-c", "id -u; exec sleep 600"]
    with start_process(first, waiting, streams) as child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) == OUTSIDE_RANGES
        of_process = ("environ", "maps", "mem", "fd/0", "root/etc/hosts")
        for attempt in (
            "kill",
            "ls -l /proc/$PID/fd #",
            *(f"cat /proc/$PID/{name} #" for name in of_process),
        ):
            script = f"PID={child.pid}; {attempt} $PID"
            text = said(second, script).lower()
            refused = ("not permitted", "denied", "no such file")
            assert any(words in text for words in refused), text
        assert child.poll() is None
        child.kill()


# Numbers of system calls, which are refused before anything else where the
# filter is: errno 1, operation not permitted.
REACH = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
def failed(result):
    print(result, ctypes.get_errno())
failed(libc.ptrace(16, pid, 0, 0))
handle = libc.syscall(434, pid, 0)
failed(libc.syscall(438, handle, 0, 0))
"""


def vm(place: VmPlace, number: int) -> VmPlace:
    uid = OUTSIDE_RANGES + number
    user = User(f"vm{number}", uid, uid)
    return replace(place, user=user)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86")
def test_sockets_and_memory_of_another_vm_are_out_of_reach(
    place: VmPlace,
) -> None:
    pipe = subprocess.PIPE
    streams = ProgramStreams(subprocess.DEVNULL, pipe, subprocess.STDOUT)
    waiting = ["sh", "-c", "echo; exec sleep 600"]
    with start_process(vm(place, 0), waiting, streams) as child:
        assert child.stdout is not None
        child.stdout.readline()
        program = f"python3 -c '{REACH}' {child.pid}"
        assert said(vm(place, 1), program).split() == ["-1", "1"] * 2
        # Nor without the filter, as another user's.
        for attempt in (16, 438):
            assert reached(child.pid, attempt) == ctypes.c_int(-1).value
        child.kill()


def reached(pid: int, attempt: int) -> int:
    """The result of ptrace (16) or pidfd_getfd (438) by another user, who has no
    filter.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        result = 0
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            os.setgroups([])
            os.setresgid(*[OUTSIDE_RANGES + 1] * 3)
            os.setresuid(*[OUTSIDE_RANGES + 1] * 3)
            result = libc.ptrace(16, pid, 0, 0)
            if attempt == 438:
                result = libc.syscall(438, os.pidfd_open(pid), 0, 0)
        finally:
            os.write(writing, str(result).encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        return int(file.read())


@pytest.fixture
def folders(place: VmPlace, prefix: str) -> Iterator[VmPlace]:
    """A VM with folders of its own; the fork server holds them."""
    of_all = Path("/run", f"hosenet-{prefix}")
    with AgentPool() as pool:
        yield replace(
            vm(place, 0),
            folder=str(of_all / "v0"),
            mounts=f"/proc/{pool.pid}/ns/mnt",
            shared_bytes=1 << 20,
        )
    shutil.rmtree(of_all)


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/run", "/dev/shm"])  # noqa: S108
def test_programs_of_a_vm_share_folders_that_no_other_has(
    folders: VmPlace, folder: str
) -> None:
    mark = Path(folder, f"hosenet-{os.getpid()}")
    mark.write_text("of the machine")
    mark.chmod(0o644)
    first = folders
    second = replace(vm(first, 1), folder=first.folder.replace("v0", "v1"))
    try:
        assert "No such file" in said(
            first, f"cat {mark}; echo v0 > {mark}"
        )
        assert said(first, f"cat {mark}") == "v0\n"
        assert "No such file" in said(second, f"cat {mark}")
        assert mark.read_text() == "of the machine"
    finally:
        mark.unlink()
    fill = f"head -c 2M /dev/zero > {folder}/fill"
    assert "No space left" in said(second, fill)
    assert "No space left" not in said(first, f"echo more > {folder}/more")
    # The next tenant's VM begins with empty ones.
    Path(first.folder).rmdir()
    assert "No such file" in said(first, f"cat {mark}")


def test_programs_of_a_vm_share_memory_that_no_other_has(
    folders: VmPlace,
) -> None:
    """Until the VM's tenant goes; the tmpfs does not keep it."""
    second = replace(
        vm(folders, 1), folder=folders.folder.replace("v0", "v1")
    )
    made = said(folders, "ipcmk -M 4096")
    assert "id: 0" in made
    assert "4096" in said(folders, "ipcs -m")
    assert "4096" not in said(second, "ipcs -m")
    Path(folders.folder).rmdir()
    assert "4096" not in said(folders, "ipcs -m")


def test_what_a_command_names_is_found(
    folders: VmPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir(mode=0o755)
    (inner / "data").write_text("of the machine")
    script = tmp_path / "script"
    script.write_text("cat data; ls -d /tmp/* | wc -l; pwd")
    for path in (
        *tmp_path.parents,
        tmp_path,
        inner,
        script,
        inner / "data",
    ):
        if path.stat().st_uid == os.getuid():
            path.chmod(path.stat().st_mode | 0o055)
    monkeypatch.chdir(inner)
    text = output(folders, "sh", str(script))
    assert text == f"of the machine1\n{inner}\n"


def test_a_link_in_the_way_of_what_is_shown_leads_nowhere(
    folders: VmPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    first = Path("/", *tmp_path.parts[1:3])
    said(folders, f"ln -s /etc {first}")
    monkeypatch.chdir(inner)
    assert said(folders, f"readlink {first}; pwd") == "/etc\n/\n"
    assert not Path("/etc", *tmp_path.parts[3:]).exists()


@pytest.mark.skipif(
    not hides_processes(), reason="a kernel older than Linux 5.8"
)
def test_processes_of_others_are_not_seen(place: VmPlace) -> None:
    text = said(vm(place, 0), "ls -d /proc/1; ls -d /proc/$$")
    assert "'/proc/1': No such file" in text
    assert text.splitlines()[-1].startswith("/proc/")


# A machine with its message queues in /dev/mqueue, where one lies already.
WITH_QUEUES = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from jobs import linux
from testbed.backends.emu.pseudo_terminal import ProgramStreams
from testbed.backends.emu.vm_process import VmPlace, start_process
linux.own_mounts()
mount = ("mount", "-t", "mqueue", "none", "/dev/mqueue")
subprocess.run(mount, check=True)
os.close(os.open("/dev/mqueue/of-the-machine", os.O_CREAT | os.O_RDWR))
streams = ProgramStreams(subprocess.DEVNULL, None, None)
place = VmPlace("a.0", "s", "10.0.0.7", sys.argv[2], (), sys.argv[3])
script = "ls /dev/mqueue; touch /dev/mqueue/mine; ls /dev/mqueue"
start_process(place, ["sh", "-c", script], streams).wait()
print("left:", *os.listdir("/dev/mqueue"))
os.unlink("/dev/mqueue/of-the-machine")
"""


def test_message_queues_in_dev_are_not_the_machines(place: VmPlace) -> None:
    if "mqueue" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no message queues as files")
    queues = Path("/dev/mqueue")
    made = not queues.exists()
    queues.mkdir(exist_ok=True)
    project = str(Path(__file__).parents[2])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            WITH_QUEUES,
            project,
            place.netns,
            place.hosts,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if made:
        queues.rmdir()
    assert done.stdout.splitlines() == ["mine", "left: of-the-machine"], (
        done.stderr
    )
