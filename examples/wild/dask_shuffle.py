#!/usr/bin/env python3
"""A frame's rows change workers, by a key: Dask's shuffle.

dask_shuffle.py MEGABYTES
"""

import sys

import dask.dataframe
import numpy
import pandas
from distributed import Client

COLUMNS = 8
PARTITIONS = 16


def part(number: int, rows: int) -> pandas.DataFrame:
    draw = numpy.random.default_rng(number)
    columns = draw.random((rows, COLUMNS - 1))
    frame = pandas.DataFrame(columns, columns=list("abcdefg"))
    frame["key"] = draw.integers(0, 1 << 30, rows)
    return frame


def main() -> None:
    rows = round(float(sys.argv[1]) * 1e6 / 8 / COLUMNS / PARTITIONS)
    with Client() as client:
        workers = len(client.scheduler_info()["workers"])
        numbers = list(range(PARTITIONS))
        frame = dask.dataframe.from_map(part, numbers, rows=rows)
        shuffled = frame.shuffle("key", npartitions=PARTITIONS)
        # The length of a shuffled frame is known without a shuffle: each part
        # has to be there to be counted.
        counts = shuffled.map_partitions(len, meta=(None, "int64"))
        count = int(counts.compute().sum())
        right = count == rows * PARTITIONS
        print(
            f"{count} rows over {workers} workers:",
            "PASSED" if right else "FAILED",
        )


if __name__ == "__main__":
    main()
