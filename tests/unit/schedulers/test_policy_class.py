"""A policy written as a plain class becomes a declaration, or one sentence says why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from testbed.embedding.base import embedder
from testbed.plugins import Loaded, Source
from testbed.schedulers.policy import PolicyKind, SharingModel, parameter
from testbed.schedulers.policy_class import NotAPolicy, policy_kind_of
from testbed.schedulers.vc import VirtualCluster

SOURCE = Source("./mine.py:MyPolicy")


def kind_of(found: Any, name: str | None = None) -> PolicyKind:
    return policy_kind_of(Loaded(found, SOURCE), name)


@pytest.mark.parametrize(
    "arguments",
    [
        {"recompute_s": 0.0},
        {"recompute_s": -1.0},
        {"flow_dependency": "lockstp"},
        {"allocation": "evn"},
        {"weights": "same"},
    ],
)
def test_no_sharing_without_a_meaning(arguments: dict[str, Any]) -> None:
    """Rates that are computed anew at once, for ever, hang the simulator."""
    with pytest.raises(ValueError, match=r"is above 0|is none of"):
        SharingModel(**arguments)


class Awaited:
    async def decide(self, view: Any, event: Any) -> list[Any]:
        return []


class ByPosition:
    def __init__(self, embedder: Any, depth: int = 3, /) -> None:
        self.depth = depth

    def decide(self, view: Any, event: Any) -> list[Any]:
        return []


class OfATypeChecker:
    """A policy with a type that is imported for a type checker alone."""

    def __init__(
        self,
        embedder: NeverImported,  # type: ignore[name-defined]  # noqa: F821
        least: Annotated[
            float, parameter(1, "the least", limits=(0.5, 4))
        ] = 1,
    ) -> None:
        self.least = least

    def decide(self, view: Any, event: Any) -> list[Any]:
        return []


def test_a_type_that_cannot_be_resolved_leaves_the_others() -> None:
    takes = kind_of(OfATypeChecker).takes["least"]
    assert takes.limits == (0.5, 4)
    # A file's 1.5 is for a number, whatever its default is written as.
    assert isinstance(takes.default, float)


def objection(found: Any) -> str:
    with pytest.raises(NotAPolicy) as caught:
        kind_of(found)
    return str(caught.value)


class Base:
    def decide(self, view: Any, event: Any) -> list[Any]:
        del view, event
        return []


class JSAWithQueue(Base):
    """Waits.

    And waits.
    """

    def __init__(
        self,
        embedder: Any,
        depth: Annotated[
            int, parameter(3, "jobs that are tried", limits=(1, 10))
        ] = 4,
        patience_s: Annotated[
            float, parameter(60.0, "time until it gives up", unit="s")
        ] = 60.0,
        share: float = 1,
        order: str = "fifo",
        strict: bool = True,
    ) -> None:
        self.given = embedder, depth, patience_s, share, order, strict


def test_the_constructors_arguments_are_the_parameters() -> None:
    kind = kind_of(JSAWithQueue)
    assert (kind.name, kind.summary, kind.embeds) == (
        "jsa-with-queue",
        "Waits.",
        True,
    )
    assert kind.source is SOURCE
    assert {key: takes.default for key, takes in kind.takes.items()} == {
        "depth": 4,
        "patience": 60.0,
        "share": 1.0,
        "order": "fifo",
        "strict": True,
        "embedder": None,
    }
    assert (kind.takes["depth"].help, kind.takes["depth"].limits) == (
        "jobs that are tried",
        (1, 10),
    )
    assert isinstance(kind.takes["share"].default, float)
    built: Any = kind.make(
        embedder("greedy"), {"depth": 2, "patience": 5.0}
    )
    assert built.given == (embedder("greedy"), 2, 5.0, 1.0, "fifo", True)
    assert built.name == "jsa-with-queue"


def test_a_class_without_a_constructor_takes_nothing() -> None:
    kind = kind_of(Base)
    assert (kind.name, kind.summary, dict(kind.takes)) == (
        "base",
        "base",
        {},
    )
    assert kind.make(embedder("greedy"), {}).name == "base"


def test_an_entry_points_name_is_that_of_a_class_without_one() -> None:
    class Named(Base):
        name = "own"

    assert kind_of(Base, "entry").name == "entry"
    assert kind_of(Named, "entry").name == "own"


def test_a_subclass_of_a_policy_of_ours_has_a_name_of_its_own() -> None:
    class Patient(VirtualCluster):
        """As vc, and more."""

    kind = kind_of(Patient)
    assert (kind.name, kind.make(embedder("greedy"), {}).name) == (
        "patient",
        "patient",
    )


def test_declared_parameters_and_attributes_are_those_of_a_declaration() -> (
    None
):
    @dataclass(frozen=True)
    class Own:
        depth: int = parameter(3, "jobs behind the head")

    class Declared(Base):
        name = "declared"
        parameters = Own
        claims = ("no-preemption",)
        leases = True
        on_failure = ("kill", "wait")
        sharing = SharingModel("lockstep")

        def __init__(self, embedder: Any, given: Own) -> None:
            self.given = given

    kind = kind_of(Declared)
    assert list(kind.takes) == [
        "depth",
        "coupling",
        "on_failure",
        "embedder",
    ]
    assert (kind.leases, kind.claims_of({}), kind.on_failure_of({})) == (
        *(True, ("no-preemption",)),
        "kill",
    )
    assert kind.sharing_of({}).flow_dependency == "lockstep"
    built: Any = kind.make(embedder("greedy"), {"depth": 7})
    assert built.given == Own(7)


def test_a_declaration_is_taken_as_it_is() -> None:
    kind = PolicyKind(
        "own",
        "a policy",
        lambda embedder, _: VirtualCluster(embedder),
        embeds=True,
    )
    assert kind_of(kind).name == "own"
    assert kind_of(kind).source is SOURCE


def _wrong(**attributes: Any) -> type[Any]:
    return type("Wrong", (Base,), attributes)


def _with(method: str, arguments: str) -> type[Any]:
    names: dict[str, Any] = {}
    exec(f"def {method}({arguments}): pass", names)  # noqa: S102 - a signature from a text
    return _wrong(**{method: names[method]})


def _init(arguments: str) -> type[Any]:
    return _with("__init__", f"self, {arguments}")


def test_each_mistake_is_one_sentence_that_says_what_to_write() -> None:
    example = "def __init__(self, embedder, depth: int = 3)"
    decide = "def decide(self, view, event)"

    class Undecided:
        pass

    assert objection(Undecided) == f"has no method decide: write {decide}"
    for taken in ("self", "self, view", "self, view, event, more"):
        assert objection(_with("decide", taken)) == (
            f"has decide({taken}), but is asked with a view and an event: write {decide}"
        )
    assert objection(_init("embedder, depth")) == (
        f"takes depth without a default: give it one, as {example}"
    )
    assert objection(_init("depth=None")) == (
        "takes depth with the default None: a default is true or false, a number or a text"
    )
    assert objection(_init("depth=float('nan')")) == (
        "takes depth with the default nan: a default is true or false, a number or a text"
    )
    assert objection(_init("depth=float('inf')")).startswith(
        "takes depth with the default inf"
    )
    assert objection(_init("*depths")) == (
        f"takes *depths, which no file can give: name each parameter, as {example}"
    )
    assert (
        objection(_init("name='x'"))
        == "takes name, which has a meaning of its own: call it otherwise"
    )
    assert objection(7) == (
        "is an int, not a class with decide(self, view, event) or a PolicyKind"
    )
    assert objection(_wrong(name="a b")) == (
        "is called 'a b': a policy's name consists of letters, digits, '.', '_' and '-', 64 at most"
    )
    assert objection(_wrong(name=7)).startswith(
        "is called 7: a policy's name"
    )
    assert objection(_wrong(claims=("fast",))).startswith(
        "claims 'fast', which is none of granted"
    )
    assert (
        objection(_wrong(claims=7))
        == "has the claims 7: they are a tuple of names"
    )
    assert objection(_wrong(on_failure=("explode",))) == (
        "has the on_failure ('explode',): it is a tuple of wait, kill and requeue"
    )
    assert objection(ByPosition).startswith("takes embedder by position")
    assert objection(_init("depth=3, /")).startswith("takes depth by pos")
    assert objection(Awaited) == (
        f"has an async decide, which nobody awaits: write {decide}"
    )
    assert (
        objection(_wrong(leases="no"))
        == "has the leases 'no': write True or False"
    )
    assert (
        objection(_wrong(sharing="equal"))
        == "has a sharing that is no SharingModel"
    )
    assert objection(_wrong(parameters=7)) == (
        "has parameters that are no dataclass with fields made by parameter(...)"
    )


def test_a_declaration_is_checked_as_a_class_is() -> None:
    def build(embedder: Any, _: Any) -> VirtualCluster:
        return VirtualCluster(embedder)

    wrong: Any = (
        {"parameters": int},
        {"claims": ("fast",)},
        {"on_failure": "kill"},
    )
    for given in wrong:
        assert objection(
            PolicyKind("own", "a policy", build, **given)
        ).startswith(f"{'claims' if 'claims' in given else 'has'} ")


def test_declared_parameters_need_a_constructor_that_takes_them() -> None:
    @dataclass(frozen=True)
    class Own:
        depth: int = parameter(3, "jobs behind the head")

    @dataclass(frozen=True)
    class Plain:
        depth: int = 3

    assert objection(_wrong(parameters=Own)) == (
        "has parameters, and a constructor that cannot take them:"
        " write def __init__(self, embedder, given)"
    )
    assert objection(_wrong(parameters=Plain)) == (
        "has the parameter depth, which parameter(...) has not made"
    )
