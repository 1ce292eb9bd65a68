"""Quantities and names of experiment files as pydantic types, with their JSON
Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from jobs.job_names import SAFE_NAME
from testbed import units
from topologies.datacentre import DIRECTIONS, Capacity

T = TypeVar("T")

HOUR_S: Final = 3600.0


def refused_value(message: str) -> PydanticCustomError:
    """The error of a refused value, whose text is ``message`` alone."""
    return PydanticCustomError(
        "quantity", "{message}", {"message": message}
    )


def as_list(value: object) -> list[object]:
    """The value if it is a list, otherwise a list of it alone."""
    if isinstance(value, list):
        return value
    return [value]


def _checked(parse: Callable[[Any], T]) -> Callable[[Any], T]:
    def check(value: Any) -> T:
        try:
            return parse(value)
        except units.UnitError as error:
            raise refused_value(str(error)) from None

    return check


def _above_zero(parse: Callable[[Any], T]) -> Callable[[Any], T]:
    def above_zero(value: Any) -> T:
        amount = parse(value)
        if amount == 0:
            raise units.UnitError("must be above 0")
        return amount

    return above_zero


def _positive(parse: Callable[[Any], T]) -> PlainValidator:
    return PlainValidator(_checked(_above_zero(parse)))


def parse_capacity(value: object) -> Capacity:
    """A link's capacity in bit/s, from ``500 Mbit/s`` or from a mapping with
    one for each direction. Raises UnitError.
    """
    one_way = _above_zero(units.parse_bandwidth)
    if not isinstance(value, Mapping):
        return one_way(value)
    if value.keys() != set(DIRECTIONS):
        raise units.UnitError(
            "a link's two capacities are written {up: 50 Mbit/s, down:"
            " 100 Mbit/s}: up is toward the root"
        )
    both: dict[str, int] = {}
    for direction in DIRECTIONS:
        try:
            both[direction] = one_way(value[direction])
        except units.UnitError as error:
            raise units.UnitError(f"{direction}: {error}") from None
    return both


def _text_or_number(parse: Callable[[str], float]) -> BeforeValidator:
    """Parses a text with its unit; keeps a bare number, which is in the unit of
    the key.
    """
    return BeforeValidator(
        _checked(lambda v: parse(v) if isinstance(v, str) else v)
    )


def _schema(
    pattern: str, description: str, examples: list[str]
) -> dict[str, Any]:
    return {
        "type": "string",
        "pattern": pattern,
        "description": description,
        "examples": examples,
    }


BANDWIDTH_SCHEMA: Final = _schema(
    units.BANDWIDTH.pattern,
    "a bandwidth with its unit",
    ["500 Mbit/s", "1 Gbit/s", "800 kbit/s"],
)
MEMORY_SCHEMA: Final = _schema(
    units.SIZE.pattern,
    "an amount of memory with its unit",
    ["16 GiB", "1920 MiB"],
)
_DURATION = _schema(
    units.DURATION.pattern,
    "a time with its unit",
    ["6 s", "250 ms", "1 h"],
)
_RATE = _schema(
    units.PER_HOUR.pattern, "a rate with its unit", ["40/h", "2 /min"]
)


def _share(value: object) -> float:
    share = units.parse_share(value)
    if share > 1:
        raise units.UnitError(f"{value} is more than 100 %")
    return share


def _signed_share(value: Any) -> float:
    if isinstance(value, str) and value.startswith("-"):
        return -units.parse_share(value[1:].lstrip())
    if isinstance(value, int | float) and value < 0:
        return -units.parse_share(-value)
    return units.parse_share(value)


def _mebibytes(value: object) -> int:
    size = units.parse_size(value)
    # Memory is reserved in whole MiB.
    if size % 2**20:
        raise units.UnitError(f"{value} is not a whole number of MiB")
    return size // 2**20


def _cap(value: Any) -> int | None:
    try:
        if value == "none":
            return None
        return units.parse_bandwidth(value)
    except units.UnitError as error:
        raise units.UnitError(f"{error}, or none") from None


_BPS = WithJsonSchema(BANDWIDTH_SCHEMA)
_SECONDS = WithJsonSchema(_DURATION)

Bandwidth = Annotated[
    int, PlainValidator(_checked(units.parse_bandwidth)), _BPS
]
"""Bit/s, from ``500 Mbit/s``."""

PositiveBandwidth = Annotated[int, _positive(units.parse_bandwidth), _BPS]

CAPACITY_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        BANDWIDTH_SCHEMA,
        {
            "type": "object",
            "description": "a capacity for each direction: up is toward the root",
            "properties": dict.fromkeys(DIRECTIONS, BANDWIDTH_SCHEMA),
            "required": list(DIRECTIONS),
            "additionalProperties": False,
        },
    ]
}

LinkCapacity = Annotated[
    Any,
    PlainValidator(_checked(parse_capacity)),
    WithJsonSchema(CAPACITY_SCHEMA),
]
"""Bit/s of each direction, from ``500 Mbit/s``; or of either, from ``{up:
50 Mbit/s, down: 100 Mbit/s}``.
"""

BandwidthCap = Annotated[
    int | None,
    PlainValidator(_checked(_cap)),
    WithJsonSchema({"anyOf": [BANDWIDTH_SCHEMA, {"const": "none"}]}),
]
"""Bit/s, or None from ``none``."""

Memory = Annotated[
    int, _positive(_mebibytes), WithJsonSchema(MEMORY_SCHEMA)
]
"""Whole MiB, from ``16 GiB``."""

Duration = Annotated[
    float, PlainValidator(_checked(units.parse_duration)), _SECONDS
]
"""Seconds, from ``6 s``."""

PositiveDuration = Annotated[
    float, _positive(units.parse_duration), _SECONDS
]

Hours = Annotated[
    float,
    _text_or_number(lambda text: units.parse_duration(text) / HOUR_S),
    Field(gt=0, le=1e5),
    WithJsonSchema(
        {"anyOf": [_DURATION, {"type": "number", "exclusiveMinimum": 0}]}
    ),
]
"""Hours, from ``6 h`` or from the bare number 6."""

PerHour = Annotated[
    float,
    _text_or_number(units.parse_per_hour),
    Field(ge=0, le=1e6),
    WithJsonSchema({"anyOf": [_RATE, {"type": "number", "minimum": 0}]}),
]
"""Events per hour, from ``40/h`` or from the bare number 40."""

Share = Annotated[
    float,
    PlainValidator(_checked(_share)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": units.SHARE_PATTERN},
                {"type": "number", "minimum": 0, "maximum": 1},
            ],
            "description": "a share of the whole: a percentage, or a number from 0 to 1",
            "examples": ["12 %", 0.12],
        }
    ),
]
"""A ratio from 0 to 1, from ``12 %`` or 0.12."""

SignedShare = Annotated[
    float,
    PlainValidator(_checked(_signed_share)),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "string",
                    "pattern": f"^-? *{units.SHARE_PATTERN.lstrip('^')}",
                },
                {"type": "number"},
            ],
            "description": "a share above or below 0",
            "examples": ["-12 %", 0.3],
        }
    ),
]
"""A ratio of any size and sign, from ``-12 %`` or -0.12."""

Name = Annotated[str, Field(pattern=SAFE_NAME)]
"""A name that is safe in a path, a URL and a table."""
