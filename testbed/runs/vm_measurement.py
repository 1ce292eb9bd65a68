"""Measurement of a tenant among its VMs, against its reservation: round trips, then bandwidth.

In a ring, all VMs at once: each sends to the next. iperf3's receivers count payload; a reservation
counts frames (:mod:`jobs.wire`), so the payload is compared as the frames that carried it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from jobs.live.iperf3 import BLOCK_BYTES, OMITTED_S, listening, received_bps
from jobs.request import Enforcement
from jobs.wire import wire_rate_bps
from testbed.backends.emu.vm_process import VmPlace, started
from testbed.errors import BadInput, MachineCannot, RunFailed, install_hint
from testbed.runs.network_state import TenantState

PORT = 5201
PINGS = 10
PING_EVERY_S = 0.2
ENDING_S = 1
"""Seconds after those that count, as iperf3's omitted ones before: the first programs to end hold
up the others' traffic by some 40 ms."""
PATIENCE_S = 30.0
POLL_S = 0.05
# Of measured over reserved.
BOUNDS: dict[Enforcement, tuple[float, float]] = {
    "strict": (0.99, 1.01), "work-conserving": (0.99, inf), "none": (0.0, inf)
}  # fmt: skip
_LOSS = re.compile(r"([\d.]+)% packet loss")
_ROUND_TRIP = re.compile(r"= [\d.]+/([\d.]+)/")

Tick = Callable[[float], object]
Pairs = Sequence[tuple[VmPlace, VmPlace]]


@dataclass(frozen=True)
class Measured:
    """One VM to the next: bit/s in the experiment's units, ``ratio`` over the tenant's bandwidth.

    ``payload_bps`` is iperf3's own figure, on the emulated wire. ``reserved_bps`` is 0 where no
    reservation is enforced.
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
        """True for the reservation within 1 % and no ping lost; more where bandwidth is lent, and
        whatever it is where none is reserved.
        """
        low, high = BOUNDS[self.enforcement]
        return low <= self.ratio <= high and self.lost_share == 0


def expected_s(seconds: int) -> float:
    """Approximate time of a measurement."""
    return PINGS * PING_EVERY_S + OMITTED_S + seconds + ENDING_S + 1.0


def measure(tenant: TenantState, seconds: int, tick: Tick) -> list[Measured]:
    """Measure, with iperf3 for ``seconds``; ``tick`` is called with the time since its last call.

    Of two VMs between which every ping is lost, the bandwidth is 0. Raises BadInput for a tenant
    of one VM, MachineCannot without ping or iperf3, RunFailed.
    """
    if len(tenant.vms) < 2:
        raise BadInput(f"tenant {tenant.name} has one VM: there is no bandwidth to measure")
    pairs = list(zip(tenant.vms, (*tenant.vms[1:], tenant.vms[0]), strict=True))
    try:
        pings = _pings(pairs, tick)
        joined = [pair for pair, (_, lost) in zip(pairs, pings, strict=True) if lost < 1]
        received_bps = dict(zip(joined, _rates_bps(joined, seconds, tick), strict=True))
    except BadInput as error:
        raise MachineCannot(error.message, install_hint()) from error
    found = []
    for pair, (rtt_ms, lost) in zip(pairs, pings, strict=True):
        payload_bps = received_bps.get(pair, 0.0)
        ratio = wire_rate_bps(payload_bps) / tenant.wire_bps
        reserved_bps = 0 if tenant.enforcement == "none" else tenant.bandwidth_bps
        names, ping = (pair[0].name, pair[1].name), (rtt_ms, lost)
        rates = reserved_bps, round(ratio * tenant.bandwidth_bps), round(payload_bps)
        found.append(Measured(*names, *rates, round(ratio, 4), *ping, tenant.enforcement))
    return found


def _pings(pairs: Pairs, tick: Tick) -> list[tuple[float | None, float]]:
    """The mean round trip in ms (None without any) and the lost share, of every pair."""
    options = ("-n", "-q", "-c", str(PINGS), "-i", str(PING_EVERY_S))
    found = []
    commands = [(a, ["ping", *options, b.ip]) for a, b in pairs]
    with started(commands, subprocess.STDOUT) as children:
        for text in _outputs(children, PINGS * PING_EVERY_S + PATIENCE_S, tick):
            loss, rtt = _LOSS.search(text), _ROUND_TRIP.search(text)
            if loss is None:
                raise RunFailed(f"ping: {text.strip()}")
            found.append((float(rtt.group(1)) if rtt else None, float(loss.group(1)) / 100))
    return found


def _rates_bps(pairs: Pairs, seconds: int, tick: Tick) -> list[float]:
    """Payload that each pair's receiver has counted, in bit/s."""
    common = ("--port", str(PORT), "--json")
    lasts_s = str(seconds + ENDING_S)
    times = ("--time", lasts_s, "--omit", str(OMITTED_S), "--length", str(BLOCK_BYTES))
    serving, sending = [], []
    for a, b in pairs:
        serving.append((b, ["iperf3", "--server", "--one-off", "--bind", b.ip, *common]))
        sending.append((a, ["iperf3", "--client", b.ip, "--bind", a.ip, *times, *common]))
    with started(serving, subprocess.STDOUT) as servers:
        for (_, b), server in zip(pairs, servers, strict=True):
            _until_listening(b, server)
        with started(sending, subprocess.STDOUT) as clients:
            patience_s = OMITTED_S + seconds + ENDING_S + PATIENCE_S
            for text in _outputs(clients, patience_s, tick):
                _received_bps(text)
            return [_received_bps(text) for text in _outputs(servers, PATIENCE_S, tick)]


def _received_bps(text: str) -> float:
    """The receiver's figure in iperf3's document. Raises RunFailed with its complaint."""
    try:
        # A line for people may follow it.
        document, _ = json.JSONDecoder().raw_decode(text)
        if "error" in document:
            raise RunFailed(f"iperf3: {document['error']}")
        return received_bps(document, ENDING_S)
    except (ValueError, KeyError, TypeError):
        raise RunFailed(f"iperf3 has no result: {text.strip()[-300:]}") from None


def _until_listening(place: VmPlace, server: subprocess.Popen[bytes]) -> None:
    """Until a server listens: a connection to find out would be its only one."""
    give_up = time.monotonic() + PATIENCE_S
    while server.poll() is None and PORT not in listening(place.ip, server.pid):
        if time.monotonic() > give_up:
            raise RunFailed(f"iperf3 does not listen in VM {place.name}")
        time.sleep(POLL_S)


def _outputs(
    children: Sequence[subprocess.Popen[bytes]], patience_s: float, tick: Tick
) -> list[str]:
    """Outputs of programs that print at their end. Raises RunFailed for one without an end."""
    texts = []
    last_s = time.monotonic()
    give_up = last_s + patience_s
    for child in children:
        while True:
            try:
                texts.append(child.communicate(timeout=POLL_S)[0].decode("utf-8", "replace"))
                break
            except subprocess.TimeoutExpired:
                now_s = time.monotonic()
                tick(now_s - last_s)
                last_s = now_s
                if now_s > give_up:
                    raise RunFailed(f"{child.args!r} does not end") from None
        if child.returncode < 0:
            raise RunFailed("the measurement was ended from outside", "sudo testbed tenant list")
    return texts
