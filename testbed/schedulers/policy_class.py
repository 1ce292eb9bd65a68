"""Declarations of policies that are written as plain classes: parameters from
the constructor.

    class Patient:
        "Tries a few jobs behind the head of the queue."

        def __init__(self, embedder, depth: int = 3): ...

        def decide(self, view, event): ...

is the policy ``patient`` that takes the keys ``depth`` and ``embedder``. A
class may have the attributes ``name``, ``parameters`` (a frozen dataclass of
:func:`parameter` fields; the constructor is then ``(embedder, given)``),
``claims``, ``leases``, ``sharing`` and ``on_failure``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import Field, fields, is_dataclass, make_dataclass, replace
from inspect import Parameter as Argument
from inspect import Signature, iscoroutinefunction, signature
from math import isfinite
from types import SimpleNamespace
from typing import Any, TypeAlias, get_args, get_type_hints

from testbed.embedding.placement import Embedder
from testbed.failures import OnFailure
from testbed.plugin_source import check_source
from testbed.plugins import Loaded, PluginError, raised_anywhere
from testbed.schedulers.policy import (
    CLAIMS,
    Policy,
    PolicyKind,
    SharingModel,
    parameter,
)

Build: TypeAlias = Callable[[Embedder, Any], Policy]

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SCALARS = (bool, int, float, str)
_OPTIONAL = ("claims", "leases", "sharing", "on_failure")
_TAKEN = ("class", "name", "coupling", "on_failure")
_EXAMPLE = "def __init__(self, embedder, depth: int = 3)"


class NotAPolicy(ValueError):
    """The reason for which an object is no policy, and the form of one."""


def policy_kind_of(loaded: Loaded, name: str | None = None) -> PolicyKind:
    """The declaration of a policy class, or the one given.

    Raises NotAPolicy, and PluginError for one whose decisions are impure.

    ``name`` is that of a class without one; None: the class's own, as
    ``my-policy``.
    """
    try:
        check_source(loaded)
        return _declared(loaded, name)
    except (NotAPolicy, PluginError):
        raise
    # Looking at a stranger's class runs its code (descriptors, properties):
    # whatever that raises is its reason.
    except Exception as error:
        raise NotAPolicy(raised_anywhere(error)) from error


def _declared(loaded: Loaded, name: str | None) -> PolicyKind:
    declared = loaded.value
    if isinstance(declared, type):
        declared = _of_class(declared, name)
    if not isinstance(declared, PolicyKind):
        raise NotAPolicy(
            f"is {_article(declared)}, not a class with decide(self, view, event) or a PolicyKind"
        )
    if type(declared.name) is not str or not _SAFE_NAME.fullmatch(
        declared.name
    ):
        rule = "letters, digits, '.', '_' and '-', 64 at most"
        raise NotAPolicy(
            f"is called {declared.name!r}: a policy's name consists of {rule}"
        )
    _check_parameters(declared.parameters)
    _check_optional(declared)
    return replace(declared, source=loaded.source)


def _article(thing: object) -> str:
    kind = type(thing).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _of_class(policy: type[Any], name: str | None) -> PolicyKind:
    _check_decide(policy)
    # A name that is inherited is that of another policy.
    name = vars(policy).get("name") or name or _kebab(policy.__name__)
    declared = getattr(policy, "parameters", None)
    if declared is None:
        embeds, parameters = _of_constructor(policy)
        build = _by_arguments(policy, name, embeds=embeds)
    else:
        embeds = True
        parameters = declared
        _check_parameters(declared)
        _check_constructor(policy)
        build = _by_parameters(policy, name)
    lines = (policy.__doc__ or "").strip().splitlines()
    summary = lines[0] if lines else name
    optional = {}
    for key in _OPTIONAL:
        if hasattr(policy, key):
            optional[key] = getattr(policy, key)
    return PolicyKind(
        name, summary, build, parameters, embeds=embeds, **optional
    )


def _kebab(name: str) -> str:
    """``JSAWithQueue`` as ``jsa-with-queue``."""
    return re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name
    ).lower()


def _by_parameters(policy: type[Any], name: str) -> Build:
    """Builds a policy whose constructor takes its parameter dataclass."""

    def build(embedder: Embedder, parameters: Any) -> Policy:
        return _named(policy(embedder, parameters), policy, name)

    return build


def _by_arguments(policy: type[Any], name: str, *, embeds: bool) -> Build:
    """Builds a policy whose constructor names its parameters, and perhaps an
    embedder.
    """

    def build(embedder: Embedder, parameters: Any) -> Policy:
        arguments: dict[str, Any] = {}
        if embeds:
            arguments["embedder"] = embedder
        for field in fields(parameters):
            arguments[field.name] = getattr(parameters, field.name)
        return _named(policy(**arguments), policy, name)

    return build


def _named(built: Policy, policy: type[Any], name: str) -> Policy:
    """Names a policy that has not named itself."""
    # Its constructor has not given it a name of its own.
    if getattr(built, "name", None) == getattr(policy, "name", None):
        built.name = name
    return built


# -- checks, each a sentence ---------------------------------------------------


def _signature(of: Callable[..., Any]) -> Signature:
    try:
        return signature(of)
    except (TypeError, ValueError):
        raise NotAPolicy(f"has no signature: write {_EXAMPLE}") from None


def _check_decide(policy: type[Any]) -> None:
    decide = getattr(policy, "decide", None)
    if not callable(decide):
        raise NotAPolicy(
            "has no method decide: write def decide(self, view, event)"
        )
    if iscoroutinefunction(decide):
        raise NotAPolicy(
            "has an async decide, which nobody awaits: write def decide(self, view, event)"
        )
    arguments = _signature(decide)
    try:
        arguments.bind(None, None, None)
    except TypeError:
        taken = ", ".join(arguments.parameters)
        wanted = "def decide(self, view, event)"
        raise NotAPolicy(
            f"has decide({taken}), but is asked with a view and an event: write {wanted}"
        ) from None


def _check_parameters(parameters: object) -> None:
    if not isinstance(parameters, type) or not is_dataclass(parameters):
        raise NotAPolicy(
            "has parameters that are no dataclass with fields made by parameter(...)"
        )
    for field in fields(parameters):
        if "help" not in field.metadata:
            raise NotAPolicy(
                f"has the parameter {field.name}, which parameter(...) has not made"
            )


def _check_constructor(policy: type[Any]) -> None:
    try:
        _signature(policy).bind(None, None)
    except TypeError:
        wanted = "def __init__(self, embedder, given)"
        raise NotAPolicy(
            f"has parameters, and a constructor that cannot take them: write {wanted}"
        ) from None


def _check_optional(declared: PolicyKind) -> None:
    # Claims that depend on the parameters are checked when those are known.
    if not callable(declared.claims):
        _check_claims(declared.claims)
    leases: Any = declared.leases
    if not isinstance(leases, bool):
        raise NotAPolicy(f"has the leases {leases!r}: write True or False")
    ways: Any = declared.on_failure
    sharing: Any = declared.sharing
    known = get_args(OnFailure)
    if not isinstance(ways, tuple) or not set(ways) <= set(known):
        what = f"{', '.join(known[:-1])} and {known[-1]}"
        raise NotAPolicy(
            f"has the on_failure {ways!r}: it is a tuple of {what}"
        )
    if not isinstance(sharing, SharingModel | None):
        raise NotAPolicy("has a sharing that is no SharingModel")


def _check_claims(claims: object) -> None:
    if not isinstance(claims, tuple):
        raise NotAPolicy(
            f"has the claims {claims!r}: they are a tuple of names"
        )
    for claim in claims:
        if claim not in CLAIMS:
            raise NotAPolicy(
                f"claims {claim!r}, which is none of {', '.join(CLAIMS)}"
            )


# -- parameters of a constructor -----------------------------------------------


def _of_constructor(policy: type[Any]) -> tuple[bool, type[Any]]:
    """True where it takes an embedder, and its other arguments as a parameter
    dataclass.
    """
    arguments = _signature(policy).parameters
    hints = _hints(policy)
    made = []
    for name, argument in arguments.items():
        if argument.kind == Argument.POSITIONAL_ONLY:
            raise NotAPolicy(
                f"takes {name} by position alone: leave out the /"
            )
        if name != "embedder":
            made.append((name, Any, _field(argument, hints.get(name))))
    return "embedder" in arguments, make_dataclass(
        f"{policy.__name__}Parameters", made, frozen=True
    )


def _hints(policy: type[Any]) -> Mapping[str, Any]:
    """The types of the constructor's arguments, by name, as far as they can be
    resolved: names that are imported for a type checker alone cannot.
    """
    hints: dict[str, Any] = {}
    constructor = policy.__init__
    names = getattr(constructor, "__globals__", {})
    for name, annotation in getattr(
        constructor, "__annotations__", {}
    ).items():
        # Each by itself: one that cannot be resolved leaves the others.
        argument = SimpleNamespace(__annotations__={name: annotation})
        with suppress(Exception):
            hints |= get_type_hints(argument, names, include_extras=True)
    return hints


def _field(argument: Argument, hint: Any) -> Any:
    """The field of one argument: as ``Annotated[int, parameter(…)]`` says, or
    by its default.
    """
    _check_argument(argument)
    declared = next(
        filter(_is_field, getattr(hint, "__metadata__", ())), None
    )
    default = argument.default
    if default is Argument.empty and declared is not None:
        default = declared.default
    _check_default(argument.name, default)
    described = {} if declared is None else declared.metadata
    is_whole = isinstance(default, int) and not isinstance(default, bool)
    # A file's 3.5 is refused where the default is a whole number.
    plain = getattr(hint, "__origin__", hint)
    if plain is float and is_whole:
        default = float(default)
    return parameter(default, **{"help": "", **described})


def _check_argument(argument: Argument) -> None:
    name = argument.name
    if argument.kind in (Argument.VAR_POSITIONAL, Argument.VAR_KEYWORD):
        raise NotAPolicy(
            f"takes *{name}, which no file can give: name each parameter, as {_EXAMPLE}"
        )
    if name in _TAKEN:
        raise NotAPolicy(
            f"takes {name}, which has a meaning of its own: call it otherwise"
        )


def _is_field(note: object) -> bool:
    return isinstance(note, Field)


def _check_default(name: str, default: Any) -> None:
    if default is Argument.empty:
        raise NotAPolicy(
            f"takes {name} without a default: give it one, as {_EXAMPLE}"
        )
    endless = isinstance(default, float) and not isfinite(default)
    if endless or not isinstance(default, _SCALARS):
        what = "a default is true or false, a number or a text"
        raise NotAPolicy(
            f"takes {name} with the default {default!r}: {what}"
        )
