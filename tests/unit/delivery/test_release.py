"""A release states one version, its notes, and how it is cited."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from tests.support import release_notes
from tests.support.distributions import ROOT
from tests.support.release_notes import NoSuchVersion, notes

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
]
MAY_STATE_IT = {"pyproject.toml", "CITATION.cff", "CHANGELOG.md"}
OLDER = ("docs/papers/data/", "requirements/")
"""Provenance of what was measured once, and versions of other packages."""

CHANGES = """\
# Changelog

## [Unreleased]

## [9.2.0] - 2026-12-01

### Added
- B.

## [9.1.0]
- A.
"""


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    read = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert isinstance(read, dict)
    return read


def test_the_version_is_semantic_and_stated_once() -> None:
    version = PROJECT["version"]
    assert re.fullmatch(
        r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}((a|b|rc)\d+)?", version
    )
    stated = rf"(hosenet|testbed|__version__)\W{{1,6}}{re.escape(version)}(?![\d.])"
    found = subprocess.run(
        ["git", "grep", "--untracked", "-liP", stated],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {
        name for name in found if not name.startswith(OLDER)
    } <= MAY_STATE_IT


def test_the_installed_package_has_it() -> None:
    assert importlib.metadata.version("hosenet") == PROJECT["version"]


def test_the_citation_has_the_keys_of_its_format(
    citation: dict[str, Any],
) -> None:
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["authors"] == [{"name": "The Hosenet authors"}]
    assert citation["license"] == PROJECT["license"]["text"]
    assert citation["version"] == PROJECT["version"]
    assert all(isinstance(value, str | list) for value in citation.values())


def test_it_names_the_papers(citation: dict[str, Any]) -> None:
    papers = citation["references"]
    assert len(papers) == 5
    for paper in papers:
        assert {"type", "title", "authors"} <= paper.keys()
        assert paper["type"] in ("article", "generic")
        assert paper.keys() <= {
            "type",
            "title",
            "authors",
            "journal",
            "year",
            "volume",
            "doi",
        }
        for author in paper["authors"]:
            assert author.keys() == {"given-names", "family-names"}
    systems = (
        "DCloud",
        "Elastic Bandwidth",
        "Bandwidth-Guaranteed",
        "Consolidation",
        "Monitoring",
    )
    for system, paper in zip(systems, papers, strict=True):
        assert system in paper["title"]


def test_notes_are_those_of_the_version() -> None:
    assert (
        notes(CHANGES, "9.2.0")
        == notes(CHANGES, "v9.2.0")
        == "### Added\n- B."
    )
    assert notes(CHANGES, "9.1.0") == "- A."


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("9.3.0", "it has unreleased, 9.2.0, 9.1.0"),
        ("unreleased", "nothing"),
    ],
)
def test_a_version_without_notes_is_refused(version: str, why: str) -> None:
    with pytest.raises(NoSuchVersion, match=why):
        notes(CHANGES, version)


def test_the_changelog_has_notes() -> None:
    text = release_notes.CHANGELOG.read_text("utf-8")
    newest = release_notes.HEADING.search(text)
    assert newest is not None
    assert "\n- " in notes(text, newest[1])
