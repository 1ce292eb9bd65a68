"""``testbed policy``: what it prints, its exit codes, and the repository that it begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from testbed.cli import main, policies
from testbed.policy_trials import policy_standing, policy_subject
from testbed.policy_trials.policy_check import CHECKS
from testbed.policy_trials.policy_subject import (
    QUICK,
    Effort,
    PolicyFinding,
    Subject,
)
from testbed.schedulers.policy import CLAIMS
from testbed.schedulers.registry import own_policies, policy_kind
from testbed.spec.document import read_document
from testbed.spec.experiment_file import parse_experiment

ROOT = Path(__file__).parents[3]
MINE = '''
from testbed.embedding.placement import Refusal
from testbed.schedulers.actions import Arrived, Reject, Start

class Mine:
    """Starts what fits on arrival."""
    claims = ("no-preemption",)
    def __init__(self, embedder, depth: int = 3):
        self.embedder, self.depth = embedder, depth
    def decide(self, view, event):
        if not isinstance(event, Arrived):
            return []
        job, free = view.job(event.job_id), view.residual(view.now_s, None)
        found = self.embedder.embed(view.datacentre, free, job.n_vms, job.bandwidth_bps)
        if isinstance(found, Refusal):
            return [Reject(job.id, found.reason)]
        return [Start(job.id, found, job.bandwidth_bps)]

class Clock(Mine):
    def decide(self, view, event):
        import time
        time.time()
        return []

class Liar(Mine):
    claims = ("every-job-starts", "no-starvation")
'''

FILE = """
topology: {{kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}}
policies: [{policy}]
workload:
  kind: jobs
  jobs: [{{id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 6 s}}]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    return tmp_path


def printed(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> str:
    assert main.run(["policy", *arguments]) == code
    return capsys.readouterr().out


# -- list and show


def test_every_policy_is_listed_with_what_it_schedules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = {
        one["name"]: one
        for one in json.loads(printed(capsys, "list", "--json"))
    }
    assert set(own_policies()) <= set(listed)
    schedules = {
        name: listed[name]["schedules"]
        for name in ("fcfs", "bl", "easy", "mbfcbs")
    }
    assert schedules == {
        "fcfs": "hoses",
        "bl": "hoses",
        "easy": "nodes",
        "mbfcbs": "leases",
    }
    table = printed(capsys, "list")
    assert all(name in table for name in own_policies())


def test_a_policy_is_shown_with_parameters_and_claims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = printed(capsys, "show", "mbfcbs")
    assert (
        "claims best-effort-preempted-once: "
        + CLAIMS["best-effort-preempted-once"]
        in shown
    )
    assert "slot: 600 s" in shown
    record = json.loads(printed(capsys, "show", "dcloud", "--json"))
    assert record["entry"].startswith("{name: dcloud, gamma: 12 %")
    [gamma] = [one for one in record["parameters"] if one["key"] == "gamma"]
    assert (gamma["unit"], gamma["limits"]) == ("share", [0.0, 1.0])


@pytest.mark.usefixtures("mine")
def test_a_class_of_a_file_is_shown_as_a_file_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = printed(capsys, "show", "./mine.py:Mine")
    assert "mine: Starts what fits on arrival." in shown
    assert 'policies: [{class: "./mine.py:Mine", depth: 3}]' in shown


@pytest.mark.parametrize("name", ["vc", "dcloud", "bl", "easy"])
def test_the_shown_entry_is_loaded_as_the_name_alone(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    record = json.loads(printed(capsys, "show", name, "--json"))
    shown, alone = (
        parse_experiment(FILE.format(policy=entry), Path("a.yaml"))
        for entry in (record["entry"], name)
    )
    kind = policy_kind(name)
    given = dict(shown.policies[0].parameters)
    assert "embedder" not in given
    assert shown.embedder == alone.embedder == "oktopus"
    assert kind.given(given) == kind.given({})
    assert kind.on_failure_of(given) == kind.on_failure_of({})
    assert kind.sharing_of(given) == kind.sharing_of({})


def test_the_default_embedder_is_the_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = printed(capsys, "show", "vc")
    assert "adaba" not in shown.split("in a file:")[1]
    assert "the file's" in shown
    record = json.loads(printed(capsys, "show", "vc", "--json"))
    defaults = {one["key"]: one["default"] for one in record["parameters"]}
    assert defaults == {"on_failure": "kill", "embedder": None}


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("patent", "unknown policy 'patent'"),
        ("./mine.py:Nobody", "Nobody"),
        ("./no.py:A", "no.py"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_what_is_no_policy_is_bad_input(
    which: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["policy", "show", which]) == 2
    assert message in capsys.readouterr().err


# -- check

RIVALS = ("vc", "fcfs", "dcloud")


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer experiments than ``--quick`` tries, and three rivals."""
    few = Effort(twice=1, replayed=2, audited=3, failing=3)
    monkeypatch.setattr(policy_subject, "QUICK", few)
    rivals = {name: own_policies()[name] for name in RIVALS}
    monkeypatch.setattr(policy_standing, "own_policies", lambda: rivals)


@pytest.mark.slow
@pytest.mark.usefixtures("few_runs")
def test_a_sound_policy_has_its_findings_and_three_tables(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = mine / "check.html"
    check = (
        "check",
        "./mine.py:Mine",
        "--quick",
        "--set",
        "depth=5",
        "--page",
        str(page),
        "--pictures",
        str(mine / "pictures"),
        "--json",
    )
    told = json.loads(printed(capsys, *check))
    assert [one["check"] for one in told["findings"]] == list(CHECKS)
    assert {one["verdict"] for one in told["findings"]} == {
        "ok",
        "not declared",
    }
    assert len(told["standing"]) == 3
    shown = page.read_text("utf-8")
    assert "No check failed." in shown
    for finding in told["findings"]:
        assert f'<td class="name">{finding["check"]}</td>' in shown
    assert shown.count("→ mine-depth=5") == 3
    assert shown.count("<svg") == 3
    written = sorted(path.name for path in (mine / "pictures").iterdir())
    assert written == [
        f"standing-{number}.{kind}"
        for number in (1, 2, 3)
        for kind in ("csv", "png", "svg")
    ]
    for table in told["standing"]:
        names = [row["policy"] for row in table["rows"]]
        assert [row["policy"] for row in table["rows"] if row["own"]] == [
            "mine-depth=5"
        ]
        assert set(RIVALS) <= set(names)
        own = next(row for row in table["rows"] if row["own"])
        twin = next(row for row in table["rows"] if row["policy"] == "vc")
        # The same jobs for all: a policy that does as another has its numbers.
        assert (
            abs(
                own["metrics"]["finished"]["mean"]
                - twin["metrics"]["finished"]["mean"]
            )
            <= 2
        )


@pytest.mark.usefixtures("few_runs", "undrawn")
@pytest.mark.slow
def test_a_false_claim_is_exit_1_with_a_counterexample_to_run(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = mine / "found"
    text = printed(
        capsys,
        "check",
        "./mine.py:Liar",
        "--quick",
        "--out",
        str(out),
        "--page",
        str(mine / "check.html"),
        code=1,
    )
    assert "failed" in text
    shown = (mine / "check.html").read_text("utf-8")
    assert "Failed: claims, no starvation." in shown
    assert "Counterexample of no starvation" in shown
    path = out / "no-starvation.yaml"
    assert yaml.safe_load(path.read_text("utf-8"))["policies"][0][
        "class"
    ].endswith("mine.py:Liar")
    capsys.readouterr()
    # The audit of that very run fails by the claim.
    assert (
        main.run(["simulate", str(path), "--out", str(mine / "runs")]) == 1
    )
    assert "audit: no-starvation FAILED" in capsys.readouterr().out


def test_a_counterexample_replaces_a_link_and_is_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, out, given = (
        tmp_path / "other",
        tmp_path / "found",
        list[tuple[int, int]](),
    )
    other.write_text("kept")
    out.mkdir()
    (out / "failures.yaml").symlink_to(other)
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setenv("SUDO_GID", "4322")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.fchown", lambda _, *ids: given.append(ids))
    monkeypatch.setattr("os.chown", lambda _, *ids, **__: given.append(ids))
    subject = Subject.of({"name": "vc"}, 1, QUICK)
    finding = PolicyFinding(
        "failures", "says", "failed", "how", "name: found\n"
    )
    result = policies._Result(subject, [finding], [])
    for folder in (out, tmp_path / "made" / "found"):
        policies._show(result, folder, as_json=False)
        assert (folder / "failures.yaml").read_text() == "name: found\n"
        assert not (folder / "failures.yaml").is_symlink()
    assert other.read_text() == "kept"
    # Two files and two folders: what was there before stays its owner's.
    assert given == [(4321, 4322)] * 4


@pytest.mark.usefixtures("mine")
def test_a_policy_that_reads_the_clock_is_refused_at_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["policy", "check", "./mine.py:Clock", "--quick"]) == 2
    error = capsys.readouterr().err
    assert "mine.py:22:9: a decision reads the clock (time.time)" in error


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("depth", "write it as KEY=VALUE"),
        ("depth=x", "must be a whole number such as 3"),
        ("deep=4", "is no parameter of mine"),
        ("depth=[", "is no value"),
        ("depth=2026-99-99", "must be a whole number such as 3"),
        ("depth=yes", "is no value"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_a_bad_setting_is_bad_input(
    setting: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main.run(["policy", "check", "./mine.py:Mine", "--set", setting])
        == 2
    )
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("mine")
def test_the_entry_that_show_prints_is_one_that_a_file_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = MINE.replace(
        "depth: int = 3", 'tries: str = "off", step: float = 1e-05'
    ).replace("self.depth = embedder, depth", "_ = embedder, tries")
    Path("odd.py").write_text(text, encoding="utf-8")
    assert main.run(["policy", "show", "./odd.py:Mine", "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)["entry"]
    read = read_document(entry, "entry")
    assert not read.problems
    assert read.data["class"] == "./odd.py:Mine"
    assert (read.data["tries"], read.data["step"]) == ("off", 1e-05)


# -- new


@pytest.mark.parametrize(
    "name",
    [
        "fcfs",
        "Patient",
        "a b",
        "a_b",
        "../a",
        "json",
        "numpy",
        "-a",
        "a" * 41,
    ],
)
def test_a_name_that_cannot_be_one_is_bad_input(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["policy", "new", "--", name]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert (
        main.run(["policy", "new", "mine", "--out", str(tmp_path / "mine")])
        == 2
    )
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.fixture
def repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "repository"
    made = json.loads(
        printed(
            capsys, "new", "patient-queue", "--out", str(folder), "--json"
        )
    )
    assert {"patient_queue.py", "pyproject.toml", ".gitignore"} <= set(
        made["files"]
    )
    return folder


def test_the_policy_of_a_new_repository_is_short_and_its_files_are_whole(
    repository: Path,
) -> None:
    module = (repository / "patient_queue.py").read_text("utf-8")
    assert len(module.splitlines()) <= 40
    for path in repository.rglob("*"):
        assert path.is_dir() or "{{" not in path.read_text("utf-8")
    assert main.run(["validate", str(repository / "by-class.yaml")]) == 0
    workflow = yaml.safe_load(
        (repository / ".github/workflows/test.yml").read_text("utf-8")
    )
    assert workflow["jobs"]["test"]["steps"]


@pytest.mark.long
@pytest.mark.slow
def test_the_tests_of_a_new_repository_pass_at_once(
    repository: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=repository, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout
