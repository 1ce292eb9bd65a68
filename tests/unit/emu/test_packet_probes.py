"""Probes: whole frames, all that has to be tried, and what their arrival means."""

from __future__ import annotations

import resource
import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.backends.emu import packet_probes
from testbed.backends.emu.packet_probes import (
    FORBIDDEN_ROUNDS,
    FRAME_BYTES,
    MOST_IN_PAIRS,
    Probe,
    ProbeArrivals,
    Vm,
    _receive,
    faults,
    pairs,
    probes,
)

A, B, C = (
    Vm(f"a.{i}", f"hn-s{i}v0", f"10.0.4.{i + 1}", f"02:48:4e:00:00:0{i}")
    for i in range(3)
)
OTHER = Vm("b.0", "hn-s3v0", "10.0.8.1", "02:48:4e:00:00:09")
TOKEN = b"8 bytes!"


def checksum(data: bytes) -> int:
    """RFC 1071 over data with its checksum: 0xffff where it is right."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return total % 0xFFFF or 0xFFFF


@given(st.binary(min_size=12, max_size=12), st.integers(0, 4094))
def test_a_frame_is_a_whole_echo_request(mark: bytes, vlan: int) -> None:
    frame = Probe("anti-spoofing", A, B, C.ip, OTHER.mac, vlan).frame(mark)
    assert len(frame) == FRAME_BYTES + (4 if vlan else 0)
    assert frame[:12].hex(":") == f"{B.mac}:{OTHER.mac}"
    if vlan:
        assert frame[12:16] == struct.pack("!HH", 0x8100, vlan)
        frame = frame[:12] + frame[16:]
    assert frame[12:14] == b"\x08\x00"
    ip, icmp = frame[14:34], frame[34:]
    assert checksum(ip) == checksum(icmp) == 0xFFFF
    assert struct.unpack("!H", ip[2:4])[0] == len(ip) + len(icmp)
    assert list(ip[12:]) == [10, 0, 4, 3, 10, 0, 4, 2]
    assert (icmp[0], ip[9]) == (8, 1)
    assert mark in icmp


@given(st.integers(0, 40))
def test_everybody_is_tried_with_somebody_else(n: int) -> None:
    found = list(pairs(range(n)))
    assert all(a != b for a, b in found)
    assert len(set(found)) == len(found)
    if n <= MOST_IN_PAIRS:
        assert len(found) == n * max(0, n - 1)
    else:
        assert (
            {a for a, _ in found} == {b for _, b in found} == set(range(n))
        )
        assert all((b, a) in found for a, b in found)


def test_pings_stay_in_a_tenant_and_the_rest_must_not_arrive() -> None:
    tried = list(probes([[A, B, C], [OTHER]]))
    kinds = [probe.kind for probe in tried]
    assert kinds.count("reachability") == 6
    assert kinds.count("isolation") == 2
    assert kinds.count("anti-spoofing") == 3 * 3 + 2
    for probe in tried:
        own = (
            probe.source_ip == probe.sender.ip
            and probe.source_mac == probe.sender.mac
        )
        assert own is (probe.kind != "anti-spoofing" or probe.vlan > 0)
        across = (probe.sender is OTHER) != (probe.receiver is OTHER)
        assert across or probe.kind != "isolation"
        assert not across or probe.kind != "reachability"
    assert (
        len(
            {str(probe) for probe in tried if probe.kind == "anti-spoofing"}
        )
        == 11
    )
    assert list(probes([[A]])) == []
    assert list(probes([])) == []


def answer(frame: bytes) -> bytes:
    """The same with the type of an echo reply."""
    return frame[:34] + b"\0" + frame[35:]


def test_a_ping_is_good_when_its_answer_is_back() -> None:
    seen, ping = (
        ProbeArrivals(TOKEN),
        Probe("reachability", A, B, A.ip, A.mac),
    )
    frame = ping.frame(seen.mark(3))
    assert seen.fault(3, ping) == "a.0 to a.1: nothing arrives"
    seen.note("a.2", frame)
    assert seen.fault(3, ping) == "a.0 to a.1: nothing arrives"
    seen.note("a.1", frame)
    assert seen.fault(3, ping) == "a.0 to a.1: no answer arrives"
    assert seen.wants(3, ping, FORBIDDEN_ROUNDS)
    seen.note("a.0", answer(frame))
    assert seen.fault(3, ping) == ""
    assert not seen.wants(3, ping, 0)
    assert seen.fault(4, ping) == "a.0 to a.1: nothing arrives"


@pytest.mark.parametrize("vlan", [0, 1])
def test_what_must_not_arrive_is_named_with_its_place(vlan: int) -> None:
    seen, forged = (
        ProbeArrivals(TOKEN),
        Probe("anti-spoofing", A, B, A.ip, A.mac, vlan, " with a tag"),
    )
    # One that no device took shows nothing.
    assert (
        seen.fault(1, forged) == "a.0 to a.1 with a tag: could not be sent"
    )
    assert seen.wants(1, forged, FORBIDDEN_ROUNDS)
    seen.sent.add(1)
    assert seen.fault(1, forged) == ""
    assert seen.wants(1, forged, 0)
    assert not seen.wants(1, forged, FORBIDDEN_ROUNDS)
    seen.note("b.0", b"of somebody else" * 20)
    seen.note(
        "b.0",
        Probe("isolation", A, B, A.ip, A.mac).frame(b"not ours" + bytes(4)),
    )
    assert seen.fault(1, forged) == ""
    seen.note("b.0", forged.frame(seen.mark(1)))
    assert seen.fault(1, forged) == "a.0 to a.1 with a tag: arrives at b.0"


def test_a_device_that_was_taken_down_ends_no_others_probes() -> None:
    """Its socket reports an error once; here as one that nobody listens to."""
    with (
        selectors.DefaultSelector() as selector,
        socket.socket(type=socket.SOCK_DGRAM) as closed,
        socket.socket(type=socket.SOCK_DGRAM) as down,
    ):
        closed.bind(("127.0.0.1", 0))
        down.connect(closed.getsockname())
        closed.close()
        down.send(b"x")
        selector.register(down, selectors.EVENT_READ, A.name)
        assert selector.select(timeout=60)
        arrivals = ProbeArrivals(TOKEN)
        _receive(selector, arrivals, timeout_s=0.0)
        assert selector.select(timeout=0) == []


def test_all_that_waits_is_read_by_a_process_that_was_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock_s = iter(range(0, 100_000, 10))
    monkeypatch.setattr("time.monotonic", lambda: next(clock_s))
    arrivals = ProbeArrivals(TOKEN)
    sender, receiver = socket.socketpair(type=socket.SOCK_DGRAM)
    with sender, receiver, selectors.DefaultSelector() as selector:
        selector.register(receiver, selectors.EVENT_READ, B.name)
        forged = Probe("anti-spoofing", A, B, A.ip, A.mac)
        for number in range(100):
            arrivals.sent.add(number)
            sender.send(forged.frame(arrivals.mark(number)))
        _receive(selector, arrivals, timeout_s=0.3)
    for number in range(100):
        assert "arrives at a.1" in arrivals.fault(number, forged)


def test_frames_without_end_do_not_hold_up_the_probes() -> None:
    with (
        selectors.SelectSelector() as selector,
        Path("/dev/zero").open("rb") as endless,
    ):
        selector.register(endless, selectors.EVENT_READ, A.name)
        _receive(selector, ProbeArrivals(TOKEN), timeout_s=0.0)


def a_socket(*_: object) -> socket.socket:
    """In place of a packet socket, which only root may have."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def test_a_socket_whose_device_is_gone_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = a_socket()
    monkeypatch.setattr(
        packet_probes, "inside_network_namespace", nullcontext
    )
    with monkeypatch.context() as patch, ExitStack() as stack:
        patch.setattr(socket, "socket", lambda *_: opened)
        # No packet socket: it is refused as one without a device.
        with pytest.raises(OSError, match="not supported"):
            packet_probes._listening(A, stack)
    assert opened.fileno() == -1


@pytest.fixture
def few_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_vms_are_probed_than_a_shell_may_open_files(
    monkeypatch: pytest.MonkeyPatch, few_files: None
) -> None:
    monkeypatch.setattr(
        packet_probes,
        "_listening",
        lambda _, stack: stack.enter_context(a_socket()),
    )
    monkeypatch.setattr(packet_probes, "ROUNDS", 0)
    vms = [Vm(f"a.{i}", f"s{i}", A.ip, A.mac) for i in range(60)]
    tried = list(probes([vms]))
    assert len(faults(tried)) == len(tried)
