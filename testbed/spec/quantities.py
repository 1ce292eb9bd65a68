"""The kinds of value that experiment files are made of, as pydantic types with their schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from testbed import units

T = TypeVar("T", int, float)

SAFE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class SpecModel(BaseModel):
    """A mapping of an experiment file: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=False
    )


def _refuse(message: str) -> PydanticCustomError:
    return PydanticCustomError("quantity", "{message}", {"message": message})


def _read(parse: Callable[[object], T], *, above_zero: bool = False) -> Callable[[Any], T]:
    def check(value: Any) -> T:
        try:
            amount = parse(value)
        except units.UnitError as error:
            raise _refuse(str(error)) from None
        if above_zero and amount == 0:
            raise _refuse("must be above 0")
        return amount

    return check


def _ratio(value: object) -> float:
    share = units.parse_share(value)
    if share > 1:
        raise units.UnitError(f"{value} is more than 100 %")
    return share


BANDWIDTH_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": units.BANDWIDTH.pattern,
    "description": "a bandwidth with its unit",
    "examples": ["500 Mbit/s", "1 Gbit/s", "800 kbit/s"],
}
_BANDWIDTH = WithJsonSchema(BANDWIDTH_SCHEMA)
_DURATION = WithJsonSchema(
    {
        "type": "string",
        "pattern": units.DURATION.pattern,
        "description": "a time with its unit",
        "examples": ["6 s", "250 ms", "1 h"],
    }
)
_SHARE = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string", "pattern": units.SHARE_PATTERN},
            {"type": "number", "minimum": 0, "maximum": 1},
        ],
        "description": "a share of the whole: a percentage, or a number from 0 to 1",
        "examples": ["12 %", 0.12],
    }
)

Bandwidth = Annotated[int, PlainValidator(_read(units.parse_bandwidth)), _BANDWIDTH]
"""Bit/s, from ``500 Mbit/s``."""

PositiveBandwidth = Annotated[
    int, PlainValidator(_read(units.parse_bandwidth, above_zero=True)), _BANDWIDTH
]


def _mebibytes(value: object) -> int:
    size = units.parse_size(value)
    if size % 2**20:
        raise units.UnitError(f"{value} is not a whole number of MiB")
    return size // 2**20


MEMORY_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": units.SIZE.pattern,
    "description": "an amount of memory with its unit",
    "examples": ["16 GiB", "1920 MiB"],
}

Memory = Annotated[
    int, PlainValidator(_read(_mebibytes, above_zero=True)), WithJsonSchema(MEMORY_SCHEMA)
]
"""Whole MiB, from ``16 GiB``."""

Duration = Annotated[float, PlainValidator(_read(units.parse_duration)), _DURATION]
"""Seconds, from ``6 s``."""

PositiveDuration = Annotated[
    float, PlainValidator(_read(units.parse_duration, above_zero=True)), _DURATION
]

Share = Annotated[float, PlainValidator(_read(_ratio)), _SHARE]
"""A ratio from 0 to 1, from ``12 %`` or 0.12."""

Name = Annotated[str, Field(pattern=SAFE_NAME)]
"""A name that is safe in a path, a URL and a table."""
