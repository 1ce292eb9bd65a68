"""Measurement of a tenant among its VMs: round trips, then bandwidth.

In a ring, all VMs at once: each sends to the next. iperf3's receivers count
payload; a reservation counts frames (:mod:`jobs.wire`), so the payload is
compared as the frames that carried it.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from jobs.linux import inside_network_namespace
from jobs.live.iperf3 import (
    BLOCK_BYTES,
    OMITTED_S,
    client_command,
    listening,
    received_bps,
    server_command,
)
from jobs.request import Enforcement
from jobs.wire import wire_rate_bps
from testbed.backends.emu.vm_process import VmPlace, started
from testbed.errors import BadInput, MachineCannot, RunFailed, install_hint
from testbed.standing.network_state import TenantState

# From iperf3's default on, at which a person's own server may listen.
PORTS = range(5201, 5301)
PINGS = 10
PING_EVERY_S = 0.2
LEAST_BLOCK_BYTES = 128
# Seconds after those that count, as iperf3's omitted ones before. The first
# programs to end hold up the others' traffic by some 40 ms.
ENDING_S = 1
PATIENCE_S = 30.0
POLL_S = 0.05
# Of measured over reserved bandwidth.
BOUNDS: dict[Enforcement, tuple[float, float]] = {
    "strict": (0.99, 1.01),
    "work-conserving": (0.99, inf),
    "none": (0.0, inf),
}
_LOSS = re.compile(r"([\d.]+)% packet loss")
_ROUND_TRIP = re.compile(r"= [\d.]+/([\d.]+)/")

Tick = Callable[[float], object]
# A sender and its receiver.
Pair = tuple[VmPlace, VmPlace]
# Mean round trip in ms, None without any; share of pings that were lost.
Ping = tuple[float | None, float]


@dataclass(frozen=True)
class PairMeasurement:
    """One VM to the next: bandwidths in bit/s of the experiment, round trips.

    ``reserved_bps`` is 0 where no reservation is enforced. ``payload_bps`` is
    iperf3's own figure, on the emulated wire. ``ratio``: measured over the
    tenant's bandwidth. ``rtt_ms`` is None where every ping was lost.
    """

    sender: str
    receiver: str
    reserved_bps: int
    measured_bps: int
    payload_bps: int
    ratio: float
    rtt_ms: float | None
    lost_share: float
    enforcement: Enforcement = "strict"

    @property
    def good(self) -> bool:
        """True for the reservation within 1 % and no ping lost.

        More is good where bandwidth is lent, and any rate where none is
        reserved.
        """
        low, high = BOUNDS[self.enforcement]
        return low <= self.ratio <= high and self.lost_share == 0


def expected_s(seconds: int) -> float:
    """Approximate duration of a measurement, in s."""
    return PINGS * PING_EVERY_S + OMITTED_S + seconds + ENDING_S + 1.0


def block_bytes(rate_bps: int, seconds: int) -> int:
    """The size of iperf3's blocks, which it counts whole.

    A thousandth of what a measurement brings, where that is less than usual.
    """
    thousandth = rate_bps * seconds // 8 // 1000
    return max(LEAST_BLOCK_BYTES, min(BLOCK_BYTES, thousandth))


def measure(
    tenant: TenantState,
    seconds: int,
    tick: Tick,
) -> list[PairMeasurement]:
    """Measures all pairs of a tenant's ring, with iperf3 for ``seconds``.

    ``tick`` is called with the time since its last call. Of two VMs between
    which every ping is lost, the bandwidth is 0. Raises BadInput for a tenant
    of one VM, MachineCannot without ping or iperf3, RunFailed.
    """
    if len(tenant.vms) < 2:
        raise BadInput(
            f"tenant {tenant.name} has one VM: there is no bandwidth to measure"
        )
    pairs = _ring(tenant.vms)
    try:
        pings = _pings(pairs, tick)
        connected = _connected(pairs, pings)
        size_bytes = block_bytes(tenant.wire_bps, seconds)
        rates_bps = _rates_bps(connected, seconds, tick, size_bytes)
    except BadInput as error:
        # Of a program that is not installed.
        raise MachineCannot(error.message, install_hint()) from error
    payload_bps = dict(zip(connected, rates_bps, strict=True))
    measurements = []
    for pair, ping in zip(pairs, pings, strict=True):
        pair_bps = payload_bps.get(pair, 0.0)
        measurements.append(_measurement(tenant, pair, pair_bps, ping))
    return measurements


def _ring(vms: Sequence[VmPlace]) -> list[Pair]:
    receivers = [*vms[1:], vms[0]]
    return list(zip(vms, receivers, strict=True))


def _connected(
    pairs: Sequence[Pair],
    pings: Sequence[Ping],
) -> list[Pair]:
    """Pairs with a reply: iperf3 would wait for a receiver that has none."""
    return [
        pair
        for pair, (_, lost_share) in zip(pairs, pings, strict=True)
        if lost_share < 1
    ]


def _measurement(
    tenant: TenantState,
    pair: Pair,
    payload_bps: float,
    ping: Ping,
) -> PairMeasurement:
    sender, receiver = pair
    rtt_ms, lost_share = ping
    # Frames against frames: what a reservation counts.
    ratio = wire_rate_bps(payload_bps) / tenant.wire_bps
    reserved_bps = tenant.bandwidth_bps
    if tenant.enforcement == "none":
        reserved_bps = 0
    return PairMeasurement(
        sender=sender.name,
        receiver=receiver.name,
        reserved_bps=reserved_bps,
        measured_bps=round(ratio * tenant.bandwidth_bps),
        payload_bps=round(payload_bps),
        ratio=round(ratio, 4),
        rtt_ms=rtt_ms,
        lost_share=lost_share,
        enforcement=tenant.enforcement,
    )


def _pings(
    pairs: Sequence[Pair],
    tick: Tick,
) -> list[Ping]:
    """Pings of every pair, all at once."""
    command = ["ping", "-n", "-q"]
    command += ["-c", str(PINGS)]
    command += ["-i", str(PING_EVERY_S)]
    commands = [
        (sender, [*command, receiver.ip]) for sender, receiver in pairs
    ]
    patience_s = PINGS * PING_EVERY_S + PATIENCE_S
    with started(commands, subprocess.STDOUT) as children:
        texts = _outputs(children, patience_s, tick)
    return [*map(_ping, texts)]


def _ping(text: str) -> Ping:
    """Reads ping's summary. Raises RunFailed with its complaint."""
    loss = _LOSS.search(text)
    if loss is None:
        raise RunFailed(f"ping: {text.strip()}")
    lost_share = float(loss.group(1)) / 100
    round_trip = _ROUND_TRIP.search(text)
    if round_trip is None:
        return None, lost_share
    return float(round_trip.group(1)), lost_share


def _rates_bps(
    pairs: Sequence[Pair],
    seconds: int,
    tick: Tick,
    size_bytes: int,
) -> list[float]:
    """Payload that each pair's receiver has counted, in bit/s."""
    # Chosen before the first server listens: no receiver is in two pairs, so
    # no port is chosen twice in a VM.
    ports = [_free_port(receiver) for _, receiver in pairs]
    serving = []
    sending = []
    for (sender, receiver), port in zip(pairs, ports, strict=True):
        serving.append((receiver, server_command(receiver.ip, port)))
        command = client_command(
            receiver_ip=receiver.ip,
            sender_ip=sender.ip,
            port=port,
            counted_s=seconds + ENDING_S,
            omitted_s=OMITTED_S,
            block_bytes=size_bytes,
        )
        sending.append((sender, command))
    with started(serving, subprocess.STDOUT) as servers:
        for (_, receiver), port, server in zip(
            pairs, ports, servers, strict=True
        ):
            _wait_until_listening(receiver, port, server)
        with started(sending, subprocess.STDOUT) as clients:
            patience_s = OMITTED_S + seconds + ENDING_S + PATIENCE_S
            # A client's document is only read for its complaint: the rate that
            # counts is the receiver's.
            for text in _outputs(clients, patience_s, tick):
                _received_bps(text)
            texts = _outputs(servers, PATIENCE_S, tick)
            return list(map(_received_bps, texts))


def _free_port(place: VmPlace) -> int:
    """A port at which nobody listens in a VM. Raises RunFailed."""
    with inside_network_namespace(Path(place.netns)):
        for port in PORTS:
            # Refused beside a listener at this address or at any, of IPv6 too.
            with closing(socket.socket()) as probe, suppress(OSError):
                # As iperf3 itself: connections that have ended hold no port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((place.ip, port))
                return port
    raise RunFailed(
        f"VM {place.name} has no free port between {PORTS[0]} and {PORTS[-1]}"
        " for iperf3",
        f"sudo testbed exec {place.name} -- ss -tlnp lists who listens there",
    )


def _received_bps(text: str) -> float:
    """The receiver's figure in iperf3's document.

    Raises RunFailed with the document's complaint.
    """
    try:
        # A line for people may follow it.
        document, _ = json.JSONDecoder().raw_decode(text)
        if "error" in document:
            raise RunFailed(f"iperf3: {document['error']}")
        return received_bps(document, ENDING_S)
    except (ValueError, KeyError, TypeError):
        raise RunFailed(
            f"iperf3 has no result: {text.strip()[-300:]}"
        ) from None


def _wait_until_listening(
    place: VmPlace,
    port: int,
    server: subprocess.Popen[bytes],
) -> None:
    """Returns when a server listens, or has ended. Raises RunFailed."""
    give_up = time.monotonic() + PATIENCE_S
    # Read from the kernel's table: a connection to find out would be the only
    # one that the server takes.
    while server.poll() is None and port not in listening(
        place.ip, server.pid
    ):
        if time.monotonic() > give_up:
            raise RunFailed(f"iperf3 does not listen in VM {place.name}")
        time.sleep(POLL_S)


def _outputs(
    children: Sequence[subprocess.Popen[bytes]],
    patience_s: float,
    tick: Tick,
) -> list[str]:
    """Outputs of programs that print at their end.

    Raises RunFailed for a program that does not end, or is killed.
    """
    texts = []
    last_s = time.monotonic()
    give_up = last_s + patience_s
    for child in children:
        output = None
        while output is None:
            try:
                output, _ = child.communicate(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                now_s = time.monotonic()
                tick(now_s - last_s)
                last_s = now_s
                if now_s > give_up:
                    raise RunFailed(
                        f"{child.args!r} does not end"
                    ) from None
        texts.append(output.decode("utf-8", "replace"))
        # Killed with the rest of its VM, as when the tenant is removed: Popen
        # gives the signal's number, negative.
        if child.returncode < 0:
            raise RunFailed(
                "the measurement was ended from outside",
                "sudo testbed tenant list",
            )
    return texts
