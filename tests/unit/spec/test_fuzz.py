"""Whatever stands in a file, reading it ends in an experiment or in SpecErrors, never otherwise."""

from __future__ import annotations

import random
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment, parse_experiment

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
TEXTS = [path.read_text("utf-8") for path in EXAMPLES]
TREES = {text: yaml.safe_load(text) for text in TEXTS}
PIECES = [
    "", " ", "\t", "\n", ":", "- ", "[", "]", "{", "}", ",", "#", "'", '"', "&a ", "*a", "!!int ",
    "!x ", "|", ">", "%", "@", "`", "?", "---\n", "...\n", "<<: ", "~", "null", "no", "010", "1e3",
    "10:20", "-1", "0", "1000000000000", "0.5", ".nan", "500 Mbit/s", "6 s", "12 %", "tree", "é",
    "\u2028", "\x07", "\ufeff", "kind: demand\n", "after: sort-750",
]  # fmt: skip
VALUES = [
    None, True, 0, 1, -1, 3, 10**9, 0.5, "", "x", "6 s", "500 Mbit/s", "1000 Tbit/s", [], {}, [1],
    ["x"], [[]], {"kind": "tree"}, {"min": 2, "max": 1}, "sort", "custom", "\0",
]  # fmt: skip


def outcome(text: str) -> Experiment | SpecErrors:
    try:
        return parse_experiment(text, Path("fuzz.yaml"))
    except SpecErrors as errors:
        for problem in errors.problems:
            assert problem.message
            assert problem.place.source == "fuzz.yaml"
            assert 1 <= problem.place.line <= text.count("\n") + 2
        return errors


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(TEXTS), st.integers(0), st.data())
def test_mutated_texts(text: str, seed: int, data: st.DataObject) -> None:
    """Cuts, doublings, moved and foreign pieces at random places."""
    rng = random.Random(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        a, b = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        b = min(b, a + 40)
        piece = rng.choice(PIECES)
        text = rng.choice(
            [text[:a] + text[b:], text[:b] + text[a:], text[:a] + piece + text[a:],
             text[:a] + piece + text[b:], text[b:] + text[:a]]
        )  # fmt: skip
    outcome(text)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(TEXTS), st.integers(0), st.data())
def test_mutated_structures(text: str, seed: int, data: st.DataObject) -> None:
    """Values replaced, keys removed, renamed and doubled, anywhere in the tree."""
    rng = random.Random(seed)
    tree = deepcopy(TREES[text])
    for _ in range(data.draw(st.integers(1, 4))):
        holder, key = rng.choice(list(_places(tree)))
        match rng.randrange(4):
            case 0:
                holder[key] = deepcopy(rng.choice(VALUES))
            case 1:
                del holder[key]
            case 2 if isinstance(holder, dict):
                holder[f"{key}s"] = holder.pop(key)
            case _:
                other, there = rng.choice(list(_places(tree)))
                holder[key] = deepcopy(other[there])
        if not list(_places(tree)):
            break
    outcome(yaml.safe_dump(tree, sort_keys=False))


def _places(tree: Any) -> list[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    here = [(tree, key) for key, _ in items]
    children = tree.values() if isinstance(tree, dict) else tree
    return here + [
        place for child in children if isinstance(child, dict | list) for place in _places(child)
    ]


@settings(deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    assert isinstance(outcome(text), SpecErrors)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecErrors):
        load_experiment(path)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(TEXTS), st.text(max_size=30), st.text(max_size=30))
def test_any_override(text: str, key: str, value: str) -> None:
    with suppress(SpecErrors):
        assert parse_experiment(text, Path("fuzz.yaml"), {key: value}).overrides
