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
    """Payload that one VM sends to another; VMs are indices from 0."""

    sender: int
    receiver: int
    size_bytes: int


def receivers(pattern: str, n_vms: int, rng: Random) -> list[int]:
    """Receiver of each of two VMs or more, in a ``ring`` or a ``permutation``.

    A permutation is drawn uniformly from those without a fixed point. A ring
    does not use ``rng``.
    """
    if pattern == "ring":
        return [*range(1, n_vms), 0]
    receiver_of = list(range(n_vms))
    # Shuffled anew until nobody sends to itself, so that the draw stays
    # uniform: e times on average.
    while any(i == receiver for i, receiver in enumerate(receiver_of)):
        rng.shuffle(receiver_of)
    return receiver_of


def all_to_all(n_vms: int, volume_bytes: int) -> tuple[VmTransfer, ...]:
    """Transfers from each of two VMs or more to all others (a shuffle).

    The k-th receiver of a VM is its k-th successor, so that in each round every
    VM receives from one other. Shares are equal; bytes that do not divide
    evenly go to the nearest successors. As a share depends on the distance
    alone, each VM also receives exactly ``volume_bytes``.
    """
    share, rest = divmod(volume_bytes, n_vms - 1)
    flows = []
    for sender in range(n_vms):
        for distance in range(1, n_vms):
            size_bytes = share + (distance <= rest)
            # A volume of fewer bytes than receivers has none for the last.
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
    """Transfers of a pattern among two VMs or more; none without a volume.

    They are ordered by sender, those of a sender by their turns.
    """
    if volume_bytes == 0:
        return ()
    if pattern == "all-to-all":
        return all_to_all(n_vms, volume_bytes)
    receiver_of = receivers(pattern, n_vms, rng)
    return tuple(
        VmTransfer(sender, receiver, volume_bytes)
        for sender, receiver in enumerate(receiver_of)
    )
