"""Limits of a VM beside processor time and bandwidth. Pure.

Without limits one VM would take all process numbers, or all memory, from the
others and from the testbed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MEMORY_SHARE = 0.8
"""Share of the machine's memory for all VMs."""
LEAST_MEMORY_BYTES = 64 << 20
PROCESS_SHARE = 0.5
"""Share of the machine's process numbers for all VMs."""
LEAST_PROCESSES = 64
MOST_PROCESSES = 512


@dataclass(frozen=True)
class VmLimits:
    """The most that a node's VMs together, and each VM, may have.

    Threads count as processes, files in memory as memory.
    """

    node_memory_bytes: int
    memory_bytes: int
    processes: int

    def __str__(self) -> str:
        size_mib = self.memory_bytes >> 20
        return f"{self.processes} processes and {size_mib:,} MiB of memory"


def vm_limits(
    slots: Sequence[int], memory_bytes: int, processes: int
) -> VmLimits:
    """Equal shares of a machine's memory and process numbers.

    ``slots``: VM slots of each server.
    """
    node_bytes = int(memory_bytes * MEMORY_SHARE / max(1, len(slots)))
    vm_bytes = node_bytes // max(1, *slots)
    share = int(processes * PROCESS_SHARE / max(1, sum(slots)))
    return VmLimits(
        node_memory_bytes=max(LEAST_MEMORY_BYTES, node_bytes),
        memory_bytes=max(LEAST_MEMORY_BYTES, vm_bytes),
        processes=min(MOST_PROCESSES, max(LEAST_PROCESSES, share)),
    )
