"""The package of docs/plug-ins.md: its five groups are found, and both files run with them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from testbed.cli import main
from testbed.plugins import Group, installed
from testbed.spec.experiment_file import load_experiment
from testbed.spec.json_schema import experiment_schema
from tests.support.plugin_package import installed_package

PAGE = (Path(__file__).parents[3] / "docs" / "plug-ins.md").read_text(
    encoding="utf-8"
)
GROUPS: tuple[Group, ...] = (
    "policies",
    "embedders",
    "topologies",
    "workloads",
    "demands",
)


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )


@pytest.fixture(autouse=True)
def package(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "package").mkdir()
    project = tomllib.loads(blocks("toml")[0])["project"]
    entries = "".join(
        f"[{group}]\n"
        + "".join(f"{name} = {value}\n" for name, value in given.items())
        for group, given in project["entry-points"].items()
    )
    modules = {"hosenet_extra": "\n".join(blocks("python"))}
    with installed_package(
        tmp_path / "package", modules, entries, project["name"]
    ):
        yield


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "plugged.yaml", tmp_path / "phases.yaml"]
    for path, text in zip(paths, blocks("yaml"), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_the_package_has_one_of_each_group() -> None:
    assert {group: list(installed(group)) for group in GROUPS} == {
        "policies": ["half"],
        "embedders": ["spread"],
        "topologies": ["star"],
        "workloads": ["bursts"],
        "demands": ["mapreduce"],
    }


@pytest.mark.slow
def test_both_files_run_and_name_what_they_used(
    files: list[Path], tmp_path: Path
) -> None:
    used: set[tuple[str, str]] = set()
    for path in files:
        assert (
            main.run(
                ["simulate", str(path), "--out", str(tmp_path / "runs")]
            )
            == 0
        )
    for provenance in (tmp_path / "runs").rglob("provenance.json"):
        for plugin in json.loads(provenance.read_text())["plugins"]:
            assert plugin["distribution"] == "hosenet-extra"
            used.add((plugin["group"], plugin["name"]))
    assert used == {
        (group, name) for group in GROUPS for name in installed(group)
    }


def test_they_do_what_is_said(files: list[Path]) -> None:
    plugged, phases = map(load_experiment, files)
    assert len(plugged.jobs) == 12
    assert plugged.datacentre.n_servers == 6
    (job,) = phases.jobs
    assert job.demand.record() == {
        "demand": {"steps": ((0.6, 0), (1.0, 10**9))}
    }


def test_the_schema_accepts_both_files(files: list[Path]) -> None:
    validator = Draft202012Validator(experiment_schema())
    for path in files:
        assert [
            e.message
            for e in validator.iter_errors(yaml.safe_load(path.read_text()))
        ] == []
