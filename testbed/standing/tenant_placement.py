"""Placement of a tenant that is asked for: by an embedder, or by hand."""

from __future__ import annotations

from testbed.embedding.base import embedder
from testbed.embedding.check import check_placement
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.errors import BadInput, DoesNotFit
from testbed.plan.network_plan import MAX_TENANT_VMS
from testbed.standing.keeper_protocol import AddTenant
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre


def check_bandwidth(datacentre: DataCentre, bandwidth_bps: int) -> None:
    """Raises BadInput, or DoesNotFit for more than a server's link has."""
    if bandwidth_bps <= 0:
        raise BadInput("the bandwidth of a tenant is above 0 bit/s")
    most_bps = int(max(datacentre.nic_bps, default=0))
    # 0: servers without a network, where nothing limits a bandwidth.
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
) -> Placement:
    """Where an embedder places a tenant. Raises BadInput, DoesNotFit."""
    placement = embedder(embedder_name).embed(
        datacentre, free, request.n_vms, request.bandwidth_bps
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
    """A tenant on the servers that it names. Raises BadInput.

    Of several trees the first with room is chosen; without any, the first of
    all: the ledger will say what it lacks.
    """
    vms_on = tuple(sorted(_vms_by_server(datacentre, request).items()))
    choices = [Placement(tree.root, vms_on) for tree in datacentre.trees]
    for placement in choices:
        # Asked, and not booked: the ledger decides.
        problems = check_placement(
            datacentre,
            free,
            placement,
            request.n_vms,
            request.bandwidth_bps,
        )
        if not problems:
            return placement
    return choices[0]


def _vms_by_server(
    datacentre: DataCentre,
    request: AddTenant,
) -> dict[int, int]:
    vms_on: dict[int, int] = {}
    for text, count in request.at:
        # A server may be named twice, by its name and by its number.
        server = _server(datacentre, text)
        vms_on[server] = vms_on.get(server, 0) + count
    n_placed = sum(vms_on.values())
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
    if text in names:
        return names.index(text)
    # ASCII: Python reads digits of other scripts, too.
    is_number = text.isascii() and text.isdecimal()
    if is_number and int(text) < len(names):
        return int(text)
    raise BadInput(
        f"unknown server {text!r}: "
        f"{names[0]} to {names[-1]}, or by their numbers"
    )


def open_placement(datacentre: DataCentre) -> Placement:
    """A VM in every slot, on the first tree that spans all servers.

    Raises BadInput without such a tree.
    """
    vms_on = []
    for server, n_slots in enumerate(datacentre.slots.tolist()):
        if n_slots:
            vms_on.append((server, n_slots))
    root = _spanning_root(datacentre, {server for server, _ in vms_on})
    if datacentre.n_links == 0 or not vms_on or root is None:
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
    return Placement(root, tuple(vms_on))


def _spanning_root(
    datacentre: DataCentre,
    servers: set[int],
) -> int | None:
    for tree in datacentre.trees:
        if servers <= set(tree.members.tolist()):
            return tree.root
    return None
