"""Policies by the names that experiment files use, found and not listed.

Every module of this package that has ``POLICIES``, a tuple of :class:`PolicyKind`, makes its
policies known to experiment files, JSON Schema, messages, simulator and audit:

    @dataclass(frozen=True)
    class PatientParameters:
        depth: int = parameter(3, "jobs behind the head that are tried", limits=(1, 100))

    POLICIES = (
        PolicyKind(
            "patient", "fcfs that tries a few behind the head",
            lambda embedder, given: Patient(embedder, given.depth),
            PatientParameters, embeds=True, claims=("no-preemption",),
        ),
    )

Claims reach the audit as data, for it shares no code with policies: ``spec.resolved.json`` of a
run folder holds under ``claims`` the list of the names (:data:`CLAIMS`) that the folder's policy
declares for its parameters. A folder without that key is of an earlier version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from testbed.embedding.base import Embedder, declared
from testbed.errors import BadInput
from testbed.schedulers.policy import Policy, PolicyKind


def by_name(kinds: Iterable[PolicyKind]) -> dict[str, PolicyKind]:
    """Declarations in order of their names; ValueError where two have the same."""
    found: dict[str, PolicyKind] = {}
    for kind in sorted(kinds, key=lambda kind: kind.name):
        if kind.name in found:
            raise ValueError(f"two policies are called {kind.name!r}")
        found[kind.name] = kind
    return found


@cache
def known_policies() -> Mapping[str, PolicyKind]:
    """All policies of :mod:`testbed.schedulers`, by name. Imports its modules when first asked."""
    return by_name(declared("testbed.schedulers", "POLICIES"))


def policy_kind(name: str) -> PolicyKind:
    """The declaration of a policy; BadInput lists the known ones for any other name."""
    kind = known_policies().get(name)
    if kind is None:
        raise BadInput(f"unknown policy {name!r}: known are {', '.join(known_policies())}")
    return kind


def build_policy(name: str, embedder: Embedder, parameters: Mapping[str, Any]) -> Policy:
    """The policy of that name, with parameters by the keys of files.

    An ``embedder`` among the parameters takes the place of the given one.
    """
    return policy_kind(name).make(embedder, parameters)
