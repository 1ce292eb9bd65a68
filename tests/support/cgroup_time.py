"""Processor time of a VM's control group."""

from __future__ import annotations

from testbed.backends.emu.cgroups import RunCgroup


def cpu_s(group: RunCgroup, server: int, vm: int) -> float:
    """Processor time a VM's processes have used so far, in seconds."""
    folder = group._path("cpuacct", server, vm)
    if group.layout.version == 1:
        return (
            int((folder / "cpuacct.usage").read_text(encoding="ascii"))
            / 1e9
        )
    lines = (folder / "cpu.stat").read_text(encoding="ascii").splitlines()
    return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6
