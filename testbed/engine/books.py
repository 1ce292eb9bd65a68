"""What is booked in each tier of the nodes: one ledger a tier, every placement checked first.

The foreground has the slots and the links. The background has as many slots again and no links:
its VMs run on what CPU the foreground leaves (CMBF, Section 4.2), so nothing in it may reserve
bandwidth.
"""

from __future__ import annotations

from testbed.embedding.check import check_placement
from testbed.embedding.placement import ONE_SLOT, Placement, Residual, VmSize
from testbed.errors import RunFailed
from testbed.reservation.ledger import Ledger
from testbed.schedulers.actions import Tier
from topologies.datacentre import DataCentre


class Books:
    """The ledgers of both tiers; who holds what is in exactly one of them."""

    def __init__(self, datacentre: DataCentre) -> None:
        self._datacentre = datacentre
        self.foreground = Ledger(datacentre)
        self._background: Ledger | None = None
        self._now_s = 0.0

    @property
    def background(self) -> Ledger:
        """The background's ledger, made when it is first used."""
        if self._background is None:
            self._background = Ledger(self._datacentre)
            self._background.forget_before(self._now_s)
        return self._background

    def of(self, tier: Tier) -> Ledger:
        return self.foreground if tier == "foreground" else self.background

    def residual(self, start_s: float, end_s: float | None, tier: Tier) -> Residual:
        """The least that is free in a tier at any instant of ``[start_s, end_s)``."""
        return self.of(tier).residual(start_s, end_s)

    def book(
        self,
        job_id: str,
        n_vms: int,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
        start_s: float,
        end_s: float | None,
        size: VmSize = ONE_SLOT,
    ) -> None:
        """Check a placement independently, then reserve it. Raises RunFailed where it is wrong."""
        free = self.residual(start_s, end_s, tier)
        wrong = check_placement(self._datacentre, free, placement, n_vms, rate_bps, size)
        if tier == "background" and rate_bps:
            wrong.append(f"{rate_bps} bit/s asked in the background, which has no links")
        if wrong:
            raise RunFailed(f"job {job_id}, {tier}: {'; '.join(wrong)}")
        self.of(tier).reserve(job_id, placement, rate_bps, start_s, end_s, size)

    def release(self, job_id: str, tier: Tier, at_s: float) -> None:
        """Free what is left of a job's reservation."""
        self.of(tier).release(job_id, at_s)

    def forget_before(self, now_s: float) -> None:
        """Nothing before ``now_s`` will be asked about or changed again."""
        self._now_s = now_s
        self.foreground.forget_before(now_s)
        if self._background is not None:
            self._background.forget_before(now_s)

    def check(self) -> None:
        """Derive both ledgers anew (:meth:`Ledger.check`); who is in both is an error."""
        self.foreground.check()
        if self._background is not None:
            self._background.check()
            both = set(self.foreground.holdings()) & set(self._background.holdings())
            if both:
                raise RunFailed(f"jobs hold nodes in both tiers: {', '.join(sorted(both))}")
