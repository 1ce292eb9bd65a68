"""A network that stays up, from Python: a tenant, Mininet's object, a measurement.

    sudo .venv/bin/python examples/up_from_python.py

The network is taken down at the end of the block, whatever happens in it.
"""

from pathlib import Path

import testbed

with testbed.up(Path(__file__).with_name("quickstart.yaml")) as net:
    tenant = net.tenants.add("a", vms=3, bandwidth="200 Mbit/s")
    print(
        *(f"{vm.name} has {vm.ip} on {vm.server}" for vm in tenant.vms),
        sep="\n",
    )

    # Mininet's nodes and methods, on what is up: here as root in a VM's namespace.
    host, other = net.mininet.get("a.0", "a.2")
    print(host.cmd("ping -c 2 -i 0.2", other.IP()))

    net.tenants.rerate("a", "100 Mbit/s")
    for pair in net.measure("a", seconds=2):
        rates = f"{pair.measured_bps / 1e6:.1f} of {pair.reserved_bps / 1e6:.0f} Mbit/s"
        print(f"{pair.sender} to {pair.receiver}: {rates}")
