"""Both embedders against all placements and CP-SAT.

``HOSENET_TEST_CASES`` (default 60) is how many random data centres CP-SAT sees.
"""

import os
import random

import pytest

from testbed.embedding.check import check_placement
from testbed.embedding.exact import Exact, least_bandwidth_uneven
from testbed.embedding.oktopus import Oktopus
from testbed.embedding.placement import Placement
from tests.unit.embedding.oracles import (
    Case,
    brute_force,
    cost_of,
    cp_sat,
    middle_case,
    tiny_case,
    uneven,
)

CASES = int(os.environ.get("HOSENET_TEST_CASES", "60"))
BATCHES = 6
TINY = 40


def sound(case: Case, answer: object) -> Placement | None:
    """The placement if there is one, after the independent check."""
    if not isinstance(answer, Placement):
        return None
    found = check_placement(
        case.datacentre, case.residual, answer, case.n_vms, case.rate_bps
    )
    assert found == []
    return answer


def compare(case: Case, least: int | None) -> bool:
    """True where it is feasible; every embedder must say so, and exact must be the best."""
    arguments = (case.datacentre, case.residual, case.n_vms, case.rate_bps)
    greedy = sound(case, Oktopus().embed(*arguments))
    best = sound(case, Exact().embed(*arguments))
    by_table = sound(case, least_bandwidth_uneven(*arguments))
    assert (
        (greedy is None)
        == (best is None)
        == (by_table is None)
        == (least is None)
    )
    if least is None or greedy is None or best is None or by_table is None:
        return False
    assert cost_of(case.datacentre, best, case.rate_bps) == least
    assert cost_of(case.datacentre, by_table, case.rate_bps) == least
    assert cost_of(case.datacentre, greedy, case.rate_bps) >= least
    return True


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_against_every_placement_of_tiny_data_centres(batch: int) -> None:
    rng = random.Random(f"tiny {batch}")
    feasible = 0
    for _ in range(TINY):
        case = tiny_case(rng)
        feasible += compare(case, brute_force(case))
    # Both found must have been there to be compared.
    assert TINY * 0.1 < feasible < TINY * 0.9


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_against_cp_sat(batch: int) -> None:
    rng = random.Random(f"middle {batch}")
    feasible = 0
    for _ in range(CASES // BATCHES):
        case = middle_case(rng)
        feasible += compare(case, cp_sat(case))
    assert 0 < feasible < CASES // BATCHES


@pytest.mark.slow
def test_the_oracles_agree() -> None:
    rng = random.Random("oracles")
    found = []
    for _ in range(40):
        case = tiny_case(rng)
        found.append(brute_force(case))
        assert cp_sat(case) == found[-1]
    assert None in found
    assert any(found)


def test_uneven_trees_do_go_through_the_table() -> None:
    assert not uneven(random.Random(3), 4, 6).uniform_depth
