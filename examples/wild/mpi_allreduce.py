#!/usr/bin/env python3
"""All ranks add up a few numbers, again and again: MPI's Allreduce of small
messages.

    mpi_allreduce.py ROUNDS

Time goes into round trips, hardly into bytes. It checks each sum.
"""

import sys
from array import array

from mpi4py import MPI

NUMBERS = 8


def main() -> None:
    ranks = MPI.COMM_WORLD
    rank, size = ranks.Get_rank(), ranks.Get_size()
    rounds = int(sys.argv[1])
    own = array("d", [rank + 1.0] * NUMBERS)
    total = array("d", [0.0] * NUMBERS)
    expected = size * (size + 1) / 2
    for number in range(rounds):
        ranks.Allreduce(own, total)
        if list(total) != [expected] * NUMBERS:
            sys.exit(f"rank {rank}: round {number} has another sum")
    if rank == 0:
        print(f"{rounds} sums: PASSED")


if __name__ == "__main__":
    main()
