"""One benchmark here and in another checkout, in turn: what a change costs on a
noisy machine.

``python -m bench.pairs NAME DIR [--rounds N]`` runs ``python -m bench NAME
--quick`` in ``DIR`` and here, N times each, in changing order. The two runs of
a round are seconds apart, so their ratio says more than two medians taken
minutes apart. Rows are matched by name; those of one side alone are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

CHECKOUT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Round:
    """Medians by row, of a run in the other checkout and of one in this."""

    other: dict[str, float]
    this: dict[str, float]


def main() -> int:
    """Prints a line for each row: medians of both checkouts, and the median and
    quartiles of the paired ratio.
    """
    options = _options()
    rounds = []
    for number in range(options.rounds):
        first_is_other = number % 2 == 1
        rounds.append(_round(options.name, options.folder, first_is_other))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    print(
        f"{'':44} {'there':>10} {'here':>10} {'here/there':>10}  quartiles"
    )
    for row in rounds[0].this:
        if row in rounds[0].other:
            print(_line(row, rounds))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pairs", description=__doc__
    )
    parser.add_argument("name")
    parser.add_argument("folder", type=Path, help="the other checkout")
    parser.add_argument(
        "--rounds",
        type=int,
        default=6,
        help="at least 2 (default %(default)s)",
    )
    return parser.parse_args()


def _round(name: str, folder: Path, first_is_other: bool) -> Round:
    """Both checkouts in turn; the one that is first changes by round."""
    if first_is_other:
        other = medians_of(name, folder)
        return Round(other, medians_of(name, CHECKOUT))
    this = medians_of(name, CHECKOUT)
    return Round(medians_of(name, folder), this)


def _line(row: str, rounds: Sequence[Round]) -> str:
    other = []
    this = []
    ratios = []
    for medians in rounds:
        other.append(medians.other[row])
        this.append(medians.this[row])
        ratios.append(medians.this[row] / medians.other[row])
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return (
        f"{row:44} {median(other):>10.4g}"
        f" {median(this):>10.4g} {middle:>10.3f}"
        f"  {low:.3f} to {high:.3f}"
    )


def medians_of(name: str, folder: Path) -> dict[str, float]:
    """Row -> median, of a run in a checkout; a missed target is no failure
    here.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench", name, "--quick", "--json"],
        cwd=folder,
        # The checkout's own packages, before those that are installed.
        env={**os.environ, "PYTHONPATH": str(folder.resolve())},
        stdout=subprocess.PIPE,
        check=False,
    )
    medians = {}
    for row in json.loads(done.stdout)["rows"]:
        medians[row["name"]] = row["median"]
    return medians


if __name__ == "__main__":
    sys.exit(main())
