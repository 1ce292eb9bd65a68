"""Settings of VMs' TCP: a retry every second, for minutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.live.connections import VM_SYSCTLS
from testbed.backends.emu import emulated_network
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.traffic_control import BASE_SYSCTLS
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import (
    TenantPlan,
    network_plan,
    tenant_plan,
)
from topologies.datacentre import PLAIN, LinkQuality
from topologies.tree import tree

LEAST_RTO_S = 0.2
# Longer than a machine that runs something else has been seen to stand still (16 s).
PATIENCE_S = 120.0


def patience_s(most_rto_s: float, retries: int) -> float:
    """The time after which TCP gives up (ETIMEDOUT): waits double up to the longest one
    (Linux, tcp_model_timeout)."""
    total_s = 0.0
    for number in range(retries + 1):
        total_s += min(LEAST_RTO_S * 2.0**number, most_rto_s)
    return total_s


def test_a_connection_survives_a_standstill_of_minutes() -> None:
    settings = dict(BASE_SYSCTLS)
    most_rto_s = int(settings["net.ipv4.tcp_rto_max_ms"]) / 1000
    retries = int(settings["net.ipv4.tcp_retries2"])
    # The kernel keeps it in a byte.
    assert retries <= 255
    assert patience_s(most_rto_s, retries) >= PATIENCE_S
    # Linux's default of 15 would give up far earlier.
    assert patience_s(most_rto_s, 15) < 16.0


# -- settings of a tenant's own


class Kernel:
    """Settings of namespaces, and a traffic control that takes everything."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, str]] = defaultdict(dict)
        self.deleted: set[str] = set()
        self._inside = ""

    @contextmanager
    def inside(self, path: Path) -> Iterator[None]:
        if path.name in self.deleted:
            raise FileNotFoundError(path)
        self._inside = path.name
        yield

    def set_sysctls(self, *sysctls: tuple[str, str]) -> None:
        self.settings[self._inside].update(sysctls)

    def apply(self, sections: object) -> None:
        pass

    remove = apply


DELAYED = LinkQuality(delay_s=0.200)
RMEM = "net.ipv4.tcp_rmem"
CENTRE = tree([2, 1], 10**9, 2).with_level_qualities([PLAIN, DELAYED])
PLAN = network_plan(CENTRE, "hn")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(
        emulated_network, "inside_network_namespace", kernel.inside
    )
    monkeypatch.setattr(
        emulated_network.traffic_control, "set_sysctls", kernel.set_sysctls
    )
    monkeypatch.setattr(
        emulated_network.open_vswitch, "datapath_type", lambda: "netdev"
    )
    return kernel


def network_on(kernel: Kernel) -> EmulatedNetwork:
    unused: Any = None
    network = EmulatedNetwork(PLAN, unused, 0)
    network._tc = kernel  # type: ignore[assignment]
    return network


def placed(rate_bps: int) -> TenantPlan:
    """A VM on each of the two servers."""
    slots = tuple(PLAN.slots_of_server[server][0] for server in (0, 1))
    placement = Placement(CENTRE.trees[0].root, ((0, 1), (1, 1)))
    return tenant_plan(CENTRE, PLAN, placement, slots, 7, "j", rate_bps)


def test_a_deleted_namespace_leaves_the_others_their_defaults(
    kernel: Kernel,
) -> None:
    network = network_on(kernel)
    tenant = placed(500_000_000)
    network.configure_tenant(tenant)
    first, second = (vm.slot.netns for vm in tenant.vms)
    assert kernel.settings[second][RMEM] != dict(VM_SYSCTLS)[RMEM]
    kernel.deleted.add(first)
    network.remove_tenant(tenant)
    assert kernel.settings[second][RMEM] == dict(VM_SYSCTLS)[RMEM]


@pytest.mark.parametrize("change", ["rerate_tenant", "end_reroot"])
def test_settings_that_a_tenant_needs_no_more_are_the_defaults_again(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for name in ("rerate_lines", "reroot_lines"):
        monkeypatch.setattr(
            emulated_network.limits, name, lambda *_: ((), ())
        )
    network = network_on(kernel)
    fast, slow = placed(500_000_000), placed(1_000_000)
    network.configure_tenant(fast)
    getattr(network, change)(fast, slow)
    network.remove_tenant(slow)
    for vm in fast.vms:
        settings = kernel.settings[vm.slot.netns]
        assert settings == settings | {
            key: value for key, value in VM_SYSCTLS if key in settings
        }


@pytest.mark.parametrize("change", ["rerate_tenant", "end_reroot"])
def test_a_deleted_namespace_stops_no_change_of_the_others(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for name in ("rerate_lines", "reroot_lines"):
        monkeypatch.setattr(
            emulated_network.limits, name, lambda *_: ((), ())
        )
    network = network_on(kernel)
    fast, slow = placed(500_000_000), placed(1_000_000)
    network.configure_tenant(fast)
    first, second = (vm.slot.netns for vm in fast.vms)
    before = kernel.settings[second][RMEM]
    kernel.deleted.add(first)
    getattr(network, change)(fast, slow)
    assert kernel.settings[second][RMEM] != before
