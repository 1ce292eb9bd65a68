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
from testbed.units import (
    BANDWIDTH,
    DURATION,
    format_bandwidth,
    format_share,
    quantity,
)

_ErrorPath = tuple[int | str, ...]
"""Keys and indices of a pydantic error, with the tags of unions."""
INSTALLED: Final = "installed"
"""In a union of sections, the tag of the one for kinds of installed packages."""


class SpecModel(BaseModel):
    """A mapping of a file with strict types and without unknown keys, frozen.

    One wrong key makes the whole mapping unreadable, except in a
    :class:`Section`.
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
    """Descriptions of a model's fields, by name: the field's own, or the
    docstring below it in the model's source.
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
    """A mapping that keeps its readable keys where others are wrong."""

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
    """Reads a mapping as a model and reports its problems.

    A :class:`Section` with problems has None for the keys that cannot be read.
    Any other model with problems, and a value that is no mapping, give None.
    """
    if not location.is_readable:
        return None
    if not isinstance(location.value, dict):
        location.report(_no_mapping_message(model, location.value))
        return None
    try:
        complete = model.model_validate(location.value)
    except ValidationError as error:
        _report(model, location, error)
    else:
        # A value that YAML refused is None in the mapping, which is valid for
        # an optional key. Then the keys are read one by one.
        if not location.document.unreadable:
            return complete
    if issubclass(model, Section):
        return _partial_section(model, location)  # type: ignore[return-value]
    return None


# ------------------------------------------------------------ readable fields


def _partial_section(model: type[Section], location: Location) -> Section:
    """The model with the fields that can be read; the others are None and
    unreadable.
    """
    is_mapping = isinstance(location.value, dict) and location.is_readable
    mapping = location.value if is_mapping else {}
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in mapping:
            with suppress(_UnreadableError, ValidationError):
                fields[name] = _field_value(model, name, location / name)
        elif is_mapping and not field.is_required():
            fields[name] = field.get_default(call_default_factory=True)
    unreadable = frozenset(model.model_fields) - frozenset(fields)
    fields |= dict.fromkeys(unreadable)
    # Without validation, as each field was validated by itself.
    section = model.model_construct(
        _fields_set=set(mapping) & set(model.model_fields), **fields
    )
    section._unreadable = unreadable  # noqa: SLF001 - this module's class
    return section


class _UnreadableError(Exception):
    """A field without a readable value."""


def _field_value(
    model: type[Section], name: str, location: Location
) -> Any:
    """The value of a single field. Raises ValidationError or
    :class:`_UnreadableError`.
    """
    value = location.value
    if location.path in location.document.unreadable:
        raise _UnreadableError
    sections = _sections(model, name)
    if not sections:
        return _adapters(model)[name].validate_python(value)
    # A field holds a list of sections, a mapping of them, or a single one.
    origin = _container(model.model_fields[name].annotation)
    if origin is list and isinstance(value, list):
        return [
            _partial_section(sections[0], location / index)
            for index in range(len(value))
        ]
    if origin is dict and isinstance(value, dict):
        return {
            key: _partial_section(sections[0], location / key)
            for key in value
        }
    # Neither the list nor the mapping that the field wants.
    if origin is not None:
        raise _UnreadableError
    return _section_of_kind(sections, location)


def _section_of_kind(
    sections: Sequence[type[Section]], location: Location
) -> Section:
    """The section of the kind that a mapping names, or else of the likely kind.

    Raises :class:`_UnreadableError` where no kind is likely.
    """
    value = location.value
    if isinstance(value, dict):
        chosen = _model_of_kind(sections, value)
        if chosen is not None:
            return _partial_section(chosen, location)
    guess = guessed_kind(sections, value)
    if guess is None:
        raise _UnreadableError
    kind, section = guess
    return _partial_section(section, location).model_copy(
        update={"kind": kind}
    )


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
    """Section classes in a field's annotation, also in a list or mapping."""
    annotation = model.model_fields[name].annotation
    return tuple(m for m in _models(annotation) if issubclass(m, Section))


def _container(annotation: Any) -> Any:
    """``list`` or ``dict`` if an annotation, or a member of its union, is of
    that type; else None.
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
    """The tag of the member of a union that reads a value, for pydantic's
    ``Discriminator``.

    It is the value's ``kind``, or :data:`INSTALLED` for a kind of an installed
    package. ``union``: annotated, with tagged sections as members.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind in _tags(union):
        return kind
    if kind in installed(group):
        return INSTALLED
    return kind


@cache
def _tags(union: Any) -> frozenset[str]:
    # ``Annotated[A | B, …]`` has the union as its first argument; each member
    # is ``Annotated[Section, Tag]``.
    members = get_args(get_args(union)[0])
    return frozenset(get_args(member)[1].tag for member in members)


def _model_of_kind(
    models: Sequence[type[M]], value: Mapping[str, Any]
) -> type[M] | None:
    """The model of the mapping's ``kind``, or the only model; None if no model
    has the kind.
    """
    if len(models) == 1:
        return models[0]
    known = []
    for model in models:
        if (
            issubclass(model, Section)
            and value.get("kind") in model.kinds()
        ):
            known.append(model)
    # Two sections have the kind of custom topologies: one for a topology in
    # the experiment file, one for a path to another file.
    for model in known:
        if "path" in value and "path" in model.model_fields:
            return model
    return known[0] if known else None


def guessed_kind(
    models: Sequence[type[M]], value: object
) -> tuple[str, type[M]] | None:
    """The likely kind of a mapping without a known ``kind``, and its section.

    It is the kind with a similar name, or else the kind in which the mapping's
    keys have the fewest faults. None if neither decides.
    """
    if not isinstance(value, Mapping):
        return None
    by_kind: dict[str, type[M]] = {}
    for model in models:
        # The section of installed packages allows any key.
        if model.model_config.get("extra") == "allow":
            continue
        for kind in kinds_of([model]):
            by_kind.setdefault(kind, model)
    likely = near(str(value.get("kind", "")), list(by_kind))
    if likely is None:
        likely = _fewest_faults(by_kind, value)
    if likely is None:
        return None
    return likely, by_kind[likely]


def _fewest_faults(
    by_kind: Mapping[str, type[SpecModel]], value: Mapping[str, Any]
) -> str | None:
    """The kind that a mapping's keys fit best; None where that is uncertain."""
    faults: dict[str, int] = {}
    keys = value.keys() - {"kind"}
    for kind, model in by_kind.items():
        # Without a key in common a section fits no better than any other.
        if keys & model.model_fields.keys():
            faults[kind] = _key_faults(model, {**value, "kind": kind})
    if not faults:
        return None
    best = min(faults, key=faults.__getitem__)
    common = keys & by_kind[best].model_fields.keys()
    # With a fault for each key in common the fit may be chance.
    if faults[best] >= len(common):
        return None
    # Two kinds that fit equally well leave it open.
    if list(faults.values()).count(faults[best]) > 1:
        return None
    return best


def _key_faults(model: type[SpecModel], value: Mapping[str, Any]) -> int:
    """The number of faults of a mapping's keys; those inside their values do not
    count.
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
    # Unknown keys first: a missing key may be one of them, misspelt.
    unknown: dict[_ErrorPath, list[str]] = {}
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *holder, key = detail["loc"]
            unknown.setdefault(tuple(holder), []).append(str(key))
    for detail in details:
        location, owner = _resolved(model, section, detail["loc"])
        # The reason for an unreadable value has been reported.
        if location.is_readable:
            unknown_beside = unknown.get(detail["loc"][:-1], ())
            _report_detail(detail, location, owner, unknown_beside)


def _report_detail(
    detail: ErrorDetails,
    location: Location,
    owner: type[SpecModel] | None,
    unknown: Sequence[str],
) -> None:
    """Adds one error; ``unknown`` are the unknown keys of the same mapping."""
    error_type = detail["type"]
    # The path is empty for a key that is no valid text, as a lone surrogate.
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    if error_type == "missing":
        # If it is misspelt, it is reported as an unknown key.
        if not any(near(name, [key]) for name in unknown):
            location.report(f"is required{_description_after(owner, key)}")
    elif error_type == "extra_forbidden":
        known = [] if owner is None else list(owner.model_fields)
        hint = (
            did_you_mean(key, known) or f"; known keys: {', '.join(known)}"
        )
        location.report(f"is an unknown key{hint}", at_key=True)
    elif error_type in _UNION and owner is not None:
        _report_kind(owner.model_fields[key], location)
    elif error_type == "model_type" and len(detail["loc"]) == 1 and owner:
        section = next(_models(owner.model_fields[key].annotation))
        location.report(_no_mapping_message(section, detail["input"]))
    else:
        location.nearest.report(_message(detail))


def _resolved(
    model: type[SpecModel], location: Location, error_path: _ErrorPath
) -> tuple[Location, type[SpecModel] | None]:
    """The location of an error, and the model that its last key belongs to.

    In pydantic's path the key of a union is followed by the tag of the chosen
    member, which stands nowhere in the file.
    """
    owner: type[SpecModel] | None = model
    # The model of the mapping that the path has reached; None if unknown.
    current: type[SpecModel] | None = model
    parts = iter(error_path)
    for part in parts:
        # An entry that stands alone is read as a list of one.
        if isinstance(part, int) and isinstance(location.value, dict):
            continue
        location = location / part
        owner = current
        field = None
        if current and isinstance(part, str):
            field = current.model_fields.get(part)
        if field is None:
            continue
        inner = tuple(_models(field.annotation))
        current = inner[0] if inner else None
        if len(inner) > 1:
            current = None
            # The tag is skipped. Without it no member was chosen.
            if next(parts, None) is not None:
                current = _model_of_kind(inner, location.value)
    return location, owner


def _description_after(owner: type[SpecModel] | None, key: str) -> str:
    """``: `` and the description of a key; empty without one."""
    described = {} if owner is None else descriptions(owner)
    if key not in described:
        return ""
    return f": {one_line(described[key])}"


def one_line(description: str) -> str:
    """A description, which is a docstring, without line ends."""
    return " ".join(description.split())


def _no_mapping_message(model: type[SpecModel], value: object) -> str:
    keys = ", ".join(model.model_fields)
    return f"must be a mapping with the keys {keys}, not {value_in_words(value)}"


def _report_kind(field: FieldInfo, location: Location) -> None:
    """Reports a value for a union of sections: it is no mapping, or its
    ``kind`` is missing or unknown. The other keys are checked by the likely kind.
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
            f"must be a mapping with a kind, not {value_in_words(value)}{example}"
        )
        return
    kind = value.get("kind")
    if "kind" not in value:
        location.report(f"is required: {choice}", "kind")
    elif (location / "kind").is_readable:
        wrong = f"must be {choice}, not {value_in_words(kind)}"
        if isinstance(kind, str):
            wrong = unknown_name(
                f"kind of {location.path[-1]}", kind, known
            )
        location.report(wrong, "kind")
    guess = guessed_kind(models, value)
    if guess is None:
        return
    likely, model = guess
    try:
        model.model_validate({**value, "kind": likely})
    except ValidationError as error:
        _report(model, location, error)


def value_in_words(value: object) -> str:
    """A value as messages show it: ``a list``, ``the text 'x'``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value if len(value) <= 40 else f"{value[:37]}..."
        return f"the text {text!r}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else str(value)


def _message(detail: ErrorDetails) -> str:
    """One of pydantic's errors as a sentence."""
    context = detail.get("ctx", {})
    value = detail["input"]
    error_type = detail["type"]
    shown = value_in_words(value)
    if error_type == "quantity":
        return str(context["message"])
    if error_type == "literal_error":
        # pydantic lists the values in one text.
        known = re.findall(r"'([^']+)'", str(context["expected"]))
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        return f"must be one of {', '.join(known)}, not {shown}{hint}"
    if error_type == "string_pattern_mismatch":
        # Only names have a pattern.
        return (
            "must consist of letters a to z, digits, '.', '_' and '-' and"
            " begin with a letter or a digit"
            f" (64 characters at most), not {shown}"
        )
    if error_type in _WANTED:
        hint = _hint(error_type, value)
        return f"must be {_WANTED[error_type]}, not {shown}{hint}"
    if error_type in (*_BOUNDS, *_LENGTHS):
        return _limit_message(detail)
    # Any other error has pydantic's message, in lower case at the start.
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}"


def _limit_message(detail: ErrorDetails) -> str:
    """A number or a length beyond its limit, as a sentence."""
    context = detail.get("ctx", {})
    error_type = detail["type"]
    if error_type in _BOUNDS:
        name, word = _BOUNDS[error_type]
        shown = value_in_words(detail["input"])
        limit = _limit(context[name], detail["input"])
        return f"must be {word} {limit}, not {shown}"
    name, word = _LENGTHS[error_type]
    return (
        f"needs at {word} {context[name]}, not {context['actual_length']}"
    )


def _limit(limit: float, value: object) -> str:
    """A limit in the unit in which it can be written in the value's place."""
    written = quantity(value) if isinstance(value, str) else None
    if written is None:
        return f"{limit:.10g}"
    kind, _, _ = written
    if kind == "share":
        return format_share(limit)
    if kind == DURATION.name:
        return f"{limit:.10g} s"
    if kind == BANDWIDTH.name:
        return format_bandwidth(int(limit))
    return f"{limit:.10g}"


def _hint(error_type: str, value: object) -> str:
    """The correction where a number has quotes, or a text lacks them."""
    if isinstance(value, str):
        if error_type.startswith(("int", "float")) and _numeric(value):
            return ": remove the quotes"
    elif error_type == "string_type" and isinstance(value, int | float):
        return f": write '{value_in_words(value)}' if that is the text"
    return ""


def _numeric(text: str) -> bool:
    return text.strip().removeprefix("-").replace(".", "", 1).isdecimal()


# Error types of a union of sections: no known kind, or no mapping.
_UNION = (
    "union_tag_invalid",
    "union_tag_not_found",
    "model_attributes_type",
)

# By error type: the limit's name in pydantic's context, its words in messages.
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

# By error type: the value that is wanted, in words.
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
