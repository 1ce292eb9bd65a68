"""Sections of a document as pydantic models, and pydantic's errors as sentences.

A section of which some keys cannot be read keeps the others (:class:`Section`),
so that one pass over a file reports problems of form and of meaning.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import (
    Any,
    Final,
    Literal,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from testbed.plugins import Group, installed
from testbed.spec.document import Location, did_you_mean, near, unknown_name

_ErrorPath = tuple[int | str, ...]
"""Keys and indices of a pydantic error, with the tags of unions."""
INSTALLED: Final = "installed"
"""The tag of the section for all kinds of installed packages, in a union of
sections.
"""


class SpecModel(BaseModel):
    """A mapping of a file with strict types and without unknown keys, frozen.

    It is read whole or not at all.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=False,
        # A command uses few of the models: each is built at its first use.
        defer_build=True,
    )


@cache
def descriptions(model: type[SpecModel]) -> Mapping[str, str]:
    """A model's fields that have a description: their own, or the docstring
    below them in the model's source.
    """
    described: dict[str, str] = {}
    # From the base down, so that a subclass's own descriptions win.
    for base in reversed(model.__mro__):
        if not issubclass(base, SpecModel):
            continue
        # A field that is declared anew loses the base's docstring.
        for name in base.__annotations__:
            described.pop(name, None)
        described |= _docstrings(base)
    for name, field in model.model_fields.items():
        if field.description is not None:
            described[name] = field.description
    return described


def _docstrings(model: type[SpecModel]) -> dict[str, str]:
    """Docstrings below the fields that a class declares itself; empty without
    source text.
    """
    try:
        source = inspect.getsource(model)
    except (OSError, TypeError):
        return {}
    tree = ast.parse(textwrap.dedent(source))
    declared = cast("ast.ClassDef", tree.body[0])
    docstrings: dict[str, str] = {}
    # A string that follows a field describes it.
    for field, below in pairwise(declared.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docstrings[name] = inspect.cleandoc(text)
    return docstrings


class Section(SpecModel):
    """A mapping of a file that keeps the keys that can be read."""

    _unreadable: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        """A field's value; None where it could not be read, or there is no such
        field.
        """
        return getattr(self, name, None)

    def is_readable(self, *names: str) -> bool:
        """True unless one of these fields is wrong in form, or is required and
        missing.
        """
        return self._unreadable.isdisjoint(names)

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """The values of ``kind`` that select this section among others."""
        field = cls.model_fields.get("kind")
        if field is None:
            return ()
        return tuple(map(str, get_args(field.annotation)))

    def with_defaults(self) -> Self:
        """The section with defaults for the keys that could not be read."""
        fields = type(self).model_fields
        return self.model_copy(
            update={name: fields[name].default for name in self._unreadable}
        )


M = TypeVar("M", bound=SpecModel)


def read_section(model: type[M], location: Location) -> M | None:
    """A mapping as a model; its problems are reported.

    A :class:`Section` lacks the keys that cannot be read. For a value that is
    no mapping, and for another model with problems, the result is None.
    """
    if not location.is_readable:
        return None
    if not isinstance(location.value, dict):
        location.report(_no_mapping(model, location.value))
        return None
    try:
        whole = model.model_validate(location.value)
    except ValidationError as error:
        _report(model, location, error)
    else:
        # A value that YAML refused is None, and may have passed as a key that
        # is left out.
        if not location.document.unreadable:
            return whole
    return _partly(model, location) if issubclass(model, Section) else None  # type: ignore[return-value]


# ------------------------------------------------------------------ what can be read


def _partly(model: type[Section], location: Location) -> Section:
    """The model with the fields that can be read; the others are None and
    unreadable.
    """
    known = isinstance(location.value, dict) and location.is_readable
    mapping = location.value if known else {}
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in mapping:
            with suppress(_UnreadableError, ValidationError):
                fields[name] = _field(model, name, location / name)
        elif known and not field.is_required():
            fields[name] = field.get_default(call_default_factory=True)
    unreadable = frozenset(model.model_fields) - frozenset(fields)
    fields |= dict.fromkeys(unreadable)
    # Each field was validated by itself.
    section = model.model_construct(
        _fields_set=set(mapping) & set(model.model_fields), **fields
    )
    section._unreadable = unreadable  # noqa: SLF001 - its own kind
    return section


class _UnreadableError(Exception):
    """A field without a readable value."""


def _field(model: type[Section], name: str, location: Location) -> Any:
    """The value of a single field. Raises ValidationError or
    :class:`_UnreadableError`.
    """
    value = location.value
    if location.path in location.document.unreadable:
        raise _UnreadableError
    sections = _sections(model, name)
    if not sections:
        return _adapters(model)[name].validate_python(value)
    # A field holds one section, a list of them, or a mapping.
    origin = _origin(model.model_fields[name].annotation)
    if origin is list and isinstance(value, list):
        return [
            _partly(sections[0], location / index)
            for index in range(len(value))
        ]
    if origin is dict and isinstance(value, dict):
        return {key: _partly(sections[0], location / key) for key in value}
    if origin is not None:
        raise _UnreadableError
    return _one_of(sections, location)


def _one_of(
    sections: Sequence[type[Section]], location: Location
) -> Section:
    """The section of the kind that a mapping names, or that its keys suggest.

    Raises :class:`_UnreadableError` where they suggest none.
    """
    value = location.value
    if isinstance(value, dict):
        chosen = _of_kind(sections, value)
        if chosen is not None:
            return _partly(chosen, location)
    guess = guessed_kind(sections, value)
    if guess is None:
        raise _UnreadableError
    kind, section = guess
    return _partly(section, location).model_copy(update={"kind": kind})


@cache
def _adapters(model: type[SpecModel]) -> dict[str, TypeAdapter[Any]]:
    """The validators of a model's fields, by name."""
    hints = get_type_hints(model, include_extras=True)
    strict = ConfigDict(strict=True)
    return {
        # pydantic refuses a configuration for a type that has its own.
        name: TypeAdapter(
            hints[name],
            config=None if any(_models(hints[name])) else strict,
        )
        for name in model.model_fields
    }


@cache
def _sections(
    model: type[SpecModel], name: str
) -> tuple[type[Section], ...]:
    """The kinds of sections that a field holds: one, a list or a mapping."""
    annotation = model.model_fields[name].annotation
    return tuple(m for m in _models(annotation) if issubclass(m, Section))


def _origin(annotation: Any) -> Any:
    """``list`` or ``dict`` where the annotation, or one of its alternatives, is
    one; else None.
    """
    union = get_origin(annotation) in (Union, UnionType)
    choices = get_args(annotation) if union else (annotation,)
    origins: list[Any] = list(map(get_origin, choices))
    for origin in (list, dict):
        if origin in origins:
            return origin
    return None


def _models(annotation: Any) -> Iterator[type[SpecModel]]:
    """The models inside an annotation such as ``list[Model] | None`` or ``A |
    B``.
    """
    if isinstance(annotation, type) and issubclass(annotation, SpecModel):
        yield annotation
    # The arguments of a Literal are values, not types.
    elif get_origin(annotation) is not Literal:
        for argument in getattr(annotation, "__args__", ()):
            yield from _models(argument)


def kinds_of(models: Sequence[type[SpecModel]]) -> list[str]:
    """The values of ``kind`` that select among the models of a union."""
    kinds: dict[str, None] = {}
    for model in models:
        if issubclass(model, Section):
            kinds |= dict.fromkeys(model.kinds())
    return list(kinds)


def kind_tag(value: Any, union: Any, group: Group) -> Any:
    """The kind of a mapping that an annotated union of tagged sections reads."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind in _tags(union):
        return kind
    if kind in installed(group):
        return INSTALLED
    return kind


@cache
def _tags(union: Any) -> frozenset[str]:
    # An annotated union: its first argument holds the members, each
    # annotated with its tag.
    members = get_args(get_args(union)[0])
    return frozenset(get_args(member)[1].tag for member in members)


def _of_kind(
    models: Sequence[type[M]], value: Mapping[str, Any]
) -> type[M] | None:
    """The only model, or that of the mapping's kind; None without one."""
    if len(models) == 1:
        return models[0]
    known = []
    for model in models:
        if (
            issubclass(model, Section)
            and value.get("kind") in model.kinds()
        ):
            known.append(model)
    # A custom topology may stand in the file or in one of its own: one
    # kind, two sections.
    for model in known:
        if "path" in value and "path" in model.model_fields:
            return model
    return known[0] if known else None


def guessed_kind(
    models: Sequence[type[M]], value: object
) -> tuple[str, type[M]] | None:
    """The likely kind of a mapping without a known one, and its section.

    It is the kind of the nearest name, or else the only one with the fewest
    faults among the mapping's own keys.
    """
    if not isinstance(value, Mapping):
        return None
    by_kind: dict[str, type[M]] = {}
    for model in models:
        # The keys of installed packages are checked elsewhere.
        judged = model.model_config.get("extra") != "allow"
        for kind in kinds_of([model]) if judged else ():
            by_kind.setdefault(kind, model)
    meant = near(str(value.get("kind", "")), list(by_kind))
    if meant is None:
        meant = _fewest_faults(by_kind, value)
    if meant is None:
        return None
    return meant, by_kind[meant]


def _fewest_faults(
    by_kind: Mapping[str, type[SpecModel]], value: Mapping[str, Any]
) -> str | None:
    """The kind that a mapping's keys fit best; None where that is uncertain."""
    faults: dict[str, int] = {}
    for kind, model in by_kind.items():
        # Without a key in common a section fits no better than any other.
        if value.keys() & model.model_fields.keys() - {"kind"}:
            faults[kind] = _own_faults(model, {**value, "kind": kind})
    if not faults:
        return None
    best = min(faults, key=faults.__getitem__)
    shared = value.keys() & by_kind[best].model_fields.keys()
    # As many faults as keys in common are no evidence.
    doubtful = faults[best] >= len(shared - {"kind"})
    if doubtful or list(faults.values()).count(faults[best]) > 1:
        return None
    return best


def _own_faults(model: type[SpecModel], value: Mapping[str, Any]) -> int:
    """The number of faults of a mapping's own keys, without those inside their
    values.
    """
    try:
        model.model_validate(value)
    except ValidationError as error:
        return sum(len(fault["loc"]) == 1 for fault in error.errors())
    return 0


# ------------------------------------------------------------------ pydantic's errors


def _report(
    model: type[SpecModel], section: Location, error: ValidationError
) -> None:
    """Adds pydantic's errors to the document, each at its place."""
    details = error.errors(include_url=False, include_context=True)
    # Unknown keys first: a required one that is missing may be misspelt
    # among them.
    unknown: dict[_ErrorPath, list[str]] = {}
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *holder, key = detail["loc"]
            unknown.setdefault(tuple(holder), []).append(str(key))
    for detail in details:
        location, owner = _resolved(model, section, detail["loc"])
        # The reason for an unreadable value has been reported.
        if location.is_readable:
            others = unknown.get(detail["loc"][:-1], ())
            _report_detail(detail, location, owner, others)


def _report_detail(
    detail: ErrorDetails,
    location: Location,
    owner: type[SpecModel] | None,
    unknown: Sequence[str],
) -> None:
    """Adds one error; ``unknown`` are the unknown keys of the same mapping."""
    kind = detail["type"]
    # pydantic has no path for a key that is no text (a lone surrogate).
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    if kind == "missing":
        # A misspelt key has been reported already.
        if not any(near(name, [key]) for name in unknown):
            location.report(f"is required{_described(owner, key)}")
    elif kind == "extra_forbidden":
        known = [] if owner is None else list(owner.model_fields)
        hint = (
            did_you_mean(key, known) or f"; known keys: {', '.join(known)}"
        )
        location.report(f"is an unknown key{hint}", at_key=True)
    elif kind in _UNION and owner is not None:
        _report_kind(owner.model_fields[key], location)
    elif kind == "model_type" and len(detail["loc"]) == 1 and owner:
        section = next(_models(owner.model_fields[key].annotation))
        location.report(_no_mapping(section, detail["input"]))
    else:
        location.nearest.report(_message(detail))


def _resolved(
    model: type[SpecModel], location: Location, error_path: _ErrorPath
) -> tuple[Location, type[SpecModel] | None]:
    """The location of an error, and the model that its last key belongs to.

    After the key of a union pydantic's path has the tag of the chosen member,
    which the file does not have.
    """
    owner: type[SpecModel] | None = model
    current: type[SpecModel] | None = model
    parts = iter(error_path)
    for part in parts:
        location = location / part
        owner = current
        field = None
        if current and isinstance(part, str):
            field = current.model_fields.get(part)
        if field is None:
            continue
        inner = tuple(_models(field.annotation))
        current = inner[0] if inner else None
        # pydantic names the member by its tag.
        if len(inner) > 1:
            chosen = next(parts, None) is not None
            current = _of_kind(inner, location.value) if chosen else None
    return location, owner


def _described(owner: type[SpecModel] | None, key: str) -> str:
    described = {} if owner is None else descriptions(owner)
    if key not in described:
        return ""
    return f": {one_line(described[key])}"


def one_line(description: str) -> str:
    """A description, which is a docstring, without line ends."""
    return " ".join(description.split())


def _no_mapping(model: type[SpecModel], value: object) -> str:
    keys = ", ".join(model.model_fields)
    return f"must be a mapping with the keys {keys}, not {kind_of(value)}"


def _report_kind(field: FieldInfo, location: Location) -> None:
    """Reports a union that is no mapping, or whose ``kind`` is missing or
    unknown.
    """
    models = tuple(_models(field.annotation))
    value = location.value
    known = kinds_of(models)
    choice = f"one of {', '.join(known)}"
    if not isinstance(value, dict):
        example = ""
        if isinstance(value, list) and "jobs" in known:
            example = ": write {kind: jobs, jobs: [...]}"
        location.report(
            f"must be a mapping with a kind, not {kind_of(value)}{example}"
        )
        return
    kind = value.get("kind")
    if "kind" not in value:
        location.report(f"is required: {choice}", "kind")
    elif (location / "kind").is_readable:
        wrong = f"must be {choice}, not {kind_of(kind)}"
        if isinstance(kind, str):
            wrong = unknown_name(
                f"kind of {location.path[-1]}", kind, known
            )
        location.report(wrong, "kind")
    guess = guessed_kind(models, value)
    if guess is None:
        return
    # Errors of the other keys are those of the guessed kind.
    meant, model = guess
    try:
        model.model_validate({**value, "kind": meant})
    except ValidationError as error:
        _report(model, location, error)


def kind_of(value: object) -> str:
    """A value as a message names it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:37] + '...'!r}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else str(value)


def _message(detail: ErrorDetails) -> str:
    """One of pydantic's errors as a sentence."""
    context = detail.get("ctx", {})
    value = detail["input"]
    kind = detail["type"]
    shown = kind_of(value)
    if kind == "quantity":
        return str(context["message"])
    if kind == "literal_error":
        # pydantic has the values only in its message.
        known = re.findall(r"'([^']+)'", str(context["expected"]))
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        return f"must be one of {', '.join(known)}, not {shown}{hint}"
    if kind == "string_pattern_mismatch":
        # Only names have a pattern.
        return (
            f"must consist of letters, digits, '.', '_' and '-' and begin with a letter or a digit"
            f" (64 characters at most), not {shown}"
        )
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {shown}{_hint(kind, value)}"
    return (
        _outside(detail) or f"{detail['msg'][0].lower()}{detail['msg'][1:]}"
    )


def _outside(detail: ErrorDetails) -> str | None:
    """A number or a length beyond its limit; None for other errors."""
    context = detail.get("ctx", {})
    kind = detail["type"]
    if kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        shown = kind_of(detail["input"])
        return f"must be {word} {context[name]:g}, not {shown}"
    if kind in _LENGTHS:
        name, word = _LENGTHS[kind]
        return f"needs at {word} {context[name]}, not {context['actual_length']}"
    return None


def _hint(kind: str, value: object) -> str:
    """The correction for a number in quotes, or for a text without quotes."""
    if isinstance(value, str):
        if kind.startswith(("int", "float")) and _numeric(value):
            return ": remove the quotes"
    elif kind == "string_type" and isinstance(value, int | float):
        return f": write '{kind_of(value)}' if that is the text"
    return ""


def _numeric(text: str) -> bool:
    return text.strip().removeprefix("-").replace(".", "", 1).isdecimal()


_UNION = (
    "union_tag_invalid",
    "union_tag_not_found",
    "model_attributes_type",
)

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}

_LENGTHS = {
    "too_short": ("min_length", "least"),
    "too_long": ("max_length", "most"),
}

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
