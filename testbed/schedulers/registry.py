"""Policies by the names that experiment files use, found and not listed.

Every module of this package that has ``POLICIES``, a tuple of
:class:`PolicyKind`, makes its policies known to experiment files, JSON Schema,
messages, simulator and audit:

    @dataclass(frozen=True)
    class PatientParameters:
        depth: int = parameter(3, "jobs behind the head that are tried", limits=(1, 100))

    POLICIES = (
        PolicyKind(
            "patient", "fcfs that tries a few behind the head",
            lambda embedder, chosen: Patient(embedder, chosen.depth),
            PatientParameters, embeds=True, claims=("no-preemption",),
        ),
    )

Claims reach the audit as data, for it shares no code with policies:
``spec.resolved.json`` of a run folder holds under ``claims`` the list of the
names (:data:`CLAIMS`) that the folder's policy declares for its parameters. A
folder without that key is of an earlier version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from testbed.embedding.base import declared
from testbed.embedding.placement import Embedder
from testbed.errors import BadInput
from testbed.plugins import Installed, Loaded, PluginError, installed
from testbed.schedulers.policy import Policy, PolicyKind
from testbed.schedulers.policy_class import NotAPolicy, policy_kind_of


def by_name(kinds: Iterable[PolicyKind]) -> dict[str, PolicyKind]:
    """Declarations in order of their names; ValueError where two have the same."""
    kinds_by_name: dict[str, PolicyKind] = {}
    for kind in sorted(kinds, key=lambda kind: kind.name):
        if kind.name in kinds_by_name:
            raise ValueError(f"two policies are called {kind.name!r}")
        kinds_by_name[kind.name] = kind
    return kinds_by_name


@cache
def own_policies() -> Mapping[str, PolicyKind]:
    """All policies of :mod:`testbed.schedulers`, by name. Imports its modules
    when first asked.
    """
    return by_name(declared("testbed.schedulers", "POLICIES"))


def known_policies() -> Mapping[str, PolicyKind]:
    """All policies by name: ours, and those of installed packages that can be
    loaded.
    """
    others = _of_packages(tuple(installed("policies").values()))
    return dict(sorted({**others, **own_policies()}.items()))


def policy_kind(name: str) -> PolicyKind:
    """The declaration of a policy; BadInput lists the known ones for any other
    name.

    Raises PluginError for one of an installed package that cannot be loaded.
    """
    # Ours first: packages are loaded only for a name that is not ours.
    kind = own_policies().get(name) or known_policies().get(name)
    if kind is None and name in installed("policies"):
        # It is installed and could not be loaded: loading it again says
        # why.
        _kinds_of(installed("policies")[name])
    if kind is None:
        raise BadInput(
            f"unknown policy {name!r}: known are {', '.join(known_policies())}"
        )
    return kind


@cache
def _of_packages(
    plugins: tuple[Installed, ...],
) -> Mapping[str, PolicyKind]:
    kinds: dict[str, PolicyKind] = {}
    for plugin in plugins:
        # Raised again for whoever asks for it by name.
        with suppress(PluginError):
            for kind in _kinds_of(plugin):
                kinds[kind.name] = kind
    return kinds


def _kinds_of(plugin: Installed) -> tuple[PolicyKind, ...]:
    """The declarations of one entry point: of a class, or one, or a tuple of
    them.
    """
    loaded = plugin.load()
    if isinstance(loaded.value, tuple):
        declared = loaded.value
        name = None
    else:
        declared = (loaded.value,)
        name = plugin.name
    try:
        kinds = tuple(
            policy_kind_of(Loaded(declaration, loaded.source), name)
            for declaration in declared
        )
    except NotAPolicy as objection:
        raise PluginError(f"{loaded.source} {objection}") from None
    for kind in kinds:
        if kind.name in own_policies():
            raise PluginError(
                f"{loaded.source} is called {kind.name}, as a policy of ours is"
            )
    return kinds


def build_policy(
    name: str, embedder: Embedder, parameters: Mapping[str, Any]
) -> Policy:
    """The policy of that name, with parameters by the keys of files.

    An ``embedder`` among the parameters takes the place of the given one.
    """
    return policy_kind(name).make(embedder, parameters)
