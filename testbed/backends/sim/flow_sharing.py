"""Best-effort jobs in the simulated network: their flows share what the
reserved jobs leave.

TCP is modelled as max-min fairness. A best-effort job's rate depends on how
its flows depend on each other, which the DCloud paper leaves open
(docs/decisions/26), and on the flows' weights on a link. Both are set by the
simulator's :class:`~testbed.schedulers.policy.SharingModel`:

- ``slowest``: the job advances at the rate of its slowest flow. Its other
  flows keep their fair share, and what they do not need of it is wasted.
  DCloud, Section IV.C: "the competition based bandwidth sharing in BL may
  cause bandwidth waste".
- ``lockstep``: the job advances at the rate of its slowest flow, and its other
  flows take no more than that.
- ``independent``: every flow has its own volume and end; the job ends with its
  last flow. The share of a finished flow goes to others at the next change,
  and at the latest after ``recompute_s``.

A *bundle* is all flows of a job between two servers, or one flow where they are
counted singly. Flows between VMs of one server load no link.
"""

from __future__ import annotations

import math
from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np

from jobs.live.patterns import receivers
from jobs.request import JobRequest
from testbed.embedding.placement import (
    Placement,
    hose_bps,
    tree_of,
    vms_below,
)
from testbed.reservation.maxmin import (
    FloatArray,
    even_rates,
    max_min_rates,
)
from testbed.schedulers.policy import SharingModel
from topologies.datacentre import DataCentre, IntArray, Tree


@dataclass(frozen=True, eq=False)
class Traffic:
    """A job's bundles. ``count`` flows in each, of which every VM sends
    ``per_vm`` at once.

    Bundle k loads the directed links ``links[start[k] : start[k + 1]]``. At
    rate b per VM a flow carries b / ``per_vm``.
    """

    per_vm: int
    count: IntArray
    start: IntArray
    links: IntArray

    @property
    def n_bundles(self) -> int:
        return len(self.count)


def traffic(
    datacentre: DataCentre,
    job: JobRequest,
    placement: Placement,
    seed: int,
) -> Traffic:
    """The job's traffic in its own pattern; a permutation is drawn from
    ``seed`` and the job's id.

    A single VM and a compute job send nothing.
    """
    server_ids, counts = np.array(placement.vms_on, dtype=np.int64).T
    servers = np.repeat(server_ids, counts)
    n = len(servers)
    if n < 2 or not job.demand.network:
        empty = np.empty(0, dtype=np.int64)
        return Traffic(1, empty, np.zeros(1, dtype=np.int64), empty)
    if job.demand.pattern == "all-to-all":
        return _all_to_all(datacentre, placement.root, server_ids, counts)
    # The same draw as on the live network (testbed.plan.agent_plans).
    stream = Random(f"{seed}/{job.id}")  # noqa: S311 - no secret
    receiver = np.array(
        receivers(job.demand.pattern, n, stream), dtype=np.int64
    )
    start, links = paths(
        datacentre, placement.root, servers, servers[receiver]
    )
    return Traffic(1, np.ones(n, dtype=np.int64), start, links)


def proximate_priority(
    datacentre: DataCentre,
    job: JobRequest,
    placement: Placement,
    flows: Traffic,
) -> FloatArray:
    """Weight of a flow on each of its bundle's links under PS-P, shape
    ``flows.links``.

    For a flow from VM X to VM Y it is W_X/N_X on the links of X's side and
    W_Y/N_Y on those of Y's. N is the number of VMs that X, or Y, talks to
    through the link; W is 1 (FairCloud; JSA, Section V.A). N is 1 where a VM
    sends to one other VM. Where it sends to all, N counts the VMs that are not
    below the link.
    """
    if job.demand.pattern != "all-to-all" or not len(flows.links):
        return np.ones(len(flows.links))
    tree = tree_of(datacentre, placement.root)
    n_vms = placement.n_vms
    outside = {}
    for node, n_below in vms_below(tree, placement).items():
        outside[int(tree.uplink[node])] = n_vms - n_below
    weights = [1.0 / outside[link // 2] for link in flows.links.tolist()]
    return np.array(weights)


def _all_to_all(
    datacentre: DataCentre,
    root: int,
    servers: IntArray,
    counts: IntArray,
) -> Traffic:
    """Every VM to every other: one bundle for every ordered pair of servers,
    and one for the rest.

    ``counts``: the number of VMs on each server. The last bundle is the flows
    inside servers.
    """
    source, target = np.nonzero(~np.eye(len(servers), dtype=np.bool_))
    start, links = paths(datacentre, root, servers[source], servers[target])
    count = counts[source] * counts[target]
    inside = int(np.sum(counts * (counts - 1)))
    if inside:
        # One more bundle, which uses no link.
        count = np.append(count, inside)
        start = np.append(start, start[-1])
    return Traffic(int(counts.sum()) - 1, count, start, links)


def paths(
    datacentre: DataCentre,
    root: int,
    source: IntArray,
    target: IntArray,
) -> tuple[IntArray, IntArray]:
    """Directed links from each source to its target in the tree below ``root``.

    ``links[start[k] : start[k + 1]]`` are those of pair k, in no particular
    order.
    """
    owner, links = _used_links(tree_of(datacentre, root), source, target)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(source))
    start = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return start, links[order]


def _used_links(
    tree: Tree, source: IntArray, target: IntArray
) -> tuple[IntArray, IntArray]:
    """Directed links that the pairs use, level by level; returns the pair of
    each, and the links.
    """
    # An empty one first: pairs within a server have no link.
    pairs: list[IntArray] = [np.empty(0, dtype=np.int64)]
    links: list[IntArray] = [np.empty(0, dtype=np.int64)]
    near = source.copy()
    far = target.copy()
    while np.any(near != far):
        unconnected = near != far
        low = tree.level[near]
        high = tree.level[far]
        # Bottom-up pass: the lower end moves to its parent, both where they are
        # equally high.
        rising = np.flatnonzero(unconnected & (low <= high))
        owner, link = _rise(tree, near, rising)
        pairs.append(owner)
        links.append(2 * link)
        rising = np.flatnonzero(unconnected & (high <= low))
        owner, link = _rise(tree, far, rising)
        pairs.append(owner)
        links.append(2 * link + 1)
    return np.concatenate(pairs), np.concatenate(links)


def _rise(
    tree: Tree, nodes: IntArray, rising: IntArray
) -> tuple[IntArray, IntArray]:
    """Moves the ``rising`` ones of ``nodes`` to their parents; returns those
    that go over a link, and these links.
    """
    link = tree.uplink[nodes[rising]]
    linked = link >= 0
    nodes[rising] = tree.parent[nodes[rising]]
    return rising[linked], link[linked]


# -------------------------------------------------------------------------------------- rates


Units = tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]
"""Units of :func:`max_min_rates`: number of links of each, these links, weights
on them, caps of the units, and priorities on the links.
"""


@dataclass(eq=False)
class _BestEffortJob:
    """A best-effort job and its flows.

    ``cap_bps``: the most that a VM sends. ``flow_bits``: the volume of a flow.
    ``left_bits``: what each flow of a bundle has left to send, by bundle
    (``independent`` only). ``flow_bps``: the rate of each flow of a bundle, by
    bundle (unused with ``lockstep``).
    ``priority``: of a flow, on each of its bundle's links. ``vm_bps``: the
    job's rate per VM. ``cut``: it sends nothing.
    """

    request: JobRequest
    flows: Traffic
    cap_bps: float
    flow_bits: float
    left_bits: FloatArray
    flow_bps: FloatArray
    priority: FloatArray
    vm_bps: float = 0.0
    cut: bool = False

    @cached_property
    def width(self) -> IntArray:
        """Number of links of each bundle."""
        return np.diff(self.flows.start)

    @cached_property
    def weight(self) -> FloatArray:
        """Flows of the bundle, for each of its links."""
        return np.repeat(self.flows.count, self.width).astype(np.float64)

    @cached_property
    def load(self) -> tuple[IntArray, FloatArray]:
        """The job's links, and the load of each at a rate per VM of 1."""
        links, place = np.unique(self.flows.links, return_inverse=True)
        flows = np.bincount(place, self.weight, minlength=len(links))
        return links, flows / self.flows.per_vm

    @cached_property
    def job_priority(self) -> FloatArray:
        """Weight of the job's rate per VM on the links of ``load``."""
        links, load = self.load
        place = np.searchsorted(links, self.flows.links)
        total = np.bincount(
            place, self.weight * self.priority, minlength=len(links)
        )
        shares: FloatArray = total / load
        return shares

    @cached_property
    def sending(self) -> IntArray:
        """Flows that leave their server, by bundle: each goes up the server's
        own link once.
        """
        return np.where(self.width > 0, self.flows.count, 0)

    def as_unit(self) -> Units:
        """The whole job as one unit, whose rate is the job's rate per VM."""
        links, load = self.load
        cap = np.array([0.0 if self.cut else self.cap_bps])
        return np.array([len(links)]), links, load, cap, self.job_priority


NEGLIGIBLE = 1e-9
"""Share of a flow's volume that is left by rounding alone."""


class _AllBundles:
    """The bundles of several jobs, one after the other, in an array for each of
    their values.

    ``left_bits`` and ``flow_bps`` of the jobs become views of the arrays here:
    an operation on all flows is one operation, however many jobs there are.
    """

    def __init__(self, jobs: Sequence[_BestEffortJob]) -> None:
        sizes = np.array([job.flows.n_bundles for job in jobs])
        self._n_bundles = sizes
        ends = np.cumsum(sizes)
        self._with_flows = np.flatnonzero(sizes)
        self._first = (ends - sizes)[self._with_flows]
        self._per_vm = np.array([job.flows.per_vm for job in jobs])
        self._cap_bps = np.array([job.cap_bps for job in jobs])
        volumes = np.array([job.flow_bits for job in jobs])
        self._negligible_bits = np.repeat(NEGLIGIBLE * volumes, sizes)
        self._wanted_bps = np.repeat(self._cap_bps / self._per_vm, sizes)
        cut = np.array([job.cut for job in jobs])
        self._connected = np.repeat(~cut, sizes)
        self._width = np.concatenate([job.width for job in jobs])
        self._link = np.concatenate([job.flows.links for job in jobs])
        self._weight = np.concatenate([job.weight for job in jobs])
        self._priority = np.concatenate([job.priority for job in jobs])
        self.flows = np.concatenate([job.flows.count for job in jobs])
        self.sending = np.concatenate([job.sending for job in jobs])
        self.left_bits = np.concatenate([job.left_bits for job in jobs])
        self.flow_bps = np.concatenate([job.flow_bps for job in jobs])
        self._share_out(jobs, ends)

    def _share_out(
        self, jobs: Sequence[_BestEffortJob], ends: IntArray
    ) -> None:
        """Makes the jobs' own values views of the arrays of all."""
        first = 0
        for job, last in zip(jobs, ends.tolist(), strict=True):
            job.left_bits = self.left_bits[first:last]
            job.flow_bps = self.flow_bps[first:last]
            first = last

    def units(self) -> Units:
        """A unit for each bundle, at one flow's rate; finished ones want 0."""
        active = (self.left_bits > 0) & self._connected
        keep = np.repeat(active, self._width)
        return (
            np.where(active, self._width, 0),
            self._link[keep],
            self._weight[keep],
            np.where(active, self._wanted_bps, 0.0),
            self._priority[keep],
        )

    def set_rates(self, flow_bps: FloatArray) -> FloatArray:
        """Takes the rates of all bundles' flows; the jobs' rates per VM, each
        that of its slowest flow.
        """
        self.flow_bps[:] = flow_bps
        # A job without flows, all of its VMs on a server, is as fast as it
        # can be.
        slowest = self._of_jobs(np.minimum, flow_bps, without=math.inf)
        vm_bps: FloatArray = np.minimum(
            slowest * self._per_vm, self._cap_bps
        )
        return vm_bps

    def for_bundles(self, vm_bps: FloatArray) -> FloatArray:
        """The rate of a flow of each bundle where jobs have these per VM."""
        return np.repeat(vm_bps / self._per_vm, self._n_bundles)

    def advance(self, elapsed_s: float) -> bool:
        """Lets all flows send for ``elapsed_s``; True where one has ended."""
        was_active = self.left_bits > 0
        self.left_bits -= self.flow_bps * elapsed_s
        # What is left by rounding alone would ask for a share of its own.
        self.left_bits[self.left_bits < self._negligible_bits] = 0.0
        return bool(np.any(was_active & (self.left_bits <= 0)))

    def longest_left_s(self) -> FloatArray:
        """Time until each job's last flow ends at its present rate."""
        active = self.left_bits > 0
        left_s = np.where(active, math.inf, 0.0)
        sending = active & (self.flow_bps > 0)
        np.divide(self.left_bits, self.flow_bps, out=left_s, where=sending)
        return self._of_jobs(np.maximum, left_s, without=0.0)

    def _of_jobs(
        self, reduction: np.ufunc, values: FloatArray, *, without: float
    ) -> FloatArray:
        """A value of each job from those of its bundles; ``without`` where it
        has none.
        """
        of_jobs = np.full(len(self._per_vm), without)
        if len(values):
            of_jobs[self._with_flows] = reduction.reduceat(
                values, self._first
            )
        return of_jobs


class SharedNetwork:
    """The best-effort jobs of one data centre and their present rates."""

    def __init__(
        self,
        datacentre: DataCentre,
        model: SharingModel,
        seed: int,
    ) -> None:
        self._datacentre = datacentre
        self.model = model
        self._seed = seed
        self._left: FloatArray = datacentre.directed_capacity_bps.astype(
            np.float64
        )
        self._held: dict[str, Mapping[int, int]] = {}
        self._jobs: dict[str, _BestEffortJob] = {}
        # Made when rates are computed after a job has come, gone or changed.
        self._bundles: _AllBundles | None = None
        self._stale = False

    @property
    def jobs(self) -> KeysView[str]:
        """Best-effort jobs that run, in order of their start: a live view."""
        return self._jobs.keys()

    # -- jobs -----------------------------------------------------------------------

    def join(
        self,
        job: JobRequest,
        placement: Placement,
        done: float = 0.0,
    ) -> None:
        """Adds a best-effort job with progress ``done``, or moves a running one
        to the paths of another root.
        """
        flows = traffic(self._datacentre, job, placement, self._seed)
        bits = math.inf
        left_bits = math.inf
        if not job.demand.timed:
            bits = job.demand.volume_bits(job) / flows.per_vm
            left_bits = job.demand.left_bits(job, done) / flows.per_vm
        priority = np.ones(len(flows.links))
        if self.model.weights == "proximate":
            priority = proximate_priority(
                self._datacentre, job, placement, flows
            )
        # Bundles are pairs of servers, whatever the root: each keeps what it
        # has left to send.
        running = self._jobs.get(job.id)
        left = np.full(flows.n_bundles, left_bits)
        if running is not None:
            left = running.left_bits
        cap_bps = float(job.bandwidth_bps)
        if not self.model.capped:
            cap_bps = float(self._datacentre.directed_capacity_bps.max())
        self._jobs[job.id] = _BestEffortJob(
            job,
            flows,
            cap_bps=cap_bps,
            flow_bits=bits,
            left_bits=left,
            flow_bps=np.zeros(flows.n_bundles),
            priority=priority,
        )
        self._bundles = None
        self._stale = True

    def cut(
        self,
        job_id: str,
        *,
        cut: bool,
    ) -> None:
        """Stops a best-effort job from sending, or lets it send again."""
        self._jobs[job_id].cut = cut
        self._bundles = None
        self._stale = True

    def leave(self, job_id: str) -> None:
        """Removes a best-effort job, or a reserved job's hose; no error where
        it has none.
        """
        if self._jobs.pop(job_id, None) is not None:
            self._bundles = None
        for link, bps in self._held.pop(job_id, {}).items():
            self._left[link] += bps
        self._stale = True

    def hold(
        self,
        job_id: str,
        placement: Placement,
        rate_bps: int,
    ) -> None:
        """Takes a reserved job's hose out of the shared capacity.

        A later call for the same job replaces its hose.
        """
        self.leave(job_id)
        tree = tree_of(self._datacentre, placement.root)
        self._held[job_id] = hose_bps(tree, placement, rate_bps)
        for link, bps in self._held[job_id].items():
            self._left[link] -= bps
        self._stale = True

    # -- rates ------------------------------------------------------------------------------

    def recompute(self) -> dict[str, float]:
        """The rate of each best-effort job, in bit/s per VM; computed anew only
        if anything has changed.
        """
        if self._stale and self._jobs:
            self._recompute()
            self._stale = False
        return {job_id: job.vm_bps for job_id, job in self._jobs.items()}

    def _recompute(self) -> None:
        """Computes all rates. Units are bundles, with ``lockstep`` jobs."""
        jobs = list(self._jobs.values())
        if self.model.flow_dependency == "lockstep":
            units = [job.as_unit() for job in jobs]
            # All jobs' units in one array each, as the compiled loop takes
            # them.
            width, link, weight, cap, priority = map(
                np.concatenate, zip(*units, strict=True)
            )
            vm_bps = self._rates((width, link, weight, cap, priority))
        else:
            bundles = self._all_bundles()
            vm_bps = bundles.set_rates(self._rates(bundles.units()))
        for job, bps in zip(jobs, vm_bps.tolist(), strict=True):
            job.vm_bps = bps

    def _rates(self, units: Units) -> FloatArray:
        """The units' rates in what reserved jobs leave."""
        width, link, weight, cap, priority = units
        start = np.concatenate(([0], np.cumsum(width))).astype(np.int64)
        if self.model.allocation == "even":
            return even_rates(
                self._left, start=start, link=link, weight=weight, cap=cap
            )
        priorities = None
        if self.model.weights == "proximate":
            priorities = priority
        return max_min_rates(
            self._left,
            start=start,
            link=link,
            weight=weight,
            cap=cap,
            priority=priorities,
        )

    def _all_bundles(self) -> _AllBundles:
        """The bundles of the jobs that run now: there is at least one job."""
        if self._bundles is None:
            self._bundles = _AllBundles(list(self._jobs.values()))
        return self._bundles

    # -- independent flows -----------------------------------------------------

    @property
    def independent(self) -> bool:
        return self.model.flow_dependency == "independent"

    def advance(self, elapsed_s: float) -> None:
        """Lets all flows send for ``elapsed_s`` (``independent``)."""
        # The share of a flow that has ended is free for others.
        if self._all_bundles().advance(elapsed_s):
            self._stale = True

    def longest_left_s(self) -> dict[str, float]:
        """Time until each job's last flow ends at its present rate
        (``independent``).
        """
        left_s = self._all_bundles().longest_left_s().tolist()
        return dict(zip(self._jobs, left_s, strict=True))

    # -- load -----------------------------------------------------------

    def server_uplink_bps(self) -> float:
        """Sum of the best-effort jobs' present rates up the servers' own links."""
        bundles = self._all_bundles()
        return float(np.sum(bundles.sending * self._carried_bps(bundles)))

    def between_vms_bps(self) -> float:
        """Sum of the best-effort jobs' present rates, those inside servers
        included.
        """
        bundles = self._all_bundles()
        return float(np.sum(bundles.flows * self._carried_bps(bundles)))

    def _carried_bps(self, bundles: _AllBundles) -> FloatArray:
        """The rate at which each flow of a bundle makes use of its share."""
        if self.model.flow_dependency == "independent":
            return bundles.flow_bps
        vm_bps = np.array([job.vm_bps for job in self._jobs.values()])
        of_job = bundles.for_bundles(vm_bps)
        if self.model.flow_dependency == "lockstep":
            return of_job
        carried: FloatArray = np.minimum(bundles.flow_bps, of_job)
        return carried
