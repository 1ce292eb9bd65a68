"""The product's size and shape stay within their budgets (``python -m tests.support.shape``)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import shape
from tests.support.density import density
from tests.support.shape import Figure

BUDGETED = (
    "class names with two meanings",
    "circles of modules",
    "tokens, testbed.labs apart",
    "comprehensions per 1,000 code lines",
    "module names that repeat",
    "tokens a code line",
    "import depth",
    "code lines over 90 characters [%]",
    "lines that are no comments [%]",
    "tokens a function, 90th percentile",
    "tokens a function, median",
    "conditional expressions per 1,000 code lines",
)


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return {figure.name: figure for figure in shape.static_figures()}


@pytest.mark.slow
def test_the_product_is_within_its_budgets(
    figures: dict[str, Figure],
) -> None:
    above = [
        "\n".join(
            (
                f"{name}: {figures[name].value} is above {figures[name].budget}",
                *figures[name].detail,
            )
        )
        for name in BUDGETED
        if not figures[name].good
    ]
    assert above == []


def test_density_names_depth_and_circles_have_budgets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Which figures have budgets is the same of a few files; what is kept of
    # all of them stays as it is.
    few = [path for path in shape.files() if path.parts[0] == "topologies"]
    monkeypatch.setattr(shape, "files", lambda: tuple(few))
    unkept = shape.import_graph.__wrapped__
    monkeypatch.setattr(shape, "import_graph", unkept)
    budgeted = {
        figure.name
        for figure in shape.static_figures()
        if figure.budget is not None
    }
    assert budgeted == set(BUDGETED)


def test_a_class_name_with_two_meanings_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = {
        "controller/values.py": "class Switch: ...\nclass _Held: ...\n",
        "jobs/request.py": "class Switch: ...\nclass _Held: ...\n",
        "bench/runs.py": "class Switch: ...\n",
    }
    monkeypatch.setattr(shape, "files", lambda: [*map(Path, sources)])
    monkeypatch.setattr(shape, "source", lambda path: sources[str(path)])
    assert shape.ambiguous_classes() == [
        "Switch: controller.values, jobs.request"
    ]


def test_every_package_says_in_a_sentence_what_it_is() -> None:
    empty = [
        str(path)
        for path in shape.files()
        if path.name == "__init__.py"
        and not (ast.get_docstring(ast.parse(shape.source(path))) or "")
    ]
    assert empty == []


def test_density_counts_what_it_says() -> None:
    source = (
        '"""A docstring of a module."""\n'
        "# A comment alone.\n"
        "def double(x):  # a comment behind code\n"
        '    """A docstring."""\n'
        "    return x * 2 if x else sum(y for y in ())\n"
    )
    counted = density([source])
    assert counted.lines == 5
    assert counted.code_lines == 2
    assert counted.comment_lines == 1
    assert counted.tokens == 6 + 16
    assert counted.function_tokens == [22]
    assert counted.conditional_expressions == 1
    assert counted.comprehensions == 1


def test_every_module_is_counted_once() -> None:
    assert len(set(shape.files())) == len(shape.files())
    assert set(shape.counted()) <= set(shape.files())


@pytest.mark.slow
def test_the_way_of_one_job_is_short() -> None:
    # In a process of its own: what other tests have left in caches is not called again.
    command = [
        sys.executable,
        "-m",
        "tests.support.shape",
        "--way",
        "--json",
    ]
    printed = subprocess.run(
        command,
        cwd=shape.ROOT,
        capture_output=True,
        check=True,
        timeout=300,
    )
    [way] = [
        one
        for one in json.loads(printed.stdout)
        if one["name"] == shape.SIMULATED_WAY
    ]
    assert "testbed/engine/engine.py" in way["detail"]
    assert way["value"] <= way["budget"], "\n".join(way["detail"])
