"""Embedders, topologies, workloads, demands and policies of installed packages."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from testbed.cli.main import run as command
from testbed.embedding.base import embedder, embedder_names
from testbed.errors import BadInput
from testbed.plugins import (
    PluginError,
    from_file,
    imported_digest,
    installed,
)
from testbed.schedulers.registry import known_policies, policy_kind
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment, parse_experiment
from testbed.spec.json_schema import experiment_schema
from testbed.spec.policy_section import SWEEP_WORKLOAD
from tests.support.plugin_package import installed_package

pytestmark = pytest.mark.usefixtures("undrawn")

MODULE = '''
from typing import Annotated

from pydantic import Field

from jobs.demand import Compute, Demand, DemandCurve
from jobs.request import JobRequest
from testbed.embedding.base import embedder
from testbed.embedding.placement import Placement, Refusal
from testbed.schedulers.policy import PolicyKind
from testbed.schedulers.vc import VirtualCluster
from testbed.spec.unit_types import PositiveBandwidth, PositiveDuration, Share
from topologies.datacentre import TopologyError
from topologies.tree import tree


class Packed:
    """As vc."""

    def __init__(self, embedder, depth: int = 3):
        self.own = VirtualCluster(embedder)

    def decide(self, view, event):
        return self.own.decide(view, event)


KINDS = (
    PolicyKind("first-own", "one", lambda embedder, _: VirtualCluster(embedder), embeds=True),
    PolicyKind("second-own", "two", lambda embedder, _: VirtualCluster(embedder), embeds=True),
)
CALLED_VC = PolicyKind("vc", "one", lambda embedder, _: VirtualCluster(embedder))


class Reversed:
    name = "reversed"
    answer = None

    def embed(self, datacentre, residual, n_vms, rate_bps, *, largest_bps=0):
        if self.answer is not None:
            return self.answer(residual)
        given = datacentre, residual, n_vms, rate_bps
        return embedder("greedy").embed(*given, largest_bps=largest_bps)


def star(servers: Annotated[int, Field(ge=1, description="how many")],
         link: PositiveBandwidth = 10**9, slots: list[int] = [2]):
    """Servers around one switch."""
    if servers == 13:
        raise TopologyError([(("servers",), "13 brings bad luck")])
    if servers == 14:
        return None
    if servers == 15:
        raise SystemExit(0)
    if servers == 16:
        print("sixteen")
    return tree([servers], [link], slots[0])


def pairs(datacentre, random, jobs: int, every: PositiveDuration = 60.0, fault: str = ""):
    """Jobs of two VMs."""
    at_s = 0.0
    for number in range(jobs):
        at_s += random.exponential(every)
        yield JobRequest(f"pair-{number}", at_s, random.integers(1, 3), 10**8, 30.0)
    if fault == "twice":
        yield JobRequest("pair-0", at_s, 2, 10**8, 30.0)
    if fault == "early":
        yield JobRequest("late", 0.0, 2, 10**8, 30.0)
    if fault == "twice a number":
        yield JobRequest(7, at_s, 2, 10**8, 30.0)
        yield JobRequest(7, at_s, 2, 10**8, 30.0)
    if fault == "truly endless":
        yield JobRequest("long", at_s, 2, 10**8, 30.0, true_duration_s=float("nan"))
    if fault == "estimated endless":
        yield JobRequest("long", at_s, 2, 10**8, 30.0, estimate_s=float("inf"))
    if fault == "endless":
        yield JobRequest("endless", at_s, 2, 10**8, float("inf"))
    if fault == "no job":
        yield "job"
    if fault == "after":
        yield JobRequest("next", at_s, 2, 10**8, 30.0, after="nobody")
    if fault == "raises":
        raise ValueError("out of luck")
    if fault == "exits":
        raise SystemExit(0)
    if fault == "prints":
        print("paired")


def mapreduce(shuffle: Share = 0.5, idle: bool = False, broken: bool = False) -> Demand:
    """A map phase that sends nothing, and a shuffle."""
    if broken:
        return Demand()
    return Compute() if idle else DemandCurve(((1 - shuffle, 0), (1.0, 10**9)))


def untyped(count):
    return tree([count], [10**9], 2)


def greedy_keys(**keys):
    return tree([2], [10**9], 2)


def misspelt(count: "Field.Nothing"):
    return tree([count], [10**9], 2)


NUMBER = 7
'''
ENTRIES = """
[hosenet.policies]
packed = extra_module:Packed
several = extra_module:KINDS
broken = broken_module:Packed
taken = extra_module:CALLED_VC
number = extra_module:NUMBER

[hosenet.embedders]
reversed = extra_module:Reversed
number = extra_module:NUMBER
broken = broken_module:Packed

[hosenet.topologies]
star = extra_module:star
untyped = extra_module:untyped
misspelt = extra_module:misspelt
greedy-keys = extra_module:greedy_keys
number = extra_module:NUMBER

[hosenet.workloads]
pairs = extra_module:pairs
star = extra_module:star

[hosenet.demands]
mapreduce = extra_module:mapreduce
"""
BROKEN = "import os\n\nimport nosuch\n"
FILE = """\
name: plugged
seed: 3
topology: {kind: star, servers: 4, link: 2 Gbit/s}
embedder: reversed
policies: [packed, {name: packed, depth: 7, embedder: greedy}, vc]
workload: {kind: pairs, jobs: 5, every: 10 s}
"""
JOBS = """\
name: listed
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 2, bandwidth: 500 Mbit/s, duration: 6 s, kind: mapreduce, KEYS}
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "package").mkdir()
    modules = {"extra_module": MODULE, "broken_module": BROKEN}
    with installed_package(tmp_path / "package", modules, ENTRIES):
        yield


def problems(text: str) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(text, Path("a.yaml"))
    return [str(problem) for problem in caught.value.problems]


def read(text: str) -> Experiment:
    return parse_experiment(text, Path("a.yaml"))


def test_nothing_of_a_package_is_imported_before_it_is_asked_for() -> None:
    read(FILE.replace("star, servers: 4, link: 2 Gbit/s", "flat, nodes: 4").replace(
        "embedder: reversed", "embedder: greedy").replace(
        "[packed, {name: packed, depth: 7, embedder: greedy}, vc]", "[vc]").replace(
        "{kind: pairs, jobs: 5, every: 10 s}", "{kind: poisson, hours: 1}"))  # fmt: skip
    assert list(installed("demands")) == ["mapreduce"]
    assert not {"extra_module", "broken_module"} & set(sys.modules)


@pytest.mark.slow
def test_all_groups_are_simulated_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FILE, encoding="utf-8")
    arguments = [
        "simulate",
        str(tmp_path / "a.yaml"),
        "--out",
        str(tmp_path / "runs"),
    ]
    assert command(arguments) == 0
    (run,) = (tmp_path / "runs").iterdir()
    source = {"distribution": "hosenet-extra", "version": "1.0"}

    def entry(group: str, name: str) -> dict[str, Any]:
        known = {
            "source": f"hosenet-extra 1.0 (entry point {name})",
            **source,
        }
        return {"group": group, "name": name, **known}

    used = {
        folder.name: json.loads((folder / "provenance.json").read_text())[
            "plugins"
        ]
        for folder in run.iterdir()
        if folder.is_dir()
    }
    others = [entry("topologies", "star"), entry("workloads", "pairs")]
    assert used == {
        "packed": [
            entry("policies", "packed"),
            entry("embedders", "reversed"),
            *others,
        ],
        "packed-depth-7-embedder-greedy": [
            entry("policies", "packed"),
            *others,
        ],
        "vc": [entry("embedders", "reversed"), *others],
    }
    resolved = json.loads((run / "vc" / "spec.resolved.json").read_text())
    assert resolved["topology"]["made_by"] == {
        "kind": "star",
        "servers": 4,
        "link": 2_000_000_000,
        "slots": [2],
    }
    assert resolved["workload_facts"]["parameters"] == {
        "jobs": 5,
        "every": 10.0,
        "fault": "",
    }
    assert [
        line["policy"]
        for line in json.loads((run / "summary.json").read_text())
    ] == [
        *("packed", "packed-depth=7-embedder=greedy"),
        "vc",
    ]


def test_the_seed_makes_a_workloads_jobs() -> None:
    first, again, other = (
        read(FILE),
        read(FILE),
        read(FILE.replace("seed: 3", "seed: 4")),
    )
    assert list(first.jobs) == list(again.jobs) != list(other.jobs)
    assert [job.id for job in first.jobs] == [
        f"pair-{number}" for number in range(5)
    ]
    assert type(first.jobs[0].n_vms) is int


def test_what_is_wrong_with_the_keys_is_told_as_of_ours() -> None:
    text = FILE.replace(
        "servers: 4, link: 2 Gbit/s", "server: 4, link: 2000"
    )
    assert problems(text.replace("jobs: 5, every: 10 s", "jobs: many")) == [
        "a.yaml:3:24: topology.server: is an unknown key (did you mean 'servers'?)",
        (
            "a.yaml:3:41: topology.link: 2000 is a bare number: write 2000 Mbit/s (or bit/s,"
            " kbit/s, Gbit/s, Tbit/s)"
        ),
        "a.yaml:6:31: workload.jobs: must be a whole number, not the text 'many'",
    ]
    assert problems(FILE.replace("servers: 4", "servers: 0")) == [
        "a.yaml:3:33: topology.servers: must be at least 1, not 0"
    ]


def test_an_unknown_kind_lists_the_installed_ones() -> None:
    text = FILE.replace("kind: star", "kind: stair").replace(
        "kind: pairs", "kind: pears"
    )
    assert problems(text) == [
        (
            "a.yaml:3:18: topology.kind: unknown kind of topology 'stair' (did you mean 'star'?);"
            " known: tree, fat-tree, flat, custom, mininet, greedy-keys, misspelt, number,"
            " star, untyped"
        ),
        (
            "a.yaml:6:18: workload.kind: unknown kind of workload 'pears' (did you mean 'pairs'?);"
            f" known: jobs, {SWEEP_WORKLOAD}, poisson, batch, swf, feitelson, jann, exponential,"
            " leases, swim, lwf, pairs, star"
        ),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("star, servers: 13", "3:33: topology.servers: 13 brings bad luck"),
        (
            "star, servers: 14",
            "3:11: topology: X (entry point star) makes None, not a DataCentre",
        ),
        (
            "star, servers: 15",
            "3:11: topology: X (entry point star) raises SystemExit: 0 (Y:53)",
        ),
        (
            "misspelt, count: 4",
            (
                "3:18: topology.kind: X (entry point misspelt): its parameters cannot be read:"
                " 'function' object has no attribute 'Nothing'"
            ),
        ),
        (
            "star, servers: 4, slots: []",
            (
                "3:11: topology: X (entry point star) raises IndexError: list index out of range"
                " (Y:56)"
            ),
        ),
        (
            "untyped, count: 4",
            (
                "3:18: topology.kind: X (entry point untyped): its parameters cannot be read:"
                " count has no annotation, as count: int"
            ),
        ),
        (
            "greedy-keys",
            (
                "3:18: topology.kind: X (entry point greedy-keys): its parameters cannot be read:"
                " *keys is no key that a file can give"
            ),
        ),
        (
            "number",
            "3:18: topology.kind: X (entry point number) is 7, not a function",
        ),
    ],
)
def test_a_topology_that_cannot_be_made_is_one_sentence(
    given: str, message: str, tmp_path: Path
) -> None:
    text = FILE.replace("star, servers: 4, link: 2 Gbit/s", given)
    found = problems(text)
    assert _short(found, tmp_path) == [f"a.yaml:{message}"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("twice", "makes job 'pair-0': another one has this id"),
        (
            "endless",
            "makes job 'endless': duration_s is inf: it must be finite and at least 0",
        ),
        ("twice a number", "makes job 7: another one has this id"),
        (
            "truly endless",
            "makes job 'long': true_duration_s is nan: it must be finite and at least 0",
        ),
        (
            "estimated endless",
            "makes job 'long': estimate_s is inf: it must be finite and at least 0",
        ),
        ("no job", "makes 'job', which is no JobRequest"),
        (
            "after",
            "makes job 'next': it waits for 'nobody', which is no job before it",
        ),
        ("raises", "raises ValueError: out of luck (Y:83)"),
        ("exits", "raises SystemExit: 0 (Y:85)"),
    ],
)
def test_a_workload_that_cannot_be_made_is_one_sentence(
    fault: str, message: str, tmp_path: Path
) -> None:
    found = problems(
        FILE.replace("every: 10 s", f"every: 10 s, fault: {fault}")
    )
    assert _short(found, tmp_path) == [
        f"a.yaml:6:11: workload: X (entry point pairs) {message}"
    ]
    early = problems(
        FILE.replace("every: 10 s", "every: 10 s, fault: early")
    )
    assert early[0].endswith("s of the one before: sort them")
    assert problems(
        FILE.replace("{kind: pairs, jobs: 5, every: 10 s}", "{kind: star}")
    ) == [
        (
            "a.yaml:6:18: workload.kind: hosenet-extra 1.0 (entry point star): its parameters"
            " cannot be read: the first two must be datacentre and random"
        )
    ]


def test_what_their_functions_print_is_no_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    read(
        FILE.replace("servers: 4", "servers: 16").replace(
            "every: 10 s", "every: 10 s, fault: prints"
        )
    )
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["sixteen", "paired"]


def _short(found: list[str], folder: Path) -> list[str]:
    module = str(folder / "package" / "extra_module.py")
    return [
        text.replace("hosenet-extra 1.0", "X").replace(module, "Y")
        for text in found
    ]


def test_a_kind_of_job_makes_its_demand_of_its_parameters() -> None:
    (job,) = read(JOBS.replace("KEYS", "parameters: {shuffle: 25 %}")).jobs
    assert job.to_json()["demand"] == {"steps": ((0.75, 0), (1.0, 10**9))}
    (job,) = read(JOBS.replace(", KEYS", "")).jobs
    assert job.to_json()["demand"] == {"steps": ((0.5, 0), (1.0, 10**9))}
    experiment = read(JOBS.replace("KEYS", "parameters: {shuffle: 25 %}"))
    assert [(use.group, use.name) for use in experiment.plugins] == [
        ("demands", "mapreduce")
    ]


def test_what_is_wrong_with_a_kind_of_job_is_one_sentence() -> None:
    where = "a.yaml:6"
    assert problems(
        JOBS.replace("KEYS", "parameters: {shufle: 1}, cpu: 50 %")
    ) == [
        (
            f"{where}:91: workload.jobs[0].parameters.shufle: is an unknown key (did you mean"
            " 'shuffle'?)"
        ),
        f"{where}:103: workload.jobs[0].cpu: is for mapreduce to say: leave it out",
    ]
    assert problems(JOBS.replace("KEYS", "parameters: {broken: true}")) == [
        (
            f"{where}:67: workload.jobs[0].kind: hosenet-extra 1.0 (entry point mapreduce) makes"
            " a Demand: agents can play Transfer, DemandCurve, Compute, Iperf3, Program,"
            " Command"
        )
    ]
    assert problems(
        JOBS.replace("KEYS", "parameters: {idle: true}, granted: 5 Mbit/s")
    ) == [
        f"{where}:104: workload.jobs[0].granted: means nothing to a mapreduce job"
    ]
    without = JOBS.replace("bandwidth: 500 Mbit/s, ", "").replace(
        ", KEYS", ""
    )
    assert problems(without) == [
        f"{where}:7: workload.jobs[0].bandwidth: is required for a mapreduce job"
    ]
    assert problems(
        JOBS.replace("mapreduce, KEYS", "transfer, parameters: {}")
    ) == [
        (
            f"{where}:77: workload.jobs[0].parameters: belongs to kinds of installed packages, this"
            " one's is transfer"
        )
    ]
    assert problems(JOBS.replace("mapreduce, KEYS", "mapreduced")) == [
        (
            f"{where}:67: workload.jobs[0].kind: must be one of transfer, demand, compute, iperf3,"
            " program, mapreduce, not the text 'mapreduced' (did you mean 'mapreduce'?)"
        )
    ]


def test_policies_are_known_by_their_entry_points_or_their_own_names() -> (
    None
):
    assert {"packed", "first-own", "second-own"} <= set(known_policies())
    assert "broken" not in known_policies()
    assert list(policy_kind("packed").takes) == ["depth", "embedder"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "broken",
            (
                "hosenet-extra 1.0 (entry point broken) raises ModuleNotFoundError: No module named"
                " 'nosuch' (B:3)"
            ),
        ),
        (
            "taken",
            "hosenet-extra 1.0 (entry point taken) is called vc, as a policy of ours is",
        ),
        (
            "number",
            (
                "hosenet-extra 1.0 (entry point number) is an int, not a class with"
                " decide(self, view, event) or a PolicyKind"
            ),
        ),
    ],
)
def test_a_broken_policy_is_told_to_whoever_asks_for_it_alone(
    name: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        FILE.replace("policies: [packed, ", f"policies: [{name}, "),
        encoding="utf-8",
    )
    assert command(["validate", str(file)]) == 2
    module = str(tmp_path / "package" / "broken_module.py")
    shown = capsys.readouterr().err.replace(module, "B")
    assert shown == f"{file}:5:12: policies[0]: {message}\n"
    with pytest.raises(PluginError):
        policy_kind(name)
    file.write_text(FILE, encoding="utf-8")
    assert command(["validate", str(file)]) == 0


def test_two_packages_with_one_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    entries = "[hosenet.policies]\npacked = other_module:Packed\n"
    with installed_package(
        tmp_path / "other", {"other_module": MODULE}, entries, "other-extra"
    ):
        with pytest.raises(PluginError) as caught:
            policy_kind("packed")
        assert str(caught.value) == (
            "other-extra 1.0 (entry point packed) and hosenet-extra 1.0 (entry point packed) have"
            " the same name: remove one of the packages"
        )


def test_embedders_are_known_and_broken_ones_are_told() -> None:
    assert "reversed" in embedder_names()
    assert embedder("reversed").name == "reversed"
    for name, message in {
        "broken": "raises ModuleNotFoundError: No module named 'nosuch'",
        "number": "is no embedder: it has no method embed(self, datacentre, residual, n_vms,",
    }.items():
        (found,) = problems(
            FILE.replace("embedder: reversed", f"embedder: {name}")
        )
        assert found.startswith(
            f"a.yaml:4:11: embedder: hosenet-extra 1.0 (entry point {name}) {message}"
        )
    (found,) = problems(
        FILE.replace("embedder: greedy", "embedder: number")
    )
    assert (
        "policies[1].embedder: hosenet-extra 1.0 (entry point number) is no embedder"
        in found
    )
    with pytest.raises(
        BadInput, match=r"unknown embedder 'revers'.*reversed"
    ):
        embedder("revers")


ANSWERS = {
    "None": "answers None, which is neither a Placement nor a Refusal",
    "Placement(99, ((0, 2),))": (
        "answers (99, ((0, 2),), ()), which does not fit: no tree has root 99"
    ),
    "Placement(4, ((0, 1),))": (
        "answers (4, ((0, 1),), ()), which does not fit: 1 VMs placed, 2 asked"
    ),
    "Placement(4, None)": "raises TypeError: 'NoneType' object is not iterable",
    "Placement(4, ((0, 2.0),))": (
        "raises TypeError: 'float' object cannot be interpreted as an integer"
    ),
    # Once read, an iterator is empty.
    "Placement(4, zip((0, 9), (1, 1)))": (
        "answers (4, ((0, 1), (9, 1)), ()), which does not fit:"
    ),
    "Refusal(None)": "raises TypeError: 'NoneType' object is not callable",
    "residual.free_slots.fill(0)": "raises ValueError: assignment destination is read-only",
    "1 // 0": "raises ZeroDivisionError: integer division or modulo by zero",
    "__import__('sys').exit(0)": "raises SystemExit: 0",
}
IMPURE = {
    "__import__('time').time()": "a decision reads the clock (time.time)",
    "__import__('random').random()": "a decision draws random numbers (random.random)",
    "__import__('numpy').random.rand()": "a decision draws random numbers (numpy.random.rand)",
    "print()": "a decision does input or output (print)",
}


@pytest.mark.parametrize("answer", IMPURE)
def test_an_impure_embedder_is_refused_when_it_is_loaded(
    answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "package" / "extra_module.py"
    text = module.read_text().replace(
        "answer = None", f"answer = lambda self, residual: {answer}"
    )
    module.write_text(text)
    file = tmp_path / "a.yaml"
    file.write_text(FILE, encoding="utf-8")
    assert command(["validate", str(file)]) == 2
    error = capsys.readouterr().err
    assert IMPURE[answer] in error


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_an_embedder_answers_wrongly_ends_the_run_in_a_sentence(
    answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "package" / "extra_module.py"
    text = module.read_text().replace(
        "answer = None", f"answer = lambda self, residual: {answer}"
    )
    module.write_text(text.replace("random.integers(1, 3)", "2"))
    file = tmp_path / "a.yaml"
    file.write_text(FILE, encoding="utf-8")
    assert (
        command(["simulate", str(file), "--out", str(tmp_path / "runs")])
        == 4
    )
    lines = capsys.readouterr().err.splitlines()
    shown = next(line for line in lines if line.startswith("error: "))
    begins = r"error: policy packed, at [\d.]+ s, on the arrival of job pair-0: embedder reversed, "
    asked = f"asked to place 2 VMs at 100 Mbit/s, {ANSWERS[answer]}"
    assert re.match(begins + re.escape(asked), shown), shown
    (summary,) = (tmp_path / "runs").glob("*/packed/summary.json")
    assert json.loads(summary.read_text())["unfinished"] == 1


@pytest.mark.slow
def test_the_schema_has_them_all_and_refuses_what_the_loader_refuses() -> (
    None
):
    validator = Draft202012Validator(experiment_schema())
    good = [FILE, JOBS.replace("KEYS", "parameters: {shuffle: 25 %}")]
    good.append(
        FILE.replace(
            "[packed,", "[{class: ./mine.py:Mine, depth: 3}, first-own,"
        )
    )
    assert [
        error.message
        for text in good
        for error in validator.iter_errors(_tree(text))
    ] == []
    for wrong, right in {
        "servers: 0": "servers: 4",
        "server: 4": "servers: 4",
        "link: 2000": "link: 2 Gbit/s",
        "jobs: many": "jobs: 5",
        "kind: pears": "kind: pairs",
        "embedder: revers": "embedder: reversed",
        "{class: 7}, vc": "vc",
    }.items():
        text = FILE.replace(right, wrong)
        assert text != FILE
        assert not validator.is_valid(_tree(text)), wrong
    assert not validator.is_valid(
        _tree(JOBS.replace("KEYS", "parameters: {shufle: 1}"))
    )


def _tree(text: str) -> Any:
    return yaml.safe_load(text)


def test_a_file_that_names_no_plug_in_loads_as_before(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        JOBS.replace(", kind: mapreduce, KEYS", ""), encoding="utf-8"
    )
    assert load_experiment(file).plugins == ()


def test_a_file_whose_execution_was_interrupted_is_executed_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    text = "from pathlib import Path\nif not Path({!r}).exists():\n"
    file.write_text(
        text.format(str(tmp_path / "ready"))
        + "    raise KeyboardInterrupt\nMine = 1\n"
    )
    with pytest.raises(KeyboardInterrupt):
        from_file(file, "Mine", "mine.py:Mine")
    (tmp_path / "ready").touch()
    assert from_file(file, "Mine", "mine.py:Mine").value == 1


def test_a_package_may_have_a_file_whose_name_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "oddly"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    plain = imported_digest("oddly")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py")).write_text("")
    assert imported_digest("oddly") != plain
