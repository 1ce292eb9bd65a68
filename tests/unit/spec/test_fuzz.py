"""Whatever stands in a file, reading it ends in an experiment or in SpecErrors, never otherwise."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment, parse_experiment
from tests.support.examples import examples

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
TEXTS = [path.read_text("utf-8") for path in EXAMPLES]


def outcome(text: str) -> Experiment | SpecErrors:
    try:
        return parse_experiment(text, Path("fuzz.yaml"))
    except SpecErrors as errors:
        for problem in errors.problems:
            assert problem.message
            assert problem.place.source == "fuzz.yaml"
            assert 1 <= problem.place.line <= text.count("\n") + 2
        return errors


@pytest.mark.slow
@settings(deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    assert isinstance(outcome(text), SpecErrors)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecErrors):
        load_experiment(path)


@examples(60)
@given(st.sampled_from(TEXTS), st.text(max_size=30), st.text(max_size=30))
def test_any_override(text: str, key: str, value: str) -> None:
    with suppress(SpecErrors):
        assert parse_experiment(
            text, Path("fuzz.yaml"), {key: value}
        ).overrides
