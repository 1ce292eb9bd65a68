"""tcpdump in a namespace: what it reads, how it ends, and what it may do."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.backends.emu.packet_capture import (
    CapturePoint,
    CaptureRequest,
    capture,
)
from testbed.backends.emu.pcapng import MergedPackets
from testbed.errors import BadInput, RunFailed

pytestmark = pytest.mark.usefixtures("_tcpdump")


@pytest.fixture
def _tcpdump() -> None:
    if subprocess.run(["which", "tcpdump"], check=False).returncode:
        pytest.skip("no tcpdump (Debian: tcpdump)")


@pytest.fixture
def point(prefix: str, tmp_path: Path) -> Iterator[CapturePoint]:
    name = f"{prefix}-vm"
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.7 a.7\n")
    tmp_path.chmod(0o755)
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(
        ["ip", "-n", name, "link", "set", "lo", "up"], check=True
    )
    yield CapturePoint("a.0", "lo", f"/run/netns/{name}", str(hosts))
    subprocess.run(["ip", "netns", "delete", name], check=True)


class Pinged:
    """Captured bytes of pings that begin when the capture has begun."""

    def __init__(self, point: CapturePoint, *addresses: str) -> None:
        self._netns = Path(point.netns).name
        self._addresses = addresses
        self.n_points = 1
        self.status = ""
        self.data: dict[int, bytes] = {}
        self.after: Callable[[], object] = lambda: None

    def take(self, number: int, data: bytes) -> None:
        self.data[number] = self.data.get(number, b"") + data

    def soon(self) -> threading.Thread:
        thread = threading.Thread(target=self._ping)
        thread.start()
        return thread

    def _ping(self) -> None:
        pid = self.wait_for_tcpdumps()[0]
        self.status = Path(f"/proc/{pid}/status").read_text("ascii")
        for address in self._addresses:
            subprocess.run(
                [
                    *("ip", "netns", "exec", self._netns),
                    *("ping", "-c", "1", "-W", "2", address),
                ],
                check=False,
                stdout=subprocess.DEVNULL,
            )
        self.after()

    def wait_for_tcpdumps(self) -> list[str]:
        """Those of the namespace, once all have become another user's and wait
        for packets: meanwhile they set their filter, which drops packets.
        """
        reading: list[str] = []
        while len(reading) < self.n_points:
            pids = subprocess.run(
                ["ip", "netns", "pids", self._netns],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            reading = []
            for pid in pids:
                if is_capturing(pid):
                    reading.append(pid)
        return reading


def is_capturing(pid: str) -> bool:
    """True for a process that sleeps without any capability."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        # It has ended.
        return False
    return "CapPrm:\t0000000000000000" in status and "State:\tS" in status


def test_what_reads_packets_may_do_nothing_else(
    point: CapturePoint,
) -> None:
    pinged = Pinged(point, "127.0.0.1")
    thread = pinged.soon()
    request = CaptureRequest("icmp", count=2, as_text=True)
    counts = capture([point], request, pinged.take)
    thread.join()
    assert (counts.captured, counts.dropped) == (2, 0)
    assert b"ICMP echo request" in pinged.data[0]
    fields = dict(
        line.split(":\t", 1) for line in pinged.status.splitlines()
    )
    assert "0" not in fields["Uid"].split()
    assert "0" not in fields["Gid"].split()
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(fields[kind], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"


def test_names_in_a_filter_are_the_vms(point: CapturePoint) -> None:
    pinged = Pinged(point, "127.0.0.1", "127.0.0.7")
    thread = pinged.soon()
    request = CaptureRequest("dst host a.7", count=1, as_text=True)
    counts = capture([point], request, pinged.take)
    thread.join()
    assert counts.captured == 1
    assert b"> 127.0.0.7:" in pinged.data[0]


def test_an_interrupt_ends_it_with_its_numbers(point: CapturePoint) -> None:
    pinged = Pinged(point, "127.0.0.1")

    def interrupt() -> None:
        # The file's header, and two packets of 98 bytes with theirs.
        while len(pinged.data.get(0, b"")) < 24 + 2 * (16 + 98):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    pinged.after = interrupt
    thread = pinged.soon()
    counts = capture([point], CaptureRequest("icmp"), pinged.take)
    thread.join()
    assert counts.captured == 2


def test_it_ends_once_its_point_is_gone(point: CapturePoint) -> None:
    asked: list[float] = []

    def is_over() -> bool:
        asked.append(time.monotonic())
        return len(asked) == 2

    # No packet comes: it is not by one that it ends.
    counts = capture([point], CaptureRequest(), lambda *_: None, is_over)
    assert (counts.captured, len(asked)) == (0, 2)
    assert asked[1] - asked[0] >= 1


KILLED = """
import sys
from testbed.backends.emu.packet_capture import (
    CapturePoint, CaptureRequest, capture,
)
point = CapturePoint("a.0", "lo", sys.argv[1])
capture([point], CaptureRequest(), lambda *_: None)
"""


def test_a_killed_one_leaves_no_tcpdump(point: CapturePoint) -> None:
    program = [sys.executable, "-c", KILLED, point.netns]
    pinged = Pinged(point)
    with subprocess.Popen(program) as killed:
        (pid,) = pinged.wait_for_tcpdumps()
        # No packet is sent on which it would miss its reader.
        descriptor = os.pidfd_open(int(pid))
        killed.kill()
    with os.fdopen(descriptor) as tcpdump:
        assert select.select([tcpdump], [], [], 30)[0]


def test_several_points_come_into_one_file(
    point: CapturePoint, tmp_path: Path
) -> None:
    other = CapturePoint("a.1", point.device, point.netns)
    pinged = Pinged(point, "127.0.0.1")
    pinged.n_points = 2
    path = tmp_path / "both.pcapng"
    thread = pinged.soon()
    with path.open("wb") as file:
        merged = MergedPackets(["a.0", "a.1"], file.write)
        # Until both have pinged, however long that takes.
        over = threading.Event()
        pinged.after = over.set
        request = CaptureRequest("icmp")
        counts = capture([point, other], request, merged.take, over.is_set)
    thread.join()
    assert counts.captured == 4
    # Read by a program that shares no code with the writer.
    shown = subprocess.run(
        ["tcpdump", "-n", "-r", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.count("ICMP echo request") == 2
    assert shown.count("ICMP echo reply") == 2


def test_what_cannot_be_captured_is_told(point: CapturePoint) -> None:
    with pytest.raises(BadInput, match="no such words"):
        capture([point], CaptureRequest("no such words"), print)
    gone = CapturePoint("a.0", "eth7", point.netns)
    with pytest.raises(RunFailed, match="eth7"):
        capture([gone], CaptureRequest(), print)
    nowhere = CapturePoint("a.0", "lo", "/run/netns/nobodys")
    with pytest.raises(RunFailed, match="cannot be entered"):
        capture([nowhere], CaptureRequest(), print)
