"""Attacks on whole commands, which tests of the project make."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.adversary.attack import Attack, Tries

EMU, NETNS = "tests/emu", "tests/netns"
LABS = f"{EMU}/test_lab_grading.py"
TYPING = "::test_a_program_cannot_type_into_its_hosts_shell"
CONTROLLERS = (
    "::test_controllers_that_end_themselves_or_look_for_the_solution"
)
OWN_APPS = "tests/unit/controller/test_own_app.py"
LEAVES_NOTHING = "::test_a_confined_one_leaves_no_file_and_no_process"
SUBMISSIONS = "tests/unit/labs/test_hostile_submissions.py"
# The others are of what marks say.
DO_HARM = (
    "test_it_does_no_harm",
    "test_the_solution_cannot_be_read",
    "test_a_project_below_what_is_mounted_is_hidden",
    "test_no_socket_reaches_this_machine",
)
ROOT = Path(__file__).parents[2]
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
TIMEOUT_S = 1200.0

# Name -> what is tried, its tests, and the time that they take, in s.
TESTED: dict[str, tuple[str, tuple[str, ...], float]] = {
    "lost controllers": (
        "a controller that dies or is stopped loses or hides tenants",
        ("tests/emu/test_restarts.py",),
        90,
    ),
    "typing at Mininet's prompt": (
        "a program in a Mininet host types into root's shell",
        (
            f"{EMU}/test_mininet_network.py{TYPING}",
            f"{EMU}/test_mininet_network.py::test_no_call_types_into_a_hosts_shell",
        ),
        40,
    ),
    "other controllers": (
        "another user is a switch, or the controller, or speaks to the switches",
        (
            f"{EMU}/test_controller_socket.py",
            "tests/unit/controller/test_switch_peers.py",
        ),
        60,
    ),
    "controller's API": (
        "somebody without the token asks for anything, or keeps others out",
        (
            "tests/unit/controller/test_api.py",
            "tests/unit/controller/test_connections.py",
            "tests/unit/controller/test_hostile_switches.py",
        ),
        60,
    ),
    "removal of tenants": (
        "a tenant's programs fork, stop or enter to keep it from being removed",
        (f"{EMU}/test_hostile_removal.py",),
        60,
    ),
    "groups' processes": (
        "stopped, waiting, detached or late processes outlive their VM",
        (
            f"{NETNS}/test_cgroups.py::test_whatever_its_processes_are_a_vm_ends",
            f"{NETNS}/test_cgroups.py::test_a_program_that_enters_at_its_vms_removal_is_ended",
        ),
        10,
    ),
    "killed networks": (
        "a killed `up` or run leaves something that the next cannot remove",
        (
            f"{EMU}/test_up.py::test_killed_while_it_comes_up_the_next_one_comes_up",
            f"{EMU}/test_up.py::test_a_killed_keepers_network_stays_until_it_is_cleaned",
            f"{EMU}/test_up.py::test_jobs_become_tenants_until_sigterm_takes_it_down",
            f"{EMU}/test_kill.py::test_the_next_run_cleans_up_after_a_killed_one",
            f"{EMU}/test_kill.py::test_a_clean_that_was_killed_is_finished_by_the_next",
        ),
        90,
    ),
    "settings": (
        "a value of `--set` ends a command in a traceback, or gives orders",
        ("tests/unit/cli/test_hostile_settings.py",),
        20,
    ),
    "submissions": (
        "a student's code stops the grading, or reaches the machine",
        tuple(f"{SUBMISSIONS}::{test}" for test in DO_HARM),
        45,
    ),
    "submitted controllers": (
        "a student's controller ends the grading, leaves files or reads others",
        (f"{LABS}{CONTROLLERS}",),
        40,
    ),
    "confined controllers": (
        "a student's controller sees root's variables, or calls what it may not",
        (f"{OWN_APPS}{LEAVES_NOTHING}",),
        15,
    ),
    "callers' folders": (
        "a command by sudo goes by a path that its caller can exchange",
        ("tests/unit/cli/test_folders_by_sudo.py",),
        40,
    ),
    "damaged journals": (
        "a damaged journal stops every command until it is deleted by hand",
        ("tests/unit/emu/test_damaged_journals.py",),
        10,
    ),
    "edited results": (
        "a sweep believes a stored result that was edited",
        ("tests/unit/sweeps/test_edited_results.py",),
        15,
    ),
    "run folders": (
        "a run folder of somebody's gives orders to a terminal or a page",
        ("tests/unit/cli/test_foreign_text.py",),
        20,
    ),
    "system calls": (
        "a program in a VM makes a system call that it may not",
        ("tests/unit/jobs_live/test_call_filter.py",),
        10,
    ),
}


def attacks() -> list[Attack]:
    return [
        Attack(name, about, partial(_tested, tests), expected_s=expected_s)
        for name, (about, tests, expected_s) in TESTED.items()
    ]


def _tested(tests: tuple[str, ...]) -> Tries:
    """A failed test is an attack that got through; one that is skipped for want
    of the machine's is none.
    """
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    last = (done.stdout.strip().splitlines() or [""])[-1]
    counts = {what: int(number) for number, what in COUNT.findall(last)}
    through = counts.get("failed", 0) + counts.get("error", 0)
    attempts = counts.get("passed", 0) + through
    if not attempts and not counts.get("skipped"):
        raise RuntimeError(
            f"pytest ran no test: {done.stdout}{done.stderr}"
        )
    return Tries(attempts, through)
