"""The guard that every other live test relies on: what a test leaves behind is found by name."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def ip(*arguments: str) -> None:
    subprocess.run(
        ["ip", *arguments], check=True, timeout=60, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def guard(request: pytest.FixtureRequest) -> Any:
    """tests/conftest.py as a module."""
    conftest = Path(__file__).parents[2] / "conftest.py"
    return next(
        plugin
        for plugin in request.config.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", None) == str(conftest)
    )


def test_a_namespace_and_a_link_are_found_and_removed(
    guard: Any, prefix: str
) -> None:
    ip("netns", "add", f"{prefix}-s0v1")
    ip(
        "link",
        "add",
        f"{prefix}-r0-d1",
        "type",
        "veth",
        "peer",
        "name",
        f"{prefix}-s0-u0",
    )
    found = guard.left_behind(prefix)
    guard._remove(found)
    assert found == [
        f"link {prefix}-r0-d1",
        f"link {prefix}-s0-u0",
        f"namespace {prefix}-s0v1",
    ]
    assert guard.left_behind(prefix) == []


def test_others_names_are_left_alone(
    guard: Any, prefix: str, make_prefix: Callable[[], str]
) -> None:
    other = make_prefix()
    ip("netns", "add", f"{other}-s0v1")
    try:
        assert guard.left_behind(prefix) == []
    finally:
        ip("netns", "delete", f"{other}-s0v1")
