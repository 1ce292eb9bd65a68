"""The product's size and shape stay within their budgets (``python -m tests.support.shape``)."""

from __future__ import annotations

import pytest

from tests.support import shape

FIGURES = {figure.name: figure for figure in shape.static_figures()}
BUDGETED = [name for name, figure in FIGURES.items() if figure.budget is not None]


@pytest.mark.parametrize("name", BUDGETED)
def test_the_product_is_within_its_budgets(name: str) -> None:
    figure = FIGURES[name]
    assert figure.good, "\n".join((f"{figure.value} is above {figure.budget}", *figure.detail))


def test_lines_names_depth_and_functions_have_budgets() -> None:
    assert len(BUDGETED) == 5


def test_every_module_is_counted_once() -> None:
    assert len(set(shape.files())) == len(shape.files())
    assert set(shape.counted()) <= set(shape.files())


@pytest.mark.slow
def test_the_way_of_one_job_is_short() -> None:
    way, _ = shape.traced_figures()
    assert "testbed/engine/engine.py" in way.detail
    assert way.good, "\n".join(way.detail)
