"""Places where packets can be captured on the network that is up: a standing one's, or that of
a run in progress.
"""

from __future__ import annotations

from testbed.backends.emu.capture_places import (
    CapturePlaces,
    link_at,
    noted_places,
)
from testbed.backends.emu.cleanup_journal import state_dir
from testbed.backends.emu.packet_capture import CapturePoint
from testbed.plan.batch_lines import VM_DEVICE
from testbed.standing.keeper_protocol import (
    NothingUp,
    ShowLinks,
    ShowNetwork,
    ask,
)
from testbed.standing.network_layout import NetworkLayout, ShowLayout
from testbed.standing.network_state import LinkState, NetworkState


def capture_places() -> CapturePlaces:
    """Places of the network that is up. Raises BadInput, the keeper's errors."""
    try:
        network = ask(ShowNetwork(), NetworkState)
    except NothingUp as error:
        if error.run is None:
            raise
        return noted_places(state_dir())
    links = ask(ShowLinks(), tuple[LinkState, ...])
    layout = ask(ShowLayout(), NetworkLayout)
    tenants = {}
    hosts = {}
    for tenant in network.tenants:
        points = []
        for vm in tenant.vms:
            points.append(
                CapturePoint(vm.name, VM_DEVICE, vm.netns, vm.hosts)
            )
            if vm.host:
                hosts[vm.host] = vm.name
        tenants[tenant.name] = tuple(points)
    bridges = {port.name: port.bridge for port in layout.plan.ports}
    of_links = []
    for link in links:
        _, netns = layout.switches[bridges[link.ports[0]]]
        of_links.append(link_at(link.ends, link.ports[0], netns))
    return CapturePlaces(tenants, tuple(of_links), hosts)
