"""The JSON Schema against jsonschema, an independent reader of it, and against the loader."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field

from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import load_experiment, parse_experiment
from testbed.spec.json_schema import experiment_schema
from testbed.spec.validation import SpecModel, descriptions
from tests.support.examples import examples
from tests.support.schema import schema_validator
from tests.unit.workload.traces import skip_without_traces_of

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
BAD = sorted((Path(__file__).parent / "bad").glob("*.yaml"))
TREES = {path: yaml.safe_load(path.read_text("utf-8")) for path in EXAMPLES}
VALUES: list[Any] = [
    True, 0, 1, -1, 2.5, "", "x", "6 s", "-6 s", "6", "500 Mbit/s", "500 Mbps", "12 %", 0.12, 1.5,
    [], {}, ["1 Gbit/s"], [2, 2], "ring", "tree", "vc", {"name": "vc"}, {"name": "vc", "x": 1},
    None,
]  # fmt: skip


@pytest.mark.slow
def test_it_is_a_schema_of_its_dialect() -> None:
    Draft202012Validator.check_schema(experiment_schema())
    assert (
        experiment_schema()["$schema"]
        == "https://json-schema.org/draft/2020-12/schema"
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_satisfy_it(path: Path) -> None:
    assert [
        e.message
        for e in schema_validator().iter_errors(
            yaml.safe_load(path.read_text())
        )
    ] == []


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        (
            "topology",
            {
                "kind": "tree",
                "fanout": [2],
                "links": 1000,
                "slots_per_server": 2,
            },
        ),
        (
            "topology",
            {
                "kind": "tree",
                "fanout": [0],
                "links": "1 Gbit/s",
                "slots_per_server": 2,
            },
        ),
        (
            "topology",
            {
                "kind": "fat-tree",
                "k": 5,
                "links": "1 Gbit/s",
                "slots_per_server": 2,
            },
        ),
        ("topology", {"kind": "ring"}),
        ("policies", ["vcc"]),
        ("policies", [{"name": "vc", "gamma": 1}]),
        ("embedder", "octopus"),
        ("scale", {"rate": 0}),
        ("scale", {"rate": "most"}),
        ("seed", -1),
        ("expect", {"estimate_ratio": {"least": 1}}),
        ("workload", {"kind": "jobs", "jobs": []}),
        (
            "workload",
            {
                "kind": "jobs",
                "jobs": [{"id": "a", "vms": 2, "bandwidth": "5 Mbit/s"}],
            },
        ),
        ("colour", "red"),
    ],
)
def test_it_refuses_mistakes(section: str, mistake: object) -> None:
    good = yaml.safe_load(EXAMPLES[0].read_text())
    assert schema_validator().is_valid(good)
    assert not schema_validator().is_valid({**good, section: mistake})


@pytest.mark.slow
@examples(80)
@given(st.sampled_from(EXAMPLES), st.integers(0), st.integers(1, 3))
def test_what_it_refuses_the_loader_refuses(
    path: Path, seed: int, changes: int
) -> None:
    rng = random.Random(seed)
    tree = deepcopy(TREES[path])
    for _ in range(changes):
        holder, key = rng.choice(_places(tree))
        if rng.random() < 0.2:
            del holder[key]
        elif rng.random() < 0.2 and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        else:
            holder[key] = deepcopy(rng.choice(VALUES))
        if not tree:
            break
    if not schema_validator().is_valid(tree):
        with pytest.raises(SpecErrors):
            parse_experiment(yaml.safe_dump(tree, sort_keys=False), path)


def _places(tree: Any) -> list[tuple[Any, Any]]:
    items = list(
        tree.items() if isinstance(tree, dict) else enumerate(tree)
    )
    inside = [place for _, child in items if isinstance(child, dict | list) and child
              for place in _places(child)]  # fmt: skip
    return [(tree, key) for key, _ in items] + inside


class Parent(SpecModel):
    kept: int
    """one that
    the child has too
    """
    anew: int
    """one that it declares itself"""


class Child(Parent):
    anew: str  # type: ignore[assignment]
    more: int = Field(1, description="one of its own")
    """not this"""


def test_a_fields_description_is_its_own_or_the_docstring_below_it() -> (
    None
):
    assert descriptions(Child) == {
        "kept": "one that\nthe child has too",
        "more": "one of its own",
    }


def test_every_key_is_described() -> None:
    schema = experiment_schema()
    for name, definition in [("file", schema), *schema["$defs"].items()]:
        for key, value in definition["properties"].items():
            assert key == "kind" or "description" in value, f"{name}.{key}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_load(path: Path) -> None:
    skip_without_traces_of(path.read_text("utf-8"))
    assert load_experiment(path).name == path.stem
