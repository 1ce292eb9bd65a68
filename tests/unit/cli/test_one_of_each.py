"""Numbers and nouns agree: networks, jobs, logs and runs of one thing each, by
every verb that counts.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.units import number_of

FILES = {
    "one.yaml": """\
topology: {kind: tree, fanout: [1], links: [100 Mbit/s], slots_per_server: 1}
workload:
  kind: jobs
  jobs: [{id: a, vms: 1, kind: compute, duration: 5 s}]
policies: [fcfs]
""",
    "log.yaml": """\
topology: {kind: flat, nodes: 1}
workload: {kind: swf, path: one.swf}
policies: [easy]
""",
    "one.swf": "1 0 0 10 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n",
    "one.clab.yml": """\
name: one
topology:
  nodes:
    leaf: {kind: nokia_srlinux}
    client: {kind: linux}
  links:
    - endpoints: ["client:eth1", "leaf:e1-1"]
""",
    "one.graphml": """\
<graphml><graph edgedefault="undirected">
<node id="a"/><node id="b"/><edge source="a" target="b"/>
</graph></graphml>
""",
    "batch_task.csv": "M1,1,j_1,1,Terminated,86400,86410,100.0,0.3\n",
}
COMMANDS = (
    "validate one.yaml log.yaml",
    "plan one.yaml",
    "simulate one.yaml",
    "audit latest",
    "explain latest a",
    "report latest",
    "runs",
    "compare latest latest",
    "sweep one.yaml --over seed=1",
    "import one.clab.yml",
    "import one.graphml",
    "import batch_task.csv",
)
# A word that is no plural: of a verb, or a unit.
SINGULAR = re.compile(
    r"is|was|has|does|s|ms|us|ns|ends|takes|fits|times|less|this|arrives"
)
COUNTED = re.compile(r"(?<![\d.,:-])1 (?:[a-z]+ )?([A-Za-z]+s)\b")


@pytest.mark.slow
def test_one_of_each_is_no_plural(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    wrong = []
    for command in COMMANDS:
        assert run(command.split()) == 0, capsys.readouterr().err
        streams = capsys.readouterr()
        assert streams.out or streams.err
        for line in (streams.out + streams.err).splitlines():
            for found in COUNTED.finditer(line):
                if not SINGULAR.fullmatch(found[1]):
                    wrong.append(f"{command}: {line.strip()}")
    assert wrong == []


def test_a_count_and_its_noun() -> None:
    assert number_of(1, "link") == "1 link"
    assert number_of(0, "link") == "0 links"
    assert number_of(1200, "link") == "1,200 links"
    assert number_of(2, "batch", "batches") == "2 batches"
