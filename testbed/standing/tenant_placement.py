"""Placements of tenants of a standing network: by an embedder or by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.embedding.base import embedder
from testbed.embedding.check import check_placement
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.errors import BadInput, DoesNotFit
from testbed.plan.network_plan import MAX_TENANT_VMS
from testbed.standing.keeper_protocol import AddTenant
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre


def check_bandwidth(datacentre: DataCentre, bandwidth_bps: int) -> None:
    """Raises BadInput for no bandwidth, DoesNotFit for more than servers have."""
    if bandwidth_bps <= 0:
        raise BadInput("the bandwidth of a tenant is above 0 bit/s")
    most_bps = int(max(datacentre.nic_bps, default=0))
    # 0 where no server has a link: then nothing limits a bandwidth.
    if 0 < most_bps < bandwidth_bps:
        raise DoesNotFit(
            f"{human_bandwidth(bandwidth_bps)} asked per VM, "
            f"no server's link has more than {human_bandwidth(most_bps)}"
        )


def embedded(
    datacentre: DataCentre,
    free: Residual,
    request: AddTenant,
    embedder_name: str,
    largest_bps: int,
) -> Placement:
    """A tenant's placement by an embedder. Raises BadInput, DoesNotFit.

    ``largest_bps``: the most that any tenant so far has asked for per VM.
    """
    placement = embedder(embedder_name).embed(
        datacentre,
        free,
        request.n_vms,
        request.bandwidth_bps,
        largest_bps=largest_bps,
    )
    if isinstance(placement, Refusal):
        raise DoesNotFit(
            f"tenant {request.name} does not fit: {placement.reason}",
            "testbed status",
        )
    return placement


def placed_by_hand(
    datacentre: DataCentre,
    free: Residual,
    request: AddTenant,
) -> Placement:
    """A tenant's placement on the servers that it names. Raises BadInput.

    Of the trees that connect them, the first with room is chosen. Where none has
    room, the first of all is: the ledger then says what is lacking.
    """
    vms_on = _vms_by_server(datacentre, request)
    choices = [
        Placement(root, tuple(sorted(vms_on.items())))
        for root in _spanning_roots(datacentre, set(vms_on))
    ]
    if not choices:
        raise BadInput("no tree of links connects the servers named")
    for placement in choices:
        # Nothing is booked yet: that is left to the ledger.
        problems = check_placement(
            datacentre,
            free,
            placement,
            n_vms=request.n_vms,
            rate_bps=request.bandwidth_bps,
        )
        if not problems:
            return placement
    return choices[0]


def _vms_by_server(
    datacentre: DataCentre,
    request: AddTenant,
) -> dict[int, int]:
    """Numbers of VMs by server, as ``at`` of a request has them.

    Raises BadInput.
    """
    vms_on = Counter[int]()
    for text, count in request.at:
        # A server may be named twice, by its name and by its number.
        vms_on[_server(datacentre, text)] += count
    n_placed = vms_on.total()
    if n_placed != request.n_vms or min(vms_on.values()) < 1:
        raise BadInput(
            f"{request.n_vms} VMs are asked for, "
            f"{n_placed} are placed by hand; "
            "each server named takes at least one"
        )
    return vms_on


def _server(datacentre: DataCentre, text: str) -> int:
    """A server by its name, or by its number."""
    names = datacentre.names[: datacentre.n_servers]
    numbers = tuple(map(str, range(len(names))))
    for texts in (names, numbers):
        if text in texts:
            return texts.index(text)
    raise BadInput(
        f"unknown server {text!r}: "
        f"{names[0]} to {names[-1]}, or by their numbers"
    )


def open_placement(datacentre: DataCentre) -> Placement:
    """A VM in every slot, on the first tree that spans all servers with slots.

    Raises BadInput without such a tree.
    """
    slots = datacentre.slots.tolist()
    vms_on = {server: count for server, count in enumerate(slots) if count}
    root = next(_spanning_roots(datacentre, set(vms_on)), None)
    if datacentre.n_links == 0 or root is None:
        raise BadInput(
            "no network connects all servers of this "
            f"{datacentre.kind} topology",
            "give the topology links that connect all servers, "
            "as kind: tree has",
        )
    if datacentre.total_slots > MAX_TENANT_VMS:
        raise BadInput(
            f"{datacentre.total_slots} VM slots: "
            f"an open network has at most {MAX_TENANT_VMS}",
            "use a smaller topology",
        )
    return Placement(root, tuple(vms_on.items()))


def _spanning_roots(
    datacentre: DataCentre,
    servers: set[int],
) -> Iterator[int]:
    """Roots of the trees that connect all of these servers, in order."""
    for tree in datacentre.trees:
        if servers <= set(tree.members.tolist()):
            yield tree.root
