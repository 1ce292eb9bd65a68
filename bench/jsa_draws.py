"""JSA's Figure 5 simulated from sixty draws of jobs: which of its orders are
there, by how much.

Live a draw is minutes a point, so there are three at most. Three leave
differences inconclusive that sixty do not. The trace is looked for along
TESTBED_DATA.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations, product

import numpy as np

from bench.samples import Result
from reproductions.configuration import measured
from reproductions.extractors import REWARD_METRICS
from reproductions.jsa import LIVE_FIGURES
from reproductions.jsa.jsa_rewards import REWARD
from reproductions.live_figure import LiveFigure
from testbed.sweeps.intervals import estimate

DRAWS = 60
QUICK_DRAWS = 6
FIGURES = {
    figure.name.removeprefix("jsa-fig"): figure for figure in LIVE_FIGURES
}


def run(quick: bool) -> list[Result]:
    """Reward of each policy, and differences draw by draw; with ``quick`` of
    six draws.
    """
    count = DRAWS
    if quick:
        count = QUICK_DRAWS
    draws = range(1, count + 1)
    results: list[Result] = []
    # Simulated runs do not disturb each other: nothing is timed.
    with ProcessPoolExecutor() as processes:
        for name, figure in FIGURES.items():
            points = product([name], figure.series, figure.xs, draws)
            runs = list(points)
            rewards = processes.map(_reward, runs)
            by_run = dict(zip(runs, rewards, strict=True))
            results += _rows(name, figure, by_run, draws)
    return results


def _rows(
    name: str,
    figure: LiveFigure,
    rewards: dict[tuple[str, str, float, int], float],
    draws: range,
) -> Iterator[Result]:
    for x in figure.xs:
        by_series = {}
        for series in figure.series:
            of_draws = [rewards[name, series, x, draw] for draw in draws]
            by_series[series] = np.array(of_draws)
            row_name = f"{name}, {x:g}: {series}"
            yield Result(row_name, "%", tuple(of_draws))
        for series, other in combinations(figure.series, 2):
            # The same draw has the same jobs under both policies.
            gaps = (by_series[series] - by_series[other]).tolist()
            mean = {"mean and its 95 % interval": estimate(gaps).show(2)}
            row_name = f"{name}, {x:g}: {series} - {other}"
            yield Result(row_name, "points", tuple(gaps), extra=mean)


def _reward(point: tuple[str, str, float, int]) -> float:
    """One simulated run's system reward ratio in per cent: the live figure's
    own configuration.
    """
    name, series, x, draw = point
    whole = False  # not the quick one
    experiment = FIGURES[name].variant(series, x, whole).repetition(draw)
    return 100.0 * measured(experiment, REWARD_METRICS)[REWARD.name]
