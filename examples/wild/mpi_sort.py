#!/usr/bin/env python3
"""A sample sort: each rank sorts its keys, they agree on splitters, and exchange.

mpi_sort.py KEYS_PER_RANK
"""

import array
import random
import sys
from itertools import pairwise

from mpi4py import MPI

SAMPLES = 64


def main() -> None:
    ranks = MPI.COMM_WORLD
    rank, size = ranks.Get_rank(), ranks.Get_size()
    draw = random.Random(rank)  # noqa: S311 - keys to be sorted
    own = sorted(draw.getrandbits(63) for _ in range(int(sys.argv[1])))
    samples = ranks.allgather(own[:: max(1, len(own) // SAMPLES)])
    known = sorted(key for part in samples for key in part)
    splitters = [known[len(known) * i // size] for i in range(1, size)]
    parts = [array.array("q") for _ in range(size)]
    at = 0
    for key in own:
        while at < size - 1 and key >= splitters[at]:
            at += 1
        parts[at].append(key)
    received = ranks.alltoall([part.tobytes() for part in parts])
    mine = array.array("q")
    for part in received:
        mine.frombytes(part)
    ordered = sorted(mine)
    ends = ranks.gather((ordered[0], ordered[-1], len(ordered)))
    if rank == 0:
        rising = all(
            lower[1] <= upper[0] for lower, upper in pairwise(ends)
        )
        count = sum(end[2] for end in ends)
        right = rising and count == size * int(sys.argv[1])
        print(f"sorted {count} keys: {'PASSED' if right else 'FAILED'}")


if __name__ == "__main__":
    main()
