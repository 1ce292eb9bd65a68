"""JSA's Figure 5 simulated from sixty draws of jobs: which of its orders are
there, by how much.

Live a draw is minutes a point, so there are three at most. Three leave
differences inconclusive that sixty do not. The trace is looked for along
TESTBED_DATA.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations

from bench.samples import Result
from reproductions.configuration import measured
from reproductions.extractors import REWARD_METRICS
from reproductions.jsa import LIVE_FIGURES
from reproductions.jsa.jsa_rewards import REWARD
from reproductions.live_figure import LiveFigure
from testbed.sweeps.intervals import estimate

DRAWS = 60
FIGURES = {
    figure.name.removeprefix("jsa-fig"): figure for figure in LIVE_FIGURES
}


def run(quick: bool) -> list[Result]:
    """Reward of each policy, and differences draw by draw; with ``quick`` of
    six draws.
    """
    draws = range(1, 1 + (6 if quick else DRAWS))
    results: list[Result] = []
    with ProcessPoolExecutor() as processes:
        for name, figure in FIGURES.items():
            cells = [
                (name, series, x, k)
                for series in figure.series
                for x in figure.xs
                for k in draws
            ]
            rewards = dict(
                zip(cells, processes.map(_reward, cells), strict=True)
            )
            results += _rows(name, figure, rewards, draws)
    return results


def _rows(
    name: str,
    figure: LiveFigure,
    rewards: dict[tuple[str, str, float, int], float],
    draws: range,
) -> Iterator[Result]:
    for x in figure.xs:
        for series in figure.series:
            of_draws = tuple(rewards[name, series, x, k] for k in draws)
            yield Result(f"{name}, {x:g}: {series}", "%", of_draws)
        for series, other in combinations(figure.series, 2):
            gaps = tuple(
                rewards[name, series, x, k] - rewards[name, other, x, k]
                for k in draws
            )
            mean = {"mean and its 95 % interval": estimate(gaps).show(2)}
            yield Result(
                f"{name}, {x:g}: {series} - {other}",
                "points",
                gaps,
                extra=mean,
            )


def _reward(cell: tuple[str, str, float, int]) -> float:
    """One simulated run's system reward ratio in per cent: the live figure's
    own configuration.
    """
    name, series, x, draw = cell
    whole = False  # not the quick one
    experiment = FIGURES[name].variant(series, x, whole).repetition(draw)
    return 100.0 * measured(experiment, REWARD_METRICS)[REWARD.name]
