"""`testbed capture` without a network: names, files, lines."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from testbed.backends.emu import packet_capture
from testbed.backends.emu.capture_places import (
    CapturePlaces,
    link_at,
    note,
    noted_places,
)
from testbed.backends.emu.packet_capture import (
    CaptureCounts,
    CapturePoint,
    CaptureRequest,
)
from testbed.backends.emu.pcapng import MergedPackets
from testbed.cli import capture, main
from testbed.errors import BadInput, RunFailed

PLACES = CapturePlaces(
    {
        "a": (
            CapturePoint("a.0", "eth0", "/run/netns/hn-s0v0"),
            CapturePoint("a.1", "eth0", "/run/netns/hn-s1v0"),
        ),
        "b": (CapturePoint("b.0", "eth0", "/run/netns/hn-s0v1"),),
    },
    (
        link_at(("rack 0", "core 0"), "hn-r0-u0", None),
        link_at(("left - west", "s1"), "hn-r1-u0", "hn-part0"),
    ),
    {"web": "b.0"},
)


@pytest.mark.parametrize(
    ("target", "devices"),
    [
        ("a", ["/run/netns/hn-s0v0 eth0", "/run/netns/hn-s1v0 eth0"]),
        ("a.1", ["/run/netns/hn-s1v0 eth0"]),
        ("web", ["/run/netns/hn-s0v1 eth0"]),
        ("rack 0 - core 0", [" hn-r0-u0"]),
        ("core 0 - rack 0", [" hn-r0-u0"]),
        ("core 0 -> rack 0", [" hn-r0-u0"]),
        ("s1 - left - west", ["/run/netns/hn-part0 hn-r1-u0"]),
    ],
)
def test_a_target_is_found_by_any_of_its_names(
    target: str, devices: list[str]
) -> None:
    points = PLACES.points(target)
    assert [f"{p.netns} {p.device}" for p in points] == devices


def test_an_unknown_name_is_told_with_what_there_is() -> None:
    with pytest.raises(BadInput) as told:
        PLACES.points("a.2")
    assert "there is no VM, link or tenant 'a.2'" in told.value.message
    assert told.value.hint == (
        "VMs: a.0, a.1, b.0; tenants: a, b;"
        " links: rack 0 - core 0, left - west - s1"
    )
    # Of an end that many links have, those links.
    with pytest.raises(BadInput) as told:
        PLACES.points("s1")
    assert str(told.value.hint).endswith("links: left - west - s1")


def test_a_runs_notes_give_its_places_again(tmp_path: Path) -> None:
    links = CapturePlaces({}, PLACES.links)
    vms = CapturePlaces(PLACES.tenants, (), PLACES.hosts)
    (tmp_path / ".links.json").write_bytes(note(links))
    (tmp_path / ".vms.json").write_bytes(note(vms))
    assert noted_places(tmp_path) == PLACES


# -- the command

Captured = Callable[[Sequence[bytes]], list[CaptureRequest]]


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Captured:
    """Sets what tcpdump writes at each point; gives what is asked of it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        "testbed.cli.capture.capture_places", lambda: PLACES
    )

    def write(chunks: Sequence[bytes]) -> list[CaptureRequest]:
        asked: list[CaptureRequest] = []

        def run(
            points: Sequence[CapturePoint],
            request: CaptureRequest,
            take: Callable[[int, bytes], object],
            is_over: Callable[[], bool],
        ) -> CaptureCounts:
            asked.append(request)
            assert not is_over()
            for number in range(len(points)):
                for chunk in chunks:
                    take(number, chunk)
            return CaptureCounts(3, 1)

        monkeypatch.setattr(packet_capture, "capture", run)
        return asked

    return write


def test_text_is_shown_with_the_vms_name_and_no_orders_to_a_terminal(
    captured: Captured, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = captured([b"one\ntw", b"o \x1b[31mred\n", b"\n", b""])
    words = ["icmp", "or", "tcp", "port", "80"]
    assert main.run(["capture", "a", "--count", "2", *words]) == 0
    (request,) = asked
    assert request.filter == "icmp or tcp port 80"
    assert request.count == 2
    assert request.as_text
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[:1] == ["a.0: one"]
    assert lines[1].startswith("a.0: two ")
    assert "\x1b" not in shown.out
    assert len(lines) == 4
    assert (
        "ssh HOST sudo testbed capture a -w - | wireshark -k -i -"
        in shown.err
    )
    assert "3 packets captured, 1 dropped by the kernel" in shown.err


def test_the_line_for_wireshark_can_be_typed_for_a_link(
    captured: Captured, capsys: pytest.CaptureFixture[str]
) -> None:
    captured([])
    assert main.run(["capture", "rack 0 - core 0"]) == 0
    assert (
        "ssh HOST \"sudo testbed capture 'rack 0 - core 0' -w -\" | wireshark"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "target",
    [
        "a.0",
        "rack 0 - core 0",
        "King's Cross - core",
        "$HOME - core",
        "`id` - core",
        'a "quoted" name - core',
        "a\\b - core",
    ],
)
def test_the_line_for_wireshark_keeps_any_name(target: str) -> None:
    line = capture._wireshark(target)
    remote, _, _ = line.removeprefix("ssh HOST ").partition(" | wireshark")
    # ssh passes its words to the other machine's shell, with blanks between.
    here = subprocess.run(
        ["sh", "-c", f"printf '%s ' {remote}"],
        check=True,
        capture_output=True,
        text=True,
    )
    words = ["sudo", "testbed", "capture", target, "-w", "-"]
    assert shlex.split(here.stdout) == words


def test_an_exclamation_mark_is_kept_from_bashs_history() -> None:
    line = capture._wireshark("Wow!x - core")
    assert line.startswith("ssh HOST '")


def test_a_file_is_new_and_its_callers_alone(
    captured: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    captured([b"packets", b""])
    monkeypatch.setenv("HOME", str(tmp_path))
    old_mask = os.umask(0)
    try:
        done = main.run(["capture", "a.0", "-w", "~/x.pcap", "--json"])
    finally:
        os.umask(old_mask)
    assert done == 0
    path = tmp_path / "x.pcap"
    assert path.read_bytes() == b"packets"
    assert path.stat().st_mode & 0o7777 == 0o600
    assert json.loads(capsys.readouterr().out) == {
        "target": "a.0",
        "file": str(path),
        "captured": 3,
        "dropped": 1,
    }
    assert main.run(["capture", "a.0", "-w", "~/x.pcap"]) == 2
    assert "is there already" in capsys.readouterr().err
    # A link is no place for root to write to, wherever it leads.
    (tmp_path / "link.pcap").symlink_to(tmp_path / "victim")
    assert main.run(["capture", "a.0", "-w", "~/link.pcap"]) == 2
    assert not (tmp_path / "victim").exists()


def test_a_capture_that_fails_leaves_no_file(
    captured: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    captured([])
    path = tmp_path / "x.pcap"
    removes = [False, True]

    def fail(*_: object) -> None:
        # Its caller may have removed it meanwhile.
        if removes.pop(0):
            path.unlink()
        raise BadInput("no such words")

    monkeypatch.setattr(packet_capture, "capture", fail)
    while removes:
        assert main.run(["capture", "a", "-w", str(path), "words"]) == 2
        assert "no such words" in capsys.readouterr().err
        assert not path.exists()


@pytest.mark.parametrize("to", [(), ("-w", "-")])
def test_json_goes_with_a_file(
    captured: Captured,
    to: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    captured([])
    assert main.run(["capture", "a.0", *to, "--json"]) == 2
    assert "-w FILE" in capsys.readouterr().out


def test_without_tcpdump_the_doctors_sentence_is_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        "testbed.cli.capture.capture_places", lambda: PLACES
    )
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert main.run(["capture", "a.0"]) == 3
    assert "tcpdump is missing (Debian: tcpdump)" in capsys.readouterr().err


# -- several streams in one file


def pcap(*packets: bytes) -> bytes:
    data = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
    for packet in packets:
        size = len(packet)
        data += struct.pack("=IIII", 1_800_000_000, 250_000, size, size)
        data += packet
    return data


def blocks(data: bytes) -> list[tuple[int, bytes]]:
    """Kinds and bodies, read by the blocks' lengths at both ends."""
    found = []
    while data:
        kind, size = struct.unpack_from("=II", data)
        assert struct.unpack_from("=I", data, size - 4) == (size,)
        found.append((kind, data[8 : size - 4]))
        data = data[size:]
    return found


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_streams_are_merged_however_they_are_cut(size: int) -> None:
    written = bytearray()
    merged = MergedPackets(["a.0", "a.10"], written.extend)
    for stream, data in enumerate((pcap(b"abcde"), pcap(b"fg", b"hi"))):
        for start in range(0, len(data), size):
            merged.take(stream, data[start : start + size])
        merged.take(stream, b"")
    kinds = [kind for kind, _ in blocks(bytes(written))]
    assert kinds == [0x0A0D0D0A, 1, 6, 1, 6, 6]
    packets = [body for kind, body in blocks(bytes(written)) if kind == 6]
    interfaces = [struct.unpack_from("=I", body)[0] for body in packets]
    assert interfaces == [0, 1, 1]
    assert packets[0][20:] == b"abcde\0\0\0"
    high, low = struct.unpack_from("=II", packets[0], 4)
    assert (high << 32) + low == 1_800_000_000_250_000
    assert b"a.10" in bytes(written)


@pytest.mark.parametrize(
    "nonsense",
    [b"\0" * 24, pcap() + struct.pack("=IIII", 0, 0, 1 << 30, 1 << 30)],
)
def test_what_is_no_pcap_is_told(nonsense: bytes) -> None:
    merged = MergedPackets(["a.0"], lambda _: None)
    with pytest.raises(RunFailed, match="tcpdump writes"):
        merged.take(0, nonsense)


# -- tcpdump itself


def test_lines_have_the_machines_local_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty TZ, which stood in place of none, is UTC."""
    monkeypatch.delenv("TZ", raising=False)
    assert packet_capture._environment() == {"PATH": os.defpath}
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert packet_capture._environment()["TZ"] == "Europe/Berlin"


class EndedTcpdump:
    """A tcpdump that a signal has ended without a word."""

    def __init__(self, signum: int) -> None:
        self.returncode = -signum
        self.stderr = io.BytesIO()

    def wait(self, _timeout_s: float) -> int:
        return self.returncode


def test_a_tcpdump_that_is_ended_while_it_starts_has_captured_nothing() -> (
    None
):
    interrupted = cast(
        "subprocess.Popen[bytes]", EndedTcpdump(signal.SIGINT)
    )
    counts = packet_capture._counts([interrupted], "icmp")
    assert counts == CaptureCounts(0, 0)
    crashed = cast("subprocess.Popen[bytes]", EndedTcpdump(signal.SIGSEGV))
    with pytest.raises(BadInput, match="without a word"):
        packet_capture._counts([crashed], "icmp")
