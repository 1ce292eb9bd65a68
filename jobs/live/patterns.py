"""Communication patterns: which VM sends how many bytes to which other VM.

In every pattern each VM sends exactly ``volume_bytes`` and receives exactly
``volume_bytes``, so that in the hose model every VM loads its send cap and its
receive cap alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class VmTransfer:
    """A transfer between two VMs, by their indices; the size is payload."""

    sender: int
    receiver: int
    size_bytes: int


def receivers(
    pattern: str,
    n_vms: int,
    rng: Random,
) -> list[int]:
    """Receiver of each VM, in a ``ring`` or a ``permutation``.

    A permutation is drawn uniformly from those without a fixed point. A ring
    does not use ``rng``.
    """
    if pattern == "ring":
        return [*range(1, n_vms), 0]
    receivers = list(range(n_vms))
    # Rejection keeps the draw unbiased. A shuffle has no fixed point with
    # probability 1/e: three draws on average.
    while any(i == receiver for i, receiver in enumerate(receivers)):
        rng.shuffle(receivers)
    return receivers


def all_to_all(
    n_vms: int,
    volume_bytes: int,
) -> tuple[VmTransfer, ...]:
    """Transfers from every VM to all others, in equal shares (a shuffle).

    Each VM begins with its successor; so every round, in which VMs serve their
    next receivers, is a permutation. Bytes that do not divide evenly go to the
    nearest successors. A share thus depends only on the distance, and receivers
    get exactly ``volume_bytes``, too.
    """
    share, rest = divmod(volume_bytes, n_vms - 1)
    flows = []
    for sender in range(n_vms):
        for distance in range(1, n_vms):
            size_bytes = share + (distance <= rest)
            # A volume of fewer bytes than VMs has no byte for the last.
            if size_bytes > 0:
                receiver = (sender + distance) % n_vms
                flows.append(VmTransfer(sender, receiver, size_bytes))
    return tuple(flows)


def transfers(
    pattern: str,
    n_vms: int,
    volume_bytes: int,
    rng: Random,
) -> tuple[VmTransfer, ...]:
    """Transfers of a pattern among two VMs or more.

    By sender, and in the order in which each sends. Empty without a volume.
    """
    if volume_bytes == 0:
        return ()
    if pattern == "all-to-all":
        return all_to_all(n_vms, volume_bytes)
    to = receivers(pattern, n_vms, rng)
    return tuple(
        VmTransfer(i, receiver, volume_bytes)
        for i, receiver in enumerate(to)
    )
