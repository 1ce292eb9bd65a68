"""docs/experiment-files.md says what is so: examples load, errors are real, no key is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from testbed.embedding.base import embedder_names
from testbed.schedulers.registry import known_policies
from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import Workload, parse_experiment
from testbed.spec.json_schema import experiment_schema
from testbed.spec.validation import kinds_of
from tests.unit.workload.traces import skip_without_traces_of

DOC = (
    Path(__file__).parents[3] / "docs" / "experiment-files.md"
).read_text("utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_its_examples_load(block: str) -> None:
    skip_without_traces_of(block)
    experiment = parse_experiment(block, Path("doc.yaml"))
    assert len(experiment.jobs) >= 1


def test_the_sweep_example_stands_for_what_it_says() -> None:
    block = next(block for block in BLOCKS if "sweep" in block)
    experiment = parse_experiment(block, Path("doc.yaml"))
    assert [job.id for job in experiment.jobs] == [
        "sort-750",
        "sort-600",
        "sort-300",
    ]


def test_every_key_and_name_is_explained() -> None:
    schema = experiment_schema()
    keys = set(schema["properties"])
    for definition in schema["$defs"].values():
        keys |= set(definition["properties"])
    workloads = [
        get_args(tagged)[0] for tagged in get_args(get_args(Workload)[0])
    ]
    keys |= {*known_policies(), *embedder_names(), *kinds_of(workloads)}
    words = set(re.findall(r"[\w-]+", DOC))
    assert keys - words == set()


def test_its_errors_are_real() -> None:
    shown = re.findall(r"^lab\.yaml:\d+:\d+: (.*)$", DOC, re.MULTILINE)
    assert len(shown) == 3
    wrong = {
        "topology": {
            "kind": "tree",
            "fanout": [4, 0, 2],
            "links": ["1 Gbit/s", 500, "1 Gbit/s"],
            "slots_per_server": 2,
        },
        "workload": {
            "kind": "jobs",
            "jobs": [
                {
                    "id": "a",
                    "vms": 2,
                    "bandwidth": "1 Mbit/s",
                    "duration": "6 s",
                    "pattern": "rnig",
                }
            ],
        },
    }
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(
            yaml.safe_dump(wrong, sort_keys=False), Path("lab.yaml")
        )
    assert [
        f"{p.path}: {p.message}" for p in caught.value.problems
    ] == shown
