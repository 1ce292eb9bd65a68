"""Experiments over a Mininet topology: its file read, its errors told, decided as our own form."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import run as command
from testbed.errors import MachineCannot
from testbed.spec import mininet_file
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from tests.support.schema import schema_validator
from topologies.mininet_topo import from_mininet

pytestmark = pytest.mark.usefixtures("undrawn")

CUSTOM_FILE = (
    Path(__file__).parents[3] / "testbed" / "plan" / "mininet_custom.py"
)
TOPO = """\
from mininet.topo import Topo


class FatTree(Topo):
    \"\"\"Cores first, then pod by pod from above: not the order in which we number.\"\"\"

    def build(self, k=4, bw=100):
        print("building", k)
        half = k // 2
        cores = [self.addSwitch(f"c{i}") for i in range(half * half)]
        for pod in range(k):
            above = [self.addSwitch(f"a{pod}{i}") for i in range(half)]
            for i, aggregation in enumerate(above):
                for core in cores[i * half : (i + 1) * half]:
                    self.addLink(core, aggregation, bw=4 * bw)
            for i in range(half):
                edge = self.addSwitch(f"e{pod}{i}")
                for aggregation in above:
                    self.addLink(aggregation, edge, bw=2 * bw)
                for j in range(half):
                    self.addLink(self.addHost(f"h{pod}{i}{j}"), edge, bw=bw)


topos = {"small": lambda bw: FatTree(k=2, bw=bw)}
"""
EXPERIMENT = """\
name: one
topology: {kind: mininet, path: topo.py, topo: FatTree, args: {k: 4}, slots_per_server: 2}
policies: [vc, bl, dcloud]
embedder: oktopus
workload:
  kind: poisson
  per_hour: 6
  hours: 4
  vms: {mean: 6}
  bandwidth: {mean: 40 Mbit/s}
"""
NATIVE = "{kind: fat-tree, k: 4, links: [400 Mbit/s, 200 Mbit/s, 100 Mbit/s], slots_per_server: 2}"

needs_mininet = pytest.mark.needs("mininet")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "topo.py").write_text(TOPO)
    path = tmp_path / "one.yaml"
    path.write_text(EXPERIMENT)
    return path


def load(
    file: Path, code: str | None = None, **topology: str
) -> Experiment:
    if code is not None:
        file.with_name("topo.py").write_text(
            f"from mininet.topo import Topo\n{code}"
        )
    return load_experiment(
        file, {f"topology.{key}": text for key, text in topology.items()}
    )


def errors(
    file: Path, code: str | None = None, **topology: str
) -> list[str]:
    """Each problem as it is shown, files without their folders."""
    with pytest.raises(SpecErrors) as caught:
        load(file, code, **topology)
    return str(caught.value).replace(f"{file.parent}/", "").splitlines()


@pytest.mark.slow
@needs_mininet
def test_names_slots_and_the_resolved_form(file: Path) -> None:
    experiment = load(file)
    centre = experiment.datacentre
    assert centre.names[:3] == ("h000", "h001", "h010")
    assert centre.names[-4:] == ("c0", "c1", "c2", "c3")
    assert (centre.total_slots, len(centre.trees)) == (32, 4)
    resolved = experiment.resolved["topology"]
    assert resolved["kind"] == "custom"
    assert resolved["servers"][1] == {"name": "h001", "slots": 2}
    assert resolved["links"][0] == {
        "lower": "h000",
        "upper": "e00",
        "capacity_bps": 100_000_000,
    }
    assert resolved["roots"] == ["c0", "c1", "c2", "c3"]


@pytest.mark.slow
@needs_mininet
def test_arguments_by_name_and_entries_of_topos(file: Path) -> None:
    assert load(file, args="{k: 6, bw: 0.5}").datacentre.n_servers == 54
    experiment = load(file, topo="small", args="{bw: 7}")
    assert set(experiment.datacentre.nic_bps.tolist()) == {7_000_000}


@pytest.mark.slow
@needs_mininet
def test_the_file_is_looked_for_as_others_are(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file.parent / "data"
    data.mkdir()
    file.with_name("topo.py").rename(data / "topo.py")
    message = "there is no file 'topo.py' beside this one, along TESTBED_DATA or in the cache"
    assert errors(file) == [f"one.yaml:2:33: topology.path: {message}"]
    monkeypatch.setenv("TESTBED_DATA", str(data))
    assert load(file).datacentre.n_servers == 16


@pytest.mark.slow
@needs_mininet
def test_what_it_prints_is_no_result(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["validate", str(file), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["valid"]
    assert "building 4" in captured.err


@pytest.mark.slow
@needs_mininet
def test_reading_it_leaves_nothing(file: Path) -> None:
    before = dict(sys.modules)
    load(file)
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "one.yaml",
        "topo.py",
    ]
    assert not [
        name
        for name in sys.modules.keys() - before.keys()
        if "topology" in name
    ]


@pytest.mark.slow
@needs_mininet
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = (\n", "topo.py:2:5: topology.path: raises SyntaxError: '(' was never closed"),
        ("\nimport nowhere\n", "topo.py:3:1: topology.path: raises ModuleNotFoundError: "),
        ("exit(3)\n", "topo.py:2:1: topology.path: raises SystemExit: 3"),
        (
            "class FatTree(Topo):\n  def build(self, k):\n    self.addLink('a', {}[k])\n",
            "topo.py:4:23: topology.path: raises KeyError: 4",
        ),
        (
            "class FatTree(Topo):\n  def build(self, k):\n    k.x\n",
            "topo.py:4:5: topology.path: raises AttributeError: 'int' object has no attribute 'x'",
        ),
        (
            "class Tree(Topo): pass\ntopos = {'flat': Tree}\n",
            "one.yaml:2:48: topology.topo: unknown Topo class 'FatTree' (did you mean 'Tree'?)",
        ),
        ("", "one.yaml:2:48: topology.topo: unknown Topo class 'FatTree'; known: none"),
        (
            "class FatTree(Topo):\n  def build(self, size): pass\n",
            "one.yaml:2:63: topology.args: FatTree.build() got an unexpected keyword argument 'k'",
        ),
        (
            "class FatTree(Topo):\n  def __init__(self, k, n): pass\n",
            "one.yaml:2:63: topology.args: FatTree.__init__() missing 1 required positional arg",
        ),
        (
            "class FatTree(Topo):\n  def __init__(self, k): pass\n",
            "one.yaml:2:48: topology.topo: FatTree makes <mininet_topology.FatTree object at ",
        ),
        (
            "topos = {'FatTree': lambda k: k}\n",
            "one.yaml:2:48: topology.topo: FatTree makes 4, not a whole mininet.topo.Topo",
        ),
    ],
    ids=[
        "syntax", "import", "exit", "build", "attribute", "class", "no class", "args", "too few",
        "not whole", "no topo",
    ],
)  # fmt: skip
def test_a_file_that_gives_no_topo(
    file: Path, code: str, expected: str
) -> None:
    (shown,) = errors(file, code)
    assert shown.startswith(expected)


@pytest.mark.slow
@needs_mininet
def test_a_file_has_no_terminal_of_roots(file: Path) -> None:
    """By root's terminal it could type commands into root's shell."""
    (shown,) = errors(file, "import os\nexit(os.getsid(0))\n")
    reason = "topo.py:3:1: topology.path: raises SystemExit: "
    assert shown.startswith(reason)
    assert int(shown.removeprefix(reason)) != os.getsid(0)


@pytest.mark.slow
@needs_mininet
def test_all_problems_of_all_sections_at_once(file: Path) -> None:
    code = """
class FatTree(Topo):
    def build(self, k):
        self.addLink(self.addHost("h1"), self.addSwitch("s1"))
        self.addHost("h2", slots=0)
"""
    text = file.read_text().replace(
        "slots_per_server: 2", "slots_per_server: two"
    )
    file.write_text(text.replace("policies: [vc,", "policies: [vcc,"))
    needed = (
        "a link needs bw, a number of Mbit/s above 0 and up to 10**9: addLink(..., bw=100),"
        " or topology: {default_bw: 100 Mbit/s} for all without"
    )
    *of_topo, slots, policy = errors(file, code)
    assert of_topo == [
        f"one.yaml:2:48: topology.topo: h1<->s1: {needed}",
        "one.yaml:2:48: topology.topo: h2 (to nothing): a host has one link, to a switch",
        "one.yaml:2:48: topology.topo: the slot count of h2 must be at least 1, not 0",
    ]
    number = "topology.slots_per_server: slots per server is a whole number, not 'two'"
    assert slots == f"one.yaml:2:89: {number}"
    assert policy.startswith(
        "one.yaml:3:12: policies[0]: unknown policy 'vcc'"
    )


def test_without_mininet_it_says_what_helps(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mininet_file, "find_spec", lambda _: None)
    with pytest.raises(
        MachineCannot, match=r"one\.yaml:2:11: Mininet is missing"
    ) as caught:
        load(file)
    assert caught.value.hint == "sudo ./provision.sh install"
    assert command(["validate", str(file)]) == 3
    assert "sudo ./provision.sh install" in capsys.readouterr().err


@pytest.mark.slow
def test_no_other_topology_imports_mininet(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        "topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}\n"
        "workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 2 s}]}\n"
    )
    code = (
        "import sys; from testbed.spec.experiment_file import load_experiment\n"
        f"load_experiment({str(tmp_path / 'one.yaml')!r}); sys.exit('mininet' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], timeout=60, check=False
        ).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({}, True),
        ({"args": {"k": 4, "names": ["a"]}, "slots_per_server": 3}, True),
        ({"args": [4]}, False),
        ({"slots_per_server": 0}, False),
        ({"topo": 3}, False),
        ({"class": "FatTree"}, False),
    ],
)
def test_the_schema_knows_it(changes: dict[str, Any], good: bool) -> None:
    jobs = [
        {"id": "a", "vms": 2, "bandwidth": "1 Mbit/s", "duration": "2 s"}
    ]
    topology = {
        "kind": "mininet",
        "path": "topo.py",
        "topo": "FatTree",
        **changes,
    }
    whole = {
        "topology": topology,
        "workload": {"kind": "jobs", "jobs": jobs},
    }
    assert schema_validator().is_valid(whole) is good


def tables(top: Path) -> dict[str, list[dict[str, str]]]:
    """``jobs.csv`` of each policy of a run."""
    found = {}
    for path in top.rglob("jobs.csv"):
        with path.open(encoding="utf-8") as table:
            found[path.parent.name] = list(csv.DictReader(table))
    return found


@pytest.mark.slow
@needs_mininet
def test_simulated_it_decides_as_the_same_network_in_our_form(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    native = tmp_path / "native.yaml"
    lines = file.read_text().splitlines()
    native.write_text(
        "\n".join([lines[0], f"topology: {NATIVE}", *lines[2:]])
    )
    for path in (file, native):
        out = str(tmp_path / f"runs-{path.stem}")
        assert command(["simulate", str(path), "--out", out]) == 0
    capsys.readouterr()
    ours, theirs = (
        tables(tmp_path / "runs-native"),
        tables(tmp_path / "runs-one"),
    )
    assert sorted(ours) == sorted(theirs) == ["bl", "dcloud", "vc"]
    assert all(len(rows) > 10 for rows in ours.values())
    assert ours == theirs
    # The run folder says everything: neither audit nor tables need the Python file.
    file.with_name("topo.py").unlink()
    for folder in sorted((tmp_path / "runs-one").iterdir()):
        assert command(["audit", str(folder)]) == 0


@pytest.mark.slow
@needs_mininet
def test_it_is_planned_and_the_plan_is_the_native_ones(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names on the machine follow from the levels, not from the Topo's names."""
    jobs = "{kind: jobs, jobs: [{id: a, vms: 3, bandwidth: 10 Mbit/s, duration: 2 s}]}"
    head = file.read_text().split("policies:")[0]
    file.write_text(f"{head}policies: [vc]\nworkload: {jobs}\n")
    native = file.with_name("native.yaml")
    native.write_text(
        f"name: one\ntopology: {NATIVE}\npolicies: [vc]\nworkload: {jobs}\n"
    )
    shown = []
    for path in (file, native):
        assert command(["plan", str(path), "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]


# ------------------------------------------------------------------ mn --custom


def executed_by_mn() -> dict[str, Any]:
    """``topos`` of the file, executed as ``mn --custom`` does."""
    names: dict[str, Any] = {}
    exec(  # noqa: S102
        compile(CUSTOM_FILE.read_text("utf-8"), str(CUSTOM_FILE), "exec"),
        names,
        names,
    )
    # What else it leaves there mn takes for its own: no name that it knows may be among them.
    known = {
        "switches",
        "hosts",
        "controllers",
        "links",
        "tests",
        "validate",
        "CLI",
        "Mininet",
    }
    assert known.isdisjoint(names)
    topos: dict[str, Any] = names["topos"]
    return topos


@pytest.mark.slow
@needs_mininet
def test_mn_builds_the_network_of_an_experiment_file(file: Path) -> None:
    from mininet.util import buildTopo

    centre = load(file).datacentre
    found = from_mininet(buildTopo(executed_by_mn(), f"hosenet,{file}"))
    assert found.names[:2] == ("mn-s0", "mn-s1")
    assert found.slots.tolist() == centre.slots.tolist()
    assert (
        found.link_capacity_bps.tolist()
        == centre.link_capacity_bps.tolist()
    )
    file.write_text(f"{file.read_text()}scale: {{rate: 0.5}}\n")
    half = from_mininet(buildTopo(executed_by_mn(), f"hosenet,{file}"))
    assert (
        2 * half.link_capacity_bps
    ).tolist() == centre.link_capacity_bps.tolist()
    tenth = buildTopo(
        executed_by_mn(), f"hosenet,{file},rate=0.1,prefix=tq"
    )
    assert from_mininet(tenth).names[0] == "tq-s0"
    assert (
        10 * from_mininet(tenth).nic_bps
    ).tolist() == centre.nic_bps.tolist()


@pytest.mark.parametrize("rate", ["50%", -1, 0, 0.0])
def test_a_bad_rate_ends_mn_before_it_deletes_what_others_made(
    file: Path, rate: object
) -> None:
    with pytest.raises(SystemExit, match="rate is a number above 0"):
        executed_by_mn()["hosenet"](str(file), rate)


@needs_mininet
def test_a_bad_file_ends_mn_before_it_deletes_what_others_made(
    tmp_path: Path,
) -> None:
    """``mn`` answers an exception with ``mn -c``, but not SystemExit."""
    from mininet.util import buildTopo

    with pytest.raises(SystemExit, match="there is no such file"):
        buildTopo(executed_by_mn(), f"hosenet,{tmp_path / 'nowhere.yaml'}")


# What a file may write in the place of the reply about it.
FORGED = {
    "bytes": b"\xff\xfe\0",
    "nothing": b"",
    "number": b"7",
    "list": b"[]",
    "object": b"{}",
    "no network": b'{"network": 7}',
    "no nodes": b'{"network": {"nodes": 7}}',
    "no links": b'{"network": {"nodes": {}, "links": [[1], {}]}}',
    "nested": b"[" * 100_000,
    "key": b'{"key": "__class__", "reason": "x", "line": 0}',
    "reason": b'{"key": "path", "reason": 7, "line": "x"}',
    "order": b'{"key": "path", "reason": "a\\u001b[2Jb", "line": 0}',
    "two": b'{"network": {}} {"network": {}}',
    "unknown ends": b'{"network": {"links": [["a", "b", {}]]}}',
    "itself": b'{"network": {"nodes": {"a": {}}, "links": [["a", "a", {}]]}}',
    "reason beside": b'{"network": {"links": [["a", "b", {}]]}, "reason": "x"}',
}
FORGE = """\
import os
for descriptor in range(3, 20):
    try:
        os.write(descriptor, {reply!r})
    except OSError:
        pass
os._exit(0)
"""


@pytest.mark.slow
@needs_mininet
@pytest.mark.parametrize("kind", FORGED)
def test_a_file_that_writes_its_own_reply_is_told(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "topo.py").write_text(FORGE.format(reply=FORGED[kind]))
    file = tmp_path / "one.yaml"
    file.write_text(EXPERIMENT)
    assert command(["validate", str(file)]) == 2
    said = capsys.readouterr().err
    assert ": topology." in said
    assert "\x1b" not in said
