"""``policies: [{class: ./mine.py:MyPolicy}]``: loaded, its parameters checked, its errors told."""

from __future__ import annotations

import csv
import json
import os
import py_compile
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import run as command
from testbed.embedding.base import embedder, embedder_source
from testbed.errors import BadInput
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from testbed.spec.policy_section import policy_from

pytestmark = pytest.mark.usefixtures("undrawn")

PATIENT = """\
from testbed.embedding.placement import Refusal
from testbed.schedulers.actions import Arrived, Reject, Start


class Patient:
    '''Starts what fits, at a share of its bandwidth.

    And no more.
    '''

    def __init__(self, embedder, share: float = 1.0, depth: int = 3, strict: bool = True):
        self.embedder, self.share = embedder, share

    def decide(self, view, event):
        if not isinstance(event, Arrived):
            return []
        job, free = view.job(event.job_id), view.residual(view.now_s, None)
        rate_bps = int(job.bandwidth_bps * self.share)
        found = self.embedder.embed(view.datacentre, free, job.n_vms, rate_bps)
        if isinstance(found, Refusal):
            return [Reject(job.id, found.reason)]
        return [Start(job.id, found, rate_bps)]
"""
FILE = """\
name: plugged
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies:
POLICIES
workload:
  kind: jobs
  jobs: [{id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 6 s}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PATIENT, encoding="utf-8")
    return tmp_path


def written(folder: Path, *policies: str) -> Path:
    """An experiment file with these entries, one a line from the fourth on."""
    text = FILE.replace(
        "POLICIES", "\n".join(f"  - {each}" for each in policies)
    )
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    return folder / "a.yaml"


def loaded(folder: Path, *policies: str) -> Experiment:
    return load_experiment(written(folder, *policies))


def refused(folder: Path, *policies: str) -> list[str]:
    """Problems of the file, without the folder."""
    with pytest.raises(SpecErrors) as caught:
        load_experiment(written(folder, *policies))
    return [
        str(problem).replace(f"{folder}/", "")
        for problem in caught.value.problems
    ]


def test_a_class_of_a_file_is_a_policy_with_its_constructors_parameters(
    folder: Path,
) -> None:
    first, second = loaded(
        folder,
        "{class: ./mine.py:Patient}",
        "{class: mine.py:Patient, share: 1, depth: 7, strict: false, embedder: adaba}",
    ).policies
    assert (first.label, first.parameters) == ("patient", ())
    assert second.parameters == (
        *(("share", 1.0), ("depth", 7), ("strict", False)),
        ("embedder", "adaba"),
    )
    kind = first.kind
    assert (kind.name, kind.summary) == (
        "patient",
        "Starts what fits, at a share of its bandwidth.",
    )
    assert list(kind.takes) == ["share", "depth", "strict", "embedder"]
    assert first.resolved == {
        "class": "./mine.py:Patient",
        "name": "patient",
    }


@pytest.mark.slow
def test_it_is_simulated_beside_ours(folder: Path) -> None:
    entries = (
        "vc",
        "{class: ./mine.py:Patient}",
        "{class: ./mine.py:Patient, share: 0.5}",
    )
    file = written(folder, *entries)
    assert (
        command(["simulate", str(file), "--out", str(folder / "runs")]) == 0
    )
    ends = {}
    for table in (folder / "runs").glob("*/*/jobs.csv"):
        with table.open(encoding="utf-8") as rows:
            ends |= {
                row["policy"]: float(row["measured_s"])
                for row in csv.DictReader(rows)
            }
    assert ends == {"vc": 6.0, "patient": 6.0, "patient-share=0.5": 12.0}
    (resolved,) = (folder / "runs").glob("*/patient/spec.resolved.json")
    assert (
        json.loads(resolved.read_text())["policies"][1]["class"]
        == "./mine.py:Patient"
    )


def test_what_is_wrong_with_its_parameters_is_told_as_of_ours(
    folder: Path,
) -> None:
    assert refused(
        folder,
        "{class: ./mine.py:Patient, dept: 3}",
        "{class: ./mine.py:Patient, depth: 3 s}",
        "{class: ./mine.py:Patient, share: true}",
        "{class: ./mine.py:Patient, depth: 3}",
        "{class: ./mine.py:Patient, depth: 3}",
    ) == [
        "a.yaml:4:32: policies[0].dept: is no parameter of patient (did you mean 'depth'?)",
        (
            "a.yaml:5:39: policies[1].depth: must be a whole number such as 3, without quotes,"
            " not the text '3 s'"
        ),
        "a.yaml:6:39: policies[2].share: must be a number such as 1, without quotes, not true",
        "a.yaml:8:5: policies[4]: patient-depth=3 is named twice",
    ]


def test_a_class_that_is_not_there_is_told_with_what_is(
    folder: Path,
) -> None:
    assert refused(
        folder,
        "{class: ./mine.py:Patent}",
        "{class: ./other.py:Patient}",
        "{class: mine}",
        "{class: 7}",
    ) == [
        (
            "a.yaml:4:13: policies[0].class: there is no 'Patent' in mine.py"
            " (did you mean 'Patient'?); it has: Patient"
        ),
        (
            "a.yaml:5:13: policies[1].class: there is no file './other.py' beside this one,"
            " along TESTBED_DATA or in the cache"
        ),
        (
            "a.yaml:6:13: policies[2].class: must be as ./mine.py:MyPolicy or"
            " package.module:MyPolicy, not the text 'mine'"
        ),
        (
            "a.yaml:7:13: policies[3].class: must be as ./mine.py:MyPolicy or"
            " package.module:MyPolicy, not 7"
        ),
    ]


def test_what_its_file_raises_is_told_at_its_line(folder: Path) -> None:
    (folder / "broken.py").write_text(
        "import os\n\nimport nosuch\n", encoding="utf-8"
    )
    (folder / "syntax.py").write_text("x = (\n", encoding="utf-8")
    assert refused(
        folder, "{class: ./broken.py:X}", "{class: ./syntax.py:X}"
    ) == [
        "broken.py:3:1: policies[0].class: raises ModuleNotFoundError: No module named 'nosuch'",
        (
            "syntax.py:1:5: policies[1].class: raises SyntaxError: '(' was never closed"
            " (syntax.py, line 1)"
        ),
    ]
    assert not [
        name
        for name in sys.modules
        if name.startswith("testbed_plugin_broken")
    ]


def test_a_modules_class_does_as_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "package_of_mine").mkdir()
    (folder / "package_of_mine" / "sub.py").write_text(
        PATIENT, encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(folder))
    (policy,) = loaded(
        folder, "{class: package_of_mine.sub:Patient}"
    ).policies
    assert policy.kind.name == "patient"
    assert refused(folder, "{class: package_of_mine.sup:Patient}") == [
        (
            "a.yaml:4:13: policies[0].class: cannot be imported: it raises ModuleNotFoundError:"
            " No module named 'package_of_mine.sup'"
        )
    ]


def test_the_command_line_names_files_of_the_working_directory_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "here.py").write_text(PATIENT, encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    file = written(folder, "vc")
    for name in ("mine.py", "here.py"):
        chosen = load_experiment(
            file, {"policies": f"[{{class: ./{name}:Patient}}]"}
        )
        assert chosen.policies[0].name == "patient"
    assert refused(folder, "{class: ./here.py:Patient}")


def test_a_text_names_a_policy_for_commands(folder: Path) -> None:
    assert policy_from("vc", folder).kind.name == "vc"
    assert policy_from("./mine.py:Patient", folder).kind.name == "patient"
    for text, message in {
        "vv": "unknown policy 'vv'",
        "./mine.py:Patent": "./mine.py:Patent: there is no 'Patent' in ",
        "./other.py:Patient": "./other.py:Patient: there is no file './other.py'",
    }.items():
        with pytest.raises(BadInput) as caught:
            policy_from(text, folder)
        assert str(caught.value).startswith(message)


def test_modules_beside_a_file_are_its_own(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    for place, share in ((folder, 1.0), (other, 0.5)):
        (place / "shared").mkdir()
        (place / "shared" / "__init__.py").write_text(
            "from shared.deep import SHARE\n"
        )
        (place / "shared" / "deep.py").write_text(f"SHARE = {share}\n")
        text = PATIENT.replace(
            "share: float = 1.0", "share: float = shared.SHARE"
        )
        (place / "uses.py").write_text(
            f"import shared\n{text}", encoding="utf-8"
        )
    first = policy_from("./uses.py:Patient", folder).kind
    second = policy_from("./other/uses.py:Patient", folder).kind
    assert [kind.takes["share"].default for kind in (first, second)] == [
        1.0,
        0.5,
    ]
    assert [
        [file.name for file in kind.source.files]
        for kind in (first, second)
        if kind.source
    ] == [
        ["uses.py", "shared/__init__.py", "shared/deep.py"],
        [
            "other/uses.py",
            "other/shared/__init__.py",
            "other/shared/deep.py",
        ],
    ]
    assert not {"shared", "shared.deep"} & set(sys.modules)
    assert not list(folder.glob("**/__pycache__"))


def test_an_edited_module_beside_a_file_is_executed_anew(
    folder: Path,
) -> None:
    """In one process, and whatever bytecode lies there: what is recorded is what was executed."""
    (folder / "mine.py").write_text(
        f"from shared import SHARE\n{PATIENT}    share = SHARE\n"
    )
    beside = folder / "shared.py"
    for share, size in (("0.5", 12), ("0.25", 13), ("0.75", 13)):
        before = beside.stat() if beside.exists() else None
        beside.write_text(f"SHARE = {share}\n")
        if before is not None and before.st_size == size:
            os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
        else:
            py_compile.compile(str(beside))
        (policy,) = loaded(folder, "{class: ./mine.py:Patient}").policies
        source = policy.kind.source
        assert source is not None
        made: Any = policy.kind.make(embedder("greedy"), {})
        assert (type(made).share, source.files[1].text.decode()) == (
            float(share),
            f"SHARE = {share}\n",
        )


@pytest.mark.slow
def test_a_run_folder_has_what_a_repetition_needs(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "shared.py").write_text("SHARE = 0.5\n")
    text = PATIENT.replace(
        "share: float = 1.0", "share: float = shared.SHARE"
    )
    (folder / "sub" / "uses.py").write_text(
        f"import shared\n{text}", encoding="utf-8"
    )
    file = written(folder, "vc", "{class: ./sub/uses.py:Patient}")
    assert (
        command(["simulate", str(file), "--out", str(folder / "runs")]) == 0
    )
    (vc,) = (folder / "runs").glob("*/vc")
    own = vc.with_name("patient")
    for run in (vc, own):  # a folder's spec.yaml names all policies
        kept = [
            str(path.relative_to(run))
            for path in sorted(run.glob("plugins/**/*.py"))
        ]
        assert kept == ["plugins/sub/shared.py", "plugins/sub/uses.py"]
    assert json.loads((vc / "provenance.json").read_text())["plugins"] == []
    (plugin,) = json.loads((own / "provenance.json").read_text())["plugins"]
    assert [Path(beside["path"]).name for beside in plugin["beside"]] == [
        "shared.py"
    ]
    shutil.rmtree(folder / "sub")
    again = [
        "simulate",
        str(own / "spec.yaml"),
        "--out",
        str(tmp_path / "again"),
    ]
    assert command(again) == 0
    (jobs,) = (tmp_path / "again").glob("*/patient/jobs.csv")
    assert jobs.read_text() == (own / "jobs.csv").read_text()


EXAMPLE = "def __init__(self, embedder, depth: int = 3)"
MISTAKES = {
    "class Mine(Patient): decide = None": (
        "4:13: policies[0].class: Mine has no method decide: write def decide(self, view, event)"
    ),
    "class Mine(Patient):\n    def decide(self, view): return []": (
        "4:13: policies[0].class: Mine has decide(self, view), but is asked with a view and an"
        " event: write def decide(self, view, event)"
    ),
    "class Mine(Patient):\n    def __init__(self, embedder, depth): pass": (
        f"4:13: policies[0].class: Mine takes depth without a default: give it one, as {EXAMPLE}"
    ),
    "class Mine(Patient):\n    def __init__(self, depth=(3,)): pass": (
        "4:13: policies[0].class: Mine takes depth with the default (3,): a default is true or"
        " false, a number or a text"
    ),
    "class Mine(Patient): name = 'vc'": (
        "4:13: policies[0].class: is called vc, as a policy of ours is: give the class"
        " another name, as name = 'my-vc'"
    ),
    "Mine = 7": (
        "4:13: policies[0].class: Mine is an int, not a class with decide(self, view, event) or a"
        " PolicyKind"
    ),
    "import nosuch": (
        "mine.py:25:1: policies[0].class: raises ModuleNotFoundError: No module named 'nosuch'"
    ),
    "raise SystemExit(3)": "mine.py:25:1: policies[0].class: raises SystemExit: 3",
    "def __getattr__(name): raise ValueError(name)": (
        "4:13: policies[0].class: there is no 'Mine' in mine.py; it has: Patient, __getattr__"
    ),
    "class Meta(type):\n    def __getattr__(cls, name): raise ValueError(name)\n\n"
    "class Mine(Patient, metaclass=Meta): pass": (
        "4:13: policies[0].class: Mine raises ValueError: parameters (mine.py:26)"
    ),
    "class Mine(Patient): pass": (
        "4:36: policies[0].depth: must be a whole number such as 3, without quotes,"
        " not the text 'deep'"
    ),
    "class Yours(Patient): pass": (
        "4:13: policies[0].class: there is no 'Mine' in mine.py; it has: Patient, Yours"
    ),
}


@pytest.mark.parametrize("line", MISTAKES)
def test_each_mistake_is_one_sentence_of_the_command(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(
        f"{PATIENT}\n\n{line}\n", encoding="utf-8"
    )
    file = written(folder, "{class: ./mine.py:Mine, depth: deep}")
    assert command(["validate", str(file)]) == 2
    place = "" if MISTAKES[line].startswith("mine.py") else "a.yaml:"
    shown = capsys.readouterr().err.replace(f"{folder}/", "")
    assert shown == f"{place}{MISTAKES[line]}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "    def __init__(self, embedder, depth: int = 3): 1 // (depth - 3)",
            "mine raises ZeroDivisionError: integer division or modulo by zero (mine.py:26)",
        ),
        (
            "    def __init__(self, embedder): raise SystemExit('no licence')",
            "mine raises SystemExit: no licence (mine.py:26)",
        ),
        (
            "    claims = staticmethod(lambda given: ('fast',))",
            "mine claims 'fast', which is none of granted-as-asked, within-deadline,",
        ),
    ],
)
def test_a_class_that_cannot_be_made_is_one_sentence(
    line: str, message: str, folder: Path
) -> None:
    (folder / "mine.py").write_text(
        f"{PATIENT}\n\nclass Mine(Patient):\n{line}\n"
    )
    (found,) = refused(folder, "{class: ./mine.py:Mine}")
    assert found.startswith(f"a.yaml:4:5: policies[0]: {message}")
    with pytest.raises(BadInput) as caught:
        policy_from("./mine.py:Mine", folder)
    shown = str(caught.value).replace(f"{folder}/", "")
    assert shown.startswith(f"./mine.py:Mine: {message}")


def test_two_classes_of_one_name_are_told_apart(folder: Path) -> None:
    (folder / "other.py").write_text(PATIENT, encoding="utf-8")
    entries = "{class: ./mine.py:Patient}", "{class: ./other.py:Patient}"
    assert refused(folder, *entries) == [
        (
            "a.yaml:5:5: policies[1]: patient is the name of ./mine.py:Patient too: give one of the"
            " classes a name of its own, as name = 'my-patient'"
        )
    ]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ("assert len(made) < 2, 'again'", "AssertionError: again"),
        ("if len(made) > 1: raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_a_class_that_can_be_made_once_alone_leaves_a_whole_folder(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    second: str,
    told: str,
) -> None:
    once = "made = []\n\n\nclass Patient:\n    def __init__(self):\n        made.append(self)\n"
    once += f"        {second}\n\n    def decide(self, view, event):\n"
    (folder / "mine.py").write_text(
        f"{once}        return []\n", encoding="utf-8"
    )
    file = written(folder, '{class: "./mine.py:Patient"}')
    assert (
        command(["simulate", str(file), "--out", str(tmp_path / "runs")])
        == 4
    )
    said = capsys.readouterr().err
    assert (
        f"policy patient: it raises {told} ({folder / 'mine.py'}:7)" in said
    )
    (run,) = (tmp_path / "runs").iterdir()
    assert (
        '"status":"failed"'
        in (run / "events.jsonl").read_text("utf-8").splitlines()[-1]
    )
    assert command(["audit", str(run)]) == 0


EMBEDDER = """\
from testbed.embedding.base import embedder, embedder_source


class Lean:
    TEXT = 'one'

    def embed(self, datacentre, residual, n_vms, rate_bps, *, largest_bps=0):
        return embedder('greedy').embed(
            datacentre, residual, n_vms, rate_bps, largest_bps=largest_bps
        )


class Nothing:
    pass
"""


def with_embedder(folder: Path, chosen: str, policy: str = "vc") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "lean.py").write_text(EMBEDDER)
    path = written(folder, policy)
    path.write_text(f"embedder: {chosen}\n{path.read_text()}")
    return path


def test_an_embedder_is_taken_from_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = "{class: ./lean.py:Lean}"
    path = with_embedder(
        tmp_path, chosen, f"{{name: fcfs, embedder: {chosen}}}"
    )
    assert (
        command(["simulate", str(path), "--out", f"{tmp_path}/runs"]) == 0
    )
    (folder,) = [each.parent for each in tmp_path.glob("runs/**/jobs.csv")]
    assert (folder / "plugins/lean.py").read_text() == EMBEDDER
    (use,) = json.loads((folder / "provenance.json").read_text())["plugins"]
    assert (use["group"], use["name"]) == ("embedders", "./lean.py:Lean")
    # The run folder's own copy plays it again.
    shutil.move(tmp_path / "lean.py", tmp_path / "gone.py")
    assert command(["audit", str(folder)]) == 0
    again = load_experiment(folder / "spec.yaml")
    assert again.embedder == "./lean.py:Lean"
    capfd.readouterr()


def test_two_files_embedders_of_one_name_stay_apart(tmp_path: Path) -> None:
    first = with_embedder(tmp_path / "a", "{class: ./lean.py:Lean}")
    second = with_embedder(tmp_path / "b", "{class: ./lean.py:Lean}")
    (tmp_path / "b" / "lean.py").write_text(EMBEDDER.replace("one", "two"))
    names = [
        load_experiment(each).embedder for each in (first, second, first)
    ]
    assert names[0] == names[2] != names[1]
    sources = []
    for name in names[:2]:
        source = embedder_source(name)
        assert source is not None
        sources.append(source.files[0].text.decode())
    assert ["two" in text for text in sources] == [False, True]


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("{class: ./lean.py:Nothing}", "is no embedder: it has no method"),
        ("{class: ./lean.py:Lena}", "there is no 'Lena' in"),
        (
            "{class: ./lean.py:Lean, b: 1}",
            "b: is an unknown key; known key: class",
        ),
        (
            "{clas: ./lean.py:Lean}",
            "clas: is an unknown key (did you mean 'class'?)",
        ),
        (
            "{name: oktopus}",
            "for one of the testbed's write its name alone, as oktopus",
        ),
        ("[greedy]", "must be a name, or a mapping such as"),
        ("gredy", "did you mean 'greedy'?"),
    ],
)
def test_what_is_no_embedder_is_refused(
    tmp_path: Path, chosen: str, told: str
) -> None:
    with pytest.raises(SpecErrors, match=re.escape(told)):
        load_experiment(with_embedder(tmp_path, chosen))
