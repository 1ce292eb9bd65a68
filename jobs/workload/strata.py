"""Jobs chosen so that they have a wanted number of VMs on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jobs.workload.parallel import Floats, Ints
from jobs.workload.streams import stream


@dataclass(frozen=True)
class Sample:
    """Which jobs were chosen (rising indices), their mean size, and how many were large ones.

    ``again`` of them stand there because jobs of their stratum ran out (0 unless that is allowed).
    """

    chosen: tuple[int, ...]
    mean: float
    large: int
    again: int = 0


def stratified(
    sizes: Sequence[int],
    count: int,
    mean: float,
    largest: int,
    seed: int,
    *,
    repeat: bool = False,
) -> Sample:
    """``count`` jobs with about ``mean`` VMs on average, none above ``largest``; each once.

    Two strata, below the wanted mean and from it on, as many of each as bring their means together
    to it; inside a stratum at random (docs/decisions/0407). With ``repeat`` a stratum whose jobs
    run out is gone through again, none of its jobs more than once more than another. Raises
    ValueError where there are not enough jobs for that. O(n).
    """
    size = np.asarray(sizes, dtype=np.float64)
    small = np.flatnonzero(size < mean)
    large = np.flatnonzero((size >= mean) & (size <= largest))
    if not len(small) or not len(large):
        raise ValueError(f"no jobs on both sides of {mean:g} VMs and up to {largest}")
    low, high = float(size[small].mean()), float(size[large].mean())
    many = round(count * (mean - low) / (high - low))
    again = max(0, many - len(large)) + max(0, count - many - len(small))
    if again and not repeat:
        raise ValueError(
            f"{count} jobs of {mean:g} VMs on average need {many} of {mean:g} to {largest} VMs and"
            f" {count - many} smaller ones: there are {len(large)} and {len(small)}"
        )
    taken = np.sort(
        np.concatenate(
            (_some(small, count - many, seed, "small"), _some(large, many, seed, "large"))
        )
    )
    chosen: Floats = size[taken]
    return Sample(tuple(taken.tolist()), float(chosen.mean()), many, again)


def _some(members: Ints, count: int, seed: int, name: str) -> Ints:
    rounds = stream(seed, "strata", name)
    whole = [rounds.permutation(len(members)) for _ in range(max(1, -(-count // len(members))))]
    out: Ints = members[np.concatenate(whole)[:count]]
    return out
