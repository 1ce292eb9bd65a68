"""A tenant's measurement where some of its VMs are cut from each other."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest

from testbed.backends.emu.vm_process import VmPlace
from testbed.errors import RunFailed
from testbed.standing import vm_measurement
from testbed.standing.network_state import TenantState
from testbed.standing.vm_measurement import Pair, measure
from tests.support.own_addresses import free_port

WIRE_BPS = 30_000_000


def place(number: int) -> VmPlace:
    return VmPlace(
        f"a.{number}",
        "server 0",
        f"10.0.4.{number}",
        f"/run/netns/{number}",
        (),
        "",
    )


def test_vms_that_are_cut_measure_nothing_and_the_others_their_bandwidth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Sequence[Pair]] = []

    def rates(pairs: Sequence[Pair], *_: object) -> list[float]:
        asked.append(pairs)
        return [WIRE_BPS * 1448 / 1514 for _ in pairs]

    pings = [(1.0, 0.0), (None, 1.0), (2.0, 0.1)]
    monkeypatch.setattr(vm_measurement, "_pings", lambda *_: pings)
    monkeypatch.setattr(vm_measurement, "_rates_bps", rates)
    vms = tuple(map(place, range(3)))
    found = measure(
        TenantState("a", 300_000_000, WIRE_BPS, vms, ()), 1, lambda _: None
    )
    assert [[(a.name, b.name) for a, b in pairs] for pairs in asked] == [
        [("a.0", "a.1"), ("a.2", "a.0")]
    ]
    assert [one.ratio for one in found] == [1.0, 0.0, 1.0]
    assert [one.measured_bps for one in found] == [
        300_000_000,
        0,
        300_000_000,
    ]
    assert [one.good for one in found] == [True, False, False]


@pytest.mark.parametrize("seconds", [2, 5, 60])
@pytest.mark.parametrize("rate_bps", [1_000_000, 10_000_000, 1_000_000_000])
def test_two_blocks_more_or_less_are_within_a_fifth_of_what_is_tolerated(
    rate_bps: int, seconds: int
) -> None:
    size_bytes = vm_measurement.block_bytes(rate_bps, seconds)
    assert 1 <= size_bytes <= vm_measurement.BLOCK_BYTES
    low, _ = vm_measurement.BOUNDS["strict"]
    assert 2 * size_bytes <= rate_bps * seconds / 8 * (1 - low) / 5 + 1
    ends = vm_measurement.client_command(
        receiver_ip="10.0.0.2",
        sender_ip="10.0.0.1",
        port=5201,
        counted_s=5,
        omitted_s=1,
        block_bytes=size_bytes,
    )
    assert ends[ends.index("--length") + 1] == str(size_bytes)


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0"),  # noqa: S104 - as iperf3 does
        (socket.AF_INET6, "::"),
    ],
)
def test_a_port_where_somebody_listens_is_left_to_him(
    monkeypatch: pytest.MonkeyPatch, family: int, address: str
) -> None:
    monkeypatch.setattr(
        vm_measurement, "inside_network_namespace", lambda _: nullcontext()
    )
    here = replace(place(0), ip="127.0.0.1")
    port = free_port()
    with socket.socket(family) as theirs:
        if family == socket.AF_INET6:
            theirs.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        theirs.bind((address, 0))
        theirs.listen()
        taken = theirs.getsockname()[1]
        monkeypatch.setattr(vm_measurement, "PORTS", (taken, port))
        assert vm_measurement._free_port(here) == port
        monkeypatch.setattr(vm_measurement, "PORTS", (taken,))
        with pytest.raises(
            RunFailed, match=f"a.0 has no free port.*{taken}"
        ):
            vm_measurement._free_port(here)
