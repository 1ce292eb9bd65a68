"""Communication patterns: which VM sends how many bytes to which other VM.

In every pattern each VM sends exactly ``volume_bytes`` and receives exactly ``volume_bytes``, so
that in the hose model every VM loads its send cap and its receive cap alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

PATTERNS = ("ring", "permutation", "all-to-all")


@dataclass(frozen=True)
class Transfer:
    """``sender`` and ``receiver`` are VM indices within the job; ``size_bytes`` is payload."""

    sender: int
    receiver: int
    size_bytes: int


def ring(n_vms: int, volume_bytes: int) -> tuple[Transfer, ...]:
    """VM i sends everything to VM i+1; the last one to VM 0."""
    return tuple(Transfer(i, (i + 1) % n_vms, volume_bytes) for i in range(n_vms))


def permutation(n_vms: int, volume_bytes: int, rng: Random) -> tuple[Transfer, ...]:
    """VM i sends everything to VM σ(i); σ is drawn uniformly among those without a fixed point."""
    receivers = list(range(n_vms))
    # A shuffle has no fixed point with probability 1/e: three draws on average, unbiased.
    while any(i == receiver for i, receiver in enumerate(receivers)):
        rng.shuffle(receivers)
    return tuple(Transfer(i, receiver, volume_bytes) for i, receiver in enumerate(receivers))


def all_to_all(n_vms: int, volume_bytes: int) -> tuple[Transfer, ...]:
    """Every VM spreads its volume over all others (a shuffle), beginning with its successor.

    Taken in this order, one receiver after the other, every round is a permutation.

    What does not divide evenly goes, byte by byte, to the nearest successors: the share depends
    on the distance alone, so the sums at the receivers are exact too.
    """
    share, rest = divmod(volume_bytes, n_vms - 1)
    return tuple(
        Transfer(i, (i + distance) % n_vms, share + (distance <= rest))
        for i in range(n_vms)
        for distance in range(1, n_vms)
        if share + (distance <= rest) > 0
    )


def transfers(pattern: str, n_vms: int, volume_bytes: int, rng: Random) -> tuple[Transfer, ...]:
    """The transfers of ``pattern`` by sender, each sender's in the order it sends them.

    ``rng`` is read by ``permutation`` alone. Nothing to send gives no transfers. Raises ValueError
    for an unknown pattern, for fewer than two VMs, and for a negative volume.
    """
    known: dict[str, Callable[[], tuple[Transfer, ...]]] = {
        "ring": lambda: ring(n_vms, volume_bytes),
        "permutation": lambda: permutation(n_vms, volume_bytes, rng),
        "all-to-all": lambda: all_to_all(n_vms, volume_bytes),
    }
    if pattern not in known:
        raise ValueError(f"unknown pattern {pattern!r}; known: {', '.join(PATTERNS)}")
    if volume_bytes < 0:
        raise ValueError(f"a VM cannot send {volume_bytes} bytes")
    if volume_bytes == 0:
        return ()
    if n_vms < 2:
        raise ValueError(f"pattern {pattern}: {n_vms} VM has nobody to send to; use 2 or more")
    return known[pattern]()
