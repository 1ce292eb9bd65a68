"""Places where packets can be captured: on the standing network, or on that of
a run in progress.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.backends.emu.capture_places import (
    CaptureLink,
    CapturePlaces,
    link_at,
    noted_places,
)
from testbed.backends.emu.cleanup_journal import state_dir
from testbed.backends.emu.packet_capture import CapturePoint
from testbed.backends.emu.vm_process import VmPlace
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
    tenants = {}
    hosts = {}
    for tenant in network.tenants:
        tenants[tenant.name] = tuple(map(_vm_point, tenant.vms))
        # Hosts of a topology that names them have two names.
        for vm in tenant.vms:
            if vm.host:
                hosts[vm.host] = vm.name
    return CapturePlaces(tenants, tuple(_capture_links()), hosts)


def _vm_point(vm: VmPlace) -> CapturePoint:
    return CapturePoint(vm.name, VM_DEVICE, vm.netns, vm.hosts)


def _capture_links() -> Iterator[CaptureLink]:
    """Each link at its lower end, in the namespace of that end's switch."""
    layout = ask(ShowLayout(), NetworkLayout)
    bridges = {port.name: port.bridge for port in layout.plan.ports}
    for link in ask(ShowLinks(), tuple[LinkState, ...]):
        lower_port = link.ports[0]
        _, netns = layout.switches[bridges[lower_port]]
        yield link_at(link.ends, lower_port, netns)
