"""Tenants whose programs do what they can not to be removed."""

from __future__ import annotations

import subprocess

import psutil
import pytest

from testbed.backends.emu.vm_users import FIRST_ID
from tests.emu.test_links_and_verify import verified
from tests.emu.test_up import Standing, standing, wait_for  # noqa: F401 - a fixture
from tests.support.vm_ids import OUTSIDE_RANGES

ADD = ("tenant", "add", "a", "--vms", "2", "--bandwidth", "9 Mbit/s")
GROWN = 30
ENTERING = 8
IMPORTS = "import os, signal, time\n"
PROGRAMS = {
    "forks the stopped": """
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(600)
    except OSError:
        time.sleep(0.01)
""",
}


def of_vms() -> list[psutil.Process]:
    """Living processes of users of networks' VMs."""
    processes = []
    for process in psutil.process_iter(["uids", "status"]):
        uids = process.info["uids"]
        if uids is not None and FIRST_ID <= uids.real < OUTSIDE_RANGES:
            processes.append(process)
    return [
        process
        for process in processes
        if process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_tenant_is_removed_whatever_its_programs_do(
    standing: Standing,  # noqa: F811
    kind: str,
) -> None:
    standing.up()
    standing.good(*ADD)
    program = ("python3", "-c", IMPORTS + PROGRAMS[kind])
    hostile = subprocess.Popen(
        standing.command("exec", "a.0", "--", *program),
        env=standing.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with hostile:
        wait_for(lambda: len(of_vms()) > GROWN)
        standing.good("tenant", "remove", "a")
    assert of_vms() == []
    standing.good(*ADD)
    assert verified(standing)[0] == 0


def test_a_tenant_is_removed_while_programs_enter_its_vms(
    standing: Standing,  # noqa: F811
) -> None:
    standing.up()
    standing.good(*ADD)
    entering = []
    for number in range(ENTERING):
        command = ("exec", f"a.{number % 2}", "--", "sleep", "600")
        process = subprocess.Popen(
            standing.command(*command),
            env=standing.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        entering.append(process)
    standing.good("tenant", "remove", "a")
    for process in entering:
        _, said = process.communicate(timeout=100)
        assert process.returncode != 0
        assert "Traceback" not in said
    assert of_vms() == []
    standing.good(*ADD)
    assert verified(standing)[0] == 0
