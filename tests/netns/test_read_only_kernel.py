"""A container that is not privileged: /proc/sys or the control groups are read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.linux import C_COMPILERS
from testbed.backends.emu.switch_preload import (
    RECEIVE_BUFFER_BYTES,
    SEND_BUFFER_BYTES,
    preload,
)

REPOSITORY = Path(__file__).parents[2]
FILE = """\
name: small
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.02}
policies: [vc]
workload:
  kind: jobs
  jobs: [{id: a, vms: 3, bandwidth: 200 Mbit/s, duration: 6 s}]
"""
READ_ONLY = """
for folder in "$1" $(findmnt --noheadings --list --output TARGET | grep "^$1/"); do
    mountpoint -q "$folder" || mount --bind "$folder" "$folder" || exit 98
    mount -o bind,remount,ro "$folder" || exit 99
done
shift
exec "$@"
"""
SOCKETS = """
from socket import *
for family, protocol in ((AF_PACKET, 0), (AF_INET, IPPROTO_ICMP)):
    made = socket(family, SOCK_RAW, protocol)
    print(*(made.getsockopt(SOL_SOCKET, name) for name in (SO_SNDBUF, SO_RCVBUF)))
"""


def in_container(
    read_only: str, folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", read_only]
    return subprocess.run(
        [*command, sys.executable, "-m", "testbed.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("read_only", "name"),
    [
        ("/proc/sys", "kernel settings"),
        ("/sys/fs/cgroup", "control groups"),
    ],
)
def test_the_doctor_and_a_run_say_the_same(
    tmp_path: Path, read_only: str, name: str
) -> None:
    (tmp_path / "small.yaml").write_text(FILE)
    doctor = in_container(read_only, tmp_path, "doctor")
    assert doctor.returncode == 3, doctor.stderr
    assert name in doctor.stdout.splitlines()[-1]
    for verb in ("run", "up"):
        done = in_container(read_only, tmp_path, verb, "small.yaml")
        assert done.returncode == 3, done.stderr
        assert name in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


@pytest.mark.skipif(
    not any(map(shutil.which, C_COMPILERS)),
    reason="no C compiler (Debian: tcc)",
)
def test_the_switch_s_library_sets_packet_sockets_buffers_and_no_others() -> (
    None
):
    plain = subprocess.run(
        [sys.executable, "-c", SOCKETS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    with preload() as library:
        done = subprocess.run(
            [sys.executable, "-c", SOCKETS],
            env={**os.environ, **library.environment},
            pass_fds=library.files,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    packet, internet = done.stdout.splitlines()
    assert packet == f"{SEND_BUFFER_BYTES} {RECEIVE_BUFFER_BYTES}"
    assert internet == plain.stdout.splitlines()[1]
