"""``testbed doctor`` on this machine, and what it says where something is missing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.emu import machine_checks
from testbed.backends.emu.machine_checks import (
    MachineCheck,
    examine,
    verdict,
)
from testbed.errors import MachineCannot, install_hint

REPOSITORY = Path(__file__).parents[2]
NETNS = Path("/run/netns")


def checks() -> dict[str, MachineCheck]:
    return {check.name: check for check in examine()}


def test_every_check_that_is_not_well_says_what_would_help_or_what_it_means() -> (
    None
):
    for check in examine():
        assert check.sentence
        if check.grade == "fail":
            assert check.hint


def test_the_check_leaves_no_namespace() -> None:
    own = f"hn-doctor-{os.getpid()}-*"
    before = set(NETNS.glob(own))
    assert checks()["namespaces, veth and tc"].grade == "ok"
    assert set(NETNS.glob(own)) <= before


def test_a_kind_of_tc_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        machine_checks, "TC_SAMPLE", ("qdisc add dev lo root nosuchkind",)
    )
    check = checks()["namespaces, veth and tc"]
    assert check.grade == "fail"
    assert "nosuchkind" in check.sentence or "qdisc" in check.sentence
    able, sentence = verdict(examine())
    assert not able
    assert "namespaces, veth and tc" in sentence


def test_a_missing_command_is_a_failure_only_if_a_run_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"ovs-vsctl", "iperf3"}
    monkeypatch.setattr(
        machine_checks.shutil,
        "which",
        lambda name, **_: None if name in found else f"/usr/bin/{name}",
    )
    graded = checks()
    assert graded["command ovs-vsctl"].grade == "fail"
    assert graded["command iperf3"].grade == "warn"
    assert graded["command iperf3"].hint == install_hint()


def test_a_taken_port_is_seen() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        check = machine_checks._port(holder.getsockname()[1], "--api-port")
    assert check.grade == "warn"
    assert "--api-port" in (check.hint or "")


def test_a_running_testbed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str) -> None:
        raise MachineCannot(
            "another testbed runs on this machine: 'nightly' (process 7)"
        )

    monkeypatch.setattr(machine_checks, "machine_lock", refuse)
    assert "nightly" in machine_checks._leftovers().sentence


def test_without_root_it_fails_with_the_command_that_helps() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.cli.main", "doctor", "--json"],
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
    assert done.returncode == 3, done.stderr
    answer = json.loads(done.stdout)
    assert not answer["can_run"]
    assert answer["checks"][0]["hint"] == "sudo testbed doctor"
