"""Jobs without a reservation share what the reserved ones leave: TCP as max-min fairness.

What a job gets depends on how its flows hang together, which the DCloud paper does not say
(docs/decisions/26):

- ``slowest``: the job advances with its slowest flow; its other flows hold their fair share all
  the same, and what they do not need is wasted. DCloud, Section IV.C: "the competition based
  bandwidth sharing in BL may cause bandwidth waste".
- ``lockstep``: the job advances with its slowest flow, and its others take no more than that.
- ``independent``: every flow goes on by itself and leaves when it is through; the job ends with
  its last flow. What a finished flow frees is given away at the next change, and at least every
  ``settle_s``.

And on who counts for how much on a link (``weights``): ``equal``, every flow alike, as TCP does; or
``proximate``, FairCloud's PS-P (docs/decisions/26): every VM counts alike on the links of its own
side of a path, however many others it talks to through them.
"""

from __future__ import annotations

import math
from collections.abc import KeysView
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from jobs.request import JobRequest
from testbed.backends.sim.flows import Traffic, proximate_priority, traffic
from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.reservation.maxmin import FloatArray, max_min_rates
from testbed.schedulers.policy import (
    FLOW_DEPENDENCIES,
    FLOW_WEIGHTS,
    FlowDependency,
    FlowWeights,
)
from topologies.datacentre import DataCentre, IntArray


@dataclass(frozen=True)
class Sharing:
    """How best-effort jobs share the network. ``settle_s`` is read by ``independent`` alone."""

    coupling: FlowDependency = "slowest"
    settle_s: float = 60.0
    weights: FlowWeights = "equal"

    def __post_init__(self) -> None:
        if self.coupling not in FLOW_DEPENDENCIES:
            raise ValueError(
                f"unknown coupling {self.coupling!r}: known are {', '.join(FLOW_DEPENDENCIES)}"
            )
        if self.weights not in FLOW_WEIGHTS:
            raise ValueError(
                f"unknown weights {self.weights!r}: known are {', '.join(FLOW_WEIGHTS)}"
            )
        if not self.settle_s > 0:
            raise ValueError("settle_s must be above 0 s")


@dataclass(eq=False)
class _Guest:
    """A best-effort job: its flows, and where its bundles stand among all units.

    ``left_bits`` of the ``flow_bits`` of every flow, by bundle (``independent`` alone);
    ``flow_bps`` each flow's rate, by bundle (not ``lockstep``, where ``vm_bps`` says all);
    ``priority`` of a flow on each of its bundles' links.
    """

    job: JobRequest
    flows: Traffic
    flow_bits: float
    left_bits: FloatArray
    flow_bps: FloatArray
    priority: FloatArray
    vm_bps: float = 0.0
    crossing: FloatArray | None = None

    @cached_property
    def width(self) -> IntArray:
        """How many links each bundle takes."""
        return np.diff(self.flows.start)

    @cached_property
    def weight(self) -> FloatArray:
        """For each of its links the flows of the bundle."""
        return np.repeat(self.flows.count, self.width).astype(np.float64)

    @cached_property
    def load(self) -> tuple[IntArray, FloatArray]:
        """Links and their load in units of the job's rate per VM."""
        return _load_per_vm_rate(self.flows)

    @cached_property
    def job_priority(self) -> FloatArray:
        """Of the job's rate per VM on the links of ``load``: its flows' together, over the load."""
        links, load = self.load
        place = np.searchsorted(links, self.flows.links)
        total = np.bincount(place, self.weight * self.priority, minlength=len(links))
        shares: FloatArray = total / load
        return shares


class SharedNetwork:
    """The best-effort jobs of one data centre and their rates at this moment."""

    def __init__(self, datacentre: DataCentre, sharing: Sharing, seed: int) -> None:
        self._datacentre = datacentre
        self._sharing = sharing
        self._seed = seed
        self._left: FloatArray = datacentre.directed_capacity_bps.astype(np.float64)
        self._held: dict[str, dict[int, int]] = {}
        self._guests: dict[str, _Guest] = {}
        self._stale = False
        self._at_server: npt.NDArray[np.bool_] | None = None

    @property
    def guests(self) -> KeysView[str]:
        """Best-effort jobs that run, in order of their start: a view, which stays true."""
        return self._guests.keys()

    # -- who is there -----------------------------------------------------------------------

    def join(self, job: JobRequest, placement: Placement) -> None:
        """A best-effort job starts."""
        flows = traffic(self._datacentre, job, placement, self._seed)
        bits = math.inf if job.demand.timed else job.demand.volume_bits(job) / flows.per_vm
        priority = (
            proximate_priority(self._datacentre, job, placement, flows)
            if self._sharing.weights == "proximate"
            else np.ones(len(flows.links))
        )
        self._guests[job.id] = _Guest(
            job, flows, bits, np.full(flows.n_bundles, bits), np.zeros(flows.n_bundles), priority
        )
        self._stale = True

    def leave(self, job_id: str) -> None:
        """A best-effort job has ended."""
        del self._guests[job_id]
        self._stale = True

    def hold(self, job_id: str, placement: Placement, rate_bps: int) -> None:
        """A reserved job takes its hose out of what is shared (again: at another rate)."""
        self.let_go(job_id)
        tree = tree_of(self._datacentre, placement.root)
        self._held[job_id] = hose_bps(tree, placement, rate_bps)
        for link, bps in self._held[job_id].items():
            self._left[link] -= bps
        self._stale = True

    def let_go(self, job_id: str) -> None:
        """A reserved job gives its hose back; no error where it has none."""
        for link, bps in self._held.pop(job_id, {}).items():
            self._left[link] += bps
            self._stale = True

    # -- rates ------------------------------------------------------------------------------

    def settle(self) -> dict[str, float]:
        """New rates where anything has changed: bit/s per VM of every best-effort job."""
        if self._stale:
            if self._sharing.coupling == "lockstep":
                self._settle_jobs()
            else:
                self._settle_flows()
            self._stale = False
        return {job_id: guest.vm_bps for job_id, guest in self._guests.items()}

    def _settle_jobs(self) -> None:
        """One unit a job: its rate per VM."""
        guests = list(self._guests.values())
        loads = [guest.load for guest in guests]
        rates = max_min_rates(
            self._left,
            np.concatenate(([0], np.cumsum([len(links) for links, _ in loads]))).astype(np.int64),
            _integers([links for links, _ in loads]),
            np.concatenate([np.empty(0), *(weight for _, weight in loads)]),
            np.array([float(guest.job.bandwidth_bps) for guest in guests]),
            np.concatenate([np.empty(0), *(guest.job_priority for guest in guests)])
            if self._sharing.weights == "proximate"
            else None,
        )
        for guest, rate in zip(guests, rates.tolist(), strict=True):
            guest.vm_bps = rate

    def _settle_flows(self) -> None:
        """One unit a bundle: the rate of each of its flows. Finished flows ask for nothing."""
        guests = list(self._guests.values())
        if not guests:
            return
        sizes = [guest.flows.n_bundles for guest in guests]
        first = np.concatenate(([0], np.cumsum(sizes)))
        cap = np.repeat([g.job.bandwidth_bps / g.flows.per_vm for g in guests], sizes)
        width = _integers([guest.width for guest in guests])
        link = _integers([g.flows.links for g in guests])
        weight = np.concatenate([guest.weight for guest in guests])
        priority = np.concatenate([guest.priority for guest in guests])
        if self.independent:
            active = np.concatenate([g.left_bits for g in guests]) > 0
            keep = np.repeat(active, width)
            width, link, weight = np.where(active, width, 0), link[keep], weight[keep]
            priority = priority[keep]
            cap = np.where(active, cap, 0.0)
        start = np.concatenate(([0], np.cumsum(width))).astype(np.int64)
        rates = max_min_rates(self._left, start, link, weight, cap, priority)
        for k, guest in enumerate(guests):
            guest.flow_bps = rates[first[k] : first[k + 1]]
            slowest = float(guest.flow_bps.min(initial=math.inf)) * guest.flows.per_vm
            guest.vm_bps = min(slowest, float(guest.job.bandwidth_bps))

    # -- flows that go on by themselves -----------------------------------------------------

    @property
    def independent(self) -> bool:
        return self._sharing.coupling == "independent"

    def advance(self, elapsed_s: float) -> None:
        """Let all flows send for ``elapsed_s`` (``independent``)."""
        for guest in self._guests.values():
            if len(guest.left_bits):
                was_active = guest.left_bits > 0
                guest.left_bits = np.maximum(guest.left_bits - guest.flow_bps * elapsed_s, 0.0)
                # What is left by rounding alone would ask for a share of its own.
                guest.left_bits[guest.left_bits < 1e-9 * guest.flow_bits] = 0.0
                self._stale = self._stale or bool(np.any(was_active & (guest.left_bits <= 0)))

    def longest_left_s(self, job_id: str) -> float:
        """Until the job's last flow ends at its present rate (``independent``)."""
        guest = self._guests[job_id]
        active = guest.left_bits > 0
        if not np.any(active):
            return 0.0
        rate = guest.flow_bps[active]
        return math.inf if np.any(rate <= 0) else float(np.max(guest.left_bits[active] / rate))

    def next_settling_s(self) -> float:
        """How long the present rates may stand although flows end (``independent``)."""
        return self._sharing.settle_s if self._guests else math.inf

    # -- what the network carries -----------------------------------------------------------

    def server_uplink_bps(self) -> float:
        """What best-effort jobs send up the servers' own links at their present rates, summed."""
        if self._at_server is None:
            self._at_server = np.zeros(2 * self._datacentre.n_links, dtype=np.bool_)
            self._at_server[0::2] = self._datacentre.link_lower < self._datacentre.n_servers
        total = 0.0
        for guest in self._guests.values():
            carried = guest.flow_bps
            if self._sharing.coupling == "lockstep":
                carried = np.full(guest.flows.n_bundles, guest.vm_bps / guest.flows.per_vm)
            elif self._sharing.coupling == "slowest":
                carried = np.minimum(carried, guest.vm_bps / guest.flows.per_vm)
            if guest.crossing is None:
                guest.crossing = _crossing(guest.flows, self._at_server)
            total += float(np.dot(guest.crossing, carried))
        return total


def _crossing(flows: Traffic, counted: npt.NDArray[np.bool_]) -> FloatArray:
    """Per bundle: its flows times how many of the counted links each takes."""
    bundle = np.repeat(np.arange(flows.n_bundles), np.diff(flows.start))
    times = np.bincount(bundle, counted[flows.links], minlength=flows.n_bundles)
    crossing: FloatArray = (times * flows.count).astype(np.float64)
    return crossing


def _load_per_vm_rate(flows: Traffic) -> tuple[IntArray, FloatArray]:
    """Links and their load in units of the rate per VM."""
    bundle = np.repeat(np.arange(flows.n_bundles), np.diff(flows.start))
    links, place = np.unique(flows.links, return_inverse=True)
    load = np.bincount(place, flows.count[bundle], minlength=len(links)) / flows.per_vm
    return links, load


def _integers(arrays: list[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])
