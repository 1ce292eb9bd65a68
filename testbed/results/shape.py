"""Whether a parsed event has the types its class declares: the guard in front of every reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from testbed.events import EVENTS, Event, JobEnded, JobSubmitted, RunStarted

JOB_FIELDS: dict[str, str] = {
    "id": "str",
    "submit_s": "float",
    "n_vms": "int",
    "bandwidth_bps": "int",
    "duration_s": "float",
    "deadline_s": "float | None",
    "kind": "str",
    "application": "str | None",
    "value": "float",
}
# Not every request has them, nor had the first run folders.
OPTIONAL_JOB_FIELDS: dict[str, str] = {
    "cores": "int",
    "memory_mib": "int",
    "lease": "str | None",
    "wanted_s": "float | None",
    "estimate_s": "float | None",
    "profile": "Profile | None",
}
OPTIONAL_DETAIL_FIELDS = {"price": "float"}
TOPOLOGY_FIELDS: dict[str, str] = {
    "names": "list[str]",
    "slots": "list[int]",
    "links": "dict[str, Any]",
    "trees": "list[dict[str, Any]]",
}
OPTIONAL_TOPOLOGY_FIELDS = {"memory_mib": "list[int]"}
LINK_FIELDS = dict.fromkeys(("lower", "upper", "capacity_bps"), "list[int]")
TREE_FIELDS = {"root": "int", "parent": "list[int]", "uplink": "list[int]"}


LARGEST = 1e30
"""Above all that is counted here, and far below where arithmetic with floats ends in an error."""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -LARGEST < value < LARGEST
    )


def _list_of(inside: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(inside(item) for item in value)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _is_pair(value: Any) -> bool:
    """Two whole numbers. ``type`` on purpose: it is quick, and a truth is no number."""
    return (
        type(value) is list
        and len(value) == 2
        and type(value[0]) is int is type(value[1])
        and -LARGEST < value[0] < LARGEST
        and -LARGEST < value[1] < LARGEST
    )


def _is_sample(value: Any) -> bool:
    """``[directed link, sent, reserved]``."""
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(_is_number(v) for v in value)
        and value[0] == int(value[0])
    )


def _is_profile(value: Any) -> bool:
    """``options``: at least one ``[bandwidth, running time]``."""
    options = value.get("options") if isinstance(value, dict) else None
    return (
        isinstance(options, list)
        and bool(options)
        and all(isinstance(o, list) and len(o) == 2 and all(map(_is_number, o)) for o in options)
    )


_HOLDS: dict[str, Callable[[Any], bool]] = {
    "str": _is_str,
    "int": _is_int,
    "float": _is_number,
    "int | None": lambda value: value is None or _is_int(value),
    "float | None": lambda value: value is None or _is_number(value),
    "str | None": lambda value: value is None or isinstance(value, str),
    "Profile | None": lambda value: value is None or _is_profile(value),
    "dict[str, Any]": _is_dict,
    "Mapping[str, Any]": _is_dict,
    "dict[str, float]": lambda value: (
        isinstance(value, dict) and all(map(_is_number, value.values()))
    ),
    "list[int]": _list_of(_is_int),
    "list[str]": _list_of(_is_str),
    "list[dict[str, Any]]": _list_of(_is_dict),
    "list[list[int]]": _list_of(_is_pair),
    "list[list[float]]": _list_of(_is_sample),
}


# Name, type and its test of every field of every event: made once, used for every line.
_FIELDS: dict[str, tuple[tuple[str, str, Callable[[Any], bool]], ...]] = {
    name: tuple((f.name, str(f.type), _HOLDS[str(f.type)]) for f in fields(kind))
    for name, kind in EVENTS.items()
}


def check_shape(event: Event) -> None:
    """Raises ValueError naming the first field that has not the type its class declares."""
    for name, kind, holds in _FIELDS[event.name]:
        if not holds(getattr(event, name)):
            raise ValueError(f"{event.name}: {name} is not {kind}")
    if isinstance(event, JobSubmitted):
        require_all("job", event.job, JOB_FIELDS)
        require_where_there("job", event.job, OPTIONAL_JOB_FIELDS)
    elif isinstance(event, JobEnded):
        require_where_there("detail", event.detail, OPTIONAL_DETAIL_FIELDS)
    elif isinstance(event, RunStarted):
        require_all("topology", event.topology, TOPOLOGY_FIELDS)
        require_where_there("topology", event.topology, OPTIONAL_TOPOLOGY_FIELDS)
        require_all("topology.links", event.topology["links"], LINK_FIELDS)
        for tree in event.topology["trees"]:
            require_all("topology.trees", tree, TREE_FIELDS)


def require_all(where: str, record: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Raises ValueError naming the first field that ``record`` lacks or that is of another type."""
    for name in wanted:
        if name not in record:
            raise ValueError(f"{where} lacks {name}")
    require_where_there(where, record, wanted)


def require_where_there(where: str, record: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Raises ValueError naming the first field that is there and of another type."""
    for name, kind in wanted.items():
        if name in record and not _HOLDS[kind](record[name]):
            raise ValueError(f"{where}: {name} is not {kind}")
