"""The workflows in .github: what they ask of a runner, as far as their text tells."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.distributions import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
PROVISION = (ROOT / "provision.sh").read_text("utf-8")
PINNED = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")

Mapping = dict[Any, Any]  # `on` is read as True


def loaded(path: Path) -> Mapping:
    found: Mapping = yaml.safe_load(path.read_text("utf-8"))
    return found


def jobs(path: Path) -> dict[str, Mapping]:
    found: dict[str, Mapping] = loaded(path)["jobs"]
    return found


def scripts(path: Path) -> list[str]:
    return [
        step["run"]
        for job in jobs(path).values()
        for step in job["steps"]
        if "run" in step
    ]


for_each_change = pytest.mark.parametrize(
    "path",
    [path for path in WORKFLOWS if path.stem != "nightly"],
    ids=lambda path: path.stem,
)
every_workflow = pytest.mark.parametrize(
    "path", WORKFLOWS, ids=lambda path: path.stem
)


def test_there_are_three() -> None:
    names = [path.name for path in WORKFLOWS]
    assert names == ["checks.yml", "live.yml", "nightly.yml"]


def test_the_nightly_one_runs_all_tests_and_keeps_what_is_printed() -> None:
    path = FOLDER / "nightly.yml"
    assert set(loaded(path)[True]) == {"schedule", "workflow_dispatch"}
    assert loaded(path)["permissions"] == {"contents": "read"}
    text = path.read_text("utf-8")
    assert "./provision.sh test --all" in text
    assert "./provision.sh run" in text
    assert "actions/upload-artifact@" in text


@for_each_change
def test_it_runs_for_requests_and_on_main_with_a_token_that_only_reads(
    path: Path,
) -> None:
    workflow = loaded(path)
    # pull_request_target would hand a stranger's code the rights of main.
    assert set(workflow[True]) == {
        "push",
        "pull_request",
        "workflow_dispatch",
    }
    assert workflow[True]["push"] == {"branches": ["main"]}
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in jobs(path).values())
    assert "secrets" not in path.read_text("utf-8")


@every_workflow
def test_it_ends_and_a_later_push_waits_for_it_or_replaces_it(
    path: Path,
) -> None:
    assert loaded(path)["concurrency"]["group"].startswith(
        f"{path.stem}-${{{{ github.ref }}}}"
    )
    for job in jobs(path).values():
        assert 0 < job["timeout-minutes"] <= 180


@every_workflow
def test_actions_are_pinned_by_commit_and_keep_no_token(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text("utf-8"))
    assert used
    assert [one for one in used if not PINNED.fullmatch(one)] == []
    for job in jobs(path).values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_an_action_has_one_version() -> None:
    used = {
        one
        for path in WORKFLOWS
        for one in re.findall(r"uses: (.*)", path.read_text("utf-8"))
    }
    assert len({one.split("@")[0] for one in used}) == len(used)


@every_workflow
def test_scripts_are_bash_without_expressions(path: Path) -> None:
    for script in scripts(path):
        assert "${{" not in script
        read = subprocess.run(
            ["bash", "-n"],
            input=script,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (read.returncode, read.stderr) == (0, "")
    assert all(
        job["defaults"]["run"]["shell"] == "bash"
        for job in jobs(path).values()
    )


@every_workflow
def test_what_scripts_call_exists(path: Path) -> None:
    text = "\n".join(scripts(path))
    called = re.findall(r"\./provision\.sh (\w+)", text)
    assert set(called) <= set(
        re.findall(r"^  (\w+)  ", PROVISION, re.MULTILINE)
    )
    files = re.findall(
        r"(?<!\S)(?:\./)?(provision\.sh|(?:tests|docs|examples)/[\w./-]+)",
        text,
    )
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []
    for name in re.findall(r"-m ((?:tests|testbed)[\w.]*)", text):
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name
    for names in re.findall(r"^make (.*)$", text, re.MULTILINE):
        targets = re.findall(
            r"^([a-z-]+):",
            (ROOT / "Makefile").read_text("utf-8"),
            re.MULTILINE,
        )
        assert set(names.split()) <= set(targets)


def test_what_is_taken_from_provision_is_there() -> None:
    text = "\n".join(scripts(FOLDER / "checks.yml"))
    for name in ("apt_install", "install_python", "install_test_python"):
        assert name in text
        assert re.search(rf"^{name}\(\) {{$", PROVISION, re.MULTILINE)
    for name in ("LOG", "PYTHON", "PACKAGES", "TEST_PACKAGES"):
        assert name in text
        assert re.search(rf"^{name}=", PROVISION, re.MULTILINE)


def test_the_pythons_are_those_of_the_project() -> None:
    matrix = jobs(FOLDER / "checks.yml")["checks"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    claimed = re.findall(
        r"Python :: (3\.\d+)", "\n".join(project["classifiers"])
    )
    assert matrix["python"] == claimed
    assert set(matrix) == {"python", "part"}


def test_each_part_of_the_matrix_has_its_step() -> None:
    job = jobs(FOLDER / "checks.yml")["checks"]
    matrix = job["strategy"]["matrix"]
    parts = matrix["part"]
    conditions = [step["if"] for step in job["steps"] if "if" in step]
    assert sorted(conditions) == sorted(
        f"matrix.part == '{part}'" for part in parts
    )
