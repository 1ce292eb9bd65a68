"""Python values of an experiment as the YAML of an experiment file, and paths."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path as FilePath
from typing import Any

import yaml

from testbed.errors import BadInput
from testbed.owned_files import from_home
from testbed.spec.document import MAX_DEPTH, Path, Place, Problem
from testbed.spec.validation import value_in_words
from topologies.datacentre import dotted

# Words that YAML 1.1, or another reader, takes for something else.
_WORDS = frozenset(
    (
        "y",
        "n",
        "yes",
        "no",
        "on",
        "off",
        "true",
        "false",
        "null",
        "nan",
        "inf",
    )
)
_PLAIN = re.compile(r"[A-Za-z_./][\w ./+-]*", re.ASCII)
_TAG = "tag:yaml.org,2002:"


def yaml_of(values: object, source: str) -> tuple[str, list[Problem]]:
    """The text of an experiment file with these values, and the problems of
    values that no file can have, which are null in it.
    """
    problems: list[Problem] = []
    plain = plain_value(values, (), Place(source), problems)
    return _dumped(plain, flow=False), problems


def yaml_value(value: object, key: str) -> tuple[str, list[Problem]]:
    """The YAML of a value on one line, and its problems. A text is YAML already,
    as after ``--set``.
    """
    if isinstance(value, str):
        return value, []
    problems: list[Problem] = []
    plain = plain_value(value, (key,), Place("overrides"), problems)
    text = _dumped(plain, flow=True)
    # PyYAML ends the document of a lone scalar by three points.
    return text.removesuffix("...\n").rstrip("\n"), problems


def _dumped(value: object, *, flow: bool) -> str:
    # In the order given, and no line folded: an option has one line.
    options: dict[str, Any] = {
        "sort_keys": False,
        "allow_unicode": True,
        "width": math.inf,
    }
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, **options
    )
    return text


def plain_value(
    value: Any, path: Path, source: Place, problems: list[Problem]
) -> Any:
    """The value in types of YAML; None, and a problem, where there is none."""
    match value:
        # Before Integral, since True is an integer to Python.
        case None | bool() | str():
            # Exact types: PyYAML's safe dumper knows no subclasses, as
            # numpy's texts are.
            return _exact(value) if isinstance(value, str) else value
        case Integral():
            return int(value)
        case Real() if math.isfinite(value):
            return float(value)
        case os.PathLike():
            return os.fspath(value)
        # A list that holds itself would never end.
        case Mapping() | list() | tuple() | range() if (
            len(path) <= MAX_DEPTH
        ):
            return _plain_inside(value, path, source, problems)
    message = (
        f"must be a value as a file can hold it, not {_described(value)}"
    )
    problems.append(Problem(source, dotted(path), message))
    return None


def _plain_inside(
    value: Any, path: Path, source: Place, problems: list[Problem]
) -> Any:
    if not isinstance(value, Mapping):
        entries = []
        for index, entry in enumerate(value):
            entries.append(
                plain_value(entry, (*path, index), source, problems)
            )
        return entries
    out = {}
    for key, entry in value.items():
        if isinstance(key, str):
            name = _exact(key)
            out[name] = plain_value(entry, (*path, name), source, problems)
        else:
            message = f"has the key {key!r}, which is no text"
            problems.append(Problem(source, dotted(path), message))
    return out


def _exact(text: str) -> str:
    """The text of a subclass. ``str`` would give an enumeration's name."""
    return str.__str__(text)


def _described(value: object) -> str:
    if isinstance(value, Real):
        return f"{value}"
    if isinstance(value, Mapping | list | tuple | range):
        return f"{value_in_words(value)} nested deeper than {MAX_DEPTH}"
    return (
        f"an object of {type(value).__module__}.{type(value).__qualname__}"
    )


class _Dumper(yaml.SafeDumper):
    """Writes scalars that the reader of experiment files reads as the same
    values.
    """

    def write_text(self, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return self.represent_scalar(
            f"{_TAG}str", value, style=None if plain else '"'
        )

    def write_number(self, value: float) -> yaml.ScalarNode:
        # repr gives the shortest text that reads back as the same float;
        # files know no exponents.
        text = format(Decimal(repr(value)), "f")
        return self.represent_scalar(
            f"{_TAG}float", text if "." in text else f"{text}.0"
        )


_Dumper.add_representer(str, _Dumper.write_text)
_Dumper.add_representer(float, _Dumper.write_number)


def path_argument(value: object, rule: str) -> FilePath:
    """A path that Python code gives, with ``~`` replaced. Raises BadInput for a
    value that is none; ``rule`` begins the message.
    """
    # The text of some paths, as of os.scandir's entries, is not their name.
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(name, str):
        raise BadInput(f"{rule}, not {type(value).__name__}")
    if "\0" in name:
        raise BadInput(f"{rule}, not {name!r}: no name has a NUL")
    return FilePath(from_home(name))
