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
MAIN_PROCESSES = 16
"""Weight of the testbed's own processes, in processes of the usual weight.

No more: the kernel's threads are beside them, and TCP and RCU wait for those.
"""
VM_PROCESSES_PER_CPU = 3
"""Weight of all VMs together, for each processor.

Packets wait for the machine's switch and for the kernel's threads, which have
the usual weight: beside busy loops in VMs those must come to their time. With
8 a neighbour of such loops lost up to 16 % of its bandwidth, with 2 to 4 at
most 2 %. With 1 agents wait for other programs of the machine.
"""


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


@dataclass(frozen=True)
class ProcessorWeights:
    """Weights of two groups, in processes of the usual weight.

    ``main``: the testbed's own processes, those of its switch and controller
    among them. ``vms``: all programs in VMs.
    """

    main: int
    vms: int

    def __str__(self) -> str:
        percent = round(100 * self.main / (self.main + self.vms))
        return (
            f"the testbed's processes weigh as much as {self.main} others, "
            f"all VMs together as {self.vms}: whatever VMs compute, "
            f"{percent} % are left to the testbed"
        )


def processor_weights(cpus: int) -> ProcessorWeights:
    """Weights on a machine of so many processors."""
    return ProcessorWeights(MAIN_PROCESSES, VM_PROCESSES_PER_CPU * cpus)


def vm_limits(
    slots: Sequence[int], memory_bytes: int, processes: int
) -> VmLimits:
    """Equal shares of a machine's memory and process numbers.

    ``slots``: VM slots of each server.
    """
    node_bytes = int(memory_bytes * MEMORY_SHARE / max(1, len(slots)))
    # By the server of the most slots: a VM's limit is the same on each,
    # wherever its job is placed.
    vm_bytes = node_bytes // max(1, *slots)
    share = int(processes * PROCESS_SHARE / max(1, sum(slots)))
    return VmLimits(
        node_memory_bytes=max(LEAST_MEMORY_BYTES, node_bytes),
        memory_bytes=max(LEAST_MEMORY_BYTES, vm_bytes),
        processes=min(MOST_PROCESSES, max(LEAST_PROCESSES, share)),
    )
