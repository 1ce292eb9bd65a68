"""Unused bandwidth lent, given back, and guarantees kept, in each mode of
enforcement.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import numpy as np

from bench.live_network import (
    PORT,
    collect,
    network,
    pair,
    spawn_agents,
    start_in_namespace,
    transfer,
)
from bench.samples import Result
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan
from jobs.request import ENFORCEMENTS, Enforcement
from jobs.wire import ideal_transfer_s, payload_bytes
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.limiter_counters import Limiter
from testbed.plan.network_plan import TenantPlan, enforced
from topologies.tree import tree

LINKS_MBPS = (100, 500)
REPEATS = 3
LENDER = 0.4
BORROWER = 0.6
"""Shares of the link that the two tenants reserve: together all of it."""
FLOWS = 8
ALONE_S = 3.0
LENDER_S = 5.0
WARM_UP_S = 1.5
"""Wall time at the reserved rate: of the lone tenant, of the lender (half of it
where nothing is enforced); of the borrower before it.
"""
KEEPS = 0.97
LENDS = 0.95
STAYS = 0.02
BIN_S = 0.1
STEP_S = 0.01
POLL_S = 0.004
WITHIN_S = 0.1


def run(quick: bool) -> list[Result]:
    """Two servers below one switch; both tenants have a VM on each and send
    both ways.

    The lender reserves 40 % of the link, the borrower 60 %. *Lent*: the share
    of the other's 40 % that the borrower gets while it is alone. Then the
    borrower sends with eight TCP flows, and the lender begins with one: *given
    back* is when the first 100 ms begin in which its VM receives 97 % of its
    guarantee (in steps of 10 ms, from the instant in which it begins to send),
    *kept* the share of its guarantee that it receives from 100 ms on until it
    ends. *Behind*: the most that it ever lacked of what its guarantee had
    brought until then, as time at that rate; unlike the least of any 100 ms it
    does not count packets, which are up to 7 % of those. *Transfer*: the time
    in which the lender's bytes had come, both ways, over the estimate at its
    guarantee.
    """
    links_mbps: Sequence[int] = LINKS_MBPS
    repeats = REPEATS
    if quick:
        links_mbps = LINKS_MBPS[:1]
        repeats = 1
    results = []
    for mbps in links_mbps:
        with network(tree([2], [mbps * 1_000_000], 2)) as emulation:
            for mode in ENFORCEMENTS:
                tries = []
                for _ in range(repeats):
                    tries.append(_try(emulation, mbps, mode))
                results += _rows(f"{mbps} Mbit/s, {mode}", mode, tries)
    return results


@dataclass(frozen=True)
class Try:
    """Shares of the idle bandwidth (``lent``) and of the guarantee (``kept``;
    ``least``: in the worst 100 ms); times in s.

    ``ratio``: measured over estimated time of the lender's transfer.
    """

    lent: float
    back_s: float
    behind_s: float
    kept: float
    least: float
    ratio: float


def _rows(name: str, mode: Enforcement, tries: list[Try]) -> list[Result]:
    """Rows of a mode. Where nothing is enforced there is no guarantee, so only
    ``lent`` has a target.
    """
    back_ms = tuple(1e3 * attempt.back_s for attempt in tries)
    kept = tuple(100 * attempt.kept for attempt in tries)
    ratios = tuple(attempt.ratio for attempt in tries)
    least = [round(100 * attempt.least, 1) for attempt in tries]
    extra = {"least_in_100_ms": least}
    if mode == "none":
        return [
            _lent_row(name, mode, tries),
            Result(f"{name}: given back", "ms", back_ms),
            Result(f"{name}: kept", "%", kept, extra=extra),
            Result(f"{name}: transfer", "measured/estimate", ratios),
        ]
    behind_ms = tuple(1e3 * attempt.behind_s for attempt in tries)
    return [
        _lent_row(name, mode, tries),
        _within_row(f"{name}: given back", back_ms),
        _within_row(f"{name}: behind", behind_ms),
        Result(
            f"{name}: kept",
            "%",
            samples=kept,
            target="at least 97 %",
            meets=min(kept) >= 100 * KEEPS,
            extra=extra,
        ),
        Result(
            f"{name}: transfer",
            "measured/estimate",
            samples=ratios,
            target=f"at most {1 / KEEPS:.3f}",
            meets=max(ratios) <= 1 / KEEPS,
        ),
    ]


def _lent_row(name: str, mode: Enforcement, tries: list[Try]) -> Result:
    """Row of the share that is lent; a strict guarantee lends nothing."""
    lent = tuple(attempt.lent for attempt in tries)
    target = "at least 0.95"
    meets = min(lent) >= LENDS
    if mode == "strict":
        target = "at most 0.02"
        meets = max(lent) <= STAYS
    return Result(
        f"{name}: lent", "share", samples=lent, target=target, meets=meets
    )


def _within_row(name: str, samples_ms: tuple[float, ...]) -> Result:
    return Result(
        name,
        "ms",
        samples=samples_ms,
        target="within 100 ms",
        meets=max(samples_ms) <= 1e3 * WITHIN_S,
    )


def _try(emulation: Emulation, mbps: int, mode: Enforcement) -> Try:
    link_bps = mbps * 1_000_000
    lender = enforced(
        emulation.plan,
        pair(emulation, 1, 0, round(link_bps * LENDER)),
        mode,
    )
    borrower = enforced(
        emulation.plan,
        pair(emulation, 2, 1, round(link_bps * BORROWER)),
        mode,
    )
    duration_s = LENDER_S
    with ExitStack() as stack:
        if mode == "none":
            duration_s = LENDER_S / 2
            emulation.network.allow_borrowing()
            stack.callback(emulation.network.forbid_borrowing)
        for tenant in (lender, borrower):
            emulation.admit(tenant)
            stack.callback(emulation.dismiss, tenant)
        (alone,) = transfer(emulation, [borrower], ALONE_S)
        lent_bps = borrower.rate_bps / alone.ratio - borrower.rate_bps
        with _borrowing(borrower):
            received = Received(emulation, lender)
            begin_s = received.during(duration_s)
    return received.judged(begin_s, lent_bps / lender.rate_bps)


@contextmanager
def _borrowing(tenant: TenantPlan) -> Iterator[None]:
    """Sends both ways with several TCP flows while the block runs."""
    sender, receiver = tenant.vms
    to = ("-c", str(receiver.ip), "-t", "600", "-P", str(FLOWS), "--bidir")
    with ExitStack() as processes:
        start_in_namespace(processes, receiver.slot.netns, "iperf3", "-s")
        # iperf3's client does not wait for a server.
        time.sleep(0.3)
        start_in_namespace(processes, sender.slot.netns, "iperf3", *to)
        time.sleep(0.3 + WARM_UP_S)
        yield


@dataclass
class Received:
    """Bytes that a tenant's first VM sends to its second, counted on the wire
    over time.
    """

    emulation: Emulation
    tenant: TenantPlan
    times_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    last_s: float = 0.0
    ratio: float = 0.0

    def during(self, duration_s: float) -> float:
        """Sends for ``duration_s`` at the reserved rate; returns the start in
        s.
        """
        size = payload_bytes(self.tenant.rate_bps * duration_s)
        names = spawn_agents(self.emulation, self.tenant, self._plans(size))
        enough = Event()
        watch = Thread(target=self._watch, args=(enough,))
        watch.start()
        try:
            reports, begin_ns = collect(
                self.emulation, names, 20 * duration_s + 30
            )
        finally:
            enough.set()
            watch.join()
        last_s = []
        for name in names:
            last_ns = reports[name].last_byte_ns or begin_ns
            last_s.append(last_ns / 1e9)
        # Only the second VM's port is watched; the transfer has two ends.
        self.last_s = last_s[1]
        ideal_s = ideal_transfer_s(size, self.tenant.rate_bps)
        self.ratio = (max(last_s) - begin_ns / 1e9) / ideal_s
        return begin_ns / 1e9

    def _plans(self, size: int) -> list[TransferPlan]:
        """Each of the two VMs sends ``size`` bytes to the other."""
        first, second = self.tenant.vms
        plans = []
        for vm, other in ((first, second), (second, first)):
            plan = TransferPlan(
                index=vm.index,
                ip=str(vm.ip),
                port=PORT,
                sends=(Outgoing(other.index, str(other.ip), PORT, size),),
                receives=(Incoming(other.index, size),),
            )
            plans.append(plan)
        return plans

    def _watch(self, enough: Event) -> None:
        at = Limiter(None, self.tenant.vms[1].slot.port.name)
        reader = self.emulation.network.counter_reader([at])
        while not enough.wait(POLL_S):
            (row,) = reader.read()
            # Not finite where the counter took too long to read.
            if np.isfinite(row["at_s"]):
                self.times_s.append(float(row["at_s"]))
                self.counts.append(int(row["sent_bytes"]))

    def judged(self, begin_s: float, lent: float) -> Try:
        """The lender's shares of its guarantee from ``begin_s`` on, and
        ``lent``.
        """
        rate_bps = self.tenant.rate_bps
        # Windows of 100 ms that begin every 10 ms, all of them whole.
        starts_s = np.arange(begin_s, self.last_s - BIN_S, STEP_S)
        shares = self._bits(starts_s, starts_s + BIN_S) / BIN_S / rate_bps
        # The first window that is full enough; the last of all if none is.
        first = len(shares) - 1
        if (shares >= KEEPS).any():
            first = int(np.argmax(shares >= KEEPS))
        from_s = begin_s + WITHIN_S
        until_s = self.last_s - BIN_S
        kept_bps = self._bits(from_s, until_s) / (until_s - from_s)
        # Time that the bytes so far take at the guarantee.
        came_s = self._bits(begin_s, starts_s) / rate_bps
        return Try(
            lent=lent,
            back_s=float(starts_s[first] - begin_s),
            behind_s=float((starts_s - begin_s - came_s).max()),
            kept=float(kept_bps / rate_bps),
            least=float(shares[first:].min()),
            ratio=self.ratio,
        )

    def _bits(
        self, from_s: np.ndarray | float, until_s: np.ndarray | float
    ) -> np.ndarray:
        """Bits received between instants, interpolated between samples."""
        before = np.interp(from_s, self.times_s, self.counts)
        after = np.interp(until_s, self.times_s, self.counts)
        return np.asarray((after - before) * 8)
