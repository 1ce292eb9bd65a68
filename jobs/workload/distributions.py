"""Random streams by name, normal distributions with a floor, stratified
sampling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

Rule = Literal["redraw", "clamp"]

_MOST_ROUNDS = 10_000
_FARTHEST = 2.0
"""The most deviations by which the floor may be above the mean: there one draw
in 44 reaches it.
"""


def stream(
    seed: int,
    *names: str | int,
) -> np.random.Generator:
    """The random generator of ``names`` under ``seed``: always the same,
    independent of all others.

    numpy's SeedSequence is spawned with the name's digest as its key, so that
    streams need no common parent and no order in which they are asked for.
    """
    # By a digest, not Python's hash, which each process salts anew.
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    key = tuple(
        int.from_bytes(digest[k : k + 4], "big") for k in range(0, 16, 4)
    )
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))
    )


def choose(
    seed: int,
    names: Sequence[str],
    values: Floats,
    weights: Floats,
    count: int,
) -> Floats:
    """``count`` values, drawn with probabilities in proportion to the weights; a
    larger count keeps the first ones.
    """
    ends = np.cumsum(weights / weights.sum())
    quantiles = stream(seed, *names).random(count)
    places = np.searchsorted(ends, quantiles, side="right")
    # The last end may be a little below 1, and a quantile above it.
    return values[np.minimum(places, len(values) - 1)]


@dataclass(frozen=True)
class NormalDistribution:
    """A normal distribution. A draw below ``low`` is drawn again, or clamped to
    ``low``.

    Redrawing gives the normal distribution truncated at ``low``; its mean is
    above ``mean``.
    """

    mean: float
    sigma: float
    low: float
    rule: Rule = "redraw"

    def __post_init__(self) -> None:
        highest = self.mean + _FARTHEST * self.sigma
        if self.rule == "redraw" and highest < self.low:
            raise ValueError(
                f"a mean of {self.mean:g} with deviation {self.sigma:g} hardly ever reaches "
                f"{self.low:g}: draws below that are drawn again"
            )

    def draw(
        self,
        seed: int,
        name: str,
        count: int,
    ) -> Floats:
        """``count`` values, shape ``(count,)``.

        Of one distribution, value k depends on seed, name and k alone: a larger
        count keeps the first ones. Distributions with other means and sigmas
        use the same normal numbers (common random numbers).
        """
        values = self._normal(seed, name, 0, count)
        if self.rule == "clamp":
            return np.maximum(values, self.low)
        round_ = 0
        while np.any(short := values < self.low):
            round_ += 1
            if round_ > _MOST_ROUNDS:
                raise ValueError(
                    f"{name}: no draw of {self} reaches {self.low:g}"
                )
            # All are drawn and few are taken: so value k takes the k-th number
            # of a round, whatever the others need.
            values[short] = self._normal(seed, name, round_, count)[short]
        return values

    def _normal(
        self,
        seed: int,
        name: str,
        round_: int,
        count: int,
    ) -> Floats:
        numbers = stream(seed, name, round_).standard_normal(count)
        return self.mean + self.sigma * numbers


@dataclass(frozen=True)
class Sample:
    """The chosen jobs (rising indices, which may repeat) and their mean size.

    ``large``: those of at least the wanted mean; 0 if none was wanted.
    ``again``: those that repeat a job, as their group ran out.
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
) -> Sample:
    """``count`` jobs with about ``mean`` VMs on average, none above
    ``largest``.

    Stratified sampling of two groups, jobs below the wanted mean and the
    others: their numbers give the mean, and the jobs of a group are random. A
    group that runs out is drawn again as a whole: its jobs come equally often,
    give or take one. Raises ValueError where a group is empty.
    """
    size = np.asarray(sizes, dtype=np.float64)
    small = np.flatnonzero(size < mean)
    large = np.flatnonzero((size >= mean) & (size <= largest))
    if not len(small) or not len(large):
        raise ValueError(
            f"no jobs on both sides of {mean:g} VMs and up to {largest}"
        )
    low = float(size[small].mean())
    high = float(size[large].mean())
    # n_small·low + n_large·high = count·mean, with n_small + n_large = count.
    n_large = round(count * (mean - low) / (high - low))
    n_small = count - n_large
    again = max(0, n_large - len(large)) + max(0, n_small - len(small))
    members = (
        _some(small, n_small, seed, "small"),
        _some(large, n_large, seed, "large"),
    )
    taken = np.sort(np.concatenate(members))
    chosen: Floats = size[taken]
    return Sample(
        chosen=tuple(taken.tolist()),
        mean=float(chosen.mean()),
        large=n_large,
        again=again,
    )


def _some(
    members: Ints,
    count: int,
    seed: int,
    name: str,
) -> Ints:
    random = stream(seed, "strata", name)
    n_rounds = max(1, -(-count // len(members)))
    # Whole rounds: no member comes again before all have come equally often.
    places = [random.permutation(len(members)) for _ in range(n_rounds)]
    out: Ints = members[np.concatenate(places)[:count]]
    return out
