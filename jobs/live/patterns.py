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
    """``sender`` and ``receiver`` are VM indices within the job; ``size_bytes``
    is payload.
    """

    sender: int
    receiver: int
    size_bytes: int


def receivers(pattern: str, n_vms: int, rng: Random) -> list[int]:
    """The one receiver of each VM, in a ``ring`` or a ``permutation``.

    A permutation is drawn uniformly among those without a fixed point; ``rng``
    is read by it alone.
    """
    if pattern == "ring":
        return [*range(1, n_vms), 0]
    receivers = list(range(n_vms))
    # A shuffle has no fixed point with probability 1/e: three draws on average,
    # unbiased.
    while any(i == receiver for i, receiver in enumerate(receivers)):
        rng.shuffle(receivers)
    return receivers


def all_to_all(n_vms: int, volume_bytes: int) -> tuple[VmTransfer, ...]:
    """Every VM spreads its volume over all others (a shuffle), beginning with
    its successor.

    Taken in this order, one receiver after the other, every round is a
    permutation.

    What does not divide evenly goes, byte by byte, to the nearest successors:
    the share depends on the distance alone, so the sums at the receivers are
    exact too.
    """
    share, rest = divmod(volume_bytes, n_vms - 1)
    return tuple(
        VmTransfer(i, (i + distance) % n_vms, share + (distance <= rest))
        for i in range(n_vms)
        for distance in range(1, n_vms)
        if share + (distance <= rest) > 0
    )


def transfers(
    pattern: str, n_vms: int, volume_bytes: int, rng: Random
) -> tuple[VmTransfer, ...]:
    """The transfers of ``pattern`` by sender, each sender's in the order it
    sends them.

    There are two VMs or more. Nothing to send gives no transfers.
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
