"""Unused bandwidth lent, given back, and guarantees kept, in each mode of
enforcement.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import numpy as np

from bench.live_network import PORT, collect, network, pair, transfer
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
LENDER, BORROWER = 0.4, 0.6
"""Shares of the link that the two tenants reserve: together all of it."""
FLOWS = 8
ALONE_S, LENDER_S, WARM_UP_S = 3.0, 5.0, 1.5
"""Wall time at the reserved rate: of the lone tenant, of the lender (half of it
where nothing is enforced); of the borrower before it.
"""
KEEPS, LENDS, STAYS = 0.97, 0.95, 0.02
BIN_S, STEP_S, POLL_S = 0.1, 0.01, 0.004
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
    results = []
    for mbps in LINKS_MBPS[: 1 if quick else None]:
        with network(tree([2], [mbps * 1_000_000], 2)) as emulation:
            for mode in ENFORCEMENTS:
                tries = [
                    _try(emulation, mbps, mode)
                    for _ in range(1 if quick else REPEATS)
                ]
                results += _rows(f"{mbps} Mbit/s, {mode}", mode, tries)
    return results


@dataclass(frozen=True)
class Try:
    """Shares of what is idle, and of the guarantee; ``least``: in the worst 100
    ms after that.

    ``ratio``: of the lender's transfer, measured over estimated time.
    """

    lent: float
    back_s: float
    behind_s: float
    kept: float
    least: float
    ratio: float


def _rows(name: str, mode: Enforcement, tries: list[Try]) -> list[Result]:
    lent = tuple(attempt.lent for attempt in tries)
    back_ms = tuple(1e3 * attempt.back_s for attempt in tries)
    behind_ms = tuple(1e3 * attempt.behind_s for attempt in tries)
    kept = tuple(100 * attempt.kept for attempt in tries)
    ratios = tuple(attempt.ratio for attempt in tries)
    least = [round(100 * attempt.least, 1) for attempt in tries]
    target, meets = "at least 0.95", min(lent) >= LENDS
    if mode == "strict":
        target, meets = "at most 0.02", max(lent) <= STAYS
    rows = [
        Result(
            f"{name}: lent",
            "share",
            samples=lent,
            target=target,
            meets=meets,
        )
    ]
    extra = {"least_in_100_ms": least}
    if mode == "none":  # no guarantee, and no target
        rows.append(Result(f"{name}: given back", "ms", back_ms))
        rows.append(Result(f"{name}: kept", "%", kept, extra=extra))
        return [
            *rows,
            Result(f"{name}: transfer", "measured/estimate", ratios),
        ]
    for what, samples in (("given back", back_ms), ("behind", behind_ms)):
        good = max(samples) <= 1e3 * WITHIN_S
        rows.append(
            Result(
                f"{name}: {what}",
                "ms",
                samples=samples,
                target="within 100 ms",
                meets=good,
            )
        )
    good = min(kept) >= 100 * KEEPS
    rows.append(
        Result(
            f"{name}: kept",
            "%",
            samples=kept,
            target="at least 97 %",
            meets=good,
            extra=extra,
        )
    )
    target, good = f"at most {1 / KEEPS:.3f}", max(ratios) <= 1 / KEEPS
    return [
        *rows,
        Result(
            f"{name}: transfer",
            "measured/estimate",
            samples=ratios,
            target=target,
            meets=good,
        ),
    ]


def _try(emulation: Emulation, mbps: int, mode: Enforcement) -> Try:
    link_bps = mbps * 1_000_000
    plans = [
        enforced(
            emulation.plan,
            pair(emulation, number, number - 1, round(link_bps * share)),
            mode,
        )
        for number, share in ((1, LENDER), (2, BORROWER))
    ]
    lender, borrower = plans
    with ExitStack() as stack:
        if mode == "none":
            emulation.network.allow_borrowing()
            stack.callback(emulation.network.forbid_borrowing)
        for tenant in plans:
            emulation.admit(tenant)
            stack.callback(emulation.dismiss, tenant)
        alone_bps = (
            borrower.rate_bps
            / transfer(emulation, [borrower], ALONE_S)[0].ratio
        )
        lent = (alone_bps - borrower.rate_bps) / lender.rate_bps
        with _borrowing(borrower):
            received = Received(emulation, lender)
            begin_s = received.during(
                LENDER_S / 2 if mode == "none" else LENDER_S
            )
    return Try(
        lent, *received.judged(begin_s, lender.rate_bps), received.ratio
    )


@contextmanager
def _borrowing(tenant: TenantPlan) -> Iterator[None]:
    """All that it gets, with several flows, until left. Each process is ended
    by its own handle.
    """
    sender, receiver = tenant.vms
    to = ("-c", str(receiver.ip), "-t", "600", "-P", str(FLOWS), "--bidir")
    with ExitStack() as processes:
        for vm, arguments in ((receiver, ("-s",)), (sender, to)):
            process = subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    vm.slot.netns,
                    "iperf3",
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            # Callbacks run backwards: it is killed, then waited for.
            processes.callback(process.wait)
            processes.callback(process.kill)
            # iperf3's client does not wait for a server.
            time.sleep(0.3)
        time.sleep(WARM_UP_S)
        yield


@dataclass
class Received:
    """Bytes that reach a tenant's second VM from its first, counted on the
    wire, over time.
    """

    emulation: Emulation
    tenant: TenantPlan
    times_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    last_s: float = 0.0
    ratio: float = 0.0

    def during(self, duration_s: float) -> float:
        """Send for so long at the reserved rate; returns when it began."""
        sender, receiver = self.tenant.vms
        size = payload_bytes(self.tenant.rate_bps * duration_s)
        plans = [
            TransferPlan(
                index=vm.index,
                ip=str(vm.ip),
                port=PORT,
                sends=(Outgoing(other.index, str(other.ip), PORT, size),),
                receives=(Incoming(other.index, size),),
            )
            for vm, other in ((sender, receiver), (receiver, sender))
        ]
        names = [
            f"{self.tenant.job_id}.{vm.index}" for vm in self.tenant.vms
        ]
        for name, vm, plan in zip(
            names, self.tenant.vms, plans, strict=True
        ):
            self.emulation.spawn(name, vm.slot, plan)
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
        last_s = [
            (reports[name].last_byte_ns or begin_ns) / 1e9 for name in names
        ]
        self.last_s = last_s[1]
        ideal_s = ideal_transfer_s(size, self.tenant.rate_bps)
        self.ratio = (max(last_s) - begin_ns / 1e9) / ideal_s
        return begin_ns / 1e9

    def _watch(self, enough: Event) -> None:
        at = Limiter(None, self.tenant.vms[1].slot.port.name)
        reader = self.emulation.network.counter_reader([at])
        while not enough.wait(POLL_S):
            (row,) = reader.read()
            if np.isfinite(row["at_s"]):
                self.times_s.append(float(row["at_s"]))
                self.counts.append(int(row["sent_bytes"]))

    def judged(
        self, begin_s: float, rate_bps: int
    ) -> tuple[float, float, float, float]:
        """Until it is given back, and the most behind, in s; kept, and in the
        worst 100 ms.
        """
        last_s = self.last_s - BIN_S
        starts = np.arange(begin_s, last_s, STEP_S)
        shares = (
            (self._bytes(starts + BIN_S) - self._bytes(starts))
            * 8
            / BIN_S
            / rate_bps
        )
        first = (
            int(np.argmax(shares >= KEEPS))
            if (shares >= KEEPS).any()
            else len(shares) - 1
        )
        from_s = begin_s + WITHIN_S
        kept = (
            (self._bytes(last_s) - self._bytes(from_s))
            * 8
            / (last_s - from_s)
            / rate_bps
        )
        came_s = (self._bytes(starts) - self._bytes(begin_s)) * 8 / rate_bps
        behind_s = float((starts - begin_s - came_s).max())
        return (
            float(starts[first] - begin_s),
            behind_s,
            float(kept),
            float(shares[first:].min()),
        )

    def _bytes(self, at_s: np.ndarray | float) -> np.ndarray:
        return np.asarray(np.interp(at_s, self.times_s, self.counts))
