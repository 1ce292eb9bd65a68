"""The policy of docs/writing-a-policy.md is simulated and planned, and does what is said."""

from __future__ import annotations

import csv
import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.schedulers.policy import CLAIMS

pytestmark = pytest.mark.usefixtures("undrawn")

PAGE = (
    Path(__file__).parents[3] / "docs" / "writing-a-policy.md"
).read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(
        rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found.group(1)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """The page's experiment file, with its policy beside it."""
    (tmp_path / "shrink.py").write_text(block("python"), encoding="utf-8")
    file = tmp_path / "shrinking.yaml"
    file.write_text(block("yaml"), encoding="utf-8")
    return file


def test_it_has_forty_lines_at_most() -> None:
    assert (
        len([line for line in block("python").splitlines() if line.strip()])
        <= 40
    )


@pytest.mark.slow
def test_it_starts_with_less_what_does_not_fit_in_full(
    experiment: Path, tmp_path: Path
) -> None:
    assert (
        main.run(
            ["simulate", str(experiment), "--out", str(tmp_path / "runs")]
        )
        == 0
    )
    jobs = {}
    for table in (tmp_path / "runs").glob("*/*/jobs.csv"):
        with table.open(encoding="utf-8") as file:
            jobs |= {
                (row["policy"].split()[0], row["job_id"]): row
                for row in csv.DictReader(file)
            }
    assert jobs["vc", "third"]["outcome"] == "rejected"
    shrunk = jobs["shrink-least=0.2", "third"]
    assert (shrunk["outcome"], shrunk["granted_bps"]) == (
        "finished",
        "200000000",
    )
    assert (
        float(shrunk["estimate_s"]) == float(shrunk["measured_s"]) == 12.0
    )


def test_its_limits_and_flows_are_planned_without_root(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = [
        "--set",
        "policies=[{class: ./shrink.py:Shrink}]",
        "--job",
        "third",
    ]
    assert main.run(["plan", str(experiment), *only]) == 0
    assert "rate 20000000bit ceil 20000000bit" in capsys.readouterr().out


def test_its_parameter_is_checked_like_any_other(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [
        "--set",
        "policies=[{class: ./shrink.py:Shrink, least: 200 %}]",
    ]
    assert main.run(["validate", str(experiment), *wrong]) == 2
    assert "must lie between 0.01 and 1" in capsys.readouterr().err


@pytest.mark.slow
def test_its_run_is_explained_audited_compared_and_repeated(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main.run(
            ["simulate", str(experiment), "--out", str(tmp_path / "runs")]
        )
        == 0
    )
    (run,) = (tmp_path / "runs").iterdir()
    own, other = run / "shrink-least-0.2", run / "vc"
    for arguments in (
        *(
            ["audit", str(own)],
            ["report", str(own)],
            ["explain", str(own), "third"],
        ),
        ["compare", str(other), str(own)],
    ):
        assert main.run(arguments) in (
            (0, 1) if arguments[0] == "compare" else (0,)
        ), arguments
    assert "shrink-least=0.2" in capsys.readouterr().out
    (plugin,) = json.loads((own / "provenance.json").read_text())["plugins"]
    text = (tmp_path / "shrink.py").read_bytes()
    assert plugin == {
        "group": "policies",
        "name": "shrink",
        "source": "./shrink.py:Shrink",
        "path": str(tmp_path / "shrink.py"),
        "sha256": sha256(text).hexdigest(),
    }
    assert (own / "plugins" / "shrink.py").read_bytes() == text
    (tmp_path / "shrink.py").unlink()  # the folder is enough
    again = tmp_path / "again"
    assert (
        main.run(["simulate", str(own / "spec.yaml"), "--out", str(again)])
        == 0
    )
    (jobs,) = again.glob("*/shrink-least-0.2/jobs.csv")
    assert jobs.read_text() == (own / "jobs.csv").read_text()


def test_every_claim_is_described() -> None:
    table = PAGE.split("<!-- claims -->", 1)[1]
    assert dict(
        re.findall(r"^\| `([\w-]+)` \| (.*) \|$", table, re.MULTILINE)
    ) == dict(CLAIMS)


def test_every_action_and_view_method_named_exists() -> None:
    from testbed.schedulers import actions
    from testbed.schedulers.policy import View

    table = PAGE.split("## What a policy may do", 1)[1].split(
        "## Rules", 1
    )[0]
    for name in re.findall(r"`([A-Z]\w+)", table):
        assert hasattr(actions, name), name
    for name in re.findall(
        r"`([a-z_]+)(?:\(|`, `)", table.split("The view answers", 1)[1]
    ):
        assert hasattr(View, name), name
