"""The policy of docs/writing-a-policy.md is found, simulated, planned, and does what is said."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import testbed.schedulers
from testbed.cli import main
from testbed.schedulers.policy import CLAIMS
from testbed.schedulers.registry import known_policies

PAGE = (Path(__file__).parents[3] / "docs" / "writing-a-policy.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's experiment file, with its policy among the modules of the package."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "shrink.py").write_text(block("python"), encoding="utf-8")
    path = [*testbed.schedulers.__path__, str(tmp_path / "modules")]
    monkeypatch.setattr(testbed.schedulers, "__path__", path)
    known_policies.cache_clear()
    file = tmp_path / "shrinking.yaml"
    file.write_text(block("yaml"), encoding="utf-8")
    yield file
    sys.modules.pop("testbed.schedulers.shrink", None)
    known_policies.cache_clear()


def test_it_has_thirty_lines_at_most() -> None:
    assert len([line for line in block("python").splitlines() if line.strip()]) <= 30


def test_it_starts_with_less_what_does_not_fit_in_full(experiment: Path, tmp_path: Path) -> None:
    assert main.run(["simulate", str(experiment), "--out", str(tmp_path / "runs")]) == 0
    jobs = {}
    for table in (tmp_path / "runs").glob("*/*/jobs.csv"):
        with table.open(encoding="utf-8") as file:
            jobs |= {(row["policy"].split()[0], row["job_id"]): row for row in csv.DictReader(file)}
    assert jobs["vc", "third"]["outcome"] == "rejected"
    shrunk = jobs["shrink-least=0.2", "third"]
    assert (shrunk["outcome"], shrunk["granted_bps"]) == ("finished", "200000000")
    assert float(shrunk["estimate_s"]) == float(shrunk["measured_s"]) == 12.0


def test_its_limits_and_flows_are_planned_without_root(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--set", "policies=[shrink]", "--job", "third"]
    assert main.run(["plan", str(experiment), *only]) == 0
    assert "rate 20000000bit ceil 20000000bit" in capsys.readouterr().out


def test_its_parameter_is_checked_like_any_other(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--set", "policies=[{name: shrink, least: 200 %}]"]
    assert main.run(["validate", str(experiment), *wrong]) == 2
    assert "must lie between 0.01 and 1" in capsys.readouterr().err


def test_every_claim_is_described() -> None:
    table = PAGE.split("<!-- claims -->", 1)[1]
    assert dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", table, re.MULTILINE)) == dict(CLAIMS)


def test_every_action_and_view_method_named_exists() -> None:
    from testbed.schedulers import actions
    from testbed.schedulers.policy import View

    table = PAGE.split("## What a policy may do", 1)[1].split("## Rules", 1)[0]
    for name in re.findall(r"`([A-Z]\w+)", table):
        assert hasattr(actions, name), name
    for name in re.findall(r"`([a-z_]+)(?:\(|`, `)", table.split("The view answers", 1)[1]):
        assert hasattr(View, name), name
