"""Numbers that some reader takes and another does not: refused by all, each in its own words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.workload.lwf import read_lwf
from jobs.workload.swf import read_swf
from jobs.workload.swim import read_swim
from jobs.workload.traces import TraceErrors
from testbed.audit import audit
from testbed.errors import BadInput
from testbed.play.backend_trace import read_trace
from testbed.record.event_file import read_events
from testbed.record.stored_json import read_json
from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import parse_experiment
from tests.support.fuzz.mutations import NUMBERS
from tests.unit.record import sample
from tests.unit.record.written import write_run

FILE = """\
seed: 1
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [{name: dcloud, gamma: 0.1}]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 2 s, reward: 1}]}
scale: {rate: 0.1}
expect: {estimate_ratio: {min: 0.9}}
"""
PLACES = {
    "seed": ("seed: 1", "seed: {}"),
    "topology.fanout[0]": ("[2, 2]", "[{}, 2]"),
    "topology.slots_per_server": (
        "slots_per_server: 2",
        "slots_per_server: {}",
    ),
    "topology.links": ("1 Gbit/s", "{} Gbit/s"),
    "policies[0].gamma": ("gamma: 0.1", "gamma: {}"),
    "workload.jobs[0].vms": ("vms: 2", "vms: {}"),
    "workload.jobs[0].bandwidth": ("1 Mbit/s", "{} Mbit/s"),
    "workload.jobs[0].duration": ("2 s", "{} s"),
    "workload.jobs[0].reward": ("reward: 1", "reward: {}"),
    "scale.rate": ("rate: 0.1", "rate: {}"),
    "expect.estimate_ratio.min": ("min: 0.9", "min: {}"),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, _ = write_run(
        tmp_path_factory.mktemp("honest"), sample.sliding()
    )
    return folder.path


pytestmark = pytest.mark.parametrize(
    "number", NUMBERS.values(), ids=list(NUMBERS)
)


@pytest.mark.slow
@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("quote", ["", "'"])
def test_of_an_experiment_file(
    number: str, path: str, quote: str, tmp_path: Path
) -> None:
    old, new = PLACES[path]
    value = new.format(number)
    key, blank, content = (
        value.rpartition(": ")
        if not path.endswith("]")
        else ("", "", number)
    )
    text = FILE.replace(
        old, f"{key}{blank}{quote}{content}{quote}" if key else value, 1
    )
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(text, tmp_path / "x.yaml")
    assert all(problem.place.line for problem in caught.value.problems)
    assert path.partition(".")[0].partition("[")[0] in str(caught.value)


@pytest.mark.parametrize(
    "path", [path for path in PLACES if path != "topology.links"]
)
def test_of_the_command_line(
    number: str, path: str, tmp_path: Path
) -> None:
    _, new = PLACES[path]
    value = (
        new.rpartition(": ")[2].format(number)
        if "[{}" not in new
        else number
    )
    with pytest.raises(SpecErrors, match="--set"):
        parse_experiment(FILE, tmp_path / "x.yaml", {path: value})


SWF = [*map(str, [1, 100, -1, 40, 2, -1, -1, 2, 90]), *["-1"] * 9]
LWF = ["0", "100", "60", "60", "1", "1", "512", "0", "image", "0"]
SWIM = ["job0", "0", "0", "100", "100", "100"]
XML = (
    '<lease-workload><lease-requests><lease-request arrival="00:00:00"><lease id="1">'
    '<nodes><node-set numnodes="{nodes}"><res type="CPU" amount="{cpu}"/></node-set></nodes>'
    '<start/><duration time="{time}"/></lease></lease-request></lease-requests></lease-workload>'
)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("field", [0, 1, 3, 7])
def test_of_a_log(
    number: str, field: int, lenient: bool, tmp_path: Path
) -> None:
    words = [*SWF]
    words[field] = number
    check_trace(read_swf, " ".join(words), tmp_path, lenient=lenient)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("field", [1, 3, 5])
def test_of_a_hadoop_trace(
    number: str, field: int, lenient: bool, tmp_path: Path
) -> None:
    words = [*SWIM]
    words[field] = number
    check_trace(read_swim, "\t".join(words), tmp_path, lenient=lenient)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("field", [0, 2, 4, 6])
def test_of_leases_in_lines(
    number: str, field: int, lenient: bool, tmp_path: Path
) -> None:
    words = [*LWF]
    words[field] = number
    check_trace(read_lwf, " ".join(words), tmp_path, lenient=lenient)


@pytest.mark.parametrize("key", ["nodes", "cpu", "time"])
def test_of_leases_in_xml(number: str, key: str, tmp_path: Path) -> None:
    given = {"nodes": "2", "cpu": "100", "time": "01:00:00"}
    assert len(read_lwf(written(tmp_path, XML.format(**given))).jobs) == 1
    given[key] = number if key != "time" else f"{number}:00:00"
    check_trace(read_lwf, XML.format(**given), tmp_path, lenient=False)


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def check_trace(
    read: Callable[..., object], line: str, folder: Path, *, lenient: bool
) -> None:
    """Nothing is left of a trace of one such line, leniently read or not; it is named."""
    with pytest.raises(TraceErrors) as caught:
        read(written(folder, line), lenient=lenient)
    assert caught.value.problems[0].line == 1
    assert len(str(caught.value)) < 400


def test_of_events(number: str, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(
        f'{{"t": {number}, "event": "run_ended", "status": "completed", "reason": ""}}\n',
        encoding="utf-8",
    )
    with pytest.raises(BadInput, match=r"events\.jsonl:1: damaged"):
        read_events(tmp_path / "events.jsonl")


def test_of_a_trace_of_answers(number: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(
        f'{{"now_s": {number}}}\n{{"now_s": "{number}"}}\n',
        encoding="utf-8",
    )
    if number == "1e400":  # in JSON's grammar
        with pytest.raises(BadInput, match=r"answers\.jsonl:1: damaged"):
            list(read_trace(path))
    else:  # cut short where it is no JSON
        assert list(read_trace(path)) == []


@pytest.mark.parametrize(
    ("name", "check"),
    [("summary.json", "summary"), ("spec.resolved.json", "experiment")],
)
def test_of_the_files_of_a_run(
    number: str, name: str, check: str, honest: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(honest, tmp_path / "run")
    stored = json.loads((folder / name).read_text(encoding="utf-8"))
    stored["seed"] = "HERE"
    text = json.dumps(stored).replace('"HERE"', number)
    (folder / name).write_text(text, encoding="utf-8")
    assert check in failed(folder)
    if number != "1e400":  # JSON's grammar has it
        with pytest.raises(BadInput, match="damaged"):
            read_json(folder / name)


@pytest.mark.parametrize("name", ["jobs.csv", "links.csv"])
def test_of_tables(
    number: str, name: str, honest: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(honest, tmp_path / "run")
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    column = (
        lines[0]
        .split(",")
        .index("duration_s" if name == "jobs.csv" else "reserved_bps")
    )
    for at, cell in ((1, number), (2, f"{lines[2].split(',')[column]}_0")):
        cells = lines[at].split(",")
        cells[column] = cell
        changed = [*lines[:at], ",".join(cells), *lines[at + 1 :]]
        (folder / name).write_text(
            "\n".join(changed) + "\n", encoding="utf-8"
        )
        assert name in failed(folder)


def failed(path: Path) -> set[str]:
    return {one.name for one in audit(path).results if one.findings}
