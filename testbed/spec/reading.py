"""A part of a document read into its model; what pydantic objects to, in this project's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from testbed.spec.document import Document
from testbed.spec.problems import Path, Problem, did_you_mean, dotted, near, unknown_name
from testbed.spec.quantities import SpecModel

M = TypeVar("M", bound=SpecModel)


def read_model(model: type[M], document: Document, path: Path) -> M | None:
    """The value at ``path`` as a model, or None; what is wrong with it goes to the document."""
    value = document.at(path)
    if document.is_poisoned(path):
        return None
    if not isinstance(value, dict):
        keys = ", ".join(model.model_fields)
        document.report(path, f"must be a mapping with the keys {keys}, not {kind_of(value)}")
        return None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        document.problems.extend(_problems(model, document, path, details))
        return None


def partial(model: type[SpecModel], document: Document, path: Path) -> dict[str, Any]:
    """The fields at ``path`` that can be read, by name, defaults included; without a word.

    So that one pass over a file finds what is wrong with its meaning beside what is wrong with
    its form.
    """
    value = document.at(path)
    if document.is_poisoned(path) or not isinstance(value, dict):
        return {}
    known: dict[str, Any] = {}
    for name, adapter in _adapters(model).items():
        if name in value and (*path, name) not in document.poisoned:
            with suppress(ValidationError):
                known[name] = adapter.validate_python(value[name])
        elif name not in value and not model.model_fields[name].is_required():
            known[name] = model.model_fields[name].get_default(call_default_factory=True)
    return known


@cache
def _adapters(model: type[SpecModel]) -> dict[str, TypeAdapter[Any]]:
    """What validates each field of a model by itself."""
    hints = get_type_hints(model, include_extras=True)
    strict = ConfigDict(strict=True)
    return {
        name: TypeAdapter(hints[name], config=None if _first_model(hints[name]) else strict)
        for name in model.model_fields
    }


def read_kind(document: Document, path: Path, known: Sequence[str], what: str) -> str | None:
    """The ``kind`` of the mapping at ``path``: one of the known ones, or None with a problem."""
    value = document.at(path)
    if document.is_poisoned(path) or document.is_poisoned((*path, "kind")):
        return None
    if not isinstance(value, dict):
        document.report(path, f"must be a mapping with a kind, not {kind_of(value)}")
        return None
    if "kind" not in value:
        where = Problem(
            document.place(path), dotted((*path, "kind")), f"is required: {_one(known)}"
        )
        document.problems.append(where)
        return None
    kind = value["kind"]
    if isinstance(kind, str) and kind in known:
        return kind
    if not isinstance(kind, str):
        message = f"must be {_one(known)}, not {kind_of(kind)}"
    else:
        message = unknown_name(f"kind of {what}", kind, known)
    document.report((*path, "kind"), message)
    return None


def _one(known: Sequence[str]) -> str:
    return f"one of {', '.join(known)}"


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


def _problems(
    model: type[SpecModel], document: Document, path: Path, details: list[ErrorDetails]
) -> list[Problem]:
    unknown: dict[Path, list[str]] = {}
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *holder, key = detail["loc"]
            unknown.setdefault(tuple(holder), []).append(str(key))
    out: list[Problem] = []
    for detail in details:
        *holder, key = detail["loc"]
        here = (*path, *detail["loc"])
        if document.is_poisoned(here):
            continue
        if detail["type"] == "missing":
            meant = [near(name, [str(key)]) for name in unknown.get(tuple(holder), [])]
            if any(meant):  # the misspelt key has been named already
                continue
            place = document.place((*path, *holder))
            out.append(Problem(place, dotted(here), f"is required{_help(model, detail['loc'])}"))
        elif detail["type"] == "extra_forbidden":
            known = _keys(model, tuple(holder))
            hint = did_you_mean(str(key), known) or f"; known keys: {', '.join(known)}"
            out.append(Problem(document.key_place(here), dotted(here), f"is an unknown key{hint}"))
        else:
            here = document.nearest(here)
            out.append(Problem(document.places[here], dotted(here), _message(detail)))
    return out


def _model_at(model: type[SpecModel], location: tuple[int | str, ...]) -> type[SpecModel] | None:
    """The model that describes the mapping at a location below ``model``."""
    current: type[SpecModel] | None = model
    for part in location:
        if isinstance(part, int):
            continue
        field = current.model_fields.get(part) if current is not None else None
        current = _first_model(field.annotation) if field is not None else current
    return current


def _first_model(annotation: Any) -> type[SpecModel] | None:
    """The model inside an annotation such as ``list[Model] | None`` or ``dict[str, Model]``."""
    if isinstance(annotation, type) and issubclass(annotation, SpecModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _first_model(argument)
        if found is not None:
            return found
    return None


def _keys(model: type[SpecModel], location: tuple[int | str, ...]) -> list[str]:
    inner = _model_at(model, location)
    return [] if inner is None else [f.alias or name for name, f in inner.model_fields.items()]


def _help(model: type[SpecModel], location: tuple[int | str, ...]) -> str:
    inner = _model_at(model, location[:-1])
    field = None if inner is None else inner.model_fields.get(str(location[-1]))
    return f": {field.description}" if field is not None and field.description else ""


def _message(detail: ErrorDetails) -> str:
    """One of pydantic's objections as a sentence."""
    context, value, kind = detail.get("ctx", {}), detail["input"], detail["type"]
    shown = kind_of(value)
    if kind == "quantity":
        sentence = str(context["message"])
    elif kind == "literal_error":
        known = re.findall(r"'([^']+)'", str(context["expected"]))
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        sentence = f"must be one of {', '.join(known)}, not {shown}{hint}"
    elif kind == "string_pattern_mismatch":
        sentence = (
            f"must consist of letters, digits, '.', '_' and '-' and begin with a letter or a digit"
            f" (64 characters at most), not {shown}"
        )
    elif kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        sentence = f"must be {word} {context[name]:g}, not {shown}"
    elif kind in _WANTED:
        mend = ""
        if isinstance(value, str) and kind.startswith(("int", "float")) and _numeric(value):
            mend = ": remove the quotes"
        elif kind == "string_type" and isinstance(value, int | float):
            mend = f": write '{shown}' if that is the text"
        sentence = f"must be {_WANTED[kind]}, not {shown}{mend}"
    elif kind in ("too_short", "too_long"):
        word, name = ("least", "min_length") if kind == "too_short" else ("most", "max_length")
        sentence = f"needs at {word} {context[name]}, not {context['actual_length']}"
    else:
        sentence = f"{detail['msg'][0].lower()}{detail['msg'][1:]}"
    return sentence


def _numeric(text: str) -> bool:
    return text.strip().removeprefix("-").replace(".", "", 1).isdecimal()


_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
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
    "model_attributes_type": "a mapping",
}
