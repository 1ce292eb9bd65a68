"""The installed reproductions: everything that they read at run time is in the package."""

from __future__ import annotations

import ast
from pathlib import Path

from reproductions.configuration import FOLDER

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "reproductions"


def test_the_data_files_are_in_the_package() -> None:
    # That the wheel has them: tests/unit/delivery.
    assert [path for path in PACKAGE.rglob("*") if path.is_symlink()] == []
    assert FOLDER == PACKAGE


def test_no_module_looks_above_the_package() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            assert not (
                isinstance(node, ast.Attribute) and node.attr == "parents"
            ), path
            if isinstance(node, ast.Constant) and isinstance(
                node.value, str
            ):
                assert not node.value.startswith(".."), path
                assert "examples/" not in node.value, path
    above = [node for node in ast.walk(ast.parse((PACKAGE / "configuration.py").read_text()))
             if isinstance(node, ast.Attribute) and node.attr == "parent"]  # fmt: skip
    assert len(above) == 1  # the package's own folder


def test_examples_that_evaluations_play_are_those_of_the_package() -> None:
    links = [
        path for path in (ROOT / "examples").rglob("*") if path.is_symlink()
    ]
    assert len(links) == 8
    for link in links:
        assert link.resolve().is_relative_to(PACKAGE)
