"""The version of the installed package, the one that every part of it names."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """``0.1.0``; ``unknown`` in a tree that was never installed."""
    try:
        return version("hosenet")
    except PackageNotFoundError:
        return "unknown"
