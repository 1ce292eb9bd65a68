"""Strict decoding of JSON objects into dataclasses: every refusal names the field.

The fork server that starts agents runs without site-packages (it starts in a few milliseconds, and
an agent's memory is a copy of its own), so it has no pydantic: the types of the dataclasses' fields
say here what is accepted, :class:`Check` in an ``Annotated`` type what else must hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Decoder = Callable[[object, str], Any]
"""Takes a JSON value and the name of its field."""


class ProtocolError(ValueError):
    """A line or a packet that does not say what it must; the text names the field."""


@dataclass(frozen=True)
class Check:
    """A condition on a decoded value, and what is expected where it does not hold."""

    expected: str
    holds: Callable[[Any], object]

    def __call__(self, value: object, where: str) -> None:
        if not self.holds(value):
            raise ProtocolError(f"{where}: {self.expected} is expected")


Text = Annotated[str, Check("a text", bool)]
Count = Annotated[int, Check("a whole number from 0", lambda n: 0 <= n < 1 << 63)]
Size = Annotated[Count, Check("a size of at least 1 byte", lambda n: n > 0)]
Port = Annotated[int, Check("a port from 1 to 65535", lambda n: 0 < n < 65536)]
Positive = Annotated[float, Check("a number above 0", lambda x: x > 0)]
Share = Annotated[float, Check("a share of a core, at most 1,", lambda x: 0 <= x <= 1)]


def to_object(value: Any) -> Any:
    """A value as JSON has it; a dataclass with a ``kind`` carries it under that name."""
    if is_dataclass(value):
        kind = {"kind": value.kind} if hasattr(value, "kind") else {}
        return kind | {field.name: to_object(getattr(value, field.name)) for field in fields(value)}
    return [to_object(item) for item in value] if isinstance(value, tuple) else value


def encode(value: object) -> bytes:
    """One line of JSON, newline included."""
    return json.dumps(to_object(value), separators=(",", ":")).encode() + b"\n"


def decode(data: bytes, kinds: Iterable[type[T]]) -> T:
    """The inverse of :func:`encode` for a value of one of these classes. Raises ProtocolError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    return from_object(value, kinds)


def from_object(value: object, kinds: Iterable[type[T]], where: str = "") -> T:
    """A value of one of these classes, selected by ``kind``, from its JSON object."""
    known: dict[object, type[T]] = {kind.kind: kind for kind in kinds}  # type: ignore[attr-defined]
    found = _field(value, "kind", where)
    if not isinstance(found, str) or found not in known:
        raise ProtocolError(f"{where}kind: {found!r} is not one of {', '.join(map(str, known))}")
    decoded: T = _object(known[found], value, where)
    return decoded


def _object(cls: Any, value: object, where: str) -> Any:
    return cls(
        **{
            name: decoder(_field(value, name, where), where + name)
            for name, decoder in _field_decoders(cls)
        }
    )


def _field(value: object, name: str, where: str) -> object:
    if not isinstance(value, dict):
        raise ProtocolError(f"{where or 'message'}: an object is expected")
    if name not in value:
        raise ProtocolError(f"{where}{name}: missing")
    return value[name]


@cache
def _field_decoders(cls: Any) -> tuple[tuple[str, Decoder], ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple((field.name, _decoder(hints[field.name])) for field in fields(cls))


def _decoder(hint: Any) -> Decoder:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _checked(_decoder(arguments[0]), arguments[1:])
    if origin in (UnionType, Union):
        (present,) = (each for each in arguments if each is not NoneType)
        decoder = _decoder(present)
        return lambda value, where: None if value is None else decoder(value, where)
    if origin is tuple and arguments[-1] is ...:
        return _list(_decoder(arguments[0]))
    if origin is tuple:
        return _pair([_decoder(each) for each in arguments])
    return _SCALARS[hint] if hint in _SCALARS else _nested(hint)


def _nested(cls: Any) -> Decoder:
    """A class that decodes itself, or any dataclass."""
    decoder = getattr(cls, "decode", None) or (lambda value, where: _object(cls, value, where))
    return lambda value, where: decoder(value, f"{where}.")


def _checked(decoder: Decoder, checks: Iterable[Callable[[Any, str], None]]) -> Decoder:
    def checked(value: object, where: str) -> object:
        decoded = decoder(value, where)
        for check in checks:
            check(decoded, where)
        return decoded

    return checked


def _list(decoder: Decoder) -> Decoder:
    def items(value: object, where: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise ProtocolError(f"{where}: a list is expected")
        return tuple(decoder(item, f"{where}[{i}]") for i, item in enumerate(value))

    return items


def _pair(decoders: list[Decoder]) -> Decoder:
    def pair(value: object, where: str) -> tuple[object, ...]:
        if not isinstance(value, list) or len(value) != len(decoders):
            raise ProtocolError(f"{where}: a pair is expected")
        return tuple(decoder(item, where) for decoder, item in zip(decoders, value, strict=True))

    return pair


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ProtocolError(f"{where}: a text is expected")
    return value


def _integer(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProtocolError(f"{where}: a whole number is expected")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"{where}: a number is expected")
    if not abs(value) < 1e18:  # also refuses NaN and the infinities
        raise ProtocolError(f"{where}: a finite number is expected")
    return float(value)


_SCALARS: dict[Any, Decoder] = {str: _text, int: _integer, float: _number}
