"""Programs in VMs that want their caller's terminal, files and environment."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.adversary.attack import Attack, Tries
from tests.adversary.virtual_machines import vm
from tests.netns.test_vm_terminals import (
    entering,
    handed_down,
    public_folder,
    typed,
    typed_afterwards,
)
from tests.unit.emu.test_programs_in_vms import (
    EACH,
    EXEC,
    PUSH,
    TIMEOUT_S,
    on_a_terminal,
    read_until,
)

UNGUARDED = (
    "import subprocess, sys\nsubprocess.run(sys.argv[1:], close_fds=False)"
)
WAYS = 4
CHARACTERS = 7
SECRETS = 8
ENVIRONMENT = (
    "AWS_SECRET_ACCESS_KEY",
    "SSH_AUTH_SOCK",
    "SUDO_COMMAND",
    "LD_PRELOAD_NOT",
    "PYTHONPATH",
)


def attacks() -> list[Attack]:
    return [
        Attack(
            "typing",
            "a program in a VM types into its caller's terminal",
            lambda: _typing(EXEC, EACH),
            lambda: _typing(UNGUARDED),
        ),
        Attack(
            "typing by other calls",
            "forced terminals, the console, 32-bit and oversized requests",
            lambda: _beside_a_vm(typed),
            lambda: Tries(*typed(UNGUARDED)),
        ),
        Attack(
            "typing afterwards",
            "what a program leaves behind types when its caller has ended",
            lambda: _beside_a_vm(typed_afterwards, with_folder=True),
            lambda: _with_folder(typed_afterwards, UNGUARDED),
        ),
        Attack(
            "terminals handed down",
            "a program in a VM has its caller's terminal as a descriptor",
            lambda: _beside_a_vm(handed_down, with_folder=True),
            lambda: _with_folder(handed_down, UNGUARDED),
            expected_s=15,
        ),
        Attack(
            "inheritance",
            "a program in a VM reads root's open files and variables",
            lambda: _inheritance(EXEC, EACH),
            lambda: _inheritance(UNGUARDED),
        ),
    ]


def _typing(*callers: str) -> Tries:
    """Every character of a command, into every name of the terminal."""
    typed = 0
    for caller in callers:
        program = (sys.executable, "-c", PUSH)
        with on_a_terminal(caller, *program) as (process, master, slave):
            process.wait(TIMEOUT_S)
            read_until(master, b"done")
            if select.select([slave], [], [], 0)[0]:
                typed += len(os.read(slave, 4096))
    return Tries(len(callers) * WAYS * CHARACTERS, typed)


def _beside_a_vm(
    tries: Callable[..., tuple[int, int]], *, with_folder: bool = False
) -> Tries:
    """Tries of a program that its caller starts in a VM."""
    with vm() as place:
        caller = entering(place)
        if with_folder:
            return _with_folder(tries, *caller)
        return Tries(*tries(*caller))


def _with_folder(
    tries: Callable[..., tuple[int, int]], *caller: str
) -> Tries:
    with public_folder() as folder:
        return Tries(*tries(folder, *caller))


def _inheritance(*callers: str) -> Tries:
    """Files on all low descriptors, and variables, that are read in the VM."""
    read = 0
    with TemporaryDirectory() as folder:
        files = [Path(folder, f"file{number}") for number in range(SECRETS)]
        for number, file in enumerate(files):
            file.write_text(f"secret-of-file-{number}\n")
        held = [os.open(file, os.O_RDONLY) for file in files]
        variables = {name: f"secret-of-{name}" for name in ENVIRONMENT}
        for caller in callers:
            read += _secrets_read(caller, held, variables)
        for descriptor in held:
            os.close(descriptor)
    tried = len(files) + len(variables)
    return Tries(len(callers) * tried, read)


def _secrets_read(
    caller: str, held: list[int], variables: dict[str, str]
) -> int:
    for descriptor in held:
        os.lseek(descriptor, 0, os.SEEK_SET)
    tell = "; ".join(["env", *(f"cat <&{number}" for number in held)])
    # bash: a shell of Debian's takes no descriptor above 9.
    done = subprocess.run(
        [sys.executable, "-c", caller, "bash", "-c", tell],
        pass_fds=held,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    return sum("secret-of-" in line for line in lines)
