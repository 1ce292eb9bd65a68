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
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).parent.parent


def main() -> int:
    """Prints a row a row: medians of both, their paired ratio (here over
    there), its quartiles.
    """
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
    options = parser.parse_args()
    rounds = []
    for number in range(options.rounds):
        sides = (
            (options.folder, HERE) if number % 2 else (HERE, options.folder)
        )
        medians = {side: medians_of(options.name, side) for side in sides}
        rounds.append((medians[options.folder], medians[HERE]))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    print(
        f"{'':44} {'there':>10} {'here':>10} {'here/there':>10}  quartiles"
    )
    for row in [row for row in rounds[0][1] if row in rounds[0][0]]:
        other_medians = [other[row] for other, _ in rounds]
        here_medians = [medians[row] for _, medians in rounds]
        ratios = [
            this / other
            for other, this in zip(other_medians, here_medians, strict=True)
        ]
        low, middle, high = quantiles(ratios, n=4, method="inclusive")
        print(
            f"{row:44} {median(other_medians):>10.4g}"
            f" {median(here_medians):>10.4g} {middle:>10.3f}"
            f"  {low:.3f} to {high:.3f}"
        )
    return 0


def medians_of(name: str, folder: Path) -> dict[str, float]:
    """Row -> median, of a run in a checkout; a missed target is no failure
    here.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench", name, "--quick", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder.resolve())},
        stdout=subprocess.PIPE,
        check=False,
    )
    return {
        row["name"]: row["median"]
        for row in json.loads(done.stdout)["rows"]
    }


if __name__ == "__main__":
    sys.exit(main())
