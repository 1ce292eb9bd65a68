"""Policies by the name that experiment files use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.embedding.base import Embedder
from testbed.errors import BadInput
from testbed.schedulers.policy import Policy
from testbed.schedulers.scripted import Scripted
from testbed.schedulers.vc import VirtualCluster


@dataclass(frozen=True)
class PolicyKind:
    """How to build a policy: ``parameters`` names the keys it takes in a file, with defaults."""

    name: str
    build: Callable[[Embedder, Mapping[str, Any]], Policy]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""


POLICIES: dict[str, PolicyKind] = {
    kind.name: kind
    for kind in (
        PolicyKind(
            "scripted",
            lambda embedder, _: Scripted(embedder),
            summary="starts given jobs at given bandwidths",
        ),
        PolicyKind(
            "vc",
            lambda embedder, _: VirtualCluster(embedder),
            summary="Oktopus virtual clusters: on arrival, as asked for, or not at all",
        ),
    )
}


def build_policy(name: str, embedder: Embedder, parameters: Mapping[str, Any]) -> Policy:
    """The policy of that name; an unknown one lists the known ones."""
    kind = POLICIES.get(name)
    if kind is None:
        raise BadInput(f"unknown policy {name!r}: known are {', '.join(sorted(POLICIES))}")
    unknown = sorted(set(parameters) - set(kind.parameters))
    if unknown:
        raise BadInput(f"policy {name} has no parameter {', '.join(unknown)}")
    return kind.build(embedder, {**kind.parameters, **parameters})
