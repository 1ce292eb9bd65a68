"""Programs in VMs: their terminal, descriptors and environment, without a VM to enter."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.launch import User
from testbed.backends.emu.vm_process import VmPlace, program_environment

TIMEOUT_S = 60

# `testbed exec` without the network: a program in a VM that needs no entering.
EXEC = """
import sys
from testbed.backends.emu import vm_process
vm_process.enter = lambda *_: None
place = vm_process.VmPlace("a.0", "s1", "10.0.0.1", "", (), "")
sys.exit(vm_process.run_program(place, sys.argv[1:]))
"""
EACH = """
import sys
from testbed.backends.emu import vm_process
vm_process.enter = lambda *_: None
place = vm_process.VmPlace("a.0", "s1", "10.0.0.1", "", (), "")
say = lambda _, line: print(line.decode(), end="")
sys.exit(vm_process.run_in_each([place], sys.argv[1:], say))
"""
# Types `touch /tmp/…` into every terminal that it has.
PUSH = """
import fcntl, os, termios
for name in ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"):
    try:
        fd = os.open(name, os.O_RDWR | os.O_NOCTTY)
        for character in b"PUSHED\\n":
            fcntl.ioctl(fd, termios.TIOCSTI, bytes([character]))
    except OSError:
        pass
print("done")
"""


@contextmanager
def on_a_terminal(
    code: str, *argv: str, **streams: int
) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """A caller on a terminal of its own, that terminal's other end and its own.

    ``TERMINAL`` among its arguments is that terminal's name.
    """
    master, slave = pty.openpty()
    name = os.ttyname(slave)
    argv = tuple(name if word == "TERMINAL" else word for word in argv)
    fds = {"stdin": slave, "stdout": slave, "stderr": slave} | streams
    process = subprocess.Popen(
        [sys.executable, "-c", code, *argv],
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        **fds,  # type: ignore[call-overload]
    )
    try:
        yield process, master, slave
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def settings_of_a_new_terminal() -> list[Any]:
    master, slave = pty.openpty()
    settings = termios.tcgetattr(slave)
    os.close(master)
    os.close(slave)
    return settings


def read_until(fd: int, text: bytes) -> bytes:
    found = b""
    while text not in found:
        assert select.select([fd], [], [], TIMEOUT_S)[0], found
        found += os.read(fd, 4096)
    return found


@pytest.mark.parametrize("code", [EXEC, EACH])
def test_a_program_cannot_type_into_its_callers_terminal(code: str) -> None:
    with on_a_terminal(code, sys.executable, "-c", PUSH) as (
        caller,
        master,
        slave,
    ):
        assert caller.wait(TIMEOUT_S) == 0
        shown = read_until(master, b"done")
        typed = select.select([slave], [], [], 0)[0]
        assert typed == [], shown


def test_a_program_has_another_terminal_and_session() -> None:
    tell = "import os; print(os.ttyname(0), os.getsid(0) == os.getpid(), os.isatty(2), 'told')"
    with on_a_terminal(EXEC, sys.executable, "-c", tell) as (
        caller,
        master,
        slave,
    ):
        callers = os.ttyname(slave)
        shown = read_until(master, b"told").decode()
        assert caller.wait(TIMEOUT_S) == 0
    name, leads, terminal, _ = shown.split()
    assert (leads, terminal) == ("True", "True")
    assert name != callers


def test_without_a_terminal_a_program_is_in_a_session_of_its_own(
    tmp_path: Path,
) -> None:
    """The caller's terminal is no stream of it, but still the caller's."""
    tell = "import os; print(os.getsid(0) == os.getpid(), flush=True)\nopen('/dev/tty')"
    with (tmp_path / "out").open("w+b") as out:
        fds = {name: out.fileno() for name in ("stdout", "stderr")}
        with on_a_terminal(EXEC, sys.executable, "-c", tell, **fds) as (
            caller,
            *_,
        ):
            assert caller.wait(TIMEOUT_S) == 1
    said = (tmp_path / "out").read_text()
    assert said.startswith("True\n")
    assert "No such device or address: '/dev/tty'" in said


def test_keys_window_size_and_exit_code_are_passed_on() -> None:
    tell = "import os; print(input('? ')[::-1], os.get_terminal_size(0)); raise SystemExit(7)"
    with on_a_terminal(EXEC, sys.executable, "-c", tell) as (
        caller,
        master,
        _,
    ):
        read_until(master, b"? ")
        termios.tcsetwinsize(master, (33, 101))
        os.write(master, b"olleh\r")
        shown = read_until(master, b"lines=33)")
        assert caller.wait(TIMEOUT_S) == 7
    assert b"(columns=101, lines=33)" in shown


def test_a_key_interrupts_the_program_not_its_caller() -> None:
    # In short sleeps: Python does not see a signal that arrives between its
    # last look and the sleep's system call before that has ended.
    wait = (
        "import time\n"
        "print('here', flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    with on_a_terminal(EXEC, sys.executable, "-c", wait) as (
        caller,
        master,
        _,
    ):
        read_until(master, b"here")
        os.write(master, b"\x03")
        read_until(master, b"KeyboardInterrupt")
        assert caller.wait(TIMEOUT_S) == 128 + signal.SIGINT


@pytest.mark.skipif(
    signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
    reason="SIGHUP is ignored here, as under nohup",
)
def test_the_exit_code_is_told_though_the_terminal_is_gone() -> None:
    command = ("sh", "-c", "echo here; exec sleep 600")
    with on_a_terminal(EXEC, *command) as (caller, master, slave):
        read_until(master, b"here")
        # Closes the terminal's other end.
        os.dup2(slave, master)
        assert caller.wait(TIMEOUT_S) == 128 + signal.SIGHUP


def test_the_callers_terminal_is_as_it_was() -> None:
    """Raw while the program runs, and afterwards as a terminal is that is new."""
    as_made = settings_of_a_new_terminal()
    with on_a_terminal(EXEC, "sh", "-c", "echo here; read line") as (
        caller,
        master,
        _,
    ):
        read_until(master, b"here")
        assert termios.tcgetattr(master) != as_made
        os.write(master, b"\r")
        assert caller.wait(TIMEOUT_S) == 0
        assert termios.tcgetattr(master) == as_made


def test_a_signal_to_the_caller_ends_the_program() -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", EXEC, "sh", "-c", "echo $$; exec sleep 600"],
        stdout=subprocess.PIPE,
    )
    assert caller.stdout is not None
    with caller:
        pid = int(caller.stdout.readline())
        assert os.getpgid(pid) == pid
        caller.terminate()
        assert caller.wait(TIMEOUT_S) == 128 + signal.SIGTERM


def test_files_and_pipes_are_passed_down_as_they_are() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXEC, "sh", "-c", "tr a-z A-Z; echo oh >&2"],
        input=b"hello\n", capture_output=True, check=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"HELLO\n", b"oh\n")


@pytest.mark.parametrize("code", [EXEC, EACH])
def test_no_open_file_of_the_caller_comes_into_a_vm(
    code: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003
        held = file.fileno()
        tell = f"ls -l /proc/self/fd; cat <&{held}"
        done = subprocess.run(
            [sys.executable, "-c", code, "sh", "-c", tell],
            pass_fds=[held], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert "secret" not in done.stdout


def test_the_environment_of_a_program_is_the_documented_one() -> None:
    caller = {
        "AWS_SECRET_ACCESS_KEY": "x", "SUDO_COMMAND": "x", "LD_PRELOAD": "x", "PYTHONPATH": "x",
        "SSH_AUTH_SOCK": "x", "TERM": "xterm", "LANG": "C.UTF-8", "LC_TIME": "C", "PATH": "/bin",
    }  # fmt: skip
    nemo = User("nemo", 4_000_000, 7)
    place = VmPlace("a.0", "s1", "10.0.0.1", "", (), "", nemo)
    given = program_environment(place, caller)
    assert given == {
        "TERM": "xterm", "LANG": "C.UTF-8", "LC_TIME": "C", "PATH": "/bin",
        "HOME": "/", "USER": "nemo", "LOGNAME": "nemo",
        "HOSENET_VM": "a.0", "HOSENET_IP": "10.0.0.1",
    }  # fmt: skip


def test_a_vm_that_cannot_be_entered_is_named_with_the_reason() -> None:
    code = EXEC.replace("lambda *_: None", "refuse").replace(
        "import sys",
        "import sys\ndef refuse(*_): raise OSError('it is gone')",
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "true"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "VM a.0 cannot be entered: it is gone" in done.stderr


@pytest.mark.parametrize("streams", ["", ">/dev/null 2>&1", "2>/dev/null"])
def test_a_command_in_all_vms_ends_though_it_leaves_programs_behind(
    tmp_path: Path, streams: str
) -> None:
    pid = tmp_path / "pid"
    script = (
        f"sleep 600 {streams} & echo $! >{pid}; echo started;"
        " printf unfinished; exit 3"
    )
    done = subprocess.run(
        [sys.executable, "-c", EACH, "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    # It continues, as what `exec` in one VM leaves behind.
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert done.returncode == 3
    assert done.stdout == "a.0: started\na.0: unfinished\n"


@pytest.mark.slow
def test_all_output_of_a_command_in_all_vms_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EACH, "seq", "100000"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines == [f"a.0: {number}" for number in range(1, 100_001)]
