"""Names and signatures of ``import testbed``, beside those that the last commit had.

``python -m tests.support.public_names`` writes them down anew. A change needs a line in
CHANGELOG.md and, once there is a 1.0.0, the version that docs/releasing.md asks for.
"""

from __future__ import annotations

import inspect
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import testbed
from testbed.standing.standing_network import StandingNetwork

STORED = Path(__file__).with_suffix(".json")
NOTE = (
    "the Python interface differs from tests/support/public_names.json: say the change in "
    "CHANGELOG.md, with the version that docs/releasing.md asks for, then write the list by "
    "`python -m tests.support.public_names`"
)


def public_names() -> dict[str, str]:
    """Every public name and attribute, as ``Run.plot``, with its signature or type."""
    named = {name: getattr(testbed, name) for name in testbed.__all__}
    return {
        key: text
        for name, value in {
            **named,
            "StandingNetwork": StandingNetwork,
        }.items()
        for key, text in _of(name, value).items()
    }


def _of(name: str, value: Any) -> dict[str, str]:
    if not inspect.isclass(value):
        return {
            name: _signature(value)
            if callable(value)
            else type(value).__name__
        }
    bases = ", ".join(
        base.__name__ for base in value.__bases__ if base is not object
    )
    attributes = {
        f"{name}.{key}": _attribute(inner)
        for key, inner in _attributes(value).items()
    }
    return {name: f"class({bases})"} | attributes


def _attributes(kind: type) -> dict[str, Any]:
    """The attributes that a class of ours has, and those with brackets and ``with``."""
    ours = [
        base
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("testbed")
    ]
    by_name = {
        key: value for base in ours for key, value in vars(base).items()
    }
    shown = ("__getitem__", "__enter__", "__exit__")
    return {
        k: v
        for k, v in sorted(by_name.items())
        if k in shown or not k.startswith("_")
    }


def _attribute(value: Any) -> str:
    if isinstance(value, cached_property):
        return "property" + _signature(value.func)
    if isinstance(value, property):
        return "property" + _signature(value.fget)
    return _signature(value) if callable(value) else repr(value)


def _signature(function: Any) -> str:
    return str(inspect.signature(function))


def stored() -> dict[str, str]:
    signatures: dict[str, str] = json.loads(STORED.read_text("utf-8"))
    return signatures


if __name__ == "__main__":
    STORED.write_text(
        json.dumps(public_names(), indent=1) + "\n", encoding="utf-8"
    )
