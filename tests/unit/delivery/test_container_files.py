"""The image's Containerfile and entrypoint, without a container."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
ENTRYPOINT = ROOT / "container/entrypoint"
EXAMPLE = "/hosenet/examples/bandwidth-scaling.yaml"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH whose ``testbed``, ``bash`` and ``id`` say how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, does in {
        "testbed": 'echo testbed "$@"',
        "bash": 'echo bash "$@"',
        "id": "echo 1000",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    return folder


def started(programs: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["/bin/sh", str(ENTRYPOINT), *arguments],
        env={"PATH": f"{programs}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_without_a_verb_the_main_example_runs(programs: Path) -> None:
    assert started(programs) == f"testbed run {EXAMPLE}"
    assert (ROOT / EXAMPLE.removeprefix("/hosenet/")).is_file()


@pytest.mark.parametrize(
    "arguments",
    [("simulate", "a file.yaml"), ("doctor", "--json"), ("--help",)],
)
def test_a_verb_gets_its_arguments(
    programs: Path, arguments: tuple[str, ...]
) -> None:
    assert started(programs, *arguments) == f"testbed {' '.join(arguments)}"


def test_a_shell_is_a_shell(programs: Path) -> None:
    assert started(programs, "bash", "-l") == "bash -l"


@pytest.mark.parametrize("of_host", [False, True])
def test_processes_leave_a_containers_top_group_of_version_2(
    programs: Path, tmp_path: Path, of_host: bool
) -> None:
    groups = tmp_path / "cgroup"
    groups.mkdir()
    (groups / "cgroup.subtree_control").touch()
    if not of_host:
        (groups / "cgroup.type").touch()
    (groups / "cgroup.procs").write_text("1\n7\n")
    (programs / "id").write_text("#!/bin/sh\necho 0\n")
    subprocess.run(
        ["/bin/sh", str(ENTRYPOINT), "doctor"],
        env={
            "PATH": f"{programs}:{os.defpath}",
            "HOSENET_CGROUPS": str(groups),
        },
        capture_output=True,
        timeout=60,
        check=True,
    )
    moved = groups / "init/cgroup.procs"
    assert moved.exists() is not of_host
    assert of_host or moved.read_text() == "1\n7\n"


def test_the_image_installs_by_provision_and_begins_with_the_entrypoint() -> (
    None
):
    assert "HOSENET_NO_START=1" in CONTAINERFILE
    assert "/hosenet/provision.sh install" in CONTAINERFILE
    (line,) = re.findall(r"^ENTRYPOINT (.*)$", CONTAINERFILE, re.MULTILINE)
    assert json.loads(line) == [
        "tini",
        "--",
        "/hosenet/container/entrypoint",
    ]
    assert os.access(ENTRYPOINT, os.X_OK)


def test_the_base_is_a_debian_that_can_be_chosen() -> None:
    assert re.search(r"^ARG RELEASE=bookworm$", CONTAINERFILE, re.MULTILINE)
    assert re.search(r"^ARG BASE=debian:", CONTAINERFILE, re.MULTILINE)
    assert "FROM ${BASE}" in CONTAINERFILE


def test_no_place_of_a_machine_is_in_it() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {".git", ".venv", "runs"} <= set(ignored)
    for text in (CONTAINERFILE, ENTRYPOINT.read_text()):
        assert not re.search(r"https?://|index-url|find-links", text)


# ------------------------------------------------------------------ the editor's container


def test_the_editor_checks_the_examples_by_the_schema_that_is_made_there() -> (
    None
):
    folder = ROOT / ".devcontainer"
    described = json.loads((folder / "devcontainer.json").read_text())
    assert (folder / described["build"]["dockerfile"]).resolve() == (
        ROOT / "Containerfile"
    )
    assert (folder / described["build"]["context"]).resolve() == ROOT
    settings = described["customizations"]["vscode"]["settings"]
    ((schema, patterns),) = settings["yaml.schemas"].items()
    assert described["postCreateCommand"] == f"testbed schema > {schema}"
    assert f"/{schema}" in (ROOT / ".gitignore").read_text().splitlines()
    checked = {path for one in patterns for path in ROOT.glob(one)}
    assert checked >= set((ROOT / "examples").glob("*.yaml"))
